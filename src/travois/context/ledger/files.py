"""Files that were touched, and what last happened to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from travois.context.ledger.extractors import Act
from travois.context.ledger.shell import Part, parts

PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete|Move) (?:File|to): (.+?)\s*$", re.MULTILINE)
State = Literal["edited", "written", "deleted", "read"]
PATCH: dict[str, State] = {
    "Update": "edited", "Add": "written", "Delete": "deleted", "Move": "written",
}  # fmt: skip
DONE: dict[str, State] = {"edit": "edited", "write": "written", "read": "read", "delete": "deleted"}


class File(msgspec.Struct, frozen=True):
    """One file: its state, how often it was changed, and when last."""

    path: str
    state: State
    changes: int
    seq: int


def files(acts: Iterable[Act]) -> tuple[File, ...]:
    """All of them, what was touched last first."""
    found: dict[str, File] = {}
    for act in acts:
        if act.error or act.refused is not None:
            continue
        for path, state in _touched(act):
            old = found.pop(path, None)
            changes = (old.changes if old else 0) + (state != "read")
            stays = old.state if old and state == "read" else state
            found[path] = File(path, stays, changes, act.seq)
    return tuple(reversed(found.values()))


def _touched(act: Act) -> Iterator[tuple[str, State]]:
    if act.kind in DONE and act.path:
        yield act.path, DONE[act.kind]
    elif act.kind in ("patch", "shell"):
        patch = act.arg("input", "patch", "command", "cmd")
        if "*** Begin Patch" in patch:
            for verb, path in PATCHED.findall(patch):
                yield path, PATCH[verb]
        elif act.kind == "shell":
            for part in parts(act.command):
                yield from _moved(part)


def _moved(part: Part) -> Iterator[tuple[str, State]]:
    """What a simple command plainly writes, removes or moves."""
    for path in filter(_plain, part.writes):
        yield path, "written"
    verb, *rest = part.text.removeprefix("git ").split(" ")
    names = [word.strip("'\"") for word in rest if not word.startswith("-")]
    for path in filter(_plain, names if verb == "rm" else ()):
        yield path, "deleted"
    if verb == "mv" and len(names) == 2 and all(map(_plain, names)):
        yield names[0], "deleted"
        yield names[1], "written"


def _plain(path: str) -> bool:
    return bool(path) and not re.search(r"[$*?{}`\[\]]", path)
