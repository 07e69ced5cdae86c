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
from travois.snapshots.database import hash_content
from travois.snapshots.git_objects import HeldObjects
from travois.snapshots.tree import SnapshotNode

ENTRY_STAT = Struct(">IIII4xI4xIII")
"""The fields of an entry that `stat` gives: ctime, mtime, inode, owner, group, size."""
ENTRY_FLAGS = Struct(">8xII8xI32xH")
"""The fields of an entry for its mtime, mode and flags."""
DOUBTFUL_FLAGS = 0xF000
"""Flags of entries that cannot be trusted: assumed unchanged, extended, in conflict."""
FILE_TYPE_MASK, REGULAR_FILE_TYPE = 0o170000, 0o100000
WORD_MASK, NANOSECONDS_PER_SECOND = 0xFFFFFFFF, 10**9
CONVERTING_ATTRIBUTES = (b"filter", b"working-tree-encoding")
"""Attributes that may change bytes but not their number; all others change the size."""
MAX_SUBMODULE_DEPTH = 4
"""The nesting depth of submodules that is followed."""
MAX_INDEX_BYTES = 512 << 20
PACK_PATH = re.compile(rb".*/objects/pack/pack-[0-9a-f]{40,64}\.(pack|idx|rev|bitmap)")
LOOSE_OBJECT_PATH = re.compile(rb".*/objects/[0-9a-f]{2}/[0-9a-f]{38}")


class GitRepository:
    """A repository whose files are scanned, with its index and its object folders."""

    def __init__(self, top: bytes, git: bytes) -> None:
        self.top, self.git = top, git
        shared = _read_small_file(b"%s/commondir" % git).strip()
        self.common = os.path.normpath(os.path.join(git, shared)) if shared else git
        objects = self.common + b"/objects"
        lines = _read_small_file(objects + b"/info/alternates").splitlines()
        self.objects = (objects, *(os.path.join(objects, line) for line in lines if line))


class TrackedFiles:
    """The files of some repositories that git may hold, and those that it does hold."""

    def __init__(self, tops: Iterable[bytes], objects: HeldObjects) -> None:
        self._tops = tuple(tops)
        self._objects = objects
        self._indexes: list[TrustedIndex] = []
        self._sizes: Future[dict[bytes, int]] | None = None
        self._found: list[bytes] = []
        self._attributes: list[bytes] = []
        self._converted: ContentConversions | None = None
        self._held: dict[bytes, int] = {}
        self.loaded = False

    def load(self) -> None:
        """Read the indexes and link all objects: what git drops later stays here."""
        self.loaded = True
        for repository in _iterate_repositories(self._tops):
            index = TrustedIndex(repository)
            if not index.entries or not self._hold_objects(repository):
                continue
            self._indexes.append(index)
            self._found.append(repository.top)
            self._attributes += (*index.attributes, repository.common + b"/info/attributes")
        blobs = [blob for index in self._indexes for blob in index.list_blobs()]
        if blobs:
            pool = ThreadPoolExecutor(1)  # git counts while the tree is walked
            self._sizes = pool.submit(lambda: dict(self._objects.iterate_blob_sizes(blobs)))
            pool.shutdown(wait=False)

    def _hold_objects(self, repository: GitRepository) -> bool:
        """Link the objects of a git repository for snapshots; return False if not possible."""
        try:
            for objects in repository.objects:
                for path in _iterate_object_files(objects):
                    hold_object(self._objects, path, os.lstat(path).st_size)
        except OSError:
            return False
        return True

    def match_index(
        self, folder: bytes, files: list[tuple[bytes, os.stat_result]]
    ) -> Iterator[tuple[bytes, os.stat_result, bytes]]:
        """Yield the files in a folder whose status matches the index, with their blobs."""
        for index in self._indexes:
            yield from index.match_entries(folder, files)

    def add_attributes_file(self, path: bytes) -> None:
        """Add one more attributes file."""
        self._attributes.append(path)

    def select_held(
        self, folder: bytes, nodes: dict[bytes, SnapshotNode]
    ) -> dict[bytes, SnapshotNode]:
        """Return the files in a folder whose blobs are held and have the same bytes."""
        if self._converted is None:
            self._converted = ContentConversions(self._attributes, self._found)
            self._held = self._sizes.result() if self._sizes is not None else {}
        sizes, touched = self._held, self._converted.may_convert
        plain = not self._converted.patterns
        return {
            name: node
            for name, node in nodes.items()
            if sizes.get(node.parts[0][1:]) == node.size
            and (plain or not touched(b"%s/%s" % (folder, name)))
        }


