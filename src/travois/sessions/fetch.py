"""Fetching a session from a store to this machine, and settling differences."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from travois.core.errors import UserError
from travois.ports.session_store import SessionStore
from travois.sessions import blobs
from travois.sessions.blobs import BlobStore
from travois.sessions.mirror import BASE_PREFIX, BLOB_NAME
from travois.sessions.scan import LOG_FILE_NAME

COMPARED_BYTES = 1 << 16
"""How many bytes before the shorter one's end two logs must share to count as the same."""
SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def fetch_session(store: SessionStore, id: str, folder: Path, keep: BlobStore) -> bool:
    """Fetch a session from the store to a new folder; return False if it has no such one.

    The log is written last: without it, there is no session.
    """
    sizes = store.list_stored_logs(id) if SAFE_ID.fullmatch(id) else {}
    if not sizes.get(LOG_FILE_NAME):
        return False
    fetch_files(store, id, folder, keep)
    data = store.read_stored_log(id, LOG_FILE_NAME)
    _fetch_blobs(store, data, keep)
    blobs.replace_file(folder / LOG_FILE_NAME, data)
    return True


def fetch_files(store: SessionStore, id: str, folder: Path, keep: BlobStore) -> None:
    """Fetch the files beside a session's log, including those of its subagents."""
    for name in store.list_stored_files(id):
        _write_fetched_file(folder, name, store.read_stored_file(id, name))
    for name in store.list_stored_logs(id):
        if name != LOG_FILE_NAME:
            data = store.read_stored_log(id, name)
            _fetch_blobs(store, data, keep)
            _write_fetched_file(folder, name, data)


def settle_difference(store: SessionStore, id: str, folder: Path, keep: BlobStore) -> str:
    """Make the local log the longer one of both, or the store's if they differ.

    Returns what to tell the user; empty if nothing was taken from the store. The caller holds the
    session's lock. What is taken out of the local log is saved beside it.
    """
    path = folder / LOG_FILE_NAME
    here, there = path.stat().st_size, store.list_stored_logs(id).get(LOG_FILE_NAME, 0)
    if there <= here and _is_same_before(store, id, path, end=there):
        return ""
    ours, theirs = path.read_bytes(), store.read_stored_log(id, LOG_FILE_NAME)
    same = _common_size(ours, theirs)
    _fetch_blobs(store, theirs[same:], keep)
    fetch_files(store, id, folder, keep)
    told = "the session went on elsewhere; its latest messages come from the session store"
    if rest := ours[same:]:
        saved = _save_superseded(folder, rest)
        told += f". What only this machine had was saved to {saved}"
    with path.open("r+b") as log:
        log.truncate(same)
        log.seek(same)
        log.write(theirs[same:])
        log.flush()
        os.fsync(log.fileno())
    return told


def _common_size(ours: bytes, theirs: bytes) -> int:
    """Return how many bytes of whole lines the local log and the store's have in common."""
    size = 0
    pairs = zip(ours.splitlines(keepends=True), theirs.splitlines(keepends=True), strict=False)
    for mine, other in pairs:
        if mine != other:
            break
        size += len(mine)
    return size


def _is_same_before(store: SessionStore, id: str, path: Path, *, end: int) -> bool:
    """Return whether the local log and the store's agree on the bytes before this place."""
    if not end:
        return True
    start = max(0, end - COMPARED_BYTES)
    with path.open("rb") as log:
        log.seek(start)
        ours = log.read(end - start)
    return store.read_stored_log(id, LOG_FILE_NAME, offset=start) == ours


def _save_superseded(folder: Path, data: bytes) -> Path:
    path = folder / f"log.superseded-{len(list(folder.glob('log.superseded-*'))) + 1}"
    blobs.replace_file(path, data)
    return path


def _fetch_blobs(store: SessionStore, data: bytes, keep: BlobStore) -> None:
    """Fetch the blobs from the store that a session's lines refer to and that are missing here."""
    for name in {name.decode() for name in BLOB_NAME.findall(data)}:
        try:
            keep.get(name)
        except KeyError:
            try:
                keep.put(store.get_blob(name))
            except KeyError:
                continue  # where it was written, it was missing, too


def _write_fetched_file(folder: Path, name: str, data: bytes) -> None:
    """Write one fetched file of a session; a store may name only its own files."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise UserError(f"The session store names a file that is none of the session's: {name!r}")
    goal = folder / path
    if name.startswith(BASE_PREFIX):
        goal = folder.parent / path.stem / LOG_FILE_NAME
        if goal.exists() or not SAFE_ID.fullmatch(path.stem):
            return
    blobs.make_folders(goal.parent)
    blobs.replace_file(goal, data, sync="whenever")
