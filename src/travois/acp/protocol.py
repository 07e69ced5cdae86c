"""Messages of the Agent Client Protocol, and the JSON-RPC connection to the editor."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import TaskGroup

from travois.compat.claude_json import Json, Object
from travois.core.errors import UserError
from travois.core.json import encode_json
from travois.headless import prompt_input
from travois.headless.control.messages import GONE, Declined, Waiting

NULL = msgspec.Raw(b"null")


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all messages; unknown members are ignored, as the protocol demands."""


class Failure(Shape, frozen=True):
    """The error of a failed request."""

    code: int = 0
    message: str = ""


class Message(Shape, frozen=True):
    """A request, a notification (both have a method) or a reply."""

    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str = ""
    params: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    error: Failure | None = None


class Identified(Shape, frozen=True):
    """The id of a malformed message."""

    id: int | str | None = None


class Disk(Shape, frozen=True):
    """File methods that the editor supports."""

    read_text_file: bool | None = False
    write_text_file: bool | None = False


class Forms(Shape, frozen=True):
    """Form methods that the editor supports."""

    form: dict[str, object] | None = None


class Capabilities(Shape, frozen=True):
    """Capabilities of the editor."""

    fs: Disk | None = None
    elicitation: Forms | None = None

    @property
    def reads(self) -> bool:
        """True if the editor serves its buffers."""
        return self.fs is not None and bool(self.fs.read_text_file)

    @property
    def writes(self) -> bool:
        """True if the editor accepts edits to its buffers."""
        return self.fs is not None and bool(self.fs.write_text_file)

    @property
    def forms(self) -> bool:
        """True if the editor can show several questions as a form."""
        return self.elicitation is not None and self.elicitation.form is not None


class Hello(Shape, frozen=True):
    """Parameters of `initialize`."""

    protocol_version: int
    client_capabilities: Capabilities | None = None


