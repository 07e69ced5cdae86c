"""The agent that a person talks to: one of the kinds that they have, in the place of ours."""

from __future__ import annotations

from msgspec.structs import replace

from travois.agents.agent_files import narrowed
from travois.agents.types import PERSONAL, Kind, named, usable
from travois.compose.agents import EFFORTS, Yard
from travois.compose.options import Options
from travois.core.content import Text
from travois.core.errors import Fault
from travois.core.facts import Changed, User
from travois.hooks.fire import join
from travois.ports.agent import Agent
from travois.ports.tool import AnyTool
from travois.sessions.session import Session
from travois.settings.load import FLAGS
from travois.settings.schema import Loaded
from travois.skills.invoke import preload

LEAD = "agent"
"""State of a session: the kind that it began with."""


def chosen(loaded: Loaded, kinds: tuple[Kind, ...], session: Session) -> tuple[Kind | None, Loaded]:
    """The kind that was asked for, or that the session began with; and settings as it has them."""
    asked, begun = loaded.settings, session.view.epoch is not None
    usual = next((plugin.lead for plugin in loaded.plugins if plugin.lead), "")
    wanted = session.state.get(LEAD, "") if begun else asked.agent or usual
    if begun and loaded.origin("agent") == FLAGS and asked.agent.casefold() != wanted.casefold():
        loaded = _told(loaded, "--agent", "a session goes on with whom it began")
    kind = named(kinds, wanted) if wanted else None
    if kind is None:
        return None, _missing(loaded, wanted, kinds) if wanted else loaded
    flagged = {key for key in ("model", "effortLevel") if loaded.origin(key) == FLAGS}
    effort = EFFORTS.get(kind.effort, asked.effort_level)
    settings = replace(
        asked,
        model=asked.model if "model" in flagged else kind.model or asked.model,
        effort_level=asked.effort_level if "effortLevel" in flagged else effort,
        max_turns=asked.max_turns or kind.max_turns,
    )
    return kind, replace(loaded, settings=settings)


def _missing(loaded: Loaded, wanted: str, kinds: tuple[Kind, ...]) -> Loaded:
    what, there = f"there is no agent {wanted!r}", ", ".join(kind.name for kind in kinds)
    if loaded.origin("agent") == FLAGS:
        raise Fault(f"--agent: {what}", fix=f"There are: {there}.")
    return _told(loaded, loaded.origin("agent"), f"{what}; there are: {there}")


def _told(loaded: Loaded, where: str, what: str) -> Loaded:
    return replace(loaded, notices=(*loaded.notices, f"{where}: {what}"))


def given(tools: dict[str, AnyTool], lead: Kind | None) -> dict[str, AnyTool]:
    """The tools that it may use; those that need the person, unless it names others."""
    if lead is None:
        return tools
    own = PERSONAL if lead.tools is None else PERSONAL[-1:]
    fine = {*usable(lead, tools), *(name for name in own if name not in lead.denied)}
    return {name: tool for name, tool in tools.items() if name in fine}


def told(options: Options, lead: Kind | None) -> Options:
    """The same options, with its prompt as the system text unless one is given."""
    return options if lead is None or options.system else replace(options, system=lead.prompt)


async def begin(agent: Agent, lead: Kind | None, yard: Yard) -> None:
    """Let it start others, and give it at its beginning what its kind brings."""
    if lead is None:
        yard.enlist(agent)
        return
    from travois.memory.agent_memory import granted, memory

    yard.enlist(agent, tuple(filter(None, (named(yard.kinds, name) for name in lead.spawns))))
    agent.guard = replace(agent.guard, mode=narrowed(lead, agent.guard.mode))
    agent.library = agent.library if lead.instructions else None
    join(agent, lead.hooks, origin=lead.origin)
    held, session = memory(lead, yard.place.home, yard.place.project.root), agent.session
    agent.guard = granted(agent.guard, held) if held else agent.guard
    if LEAD in session.state:
        return
    session.append(Changed(LEAD, lead.name))
    if held:
        session.append(User((Text(held.note),), origin="note"))
    await preload(agent, lead.skills, parent=agent)
    if lead.greeting:
        agent.inbox.append(User((Text(lead.greeting),), origin="human"))
