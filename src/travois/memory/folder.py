"""One folder of memory files: their contents, their flaws and the index."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from travois.memory.index import INDEX, PINNED, TOPICS, fits, index, prose
from travois.memory.memory import Memory, Scope
from travois.memory.text import parse
from travois.prompt.instruction_files import plain_bytes
from travois.sessions import blobs
from travois.sessions.blobs import hash_blob

LINK = "it is a symbolic link, and links are not followed"
SHELVED = ".kept"
"""The suffix of a file that was in the place of an index page."""
LARGEST_PAGE = 1 << 20
LONGEST_LINE = 4000
PAGE = re.compile(rf"{TOPICS}/[^.].*\.md")
DRAFT = re.compile(r"\..+\.\d+-[0-9a-f]{8}")


Stamp = tuple[int, int, int]
"""Modification time, size and inode: another stamp means other bytes."""
LATELY = 10 * 10**9
"""Nanoseconds for which a scan may be reused."""
SETTLED = 10**8
"""Nanoseconds for which a folder must have been unchanged before its scan is reused."""


class Flaw(msgspec.Struct, frozen=True):
    """A problem in a memory folder, and how to fix it."""

    what: str
    where: str
    fix: str


class Seen(msgspec.Struct, frozen=True):
    """A memory file as it was last read."""

    stamp: Stamp
    digest: str = ""
    memory: Memory | None = None
    flaws: tuple[Flaw, ...] = ()


class Folder:
    """The memories of one scope. Files are read again only when they change."""

    def __init__(
        self,
        key: str,
        path: Path,
        *,
        scope: Scope = "project",
        wrote: Callable[[str], None] | None = None,
    ) -> None:
        self._wrote = wrote
        self.key = key
        """Its name in the history of all folders."""
        self.path = path
        self.scope: Scope = scope
        self.seen: dict[str, Seen] = {}
        """Files by their path in this folder."""
        self._stamps: Mapping[str, Stamp] = {}
        self._changed: tuple[int, ...] = ()
        self._scanned = 0

    def scan(self, *, how: Literal["each", "lately"] = "each") -> Mapping[str, Stamp]:
        """Return the files and their stamps: current, or a few seconds old with `lately`.

        The same object is returned as long as nothing changed.
        """
        changed = tuple(_changed(self.path / place) for place in ("", PINNED))
        now = time.monotonic_ns()
        recent = changed == self._changed and now - self._scanned < LATELY
        if how == "lately" and recent and time.time_ns() - max(changed) > SETTLED:
            return self._stamps
        found = dict(self._files())
        if found != self._stamps:
            self._stamps = found
        self._changed, self._scanned = changed, now
        return self._stamps

    def look(self, file: str, stamp: Stamp) -> Seen:
        """Return the file with this stamp, and read it if needed."""
        seen = self.seen.get(file)
        if seen is None or seen.stamp != stamp:
            seen = self.seen[file] = self._read(file, stamp)
        return seen

    def read(self) -> dict[str, Seen]:
        """Read all files that changed; return all."""
        self.seen = {file: self.look(file, stamp) for file, stamp in self.scan().items()}
        return self.seen

    def fresh(self, file: str) -> Memory | None:
        """Return one memory as it is on disk; None if it cannot be read."""
        try:
            return self.look(file, _stamp(os.lstat(self.path / file))).memory
        except OSError:
            return None

    def memories(self) -> Iterator[Memory]:
        """Yield the memories that were readable when last read."""
        # A copy: another thread may look at a file meanwhile.
        return (seen.memory for seen in list(self.seen.values()) if seen.memory is not None)

    def head(self) -> str:
        """Return the first page of the index; rebuild it if it does not match the files.

        That each file is listed can be checked without reading them all.
        """
        text = self._page(INDEX) or ""
        names = [quote(file.removesuffix(".md")) for file in self.scan()]
        listed = all(f"]({name}.md)" in text for name in names) if names else not text
        if fits(text.split("\n")[:-1]) and (listed or f"]({TOPICS}/" in text):
            return text
        self.read()
        return self.pages().get(INDEX, "")

    def bytes(self, file: str) -> bytes | None:
        """Return a regular file's bytes, or None if it is missing. Raises OSError otherwise."""
        path = self.path / file
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(LINK if path.is_symlink() else "it is not a regular file")
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, file: str, data: bytes | None) -> None:
        """Write or delete a file, never through a link. Raises OSError."""
        path = self.path / file
        blobs.make_folders(self.path)
        if path.parent != self.path:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if path.parent.is_symlink():
                raise OSError(LINK)
        if data is None:
            path.unlink(missing_ok=True)
        else:
            blobs.replace_file(path, data)
        if self._wrote is not None:
            self._wrote(os.path.realpath(path))

    def pages(self) -> dict[str, str]:
        """Build the pages of the index, with the lines that people wrote into it."""
        return index(self.memories(), prose(self._pages()))

    def reindex(self) -> None:
        """Bring the index on disk up to date. Raises OSError."""
        self.read()
        there, wanted = self._pages(), self.pages()
        for page in sorted({*there, *wanted}):
            if there.get(page) != wanted.get(page):
                self._shelve(page, there)
                text = wanted.get(page)
                self.write(page, None if text is None else text.encode(errors="replace"))

    def _shelve(self, page: str, there: dict[str, str]) -> None:
        """Rename whatever is in the place of an index page."""
        path = self.path / page
        if page not in there and os.path.lexists(path):
            path.rename(path.with_name(f"{path.name}.{os.urandom(4).hex()}{SHELVED}"))

    def flaws(self) -> Iterator[Flaw]:
        """Yield the problems of the folder as it was last read."""
        for file, seen in list(self.seen.items()):
            yield from seen.flaws
            if seen.memory and any(
                len(line) > LONGEST_LINE for line in seen.memory.body.split("\n")
            ):
                where = str(self.path / file)
                yield Flaw(
                    f"a line has more than {LONGEST_LINE:,} characters", where, "Break the line."
                )
        for place in ("", PINNED, TOPICS):
            path = self.path / place
            if place and path.is_symlink():
                yield Flaw(
                    f"the folder is ignored: {LINK}", str(path), "Replace the link with a folder."
                )
            elif path.exists() and not os.access(path, os.W_OK | os.X_OK):
                yield Flaw("the folder is not writable", str(path), "Make it writable.")
            for entry in self._entries(place):
                if entry.name.endswith(SHELVED):
                    fix = "Copy what you need from it, then delete it."
                    yield Flaw(
                        "it was moved aside because the index belongs there", entry.path, fix
                    )
        if self._pages() != self.pages():
            fix = "Run `travois memory doctor --fix` to rebuild it."
            yield Flaw("the index does not match the memories", str(self.path / INDEX), fix)

    def sweep(self) -> None:
        """Remove temporary files of writers that were killed."""
        for place in ("", PINNED, TOPICS):
            for entry in self._entries(place):
                if DRAFT.fullmatch(entry.name):
                    os.unlink(entry.path)

    def _pages(self) -> dict[str, str]:
        """Read the pages of the index."""
        topics = (f"{TOPICS}/{entry.name}" for entry in self._entries(TOPICS))
        pages = (INDEX, *filter(PAGE.fullmatch, topics))
        return {page: text for page in pages if (text := self._page(page)) is not None}

    def _page(self, page: str) -> str | None:
        try:
            data = plain_bytes(str(self.path / page), opener=unlinked)
            return data.decode("utf-8-sig") if len(data) <= LARGEST_PAGE else None
        except (OSError, UnicodeDecodeError):
            return None

    def _entries(self, place: str = "") -> list[os.DirEntry[str]]:
        """List a folder; empty if it cannot be listed or is a link."""
        folder = self.path / place
        try:
            with os.scandir(folder) as entries:
                return [] if place and folder.is_symlink() else list(entries)
        except OSError:
            return []

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        for place in ("", f"{PINNED}/"):
            for entry in sorted(self._entries(place.rstrip("/")), key=lambda entry: entry.name):
                if entry.name.endswith(".md") and entry.name[0] != "." and entry.name != INDEX:
                    yield place + entry.name, _stamp(entry.stat(follow_symlinks=False))

    def _read(self, file: str, stamp: Stamp) -> Seen:
        """Read and parse one file; problems become flaws."""
        path = self.path / file
        try:
            path.name.encode()
            data = plain_bytes(str(path), opener=unlinked)
        except (OSError, UnicodeEncodeError) as error:
            why = (
                "its name is not valid UTF-8"
                if isinstance(error, ValueError)
                else _reason(error, path)
            )
            flaw = Flaw(
                f"a memory cannot be read: {why}", str(path), "Fix it, or move it elsewhere."
            )
            return Seen(stamp, flaws=(flaw,))
        text = data.decode("utf-8-sig", errors="replace")
        pinned = file.startswith(f"{PINNED}/")
        page = parse(path.stem, text, scope=self.scope, pinned=pinned)
        flaws = tuple(Flaw(why, str(path), "Fix its front matter.") for why in page.flaws)
        return Seen(stamp, hash_blob(data), page.memory, flaws)


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _reason(error: OSError, path: Path) -> str:
    return LINK if path.is_symlink() else error.strerror or str(error)


def unlinked(path: str, flags: int) -> int:
    """Open a file, but not through a link."""
    return os.open(path, flags | os.O_NOFOLLOW)
