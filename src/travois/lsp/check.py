"""The check of an edit: what a language server made of the files before, and makes of them after.

The check goes on when the result of the edit could not wait for it: it then comes with the next
result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import anyio
import msgspec

from travois.lsp.client import RequestRefused, ServerUnavailable
from travois.lsp.problems import FileProblems, find_new_problems, render_new_problems
from travois.lsp.protocol import Diagnostic, ProtocolError
from travois.lsp.server import LanguageServer, OpenDocument

MAX_CHECK_SECONDS = 120.0
"""Seconds after which a check is dropped; a server that indexes a project may take long."""
BUSY_WAIT_SECONDS = 0.2
"""Seconds to wait for a server that is still busy with an earlier edit."""


class EditedFile(msgspec.Struct, frozen=True):
    """A file before and after an edit, as text; None where there is no file."""

    path: str
    before: str | None
    after: str | None


class EditCheck:
    """The check of one edit by one language server."""

    def __init__(
        self, server: LanguageServer, files: tuple[EditedFile, ...], read: Callable[[str], str]
    ) -> None:
        self._server = server
        self._files = files
        self._read = read
        self.done = anyio.Event()
        """Set when nothing more will come of it."""
        self._found: list[FileProblems] = []
        self._is_late = False

    @property
    def is_done(self) -> bool:
        """True if nothing more will come of it."""
        return self.done.is_set()

    async def wait_for_errors(self, seconds: float) -> str:
        """Return the new problems; empty if there are none, or if that takes too long."""
        with anyio.move_on_after(min(BUSY_WAIT_SECONDS, seconds) if self._server.late else seconds):
            await self.done.wait()
        if not self.is_done:
            self._is_late = True
            self._server.late += 1
        return self.describe_errors(late=False)

    def describe_errors(self, *, late: bool = True) -> str:
        """Describe the new problems; empty while they are unknown."""
        edited = ", ".join(self._name(file.path) for file in self._files)
        return render_new_problems(
            [one for one in map(self._without_mended, self._found) if one.problems],
            server=self._server.config.name,
            name=self._name,
            since=f"the earlier edit of {edited}" if late else "this edit",
        )

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._server.root)

    def _without_mended(self, found: FileProblems) -> FileProblems:
        """Leave out what a later edit has mended before the model was told of it."""
        document = self._server.documents.get(found.path)
        if document is None or document.errors is None:
            return found
        left = {(one.code, one.message) for one in document.errors}
        still = tuple(one for one in found.problems if (one.code, one.message) in left)
        return msgspec.structs.replace(found, problems=still)

    async def run_check(self) -> None:
        """Check the edit; a server that fails finds nothing."""
        try:
            with anyio.move_on_after(MAX_CHECK_SECONDS):
                async with self._server.lock:
                    await self._compare()
        except (ServerUnavailable, RequestRefused, ProtocolError):
            pass  # the server tells the person when it is given up
        finally:
            self.done.set()
            self._server.late -= self._is_late

    async def _compare(self) -> None:
        """Show the server the files before and after the edit, and compare its errors."""
        server = self._server
        await server.wait_until_ready()
        others = await self._refresh_others()
        await self._learn_former_errors()
        await server.tell_changed_files()
        edited = list[tuple[OpenDocument, str]]()
        for file in self._files:
            if file.after is None:
                server.close_file(file.path)
            else:
                edited.append((await server.show_text(file.path, file.after), file.before or ""))
                server.tell_saved(file.path)
        for document, old in edited:
            self._add_new_problems(document, old, await server.fetch_errors(document))
        for document in others:
            after = await server.fetch_latest_errors(document)
            self._add_new_problems(document, document.text, after)

    async def _refresh_others(self) -> list[OpenDocument]:
        """Bring the other open files up to date; return those whose errors were known before."""
        edited, known = {file.path for file in self._files}, list[OpenDocument]()
        for document in [one for one in self._server.documents.values() if one.path not in edited]:
            try:
                text = self._read(document.path)
            except OSError:
                self._server.close_file(document.path)
                continue
            if text != document.text:
                document.errors = None  # somebody else changed it: that is not this edit's doing
                await self._server.show_text(document.path, text)
            elif document.has_known_errors:
                known.append(document)
        return known

    async def _learn_former_errors(self) -> None:
        """Learn the errors that the files had before the edit, unless they are known."""
        unknown = list[OpenDocument]()
        for file in self._files:
            known = self._server.documents.get(file.path)
            if file.before is None or (
                known and known.text == file.before and known.has_known_errors
            ):
                continue
            unknown.append(await self._server.show_text(file.path, file.before))
        for document in unknown:
            document.errors = await self._server.fetch_errors(document)

    def _add_new_problems(
        self, document: OpenDocument, old: str, after: tuple[Diagnostic, ...]
    ) -> None:
        """Note the errors that a file has since the edit."""
        found = find_new_problems(document.errors or (), after, old=old, new=document.text)
        document.errors = after
        if found:
            self._found.append(FileProblems(document.path, document.text, found))


def collect_files(
    before: Mapping[str, str | None], after: Mapping[str, str | None]
) -> tuple[EditedFile, ...]:
    """Return the files whose content an edit changed."""
    pairs = (EditedFile(path, old, after.get(path)) for path, old in before.items())
    return tuple(file for file in pairs if file.before != file.after)
