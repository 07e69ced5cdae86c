"""One language server: started when it is needed, restarted if it crashes, with open files.

Model sees: nothing of a crash but missing diagnostics, or why a call of LSP failed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from travois.lsp.client import PULL_METHOD, LanguageClient, RequestRefused, ServerUnavailable
from travois.lsp.discovery import LanguageServerConfig
from travois.lsp.protocol import (
    Diagnostic,
    Json,
    ProgressParams,
    ProtocolError,
    PublishedDiagnostics,
    PulledDiagnostics,
    decode,
    path_of_uri,
    uri_of_path,
)
from travois.lsp.watch import FileStamps, compare_stamps, scan_files
from travois.process.job import StdioConnection

MAX_STARTS = 3
"""The first start and two restarts."""
START_SECONDS = 60.0
MAX_OPEN_FILES = 20
SILENCE_SECONDS = 10.0
"""Seconds without a word after which a server has nothing to say about a file."""
SETTLE_SECONDS = 0.15
"""Seconds in which a server may correct the diagnostics that it has just sent."""
MAX_STDERR_CHARS = 300
ResultT = TypeVar("ResultT")


@dataclass
class OpenDocument:
    """A file that the server was told of, as it was told."""

    path: str
    text: str
    version: int
    sent: int
    """The number of diagnostics that the server had sent by then."""
    errors: tuple[Diagnostic, ...] | None = None
    """The errors that the last check found; None until there was one."""

    @property
    def has_known_errors(self) -> bool:
        """True if the errors in this text are known."""
        return self.errors is not None


class LanguageServer:
    """A language server for one folder.

    `start` starts the program and passes its standard error on; `report` tells the person why the
    server is given up.
    """

    def __init__(
        self,
        config: LanguageServerConfig,
        root: str,
        *,
        start: Callable[[Callable[[bytes], None]], StdioConnection],
        report: Callable[[str], None],
    ) -> None:
        self.config = config
        self.root = root
        self.lock = anyio.Lock()
        """Held by whoever changes the text of open files, and reads what the server makes of it."""
        self.late = 0
        """The checks of edits that took longer than anybody waits."""
        self.documents: dict[str, OpenDocument] = {}
        self._start = start
        self._report = report
        self._client: LanguageClient | None = None
        self._changed = anyio.Event()
        self._wanted = anyio.Event()
        self._ends = 0
        self._gone = ""
        self._published: dict[str, tuple[int, PublishedDiagnostics]] = {}
        self._sent = 0
        self._working = set[int | str]()
        """The work that the server says it is doing."""
        self._stamps: FileStamps = {}
        self._stderr: deque[bytes] = deque(maxlen=8)

    @property
    def is_ready(self) -> bool:
        """True if it runs and can be asked."""
        return self._client is not None

    @property
    def failure(self) -> str:
        """Why it was given up; empty if it was not."""
        return self._gone

    # Its life.

    async def keep_running(self) -> None:
        """Run the server whenever it is needed, and give it up after its last start."""
        why = ""
        for _ in range(MAX_STARTS):
            await self._wanted.wait()
            why = await self._run_once()
            self._client, self._published, self._ends = None, {}, self._ends + 1
            self.documents.clear()
            self._working.clear()
            self._wanted = anyio.Event()
            self._wake_up_waiters()
        stderr = b"".join(self._stderr).decode(errors="replace").strip()
        said = stderr.rpartition("\n")[2][-MAX_STDERR_CHARS:]
        self._gone = f"{why}{f' ({said})' if said else ''}"
        self._wake_up_waiters()
        self._report(
            f"Language server {self.config.name} failed {MAX_STARTS} times and is not used any "
            f"more: {self._gone}"
        )

    async def _run_once(self) -> str:
        """Start the language server and stay connected until it ends; return why it did."""
        try:
            talk = self._start(self._stderr.append)
        except OSError as error:
            return str(error)
        client = LanguageClient(
            talk,
            root=self.root,
            settings=self.config.settings,
            on_notification=self._take_notification,
        )
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._introduce, client)
                await client.exchange_messages()
                group.cancel_scope.cancel()
            return client.end_reason
        finally:
            with anyio.CancelScope(shield=True):
                await talk.aclose()

    async def _introduce(self, client: LanguageClient) -> None:
        """Initialize a connection to the language server; one that never answers is ended."""
        self._stamps = await anyio.to_thread.run_sync(scan_files, self.root, self._suffixes())
        with anyio.move_on_after(START_SECONDS) as waited:
            try:
                await client.initialize(self.config.options)
            except (ServerUnavailable, RequestRefused, ProtocolError) as error:
                client.disconnect(f"it did not start: {error}")
                return
        if waited.cancelled_caught:
            client.disconnect(f"it did not answer within {START_SECONDS:g} s")
            return
        self._client = client
        self._wake_up_waiters()

    def _suffixes(self) -> frozenset[str]:
        return frozenset(self.config.languages)

    def _wake_up_waiters(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def wait_until_ready(self) -> LanguageClient:
        """Start the server if it does not run; raises `ServerUnavailable` if it cannot."""
        self._wanted.set()
        ends = self._ends
        while self._client is None and not self._gone and self._ends == ends:
            await self._changed.wait()
        if self._client is None:
            raise ServerUnavailable(self._gone or "it ended while it started")
        return self._client

    # What it knows of files.

    def _take_notification(self, method: str, params: msgspec.Raw) -> None:
        """Take diagnostics that the server sends; wake up whoever waits for them."""
        if method == "textDocument/publishDiagnostics":
            found = decode(params, PublishedDiagnostics)
            self._sent += 1
            self._published[path_of_uri(found.uri)] = (self._sent, found)
        elif method == "$/progress":
            told = decode(params, ProgressParams)
            begins = self._working.add if told.value.kind == "begin" else self._working.discard
            if told.value.kind != "report":
                begins(told.token)
        self._wake_up_waiters()

    async def tell_changed_files(self) -> None:
        """Tell the server of files that changed on disk since the last time, by whatever means."""
        client = await self.wait_until_ready()
        stamps = await anyio.to_thread.run_sync(scan_files, self.root, self._suffixes())
        events: list[Json] = [
            {"uri": uri_of_path(path), "type": kind}
            for path, kind in compare_stamps(self._stamps, stamps)
        ]
        self._stamps = stamps
        if events:
            client.send_notification("workspace/didChangeWatchedFiles", {"changes": events})

    async def show_text(self, path: str, text: str) -> OpenDocument:
        """Show the server this text as a file's content."""
        client = await self.wait_until_ready()
        found = self.documents.pop(path, None)
        if found is None:
            found = OpenDocument(path, text, 1, self._sent)
            language = self.config.language_of_file(path)
            item: Json = {"uri": uri_of_path(path), "languageId": language, "version": 1}
            client.send_notification(
                "textDocument/didOpen", {"textDocument": {**item, "text": text}}
            )
        elif found.text != text:
            found.text, found.sent, found.version = text, self._sent, found.version + 1
            versioned: Json = {"uri": uri_of_path(path), "version": found.version}
            change: Json = {"textDocument": versioned, "contentChanges": [{"text": text}]}
            client.send_notification("textDocument/didChange", change)
        self.documents[path] = found  # the last one is the one that was used last
        while len(self.documents) > MAX_OPEN_FILES:
            self.close_file(next(iter(self.documents)))
        return found

    def close_file(self, path: str) -> None:
        """Let the server forget the text of a file, if it was shown one."""
        if self._client is not None and self.documents.pop(path, None) is not None:
            closed: Json = {"textDocument": {"uri": uri_of_path(path)}}
            self._client.send_notification("textDocument/didClose", closed)
            self._published.pop(path, None)

    def tell_saved(self, path: str) -> None:
        """Tell the server that a file was written: some check more then."""
        if self._client is not None:
            saved: Json = {"textDocument": {"uri": uri_of_path(path)}}
            self._client.send_notification("textDocument/didSave", saved)

    async def fetch_errors(self, document: OpenDocument) -> tuple[Diagnostic, ...]:
        """Return the errors in a file as it was last shown; waits until the server knows."""
        client = await self.wait_until_ready()
        while not (client.pulls or self._has_current_diagnostics(document)):
            with anyio.move_on_after(math.inf if self._working else SILENCE_SECONDS) as silence:
                await self._wait_for_news(client)
            if silence.cancelled_caught:  # some say nothing of a file without errors
                await self._wait_until_text_was_read(client, document)
                break
        if not client.pulls:
            with anyio.move_on_after(SETTLE_SECONDS):
                await self._wait_for_corrections(client)
        return await self.fetch_latest_errors(document)

    async def fetch_latest_errors(self, document: OpenDocument) -> tuple[Diagnostic, ...]:
        """Return the errors in a file that the server knows now."""
        client = await self.wait_until_ready()
        found = self._published.get(document.path)
        sent = found[1].diagnostics if found else ()
        if not client.pulls:
            return _select_errors(sent)
        asked: Json = {"textDocument": {"uri": uri_of_path(document.path)}}
        pulled = await client.request_result(PULL_METHOD, asked, PulledDiagnostics)
        return _select_errors((*(pulled.items if pulled else ()), *sent))

    async def _wait_until_text_was_read(
        self, client: LanguageClient, document: OpenDocument
    ) -> None:
        """Wait for any answer about a file: a server gives it after what it has to say before."""
        start: Json = {"line": 0, "character": 0}
        asked: Json = {"textDocument": {"uri": uri_of_path(document.path)}, "position": start}
        with suppress(RequestRefused):
            await client.request_result("textDocument/hover", asked, msgspec.Raw)

    def _has_current_diagnostics(self, document: OpenDocument) -> bool:
        """Return whether the server has sent diagnostics for the text that it was last shown."""
        found = self._published.get(document.path)
        if found is None:
            return False
        number, told = found
        return number > document.sent if told.version is None else told.version == document.version

    async def wait_until_settled(self, document: OpenDocument, seconds: float) -> None:
        """Wait until the server has read the project, as far as it can be seen from here.

        Some answer at once, and only from open files. Their first diagnostics come after that.
        """
        with anyio.move_on_after(seconds):
            if not document.has_known_errors:
                document.errors = await self.fetch_errors(document)
            await self.wait_while_busy()

    async def wait_while_busy(self) -> None:
        """Wait while the server reports progress."""
        client = await self.wait_until_ready()
        while self._working:
            await self._wait_for_news(client)

    async def _wait_for_corrections(self, client: LanguageClient) -> None:
        while True:
            await self._wait_for_news(client)

    async def _wait_for_news(self, client: LanguageClient) -> None:
        """Wait until the language server sends something; raises `ServerUnavailable`."""
        await self._changed.wait()
        if self._client is not client:
            raise ServerUnavailable(self._gone or "it crashed")

    async def query_server(self, method: str, params: Json, kind: type[ResultT]) -> ResultT | None:
        """Ask the server; raises `ServerUnavailable`, `RequestRefused` or `ProtocolError`."""
        return await (await self.wait_until_ready()).request_result(method, params, kind)


def _select_errors(found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return the errors among diagnostics, each once."""
    return tuple(dict.fromkeys(one for one in found if one.severity == 1))
