"""Custom commands of the user, and skills typed as commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from travois.compose import skills
from travois.compose.live_session import LiveSession
from travois.compose.mcp import expand_mcp_prompt
from travois.compose.options import Options
from travois.compose.session import LoadedWorkspace, load_workspace
from travois.core.content import Text, TextOrMedia
from travois.core.errors import UserError
from travois.core.facts import Changed
from travois.engine.agent import Agent
from travois.hooks.events import UserPromptExpansion
from travois.hooks.fire import on_prompt_expansion
from travois.ports.tool import ToolError
from travois.settings.sources import parse_setting_sources
from travois.skills import invoke
from travois.skills.command_files import load_commands
from travois.skills.command_text import TYPED_COMMAND, CustomCommand
from travois.skills.skills import REQUESTED_SKILL_STATE, SKILL_STATE_PREFIX, render_skill

DELEGATE_PROMPT = "Call the Skill tool with name {name} and args {args}, then tell me the result."

MCP_PROMPT_PREFIX = "mcp__"
"""The prefix of commands that stand for MCP prompts."""
CommandsAndNotices = tuple[dict[str, CustomCommand], tuple[str, ...]]


def compose_commands(
    options: Options, *, taken: Collection[str] = (), workspace: LoadedWorkspace | None = None
) -> CommandsAndNotices:
    """Load the custom slash commands by name, without those whose name is taken; and notices."""
    place, loaded = workspace or load_workspace(options)
    found, notices = dict[str, CustomCommand](), tuple[str, ...]()
    if options.commands and not options.bare:
        found, notices = load_commands(
            place.home,
            place.project.root,
            place.cwd,
            plugins=loaded.plugins,
            levels=parse_setting_sources(options.shelves),
        )
    runner = "off" if loaded.settings.disable_skill_shell_execution else ""
    found = {n: replace(one, runner=runner or one.runner) for n, one in found.items() if one.typed}
    for skill in skills.compose_skills(place, loaded, options).load_always().skills:
        if skill.typed:
            found.setdefault(skill.name, skill)
    hidden = (
        f"/{name} from {found[name].origin} is ignored: a built-in command has that name"
        for name in taken
        if name in found
    )
    return {n: one for n, one in found.items() if n not in taken}, (*notices, *hidden)


async def expand_typed_command(
    session: LiveSession, known: Mapping[str, CustomCommand], content: tuple[TextOrMedia, ...]
) -> tuple[TextOrMedia, ...]:
    """Expand a slash command in the last text of a prompt."""
    texts = [(at, block.text) for at, block in enumerate(content) if isinstance(block, Text)]
    at, line = texts[-1] if texts else (0, "")
    found = TYPED_COMMAND.fullmatch(line.strip())
    if found is None or not (found[1] in known or found[1].startswith(MCP_PROMPT_PREFIX)):
        return content
    typed = (found[2] or "").strip()
    await _fire_expansion_hook(session.runtime.agent, found[1], typed, known=known.get(found[1]))
    if found[1] in known:
        text = await expand_command(session, known[found[1]], typed)
    else:
        text = await expand_mcp_prompt(session.runtime.mcp_servers, found[1], typed)
    return (*content[:at], Text(text), *content[at:])


async def _fire_expansion_hook(
    agent: Agent, name: str, typed: str, *, known: CustomCommand | None
) -> None:
    """Fire the hook for an expanded slash command; raises `UserError` if it objects."""
    if agent.hooks.active is None:
        return
    kind, origin = ("slash_command", known.origin) if known else ("mcp_prompt", "")
    line = f"/{name} {typed}".strip()
    occasion = UserPromptExpansion(kind, name, typed, line, origin)
    if why := await on_prompt_expansion(agent, occasion):
        raise UserError(f"/{name} was not run", why=f"a hook says: {why}", code=1)


async def expand_command(session: LiveSession, custom: CustomCommand, typed: str) -> str:
    """Expand a custom command or skill to a prompt; raises `UserError` if it may not run."""
    agent, skill = session.runtime.agent, custom.is_skill
    if (
        custom.agent
        and "Skill" in agent.tools.by_name
        and (skill or _has_agent_type(agent, custom))
    ):
        agent.session.append(Changed(REQUESTED_SKILL_STATE, custom.name))
        return DELEGATE_PROMPT.format(name=custom.name, args=msgspec.json.encode(typed).decode())
    try:
        text = await invoke.expand_command(agent, custom, typed)
    except ToolError as refusal:
        raise UserError(
            f"/{custom.name} was not run",
            why=str(refusal),
            fix="Allow the command with a permission rule, or remove it from the file.",
            code=1,
        ) from None
    if not skill:
        return text
    told = render_skill(custom, text)
    agent.session.append(Changed(f"{SKILL_STATE_PREFIX}{custom.name}", told))
    return told


def _has_agent_type(agent: Agent, custom: CustomCommand) -> bool:
    """Return whether the agent type that a custom command names exists."""
    known = agent.team.children.kinds if agent.team.children is not None else ()
    return custom.agent.casefold() in (kind.casefold() for kind in known)
