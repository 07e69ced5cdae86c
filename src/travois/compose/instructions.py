"""Instruction files of the user and the project."""

from __future__ import annotations

import os

from travois.compat.foreign_agent import CLAUDE, CODEX, OPENCODE
from travois.compose.open_session import Workspace
from travois.permissions.decide import Permissions
from travois.permissions.resolve_paths import hidden_path_filter
from travois.prompt.instruction_files import InstructionLibrary, InstructionPlaces
from travois.settings.schema import LoadedSettings
from travois.settings.sources import parse_setting_sources


def compose_instructions(
    place: Workspace, loaded: LoadedSettings, guard: Permissions, *, sources: str
) -> InstructionLibrary:
    """Compose the instruction files of the user and the project."""
    claude, codex, opencode = (
        str(a.find_home(os.environ) or "") for a in (CLAUDE, CODEX, OPENCODE)
    )
    places = InstructionPlaces(
        place.cwd,
        place.project.root,
        folders=guard.folders,
        own=str(place.home.path),
        claude=claude,
        codex=codex,
        opencode=opencode,
        more=loaded.settings.instructions,
        excluded=loaded.settings.claude_md_excludes,
        said=(loaded.origin("claudeMd"), loaded.settings.claude_md),
        levels=parse_setting_sources(sources),
        trusted=loaded.trust == "trusted",
    )
    return InstructionLibrary(places, hidden=hidden_path_filter(guard, "Read", root=place.cwd))