class TrustedIndex:
    """The trusted entries of an index; none if the file is not understood."""

    def __init__(self, repository: GitRepository) -> None:
        self.entries: dict[bytes, int] = {}
        """The offset of the entry of a regular file, by path."""
        self.attributes: list[bytes] = []
        self._data = b""
        try:
            with open(repository.git + b"/index", "rb", opener=_open_regular_file) as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                self._data = file.read(MAX_INDEX_BYTES)
            self._parse(repository.top + b"/", written)
        except (OSError, error, ValueError, IndexError):
            self.entries = {}

    def match_entries(
        self, folder: bytes, files: list[tuple[bytes, os.stat_result]]
    ) -> Iterator[tuple[bytes, os.stat_result, bytes]]:
        """Yield the files in a folder whose status matches their entries, with their blobs."""
        data, entries, unpack = self._data, self.entries, ENTRY_STAT.unpack_from
        for name, found in files:
            at = entries.get(b"%s/%s" % (folder, name))
            if at is None:
                continue
            changed, modified = found.st_ctime_ns, found.st_mtime_ns
            looks = (
                changed // NANOSECONDS_PER_SECOND & WORD_MASK,
                changed % NANOSECONDS_PER_SECOND,
                modified // NANOSECONDS_PER_SECOND & WORD_MASK,
                modified % NANOSECONDS_PER_SECOND,
                found.st_ino & WORD_MASK,
                found.st_uid,
                found.st_gid,
                found.st_size & WORD_MASK,
            )
            if unpack(data, at) == looks:
                yield name, found, blob_hash_at(data, at)

    def list_blobs(self) -> list[bytes]:
        """Return the blobs of all entries."""
        data = self._data
        return [blob_hash_at(data, at) for at in self.entries.values()]

    def _parse(self, top: bytes, written: int) -> None:
        """Find the trusted entries. Raises ValueError or another error for a broken file."""
        data = self._data
        for at, name in iterate_entries(data):
            seconds, nanos, mode, flags = ENTRY_FLAGS.unpack_from(data, at)
            # A file written no earlier than the index may have changed again, unnoticed by git.
            doubt = flags & DOUBTFUL_FLAGS or seconds * NANOSECONDS_PER_SECOND + nanos >= written
            if not doubt and mode & FILE_TYPE_MASK == REGULAR_FILE_TYPE:
                self.entries[top + name] = at
            if name.endswith(b".gitattributes"):
                self.attributes.append(top + name)


class ContentConversions:
    """Patterns of files whose content may differ from git's blob; in doubt, all do."""

    def __init__(self, files: Iterable[bytes], tops: list[bytes]) -> None:
        self.patterns: list[tuple[bytes, re.Pattern[str] | None]] = []
        for file in files:
            folder = file.rpartition(b"/")[0] + b"/"
            inside = not file.endswith(b"/info/attributes")
            if inside and not os.path.lexists(file):  # then git uses the one in the index
                self.patterns.append((folder, None))
            for line in _read_small_file(file).splitlines():
                self._add_attribute_line(
                    line, (folder,) if inside else tuple(top + b"/" for top in tops)
                )
        for file in _iterate_global_attributes(tops):
            for line in _read_small_file(file).splitlines():
                self._add_attribute_line(line, tuple(top + b"/" for top in tops))

    def may_convert(self, path: bytes) -> bool:
        """Return whether a filter or an encoding may apply between a file and its blob."""
        name = os.fsdecode(path.rpartition(b"/")[2]).lower()
        return any(
            path.startswith(base) and (pattern is None or pattern.match(name) is not None)
            for base, pattern in self.patterns
        )

    def _add_attribute_line(self, line: bytes, bases: tuple[bytes, ...]) -> None:
        """Add the pattern of one line of attributes, if it converts contents."""
        words = line.strip().split()
        named = {word.lstrip(b"-!").partition(b"=")[0] for word in words[1:]}
        if not words or words[0].startswith(b"#") or named.isdisjoint(CONVERTING_ATTRIBUTES):
            return
        last = os.fsdecode(words[0].rpartition(b"/")[2]).lower()
        plain = not words[0].startswith((b'"', b"[attr]")) and "\\" not in last
        pattern = re.compile(translate(last)) if plain and last.strip("*") else None
        self.patterns += ((base, pattern) for base in bases)


