"""A session that some agent has recorded, in words that are the same for all agents."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from travois.core.content import Call

Who = Literal["user", "model", "tool", "note"]
"""A person, the model, what a tool answered, or what a harness put in between."""
WHOLE = 1 << 40
"""So many characters of each text that nothing is cut."""


class Found(msgspec.Struct, frozen=True):
    """Where a session lies; `stamp` changes when it does."""

    agent: str
    path: Path
    stamp: str
    at: float = 0.0
    """When it last changed."""


class Picture(msgspec.Struct, frozen=True):
    """An image or a document that was shown, as base64."""

    mime: str
    data: str


class Spoken(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was said, with the tools that it called or the call that it answers."""

    who: Who
    text: str
    at: float = 0.0
    calls: tuple[Call, ...] = ()
    answers: str = ""
    error: bool = False
    pictures: tuple[Picture, ...] = ()


class Compaction(msgspec.Struct, frozen=True):
    """Where an agent put a summary in the place of what was said before, but for the last words."""

    at: int
    """How many turns stand before it."""
    summary: str
    kept: int = 0
    """How many of these the model went on seeing."""
    tokens: int = 0
    """The window in use by then, as far as that was recorded."""


class Recorded(msgspec.Struct, frozen=True):
    """A session as its last branch has it; what was taken back is not in it."""

    agent: str
    id: str
    path: Path
    cwd: str
    at: float
    """When the last word was said."""
    title: str
    turns: tuple[Spoken, ...]
    compactions: tuple[Compaction, ...] = ()
    model: str = ""
    """Who answered last."""
