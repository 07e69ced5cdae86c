"""The port of child agents: what one is asked to do, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from travois.core.models import Usage
from travois.ports.events import AgentProgress

HOOK = "hook"
"""In place of a call: a hook asked for it, and the model is told nothing of it."""
State = Literal["running", "done", "failed", "stopped", "lost", "limit"]


class Order(msgspec.Struct, frozen=True):
    """What a child is asked to do."""

    prompt: str
    what: str
    """In three to five words, for people."""
    kind: str = "general"
    """The name of a type of agents, or `fork`."""
    name: str = ""
    """By which others can send it messages."""
    background: bool = False
    worktree: bool = False
    call: str = ""
    """The parent's call that asked for it."""
    resume: str = ""
    """The name or id of a child that has ended, which goes on with what it knows."""
    sender: str = ""
    """Who wrote the prompt as a message; empty where it is the task itself."""
    model: str = ""
    """Empty for that of its kind."""
    exact: bool = False
    """Whether a model that cannot be used is an error; else the parent's is used in its place."""
    effort: str = ""
    """How much it thinks; empty for as much as its kind does."""
    turns: int = 0
    """How many it may take; nought for as many as its kind may."""


class Report(msgspec.Struct, frozen=True):
    """What a child came to: its last words, or what it had found when it ended otherwise."""

    id: str
    state: State
    text: str
    files: tuple[str, ...] = ()
    """Those that it changed."""
    usage: Usage = Usage()


class Agents(Protocol):
    """The children of one agent."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """The types of agents that can be started, each with what it is for."""
        ...

    async def start(self, order: Order) -> Report:
        """Start a child; gives its report when it has ended, or at once if in the background."""
        ...

    async def resume(self, order: Order) -> Report:
        """Let a child that has ended go on; gives its report as `start` does. Raises `Refusal`."""
        ...

    def find(self, name: str) -> str:
        """Return the id of a child that was ever started, by its name or id; empty if none was."""
        ...

    def reports(self) -> Mapping[str, Report]:
        """What is known of each child, by id."""
        ...

    def progress(self) -> Mapping[str, AgentProgress]:
        """What each child was doing when it was last heard of, by id; of this process only."""
        ...

    async def stop(self, id: str) -> Report:
        """Stop a child that runs; raises KeyError if there never was one."""
        ...

    def tell(self, name: str, text: str, *, sender: str) -> bool:
        """Put mail into a child's inbox, or that of whoever started us (`parent`).

        Returns whether anybody of that name or id was there to get it.
        """
        ...

    async def news(self) -> bool:
        """Wait until something came in for us, or nobody works for us any more.

        Returns whether there is something to admit.
        """
        ...
