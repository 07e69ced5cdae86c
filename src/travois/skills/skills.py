"""The port of skills: which there are, and how one is used."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from travois.core.facts import Changed
from travois.skills.skill_text import Known

USED = "skill:"
"""State of a session: what each skill said when it was used last, by name."""
NEAR = "skills:"
"""State of a session: folders whose skills count since something in them was touched."""
AWAKE = "awake:"
"""State of a session: skills that are about files which were worked with, by name."""
ASKED = "skill asked for"
"""State of a session: the skill that the person wants the model to use."""


class Skills(Protocol):
    """Skills, as they are on disk at the moment."""

    def standing(self, near: Collection[str] = ()) -> Known:
        """Those that count here, and those of these folders below."""
        ...

    def touched(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The folders below this one that have skills and hold some of these files."""
        ...


class Used(msgspec.Struct, frozen=True):
    """What came of using a skill: what the model is told, and what is on record of it."""

    text: str
    error: bool = False
    changes: tuple[Changed, ...] = ()


class Practice(Protocol):
    """The way in which a tool uses skills."""

    async def use(self, name: str, args: str, *, call: str) -> Used:
        """Use a skill; raises `Refusal` if there is none, or the model may not."""
        ...
