"""The connection to a running language server: requests, notifications, and its own questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

import anyio
import msgspec

from travois.lsp.protocol import (
    Json,
    Message,
    MessageReader,
    ProtocolError,
    ResponseError,
    decode,
    encode_message,
    uri_of_path,
)
from travois.process.job import StdioConnection

MAX_BACKLOG_BYTES = 64 << 20
"""The most bytes that wait for a server that does not read."""
NO_JSON = msgspec.Raw(b"null")
METHOD_NOT_FOUND = -32601
RETRIED_ERRORS = (-32801, -32802)
"""A server's answers that the text has changed meanwhile, or that it was too busy."""
MAX_TRIES = 5
RETRY_SECONDS = 0.1
PULL_METHOD = "textDocument/diagnostic"
CLIENT_CAPABILITIES: Json = {
    "general": {"positionEncodings": ["utf-16"]},
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": True},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "definition": {},
        "references": {},
        "implementation": {},
        "rename": {},
    },
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeWatchedFiles": {"dynamicRegistration": True},
        "workspaceEdit": {"documentChanges": True},
        "symbol": {},
    },
    "window": {"workDoneProgress": True},
}
ResultT = TypeVar("ResultT")


class ServerUnavailable(Exception):
    """A language server cannot answer; the message says why."""


class RequestRefused(Exception):
    """A language server answered a request with an error."""

    def __init__(self, error: ResponseError) -> None:
        super().__init__(error.message)
        self.code = error.code


class PendingRequest:
    """A request that waits for its response."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.response: Message | None = None


class Registration(msgspec.Struct, frozen=True):
    """Something that a server wants to be asked or told."""

    method: str = ""


class RegistrationParams(msgspec.Struct, frozen=True):
    """What a server registers."""

    registrations: tuple[Registration, ...] = ()


class ConfigurationItem(msgspec.Struct, frozen=True):
    """A part of the settings that a server asks for."""

    section: str = ""


class ConfigurationParams(msgspec.Struct, frozen=True):
    """The parts of the settings that a server asks for."""

    items: tuple[ConfigurationItem, ...] = ()


class ServerCapabilities(msgspec.Struct, frozen=True, rename="camel"):
    """What a server can do, as far as we ask."""

    diagnostic_provider: msgspec.Raw = NO_JSON


class InitializeResult(msgspec.Struct, frozen=True):
    """A server's answer to the first request."""

    capabilities: ServerCapabilities = ServerCapabilities()


