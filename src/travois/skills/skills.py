"""The interfaces of skills, and the session state that they use."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from travois.core.facts import Changed
from travois.skills.skill_text import LoadedSkills

SKILL_STATE_PREFIX = "skill:"
"""State of a session: what each skill said when it was used last, by name."""
SKILL_FOLDER_STATE_PREFIX = "skills:"
"""State of a session: folders whose skills count since something in them was touched."""
ACTIVE_SKILL_STATE_PREFIX = "awake:"
"""State of a session: skills that are about files which were worked with, by name."""
REQUESTED_SKILL_STATE = "skill asked for"
"""State of a session: the skill that the person wants the model to use."""


class Skills(Protocol):
    """The skills on disk, in their current state."""

    def load_always(self, near: Collection[str] = ()) -> LoadedSkills:
        """Load the skills that apply here, and those of the folders in `near`."""
        ...

    def load_for_paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the folders below this one that have skills and contain these files."""
        ...


class SkillResult(msgspec.Struct, frozen=True):
    """The outcome of a skill: text for the model and state changes."""

    text: str
    error: bool = False
    changes: tuple[Changed, ...] = ()


class SkillRunner(Protocol):
    """The interface through which a tool uses skills."""

    async def use(self, name: str, args: str, *, call: str) -> SkillResult:
        """Use a skill; raise `ToolError` if it is unknown or only for the user."""
        ...
