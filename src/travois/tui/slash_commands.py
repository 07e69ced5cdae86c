"""The built-in slash commands."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from functools import partial
from time import localtime, strftime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio.to_thread
from anyio.streams.text import TextReceiveStream
from msgspec.structs import replace

from travois.agents.task_list import AgentTasks
from travois.compose import hooks, mcp
from travois.compose.hooks import LeaveReason, fire_model_switch
from travois.compose.memory import open_memories_here
from travois.compose.options import PICK_SESSION, Options
from travois.compose.session import load_workspace
from travois.compose.session_picker import SessionPicker
from travois.compose.skills import skill_folders
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Changed, User
from travois.core.tasks import task_remark
from travois.engine.agent import Agent
from travois.engine.background_jobs import build_end_report, running_jobs
from travois.lazy_imports import lazy_imports
from travois.permissions.decide import PERMISSION_MODES
from travois.ports.agents import Subagents
from travois.prompt.output_styles import DEFAULT_STYLE, load_styles
from travois.providers.request import EFFORT_LEVELS
from travois.sdk import Session
from travois.sessions import home
from travois.sessions.catalog import SessionSummary, find_session
from travois.settings.sources import ANSWERS_SOURCE
from travois.settings.validate import save_user_setting
from travois.snapshots import rewind
from travois.snapshots.snapshots import ConversationTurn, Snapshots, list_turns
from travois.terminal import capture_lines, escape_controls, format_table
from travois.tools.output import make_readable
from travois.tui import theme
from travois.tui.agent_progress import format_agent_progress, format_price, list_running_agents
from travois.tui.slash import CommandHost, SlashCommand

if TYPE_CHECKING:
    from travois.memory.store import FolderMemoryStore

with lazy_imports():
    from travois.commands import agents as agent_commands
    from travois.commands import context, dream, memory, models, permissions, sessions
    from travois.compose import dreaming
    from travois.context.compaction import compact


# /memory, and a line that begins with #.

MEMORY_WORDS = ("search", "show", "add", "forget", "undo", "history", "inbox", "accept", "reject")


async def _run_memory_command(desk: CommandHost, typed: str) -> str:
    """Run /memory: list, search, add and edit memories."""
    place, loaded = load_workspace(desk.options)
    known = open_memories_here(place.home, place.project, loaded)
    return await anyio.to_thread.run_sync(
        partial(_answer_memory_command, known, typed, session=desk.session.id)
    )


def _answer_memory_command(memories: FolderMemoryStore, typed: str, *, session: str) -> str:
    """Run a /memory subcommand with the code of `travois memory`."""
    word, _, rest = typed.partition(" ")
    now, rest = time.time(), rest.strip()

    def reject_memory(id: str) -> str:
        memories.reject(id)
        return f"Rejected {id}. It will not be proposed again."

    answers: dict[str, Callable[[], str]] = {
        "": lambda: memory.render_memory_table(memories, memories.read_all(), now=now),
        "search": lambda: memory.render_memory_table(
            memories, memories.search(rest, limit=10), now=now
        ),
        "show": lambda: memory.render_memory(memories, memories.get(rest), now=now),
        "add": lambda: memory.render_memory_change(
            memory.add_memory(memories, rest, session=session)
        ),
        "forget": lambda: memory.render_memory_change(memories.forget(rest)),
        "undo": lambda: memory.render_memory_change(memories.undo(rest)),
        "history": lambda: memory.render_history(memories.history(), now=now),
        "inbox": lambda: memory.render_proposals(memories.inbox(), now=now),
        "accept": lambda: memory.render_memory_change(memories.accept(rest)),
        "reject": lambda: reject_memory(rest),
    }
    if word not in answers:
        raise UserError(
            f"Unknown subcommand: /memory {word}", fix=f"Use {', '.join(MEMORY_WORDS)}."
        )
    return answers[word]().replace("travois memory", "/memory")


MEMORY_COMMANDS = {
    "memory": SlashCommand(
        "/memory [WORD …]",
        "list and edit memories; #TEXT adds one",
        _run_memory_command,
        lambda desk: MEMORY_WORDS,
        when="ever",
    )
}

# Command-line commands as slash commands: /config, /doctor, /search, /dream and /export.

EXPORT_FORMATS = {".html": "html", ".htm": "html", ".json": "json"}


async def capture_output(desk: CommandHost, run: Callable[[], object]) -> str:
    """Run a function in a thread and return what it prints."""

    def run_overheard() -> str:
        with capture_lines(desk.columns) as lines:
            run()
        return "\n".join(lines)

    return await anyio.to_thread.run_sync(run_overheard)


async def _run_config_command(desk: CommandHost, key: str) -> str:
    """Run /config: show settings and where they come from."""

    def explain_settings() -> str:
        loaded = load_workspace(desk.options)[1]
        found = models.find_settings(
            loaded, "" if key == "all" else key.removeprefix("explain").strip()
        )
        if not key:
            found = {
                k: v for k, v in found.items() if models.find_setting_origin(k, loaded) != "default"
            }
        return models.render_settings_table(found, loaded)

    more = "" if key else "\n\nAll other settings are defaults: /config all, or /config KEY."
    return await anyio.to_thread.run_sync(explain_settings) + more


async def _run_doctor_command(desk: CommandHost, _: str) -> str:
    """Run /doctor: check the sandbox, programs and model."""
    return await capture_output(desk, partial(models.run_doctor, Namespace(json=False)))


async def _run_search_command(desk: CommandHost, text: str) -> str:
    """Run /search: search past sessions."""
    flags = dict.fromkeys(("here", "json", "wait", "rebuild", "catch_up"), False)
    args = Namespace(text=[text], agent=None, limit=5, **flags)
    return (await capture_output(desk, partial(sessions.run_search, args))).replace(
        "travois --resume", "/resume"
    )


async def _run_dream_command(desk: CommandHost, word: str) -> str:
    """Run /dream: show or stop memory consolidation."""
    if word not in ("", "status", "stop"):
        raise UserError(f"Unknown subcommand: /dream {word}", fix="Use status or stop.")
    nights = dreaming.compose_dreaming(*load_workspace(desk.options))
    show = (
        partial(dream.stop_consolidation, nights)
        if word == "stop"
        else partial(dream.show_consolidations, nights, json=False)
    )
    return (await capture_output(desk, show)).replace("travois memory", "/memory")


async def _run_export_command(desk: CommandHost, name: str) -> str:
    """Run /export: write this session to a file."""
    path = os.path.expanduser(name) or strftime("travois-%Y%m%d-%H%M%S.md", localtime())
    if os.path.lexists(path):
        raise UserError(f"{path} already exists", fix="Choose another name.")
    kind = EXPORT_FORMATS.get(os.path.splitext(path)[1].lower(), "markdown")
    args = Namespace(session=desk.session.id, format=kind, output=path)
    return await capture_output(desk, partial(sessions.run_sessions_export, args))


PROGRAM_COMMANDS = {
    "search": SlashCommand(
        "/search TEXT", "search all sessions for words", _run_search_command, when="ever"
    ),
    "export": SlashCommand(
        "/export [FILE]", "save the conversation as .md, .html or .json", _run_export_command
    ),
    "config": SlashCommand(
        "/config [KEY]", "show settings and where they come from", _run_config_command, when="ever"
    ),
    "doctor": SlashCommand(
        "/doctor", "check the setup of this machine", _run_doctor_command, when="ever"
    ),
    "dream": SlashCommand(
        "/dream [stop]",
        "show or stop memory consolidation",
        _run_dream_command,
        lambda desk: ("status", "stop"),
        when="ever",
    ),
}


AGENT_HEADINGS = ("AGENT", "TYPE", "STATE", "TOKENS", "COST", "LAST TOOL", "DOING", "TASK")
MAX_TASK_LINES = 40
"""Last lines of a process that are shown."""


async def _run_agents_command(desk: CommandHost, typed: str) -> str:
    """Run /agents: list, show, message or stop subagents."""
    word, _, rest = typed.partition(" ")
    id, _, text = rest.strip().partition(" ")
    agent = desk.session.crew.agent
    agents = agent.team.children
    assert agents is not None
    match word:
        case "":
            return f"{_list_session_agents(agent, agents)}\n\n{_list_agent_types(agents)}"
        case "show":
            return await capture_output(
                desk, partial(agent_commands.show_agent, id, desk.session.id, json=False)
            )
        case "tell" if agents.send_message(id, text.strip(), sender="the user"):
            return f"Sent. {id} reads it before its next step."
        case "stop" if id in agents.reports():
            return f"{id}: {(await agents.stop(id)).state}."
        case "tell" | "stop":
            raise UserError(f"No running agent {id!r}", fix="/agents lists all agents.")
        case _:
            raise UserError(f"Unknown subcommand: /agents {word}", fix="Use show, tell or stop.")


def _list_session_agents(agent: Agent, agents: Subagents) -> str:
    """List the session's subagents as a table."""
    states = {id: report.state for id, report in agents.reports().items()}
    rows = [
        (
            id,
            born.kind,
            states.get(id, "ended"),
            *_agent_usage_cells(agents, id),
            escape_controls(born.what, lines="show"),
        )
        for id, born in agent.session.children.items()
    ]
    return format_table([AGENT_HEADINGS, *rows], right=(3, 4)) if rows else "No agents yet."


