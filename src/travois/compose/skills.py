"""The skills, the output style and the plugins of a session."""

from __future__ import annotations

import os

from msgspec.structs import replace

from travois.compose.open_session import PROMPT, Place
from travois.compose.options import Options
from travois.core.toolsets import DEFAULT as DEFAULT_TOOLS
from travois.engine.tool_definitions import shown_names
from travois.ports.tool import AnyTool
from travois.prompt.style_files import styles
from travois.prompt.style_text import DEFAULT, styled, wishes
from travois.sessions.session import Session
from travois.settings import trust
from travois.settings.schema import Loaded
from travois.settings.sources import levels
from travois.skills.skill_files import DiskSkills, Places


def places(place: Place, loaded: Loaded, options: Options) -> Places:
    """Where they may lie."""
    asked = loaded.settings
    return Places(
        place.home,
        place.project.root,
        place.cwd,
        trusted=loaded.trust == "trusted",
        agreed=trust.agreed(place.home, loaded.root),
        levels=levels(options.shelves),
        plugins=loaded.plugins,
        environ=os.environ,
        only=options.skills if options.commands else (),
        overrides=asked.skill_overrides,
        share=asked.skill_listing_budget_fraction,
        width=asked.skill_listing_max_desc_chars,
        runner="off" if asked.disable_skill_shell_execution else "",
    )


def variables(loaded: Loaded) -> dict[str, str]:
    """Those for the programs that tools start; they find the programs of plugins, too."""
    env = loaded.settings.env
    bins = [path for one in loaded.plugins if os.path.isdir(path := f"{one.folder}/bin")]
    usual = env.get("PATH") or os.environ.get("PATH", os.defpath)
    return env | {"PATH": os.pathsep.join((usual, *bins))} if bins else env


def skills(place: Place, loaded: Loaded, options: Options) -> DiskSkills:
    """The skills of a session."""
    return DiskSkills(places(place, loaded, options))


def fitting(
    tools: dict[str, AnyTool], session: Session, place: Place, *, loaded: Loaded, options: Options
) -> dict[str, AnyTool]:
    """The tools without that for skills, where there are none and the model was not told of it."""
    if epoch := session.view.epoch:
        names = shown_names(("Skill",), toolset=epoch.toolset or DEFAULT_TOOLS)
        needed = any(spec.name in names for spec in epoch.tools)
    else:
        needed = bool(skills(place, loaded, options).standing().skills)
    return {name: tool for name, tool in tools.items() if needed or name != "Skill"}


def dressed(place: Place, loaded: Loaded, options: Options) -> tuple[Options, tuple[str, ...]]:
    """The same options with the system text as the settings want it; and notices."""
    asked = loaded.settings
    told = wishes(language=asked.language, commit=asked.attribution.commit, pr=asked.attribution.pr)
    more = "\n\n".join(filter(None, (told, options.append_system)))
    return _in_style(place, loaded, replace(options, append_system=more, toolset=asked.toolset))


def _in_style(place: Place, loaded: Loaded, options: Options) -> tuple[Options, tuple[str, ...]]:
    wanted = loaded.settings.output_style
    plain, plugged = wanted.casefold() in ("", DEFAULT), any(one.styles for one in loaded.plugins)
    if plain and not plugged:
        return options, ()
    known, notices = styles(places(place, loaded, options))
    style = next((one for one in known.values() if one.forced), known.get(wanted.casefold()))
    if style is None and plain:
        return options, notices
    if style is None:
        there = ", ".join(one.name for one in known.values()) or "none"
        missing = f"{loaded.origin('outputStyle')}: there is no output style {wanted!r}"
        return options, (*notices, f"{missing}; there are: {there}")
    text = options.system or PROMPT.read_text("utf-8").strip()
    return replace(options, system=styled(text, style)), notices
