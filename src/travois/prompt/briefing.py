"""Briefing the model with notes on its environment, instruction files and skills.

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
from travois.hooks.fire import fire_hooks
from travois.memory.recall import memory_index_note
from travois.memory.recall_text import render_memory_index
from travois.ports.world import UserWarned
from travois.prompt.environment import render_environment, render_environment_update
from travois.prompt.instruction_text import (
    InstructionFile,
    InstructionKind,
    LoadReason,
    compute_instruction_budget,
    filter_unshown_files,
    render_instructions,
)
from travois.skills import skills
from travois.skills.command_text import CustomCommand
from travois.skills.skills import ACTIVE_SKILL_STATE_PREFIX, SKILL_FOLDER_STATE_PREFIX, LoadedSkills

if TYPE_CHECKING:
    from travois.engine.permission_gate import ParsedCall

INSTRUCTIONS_STATE_PREFIX = "instructions:"
"""State of the session: files that count since something near them was touched, by path."""
NESTED_BUDGET_DIVISOR = 4
"""The part of the room for instructions that those of one moment may take."""
INSTRUCTION_KINDS: dict[str, InstructionKind] = {
    "Managed": "Managed",
    "User": "User",
    "Local": "Local",
}


async def brief_agent(agent: Agent) -> None:
    """Brief the model before a prompt on everything that changed; at first, on everything."""
    view = agent.session.view
    prompts = ("human", "task") if view.replied < 0 else ("human",)
    if not any(said.origin in prompts for said in agent.turn.inbox):
        return
    if agent.prompt.environment is not None and (
        note := render_environment_update(agent.prompt.environment(), view.items)
    ):
        agent.session.append(note)
    await _tell_instructions(agent)
    tell_skills(agent)
    if index := await memory_index_note(agent):
        agent.session.append(User((Text(index),), origin="note"))


async def _tell_instructions(agent: Agent) -> None:
    """Brief the model on instruction files that the conversation does not show."""
    if agent.prompt.instructions is None:
        return
    view, found = (
        agent.session.view,
        agent.prompt.instructions.load_always(list_nested_instructions(agent)),
    )
    fresh = filter_unshown_files(found.files, view.items)
    for notice in found.notices if fresh or view.replied < 0 else ():
        agent.session.emit(UserWarned(notice))
    await _append_instructions(
        agent, fresh, budget=compute_instruction_budget(current_model(agent).window)
    )


async def brief_on_touched_files(agent: Agent, done: Iterable[ParsedCall]) -> None:
    """Brief the model after tool calls on instructions and skills for the files they touched."""
    paths = tuple(dict.fromkeys(path for ready in done for path in _find_touched_paths(ready)))
    if not paths:
        return
    if agent.prompt.skills is not None and _activate_skills(agent, paths):
        tell_skills(agent)
    if agent.prompt.instructions is None:
        return
    found, known = agent.prompt.instructions.load_for_paths(paths), list_nested_instructions(agent)
    fresh = tuple(file for file in found.files if file.by not in known)
    for path, kind in {file.by: file.kind for file in fresh}.items():
        agent.session.append(Changed(f"{INSTRUCTIONS_STATE_PREFIX}{path}", kind))
    for notice in found.notices if fresh else ():
        agent.session.emit(UserWarned(notice))
    await _append_instructions(
        agent,
        fresh,
        budget=compute_instruction_budget(current_model(agent).window) // NESTED_BUDGET_DIVISOR,
    )


def rebuild_briefing(agent: Agent) -> tuple[Text, ...]:
    """Return all briefing notes in their current form, for a compacted conversation."""
    blocks: list[str] = []
    if agent.prompt.environment is not None:
        blocks.append(extract_text(render_environment(agent.prompt.environment()).content))
    if agent.prompt.instructions is not None:
        files = agent.prompt.instructions.load_always(list_nested_instructions(agent)).files
        blocks.append(
            render_instructions(
                files, budget=compute_instruction_budget(current_model(agent).window)
            ).text
        )
    if agent.memory.memories is not None and agent.team.birth is None and agent.memory.recall:
        blocks.append(render_memory_index(agent.memory.memories.index(), ()))
    found = list_available_skills(agent)
    blocks.append(
        skills.render_skill_list(
            _select_listed_skills(agent, found), _compute_skill_list_tokens(agent, found)
        )
    )
    return tuple(Text(agent.session.secrets.redact(text)) for text in blocks if text)


async def on_instructions_reloaded(agent: Agent) -> None:
    """Fire the InstructionsLoaded hooks for all instruction files after a compaction."""
    if agent.prompt.instructions is not None and agent.hooks.active is not None:
        await _fire_instructions_loaded(
            agent,
            agent.prompt.instructions.load_always(list_nested_instructions(agent)).files,
            reason="compact",
        )


def list_nested_instructions(agent: Agent) -> dict[str, InstructionKind]:
    """Return the nested instruction files that apply so far, with their kinds."""
    state = agent.session.state.items()
    return {
        key.removeprefix(INSTRUCTIONS_STATE_PREFIX): INSTRUCTION_KINDS.get(kind, "Project")
        for key, kind in state
        if key.startswith(INSTRUCTIONS_STATE_PREFIX)
    }


# --- skills ---------------------------------------------------------------------------------------


def list_available_skills(agent: Agent) -> LoadedSkills:
    """Return all skills that are available to an agent."""
    if agent.prompt.skills is None or "Skill" not in agent.tools.by_name:
        return LoadedSkills()
    return agent.prompt.skills.load_always(_read_marks(agent, SKILL_FOLDER_STATE_PREFIX))


def tell_skills(agent: Agent) -> None:
    """Brief the model on skills that it does not know yet."""
    view, found = agent.session.view, list_available_skills(agent)
    for notice in found.notices if view.replied < 0 else ():
        agent.session.emit(UserWarned(notice))
    if text := skills.render_skill_changes(
        _select_listed_skills(agent, found), view.items, _compute_skill_list_tokens(agent, found)
    ):
        agent.session.append(User((Text(text),), origin="note"))


def _select_listed_skills(agent: Agent, skills: LoadedSkills) -> tuple[CustomCommand, ...]:
    """Return the skills that the model may use by itself for the files it works with."""
    awake = _read_marks(agent, ACTIVE_SKILL_STATE_PREFIX)
    fit = (one for one in skills.skills if not one.paths or one.name in awake)
    return tuple(one for one in fit if one.automatic)


def _compute_skill_list_tokens(agent: Agent, skills: LoadedSkills) -> int:
    """Return the token limit of the skill list in the briefing."""
    return int(current_model(agent).window * skills.share)


def _activate_skills(agent: Agent, paths: tuple[str, ...]) -> bool:
    """Activate skills for these files; return whether any is new."""
    assert agent.prompt.skills is not None
    woken = _add_marks(agent, SKILL_FOLDER_STATE_PREFIX, agent.prompt.skills.load_for_paths(paths))
    scoped = [one for one in list_available_skills(agent).skills if one.paths]
    return (
        _add_marks(
            agent,
            ACTIVE_SKILL_STATE_PREFIX,
            skills.match_skills(scoped, paths, agent.world.root),
        )
        or woken
    )


def _add_marks(agent: Agent, mark: str, names: Iterable[str]) -> bool:
    """Record briefed names, such as skills, in the session state; return whether any is new."""
    fresh = [f"{mark}{name}" for name in names if f"{mark}{name}" not in agent.session.state]
    for state in fresh:
        agent.session.append(Changed(state, "yes"))
    return bool(fresh)


def _read_marks(agent: Agent, mark: str) -> tuple[str, ...]:
    keys = (key for key in agent.session.state if key.startswith(mark))
    return tuple(key.removeprefix(mark) for key in keys)


async def _append_instructions(
    agent: Agent, files: tuple[InstructionFile, ...], *, budget: int
) -> None:
    """Append a briefing note with these instruction files, and fire their hooks."""
    if not files:
        return
    told = render_instructions(files, budget=budget)
    agent.session.append(User((Text(told.text),), origin="note"))
    for path in told.cut:
        agent.session.emit(UserWarned(f"{path} is too long; the model sees only its first lines"))
    await _fire_instructions_loaded(agent, files)


async def _fire_instructions_loaded(
    agent: Agent, files: Iterable[InstructionFile], *, reason: LoadReason | None = None
) -> None:
    """Fire the InstructionsLoaded hooks for each instruction file that was loaded."""
    for file in files if agent.hooks.active is not None else ():
        await fire_hooks(agent, InstructionsLoaded(file.path, file.kind, reason or file.reason))


def _find_touched_paths(ready: ParsedCall) -> Iterator[str]:
    """Yield the files that a call reads or writes, itself or in a command line."""
    inner = (access for plan in ready.plans for access in plan.accesses)
    for access in (*ready.accesses, *inner):
        if access.kind in ("read", "write") and access.scope == "one":
            yield access.target
