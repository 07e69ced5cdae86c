"""All language servers of a session: one for each kind of file and folder, started when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import anyio
from anyio.abc import TaskGroup

from travois.lsp.check import EditCheck, collect_files
from travois.lsp.discovery import LanguageServerConfig
from travois.lsp.server import LanguageServer
from travois.process.job import StdioConnection
from travois.tools.text import decode_text

MAX_DOCUMENT_BYTES = 1_000_000
StartServer = Callable[[LanguageServerConfig, str, Callable[[bytes], None]], StdioConnection]


class LanguageServers:
    """The language servers of a session.

    `start` starts the program of one for a folder; `report` tells the person that one is given up.
    """

    def __init__(
        self,
        configs: tuple[LanguageServerConfig, ...],
        *,
        start: StartServer,
        report: Callable[[str], None],
        edit_seconds: float,
        request_seconds: float,
    ) -> None:
        self.configs = configs
        self.edit_seconds = edit_seconds
        """The most seconds that the result of an edit waits for them."""
        self.request_seconds = request_seconds
        """The most seconds that a call of LSP takes."""
        self._start = start
        self._report = report
        self._servers: dict[tuple[str, str], LanguageServer] = {}
        self._group: TaskGroup | None = None

    async def run_until_cancelled(self) -> None:
        """Keep the servers until this is cancelled, as it is when the session ends."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    def checks_file(self, path: str) -> bool:
        """Return whether there is a server for a file of this name."""
        return any(one.language_of_file(path) for one in self.configs)

    def find_server(self, path: str, root: str) -> LanguageServer | None:
        """Return the server for a file in a folder; it starts once it is asked something."""
        config = next((one for one in self.configs if one.language_of_file(path)), None)
        return self._server_for(config, root) if config is not None else None

    def list_servers(self, root: str) -> tuple[LanguageServer, ...]:
        """Return the servers that run for a folder; if none does, the first that could."""
        running = [one for (_, at), one in self._servers.items() if at == root and one.is_ready]
        first = self._server_for(self.configs[0], root) if self.configs and not running else None
        return (*running, first) if first is not None else tuple(running)

    def _server_for(self, config: LanguageServerConfig, root: str) -> LanguageServer | None:
        """Return the language server of a folder, begun if it is new; None outside a session."""
        if self._group is None:
            return None
        found = self._servers.get((config.name, root))
        if found is None:
            start = partial(self._start, config, root)
            found = LanguageServer(config, root, start=start, report=self._report)
            self._servers[config.name, root] = found
            self._group.start_soon(found.keep_running)
        return None if found.failure else found

    def check_edit(
        self, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None], *, root: str
    ) -> list[EditCheck]:
        """Begin to check an edit of files, each with its content or None where it is missing."""
        groups = dict[LanguageServer, list[str]]()
        for path in before:
            if (server := self.find_server(path, root)) is not None:
                groups.setdefault(server, []).append(path)
        return [
            check
            for server, paths in groups.items()
            if (check := self._begin_check(server, paths, before, after)) is not None
        ]

    def _begin_check(
        self,
        server: LanguageServer,
        paths: list[str],
        before: Mapping[str, bytes | None],
        after: Mapping[str, bytes | None],
    ) -> EditCheck | None:
        """Begin the check of an edit by one server; None if it changed no text."""
        files = collect_files(
            {path: decode_document(before[path]) for path in paths},
            {path: decode_document(after[path]) for path in paths},
        )
        if not files or self._group is None:
            return None
        check = EditCheck(server, files, read_document)
        self._group.start_soon(check.run_check)
        return check


def read_document(path: str) -> str:
    """Read a text file for a language server; raises OSError if it is none."""
    with open(path, "rb") as file:
        text = decode_document(file.read(MAX_DOCUMENT_BYTES + 1))
    if text is None:
        raise OSError(f"{path} is not a text of at most {MAX_DOCUMENT_BYTES:,} bytes")
    return text


def decode_document(data: bytes | None) -> str | None:
    """Decode a file for a language server; None if there is none, or if it is no text for one."""
    if data is None or len(data) > MAX_DOCUMENT_BYTES:
        return None
    source = decode_text(data)
    return source.text.encode(errors="replace").decode() if source is not None else None
