"""Checkpoints of a session's derived state, so that a resume need not replay the whole log.

A checkpoint is a cache: the log is the truth, and without the file only time is lost. It is used
only if it is whole, of this version, and about exactly the bytes with which the log (and those that
it was forked from) begins; else the log is read from its start.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from zlib import crc32

import msgspec

from travois.sessions import blobs
from travois.sessions.scan import (
    LOG_FILE_NAME,
    READ_BLOCK_BYTES,
    DamagedPlace,
    ReadMark,
    find_lineage,
)
from travois.version import __version__

CHECKPOINT_FILE = "checkpoint"
CHECKPOINT_FORMAT = 4
"""The format number, to be raised when a session derives something else from its log."""
MAX_CHECKPOINT_BYTES = 256 << 20


class LogCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """The state derived from the beginnings of these files, encoded."""

    marks: dict[str, ReadMark]
    """The position up to which each file was read, by session id; the session's own is the last."""
    skipped: tuple[DamagedPlace, ...]
    state: bytes
    format: int = CHECKPOINT_FORMAT
    program: str = __version__


def save_checkpoint(folder: Path, checkpoint: LogCheckpoint) -> None:
    """Save a session's checkpoint; if that fails, the next resume takes longer."""
    data = msgspec.msgpack.encode(checkpoint)
    with suppress(OSError):
        blobs.replace_file(
            folder / CHECKPOINT_FILE, data + crc32(data).to_bytes(4, "big"), sync="whenever"
        )


def load_checkpoint(folder: Path) -> LogCheckpoint | None:
    """Return the checkpoint of a session; None unless it matches the log as it is."""
    try:
        path = folder / CHECKPOINT_FILE
        data = path.read_bytes() if path.stat().st_size <= MAX_CHECKPOINT_BYTES else b""
        found = _decode_checkpoint(data)
        return found if found is not None and _is_current(folder, found) else None
    except (OSError, ValueError, RecursionError):
        return None


def delete_checkpoint(folder: Path) -> None:
    """Delete a session's checkpoint that turned out to be useless."""
    with suppress(OSError):
        (folder / CHECKPOINT_FILE).unlink()


def _decode_checkpoint(data: bytes) -> LogCheckpoint | None:
    """Decode a session checkpoint; None if it is damaged or from another version."""
    body, end = memoryview(data)[:-4], data[-4:]
    if len(end) < 4 or crc32(body).to_bytes(4, "big") != end:
        return None
    found = msgspec.msgpack.decode(body, type=LogCheckpoint)
    same = (found.format, found.program) == (CHECKPOINT_FORMAT, __version__)
    return found if same and found.marks else None


def _is_current(folder: Path, checkpoint: LogCheckpoint) -> bool:
    """Return whether a session log begins with the bytes that the checkpoint covers."""
    files = [path for path, _ in find_lineage(folder)]
    if [path.name for path in files] != list(checkpoint.marks):
        return False
    pairs = zip(files, checkpoint.marks.values(), strict=True)
    return all(
        _checksum_prefix(path / LOG_FILE_NAME, mark.size) == mark.crc for path, mark in pairs
    )


def _checksum_prefix(path: Path, size: int) -> int:
    """Return the checksum of a session log's first bytes; -1 if it has fewer."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while size > 0:
            data = file.read(min(size, READ_BLOCK_BYTES))
            if not data:
                return -1
            crc, size = crc32(data, crc), size - len(data)
    return crc
