"""Budgets of agents: each draws from its own and from those of all agents above it.

Turns and seconds count for one run, tokens and dollars for a session, also after a resume, unless a
scope says that all count for the one or for the other; agents for as long as the program runs. The
most that a request may cost is reserved while it runs, so that parallel agents cannot spend the
same money twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.facts import Assistant, Ended, Entry, Finished, Opened, Sent
from travois.core.models import Usage

WARNING_SHARE = 0.8
"""The share of a limit from which on an agent should come to its end."""

LimitScope = Literal["", "run", "session"]
"""What the limits hold for; empty for turns and seconds per run, tokens and dollars per session."""
LimitName = Literal["turns", "tokens", "dollars", "seconds", "depth", "agents"]


class Limits(msgspec.Struct, frozen=True):
    """The limits of an agent and all that it starts; zero means no limit."""

    turns: int = 0
    dollars: float = 0.0
    tokens: int = 0
    """Of prompts and replies, also those that were read from a cache."""
    seconds: float = 0.0
    depth: int = 0
    """The levels of agents that may be below it."""
    agents: int = 0
    """The agents that may be started below it in all."""


class Amount(msgspec.Struct, frozen=True):
    """Turns, tokens and dollars."""

    turns: float = 0
    tokens: float = 0
    dollars: float = 0.0

    def __add__(self, more: Amount) -> Amount:
        return Amount(
            self.turns + more.turns, self.tokens + more.tokens, self.dollars + more.dollars
        )

    def __sub__(self, less: Amount) -> Amount:
        return self + Amount(-less.turns, -less.tokens, -less.dollars)


class RunTotals(msgspec.Struct, frozen=True):
    """The model calls and the working time of a session in all its runs."""

    turns: int = 0
    seconds: float = 0.0


def measure_runs(entries: Iterable[Entry]) -> RunTotals:
    """Sum a session's runs from its log for its budget; a killed run counts to its last work.

    What a fork inherits from its base does not count.
    """
    turns, seconds, began, worked = 0, 0.0, inf, 0.0
    for entry in entries:
        match entry.fact:
            case Opened():
                turns, seconds, began = 0, 0.0, inf
                continue
            case Ended(why=why):
                # After a crash, this and the results before it were written by the next run.
                seconds += max(0.0, (worked if why == "crashed" else entry.at) - began)
                began = inf
            case Assistant():
                turns += 1
            case Finished(turns=more):
                turns += more
            case _:
                pass
        if isinstance(entry.fact, Sent | Assistant):
            began, worked = min(began, entry.at), entry.at
    return RunTotals(turns, seconds + (max(0.0, worked - began)))


class ReachedLimit(msgspec.Struct, frozen=True):
    """A limit that ends a run, and a text that names it."""

    what: LimitName
    text: str


class Budget(msgspec.Struct):
    """The limits and the spending of one agent and its subagents."""

    limits: Limits = Limits()
    parent: Budget | None = None
    whose: str = "the session"
    spent: Amount = Amount()
    held: Amount = Amount()
    """The reserved cost of running requests."""
    agents: int = 0
    """The number of agents started below this one."""
    began: float | None = None
    """When the run began; none before the first."""
    warned: bool = False
    """True if the agent was asked in this run to finish."""
    scope: LimitScope = ""
    worked: float = 0.0
    """The seconds of earlier runs that count."""

    def begin_run(self, now: float) -> None:
        """Begin a run: turns and seconds count from here, unless they count for the session."""
        self.began, self.warned = now, False
        if self.scope != "session":
            self.spent = Amount() if self.scope == "run" else replace(self.spent, turns=0)

    def end_run(self, now: float) -> None:
        """End a run: from here on, no time counts for the session."""
        if self.scope == "session" and self.began is not None:
            self.worked, self.began = self.worked + now - self.began, None

    def spend(self, usage: Usage, dollars: float = 0.0, *, turns: int = 0) -> None:
        """Charge a reply to this budget and to those above it."""
        for budget in self._chain():
            budget.spent += Amount(turns, usage.context, dollars)

    def reserve(self, amount: Amount) -> None:
        """Reserve the most that a request may cost; a negative amount releases it."""
        for budget in self._chain():
            budget.held += amount

    def remaining(self) -> Amount:
        """Return the amount that is neither spent nor reserved; infinite without a limit."""
        rooms = [budget._own_remaining() for budget in self._chain()]
        return Amount(
            min(room.turns for room in rooms),
            min(room.tokens for room in rooms),
            min(room.dollars for room in rooms),
        )

    def has_reservations(self) -> bool:
        """Return whether running requests may release some of their reservations."""
        return any(budget.held.turns or budget.held.tokens for budget in self._chain())

    def seconds_left(self, now: float) -> float:
        """Return the seconds that the run may still take; infinite without a limit."""
        return min(budget._own_deadline() - now for budget in self._chain())

    def reached_limit(self, now: float = 0.0) -> ReachedLimit | None:
        """Return the limit that lets no request be sent; none if one may."""
        return next(
            (found for budget in self._chain() for found in budget._limits_at_share(now, 1.0)), None
        )

    def exhausted_text(self, now: float = 0.0) -> str:
        """Return the reached limit in words; empty if there is none."""
        found = self.reached_limit(now)
        return found.text if found else ""

    def near_limit_text(self, now: float = 0.0) -> str:
        """Return a limit that is nearly reached, in words; empty if there is none."""
        return next(
            (
                at.text
                for budget in self._chain()
                for at in budget._limits_at_share(now, WARNING_SHARE)
            ),
            "",
        )

    def spawn_blocker(self) -> str:
        """Return why no subagent may be started; empty if one may."""
        for level, budget in enumerate(self._chain(), 1):
            if 0 < budget.limits.depth < level:
                return _limit_text(budget, "depth", budget.limits.depth)
            if 0 < budget.limits.agents <= budget.agents:
                return _limit_text(budget, "agents", budget.limits.agents)
        return ""

    def create_child(self, limits: Limits, *, whose: str = "the agent") -> Budget:
        """Create the budget of a subagent."""
        assert not self.spawn_blocker(), self.spawn_blocker()
        for budget in self._chain():
            budget.agents += 1
        return Budget(limits, self, whose)

    def _chain(self) -> Iterator[Budget]:
        """Yield this budget and all budgets above it."""
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def _own_remaining(self) -> Amount:
        limits, used = self.limits, self.spent + self.held
        return Amount(
            (limits.turns or inf) - used.turns,
            (limits.tokens or inf) - used.tokens,
            (limits.dollars or inf) - used.dollars,
        )

    def _own_deadline(self) -> float:
        if self.began is None:
            return inf
        return self.began + (self.limits.seconds or inf) - self.worked

    def _limits_at_share(self, now: float, share: float) -> Iterator[ReachedLimit]:
        """Yield the limits of which this share is used; of few turns, the last is always left."""
        limits, spent = self.limits, self.spent
        passed = self.worked + (0.0 if self.began is None else now - self.began)
        rows: tuple[tuple[LimitName, float, float], ...] = (
            ("turns", spent.turns, int(limits.turns * share)),
            ("tokens", spent.tokens, limits.tokens * share),
            ("dollars", spent.dollars, limits.dollars * share),
            ("seconds", passed, limits.seconds * share),
        )
        for what, used, most in rows:
            if 0 < most <= used:
                yield ReachedLimit(what, _limit_text(self, what, getattr(limits, what)))


def format_amount(what: LimitName, number: float) -> str:
    """Format an amount of a budget with its unit."""
    match what:
        case "dollars":
            return f"${number:,.4f}"
        case "depth":
            return f"{number:,.0f} levels of agents"
        case _:
            return f"{number:,.12g} {what}"


def _limit_text(budget: Budget, what: LimitName, most: float) -> str:
    return f"{budget.whose}'s limit of {format_amount(what, most)}"
