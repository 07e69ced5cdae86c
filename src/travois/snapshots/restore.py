"""Restoring paths to their state in a snapshot, never through a link and never half a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import msgspec

from travois.snapshots.database import SnapshotDatabase
from travois.snapshots.scan import DRAFT_PREFIX
from travois.snapshots.tree import PathChange, SnapshotNode

OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RestoreOutcome(msgspec.Struct, frozen=True):
    """The number of restored and deleted paths, and the failures."""

    restored: int = 0
    deleted: int = 0
    failed: tuple[str, ...] = ()


def restore_changes(database: SnapshotDatabase, changes: list[PathChange]) -> RestoreOutcome:
    """Restore a snapshot's paths: delete from the inside out, then write from the outside in."""
    going = [change for change in reversed(changes) if _must_remove_first(change)]
    coming = [change for change in changes if change.new is not None]
    failed: list[str] = []
    for change in going:
        _try_change(_remove_old, change, failed)
    for change in coming:
        _try_change(lambda change: _write_new(database, change), change, failed)
    for change in reversed(coming):  # modes last: a read-only folder must be filled first
        _try_change(_restore_metadata, change, failed)
    gone = sum(change.new is None for change in going)
    return RestoreOutcome(len(coming), gone, tuple(dict.fromkeys(failed)))


def _try_change(act: Callable[[PathChange], None], change: PathChange, failed: list[str]) -> None:
    """Apply one change of a restore; add the reason to the failures if it does not work."""
    try:
        act(change)
    except OSError as error:
        failed.append(f"{os.fsdecode(change.path)}: {error.strerror}")
    except KeyError:
        failed.append(f"{os.fsdecode(change.path)}: its content is missing from the snapshots")


def _must_remove_first(change: PathChange) -> bool:
    """Return whether restoring must remove the existing path first, not replace it."""
    old, new = change.old, change.new
    return old is not None and (new is None or old.is_folder != new.is_folder)


def _remove_old(change: PathChange) -> None:
    """Remove a file or empty folder that the restored snapshot does not contain in this form."""
    assert change.old is not None
    with _open_parent_folder(change.path) as (fd, name), suppress(FileNotFoundError):
        if change.old.is_folder:
            os.rmdir(name, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)


def _write_new(database: SnapshotDatabase, change: PathChange) -> None:
    """Restore a path; a file or link appears under its name only when it is complete."""
    old, new = change.old, change.new
    assert new is not None
    with _open_parent_folder(change.path) as (fd, name):
        if new.is_folder:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
            return
        if old is not None and _is_same_content(old, new):
            return
        draft = DRAFT_PREFIX + os.urandom(6).hex().encode()
        try:
            if new.is_link:
                os.symlink(new.parts[0], draft, dir_fd=fd)
            else:
                _write_file_draft(database, new, draft, folder=fd)
            os.rename(draft, name, src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=fd)


def _is_same_content(node: SnapshotNode, other: SnapshotNode) -> bool:
    return (stat.S_IFMT(node.mode), node.parts) == (stat.S_IFMT(other.mode), other.parts)


def _write_file_draft(
    database: SnapshotDatabase, node: SnapshotNode, draft: bytes, *, folder: int
) -> None:
    """Write a restored file's content to a draft, or link it to git's object."""
    held = database.objects.locate_pack(node.parts[0]) if len(node.parts) == 1 else None
    if held is not None and held.exists():
        with suppress(OSError):
            os.link(held, draft, dst_dir_fd=folder)
            return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as file:
        if held is not None and held.exists():
            file.write(held.read_bytes())
        else:
            for part in node.parts:
                file.write(database.get(part))
        os.fchmod(file.fileno(), stat.S_IMODE(node.mode))


def _restore_metadata(change: PathChange) -> None:
    """Restore a path's owner and mode, which creating it need not have set."""
    new = change.new
    assert new is not None
    with _open_parent_folder(change.path) as (fd, name):
        found = os.lstat(name, dir_fd=fd)
        if (found.st_uid, found.st_gid) != new.owner:
            with suppress(PermissionError):
                os.chown(name, *new.owner, dir_fd=fd, follow_symlinks=False)
        alike = stat.S_IFMT(found.st_mode) == stat.S_IFMT(new.mode)
        if alike and not new.is_link and found.st_mode != new.mode:
            os.chmod(name, stat.S_IMODE(new.mode), dir_fd=fd)


@contextmanager
def _open_parent_folder(path: bytes) -> Generator[tuple[int, bytes]]:
    """Open a restored path's folder without following links, writable for a while."""
    *folders, name = path.split(b"/")[1:]
    fd = os.open(b"/", OPEN_FOLDER_FLAGS)
    try:
        for folder in folders:
            inner = os.open(folder, OPEN_FOLDER_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = inner
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        locked = not mode & stat.S_IWUSR and os.fstat(fd).st_uid == os.geteuid()
        if locked:
            os.fchmod(fd, mode | stat.S_IRWXU)
        try:
            yield fd, name
        finally:
            if locked:
                os.fchmod(fd, mode)
    finally:
        os.close(fd)
