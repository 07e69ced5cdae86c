"""Which source files changed on disk, for servers that rely on being told."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__", "target", "venv", "dist", "build"))
PROJECT_FILES = frozenset(
    (
        *("pyproject.toml", "pyrightconfig.json", "tsconfig.json", "jsconfig.json", "package.json"),
        *("go.mod", "go.work", "Cargo.toml", "compile_commands.json", "compile_flags.txt"),
    )
)
"""Files that say how others are to be understood."""
MAX_WATCHED_FILES = 20_000
CREATED, CHANGED, DELETED = 1, 2, 3
FileStamps = Mapping[str, tuple[int, int]]


def scan_files(root: str, suffixes: frozenset[str]) -> FileStamps:
    """Return the time and size of each file that a language server looks at."""
    found = dict[str, tuple[int, int]]()
    folders = [root]
    while folders and len(found) < MAX_WATCHED_FILES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            watched = list(_watched_entries(entries, suffixes))
            folders += (one.path for one in watched if one.is_dir(follow_symlinks=False))
            found |= {one.path: _stamp(one) for one in watched if one.is_file()}
    return found


def _stamp(entry: os.DirEntry[str]) -> tuple[int, int]:
    stat = entry.stat()
    return stat.st_mtime_ns, stat.st_size


def _watched_entries(
    entries: Iterator[os.DirEntry[str]], suffixes: frozenset[str]
) -> Iterator[os.DirEntry[str]]:
    """Yield the folders to look into, and the files that a language server looks at."""
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
            continue
        wanted = os.path.splitext(entry.name)[1] in suffixes or entry.name in PROJECT_FILES
        if wanted or entry.is_dir(follow_symlinks=False):
            yield entry


def compare_stamps(before: FileStamps, after: FileStamps) -> Iterator[tuple[str, int]]:
    """Yield each file that changed, with the protocol's number of how."""
    for path, stamp in after.items():
        if path not in before:
            yield path, CREATED
        elif before[path] != stamp:
            yield path, CHANGED
    yield from ((path, DELETED) for path in before if path not in after)
