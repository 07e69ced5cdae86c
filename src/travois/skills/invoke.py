"""Use of skills and commands: expand their text, and grant their rights for one turn."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.agents.child import FORK_STATE
from travois.core.content import Text, extract_text
from travois.core.facts import Changed, Opened, User
from travois.engine.agent import Agent
from travois.hooks.fire import join
from travois.permissions.rules import (
    PermissionRule,
    explain_unenforceable_rule,
    parse_permission_rule,
    split_rules,
)
from travois.ports.agents import AgentOrder
from travois.ports.tool import ToolError
from travois.ports.world import UserWarned
from travois.prompt.briefing import skills
from travois.skills.command_text import Custom, Part, filled
from travois.skills.skill_text import shown
from travois.skills.skills import ASKED, USED, Used

EFFORT = "high"
"""The effort of a model without a setting."""
INLINE = "ignored without `context: fork`: a change would invalidate the prompt cache"
PIPED = re.compile(r"[|;&]+")
BENIGN = re.compile(r"(git (diff|grep)|[ef]?grep|rg|ag|diff|cmp|find|test|\[|pgrep|which)\b|\[")
"""Programs that end with 1 to say that there is nothing, or a difference."""
GRANT = "skill "
"""The prefix of the origin of a rule that holds for one turn only."""


class Practitioner:
    """The skill interface of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def use(self, name: str, args: str, *, call: str) -> Used:
        """Use a skill; raise `ToolError` if it is unknown or only for the user."""
        agent = self._agent
        known = {skill.name: skill for skill in skills(agent).skills}
        asked = agent.session.state.get(ASKED) == name
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
            return await _delegated(agent, skill, args, call=call)
        text = shown(skill, await expanded(agent, skill, args))
        return Used(text, changes=(Changed(f"{USED}{name}", text),))


async def preload(agent: Agent, names: Iterable[str], *, parent: Agent) -> None:
    """Add the text of these skills to a new subagent; warn the parent about failures."""
    known = agent.prompt.skills.load_always().skills if agent.prompt.skills is not None else ()
    by_name = {skill.name: skill for skill in known if skill.automatic}
    for name in names:
        try:
            skill = by_name[name]
            text = shown(skill, await expanded(agent, skill, ""))
        except (KeyError, ToolError) as why:
            reason = "unknown skill" if isinstance(why, KeyError) else why
            parent.session.emit(UserWarned(f"skill {name} was not preloaded: {reason}"))
            continue
        agent.session.append(User((Text(text),), origin="note"))
        agent.session.append(Changed(f"{USED}{name}", text))


async def _delegated(agent: Agent, skill: Custom, args: str, *, call: str) -> Used:
    """Let a subagent carry out a skill."""
    assert agent.team.children is not None
    kinds = {kind.casefold(): kind for kind in agent.team.children.kinds}
    kind = kinds.get(skill.agent.casefold(), "general")
    text = await expanded(agent, skill, args)
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
        return Used(f"Started in the background as agent {report.id}. It reports when it is done.")
    told = f"[agent {report.id}: {report.state}]\n{report.text}"
    return Used(told, error=report.state == "failed")


async def expanded(agent: Agent, custom: Custom, typed: str) -> str:
    """Expand a skill or command; raise `ToolError` if a command in it may not run."""
    grant(agent, custom)
    epoch = agent.session.view.epoch
    variables = {
        "CLAUDE_SESSION_ID": _id(agent) if "SESSION_ID" in custom.body else "",
        "CLAUDE_PROJECT_DIR": agent.world.root,
        "CLAUDE_EFFORT": (epoch.model.effort if epoch else "") or EFFORT,
        **_places(custom),
    }
    parts = [await _told(agent, part, custom) for part in filled(custom, typed, variables)]
    return "".join(parts).strip()


