"""Skills, plugins and output style of a session."""

from __future__ import annotations

import os

from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE, CODEX, OPENCODE
from travois.compose.open_session import SYSTEM_PROMPT_FILE, Workspace
from travois.compose.options import Options
from travois.core.toolsets import DEFAULT_TOOLSET as DEFAULT_TOOLS
from travois.engine.tool_definitions import list_shown_names
from travois.permissions.decide import Permissions
from travois.permissions.resolve_paths import hidden_path_filter
from travois.ports.tool import AnyTool
from travois.prompt.instruction_files import InstructionLibrary, InstructionPlaces
from travois.prompt.output_styles import (
    DEFAULT_STYLE,
    apply_style,
    load_styles,
    render_user_preferences,
)
from travois.sessions.session import Session
from travois.settings import trust
from travois.settings.schema import LoadedSettings
from travois.settings.sources import parse_setting_sources
from travois.skills.skill_files import DiskSkills, SkillPlaces


def skill_folders(workspace: Workspace, loaded: LoadedSettings, options: Options) -> SkillPlaces:
    """Return the folders of skills, with the settings for them."""
    asked = loaded.settings
    return SkillPlaces(
        workspace.home,
        workspace.project.root,
        workspace.cwd,
        trusted=loaded.trust == "trusted",
        agreed=trust.list_agreed_digests(workspace.home, loaded.root),
        levels=parse_setting_sources(options.shelves),
        plugins=loaded.plugins,
        environ=os.environ,
        only=options.skills if options.commands else (),
        overrides=asked.skill_overrides,
        share=asked.skill_listing_budget_fraction,
        width=asked.skill_listing_max_desc_chars,
        runner="off" if asked.disable_skill_shell_execution else "",
    )


def environment_for_tools(loaded: LoadedSettings) -> dict[str, str]:
    """Return the environment of tools' programs, with plugins' programs on PATH."""
    env = loaded.settings.env
    bins = [path for one in loaded.plugins if os.path.isdir(path := f"{one.folder}/bin")]
    usual = env.get("PATH") or os.environ.get("PATH", os.defpath)
    return env | {"PATH": os.pathsep.join((usual, *bins))} if bins else env


def compose_skills(workspace: Workspace, loaded: LoadedSettings, options: Options) -> DiskSkills:
    """Compose the skills of a session."""
    return DiskSkills(skill_folders(workspace, loaded, options))


def drop_skill_tool_if_unused(
    tools: dict[str, AnyTool],
    session: Session,
    workspace: Workspace,
    *,
    loaded: LoadedSettings,
    options: Options,
) -> dict[str, AnyTool]:
    """Drop the Skill tool if there are no skills and the request head does not name it."""
    if epoch := session.view.epoch:
        names = list_shown_names(("Skill",), toolset=epoch.toolset or DEFAULT_TOOLS)
        needed = any(spec.name in names for spec in epoch.tools)
    else:
        needed = bool(compose_skills(workspace, loaded, options).load_always().skills)
    return {name: tool for name, tool in tools.items() if needed or name != "Skill"}


def apply_prompt_settings(
    workspace: Workspace, loaded: LoadedSettings, options: Options
) -> tuple[Options, tuple[str, ...]]:
    """Apply language, attribution and output style to the system prompt; return notices."""
    asked = loaded.settings
    told = render_user_preferences(
        language=asked.language, commit=asked.attribution.commit, pr=asked.attribution.pr
    )
    more = "\n\n".join(filter(None, (told, options.append_system)))
    return _apply_output_style(
        workspace, loaded, replace(options, append_system=more, toolset=asked.toolset)
    )


def _apply_output_style(
    workspace: Workspace, loaded: LoadedSettings, options: Options
) -> tuple[Options, tuple[str, ...]]:
    """Apply the chosen output style to the system prompt; return notices."""
    wanted = loaded.settings.output_style
    plain, plugged = (
        wanted.casefold() in ("", DEFAULT_STYLE),
        any(one.styles for one in loaded.plugins),
    )
    if plain and not plugged:
        return options, ()
    known, notices = load_styles(skill_folders(workspace, loaded, options))
    style = next((one for one in known.values() if one.forced), known.get(wanted.casefold()))
    if style is None and plain:
        return options, notices
    if style is None:
        there = ", ".join(one.name for one in known.values()) or "none"
        missing = f"{loaded.origin('outputStyle')}: unknown output style {wanted!r}"
        return options, (*notices, f"{missing}; available: {there}")
    text = options.system or SYSTEM_PROMPT_FILE.read_text("utf-8").strip()
    return replace(options, system=apply_style(text, style)), notices


def compose_instructions(
    workspace: Workspace, loaded: LoadedSettings, permissions: Permissions, *, sources: str
) -> InstructionLibrary:
    """Compose the instruction files of the user and the project, with those of plugins."""
    claude, codex, opencode = (
        str(a.find_home(os.environ) or "") for a in (CLAUDE, CODEX, OPENCODE)
    )
    places = InstructionPlaces(
        workspace.cwd,
        workspace.project.root,
        folders=permissions.folders,
        own=str(workspace.home.config),
        claude=claude,
        codex=codex,
        opencode=opencode,
        more=loaded.settings.instructions,
        excluded=loaded.settings.claude_md_excludes,
        said=(loaded.origin("claudeMd"), loaded.settings.claude_md),
        levels=parse_setting_sources(sources),
        trusted=loaded.trust == "trusted",
    )
    return InstructionLibrary(
        places, hidden=hidden_path_filter(permissions, "Read", root=workspace.cwd)
    )
