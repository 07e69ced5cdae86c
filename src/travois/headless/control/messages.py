"""The lines that a program which drives us writes: messages, requests, and answers to ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from travois.compat.claude_json import Json, Object
from travois.ports.tool import Refusal

NOTHING = msgspec.Raw(b"{}")


class Matcher(msgspec.Struct, frozen=True, rename="camel"):
    """Callbacks that hear of an event under one condition."""

    hook_callback_ids: tuple[str, ...] = ()
    matcher: str | None = None
    timeout: float | None = None
    on_failure: str | None = None


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """Something that the host wants; which members count depends on `subtype`."""

    subtype: str
    hooks: dict[str, tuple[Matcher, ...]] | None = None
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
    """The file that settings are to be kept in; empty if they hold for the session."""
    speaker: str = msgspec.field(default="", name="server_name")
    message: dict[str, Any] | None = None
    """What a server that lives in the host has to say, and which one it is."""
    skills: tuple[str, ...] | None = None
    path: str = ""
    max_bytes: int | None = msgspec.field(default=None, name="max_bytes")
    encoding: str | None = None
    mtime: float = 0
    """When a host saw a file last, in milliseconds."""
    max_thinking_tokens: int | None = msgspec.field(default=None, name="max_thinking_tokens")


class Response(msgspec.Struct, frozen=True):
    """The host's answer to a request of ours."""

    request_id: str
    subtype: str = "success"
    response: msgspec.Raw = NOTHING
    error: str = ""


class Line(msgspec.Struct, frozen=True):
    """One line, as far as all have the same shape."""

    type: str
    message: msgspec.Raw = NOTHING
    request_id: str = ""
    request: msgspec.Raw = NOTHING
    response: msgspec.Raw = NOTHING
    uuid: str | None = ""
    client_composed: bool = False
    """Whether the words are to be taken as they stand, files that they mention included."""


# Where our questions to the host are paired with its answers.


GONE = "the program that drives this session is gone"


class Declined(Refusal):
    """The host did not do what it was asked; the words say why."""


class Waiting:
    """A question that is not answered yet."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.answer: msgspec.Raw | None = None
        self.why = GONE


class Desk:
    """Asks the host. A question that is given up is taken back; one to nobody is declined."""

    def __init__(self, say: Callable[[Object], None]) -> None:
        self._say = say
        self._waiting: dict[str, Waiting] = {}
        self._count = 0
        self._open = True

    async def ask(self, subtype: str, body: Object) -> msgspec.Raw:
        """The host's answer; raises `Declined`."""
        if not self._open:
            raise Declined(GONE)
        id = self._next()
        waiting = self._waiting[id] = Waiting()
        try:
            self._send(id, subtype, body)
            await waiting.over.wait()
        except anyio.get_cancelled_exc_class():
            self._say({"type": "control_cancel_request", "request_id": id})
            raise
        finally:
            del self._waiting[id]
        if waiting.answer is None:
            raise Declined(waiting.why)
        return waiting.answer

    def tell(self, subtype: str, body: Object) -> None:
        """Send a request whose answer nobody waits for."""
        self._send(self._next(), subtype, body)

    def _next(self) -> str:
        self._count += 1
        return f"travois_{self._count}"

    def _send(self, id: str, subtype: str, body: Object) -> None:
        request: dict[str, Json] = {"subtype": subtype, **body}
        self._say({"type": "control_request", "request_id": id, "request": request})

    def answered(self, response: Response) -> None:
        """Hand an answer to whoever waits for it; an answer to nothing is ignored."""
        waiting = self._waiting.get(response.request_id)
        if waiting is None:
            return
        if response.subtype == "error":
            waiting.why = response.error or "the program that drives this session failed"
        else:
            waiting.answer = response.response
        waiting.over.set()

    def close(self) -> None:
        """Nobody will answer any more."""
        self._open = False
        for waiting in self._waiting.values():
            waiting.over.set()
