"""Notes that tell the model about its environment, instruction files and skills.

What the model knows is what the conversation shows, so nothing is repeated, even after a resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from travois.context.window import current_model
from travois.core.content import Text, extract_text
from travois.core.facts import Changed, User
from travois.engine.agent import Agent
from travois.hooks.events import InstructionsLoaded
from travois.hooks.fire import fire
from travois.memory.recall import remembered
from travois.memory.recall_text import opening
from travois.ports.world import UserWarned
from travois.prompt.environment import baseline, updated
from travois.prompt.instruction_text import Instruction, Kind, Reason, render, room, untold
from travois.skills import skill_text
from travois.skills.command_text import Custom
from travois.skills.skill_text import Known
from travois.skills.skills import AWAKE, NEAR

if TYPE_CHECKING:
    from travois.engine.permission_gate import ParsedCall

NESTED = "instructions:"
"""State of the session: files that count since something near them was touched, by path."""
SHARE = 4
"""The part of the room for instructions that those of one moment may take."""
KINDS: dict[str, Kind] = {"Managed": "Managed", "User": "User", "Local": "Local"}


async def brief(agent: Agent) -> None:
    """Before a prompt, add notes about everything that changed; at first, about everything."""
    view = agent.session.view
    prompts = ("human", "task") if view.replied < 0 else ("human",)
    if not any(said.origin in prompts for said in agent.turn.inbox):
        return
    if agent.prompt.environment is not None and (
        note := updated(agent.prompt.environment(), view.items)
    ):
        agent.session.append(note)
    await _instruct(agent)
    tell_skills(agent)
    if index := await remembered(agent):
        agent.session.append(User((Text(index),), origin="note"))


async def _instruct(agent: Agent) -> None:
    """Add the instruction files that the conversation does not show."""
    if agent.prompt.instructions is None:
        return
    view, found = agent.session.view, agent.prompt.instructions.load_always(nested(agent))
    fresh = untold(found.files, view.items)
    for notice in found.notices if fresh or view.replied < 0 else ():
        agent.session.emit(UserWarned(notice))
    await _tell(agent, fresh, budget=room(current_model(agent).window))


async def touch(agent: Agent, done: Iterable[ParsedCall]) -> None:
    """After tool calls, add the instructions and skills for the files that they touched."""
    paths = tuple(dict.fromkeys(path for ready in done for path in _paths(ready)))
    if not paths:
        return
    if agent.prompt.skills is not None and _wake(agent, paths):
        tell_skills(agent)
    if agent.prompt.instructions is None:
        return
    found, known = agent.prompt.instructions.load_for_paths(paths), nested(agent)
    fresh = tuple(file for file in found.files if file.by not in known)
    for path, kind in {file.by: file.kind for file in fresh}.items():
        agent.session.append(Changed(f"{NESTED}{path}", kind))
    for notice in found.notices if fresh else ():
        agent.session.emit(UserWarned(notice))
    await _tell(agent, fresh, budget=room(current_model(agent).window) // SHARE)


def again(agent: Agent) -> tuple[Text, ...]:
    """Return all notes in their current form, for a conversation that was compacted."""
    blocks: list[str] = []
    if agent.prompt.environment is not None:
        blocks.append(extract_text(baseline(agent.prompt.environment()).content))
    if agent.prompt.instructions is not None:
        files = agent.prompt.instructions.load_always(nested(agent)).files
        blocks.append(render(files, budget=room(current_model(agent).window)).text)
    if agent.memory.memories is not None and agent.team.birth is None and agent.memory.recall:
        blocks.append(opening(agent.memory.memories.index(), ()))
    found = skills(agent)
    blocks.append(skill_text.baseline(_listed(agent, found), _listable(agent, found)))
    return tuple(Text(agent.session.secrets.redact(text)) for text in blocks if text)


async def reloaded(agent: Agent) -> None:
    """Run the InstructionsLoaded hooks for all instruction files after a compaction."""
    if agent.prompt.instructions is not None and agent.hooks.active is not None:
        await _heard(
            agent, agent.prompt.instructions.load_always(nested(agent)).files, reason="compact"
        )


def nested(agent: Agent) -> dict[str, Kind]:
    """Return the nested instruction files that apply so far, with their kinds."""
    state = agent.session.state.items()
    return {
        key.removeprefix(NESTED): KINDS.get(kind, "Project")
        for key, kind in state
        if key.startswith(NESTED)
    }


# --- skills ---------------------------------------------------------------------------------------


def skills(agent: Agent) -> Known:
    """Return all skills that are available to an agent."""
    if agent.prompt.skills is None or "Skill" not in agent.tools.by_name:
        return Known()
    return agent.prompt.skills.load_always(_marked(agent, NEAR))


def tell_skills(agent: Agent) -> None:
    """Add a note about skills that the model does not know yet."""
    view, found = agent.session.view, skills(agent)
    for notice in found.notices if view.replied < 0 else ():
        agent.session.emit(UserWarned(notice))
    if text := skill_text.updated(_listed(agent, found), view.items, _listable(agent, found)):
        agent.session.append(User((Text(text),), origin="note"))


def _listed(agent: Agent, found: Known) -> tuple[Custom, ...]:
    """Return the skills that the model may use by itself for the files it works with."""
    awake = _marked(agent, AWAKE)
    fit = (one for one in found.skills if not one.paths or one.name in awake)
    return tuple(one for one in fit if one.automatic)


def _listable(agent: Agent, found: Known) -> int:
    """Return the token limit of the skill list."""
    return int(current_model(agent).window * found.share)


def _wake(agent: Agent, paths: tuple[str, ...]) -> bool:
    """Activate skills for these files; return whether any is new."""
    assert agent.prompt.skills is not None
    woken = _mark(agent, NEAR, agent.prompt.skills.load_for_paths(paths))
    scoped = [one for one in skills(agent).skills if one.paths]
    return _mark(agent, AWAKE, skill_text.awake(scoped, paths, agent.world.root)) or woken


def _mark(agent: Agent, mark: str, names: Iterable[str]) -> bool:
    """Record names in the session state; return whether any is new."""
    fresh = [f"{mark}{name}" for name in names if f"{mark}{name}" not in agent.session.state]
    for state in fresh:
        agent.session.append(Changed(state, "yes"))
    return bool(fresh)


def _marked(agent: Agent, mark: str) -> tuple[str, ...]:
    keys = (key for key in agent.session.state if key.startswith(mark))
    return tuple(key.removeprefix(mark) for key in keys)


async def _tell(agent: Agent, files: tuple[Instruction, ...], *, budget: int) -> None:
    """Add a note with these instruction files, and run their hooks."""
    if not files:
        return
    told = render(files, budget=budget)
    agent.session.append(User((Text(told.text),), origin="note"))
    for path in told.cut:
        agent.session.emit(UserWarned(f"{path} is too long; the model sees only its first lines"))
    await _heard(agent, files)


async def _heard(
    agent: Agent, files: Iterable[Instruction], *, reason: Reason | None = None
) -> None:
    for file in files if agent.hooks.active is not None else ():
        await fire(agent, InstructionsLoaded(file.path, file.kind, reason or file.reason))


def _paths(ready: ParsedCall) -> Iterator[str]:
    """Yield the files that a call reads or writes, itself or in a command line."""
    inner = (access for plan in ready.plans for access in plan.accesses)
    for access in (*ready.accesses, *inner):
        if access.kind in ("read", "write") and access.scope == "one":
            yield access.target