def _agent_usage_cells(agents: Subagents, id: str) -> tuple[str, str, str, str]:
    """Return an agent's tokens, cost, last tool and activity, as far as they are known."""
    now = agents.progress().get(id)
    if now is None:
        return ("", "", "", "")
    tool, doing = escape_controls(now.tool, lines="show"), escape_controls(now.doing, lines="show")
    return (f"{now.tokens:,}", format_price(now.dollars), tool, doing)


def _list_agent_types(agents: Subagents) -> str:
    rows = [(name, escape_controls(what, lines="show")) for name, what in agents.kinds.items()]
    return format_table([("TYPE", "FOR"), *rows])


async def _run_tasks_command(desk: CommandHost, typed: str) -> str:
    """Run /tasks: list, show or stop background tasks."""
    word, _, id = typed.partition(" ")
    agent = desk.session.crew.agent
    match word:
        case "":
            return _list_background_tasks(desk, agent)
        case "see" | "stop":
            return await _handle_task(desk, word, id.strip())
        case _:
            raise UserError(f"Unknown subcommand: /tasks {word}", fix="Use see or stop.")


def _list_background_tasks(desk: CommandHost, agent: Agent) -> str:
    """List background processes and subagents as a table."""
    programs = [
        (
            job.id,
            "running" if job.status is None else "ended",
            escape_controls(job.label, lines="show"),
        )
        for job in agent.world.processes.jobs().values()
    ]
    known = {now.id: format_agent_progress(now) for now in list_running_agents(agent)}
    helpers = [
        (id, "running", escape_controls(one.what, lines="show"), known.get(id, ""))
        for id, one in agent.session.running.items()
    ]
    rows = [*((*program, "") for program in programs), *helpers]
    heading = ("TASK", "STATE", "WHAT", "DOING")
    return format_table([heading, *rows]) if rows else "No background tasks."


