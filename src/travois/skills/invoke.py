"""Invoking skills and commands: expanding their text, and granting their rights for one turn."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.agents.child import FORK_STATE
from travois.core.content import Text, extract_text
from travois.core.facts import Changed, Opened, User
from travois.core.patterns import compile_lazily
from travois.engine.agent import Agent
from travois.hooks.fire import add_hooks
from travois.lazy_imports import lazy_imports
from travois.permissions.rules import (
    PermissionRule,
    explain_unenforceable_rule,
    parse_permission_rule,
    split_rules,
)
from travois.ports.agents import AgentOrder
from travois.ports.tool import ToolError
from travois.ports.world import UserWarned
from travois.prompt.briefing import list_available_skills
from travois.skills.command_text import CommandPart, CustomCommand, fill_command
from travois.skills.skills import (
    REQUESTED_SKILL_STATE,
    SKILL_STATE_PREFIX,
    SkillResult,
    render_skill,
)

with lazy_imports():
    import shlex

    from travois.engine import tool_calls


DEFAULT_EFFORT = "high"
"""The effort of a model without a setting."""
FORK_ONLY_WARNING = "ignored without `context: fork`: a change would invalidate the prompt cache"
PIPE_SEPARATORS = compile_lazily(r"[|;&]+")
HARMLESS_EXIT_1 = compile_lazily(
    r"(git (diff|grep)|[ef]?grep|rg|ag|diff|cmp|find|test|\[|pgrep|which)\b|\["
)
"""Programs that end with 1 to say that there is nothing, or a difference."""
TURN_RULE_ORIGIN = "skill "
"""The prefix of the origin of a rule that holds for one turn only."""


class AgentSkillRunner:
    """The skill interface of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def use(self, name: str, args: str, *, call: str) -> SkillResult:
        """Use a skill; raise `ToolError` if it is unknown or only for the user."""
        agent = self._agent
        known = {skill.name: skill for skill in list_available_skills(agent).skills}
        asked = agent.session.state.get(REQUESTED_SKILL_STATE) == name
        if name not in known or not (known[name].automatic or asked):
            there = ", ".join(one.name for one in known.values() if one.automatic) or "none"
            why = "Only the user can use this skill." if name in known else "Unknown skill."
            raise ToolError(f"{why} Available skills: {there}.")
        skill = known[name]
        if (
            skill.agent
            and agent.team.children is not None
            and not agent.session.state.get(FORK_STATE)
        ):
            return await _delegate_skill(agent, skill, args, call=call)
        text = render_skill(skill, await expand_command(agent, skill, args))
        return SkillResult(text, changes=(Changed(f"{SKILL_STATE_PREFIX}{name}", text),))


async def preload_skills(agent: Agent, names: Iterable[str], *, parent: Agent) -> None:
    """Add the text of these skills to a new subagent; warn the parent about failures."""
    known = agent.prompt.skills.load_always().skills if agent.prompt.skills is not None else ()
    by_name = {skill.name: skill for skill in known if skill.automatic}
    for name in names:
        try:
            skill = by_name[name]
            text = render_skill(skill, await expand_command(agent, skill, ""))
        except (KeyError, ToolError) as why:
            reason = "unknown skill" if isinstance(why, KeyError) else why
            parent.session.emit(UserWarned(f"skill {name} was not preloaded: {reason}"))
            continue
        agent.session.append(User((Text(text),), origin="note"))
        agent.session.append(Changed(f"{SKILL_STATE_PREFIX}{name}", text))


async def _delegate_skill(
    agent: Agent, skill: CustomCommand, args: str, *, call: str
) -> SkillResult:
    """Invoke a skill in a subagent."""
    assert agent.team.children is not None
    kinds = {kind.casefold(): kind for kind in agent.team.children.kinds}
    kind = kinds.get(skill.agent.casefold(), "general")
    text = await expand_command(agent, skill, args)
    what = f"skill {skill.name}"
    order = AgentOrder(
        prompt=text,
        what=what,
        kind=kind,
        background=skill.background,
        call=call,
        model=skill.model,
        effort=skill.effort,
    )
    report = await agent.team.children.start(order)
    if report.state == "running":
        return SkillResult(
            f"Started in the background as agent {report.id}. It reports when it is done."
        )
    told = f"[agent {report.id}: {report.state}]\n{report.text}"
    return SkillResult(told, error=report.state == "failed")


async def expand_command(agent: Agent, custom: CustomCommand, typed: str) -> str:
    """Expand an invoked skill or command; raise `ToolError` if a command in it may not run."""
    grant_turn_rights(agent, custom)
    epoch = agent.session.view.epoch
    variables = {
        "CLAUDE_SESSION_ID": _find_session_id(agent) if "SESSION_ID" in custom.body else "",
        "CLAUDE_PROJECT_DIR": agent.world.root,
        "CLAUDE_EFFORT": (epoch.model.effort if epoch else "") or DEFAULT_EFFORT,
        **_build_folder_variables(custom),
    }
    parts = [
        await _expand_part(agent, part, custom) for part in fill_command(custom, typed, variables)
    ]
    return "".join(parts).strip()


