"""Comparing a protected path with its saved state, by a rule, and undoing what breaks the rule."""

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
    Aside,
    Node,
    Saved,
    Tree,
    differences,
    hold,
    put,
    read,
    restore,
)

Check = Literal["exact", "config", "hooks"]
MAX_CHANGE_CHARS = 120


class Change(msgspec.Struct, frozen=True):
    """A changed name, in words, and whether it was restored."""

    words: str
    restored: bool = True


class Checked(msgspec.Struct, frozen=True):
    """The changes that a check found, and the state that the path is to keep from here on."""

    changes: tuple[Change, ...]
    saved: Saved


def check(saved: Saved, rule: Check, aside: Aside) -> Checked:
    """Undo the changes that a rule forbids, and take over the others."""
    moved = tuple(Change(_named(path, saved)) for path in hold(saved, aside))
    now = read(saved.path, saved)
    names = list(differences(saved.nodes, now))
    if rule == "config" and names == [b""] and _is_file(now.get(b"")):
        change, data = settle_config(saved, now[b""], aside)
        kept = msgspec.structs.replace(now[b""], data=data)
        taken = msgspec.structs.replace(saved, tree=((b"", kept),))
        return Checked((*moved, *change), taken)
    if rule == "hooks":
        names, saved = _hooks(saved, now, names)
    failed = {name for name in names if not _restored(saved, name, aside)}
    if names:
        failed |= set(names) & set(differences(saved.nodes, read(saved.path)))
    changes = [
        Change(_named(_path(saved, name), saved), restored=name not in failed) for name in names
    ]
    return Checked((*moved, *changes), saved)


def settle_config(
    saved: Saved,
    now: Node,
    aside: Aside,
    *,
    name: bytes = b"",
    allowed: AllowSetting = allow_no_setting,
) -> tuple[tuple[Change, ...], bytes]:
    """Undo git settings that git would not set itself; return the contents to keep."""
    was, path = saved.nodes.get(name), _path(saved, name)
    was = was if _is_file(was) else None
    assert now.data is not None
    settled = undo_harmful_changes((was.data if was else b"") or b"", now.data, allowed=allowed)
    if not settled.undone:
        return (), now.data
    done = False
    with suppress(OSError), open_parent(path) as place:
        aside.copy(place, root=saved.root)
        put(place, msgspec.structs.replace(was or now, data=settled.data))
        done = True
    words = f"{_named(path, saved)} ({', '.join(map(plain, settled.undone))})"
    return (Change(words, restored=done),), settled.data


def _hooks(saved: Saved, now: Tree, names: list[bytes]) -> tuple[list[bytes], Saved]:
    """Return the hooks to undo, and the saved state with all others taken over."""
    folder = now.get(b"")
    if folder is None or folder.kind != "folder":
        return names, saved
    fresh = [b"", *(name for name in now if name)] if b"" in names else names
    kept = [name for name in fresh if _harmless(name, now)]
    tree = {**saved.nodes, **{name: now[name] for name in kept}}
    undone = [name for name in fresh if name not in kept]
    return undone, msgspec.structs.replace(saved, tree=tuple(tree.items()))


def _is_file(node: Node | None) -> bool:
    return node is not None and node.kind == "file" and node.data is not None


def _harmless(name: bytes, now: Tree) -> bool:
    """Return whether a hook, or the folder of hooks, is one that git and its extensions create."""
    node = now.get(name)
    if node is None or not name:
        return node is not None
    hook = node.kind == "file" and node.data is not None and b"/" not in name
    return hook and is_harmless_hook(os.fsdecode(name), node.data or b"")


def _restored(saved: Saved, name: bytes, aside: Aside) -> bool:
    try:
        restore(saved, name, aside)
    except OSError:
        return False
    return True


def _path(saved: Saved, name: bytes) -> str:
    return os.path.join(saved.path, os.fsdecode(name)) if name else saved.path


def _named(path: str, saved: Saved) -> str:
    return plain(os.path.relpath(path, saved.root))


def plain(text: str) -> str:
    """Replace unprintable characters of a name, so that it cannot change how a message reads."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return shown if len(shown) <= MAX_CHANGE_CHARS else f"{shown[:MAX_CHANGE_CHARS]}..."


def list_few(names: list[str], most: int = 8) -> str:
    """Join the first names, and say how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
