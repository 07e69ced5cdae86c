"""The conversation itself: /model, /effort, /mode, /todos, /rewind, /clear, /theme and the like."""

from __future__ import annotations

import os
from functools import partial

import anyio
from msgspec.structs import replace

from travois.compose.hooks import Leaving, switching
from travois.compose.options import Options
from travois.core.errors import Fault
from travois.core.tasks import task_remark
from travois.permissions.decide import MODES
from travois.prompt.style_text import DEFAULT
from travois.providers.options import LEVELS
from travois.sessions import home as homes
from travois.settings.validate import keep
from travois.snapshots import rewind as rewinding
from travois.snapshots.snapshots import Snapshots, Turn, turns
from travois.tui.slash import Command, Desk

MARKS = {"completed": "✓", "in_progress": "▸", "pending": " ", "deleted": "-"}
SHOWN = 30
EFFORTS = (*LEVELS, "auto")
THEMES = ("auto", "dark", "light", "none")
PARTS = (
    ("files and conversation", ""),
    ("the conversation only", "files stay as they are"),
)


async def _model(desk: Desk, name: str) -> str:
    if name:
        async with switching(desk.session.crew.agent, name, source="command"):
            await desk.session.switch_with_summary(name)
    return f"The model is {desk.session.crew.model.name}."


async def _effort(desk: Desk, level: str) -> str:
    if level:
        desk.session.exert("" if level == "auto" else level)
    return f"The effort is {desk.session.crew.model.effort or 'left to the model'}."


async def _mode(desk: Desk, name: str) -> str:
    if name:
        desk.session.enter(name)
    return f"The mode is {desk.session.crew.agent.guard.mode}."


async def _todos(desk: Desk, _: str) -> str:
    from travois.agents.task_list import AgentTasks

    found = AgentTasks(desk.session.crew.agent).read()
    lines = (
        f"{MARKS[one.status]} #{one.id} {one.content}{task_remark(found, one)}" for one in found
    )
    return "\n".join(lines) or "Nothing is to be done."


async def _rewind(desk: Desk, number: str) -> str:
    agent = desk.session.crew.agent
    entries = agent.session.record()
    said = turns(entries)
    if desk.session.running:
        raise Fault("A turn is under way", fix="Stop it with Esc first.")
    if not isinstance(agent.keeper, Snapshots) or not said:
        return "There is nothing to go back to."
    turn = await _chosen(desk, said, number)
    part = await desk.pick("What goes back?", PARTS) if turn else None
    if turn is None or part is None:
        return ""
    way = rewinding.before_turn
    find = partial(
        way, entries, agent.keeper, number=turn.number - 1, part=("all", "conversation")[part]
    )
    found = await anyio.to_thread.run_sync(find)
    outcome = rewinding.go(agent.session, agent.keeper, found, wrote=agent.world.processes.accept)
    desk.type(turn.text)
    kept = f", {len(found.theirs)} kept that others changed" if found.theirs else ""
    files = f"{outcome.restored} files restored, {outcome.deleted} deleted{kept}"
    return f"Back to before that was said: {files}."


async def _chosen(desk: Desk, said: list[Turn], number: str) -> Turn | None:
    """The turn that is to be taken back, with all that followed it."""
    if number:
        found = [turn for turn in said if str(turn.number) == number]
        if not found:
            raise Fault(f"There is no turn {number}", why=f"{len(said)} turns stand")
        return found[0]
    last = said[::-1][:SHOWN]
    picked = await desk.pick(
        "Go back to before which of these?",
        [(" ".join(turn.text.split())[:200], "") for turn in last],
    )
    return None if picked is None else last[picked]


def afresh(options: Options) -> Options:
    """The same, for a conversation in which nothing was said."""
    return replace(options, resume="", latest=False, fork=False, session_id="", cleared=True)


def left(options: Options | None) -> Leaving:
    """Why a conversation is left, given the one that comes next."""
    if options is None:
        return "prompt_input_exit"
    return "resume" if options.resume or options.latest else "clear"


async def _clear(desk: Desk, _: str) -> str:
    desk.turn_to(afresh(desk.options))
    return ""


async def _theme(desk: Desk, name: str) -> str:
    if not name:
        picked = await desk.pick("Which colours?", [(one, "") for one in THEMES])
        name = "" if picked is None else THEMES[picked]
    if not name:
        return ""
    desk.dress(name)
    keep(homes.locate(os.environ), "tui.theme", name)
    return f"The colours are {name}, also in the sessions to come."


async def _style(desk: Desk, name: str) -> str:
    known = _styles(desk)
    if not name:
        picked = await desk.pick("Speak how, in another conversation?", list(known.items()))
        name = "" if picked is None else list(known)[picked]
    if name and name.casefold() not in map(str.casefold, known):
        raise Fault(f"There is no output style {name}", fix=f"There are: {', '.join(known)}.")
    if name:
        desk.turn_to(replace(afresh(desk.options), style=name))
    return ""


def _styles(desk: Desk) -> dict[str, str]:
    """The output styles that there are, each with what it is about."""
    from travois.compose.session import prepare
    from travois.compose.skills import places
    from travois.prompt.style_files import styles

    place, loaded = prepare(desk.options)
    found, _ = styles(places(place, loaded, desk.options))
    return {DEFAULT: "as we speak"} | {one.name: one.description for one in found.values()}


async def _quit(desk: Desk, _: str) -> str:
    desk.turn_to(None)
    return ""


COMMANDS = {
    "model": Command("/model [NAME]", "go on with another model", _model),
    "effort": Command("/effort [LEVEL]", "think more or less", _effort, lambda desk: EFFORTS),
    "mode": Command("/mode [NAME]", "what may run unasked", _mode, lambda desk: MODES, when="ever"),
    "todos": Command("/todos", "what is to be done", _todos, when="ever"),
    "rewind": Command("/rewind [TURN]", "take files and conversation back", _rewind),
    "clear": Command("/clear", "begin another conversation", _clear),
    "theme": Command("/theme [NAME]", "other colours", _theme, lambda desk: THEMES, when="ever"),
    "output-style": Command(
        "/output-style [NAME]", "begin another conversation, in a style", _style, _styles
    ),
    "quit": Command("/quit", "leave", _quit),
}