async def _handle_task(desk: CommandHost, word: str, id: str) -> str:
    """Show or stop one background task."""
    agent = desk.session.crew.agent
    job = agent.world.processes.jobs().get(id)
    if job is None:
        return await _run_agents_command(desk, f"{'show' if word == 'see' else 'stop'} {id}")
    if word == "see":
        lines = make_readable(job.peek_output()).text.rstrip().split("\n")
        return "\n".join(lines[-MAX_TASK_LINES:]) or "No output that the model has not read yet."
    if job.status is not None:
        return f"{id} has already ended."
    if id in running_jobs(agent):  # before it ends: the model hears of it, but is not woken
        agent.session.append(build_end_report(job, state="stopped by the user"))
    await job.kill()
    return f"Stopped {id} and everything it started."


async def _run_mcp_command(desk: CommandHost, _: str) -> str:
    loan = desk.session.crew.loan
    rows = [
        tuple(escape_controls(cell, lines="show") for cell in row)
        for row in mcp.list_server_rows(loan)
    ]
    if not rows:
        return "No MCP servers. Add one with `travois mcp add`."
    said = format_table([("SERVER", "STATE", "TOOLS", "WHERE"), *rows])
    prompts = sorted(f"/{name}" for name in mcp.list_mcp_prompts(loan))
    return f"{said}\n\nPrompts: {', '.join(prompts)}" if prompts else said


