"""What is known of the shell between two commands."""

from __future__ import annotations

import msgspec

from travois.permissions.shell.parse import OPEN, Unclear
from travois.permissions.shell.plan import Word

FOLDERS = 6
"""In how many folders a line may possibly stand before it is not followed any more."""


class State(msgspec.Struct, frozen=True):
    """Where the shell may stand and what its variables are."""

    cwds: tuple[str, ...]
    variables: dict[str, Word]


class Ends(msgspec.Struct, frozen=True):
    """How things are after a command that succeeded, and after one that failed."""

    ok: State
    fail: State

    @property
    def either(self) -> State:
        """Without knowing which of the two it was."""
        return merged(self.ok, self.fail)


def merged(one: State, other: State) -> State:
    """What holds whichever of two ways was taken."""
    if one is other:
        return one
    names = one.variables.keys() | other.variables.keys()
    same = {name: _same(one.variables.get(name), other.variables.get(name)) for name in names}
    cwds = tuple(dict.fromkeys((*one.cwds, *other.cwds)))
    if len(cwds) > FOLDERS:
        raise Unclear("it changes the folder too often")
    return State(cwds, same)


def _same(one: Word | None, other: Word | None) -> Word:
    return one if one is not None and one == other else OPEN
