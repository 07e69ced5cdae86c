"""Slash commands of the conversation: model, effort, mode, rewind, themes, styles."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from time import localtime, strftime

import anyio.to_thread
from msgspec.structs import replace

from travois.agents.task_list import AgentTasks
from travois.compose.hooks import fire_model_switch
from travois.compose.models import model_catalog
from travois.compose.options import new_session_options
from travois.compose.session import load_workspace
from travois.compose.skills import skill_folders
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Entry, Result
from travois.core.tasks import task_remark
from travois.lazy_imports import lazy_imports
from travois.permissions.decide import PERMISSION_MODES
from travois.prompt.output_styles import DEFAULT_STYLE, load_styles
from travois.providers import catalog
from travois.providers.request import EFFORT_LEVELS
from travois.sessions import home
from travois.settings.edit import save_user_setting
from travois.snapshots import rewind
from travois.snapshots.restore import RestoreOutcome
from travois.snapshots.snapshots import ConversationTurn, Snapshots, list_turns
from travois.terminal import escape_controls
from travois.tui import clipboard, theme
from travois.tui.slash import CURRENT_MARK, CommandHost, SlashCommand

with lazy_imports():
    from travois.commands import models
    from travois.commands import rewind as rewind_commands


# The conversation: /model, /effort, /mode, /todos, /rewind, /clear, /theme and the like.

TODO_MARKS = {"completed": "✓", "in_progress": "▸", "pending": " ", "deleted": "-"}
MAX_TURNS_OFFERED = 30
EFFORT_WORDS = (*EFFORT_LEVELS, "auto")
REWIND_PARTS = (
    ("files and conversation", ""),
    ("conversation only", "files stay as they are"),
)


MODE_MEANINGS = {
    "default": "asks before changes and unknown commands",
    "accept-edits": "edits files of the workspace without asking",
    "plan": "reads and plans; changes nothing until you approve",
    "auto": "runs commands in the sandbox without asking too",
    "dont-ask": "refuses what would be asked",
    "bypass": "asks almost nothing; only at the start (--permission-mode bypass)",
}
THEME_MEANINGS = {
    "auto": "dark or light, by the terminal's background",
    "none": "no colours",
}


async def _run_model_command(host: CommandHost, name: str) -> str:
    """Run /model: switch to the named model, or to one of a list with windows and prices."""
    name = name or await _pick_model(host)
    if not name:
        return ""
    async with fire_model_switch(host.session.runtime.agent, name, source="command"):
        await host.session.switch_with_summary(name)
    return f"The model is {host.session.runtime.model.name}."


async def _pick_model(host: CommandHost) -> str:
    """Let the user pick a model; those that have a key come first. Empty if they cancel."""
    among = model_catalog(load_workspace(host.options)[1])
    rows = sorted(models.list_model_rows(among), key=lambda row: not row.key)
    now = host.session.runtime.model.name
    offers = [(_mark_current(row.name, now), models.describe_model_row(row)) for row in rows]
    picked = await host.pick_option(f"Which model? It is {now}.", offers)
    return "" if picked is None else rows[picked].name


def _model_names(host: CommandHost) -> tuple[str, ...]:
    among = model_catalog(load_workspace(host.options)[1]) or catalog.load_catalog()
    return tuple(among.models)


def _mark_current(name: str, now: str) -> str:
    return f"{name}{CURRENT_MARK}" if name == now else name


async def _run_effort_command(host: CommandHost, level: str) -> str:
    now = host.session.runtime.model.effort or "auto"
    if not level:
        offers = [(_mark_current(one, now), "") for one in EFFORT_WORDS]
        picked = await host.pick_option("How much effort?", offers)
        if picked is None:
            return ""
        level = EFFORT_WORDS[picked]
    host.session.exert("" if level == "auto" else level)
    return f"The effort is {host.session.runtime.model.effort or 'left to the model'}."


async def _run_mode_command(host: CommandHost, name: str) -> str:
    guard = host.session.runtime.agent.permissions.guard
    if not name:
        barred = {*guard.barred, *({"bypass"} - {guard.mode})}
        known = [one for one in PERMISSION_MODES if one not in barred]
        offers = [(_mark_current(one, guard.mode), MODE_MEANINGS[one]) for one in known]
        picked = await host.pick_option("Which permission mode?", offers)
        if picked is None:
            return ""
        name = known[picked]
    host.session.enter(name)
    return f"The mode is {host.session.runtime.agent.permissions.guard.mode}."


async def _run_todos_command(host: CommandHost, _: str) -> str:
    found = AgentTasks(host.session.runtime.agent).read()
    lines = (
        f"{TODO_MARKS[one.status]} #{one.id} {one.content}{task_remark(found, one)}"
        for one in found
    )
    return "\n".join(lines) or "No todos."


async def _run_rewind_command(host: CommandHost, number: str) -> str:
    """Run /rewind: let the user pick a turn, and rewind with or without files."""
    snapshots, entries = _open_rewind(host)
    said = list_turns(entries)
    if snapshots is None or not said:
        return "Nothing to rewind."
    turn = await _choose_turn(host, said, number)
    return await _rewind_to(host, snapshots, entries, turn=turn) if turn else ""


async def _run_undo_command(host: CommandHost, _: str) -> str:
    """Run /undo: take back the last message and everything after it."""
    snapshots, entries = _open_rewind(host)
    said = list_turns(entries)
    if snapshots is None or not said:
        return "Nothing to undo."
    return await _rewind_to(host, snapshots, entries, turn=said[-1])


async def _run_redo_command(host: CommandHost, _: str) -> str:
    """Run /redo: take back the last rewind."""
    snapshots, entries = _open_rewind(host)
    if snapshots is None:
        return "Nothing to redo."
    way = await anyio.to_thread.run_sync(rewind.plan_rewind_undo, entries, snapshots)
    agent = host.session.runtime.agent
    outcome = rewind.apply_rewind(
        agent.session, snapshots, way, wrote=agent.world.processes.accept_change
    )
    return f"Undid the rewind: {_describe_restored(outcome)}."


def _open_rewind(host: CommandHost) -> tuple[Snapshots | None, list[Entry]]:
    """Open the snapshots and all entries for a rewind; raise `UserError` during a turn."""
    if host.session.running:
        raise UserError("A turn is running", fix="Stop it with Esc first.")
    agent = host.session.runtime.agent
    snapshots = agent.world.snapshots
    known = snapshots if isinstance(snapshots, Snapshots) else None
    return known, list(agent.session.all_entries())


async def _rewind_to(
    host: CommandHost, snapshots: Snapshots, entries: list[Entry], *, turn: ConversationTurn
) -> str:
    """Show what a rewind would restore, ask what to rewind, and do it."""
    agent, number = host.session.runtime.agent, turn.number - 1
    plan = partial(rewind.plan_rewind_to_turn, entries, snapshots, number=number)
    way = await anyio.to_thread.run_sync(plan)
    if diff := await anyio.to_thread.run_sync(
        rewind_commands.render_rewind_diff, way, snapshots, agent.world.root
    ):
        host.show_diff(diff)
    title = " ".join(turn.text.split())[:80]
    count = len(way.changes)
    what = "1 file changes" if count == 1 else f"{count or 'no'} files change"
    part = await host.pick_option(f"Rewind to before “{title}”? {what}.", REWIND_PARTS)
    if part is None:
        return ""
    if part:
        way = rewind.plan_rewind_to_turn(entries, snapshots, number=number, part="conversation")
    outcome = rewind.apply_rewind(
        agent.session, snapshots, way, wrote=agent.world.processes.accept_change
    )
    host.set_input(turn.text)
    kept = f", {len(way.theirs)} kept because others changed them" if way.theirs else ""
    files = f"{_describe_restored(outcome)}{kept}"
    return f"Rewound to before this message: {files}. /redo takes it back."


def _describe_restored(outcome: RestoreOutcome) -> str:
    """Say how many files a rewind restored and deleted."""
    counts = ((outcome.restored, "restored"), (outcome.deleted, "deleted"))
    told = [f"{count} file{'' if count == 1 else 's'} {what}" for count, what in counts if count]
    return ", ".join(told) or "no file changed"


async def _choose_turn(
    host: CommandHost, said: list[ConversationTurn], number: str
) -> ConversationTurn | None:
    """Return the turn for /rewind, together with all that followed it."""
    if number:
        found = [turn for turn in said if str(turn.number) == number]
        if not found:
            raise UserError(f"There is no turn {number}", why=f"the conversation has {len(said)}")
        return found[0]
    last = said[::-1][:MAX_TURNS_OFFERED]
    picked = await host.pick_option(
        "Rewind to before which message?",
        [(" ".join(turn.text.split())[:200], "") for turn in last],
    )
    return None if picked is None else last[picked]


async def _run_clear_command(host: CommandHost, _: str) -> str:
    host.switch_to(new_session_options(host.options))
    return ""


async def _run_copy_command(host: CommandHost, number: str) -> str:
    """Run /copy: copy one of the model's answers to the clipboard."""
    facts = (entry.fact for entry in host.session.runtime.agent.session.history())
    said = [
        text for one in facts if isinstance(one, Assistant) and (text := extract_text(one.content))
    ]
    back = int(number) if number.isdecimal() and int(number) else 1
    if len(said) < back:
        return "There is no answer to copy." if not said else f"There are only {len(said)} answers."
    host.copy_text(said[-back])
    return f"Copied {len(said[-back]):,} characters."