async def _run_skills_command(desk: CommandHost, _: str) -> str:
    skills = desk.session.crew.agent.prompt.skills
    found = skills.load_always().skills if skills is not None else ()
    rows = [(one.name, escape_controls(one.description, lines="show")) for one in found]
    return (
        format_table([("SKILL", "FOR"), *rows])
        if rows
        else "No skills here or in your home folder."
    )


SIDE_COMMANDS = {
    "agents": SlashCommand(
        "/agents [WORD …]",
        "list agents and types; show, tell, stop ID",
        _run_agents_command,
        lambda desk: ("show", "tell", "stop"),
        when="ever",
    ),
    "tasks": SlashCommand(
        "/tasks [WORD ID]",
        "list background tasks; see, stop ID",
        _run_tasks_command,
        lambda desk: ("see", "stop"),
        when="ever",
    ),
    "mcp": SlashCommand("/mcp", "list MCP servers and their tools", _run_mcp_command, when="ever"),
    "skills": SlashCommand(
        "/skills", "list the skills that the model can use", _run_skills_command, when="ever"
    ),
}

# /permissions and /hooks.

PERMISSION_WORDS = ("why", "forget", "mode")


async def _run_permissions_command(desk: CommandHost, typed: str) -> str:
    """Run /permissions: show rules, explain decisions, set the mode."""
    word, _, rest = typed.partition(" ")
    guard, rest = desk.session.crew.agent.permissions.guard, rest.strip()
    match word:
        case "":
            bounds = desk.session.crew.agent.permissions.sandbox
            origin = "your answer, or the settings" if bounds is not None and bounds.free else ""
            rules = permissions.render_rule_table(guard.rules, sandboxed=origin)
            return f"Mode {guard.mode}.\n\n{rules}"
        case "why":
            args = Namespace(
                text=rest, mode=guard.mode, tool="Bash", settings=desk.options.settings
            )
            return await capture_output(desk, partial(permissions.run_permissions_why, args))
        case "forget":
            return await _forget_rule(desk, rest)
        case "mode":
            desk.session.enter(rest)
            return f"The mode is {desk.session.crew.agent.permissions.guard.mode}."
        case _:
            fix = f"Use {', '.join(PERMISSION_WORDS)}."
            raise UserError(f"Unknown subcommand: /permissions {word}", fix=fix)


async def _forget_rule(desk: CommandHost, rule: str) -> str:
    """Remove a saved permission answer, for this session and later ones."""
    await capture_output(desk, partial(permissions.run_permissions_forget, Namespace(rule=rule)))
    agent = desk.session.crew.agent
    if rule == permissions.SANDBOXED_COMMANDS and agent.permissions.sandbox is not None:
        agent.permissions.sandbox = replace(agent.permissions.sandbox, free=False, offered=True)
    answers = {(rule, origin) for origin in (ANSWERS_SOURCE, "your answer")}
    left = (one for one in agent.permissions.guard.rules if (one.text, one.origin) not in answers)
    agent.permissions.guard = replace(agent.permissions.guard, rules=tuple(left))
    return f"{rule} is no longer allowed by your answer."


async def _run_hooks_command(desk: CommandHost, _: str) -> str:
    found, notices = hooks.load_hooks(load_workspace(desk.options)[1])
    if not found and not notices:
        return "No hooks are configured."
    rows = [(one.event, one.matcher or "*", one.origin, one.name) for one in found]
    return "\n".join((format_table([("EVENT", "MATCHER", "SOURCE", "RUNS"), *rows]), *notices))


PERMISSION_COMMANDS = {
    "permissions": SlashCommand(
        "/permissions [WORD …]",
        "show rules; why COMMAND, forget RULE, mode NAME",
        _run_permissions_command,
        lambda desk: PERMISSION_WORDS,
        when="ever",
    ),
    "hooks": SlashCommand(
        "/hooks", "list hooks and where they come from", _run_hooks_command, when="ever"
    ),
}

# Sessions: /resume, /fork, /rename and /inspect.

SessionChooser = Callable[[SessionPicker], Awaitable[SessionSummary | None]]
INSPECTOR_START_SECONDS = 20.0
_inspector_addresses: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
"""The address of each session's inspector."""


