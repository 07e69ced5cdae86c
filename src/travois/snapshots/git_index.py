"""Files that git already holds byte for byte, found by its index without running git.

An entry counts only if the file has the times, inode and size in the index, if it was written
before the index was, and if no filter or encoding applies between the file and its blob. Everything
else is read.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from fnmatch import translate
from struct import Struct, error

from travois.files.git_index import blob_hash_at, iterate_entries
from travois.snapshots.database import named
from travois.snapshots.git_objects import Objects
from travois.snapshots.tree import Node

LOOKS = Struct(">IIII4xI4xIII")
"""The fields of an entry that `stat` gives: ctime, mtime, inode, owner, group, size."""
ENTRY = Struct(">8xII8xI32xH")
"""The fields of an entry for its mtime, mode and flags."""
DOUBTFUL = 0xF000
"""Flags of entries that cannot be trusted: assumed unchanged, extended, in conflict."""
TYPE, PLAIN = 0o170000, 0o100000
WORD, SECOND = 0xFFFFFFFF, 10**9
CONVERTING = (b"filter", b"working-tree-encoding")
"""Attributes that may change bytes but not their number; all others change the size."""
DEPTH = 4
"""The nesting depth of submodules that is followed."""
LARGEST = 512 << 20
PACK = re.compile(rb".*/objects/pack/pack-[0-9a-f]{40,64}\.(pack|idx|rev|bitmap)")
LOOSE = re.compile(rb".*/objects/[0-9a-f]{2}/[0-9a-f]{38}")


class Repository:
    """A repository whose files are scanned, with its index and its object folders."""

    def __init__(self, top: bytes, git: bytes) -> None:
        self.top, self.git = top, git
        shared = _text(b"%s/commondir" % git).strip()
        self.common = os.path.normpath(os.path.join(git, shared)) if shared else git
        objects = self.common + b"/objects"
        lines = _text(objects + b"/info/alternates").splitlines()
        self.objects = (objects, *(os.path.join(objects, line) for line in lines if line))


class Tracked:
    """The files of some repositories that git may hold, and those that it does hold."""

    def __init__(self, tops: Iterable[bytes], objects: Objects) -> None:
        self._tops = tuple(tops)
        self._objects = objects
        self._indexes: list[Index] = []
        self._sizes: Future[dict[bytes, int]] | None = None
        self._found: list[bytes] = []
        self._attributes: list[bytes] = []
        self._converted: Conversions | None = None
        self._held: dict[bytes, int] = {}
        self.loaded = False

    def load(self) -> None:
        """Read the indexes and link all objects: what git drops later stays here."""
        self.loaded = True
        for repository in _repositories(self._tops):
            index = Index(repository)
            if not index.entries or not self._hold(repository):
                continue
            self._indexes.append(index)
            self._found.append(repository.top)
            self._attributes += (*index.attributes, repository.common + b"/info/attributes")
        blobs = [blob for index in self._indexes for blob in index.blobs()]
        if blobs:
            pool = ThreadPoolExecutor(1)  # git counts while the tree is walked
            self._sizes = pool.submit(lambda: dict(self._objects.sizes(blobs)))
            pool.shutdown(wait=False)

    def _hold(self, repository: Repository) -> bool:
        """Link the objects of a repository; return False if that is not possible."""
        try:
            for objects in repository.objects:
                for path in _files(objects):
                    hold(self._objects, path, os.lstat(path).st_size)
        except OSError:
            return False
        return True

    def match(
        self, folder: bytes, files: list[tuple[bytes, os.stat_result]]
    ) -> Iterator[tuple[bytes, os.stat_result, bytes]]:
        """Yield the files in a folder whose status matches the index, with their blobs."""
        for index in self._indexes:
            yield from index.match(folder, files)

    def see_attributes(self, path: bytes) -> None:
        """Add one more attributes file."""
        self._attributes.append(path)

    def held(self, folder: bytes, nodes: dict[bytes, Node]) -> dict[bytes, Node]:
        """Return the files in a folder whose blobs are held and have the same bytes."""
        if self._converted is None:
            self._converted = Conversions(self._attributes, self._found)
            self._held = self._sizes.result() if self._sizes is not None else {}
        sizes, touched = self._held, self._converted.may_touch
        plain = not self._converted.patterns
        return {
            name: node
            for name, node in nodes.items()
            if sizes.get(node.parts[0][1:]) == node.size
            and (plain or not touched(b"%s/%s" % (folder, name)))
        }


class Index:
    """The trusted entries of an index; none if the file is not understood."""

    def __init__(self, repository: Repository) -> None:
        self.entries: dict[bytes, int] = {}
        """The offset of the entry of a regular file, by path."""
        self.attributes: list[bytes] = []
        self._data = b""
        try:
            with open(repository.git + b"/index", "rb", opener=_open_plain) as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                self._data = file.read(LARGEST)
            self._parse(repository.top + b"/", written)
        except (OSError, error, ValueError, IndexError):
            self.entries = {}

    def match(
        self, folder: bytes, files: list[tuple[bytes, os.stat_result]]
    ) -> Iterator[tuple[bytes, os.stat_result, bytes]]:
        """Yield the files in a folder whose status matches their entries, with their blobs."""
        data, entries, unpack = self._data, self.entries, LOOKS.unpack_from
        for name, found in files:
            at = entries.get(b"%s/%s" % (folder, name))
            if at is None:
                continue
            changed, modified = found.st_ctime_ns, found.st_mtime_ns
            looks = (
                changed // SECOND & WORD,
                changed % SECOND,
                modified // SECOND & WORD,
                modified % SECOND,
                found.st_ino & WORD,
                found.st_uid,
                found.st_gid,
                found.st_size & WORD,
            )
            if unpack(data, at) == looks:
                yield name, found, blob_hash_at(data, at)

    def blobs(self) -> list[bytes]:
        """Return the blobs of all entries."""
        data = self._data
        return [blob_hash_at(data, at) for at in self.entries.values()]

    def _parse(self, top: bytes, written: int) -> None:
        """Find the trusted entries. Raises ValueError or another error for a broken file."""
        data = self._data
        for at, name in iterate_entries(data):
            seconds, nanos, mode, flags = ENTRY.unpack_from(data, at)
            # A file written no earlier than the index may have changed again, unnoticed by git.
            doubt = flags & DOUBTFUL or seconds * SECOND + nanos >= written
            if not doubt and mode & TYPE == PLAIN:
                self.entries[top + name] = at
            if name.endswith(b".gitattributes"):
                self.attributes.append(top + name)


class Conversions:
    """Patterns of files whose content may differ from git's blob; in doubt, all do."""

    def __init__(self, files: Iterable[bytes], tops: list[bytes]) -> None:
        self.patterns: list[tuple[bytes, re.Pattern[str] | None]] = []
        for file in files:
            folder = file.rpartition(b"/")[0] + b"/"
            inside = not file.endswith(b"/info/attributes")
            if inside and not os.path.lexists(file):  # then git uses the one in the index
                self.patterns.append((folder, None))
            for line in _text(file).splitlines():
                self._add(line, (folder,) if inside else tuple(top + b"/" for top in tops))
        for file in _general_files(tops):
            for line in _text(file).splitlines():
                self._add(line, tuple(top + b"/" for top in tops))

    def may_touch(self, path: bytes) -> bool:
        """Return whether a filter or an encoding may apply between a file and its blob."""
        name = os.fsdecode(path.rpartition(b"/")[2]).lower()
        return any(
            path.startswith(base) and (pattern is None or pattern.match(name) is not None)
            for base, pattern in self.patterns
        )

    def _add(self, line: bytes, bases: tuple[bytes, ...]) -> None:
        """Add the pattern of one line of attributes, if it converts contents."""
        words = line.strip().split()
        named = {word.lstrip(b"-!").partition(b"=")[0] for word in words[1:]}
        if not words or words[0].startswith(b"#") or named.isdisjoint(CONVERTING):
            return
        last = os.fsdecode(words[0].rpartition(b"/")[2]).lower()
        plain = not words[0].startswith((b'"', b"[attr]")) and "\\" not in last
        pattern = re.compile(translate(last)) if plain and last.strip("*") else None
        self.patterns += ((base, pattern) for base in bases)


