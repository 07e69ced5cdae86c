"""What a command line will do, as far as its text tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.permissions.access import Access

Real = Callable[[Access], tuple[Access, ...]]
"""Follows the links of a path and finds what a pattern stands for."""


class Word(msgspec.Struct, frozen=True):
    """One word of a command: its text, a pattern, or the known beginning of an open one."""

    text: str
    kind: Literal["plain", "glob", "open"] = "plain"
    single: bool = True
    """Whether it stays one word, whatever its value is."""

    @property
    def value(self) -> str | None:
        """The text, if that is all there is to know."""
        return self.text if self.kind == "plain" else None


class Step(msgspec.Struct, frozen=True):
    """One program and its words, what it touches, and what it takes to let it run."""

    argv: tuple[Word, ...]
    needs: Literal["nothing", "rule", "exact"] = "exact"
    """Nothing, if all that it does is known and listed; a rule for the like of it; or for it."""
    why: str = ""
    """Why it cannot run without being asked for."""
    accesses: tuple[Access, ...] = ()
    texts: tuple[str, ...] = ()
    """The ways to write it that a rule may use."""
    known: bool = False
    """Whether the program runs nothing that its words only mention."""
    edits: bool = False
    """Whether changing the files that it names is all that the program is for."""
    named: tuple[str, ...] = ()
    """Options and variables that a rule with a star covers only if it names them itself."""

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return self.argv[0].text.rpartition("/")[2] if self.argv else ""


class Plan(msgspec.Struct, frozen=True):
    """Everything that a command line runs; `unclear` says why there may be more."""

    text: str
    steps: tuple[Step, ...] = ()
    unclear: str = ""
    assigned: tuple[str, ...] = ()
    """Names of shell variables that are set for the rest of the line."""
    search_text: str = ""
    """All words of its steps, for a first look before rules are compared step by step."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What all steps touch."""
        return tuple(access for step in self.steps for access in step.accesses)

    @property
    def proven(self) -> bool:
        """Whether all that it does is known and listed."""
        return not self.unclear and all(step.needs == "nothing" for step in self.steps)

    @property
    def looks(self) -> bool:
        """Whether it is known to change nothing."""
        return self.proven and all(access.kind == "read" for access in self.accesses)

    def resolved(self, real: Real) -> Plan:
        """The same plan with every path followed to what it leads to."""
        return replace(self, steps=tuple(_resolved(step, real) for step in self.steps))


def git_subcommand(step: Step) -> str:
    """Return what git is told to do."""
    words = iter(word.text for word in step.argv[1:])
    for word in words:
        if word in ("-C", "-c"):
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


def _resolved(step: Step, real: Real) -> Step:
    return replace(step, accesses=tuple(_each(step.accesses, real)))


def _each(accesses: tuple[Access, ...], real: Real) -> Iterator[Access]:
    for access in accesses:
        yield from real(access) if access.kind in ("read", "write") else (access,)
