"""Reading a git repository's index without running git.

Git itself would obey the repository's settings, some of which name programs to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1
from struct import Struct, unpack_from

INDEX_HEADER = Struct(">4sII")
ENTRY_FLAGS = Struct(">60xH")
FIXED_ENTRY_BYTES = 62
"""The number of bytes of an entry before its name."""
EXTENDED_FLAG = 0x4000


def iterate_entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the position and path of each entry in a git index.

    Raises ValueError, IndexError or struct.error for an unsupported format; after the last entry,
    also if others are in a shared index.
    """
    magic, version, count = INDEX_HEADER.unpack_from(data)
    signed = data[-20:] in (bytes(20), sha1(data[:-20], usedforsecurity=False).digest())
    if magic != b"DIRC" or version not in (2, 3, 4) or not signed:
        raise ValueError("unsupported git index format")
    at, name = INDEX_HEADER.size, b""
    for _ in range(count):
        (flags,) = ENTRY_FLAGS.unpack_from(data, at)
        start = at + (FIXED_ENTRY_BYTES + 2 if flags & EXTENDED_FLAG else FIXED_ENTRY_BYTES)
        dropped, start = _read_number(data, start) if version == 4 else (len(name), start)
        end = data.index(0, start)
        name = name[: len(name) - dropped] + data[start:end]
        yield at, name
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
    if b"link" in _find_extensions(data, at):
        raise ValueError("split git index is not supported")


def blob_hash_at(data: bytes, at: int) -> bytes:
    """Return the blob hash of a git index entry."""
    return data[at + 40 : at + 60]


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a git index's variable-length number; return it with its end."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 127)
    return value, at + 1


def _find_extensions(data: bytes, at: int) -> set[bytes]:
    """Return the signatures of the extensions after a git index's entries."""
    found: set[bytes] = set()
    while at + 8 <= len(data) - 20:
        mark, size = unpack_from(">4sI", data, at)
        found.add(mark)
        at += 8 + size
    return found
