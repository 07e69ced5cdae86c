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

from travois.memory.index import (
    INDEX_FILE,
    PINNED_FOLDER,
    TOPICS_FOLDER,
    build_index,
    extract_prose,
    fits_page,
)
from travois.memory.memory import Memory, MemoryScope
from travois.memory.text import parse_memory_file
from travois.prompt.instruction_files import read_plain_bytes
from travois.sessions import blobs
from travois.sessions.blobs import hash_blob

LINK_REFUSED = "it is a symbolic link, and links are not followed"
MOVED_ASIDE_SUFFIX = ".kept"
"""The suffix of a file that was in the place of an index page."""
MAX_PAGE_FILE_BYTES = 1 << 20
MAX_MEMORY_LINE_CHARS = 4000
TOPIC_PAGE_PATTERN = re.compile(rf"{TOPICS_FOLDER}/[^.].*\.md")
LEFTOVER_FILE_PATTERN = re.compile(r"\..+\.\d+-[0-9a-f]{8}")


FileStamp = tuple[int, int, int]
"""Modification time, size and inode: another stamp means other bytes."""
MAX_SCAN_AGE_NS = 10 * 10**9
"""Nanoseconds for which a scan may be reused."""
MIN_QUIET_NS = 10**8
"""Nanoseconds for which a folder must have been unchanged before its scan is reused."""


class FolderFlaw(msgspec.Struct, frozen=True):
    """A problem in a memory folder, and how to fix it."""

    what: str
    where: str
    fix: str


class CachedMemoryFile(msgspec.Struct, frozen=True):
    """A memory file as it was last read."""

    stamp: FileStamp
    digest: str = ""
    memory: Memory | None = None
    flaws: tuple[FolderFlaw, ...] = ()