class Pair(Shape, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class Server(Shape, frozen=True):
    """An MCP server: a command without a `type`, or a URL with one."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Pair, ...] = ()
    url: str = ""
    headers: tuple[Pair, ...] = ()


class Begin(Shape, frozen=True):
    """Parameters of `session/new`."""

    cwd: str
    mcp_servers: tuple[Server, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()


class Again(Begin, frozen=True, kw_only=True):
    """Parameters of `session/load`, `session/resume` and `session/fork`."""

    session_id: str


class One(Shape, frozen=True):
    """Parameters that name only a session."""

    session_id: str


class Nothing(Shape, frozen=True):
    """Empty parameters."""


class Listing(Shape, frozen=True):
    """Parameters of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class Mode(One, frozen=True):
    """Parameters of `session/set_mode`."""

    mode_id: str


class Setting(One, frozen=True):
    """Parameters of `session/set_config_option`."""

    config_id: str
    value: str | bool


class Method(Shape, frozen=True):
    """Parameters of `authenticate`."""

    method_id: str


class Withdrawn(Shape, frozen=True):
    """Parameters of `$/cancel_request`."""

    request_id: int | str | None


class Resource(Shape, frozen=True):
    """An embedded resource: its text, or bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class Block(Shape, frozen=True):
    """A content block of a prompt."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str | None = None
    name: str = ""
    resource: Resource | None = None


class Prompt(One, frozen=True):
    """Parameters of `session/prompt`."""

    prompt: tuple[Block, ...]


class Picked(Shape, frozen=True):
    """The outcome of a permission request."""

    outcome: Literal["selected", "cancelled"]
    option_id: str = ""


class Permission(Shape, frozen=True):
    """The reply to a permission request."""

    outcome: Picked


class Filled(Shape, frozen=True):
    """The reply to a form."""

    action: str
    content: dict[str, str | int | float | bool | tuple[str, ...]] | None = None


class Buffer(Shape, frozen=True):
    """The reply with a file's text."""

    content: str


# The JSON-RPC connection, with the protocol's error codes.


GARBLED = -32700
INVALID = -32600
UNKNOWN = -32601
UNFIT = -32602
BROKEN = -32603
WITHDRAWN = -32800
LOGIN = -32000
MISSING = -32002
Id = int | str | None
Ask = Callable[[str, Object], Awaitable[msgspec.Raw]]
"""Sends a request to the editor; raises `Declined`."""


class Wrong(Exception):
    """A failed request, with its JSON-RPC error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Way(msgspec.Struct, frozen=True):
    """The handler of a method, and the type of its parameters."""

    takes: type[msgspec.Struct]
    run: Callable[[Any], Awaitable[Object]]


class Peer:
    """The JSON-RPC connection to the editor, one message per line."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._ways: Mapping[str, Way] = {}
        self._waiting: dict[Id, Waiting] = {}
        self._scopes: dict[Id, anyio.CancelScope] = {}
        self._count = 0
        self._open = True
        self._hearing = anyio.CancelScope()

    async def serve(self, ways: Mapping[str, Way], group: TaskGroup) -> None:
        """Handle messages until the editor closes the connection."""
        self._ways = ways
        with self._hearing:
            async with aclosing(prompt_input.raw()) as lines:
                async for line in lines:
                    self._heard(line, group)
        self._open = False
        for waiting in self._waiting.values():
            waiting.over.set()

    def tell(self, method: str, params: Object) -> None:
        """Send a notification."""
        self._say({"method": method, "params": params})

    async def ask(self, method: str, params: Object) -> msgspec.Raw:
        """Send a request and return the reply; raise `Declined`."""
        if not self._open:
            raise Declined(GONE)
        self._count += 1
        id, waiting = self._count, Waiting()
        self._waiting[id] = waiting
        try:
            self._say({"id": id, "method": method, "params": params})
            await waiting.over.wait()
        finally:
            del self._waiting[id]
        if waiting.answer is None:
            raise Declined(waiting.why)
        return waiting.answer

    def _say(self, body: Object) -> None:
        left = memoryview(encode_json({"jsonrpc": "2.0", **body}) + b"\n")
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except BrokenPipeError:
            self._hearing.cancel()

    def _fail(self, id: Id, code: int, why: str) -> None:
        error: Object = {"code": code, "message": why}
        self._say({"id": id, "error": error})

    def _heard(self, line: bytes, group: TaskGroup) -> None:
        if not line.strip():
            return
        try:
            message = msgspec.json.decode(line.decode(), type=Message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._garbled(line, str(error))
            return
        if message.method == "$/cancel_request":
            self._withdraw(message)
        elif message.method:
            group.start_soon(self._answer, message)
        elif message.id is not msgspec.UNSET and (waiting := self._waiting.get(message.id)):
            self._settle(waiting, message)

    def _garbled(self, line: bytes, why: str) -> None:
        try:
            id: Id = msgspec.json.decode(line.decode(), type=Identified).id
            code = INVALID
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            id, code = None, INVALID if _is_json(line) else GARBLED
        self._fail(id, code, why)

    def _settle(self, waiting: Waiting, message: Message) -> None:
        if message.error is not None:
            waiting.why = message.error.message or "the editor failed"
        else:
            waiting.answer = message.result
        waiting.over.set()

    def _withdraw(self, message: Message) -> None:
        try:
            id = msgspec.json.decode(message.params, type=Withdrawn).request_id
        except msgspec.DecodeError:
            return
        if scope := self._scopes.get(id):
            scope.cancel()

    async def _answer(self, message: Message) -> None:
        """Run a request and send its reply; a notification gets none."""
        if isinstance(message.id, msgspec.UnsetType):
            await self._done(message)
            return
        id = message.id
        with anyio.CancelScope() as scope:
            self._scopes[id] = scope
            found = await self._done(message)
            if isinstance(found, Wrong):
                self._fail(id, found.code, str(found))
            else:
                self._say({"id": id, "result": found})
        if scope.cancelled_caught:
            self._fail(id, WITHDRAWN, "The request was cancelled.")
        self._scopes.pop(id, None)

    async def _done(self, message: Message) -> Json | Wrong:
        way = self._ways.get(message.method)
        if way is None:
            return Wrong(UNKNOWN, f"Method not found: {message.method!r}")
        try:
            params = b"{}" if message.params == b"null" else message.params
            return await way.run(msgspec.json.decode(params, type=way.takes))
        except (msgspec.DecodeError, RecursionError) as error:
            return Wrong(UNFIT, str(error))
        except Wrong as wrong:
            return wrong
        except (UserError, OSError) as error:
            return Wrong(BROKEN, str(error))


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
