"""The control protocol: input lines, requests, responses, and the connection to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from travois.compat.claude_json import Json, JsonObject
from travois.ports.tool import ToolError

EMPTY_OBJECT_JSON = msgspec.Raw(b"{}")


class HostHookMatcher(msgspec.Struct, frozen=True, rename="camel"):
    """Hook callbacks of the client for one matcher."""

    hook_callback_ids: tuple[str, ...] = ()
    matcher: str | None = None
    timeout: float | None = None
    on_failure: str | None = None


class ControlRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A control request; its fields depend on `subtype`."""

    subtype: str
    hooks: dict[str, tuple[HostHookMatcher, ...]] | None = None
    sdk_mcp_servers: tuple[str, ...] | None = None
    system_prompt: str | tuple[str, ...] | None = None
    append_system_prompt: str | None = None
    agents: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    forward_subagent_text: bool | None = None
    mode: str = ""
    model: str | None = None
    user_message_id: str = msgspec.field(default="", name="user_message_id")
    dry_run: bool | None = msgspec.field(default=None, name="dry_run")
    task_id: str = msgspec.field(default="", name="task_id")
    server_name: str = ""
    enabled: bool = True
    title: str = ""
    servers: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    source: str = ""
    """The settings file to save to; empty to apply settings to the session only."""
    speaker: str = msgspec.field(default="", name="server_name")
    message: dict[str, Any] | None = None
    """A message of an SDK server; `speaker` names the server."""
    skills: tuple[str, ...] | None = None
    path: str = ""
    max_bytes: int | None = msgspec.field(default=None, name="max_bytes")
    encoding: str | None = None
    mtime: float = 0
    """When the client last saw the file, in milliseconds."""
    max_thinking_tokens: int | None = msgspec.field(default=None, name="max_thinking_tokens")


class ControlResponse(msgspec.Struct, frozen=True):
    """The client's response to a request of ours."""

    request_id: str
    subtype: str = "success"
    response: msgspec.Raw = EMPTY_OBJECT_JSON
    error: str = ""


class InputLine(msgspec.Struct, frozen=True):
    """An input line, as far as all kinds share fields."""

    type: str
    message: msgspec.Raw = EMPTY_OBJECT_JSON
    request_id: str = ""
    request: msgspec.Raw = EMPTY_OBJECT_JSON
    response: msgspec.Raw = EMPTY_OBJECT_JSON
    uuid: str | None = ""
    origin: dict[str, Any] | None = None
    """Who a user message is from, for the result of its turn."""
    client_composed: bool = False
    """True if the text is final, with no mentions or commands to expand."""


# Requests to the client, matched with its responses by id.


HOST_GONE = "the client has disconnected"


class HostDeclined(ToolError):
    """The client's refusal of a request, or its failure."""


class PendingAnswer:
    """A request without a response yet."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.answer: msgspec.Raw | None = None
        self.why = HOST_GONE


class HostConnection:
    """Requests to the client and their responses."""

    def __init__(self, say: Callable[[JsonObject], None]) -> None:
        self._say = say
        self._waiting: dict[str, PendingAnswer] = {}
        self._count = 0
        self._open = True

    async def request(self, subtype: str, body: JsonObject) -> msgspec.Raw:
        """Send a request and return its response; raise `HostDeclined`. Cancelling withdraws it."""
        if not self._open:
            raise HostDeclined(HOST_GONE)
        id = self._next_id()
        waiting = self._waiting[id] = PendingAnswer()
        try:
            self._send_request(id, subtype, body)
            await waiting.over.wait()
        except anyio.get_cancelled_exc_class():
            self._say({"type": "control_cancel_request", "request_id": id})
            raise
        finally:
            del self._waiting[id]
        if waiting.answer is None:
            raise HostDeclined(waiting.why)
        return waiting.answer

    def notify(self, subtype: str, body: JsonObject) -> None:
        """Send a request without waiting for its response."""
        self._send_request(self._next_id(), subtype, body)

    def _next_id(self) -> str:
        self._count += 1
        return f"travois_{self._count}"

    def _send_request(self, id: str, subtype: str, body: JsonObject) -> None:
        request: dict[str, Json] = {"subtype": subtype, **body}
        self._say({"type": "control_request", "request_id": id, "request": request})

    def resolve(self, response: ControlResponse) -> None:
        """Deliver a response; ignore one that is not awaited."""
        waiting = self._waiting.get(response.request_id)
        if waiting is None:
            return
        if response.subtype == "error":
            waiting.why = response.error or "the client returned an error"
        else:
            waiting.answer = response.response
        waiting.over.set()

    def close(self) -> None:
        """Fail all pending requests: the client is gone."""
        self._open = False
        for waiting in self._waiting.values():
            waiting.over.set()