async def choose_session(
    browse: SessionChooser, options: Options, *, but: str = ""
) -> Options | None:
    """Let the user choose a session to resume; None if they cancel."""
    place, _ = load_workspace(replace(options, resume=""))
    shelf = SessionPicker(place.home, place.project, but=but)
    found = await browse(shelf)
    return None if found is None else shelf.resume_options(found, options)


async def _run_resume_command(desk: CommandHost, name: str) -> str:
    if not name or name == PICK_SESSION:
        chosen = await choose_session(desk.pick_session, desk.options, but=desk.session.id)
    else:
        place, _ = load_workspace(desk.options)
        found = find_session(place.home, name, project=place.project)
        if found.id == desk.session.id:
            return "You are already in this session."
        chosen = SessionPicker(place.home, place.project).resume_options(found, desk.options)
    if chosen is not None:
        desk.switch_to(chosen)
    return ""


async def _run_fork_command(desk: CommandHost, _: str) -> str:
    session = desk.session
    if not session.crew.agent.session.prompted:
        return "Nothing to fork yet: send a message first."
    desk.switch_to(replace(desk.options, resume=session.id, latest=False, fork=True, session_id=""))
    return f"Forked. To return to the original: /resume {session.id[:8]}"


async def _run_rename_command(desk: CommandHost, name: str) -> str:
    if not name:
        raise UserError("/rename needs a name", fix="For example: /rename the parser")
    known = " ".join(name.split())
    desk.session.crew.agent.session.append(Changed("name", known))
    return f"Renamed. To resume it: /resume {known}"


async def _run_inspect_command(desk: CommandHost, _: str) -> str:
    session = desk.session
    if session not in _inspector_addresses:
        _inspector_addresses[session] = await _start_inspector(session)
    return f"View this session in the browser while it is open:\n{_inspector_addresses[session]}"


async def _start_inspector(session: Session) -> str:
    """Start the inspector as a process that ends with the session; return its address."""
    send, receive = anyio.create_memory_object_stream[str](1)
    beside = session.crew.agent.runtime.background
    assert beside is not None

    async def serve_inspector() -> None:
        command = (sys.executable, "-m", "travois", "inspect", session.id)
        async with await anyio.open_process(command) as process:
            assert process.stdout is not None and process.stderr is not None
            async for text in TextReceiveStream(process.stdout):
                send.send_nowait(text.partition("\n")[0])
                break
            async for text in TextReceiveStream(process.stderr):
                send.send_nowait(text)

    beside(serve_inspector)
    with anyio.move_on_after(INSPECTOR_START_SECONDS):
        told = await receive.receive()
        if told.startswith("http"):
            return told
        raise UserError("The inspector cannot start", why=told.removeprefix("travois: ").strip())
    raise UserError(
        "The inspector cannot start", why=f"no answer within {INSPECTOR_START_SECONDS:g} s"
    )


SESSION_COMMANDS = {
    "resume": SlashCommand("/resume [ID|NAME]", "resume another session", _run_resume_command),
    "fork": SlashCommand(
        "/fork", "fork this session; the original stays as it is", _run_fork_command
    ),
    "rename": SlashCommand("/rename NAME", "name this session", _run_rename_command, when="ever"),
    "inspect": SlashCommand(
        "/inspect", "inspect this session in the browser", _run_inspect_command, when="ever"
    ),
}

# The conversation: /model, /effort, /mode, /todos, /rewind, /clear, /theme and the like.

TODO_MARKS = {"completed": "✓", "in_progress": "▸", "pending": " ", "deleted": "-"}
MAX_TURNS_OFFERED = 30
EFFORT_WORDS = (*EFFORT_LEVELS, "auto")
REWIND_PARTS = (
    ("files and conversation", ""),
    ("conversation only", "files stay as they are"),
)


async def _run_model_command(desk: CommandHost, name: str) -> str:
    if name:
        async with fire_model_switch(desk.session.crew.agent, name, source="command"):
            await desk.session.switch_with_summary(name)
    return f"The model is {desk.session.crew.model.name}."


