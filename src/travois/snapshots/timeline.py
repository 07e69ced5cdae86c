"""Which snapshots belong to which turn, told from the log alone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.core.content import words
from travois.core.facts import Changed, Ended, Entry, User
from travois.core.view import living
from travois.snapshots.before_call import ENDED

WHAT = "snapshot"
"""What the facts are called that say: here a snapshot was taken."""
REWOUND = "after a rewind"
REWINDING = "before a rewind"
"""Why a snapshot was taken, where that matters later."""
NONE = "-"
"""In place of a name, where only the conversation goes back."""


class Turn(msgspec.Struct, frozen=True):
    """Something that a person said; the conversation before it ends with entry `before`."""

    number: int
    before: int
    at: float
    text: str


class Mark(msgspec.Struct, frozen=True):
    """A snapshot and its place in the log."""

    seq: int
    ended: int
    """How many turns had ended before it."""
    name: str
    why: str

    @property
    def last(self) -> bool:
        """Whether the harness changed nothing from here to the next one."""
        return self.why in (ENDED, REWOUND)


def marked(name: str, why: str) -> Changed:
    """The fact that a snapshot was taken here."""
    return Changed(WHAT, f"{name} {why}")


def turns(entries: Iterable[Entry]) -> list[Turn]:
    """What people have said, as far as it still stands."""
    found: list[Turn] = []
    ended = 0
    for entry in living(list(entries)):
        match entry.fact:
            case User(origin="human", content=content):
                before = ended or entry.seq - 1
                found.append(Turn(len(found) + 1, before, entry.at, words(content)))
                ended = 0
            case Ended():
                ended = entry.seq
            case _:
                pass
    return found


def marks(entries: Iterable[Entry]) -> list[Mark]:
    """The snapshots that were taken on the way to what stands."""
    found: list[Mark] = []
    ended = 0
    for entry in living(list(entries)):
        match entry.fact:
            case Ended():
                ended += 1
            case Changed(what="snapshot", value=value):
                name, _, why = value.partition(" ")
                found += [Mark(entry.seq, ended, name, why)] if name != NONE else []
            case _:
                pass
    return found


def is_pause(one: Mark, other: Mark) -> bool:
    """Whether others may have changed files between two marks: no turn ran, or one crashed."""
    return one.last or one.ended != other.ended