def grant_turn_rights(agent: Agent, custom: CustomCommand) -> None:
    """Grant an invoked skill's rules until the turn ends, and read access to its files."""
    rules = [
        *_parse_skill_rules(agent, custom, "deny"),
        *_parse_skill_rules(agent, custom, "allow"),
    ]
    wanted = ", ".join(key for key in ("model", "effort") if getattr(custom, key))
    skill = custom.origin.endswith("SKILL.md")
    if (
        wanted
        and not custom.agent
        and f"{SKILL_STATE_PREFIX}{custom.name}" not in agent.session.state
    ):
        agent.session.emit(UserWarned(f"{custom.origin}: {wanted} {FORK_ONLY_WARNING}"))
    hooks = msgspec.json.encode(custom.hooks).decode()
    for name, place in _build_folder_variables(custom).items():
        hooks = hooks.replace(f"${{{name}}}", msgspec.json.encode(place).decode()[1:-1])
    add_hooks(agent, msgspec.json.decode(hooks, type=dict[str, object]), origin=custom.origin)
    folder = os.path.realpath(custom.plugin or os.path.dirname(custom.origin))
    seen = agent.permissions.guard.readable
    files = (folder,) if custom.trusted and skill and folder not in seen else ()
    agent.permissions.guard = replace(
        agent.permissions.guard,
        rules=(*agent.permissions.guard.rules, *rules),
        readable=(*seen, *files),
    )


def _build_folder_variables(custom: CustomCommand) -> dict[str, str]:
    """Return the folder variables that a skill's text may use."""
    places = {"CLAUDE_SKILL_DIR": os.path.dirname(custom.origin)}
    if custom.plugin:
        places |= dict.fromkeys(("CLAUDE_PLUGIN_ROOT", "PLUGIN_ROOT"), custom.plugin)
    return places | ({"CLAUDE_PLUGIN_DATA": custom.keeps} if custom.keeps else {})


def _parse_skill_rules(
    agent: Agent, custom: CustomCommand, effect: Literal["allow", "deny"]
) -> Iterator[PermissionRule]:
    """Yield the permission rules of a skill; invalid ones are reported and ignored."""
    for text in split_rules(custom.allowed if effect == "allow" else custom.denied):
        try:
            rule = parse_permission_rule(text, effect, origin=f"{TURN_RULE_ORIGIN}{custom.name}")
        except ValueError as error:
            agent.session.emit(UserWarned(f"{custom.origin}: rule {text} is ignored: {error}"))
            continue
        if effect == "deny" or not explain_unenforceable_rule(rule):
            yield rule


def revoke_turn_rights(agent: Agent) -> None:
    """Revoke the rights that skills were granted for the finished turn."""
    rules = tuple(
        rule
        for rule in agent.permissions.guard.rules
        if not rule.origin.startswith(TURN_RULE_ORIGIN)
    )
    agent.permissions.guard = replace(agent.permissions.guard, rules=rules)
    if agent.session.state.get(REQUESTED_SKILL_STATE):
        agent.session.append(Changed(REQUESTED_SKILL_STATE, ""))


def _find_session_id(agent: Agent) -> str:
    opened = (e.fact.session for e in agent.session.all_entries() if isinstance(e.fact, Opened))
    return list(opened)[-1]


async def _expand_part(agent: Agent, part: CommandPart, custom: CustomCommand) -> str:
    """Expand one part of a skill's text: run its command or read its file if needed."""
    try:
        match part.kind:
            case "text":
                return part.text
            case "command" if not custom.trusted or custom.runner == "off":
                return f"!`{part.text.strip()}`"
            case "command":
                line = part.text.strip()
                if custom.runner == "powershell":
                    line = f"pwsh -NoProfile -NonInteractive -Command {shlex.quote(line)}"
                outcome = await tool_calls.run_preapproved_tool(agent, "Bash", {"command": line})
                return extract_text(outcome.content).strip()
            case "file":
                outcome = await tool_calls.run_preapproved_tool(
                    agent, "Read", {"file_path": part.text}
                )
                return f"{part.text}:\n{extract_text(outcome.content)}\n"
    except ToolError as refusal:
        if part.kind == "file":
            return f"@{part.text}"
        ending, _, rest = str(refusal).partition("\n")
        if ending == "Exit code 1" and HARMLESS_EXIT_1.match(
            PIPE_SEPARATORS.split(part.text)[-1].strip()
        ):
            return rest.strip()
        raise ToolError(f"`{part.text.strip()}` in {custom.origin}: {refusal}") from None
