"""Repositories inside a workspace: what a command may change in one, and undoing the rest.

The user's next git, in any folder of the workspace, obeys what it finds. So nothing that starts
a program, or that leads git to settings elsewhere, may come from a command.
"""

from __future__ import annotations

import os
from functools import partial

import msgspec

from travois.permissions.git_config import is_harmless_hook, settle
from travois.permissions.paths import inside
from travois.sandbox.guard.aside import Aside
from travois.sandbox.guard.check import Change, Checked, plain, settle_config
from travois.sandbox.guard.saved import Node, Saved, Tree, read_names, restore

NAMES = ("config", "config.worktree", "commondir", "hooks")
"""What git reads in a repository to know which programs to start, and where more of that is."""
CONFIGS = (b"config", b"config.worktree")
POINTER = b"gitdir:"


class Surroundings(msgspec.Struct, frozen=True):
    """What a check of one repository has to know of the rest."""

    roots: tuple[str, ...] = ()
    """The folders that belong to the workspace."""
    known: frozenset[str] = frozenset()
    """All repositories there: what one of them points to is checked as well."""
    lifted: tuple[str, ...] = ()
    """Paths that the command was allowed to write by name."""


def check_repository(saved: Saved, aside: Aside, *, around: Surroundings) -> Checked:
    """Undo what would start programs in a repository, and take over all other changes."""
    if not os.path.lexists(saved.path):
        return Checked((), msgspec.structs.replace(saved, tree=()))
    now = read_names(saved.path, NAMES, saved)
    tree, changes = dict(saved.nodes), list[Change]()
    for name in sorted(saved.nodes.keys() | now.keys()):
        was, is_ = saved.nodes.get(name), now.get(name)
        if was is not None and is_ is not None and was.is_like(is_):
            continue
        path = os.path.join(saved.path, os.fsdecode(name)) if name else saved.path
        if _is_lifted(path, name, around) or _is_acceptable(
            name, now, path=saved.path, around=around
        ):
            _take(tree, name, is_)
        elif name in CONFIGS and is_ is not None and is_.kind == "file" and is_.data is not None:
            allowed = partial(_stays_within, saved.path, around.roots)
            found, data = settle_config(saved, is_, aside, name=name, allowed=allowed)
            changes += found
            tree[name] = msgspec.structs.replace(is_, data=data)
        else:
            changes.append(_undone(saved, name, aside, path=path))
    return Checked(tuple(changes), msgspec.structs.replace(saved, tree=tuple(tree.items())))


def find_dangerous(path: str, *, around: Surroundings) -> tuple[str, ...]:
    """Return what would start programs in a repository that is new; nothing is changed."""
    now = read_names(path, NAMES)
    allowed = partial(_stays_within, path, around.roots)
    found = list[str]()
    for name, node in sorted(now.items()):
        if name in CONFIGS and node.data is not None:
            undone = settle(b"", node.data, allowed=allowed).undone
            found += [f"{os.fsdecode(name)} ({', '.join(map(plain, undone))})"] if undone else []
        elif not _is_acceptable(name, now, path=path, around=around):
            found.append(plain(os.fsdecode(name)) or "where it leads")
    return tuple(found)


def _take(tree: dict[bytes, Node], name: bytes, node: Node | None) -> None:
    if node is None:
        tree.pop(name, None)
    else:
        tree[name] = node


def _undone(saved: Saved, name: bytes, aside: Aside, *, path: str) -> Change:
    done = True
    try:
        restore(saved, name, aside)
    except OSError:
        done = False
    return Change(plain(os.path.relpath(path, saved.root)), restored=done)


def _is_lifted(path: str, name: bytes, around: Surroundings) -> bool:
    # `git config` was allowed; it may have been told to work in another repository.
    if name in CONFIGS and any(one.endswith("/.git/config") for one in around.lifted):
        return True
    return any(inside(path, one) or inside(one, path) for one in around.lifted)


def _is_acceptable(name: bytes, now: Tree, *, path: str, around: Surroundings) -> bool:
    """Whether what has a name in a repository now leads git to no program of a command's choice."""
    node = now.get(name)
    if not name:
        return node is None or _leads_to(node, path) in around.known
    if name in CONFIGS:
        return node is None
    if name == b"commondir":
        return node is None or (node.kind == "file" and _is_own(path, node.data or b""))
    if node is None:
        return False  # a hook of the user's was removed
    if node.kind == "folder":
        return True
    if node.kind != "file" or node.data is None or name.count(b"/") != 1:
        return False
    return is_harmless_hook(os.fsdecode(name.rpartition(b"/")[2]), node.data)


def _leads_to(node: Node, path: str) -> str:
    """The repository that a `.git` which is no folder stands for; empty if it names none."""
    if node.kind == "link":
        return os.path.realpath(path)
    data = (node.data or b"").strip() if node.kind == "file" else b""
    if not data.startswith(POINTER) or b"\0" in data:
        return ""
    target = os.fsdecode(data.removeprefix(POINTER).strip())
    return os.path.realpath(os.path.join(os.path.dirname(path), target))


def _is_own(path: str, data: bytes) -> bool:
    """Whether a linked worktree shares the files of the repository that it lies in."""
    folder, above = os.path.split(os.path.dirname(path))[::-1]
    target = os.path.join(path, os.fsdecode(data.strip()))
    return folder == "worktrees" and b"\0" not in data and os.path.realpath(target) == above


def _stays_within(
    path: str, roots: tuple[str, ...], key: str, values: tuple[str | None, ...]
) -> bool:
    """Whether a setting names a working tree inside the workspace, as that of a submodule does."""
    if key != "core.worktree":
        return False
    trees = (os.path.realpath(os.path.join(path, value or "/")) for value in values)
    return all(any(inside(tree, root) for root in roots) for tree in trees)