def hold_object(objects: HeldObjects, path: bytes, size: int) -> bytes:
    """Keep a pack or loose git object for snapshots; return its name. Raises OSError."""
    if LOOSE_OBJECT_PATH.fullmatch(path):
        return objects.link_loose(path)
    name = path.rpartition(b"/")[2]
    part = hash_pack_name(name, size)
    if not objects.link_pack(path, part):
        raise OSError(f"{os.fsdecode(path)} cannot be linked or copied")
    return part


def hash_pack_name(name: bytes, size: int) -> bytes:
    """Return the name under which snapshots keep a git pack."""
    return hash_content(b"%s %d" % (name, size))


def find_git_repository(top: bytes) -> GitRepository | None:
    """Return the git repository whose files are in a snapshot's folder; None if none."""
    git = top + b"/.git"
    if os.path.isfile(git + b"/HEAD"):
        return GitRepository(top, git)
    where = _read_small_file(git).removeprefix(b"gitdir:").strip()
    git = os.path.normpath(os.path.join(top, where))
    return GitRepository(top, git) if where and os.path.isfile(git + b"/HEAD") else None


def _iterate_repositories(tops: tuple[bytes, ...]) -> Iterator[GitRepository]:
    """Yield the git repositories in a snapshot's folders, with their submodules."""
    waiting, seen = [(top, 0) for top in tops], set[bytes]()
    while waiting:
        top, depth = waiting.pop()
        found = find_git_repository(top) if top not in seen else None
        seen.add(top)
        if found is None:
            continue
        yield found
        if depth < MAX_SUBMODULE_DEPTH and os.path.isfile(top + b"/.gitmodules"):
            lines = _read_small_file(top + b"/.gitmodules").splitlines()
            paths = (line.partition(b"=")[2].strip() for line in lines if b"path" in line)
            waiting += ((os.path.normpath(os.path.join(top, path)), depth + 1) for path in paths)


def _iterate_object_files(objects: bytes) -> Iterator[bytes]:
    """Yield the packs and loose objects in a git objects folder. Raises OSError."""
    for folder in os.listdir(objects):
        inner = b"%s/%s" % (objects, folder)
        if folder == b"pack" or len(folder) == 2:
            paths = (b"%s/%s" % (inner, name) for name in os.listdir(inner))
            yield from (
                p for p in paths if PACK_PATH.fullmatch(p) or LOOSE_OBJECT_PATH.fullmatch(p)
            )


def _iterate_global_attributes(tops: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the git attributes files that apply to all repositories."""
    yield b"/etc/gitattributes"
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    yield os.fsencode(f"{own}/git/attributes")
    for top in tops:
        repository = find_git_repository(top)
        if repository is not None:
            yield from _read_attributes_setting(repository)


def _read_attributes_setting(repository: GitRepository) -> Iterator[bytes]:
    """Yield the attributes file that git's settings name."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    ask = ("git", "-C", repository.top, "config", "--type=path", "--get-all", "core.attributesFile")
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(ask, capture_output=True, check=False, timeout=5, env=plain)
        yield from done.stdout.splitlines()


def _read_small_file(path: bytes) -> bytes:
    """Read up to 1 MiB of a git file; empty if it is unreadable."""
    try:
        with open(path, "rb", opener=_open_regular_file) as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def _open_regular_file(path: str, flags: int) -> int:
    """Open a regular git file, never one that could block. Raises OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(path)
    return fd
