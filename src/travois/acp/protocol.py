"""What an editor writes: the messages of the Agent Client Protocol, as far as they count here."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import TaskGroup

from travois.compat.claude_json import Json, Object
from travois.core.errors import Fault
from travois.core.json import encoded
from travois.headless import prompt_input as reading
from travois.headless.control.messages import GONE, Declined, Waiting

NULL = msgspec.Raw(b"null")


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Members that are not named here are ignored, as the protocol wants it."""


class Failure(Shape, frozen=True):
    """Why a request failed."""

    code: int = 0
    message: str = ""


class Message(Shape, frozen=True):
    """A request or a notification, which have a method; or the answer to a request of ours."""

    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str = ""
    params: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    error: Failure | None = None


class Identified(Shape, frozen=True):
    """What can be told of a line that has not the right shape."""

    id: int | str | None = None


# --- what the editor can do -----------------------------------------------------------------------


class Disk(Shape, frozen=True):
    """Which files the editor hands out."""

    read_text_file: bool | None = False
    write_text_file: bool | None = False


class Forms(Shape, frozen=True):
    """Whether it can put forms to the person."""

    form: dict[str, object] | None = None


class Capabilities(Shape, frozen=True):
    """What the editor offers."""

    fs: Disk | None = None
    elicitation: Forms | None = None

    @property
    def reads(self) -> bool:
        """Whether it shows what stands in its buffers."""
        return self.fs is not None and bool(self.fs.read_text_file)

    @property
    def writes(self) -> bool:
        """Whether it takes changes into its buffers."""
        return self.fs is not None and bool(self.fs.write_text_file)

    @property
    def forms(self) -> bool:
        """Whether several questions can be put at once."""
        return self.elicitation is not None and self.elicitation.form is not None


class Hello(Shape, frozen=True):
    """The first request."""

    protocol_version: int
    client_capabilities: Capabilities | None = None


# --- sessions -------------------------------------------------------------------------------------


class Pair(Shape, frozen=True):
    """A variable or a header."""

    name: str
    value: str


class Server(Shape, frozen=True):
    """A server of tools: a program without a `type`, or an address with one."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Pair, ...] = ()
    url: str = ""
    headers: tuple[Pair, ...] = ()


class Begin(Shape, frozen=True):
    """A session is to begin."""

    cwd: str
    mcp_servers: tuple[Server, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()


class Again(Begin, frozen=True, kw_only=True):
    """A session is to go on, or to be branched off."""

    session_id: str


class One(Shape, frozen=True):
    """Something about one session."""

    session_id: str


class Nothing(Shape, frozen=True):
    """A request that says no more than its method."""


class Listing(Shape, frozen=True):
    """Which sessions are to be listed."""

    cwd: str | None = None
    cursor: str | None = None


class Mode(One, frozen=True):
    """Another mode is chosen."""

    mode_id: str


class Setting(One, frozen=True):
    """An option is chosen."""

    config_id: str
    value: str | bool


class Method(Shape, frozen=True):
    """A way to log in is chosen."""

    method_id: str


class Withdrawn(Shape, frozen=True):
    """A request is no longer wanted."""

    request_id: int | str | None


# --- prompts --------------------------------------------------------------------------------------


class Resource(Shape, frozen=True):
    """Something that comes whole: its text, or bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class Block(Shape, frozen=True):
    """One part of a prompt."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    uri: str | None = None
    name: str = ""
    resource: Resource | None = None


class Prompt(One, frozen=True):
    """What the person says."""

    prompt: tuple[Block, ...]


# --- answers to what we ask -----------------------------------------------------------------------


class Picked(Shape, frozen=True):
    """What the person chose; `cancelled` if they chose nothing any more."""

    outcome: Literal["selected", "cancelled"]
    option_id: str = ""


class Permission(Shape, frozen=True):
    """The answer to a question whether something may happen."""

    outcome: Picked


class Filled(Shape, frozen=True):
    """The answer to a form."""

    action: str
    content: dict[str, str | int | float | bool | tuple[str, ...]] | None = None


class Buffer(Shape, frozen=True):
    """The text of a file as the editor shows it."""

    content: str


# The editor at the other end of two pipes: JSON-RPC, one message on each line.


GARBLED, INVALID, UNKNOWN, UNFIT = -32700, -32600, -32601, -32602
BROKEN, WITHDRAWN, LOGIN, MISSING = -32603, -32800, -32000, -32002
Id = int | str | None
Ask = Callable[[str, Object], Awaitable[msgspec.Raw]]
"""Asks the editor something; raises `Declined`."""


class Wrong(Exception):
    """A request that cannot be done, with the code that the protocol has for it."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Way(msgspec.Struct, frozen=True):
    """How one method is done: the shape of what it is given, and who does it."""

    takes: type[msgspec.Struct]
    run: Callable[[Any], Awaitable[Object]]


class Peer:
    """Hears requests side by side and asks its own; when nobody reads any more, that ends."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._ways: Mapping[str, Way] = {}
        self._waiting: dict[Id, Waiting] = {}
        self._scopes: dict[Id, anyio.CancelScope] = {}
        self._count = 0
        self._open = True
        self._hearing = anyio.CancelScope()

    async def serve(self, ways: Mapping[str, Way], group: TaskGroup) -> None:
        """Do what the editor says until it says no more."""
        self._ways = ways
        with self._hearing:
            async with aclosing(reading.raw()) as lines:
                async for line in lines:
                    self._heard(line, group)
        self._open = False
        for waiting in self._waiting.values():
            waiting.over.set()

    # --- what we say ------------------------------------------------------------------------------

    def tell(self, method: str, params: Object) -> None:
        """Say something that wants no answer."""
        self._say({"method": method, "params": params})

    async def ask(self, method: str, params: Object) -> msgspec.Raw:
        """The editor's answer; raises `Declined`."""
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
        left = memoryview(encoded({"jsonrpc": "2.0", **body}) + b"\n")
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except BrokenPipeError:
            self._hearing.cancel()

    def _fail(self, id: Id, code: int, why: str) -> None:
        error: Object = {"code": code, "message": why}
        self._say({"id": id, "error": error})

    # --- what we hear -----------------------------------------------------------------------------

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
        """Do what a request says, and say what came of it; a notification hears nothing."""
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
            self._fail(id, WITHDRAWN, "The request was withdrawn.")
        self._scopes.pop(id, None)

    async def _done(self, message: Message) -> Json | Wrong:
        way = self._ways.get(message.method)
        if way is None:
            return Wrong(UNKNOWN, f"There is no method {message.method!r} here")
        try:
            params = b"{}" if message.params == b"null" else message.params
            return await way.run(msgspec.json.decode(params, type=way.takes))
        except (msgspec.DecodeError, RecursionError) as error:
            return Wrong(UNFIT, str(error))
        except Wrong as wrong:
            return wrong
        except (Fault, OSError) as error:
            return Wrong(BROKEN, str(error))


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
