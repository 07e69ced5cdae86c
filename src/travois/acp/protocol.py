"""Messages of the Agent Client Protocol, and the JSON-RPC connection to the editor."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import TaskGroup

from travois.compat.claude_json import Json, JsonObject
from travois.core.errors import UserError
from travois.core.json import encode_json
from travois.headless import prompt_input
from travois.headless.control.messages import HOST_GONE, HostDeclined, PendingAnswer

NULL_JSON = msgspec.Raw(b"null")


class AcpMessage(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all messages; unknown members are ignored, as the protocol demands."""


class JsonRpcError(AcpMessage, frozen=True):
    """The error of a failed request."""

    code: int = 0
    message: str = ""


class JsonRpcMessage(AcpMessage, frozen=True):
    """A request, a notification (both have a method) or a reply."""

    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str = ""
    params: msgspec.Raw = NULL_JSON
    result: msgspec.Raw = NULL_JSON
    error: JsonRpcError | None = None


class MessageId(AcpMessage, frozen=True):
    """The id of a malformed message."""

    id: int | str | None = None


class FileCapabilities(AcpMessage, frozen=True):
    """File methods that the editor supports."""

    read_text_file: bool | None = False
    write_text_file: bool | None = False


class FormCapabilities(AcpMessage, frozen=True):
    """Form methods that the editor supports."""

    form: dict[str, object] | None = None


class ClientCapabilities(AcpMessage, frozen=True):
    """Capabilities of the editor."""

    fs: FileCapabilities | None = None
    elicitation: FormCapabilities | None = None

    @property
    def can_read_files(self) -> bool:
        """True if the editor serves its buffers."""
        return self.fs is not None and bool(self.fs.read_text_file)

    @property
    def can_write_files(self) -> bool:
        """True if the editor accepts edits to its buffers."""
        return self.fs is not None and bool(self.fs.write_text_file)

    @property
    def has_forms(self) -> bool:
        """True if the editor can show several questions as a form."""
        return self.elicitation is not None and self.elicitation.form is not None


class InitializeParams(AcpMessage, frozen=True):
    """Parameters of `initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities | None = None


class NameValue(AcpMessage, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class McpServerParams(AcpMessage, frozen=True):
    """An MCP server: a command without a `type`, or a URL with one."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    url: str = ""
    headers: tuple[NameValue, ...] = ()