class MemoryFolder:
    """The memories of one scope. Files are read again only when they change."""

    def __init__(
        self,
        key: str,
        path: Path,
        *,
        scope: MemoryScope = "project",
        wrote: Callable[[str], None] | None = None,
    ) -> None:
        self._wrote = wrote
        self.key = key
        """Its name in the history of all folders."""
        self.path = path
        self.scope: MemoryScope = scope
        self.seen: dict[str, CachedMemoryFile] = {}
        """Files by their path in this folder."""
        self._stamps: Mapping[str, FileStamp] = {}
        self._changed: tuple[int, ...] = ()
        self._scanned = 0

    def scan(self, *, how: Literal["each", "lately"] = "each") -> Mapping[str, FileStamp]:
        """Return the files and their stamps: current, or a few seconds old with `lately`.

        The same object is returned as long as nothing changed.
        """
        changed = tuple(_read_folder_mtime(self.path / place) for place in ("", PINNED_FOLDER))
        now = time.monotonic_ns()
        recent = changed == self._changed and now - self._scanned < MAX_SCAN_AGE_NS
        if how == "lately" and recent and time.time_ns() - max(changed) > MIN_QUIET_NS:
            return self._stamps
        found = dict(self._list_files())
        if found != self._stamps:
            self._stamps = found
        self._changed, self._scanned = changed, now
        return self._stamps

    def read_cached(self, file: str, stamp: FileStamp) -> CachedMemoryFile:
        """Return the file with this stamp, and read it if needed."""
        seen = self.seen.get(file)
        if seen is None or seen.stamp != stamp:
            seen = self.seen[file] = self._parse_file(file, stamp)
        return seen

    def read_all(self) -> dict[str, CachedMemoryFile]:
        """Read all files that changed; return all."""
        self.seen = {file: self.read_cached(file, stamp) for file, stamp in self.scan().items()}
        return self.seen

    def read_current(self, file: str) -> Memory | None:
        """Return one memory as it is on disk; None if it cannot be read."""
        try:
            return self.read_cached(file, _make_stamp(os.lstat(self.path / file))).memory
        except OSError:
            return None

    def memories(self) -> Iterator[Memory]:
        """Yield the memories that were readable when last read."""
        # A copy: another thread may look at a file meanwhile.
        return (seen.memory for seen in list(self.seen.values()) if seen.memory is not None)

    def first_page(self) -> str:
        """Return the first page of the index; rebuild it if it does not match the files.

        That each file is listed can be checked without reading them all.
        """
        text = self._read_page(INDEX_FILE) or ""
        names = [quote(file.removesuffix(".md")) for file in self.scan()]
        listed = all(f"]({name}.md)" in text for name in names) if names else not text
        if fits_page(text.split("\n")[:-1]) and (listed or f"]({TOPICS_FOLDER}/" in text):
            return text
        self.read_all()
        return self.build_pages().get(INDEX_FILE, "")

    def read_bytes(self, file: str) -> bytes | None:
        """Return a regular file's bytes, or None if it is missing. Raises OSError otherwise."""
        path = self.path / file
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(LINK_REFUSED if path.is_symlink() else "it is not a regular file")
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
                raise OSError(LINK_REFUSED)
        if data is None:
            path.unlink(missing_ok=True)
        else:
            blobs.replace_file(path, data)
        if self._wrote is not None:
            self._wrote(os.path.realpath(path))

    def build_pages(self) -> dict[str, str]:
        """Build the pages of the index, with the lines that people wrote into it."""
        return build_index(self.memories(), extract_prose(self._read_pages()))

    def reindex(self) -> None:
        """Bring the index on disk up to date. Raises OSError."""
        self.read_all()
        there, wanted = self._read_pages(), self.build_pages()
        for page in sorted({*there, *wanted}):
            if there.get(page) != wanted.get(page):
                self._move_aside(page, there)
                text = wanted.get(page)
                self.write(page, None if text is None else text.encode(errors="replace"))

    def _move_aside(self, page: str, there: dict[str, str]) -> None:
        """Rename whatever is in the place of an index page."""
        path = self.path / page
        if page not in there and os.path.lexists(path):
            path.rename(path.with_name(f"{path.name}.{os.urandom(4).hex()}{MOVED_ASIDE_SUFFIX}"))

    def find_flaws(self) -> Iterator[FolderFlaw]:
        """Yield the problems of the folder as it was last read."""
        for file, seen in list(self.seen.items()):
            yield from seen.flaws
            if seen.memory and any(
                len(line) > MAX_MEMORY_LINE_CHARS for line in seen.memory.body.split("\n")
            ):
                where = str(self.path / file)
                yield FolderFlaw(
                    f"a line has more than {MAX_MEMORY_LINE_CHARS:,} characters",
                    where,
                    "Break the line.",
                )
        for place in ("", PINNED_FOLDER, TOPICS_FOLDER):
            path = self.path / place
            if place and path.is_symlink():
                yield FolderFlaw(
                    f"the folder is ignored: {LINK_REFUSED}",
                    str(path),
                    "Replace the link with a folder.",
                )
            elif path.exists() and not os.access(path, os.W_OK | os.X_OK):
                yield FolderFlaw("the folder is not writable", str(path), "Make it writable.")
            for entry in self._list_entries(place):
                if entry.name.endswith(MOVED_ASIDE_SUFFIX):
                    fix = "Copy what you need from it, then delete it."
                    yield FolderFlaw(
                        "it was moved aside because the index belongs there", entry.path, fix
                    )
        if self._read_pages() != self.build_pages():
            fix = "Run `travois memory doctor --fix` to rebuild it."
            yield FolderFlaw(
                "the index does not match the memories", str(self.path / INDEX_FILE), fix
            )

    def remove_leftovers(self) -> None:
        """Remove temporary files of writers that were killed."""
        for place in ("", PINNED_FOLDER, TOPICS_FOLDER):
            for entry in self._list_entries(place):
                if LEFTOVER_FILE_PATTERN.fullmatch(entry.name):
                    os.unlink(entry.path)

    def _read_pages(self) -> dict[str, str]:
        """Read the pages of the index."""
        topics = (f"{TOPICS_FOLDER}/{entry.name}" for entry in self._list_entries(TOPICS_FOLDER))
        pages = (INDEX_FILE, *filter(TOPIC_PAGE_PATTERN.fullmatch, topics))
        return {page: text for page in pages if (text := self._read_page(page)) is not None}

    def _read_page(self, page: str) -> str | None:
        try:
            data = read_plain_bytes(str(self.path / page), opener=open_no_follow)
            return data.decode("utf-8-sig") if len(data) <= MAX_PAGE_FILE_BYTES else None
        except (OSError, UnicodeDecodeError):
            return None

    def _list_entries(self, place: str = "") -> list[os.DirEntry[str]]:
        """List a folder; empty if it cannot be listed or is a link."""
        folder = self.path / place
        try:
            with os.scandir(folder) as entries:
                return [] if place and folder.is_symlink() else list(entries)
        except OSError:
            return []

    def _list_files(self) -> Iterator[tuple[str, FileStamp]]:
        for place in ("", f"{PINNED_FOLDER}/"):
            for entry in sorted(
                self._list_entries(place.rstrip("/")), key=lambda entry: entry.name
            ):
                if entry.name.endswith(".md") and entry.name[0] != "." and entry.name != INDEX_FILE:
                    yield place + entry.name, _make_stamp(entry.stat(follow_symlinks=False))

    def _parse_file(self, file: str, stamp: FileStamp) -> CachedMemoryFile:
        """Read and parse one file; problems become flaws."""
        path = self.path / file
        try:
            path.name.encode()
            data = read_plain_bytes(str(path), opener=open_no_follow)
        except (OSError, UnicodeEncodeError) as error:
            why = (
                "its name is not valid UTF-8"
                if isinstance(error, ValueError)
                else _describe_read_error(error, path)
            )
            flaw = FolderFlaw(
                f"a memory cannot be read: {why}", str(path), "Fix it, or move it elsewhere."
            )
            return CachedMemoryFile(stamp, flaws=(flaw,))
        text = data.decode("utf-8-sig", errors="replace")
        pinned = file.startswith(f"{PINNED_FOLDER}/")
        page = parse_memory_file(path.stem, text, scope=self.scope, pinned=pinned)
        flaws = tuple(FolderFlaw(why, str(path), "Fix its front matter.") for why in page.flaws)
        return CachedMemoryFile(stamp, hash_blob(data), page.memory, flaws)


def _make_stamp(found: os.stat_result) -> FileStamp:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_folder_mtime(folder: Path) -> int:
    """Return the modification time of a memory folder in nanoseconds; 0 if it is missing."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _describe_read_error(error: OSError, path: Path) -> str:
    return LINK_REFUSED if path.is_symlink() else error.strerror or str(error)


def open_no_follow(path: str, flags: int) -> int:
    """Open a memory file, but not through a link."""
    return os.open(path, flags | os.O_NOFOLLOW)