async def _run_effort_command(desk: CommandHost, level: str) -> str:
    if level:
        desk.session.exert("" if level == "auto" else level)
    return f"The effort is {desk.session.crew.model.effort or 'left to the model'}."


async def _run_mode_command(desk: CommandHost, name: str) -> str:
    if name:
        desk.session.enter(name)
    return f"The mode is {desk.session.crew.agent.permissions.guard.mode}."


async def _run_todos_command(desk: CommandHost, _: str) -> str:
    found = AgentTasks(desk.session.crew.agent).read()
    lines = (
        f"{TODO_MARKS[one.status]} #{one.id} {one.content}{task_remark(found, one)}"
        for one in found
    )
    return "\n".join(lines) or "No todos."


async def _run_rewind_command(desk: CommandHost, number: str) -> str:
    """Let the user pick a turn, and rewind the conversation with or without files."""
    agent = desk.session.crew.agent
    entries = agent.session.all_entries()
    said = list_turns(entries)
    if desk.session.running:
        raise UserError("A turn is running", fix="Stop it with Esc first.")
    if not isinstance(agent.world.snapshots, Snapshots) or not said:
        return "Nothing to rewind."
    turn = await _choose_turn(desk, said, number)
    part = await desk.pick_option("Rewind what?", REWIND_PARTS) if turn else None
    if turn is None or part is None:
        return ""
    way = rewind.plan_rewind_to_turn
    find = partial(
        way,
        entries,
        agent.world.snapshots,
        number=turn.number - 1,
        part=("all", "conversation")[part],
    )
    found = await anyio.to_thread.run_sync(find)
    outcome = rewind.apply_rewind(
        agent.session, agent.world.snapshots, found, wrote=agent.world.processes.accept_change
    )
    desk.set_input(turn.text)
    kept = f", {len(found.theirs)} kept because others changed them" if found.theirs else ""
    files = f"{outcome.restored} files restored, {outcome.deleted} deleted{kept}"
    return f"Rewound to before this message: {files}."


async def _choose_turn(
    desk: CommandHost, said: list[ConversationTurn], number: str
) -> ConversationTurn | None:
    """Return the turn to rewind, together with all that followed it."""
    if number:
        found = [turn for turn in said if str(turn.number) == number]
        if not found:
            raise UserError(f"There is no turn {number}", why=f"the conversation has {len(said)}")
        return found[0]
    last = said[::-1][:MAX_TURNS_OFFERED]
    picked = await desk.pick_option(
        "Rewind to before which message?",
        [(" ".join(turn.text.split())[:200], "") for turn in last],
    )
    return None if picked is None else last[picked]


def new_session_options(options: Options) -> Options:
    """Return the same options for a new, empty session."""
    return replace(options, resume="", latest=False, fork=False, session_id="", cleared=True)


def reason_for_leaving(options: Options | None) -> LeaveReason:
    """Return why the session ends, given the options of the next one."""
    if options is None:
        return "prompt_input_exit"
    return "resume" if options.resume or options.latest else "clear"


async def _run_clear_command(desk: CommandHost, _: str) -> str:
    desk.switch_to(new_session_options(desk.options))
    return ""


def _list_theme_names() -> tuple[str, ...]:
    return theme.list_themes((theme.own_themes_folder(os.environ),))


async def _run_theme_command(desk: CommandHost, name: str) -> str:
    if not name:
        names = _list_theme_names()
        picked = await desk.pick_option("Which theme?", [(one, "") for one in names])
        name = "" if picked is None else names[picked]
    if not name:
        return ""
    desk.set_theme(name)
    save_user_setting(home.locate_home(os.environ), "tui.theme", name)
    return f"The theme is {name}, also in new sessions."


async def _run_style_command(desk: CommandHost, name: str) -> str:
    known = _list_output_styles(desk)
    if not name:
        picked = await desk.pick_option(
            "Which output style for a new conversation?", list(known.items())
        )
        name = "" if picked is None else list(known)[picked]
    if name and name.casefold() not in map(str.casefold, known):
        raise UserError(
            f"There is no output style {name}", fix=f"Choose one of: {', '.join(known)}."
        )
    if name:
        desk.switch_to(replace(new_session_options(desk.options), style=name))
    return ""