class NewSessionParams(AcpMessage, frozen=True):
    """Parameters of `session/new`."""

    cwd: str
    mcp_servers: tuple[McpServerParams, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()


class ExistingSessionParams(NewSessionParams, frozen=True, kw_only=True):
    """Parameters of `session/load`, `session/resume` and `session/fork`."""

    session_id: str


class SessionParams(AcpMessage, frozen=True):
    """Parameters that name only a session."""

    session_id: str


class EmptyParams(AcpMessage, frozen=True):
    """Empty parameters."""


class ListSessionsParams(AcpMessage, frozen=True):
    """Parameters of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class SetModeParams(SessionParams, frozen=True):
    """Parameters of `session/set_mode`."""

    mode_id: str


class SetConfigOptionParams(SessionParams, frozen=True):
    """Parameters of `session/set_config_option`."""

    config_id: str
    value: str | bool


class AuthenticateParams(AcpMessage, frozen=True):
    """Parameters of `authenticate`."""

    method_id: str


class CancelRequestParams(AcpMessage, frozen=True):
    """Parameters of `$/cancel_request`."""

    request_id: int | str | None


class EmbeddedResource(AcpMessage, frozen=True):
    """An embedded resource: its text, or bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class PromptBlock(AcpMessage, frozen=True):
    """A content block of a prompt."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str | None = None
    name: str = ""
    resource: EmbeddedResource | None = None


class PromptParams(SessionParams, frozen=True):
    """Parameters of `session/prompt`."""

    prompt: tuple[PromptBlock, ...]


class PermissionOutcome(AcpMessage, frozen=True):
    """The outcome of a permission request."""

    outcome: Literal["selected", "cancelled"]
    option_id: str = ""


class PermissionReply(AcpMessage, frozen=True):
    """The reply to a permission request."""

    outcome: PermissionOutcome


class FormReply(AcpMessage, frozen=True):
    """The reply to a form."""

    action: str
    content: dict[str, str | int | float | bool | tuple[str, ...]] | None = None


class FileReply(AcpMessage, frozen=True):
    """The reply with a file's text."""

    content: str


# The JSON-RPC connection, with the protocol's error codes.


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
RequestId = int | str | None
AskEditor = Callable[[str, JsonObject], Awaitable[msgspec.Raw]]
"""Sends a request to the editor; raises `HostDeclined`."""


class AcpError(Exception):
    """A failed request, with its JSON-RPC error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class EditorMethod(msgspec.Struct, frozen=True):
    """The handler of a method, and the type of its parameters."""

    takes: type[msgspec.Struct]
    run: Callable[[Any], Awaitable[JsonObject]]


class AcpConnection:
    """The JSON-RPC connection to the editor, one message per line."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._ways: Mapping[str, EditorMethod] = {}
        self._waiting: dict[RequestId, PendingAnswer] = {}
        self._scopes: dict[RequestId, anyio.CancelScope] = {}
        self._count = 0
        self._open = True
        self._hearing = anyio.CancelScope()

    async def serve(self, ways: Mapping[str, EditorMethod], group: TaskGroup) -> None:
        """Handle messages until the editor closes the connection."""
        self._ways = ways
        with self._hearing:
            async with aclosing(prompt_input.read_raw_lines()) as lines:
                async for line in lines:
                    self._handle_line(line, group)
        self._open = False
        for waiting in self._waiting.values():
            waiting.over.set()

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
        self._write_message({"method": method, "params": params})

    async def request(self, method: str, params: JsonObject) -> msgspec.Raw:
        """Send a request and return the reply; raise `HostDeclined`."""
        if not self._open:
            raise HostDeclined(HOST_GONE)
        self._count += 1
        id, waiting = self._count, PendingAnswer()
        self._waiting[id] = waiting
        try:
            self._write_message({"id": id, "method": method, "params": params})
            await waiting.over.wait()
        finally:
            del self._waiting[id]
        if waiting.answer is None:
            raise HostDeclined(waiting.why)
        return waiting.answer

    def _write_message(self, body: JsonObject) -> None:
        left = memoryview(encode_json({"jsonrpc": "2.0", **body}) + b"\n")
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except BrokenPipeError:
            self._hearing.cancel()

    def _write_error(self, id: RequestId, code: int, why: str) -> None:
        error: JsonObject = {"code": code, "message": why}
        self._write_message({"id": id, "error": error})

    def _handle_line(self, line: bytes, group: TaskGroup) -> None:
        if not line.strip():
            return
        try:
            message = msgspec.json.decode(line.decode(), type=JsonRpcMessage)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._reject_line(line, str(error))
            return
        if message.method == "$/cancel_request":
            self._cancel_request(message)
        elif message.method:
            group.start_soon(self._answer_message, message)
        elif message.id is not msgspec.UNSET and (waiting := self._waiting.get(message.id)):
            self._resolve_request(waiting, message)

    def _reject_line(self, line: bytes, why: str) -> None:
        try:
            id: RequestId = msgspec.json.decode(line.decode(), type=MessageId).id
            code = INVALID_REQUEST
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            id, code = None, INVALID_REQUEST if _is_json(line) else PARSE_ERROR
        self._write_error(id, code, why)

    def _resolve_request(self, waiting: PendingAnswer, message: JsonRpcMessage) -> None:
        if message.error is not None:
            waiting.why = message.error.message or "the editor failed"
        else:
            waiting.answer = message.result
        waiting.over.set()

    def _cancel_request(self, message: JsonRpcMessage) -> None:
        try:
            id = msgspec.json.decode(message.params, type=CancelRequestParams).request_id
        except msgspec.DecodeError:
            return
        if scope := self._scopes.get(id):
            scope.cancel()

    async def _answer_message(self, message: JsonRpcMessage) -> None:
        """Run a request and send its reply; a notification gets none."""
        if isinstance(message.id, msgspec.UnsetType):
            await self._run_method(message)
            return
        id = message.id
        with anyio.CancelScope() as scope:
            self._scopes[id] = scope
            found = await self._run_method(message)
            if isinstance(found, AcpError):
                self._write_error(id, found.code, str(found))
            else:
                self._write_message({"id": id, "result": found})
        if scope.cancelled_caught:
            self._write_error(id, REQUEST_CANCELLED, "The request was cancelled.")
        self._scopes.pop(id, None)

    async def _run_method(self, message: JsonRpcMessage) -> Json | AcpError:
        way = self._ways.get(message.method)
        if way is None:
            return AcpError(METHOD_NOT_FOUND, f"Method not found: {message.method!r}")
        try:
            params = b"{}" if message.params == b"null" else message.params
            return await way.run(msgspec.json.decode(params, type=way.takes))
        except (msgspec.DecodeError, RecursionError) as error:
            return AcpError(INVALID_PARAMS, str(error))
        except AcpError as wrong:
            return wrong
        except (UserError, OSError) as error:
            return AcpError(INTERNAL_ERROR, str(error))


def _is_json(line: bytes) -> bool:
    """Return whether a line from the editor is valid JSON."""
    try:
        msgspec.json.decode(line.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
