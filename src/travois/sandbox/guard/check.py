"""Checking a guarded path against its saved state, and undoing changes that its rule forbids."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

import msgspec

from travois.files.openat import open_parent
from travois.permissions.git_config import (
    AllowSetting,
    allow_no_setting,
    is_harmless_hook,
    undo_harmful_changes,
)
from travois.sandbox.guard.saved import (
    SavedNode,
    SavedPath,
    SavedTree,
    SetAsideFolder,
    find_differences,
    read_saved_tree,
    restore_name,
    restore_parents,
    write_node,
)

CheckRule = Literal["exact", "config", "hooks"]
MAX_CHANGE_CHARS = 120


class ProtectedFileChange(msgspec.Struct, frozen=True):
    """A changed protected file, described in words, and whether it was restored."""

    words: str
    restored: bool = True


class CheckResult(msgspec.Struct, frozen=True):
    """The changes that a check found, and the state that the path must keep afterwards."""

    changes: tuple[ProtectedFileChange, ...]
    saved: SavedPath


def check_protected_path(saved: SavedPath, rule: CheckRule, folder: SetAsideFolder) -> CheckResult:
    """Undo the changes to a guarded path that its rule forbids, and accept the others."""
    moved = tuple(
        ProtectedFileChange(_path_for_message(path, saved))
        for path in restore_parents(saved, folder)
    )
    now = read_saved_tree(saved.path, saved)
    names = list(find_differences(saved.nodes, now))
    if rule == "config" and names == [b""] and _is_saved_file(now.get(b"")):
        change, data = undo_unsafe_config(saved, now[b""], folder)
        kept = msgspec.structs.replace(now[b""], data=data)
        taken = msgspec.structs.replace(saved, tree=((b"", kept),))
        return CheckResult((*moved, *change), taken)
    if rule == "hooks":
        names, saved = _select_hooks_to_undo(saved, now, names)
    failed = {name for name in names if not _try_restore(saved, name, folder)}
    if names:
        failed |= set(names) & set(find_differences(saved.nodes, read_saved_tree(saved.path)))
    changes = [
        ProtectedFileChange(
            _path_for_message(_join_saved_path(saved, name), saved), restored=name not in failed
        )
        for name in names
    ]
    return CheckResult((*moved, *changes), saved)


def undo_unsafe_config(
    saved: SavedPath,
    now: SavedNode,
    folder: SetAsideFolder,
    *,
    name: bytes = b"",
    allowed: AllowSetting = allow_no_setting,
) -> tuple[tuple[ProtectedFileChange, ...], bytes]:
    """Undo changes to a git config that git would not make; return the contents to keep."""
    was, path = saved.nodes.get(name), _join_saved_path(saved, name)
    was = was if _is_saved_file(was) else None
    assert now.data is not None
    settled = undo_harmful_changes((was.data if was else b"") or b"", now.data, allowed=allowed)
    if not settled.undone:
        return (), now.data
    done = False
    with suppress(OSError), open_parent(path) as place:
        folder.copy(place, root=saved.root)
        write_node(place, msgspec.structs.replace(was or now, data=settled.data))
        done = True
    words = f"{_path_for_message(path, saved)} ({', '.join(map(make_printable, settled.undone))})"
    return (ProtectedFileChange(words, restored=done),), settled.data


def _select_hooks_to_undo(
    saved: SavedPath, now: SavedTree, names: list[bytes]
) -> tuple[list[bytes], SavedPath]:
    """Return the git hooks to undo, and the saved state with all others accepted."""
    folder = now.get(b"")
    if folder is None or folder.kind != "folder":
        return names, saved
    fresh = [b"", *(name for name in now if name)] if b"" in names else names
    kept = [name for name in fresh if _is_harmless_hook_entry(name, now)]
    tree = {**saved.nodes, **{name: now[name] for name in kept}}
    undone = [name for name in fresh if name not in kept]
    return undone, msgspec.structs.replace(saved, tree=tuple(tree.items()))


def _is_saved_file(node: SavedNode | None) -> bool:
    return node is not None and node.kind == "file" and node.data is not None


def _is_harmless_hook_entry(name: bytes, now: SavedTree) -> bool:
    """Return whether a git hook, or the hooks folder, is one that git or its extensions create."""
    node = now.get(name)
    if node is None or not name:
        return node is not None
    hook = node.kind == "file" and node.data is not None and b"/" not in name
    return hook and is_harmless_hook(os.fsdecode(name), node.data or b"")


def _try_restore(saved: SavedPath, name: bytes, folder: SetAsideFolder) -> bool:
    """Restore a changed entry of a guarded path; return whether that succeeded."""
    try:
        restore_name(saved, name, folder)
    except OSError:
        return False
    return True


def _join_saved_path(saved: SavedPath, name: bytes) -> str:
    return os.path.join(saved.path, os.fsdecode(name)) if name else saved.path


def _path_for_message(path: str, saved: SavedPath) -> str:
    return make_printable(os.path.relpath(path, saved.root))


def make_printable(text: str) -> str:
    """Replace unprintable characters of a guarded path's name before a notice shows it."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return shown if len(shown) <= MAX_CHANGE_CHARS else f"{shown[:MAX_CHANGE_CHARS]}..."


def join_first_names(names: list[str], most: int = 8) -> str:
    """Join the first changed names for a notice, and say how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
