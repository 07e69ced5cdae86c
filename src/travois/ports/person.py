"""The person, as the engine sees them."""

from __future__ import annotations

from typing import Protocol

import msgspec

OFFER = "run commands in the sandbox without asking in this project"
OFFER_MEANS = "no network, home hidden; a rewind restores the workspace"


class Question(msgspec.Struct, frozen=True):
    """May this call run? `args` is exactly what would run."""

    call: str
    tool: str
    args: str
    summary: str
    because: str
    effects: tuple[str, ...] = ()
    """In plain words, what it does and what holds it back."""
    always: tuple[str, ...] = ()
    """The narrowest rules that would answer for the person from here on; none if there are none."""
    offers_sandbox: bool = False
    """Whether they may let commands run in the sandbox without asking in this project."""
    digest: str = ""
    """Of the tool, its arguments and the place: an answer holds for exactly that."""


class Answer(msgspec.Struct, frozen=True):
    """A person's word on a question; `reason` goes to the model."""

    allow: bool
    reason: str = ""
    always: bool = False
    """Whether the rules that the question offered are to be kept."""
    sandbox: bool = False
    """Whether they let commands run in the sandbox without asking, as the question offered."""
    digest: str = ""
    """That of the question which was shown."""
    input: str = ""
    """The whole input that the call should have instead, as JSON text."""
    updates: tuple[msgspec.Raw, ...] = ()
    """Changes of permissions, as other agents write them."""
    stop: str = ""
    """Why the whole turn should end with this."""


class Option(msgspec.Struct, frozen=True):
    """One answer that is offered."""

    label: str
    description: str = ""


class Choice(msgspec.Struct, frozen=True):
    """What the model wants to know; the person may always answer in words of their own."""

    question: str
    options: tuple[Option, ...]
    header: str = ""
    """What it is about, in a word or two."""
    several: bool = False
    """Whether more than one of the options may be chosen."""


class Inquiry(msgspec.Struct, frozen=True):
    """Choices that are put to the person together; `plan` is what they are about, if it is one."""

    call: str
    choices: tuple[Choice, ...]
    plan: str = ""


class Person(Protocol):
    """Whoever answers questions; headless, nobody does and the answer is no."""

    async def decide(self, question: Question) -> Answer:
        """Ask whether a call may run, and wait."""
        ...

    async def choose(self, inquiry: Inquiry) -> tuple[str, ...] | None:
        """One answer for each choice: labels, joined by commas, or words; None if nobody says."""
        ...