async def _run_output_command(host: CommandHost, number: str) -> str:
    """Run /output: show the whole result of the last tool call, or of the one N before."""
    facts = (entry.fact for entry in host.session.runtime.agent.session.history())
    found = [extract_text(one.content) for one in facts if isinstance(one, Result)]
    back = int(number) if number.isdecimal() and int(number) else 1
    if len(found) < back:
        return f"There are only {len(found)} results." if found else "There is no result yet."
    return escape_controls(found[-back]) or "The result is empty."


async def _run_paste_command(host: CommandHost, _: str) -> str:
    """Run /paste: attach the image on the clipboard, as a file named in the prompt."""
    data = await anyio.to_thread.run_sync(clipboard.read_image)
    folder = home.locate_home(os.environ).path / "pasted"
    path = folder / strftime("%Y%m%d-%H%M%S.png", localtime())
    await anyio.to_thread.run_sync(partial(_save_image, path, data))
    host.insert_input(f"{path} ")
    return ""


def _save_image(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(data)


async def _run_vim_command(host: CommandHost, _: str) -> str:
    """Run /vim: switch the vi keys on or off, also for new sessions."""
    is_on = host.toggle_vim()
    save_user_setting(home.locate_home(os.environ), "tui.vim", is_on)
    return f"The vi keys are {'on' if is_on else 'off'}, also in new sessions."


def _list_theme_names() -> tuple[str, ...]:
    return theme.list_themes((theme.own_themes_folder(os.environ),))


async def _run_theme_command(host: CommandHost, name: str) -> str:
    if not name:
        names, now = _list_theme_names(), load_workspace(host.options)[1].settings.tui.theme
        offers = [(_mark_current(one, now), THEME_MEANINGS.get(one, "")) for one in names]
        picked = await host.pick_option("Which theme?", offers)
        name = "" if picked is None else names[picked]
    if not name:
        return ""
    host.set_theme(name)
    save_user_setting(home.locate_home(os.environ), "tui.theme", name)
    return f"The theme is {name}, also in new sessions."


async def _run_style_command(host: CommandHost, name: str) -> str:
    known = _list_output_styles(host)
    if not name:
        picked = await host.pick_option(
            "Which output style for a new conversation?", list(known.items())
        )
        name = "" if picked is None else list(known)[picked]
    if name and name.casefold() not in map(str.casefold, known):
        raise UserError(
            f"There is no output style {name}", fix=f"Choose one of: {', '.join(known)}."
        )
    if name:
        host.switch_to(replace(new_session_options(host.options), style=name))
    return ""


def _list_output_styles(host: CommandHost) -> dict[str, str]:
    """Return all output styles with their descriptions."""
    place, loaded = load_workspace(host.options)
    found, _ = load_styles(skill_folders(place, loaded, host.options))
    return {DEFAULT_STYLE: "the standard style"} | {
        one.name: one.description for one in found.values()
    }


async def _run_quit_command(host: CommandHost, _: str) -> str:
    host.switch_to(None)
    return ""


TALK_COMMANDS = {
    "model": SlashCommand(
        "/model [NAME]", "switch to another model", _run_model_command, _model_names
    ),
    "effort": SlashCommand(
        "/effort [LEVEL]",
        "set the reasoning effort",
        _run_effort_command,
        lambda desk: EFFORT_WORDS,
    ),
    "mode": SlashCommand(
        "/mode [NAME]",
        "set the permission mode",
        _run_mode_command,
        lambda desk: PERMISSION_MODES,
        when="ever",
    ),
    "todos": SlashCommand("/todos", "show the todo list", _run_todos_command, when="ever"),
    "rewind": SlashCommand("/rewind [TURN]", "rewind files and conversation", _run_rewind_command),
    "undo": SlashCommand("/undo", "take back the last message and its changes", _run_undo_command),
    "redo": SlashCommand("/redo", "take back the last rewind", _run_redo_command),
    "copy": SlashCommand(
        "/copy [N]", "copy the last answer, or the one N before", _run_copy_command, when="ever"
    ),
    "output": SlashCommand(
        "/output [N]",
        "show the last result whole, or the one N before",
        _run_output_command,
        when="ever",
    ),
    "clear": SlashCommand("/clear", "start a new conversation", _run_clear_command),
    "theme": SlashCommand(
        "/theme [NAME]",
        "change the theme",
        _run_theme_command,
        lambda desk: _list_theme_names(),
        when="ever",
    ),
    "output-style": SlashCommand(
        "/output-style [NAME]",
        "start a new conversation in a style",
        _run_style_command,
        _list_output_styles,
    ),
    "paste": SlashCommand(
        "/paste", "attach the image on the clipboard", _run_paste_command, when="ever"
    ),
    "vim": SlashCommand("/vim", "switch vi keys on or off", _run_vim_command, when="ever"),
    "exit": SlashCommand("/exit", "exit", _run_quit_command),
    "quit": SlashCommand("/quit", "the same", _run_quit_command),
}
