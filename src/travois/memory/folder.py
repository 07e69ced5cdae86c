"""One folder of memories: what lies in it, what of that cannot be read, and its index."""

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
from travois.sessions.blobs import digest

LINK = "it is a link, and links are not followed here"
SHELVED = ".kept"
"""How a file is called that lay where a page of the index belongs."""
LARGEST_PAGE = 1 << 20
LONGEST_LINE = 4000
PAGE = re.compile(rf"{TOPICS}/[^.].*\.md")
DRAFT = re.compile(r"\..+\.\d+-[0-9a-f]{8}")


Stamp = tuple[int, int, int]
"""When a file was changed, its size and its inode: another stamp, other bytes."""
LATELY, SETTLED = 10 * 10**9, 10**8
"""For how many nanoseconds a scan may be relied on, and how long a folder must have been still."""


class Flaw(msgspec.Struct, frozen=True):
    """Something in a folder of memories that is not as it should be, and what to do."""

    what: str
    where: str
    fix: str


class Seen(msgspec.Struct, frozen=True):
    """A file as it was when it was last read."""

    stamp: Stamp
    digest: str = ""
    memory: Memory | None = None
    flaws: tuple[Flaw, ...] = ()


class Folder:
    """The memories of one scope. What was read is kept until its file changes."""

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
        """By the path of the file in this folder."""
        self._stamps: Mapping[str, Stamp] = {}
        self._changed: tuple[int, ...] = ()
        self._scanned = 0

    def scan(self, *, how: Literal["each", "lately"] = "each") -> Mapping[str, Stamp]:
        """The files and their stamps: as they are, or as they were a few seconds ago at most.

        The same value comes back as long as nothing changed.
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
        """A file with this stamp, read if that was not done yet."""
        seen = self.seen.get(file)
        if seen is None or seen.stamp != stamp:
            seen = self.seen[file] = self._read(file, stamp)
        return seen

    def read(self) -> dict[str, Seen]:
        """All files as they are; those that changed are read."""
        self.seen = {file: self.look(file, stamp) for file, stamp in self.scan().items()}
        return self.seen

    def fresh(self, file: str) -> Memory | None:
        """One memory as it is at the moment; None if there is none that can be read."""
        try:
            return self.look(file, _stamp(os.lstat(self.path / file))).memory
        except OSError:
            return None

    def memories(self) -> Iterator[Memory]:
        """Those that were readable when they were last looked at."""
        # A copy: another thread may look at a file meanwhile.
        return (seen.memory for seen in list(self.seen.values()) if seen.memory is not None)

    def head(self) -> str:
        """The first page of the index; made of the files where the one on disk does not fit them.

        That each is in it is seen without reading them all.
        """
        text = self._page(INDEX) or ""
        names = [quote(file.removesuffix(".md")) for file in self.scan()]
        listed = all(f"]({name}.md)" in text for name in names) if names else not text
        if fits(text.split("\n")[:-1]) and (listed or f"]({TOPICS}/" in text):
            return text
        self.read()
        return self.pages().get(INDEX, "")

    def bytes(self, file: str) -> bytes | None:
        """What a plain file has; None if there is none. Raises OSError for anything else."""
        path = self.path / file
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(LINK if path.is_symlink() else "it is not a plain file")
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, file: str, data: bytes | None) -> None:
        """Put a file there, or take it away; never through a link. Raises OSError."""
        path = self.path / file
        blobs.make_folders(self.path)
        if path.parent != self.path:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if path.parent.is_symlink():
                raise OSError(LINK)
        if data is None:
            path.unlink(missing_ok=True)
        else:
            blobs.replace(path, data)
        if self._wrote is not None:
            self._wrote(os.path.realpath(path))

    def pages(self) -> dict[str, str]:
        """The index of what is there, with what people wrote into it."""
        return index(self.memories(), prose(self._pages()))

    def reindex(self) -> None:
        """Bring the index up to what is there. Raises OSError."""
        self.read()
        there, wanted = self._pages(), self.pages()
        for page in sorted({*there, *wanted}):
            if there.get(page) != wanted.get(page):
                self._shelve(page, there)
                text = wanted.get(page)
                self.write(page, None if text is None else text.encode(errors="replace"))

    def _shelve(self, page: str, there: dict[str, str]) -> None:
        """Move what is no page of ours out of the way of one."""
        path = self.path / page
        if page not in there and os.path.lexists(path):
            path.rename(path.with_name(f"{path.name}.{os.urandom(4).hex()}{SHELVED}"))

    def flaws(self) -> Iterator[Flaw]:
        """What is not as it should be; the folder is as it was last read."""
        for file, seen in list(self.seen.items()):
            yield from seen.flaws
            if seen.memory and any(
                len(line) > LONGEST_LINE for line in seen.memory.body.split("\n")
            ):
                where = str(self.path / file)
                yield Flaw(f"a line has more than {LONGEST_LINE:,} characters", where, "Break it.")
        for place in ("", PINNED, TOPICS):
            path = self.path / place
            if place and path.is_symlink():
                yield Flaw(f"it is not used: {LINK}", str(path), "Make it a plain folder.")
            elif path.exists() and not os.access(path, os.W_OK | os.X_OK):
                yield Flaw("it cannot be written to", str(path), "Make it writable.")
            for entry in self._entries(place):
                if entry.name.endswith(SHELVED):
                    fix = "Take out of it what you need, and delete it."
                    yield Flaw("it lay where the index belongs", entry.path, fix)
        if self._pages() != self.pages():
            fix = "`travois memory doctor --fix` writes it again."
            yield Flaw("the index does not tell what is there", str(self.path / INDEX), fix)

    def sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        for place in ("", PINNED, TOPICS):
            for entry in self._entries(place):
                if DRAFT.fullmatch(entry.name):
                    os.unlink(entry.path)

    def _pages(self) -> dict[str, str]:
        """The pages of the index that can be read."""
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
        """What lies in the folder or below it; nothing if that cannot be told, or is elsewhere."""
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
        path = self.path / file
        try:
            path.name.encode()
            data = plain_bytes(str(path), opener=unlinked)
        except (OSError, UnicodeEncodeError) as error:
            why = "its name is not text" if isinstance(error, ValueError) else _reason(error, path)
            flaw = Flaw(f"a memory is not read: {why}", str(path), "Mend it, or move it away.")
            return Seen(stamp, flaws=(flaw,))
        text = data.decode("utf-8-sig", errors="replace")
        pinned = file.startswith(f"{PINNED}/")
        page = parse(path.stem, text, scope=self.scope, pinned=pinned)
        flaws = tuple(Flaw(why, str(path), "Mend its front matter.") for why in page.flaws)
        return Seen(stamp, digest(data), page.memory, flaws)


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
    """A descriptor of a file that is no link."""
    return os.open(path, flags | os.O_NOFOLLOW)