def _list_output_styles(desk: CommandHost) -> dict[str, str]:
    """Return all output styles with their descriptions."""
    place, loaded = load_workspace(desk.options)
    found, _ = load_styles(skill_folders(place, loaded, desk.options))
    return {DEFAULT_STYLE: "the standard style"} | {
        one.name: one.description for one in found.values()
    }


async def _run_quit_command(desk: CommandHost, _: str) -> str:
    desk.switch_to(None)
    return ""


TALK_COMMANDS = {
    "model": SlashCommand("/model [NAME]", "switch to another model", _run_model_command),
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
    "quit": SlashCommand("/quit", "exit", _run_quit_command),
}

# Context and cost: /compact, /context, /notes and /cost.

MAX_MESSAGES_OFFERED = 100
FROM_MESSAGE, UP_TO_MESSAGE, PICK_MESSAGE = "from", "up-to", "pick"
COMPACT_PARTS = (
    ("everything but the newest messages", "as automatic compaction does"),
    ("from a message on", "messages before it stay, and so does the cache"),
    ("up to a message", "messages after it stay"),
)
COMPACT_SIDE_PATTERN = re.compile(r"(from|up-to)(?:\s+(\d+)(?:\s+(.*))?)?", re.DOTALL)


async def _run_compact_command(desk: CommandHost, typed: str) -> str:
    """Compact everything, or the messages on one side of a named or picked one."""
    if typed == PICK_MESSAGE:
        part = await desk.pick_option("Compact what?", COMPACT_PARTS)
        if part is None:
            return ""
        typed = ("", FROM_MESSAGE, UP_TO_MESSAGE)[part]
    chosen = COMPACT_SIDE_PATTERN.fullmatch(typed)
    if chosen is None:
        return compact.describe_compaction(await desk.session.compact(typed))
    entry = int(chosen[2]) if chosen[2] else await _pick_message(desk, chosen[1])
    if entry is None:
        return ""
    first, last = (entry, 0) if chosen[1] == FROM_MESSAGE else (0, entry)
    return compact.describe_compaction(
        await desk.session.compact(chosen[3] or "", first=first, last=last)
    )


async def _pick_message(desk: CommandHost, side: str) -> int | None:
    """Let the user pick one of their messages, newest first."""
    items = desk.session.crew.agent.session.view.items
    said = [
        (item.seq, " ".join(extract_text(item.fact.content).split())[:200])
        for item in items
        if isinstance(item.fact, User) and item.fact.origin == "human"
    ][::-1][:MAX_MESSAGES_OFFERED]
    if not said:
        raise UserError(
            "There is no message to choose", why="none of yours is in the context window"
        )
    title = (
        "Compact from which message on?" if side == FROM_MESSAGE else "Compact up to which message?"
    )
    picked = await desk.pick_option(title, [(text, "") for _, text in said])
    return None if picked is None else said[picked][0]


async def _run_context_command(desk: CommandHost, _: str) -> str:
    """Run /context: show what fills the context window."""
    agent = desk.session.crew.agent
    return context.describe_window(agent.session, agent.context.layers)


async def _run_notes_command(desk: CommandHost, _: str) -> str:
    """Run /notes: show the model's notes on the session."""
    return context.render_latest_notes(
        context.list_notes_versions(desk.session.crew.agent.session.all_entries())
    )


async def _run_cost_command(desk: CommandHost, _: str) -> str:
    """Run /cost: show the cost and the prompt cache misses."""
    cost = context.compute_session_cost(desk.session.crew.agent.session.all_entries())
    return context.render_session_cost(cost, time.time())


WINDOW_COMMANDS = {
    "compact": SlashCommand(
        "/compact [FOCUS | from [N] | up-to [N] | pick]",
        "compact older messages, or all on one side of a message",
        _run_compact_command,
        lambda desk: (FROM_MESSAGE, UP_TO_MESSAGE, PICK_MESSAGE),
        when="long",
    ),
    "context": SlashCommand(
        "/context", "show what fills the context window", _run_context_command, when="ever"
    ),
    "notes": SlashCommand(
        "/notes", "show the model's notes on the session", _run_notes_command, when="ever"
    ),
    "cost": SlashCommand(
        "/cost", "show the cost and prompt cache misses", _run_cost_command, when="ever"
    ),
}