def grant(agent: Agent, custom: Custom) -> None:
    """Grant the rules of a skill until the turn ends, and read access to its files."""
    rules = [*_rules(agent, custom, "deny"), *_rules(agent, custom, "allow")]
    wanted = ", ".join(key for key in ("model", "effort") if getattr(custom, key))
    skill = custom.origin.endswith("SKILL.md")
    if wanted and not custom.agent and f"{USED}{custom.name}" not in agent.session.state:
        agent.session.emit(UserWarned(f"{custom.origin}: {wanted} {INLINE}"))
    hooks = msgspec.json.encode(custom.hooks).decode()
    for name, place in _places(custom).items():
        hooks = hooks.replace(f"${{{name}}}", msgspec.json.encode(place).decode()[1:-1])
    join(agent, msgspec.json.decode(hooks, type=dict[str, object]), origin=custom.origin)
    folder = os.path.realpath(custom.plugin or os.path.dirname(custom.origin))
    seen = agent.permissions.guard.readable
    files = (folder,) if custom.trusted and skill and folder not in seen else ()
    agent.permissions.guard = replace(
        agent.permissions.guard,
        rules=(*agent.permissions.guard.rules, *rules),
        readable=(*seen, *files),
    )


def _places(custom: Custom) -> dict[str, str]:
    """Return the folder variables that a skill's text may use."""
    places = {"CLAUDE_SKILL_DIR": os.path.dirname(custom.origin)}
    if custom.plugin:
        places |= dict.fromkeys(("CLAUDE_PLUGIN_ROOT", "PLUGIN_ROOT"), custom.plugin)
    return places | ({"CLAUDE_PLUGIN_DATA": custom.keeps} if custom.keeps else {})


def _rules(
    agent: Agent, custom: Custom, effect: Literal["allow", "deny"]
) -> Iterator[PermissionRule]:
    """Yield the permission rules of a skill; invalid ones are reported and ignored."""
    for text in split_rules(custom.allowed if effect == "allow" else custom.denied):
        try:
            rule = parse_permission_rule(text, effect, origin=f"{GRANT}{custom.name}")
        except ValueError as error:
            agent.session.emit(UserWarned(f"{custom.origin}: rule {text} is ignored: {error}"))
            continue
        if effect == "deny" or not explain_unenforceable_rule(rule):
            yield rule


def lapse(agent: Agent) -> None:
    """Revoke what skills were granted for the finished turn."""
    rules = tuple(
        rule for rule in agent.permissions.guard.rules if not rule.origin.startswith(GRANT)
    )
    agent.permissions.guard = replace(agent.permissions.guard, rules=rules)
    if agent.session.state.get(ASKED):
        agent.session.append(Changed(ASKED, ""))


def _id(agent: Agent) -> str:
    opened = (e.fact.session for e in agent.session.all_entries() if isinstance(e.fact, Opened))
    return list(opened)[-1]


async def _told(agent: Agent, part: Part, custom: Custom) -> str:
    """Return the text of one part: run its command or read its file if needed."""
    from travois.engine.tool_calls import run_preapproved_tool

    try:
        match part.kind:
            case "text":
                return part.text
            case "command" if not custom.trusted or custom.runner == "off":
                return f"!`{part.text.strip()}`"
            case "command":
                line = part.text.strip()
                if custom.runner == "powershell":
                    from shlex import quote

                    line = f"pwsh -NoProfile -NonInteractive -Command {quote(line)}"
                outcome = await run_preapproved_tool(agent, "Bash", {"command": line})
                return extract_text(outcome.content).strip()
            case "file":
                outcome = await run_preapproved_tool(agent, "Read", {"file_path": part.text})
                return f"{part.text}:\n{extract_text(outcome.content)}\n"
    except ToolError as refusal:
        if part.kind == "file":
            return f"@{part.text}"
        ending, _, rest = str(refusal).partition("\n")
        if ending == "Exit code 1" and BENIGN.match(PIPED.split(part.text)[-1].strip()):
            return rest.strip()
        raise ToolError(f"`{part.text.strip()}` in {custom.origin}: {refusal}") from None