def hold(objects: Objects, path: bytes, size: int) -> bytes:
    """Hold a pack or a loose object; return its name. Raises OSError."""
    if LOOSE.fullmatch(path):
        return objects.link_loose(path)
    name = path.rpartition(b"/")[2]
    part = named_pack(name, size)
    if not objects.link_pack(path, part):
        raise OSError(f"{os.fsdecode(path)} cannot be linked or copied")
    return part


def named_pack(name: bytes, size: int) -> bytes:
    """Return the name under which a pack is held."""
    return named(b"%s %d" % (name, size))


def repository_at(top: bytes) -> Repository | None:
    """Return the repository whose files are in a folder."""
    git = top + b"/.git"
    if os.path.isfile(git + b"/HEAD"):
        return Repository(top, git)
    where = _text(git).removeprefix(b"gitdir:").strip()
    git = os.path.normpath(os.path.join(top, where))
    return Repository(top, git) if where and os.path.isfile(git + b"/HEAD") else None


def _repositories(tops: tuple[bytes, ...]) -> Iterator[Repository]:
    """Yield the repositories in these folders, and those of their submodules."""
    waiting, seen = [(top, 0) for top in tops], set[bytes]()
    while waiting:
        top, depth = waiting.pop()
        found = repository_at(top) if top not in seen else None
        seen.add(top)
        if found is None:
            continue
        yield found
        if depth < DEPTH and os.path.isfile(top + b"/.gitmodules"):
            lines = _text(top + b"/.gitmodules").splitlines()
            paths = (line.partition(b"=")[2].strip() for line in lines if b"path" in line)
            waiting += ((os.path.normpath(os.path.join(top, path)), depth + 1) for path in paths)


def _files(objects: bytes) -> Iterator[bytes]:
    """Yield the packs and loose objects in a folder of objects. Raises OSError."""
    for folder in os.listdir(objects):
        inner = b"%s/%s" % (objects, folder)
        if folder == b"pack" or len(folder) == 2:
            paths = (b"%s/%s" % (inner, name) for name in os.listdir(inner))
            yield from (p for p in paths if PACK.fullmatch(p) or LOOSE.fullmatch(p))


def _general_files(tops: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the attributes files that apply to all repositories."""
    yield b"/etc/gitattributes"
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    yield os.fsencode(f"{own}/git/attributes")
    for top in tops:
        repository = repository_at(top)
        if repository is not None:
            yield from _named_in_settings(repository)


def _named_in_settings(repository: Repository) -> Iterator[bytes]:
    """Yield the attributes file that git's settings name."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    ask = ("git", "-C", repository.top, "config", "--type=path", "--get-all", "core.attributesFile")
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(ask, capture_output=True, check=False, timeout=5, env=plain)
        yield from done.stdout.splitlines()


def _text(path: bytes) -> bytes:
    try:
        with open(path, "rb", opener=_open_plain) as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def _open_plain(path: str, flags: int) -> int:
    """Open a regular file, never one that could block. Raises OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(path)
    return fd
