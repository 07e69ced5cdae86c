"""What agents may use up: each draws from its own purse and from all those above it.

Turns and seconds count for one run; tokens and dollars for a session, also after a resume; agents
for as long as the program runs. What a request may come to is held while it is under way, so that
agents side by side cannot spend the same money twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.models import Usage

NEAR = 0.8
"""The share of a limit from which on an agent should come to its end."""

What = Literal["turns", "tokens", "dollars", "seconds", "depth", "agents"]


class Limits(msgspec.Struct, frozen=True):
    """Where an agent stops, with all that it started; zero means no limit."""

    turns: int = 0
    dollars: float = 0.0
    tokens: int = 0
    """Of prompts and replies, also those that were read from a cache."""
    seconds: float = 0.0
    depth: int = 0
    """How many levels of agents may be below it."""
    agents: int = 0
    """How many agents may be started below it in all."""


class Amount(msgspec.Struct, frozen=True):
    """Some of what can be spent."""

    turns: float = 0
    tokens: float = 0
    dollars: float = 0.0

    def __add__(self, more: Amount) -> Amount:
        return Amount(
            self.turns + more.turns, self.tokens + more.tokens, self.dollars + more.dollars
        )

    def __sub__(self, less: Amount) -> Amount:
        return self + Amount(-less.turns, -less.tokens, -less.dollars)


class Reached(msgspec.Struct, frozen=True):
    """A limit that ends a run, and in words whose it is."""

    what: What
    text: str


class Purse(msgspec.Struct):
    """What one agent may use and has used, with all that it started."""

    limits: Limits = Limits()
    parent: Purse | None = None
    whose: str = "the session"
    spent: Amount = Amount()
    held: Amount = Amount()
    """What requests that are under way may come to."""
    agents: int = 0
    """How many were started below."""
    began: float | None = None
    """When the run began; none before the first."""
    warned: bool = False
    """Whether the agent was asked in this run to come to its end."""

    def begin(self, now: float) -> None:
        """A run begins: turns and seconds count from here on."""
        self.began, self.warned, self.spent = now, False, replace(self.spent, turns=0)

    def spend(self, usage: Usage, dollars: float = 0.0, *, turns: int = 0) -> None:
        """Draw what a reply has cost."""
        for purse in self._line():
            purse.spent += Amount(turns, usage.context, dollars)

    def hold(self, amount: Amount) -> None:
        """Set aside what a request may come to; less than nothing lets go of it."""
        for purse in self._line():
            purse.held += amount

    def left(self) -> Amount:
        """What may still be asked for, now that so much is held; infinite without a limit."""
        rooms = [purse._room() for purse in self._line()]
        return Amount(
            min(room.turns for room in rooms),
            min(room.tokens for room in rooms),
            min(room.dollars for room in rooms),
        )

    def waits(self) -> bool:
        """Whether requests are under way that may leave more than they hold."""
        return any(purse.held.turns or purse.held.tokens for purse in self._line())

    def time(self, now: float) -> float:
        """How many seconds the run may still take; infinite without a limit."""
        return min(purse._clock() - now for purse in self._line())

    def reached(self, now: float = 0.0) -> Reached | None:
        """The limit that lets no request leave; none if one may."""
        return next((found for purse in self._line() for found in purse._reached(now, 1.0)), None)

    def exhausted(self, now: float = 0.0) -> str:
        """Which limit lets no request leave, in words; empty if one may."""
        found = self.reached(now)
        return found.text if found else ""

    def near(self, now: float = 0.0) -> str:
        """Which limit the agent comes near to, in words; empty if it is far from all."""
        return next((at.text for purse in self._line() for at in purse._reached(now, NEAR)), "")

    def barren(self) -> str:
        """Why no agent may be started below this one; empty if one may."""
        for level, purse in enumerate(self._line(), 1):
            if 0 < purse.limits.depth < level:
                return _told(purse, "depth", purse.limits.depth)
            if 0 < purse.limits.agents <= purse.agents:
                return _told(purse, "agents", purse.limits.agents)
        return ""

    def child(self, limits: Limits, *, whose: str = "the agent") -> Purse:
        """The purse of an agent that this one starts."""
        assert not self.barren(), self.barren()
        for purse in self._line():
            purse.agents += 1
        return Purse(limits, self, whose)

    def _line(self) -> Iterator[Purse]:
        """This purse and all that it draws from."""
        purse: Purse | None = self
        while purse is not None:
            yield purse
            purse = purse.parent

    def _room(self) -> Amount:
        limits, used = self.limits, self.spent + self.held
        return Amount(
            (limits.turns or inf) - used.turns,
            (limits.tokens or inf) - used.tokens,
            (limits.dollars or inf) - used.dollars,
        )

    def _clock(self) -> float:
        return inf if self.began is None else self.began + (self.limits.seconds or inf)

    def _reached(self, now: float, share: float) -> Iterator[Reached]:
        """The limits of which this share is used up; of a few turns, the last is always beyond."""
        limits, spent = self.limits, self.spent
        passed = 0.0 if self.began is None else now - self.began
        rows: tuple[tuple[What, float, float], ...] = (
            ("turns", spent.turns, int(limits.turns * share)),
            ("tokens", spent.tokens, limits.tokens * share),
            ("dollars", spent.dollars, limits.dollars * share),
            ("seconds", passed, limits.seconds * share),
        )
        for what, used, most in rows:
            if 0 < most <= used:
                yield Reached(what, _told(self, what, getattr(limits, what)))


def amount(what: What, number: float) -> str:
    """So much of something, in words."""
    match what:
        case "dollars":
            return f"${number:,.4f}"
        case "depth":
            return f"{number:,.0f} levels of agents"
        case _:
            return f"{number:,.12g} {what}"


def _told(purse: Purse, what: What, most: float) -> str:
    return f"{purse.whose}'s limit of {amount(what, most)}"
