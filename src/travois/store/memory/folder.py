"""One folder of memories: what lies in it, what of that cannot be read, and its index."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from travois.context.memory.index import INDEX, PINNED, TOPICS, index, prose
from travois.context.memory.memory import Memory, Scope
from travois.context.memory.text import parse
from travois.store import disk
from travois.store.blobs import digest
from travois.store.instructions import plain_bytes

LINK = "it is a link, and links are not followed here"
SHELVED = ".kept"
"""How a file is called that lay where a page of the index belongs."""
LARGEST_PAGE = 1 << 20
LONGEST_LINE = 4000
PAGE = re.compile(rf"{TOPICS}/[^.].*\.md")
DRAFT = re.compile(r"\..+\.\d+-[0-9a-f]{8}")


class Flaw(msgspec.Struct, frozen=True):
    """Something in a folder of memories that is not as it should be, and what to do."""

    what: str
    where: str
    fix: str


class Seen(msgspec.Struct, frozen=True):
    """A file as it was when it was last read."""

    stamp: tuple[int, int, int]
    digest: str = ""
    memory: Memory | None = None
    flaws: tuple[Flaw, ...] = ()


class Folder:
    """The memories of one scope. What was read is kept until its file changes."""

    def __init__(self, key: str, path: Path, *, scope: Scope = "project") -> None:
        self.key = key
        """Its name in the history of all folders."""
        self.path = path
        self.scope: Scope = scope
        self.seen: dict[str, Seen] = {}
        """By the path of the file in this folder."""

    def read(self) -> dict[str, Seen]:
        """Look at each file, and read those that changed."""
        self.seen = {
            file: known
            if (known := self.seen.get(file)) is not None and known.stamp == stamp
            else self._read(file, stamp)
            for file, stamp in self._files()
        }
        return self.seen

    def memories(self) -> Iterator[Memory]:
        """Those that were readable when they were last looked at."""
        return (seen.memory for seen in self.seen.values() if seen.memory is not None)

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
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent != self.path:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if path.parent.is_symlink():
                raise OSError(LINK)
        if data is None:
            path.unlink(missing_ok=True)
        else:
            disk.replace(path, data)

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
        for file, seen in self.seen.items():
            yield from seen.flaws
            if seen.memory and any(
                len(line) > LONGEST_LINE for line in seen.memory.body.split("\n")
            ):
                where = str(self.path / file)
                yield Flaw(f"a line has more than {LONGEST_LINE:,} characters", where, "Break it.")
        for place in (self.path, self.path / PINNED, self.path / TOPICS):
            if place != self.path and place.is_symlink():
                yield Flaw(f"it is not used: {LINK}", str(place), "Make it a plain folder.")
            elif place.exists() and not os.access(place, os.W_OK | os.X_OK):
                yield Flaw("it cannot be written to", str(place), "Make it writable.")
            for entry in _entries(place):
                if entry.name.endswith(SHELVED):
                    fix = "Take out of it what you need, and delete it."
                    yield Flaw("it lay where the index belongs", entry.path, fix)
        if self._pages() != self.pages():
            fix = "`travois memory doctor --fix` writes it again."
            yield Flaw("the index does not tell what is there", str(self.path / INDEX), fix)

    def sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        for folder in (self.path, self.path / PINNED, self.path / TOPICS):
            for entry in _entries(folder):
                if DRAFT.fullmatch(entry.name):
                    os.unlink(entry.path)

    def _pages(self) -> dict[str, str]:
        """The pages of the index that can be read."""
        found: dict[str, str] = {}
        topics = (f"{TOPICS}/{entry.name}" for entry in _entries(self.path / TOPICS))
        for page in (INDEX, *filter(PAGE.fullmatch, topics)):
            with suppress(OSError, UnicodeDecodeError):
                data = plain_bytes(str(self.path / page), opener=unlinked)
                if len(data) <= LARGEST_PAGE:
                    found[page] = data.decode("utf-8-sig")
        return found

    def _files(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        pinned = () if (self.path / PINNED).is_symlink() else (f"{PINNED}/",)
        for place in ("", *pinned):
            for entry in sorted(_entries(self.path / place), key=lambda entry: entry.name):
                if entry.name.endswith(".md") and entry.name[0] != "." and entry.name != INDEX:
                    found = entry.stat(follow_symlinks=False)
                    yield place + entry.name, (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self, file: str, stamp: tuple[int, int, int]) -> Seen:
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


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing if that cannot be told."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _reason(error: OSError, path: Path) -> str:
    return LINK if path.is_symlink() else error.strerror or str(error)


def unlinked(path: str, flags: int) -> int:
    """A descriptor of a file that is no link."""
    return os.open(path, flags | os.O_NOFOLLOW)