class LanguageClient:
    """One connection to a language server; of no use after it has ended."""

    def __init__(
        self,
        talk: StdioConnection,
        *,
        root: str,
        settings: Mapping[str, object],
        on_notification: Callable[[str, msgspec.Raw], None],
    ) -> None:
        self.pulls = False
        """True if the server wants to be asked for diagnostics."""
        self._talk = talk
        self._root = root
        self._settings = settings
        self._on_notification = on_notification
        self._waiting: dict[int, PendingRequest] = {}
        self._count = 0
        self._outgoing: deque[bytes] = deque()
        self._backlog = 0
        self._has_outgoing = anyio.Event()
        self._ended = ""
        self._scope: anyio.CancelScope | None = None

    async def initialize(self, options: Mapping[str, object]) -> None:
        """Introduce ourselves to the server."""
        folder = {"uri": uri_of_path(self._root), "name": self._root.rpartition("/")[2] or "/"}
        params: Json = {
            "processId": None,
            "clientInfo": {"name": "travois"},
            "rootUri": folder["uri"],
            "workspaceFolders": [folder],
            "capabilities": CLIENT_CAPABILITIES,
            "initializationOptions": dict(options),
        }
        answer = await self.request_result("initialize", params, InitializeResult)
        provider = answer.capabilities.diagnostic_provider if answer else NO_JSON
        self.pulls = bytes(provider) not in (b"null", b"false")
        self.send_notification("initialized", {})
        if self._settings:
            self.send_notification(
                "workspace/didChangeConfiguration", {"settings": dict(self._settings)}
            )

    async def request_result(
        self, method: str, params: Json, kind: type[ResultT]
    ) -> ResultT | None:
        """Ask the server; raises `ServerUnavailable`, `RequestRefused` or `ProtocolError`."""
        result = await self._request_raw(method, params)
        return None if bytes(result) == b"null" else decode(result, kind)

    async def _request_raw(self, method: str, params: Json) -> msgspec.Raw:
        """Ask the language server, again if it was too busy or the text has changed."""
        for _ in range(MAX_TRIES - 1):
            try:
                return await self._request_once(method, params)
            except RequestRefused as refusal:
                if refusal.code not in RETRIED_ERRORS:
                    raise
            await anyio.sleep(RETRY_SECONDS)
        return await self._request_once(method, params)

    async def _request_once(self, method: str, params: Json) -> msgspec.Raw:
        """Send a request to the language server and wait for its response."""
        self._count += 1
        number, pending = self._count, PendingRequest()
        self._waiting[number] = pending
        self._enqueue_message({"id": number, "method": method, "params": params})
        try:
            await pending.done.wait()
        except BaseException:
            self.send_notification("$/cancelRequest", {"id": number})
            raise
        finally:
            self._waiting.pop(number, None)
        if pending.response is None:
            raise ServerUnavailable(self._ended)
        if pending.response.error is not None:
            raise RequestRefused(pending.response.error)
        return pending.response.result

    def send_notification(self, method: str, params: Json) -> None:
        """Tell the server something."""
        self._enqueue_message({"method": method, "params": params})

    def _enqueue_message(self, body: Json) -> None:
        if self._ended:
            return
        data = encode_message(body)
        self._outgoing.append(data)
        self._backlog += len(data)
        self._has_outgoing.set()

    @property
    def end_reason(self) -> str:
        """Why the connection ended; empty while it has not."""
        return self._ended

    async def exchange_messages(self) -> None:
        """Exchange messages until the connection ends."""
        try:
            async with anyio.create_task_group() as group:
                self._scope = group.cancel_scope
                group.start_soon(self._write_messages)
                await self._read_server_messages()
                group.cancel_scope.cancel()
            self._end("it exited")
        except* (OSError, ProtocolError) as broken:
            self._end(str(broken.exceptions[0]))
        finally:
            self._end("it was stopped")

    def disconnect(self, why: str) -> None:
        """End the connection from our side."""
        self._end(why)
        if self._scope is not None:
            self._scope.cancel()

    def _end(self, why: str) -> None:
        """Fail every request that waits."""
        self._ended = self._ended or why
        for pending in self._waiting.values():
            pending.done.set()

    async def _write_messages(self) -> None:
        """Write to the server. Only this task does, so that no message is cut by a time limit."""
        while True:
            while self._outgoing:
                if self._backlog > MAX_BACKLOG_BYTES:
                    raise ProtocolError("it does not read its input")
                data = self._outgoing.popleft()
                await self._talk.send(data)
                self._backlog -= len(data)
            self._has_outgoing = anyio.Event()
            await self._has_outgoing.wait()

    async def _read_server_messages(self) -> None:
        reader = MessageReader()
        while data := await self._talk.receive():
            for message in reader.split_messages(data):
                self._handle(message)

    def _handle(self, message: Message) -> None:
        """Take a message of the server: a response, a notification or a question."""
        if message.method and message.id is not None:
            self._answer_server_question(message)
        elif message.method:
            self._on_notification(message.method, message.params)
        elif isinstance(message.id, int) and (pending := self._waiting.get(message.id)):
            pending.response = message
            pending.done.set()

    def _answer_server_question(self, message: Message) -> None:
        """Answer a question of the server."""
        body: Json = {"id": message.id}
        match message.method:
            case "workspace/configuration":
                items = decode(message.params, ConfigurationParams).items
                body["result"] = [find_section(self._settings, item.section) for item in items]
            case "client/registerCapability":
                wanted = decode(message.params, RegistrationParams).registrations
                self.pulls = self.pulls or any(one.method == PULL_METHOD for one in wanted)
                body["result"] = None
                self._on_notification(message.method, message.params)
            case "workspace/workspaceFolders":
                body["result"] = [{"uri": uri_of_path(self._root), "name": "workspace"}]
            case "workspace/applyEdit":
                body["result"] = {"applied": False}
            case (
                "window/workDoneProgress/create"
                | "client/unregisterCapability"
                | "window/showMessageRequest"
                | "workspace/diagnostic/refresh"
            ):
                body["result"] = None
            case _:
                body["error"] = {"code": METHOD_NOT_FOUND, "message": "not supported"}
        self._enqueue_message(body)


def find_section(settings: Mapping[str, object], section: str) -> object:
    """Return a part of a language server's settings by its dotted name; None if it has none."""
    found: object = settings
    for name in section.split(".") if section else ():
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - JSON
    return found  # pyright: ignore[reportUnknownVariableType] - JSON
