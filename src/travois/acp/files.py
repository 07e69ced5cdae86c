"""Files as the editor has them: text that it has not saved is seen, and changes go to its buffers.

The disk stays the judge of what a path is: it is opened there first, without links, inside the
folders of the session. What the editor is asked about is plain UTF-8; all else never leaves us.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import anyio
import msgspec

from travois.acp.peer import Ask
from travois.acp.protocol import Buffer, Capabilities
from travois.headless.control.messages import Declined
from travois.permissions.paths import inside
from travois.ports.world import Files, Stale, Stat, digest
from travois.tools.text import Encoding, decode, endings

LARGEST = 4_000_000
PATIENCE = 10.0
"""How many seconds the editor has to show a file, before the disk counts."""
UNSAVED = "it has unsaved changes in the editor, which takes none of ours: save it first"
DEAF = "the editor did not take the change"


class Buffers:
    """The disk with the editor's buffers before it."""

    def __init__(
        self,
        files: Files,
        ask: Ask,
        *,
        able: Capabilities,
        session: str,
        folders: tuple[str, ...],
    ) -> None:
        self._files = files
        self._ask = ask
        self._able = able
        self._session = session
        self._folders = folders

    async def stat(self, path: str) -> Stat | None:
        """What the path is; None if nothing is there."""
        return await self._files.stat(path)

    async def names(self, folder: str, *, limit: int) -> list[str]:
        """The first names in a folder, in order; those of folders end with a slash."""
        return await self._files.names(folder, limit=limit)

    async def modified(self, paths: Sequence[str]) -> list[int]:
        """When each of these was changed last, in nanoseconds; 0 for what cannot be told."""
        return await self._files.modified(paths)

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """One at a time for each file."""
        return self._files.queue(path)

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of the file from an offset on; a whole text as it stands in the editor."""
        data = await self._files.read(path, offset=offset, limit=limit)
        part = offset or 0 <= limit <= len(data)
        if part or not self._able.reads or not self._ours(path, data):
            return data
        text = await self._shown(path)
        return data if text is None else _merged(data, text)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of what the editor has is `expect`."""
        if expect is None or not self._able.reads or not self._ours(path, data):
            return await self._files.replace(path, data, expect=expect)
        held = await self.read(path)
        if digest(held) != expect:
            raise Stale
        if self._able.writes and await self._wrote(path, data):
            after = await self.read(path)
            if after == held != data:
                raise OSError(errno.EIO, DEAF, path)
            return digest(after)
        if held != await self._files.read(path):
            raise OSError(errno.EBUSY, UNSAVED, path)
        return await self._files.replace(path, data, expect=expect)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect` here and in the editor."""
        if digest(await self.read(path)) != expect:
            raise Stale
        await self._files.remove(path, expect=expect)

    def _ours(self, path: str, data: bytes) -> bool:
        """Whether this is a text of the workspace, such as an editor would write it again."""
        if len(data) > LARGEST or not any(inside(path, folder) for folder in self._folders):
            return False
        found = decode(data)
        return found is not None and found.encoding == Encoding("utf-8")

    async def _shown(self, path: str) -> str | None:
        """What the editor has; none if it has nothing to say of it."""
        with anyio.move_on_after(PATIENCE):
            try:
                body = {"sessionId": self._session, "path": path}
                found = await self._ask("fs/read_text_file", {**body})
                return msgspec.json.decode(found, type=Buffer).content
            except (Declined, msgspec.DecodeError):
                pass
        return None

    async def _wrote(self, path: str, data: bytes) -> bool:
        body = {"sessionId": self._session, "path": path, "content": data.decode()}
        try:
            await self._ask("fs/write_text_file", {**body})
        except Declined:
            return False
        return True


def _merged(data: bytes, text: str) -> bytes:
    """The editor's text as the file would hold it; the file's own bytes where it is the same."""
    there = data.decode()
    if _even(text) == _even(there):
        return data
    if "\r" not in text and endings(there) == ["\r\n"]:
        text = text.replace("\n", "\r\n")
    return text.encode()


def _even(text: str) -> str:
    return text.replace("\r\n", "\n")
