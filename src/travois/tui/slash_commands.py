"""/agents, /tasks, /mcp and /skills: who and what works beside the conversation."""

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

import anyio
import anyio.to_thread
from anyio.streams.text import TextReceiveStream
from msgspec.structs import replace

from travois.agents.task_list import AgentTasks
from travois.compose import hooks as hooking
from travois.compose import mcp as lending
from travois.compose.hooks import Leaving, switching
from travois.compose.memory import open_here
from travois.compose.options import PICK, Options
from travois.compose.session import prepare
from travois.compose.session_picker import Shelf
from travois.compose.skills import places
from travois.core.content import words
from travois.core.errors import Fault
from travois.core.facts import Changed, User
from travois.core.tasks import task_remark
from travois.engine.agent import Agent
from travois.engine.background_jobs import report_end, running_jobs
from travois.permissions.decide import MODES
from travois.ports.agents import Agents
from travois.prompt.style_files import styles
from travois.prompt.style_text import DEFAULT
from travois.providers.options import LEVELS
from travois.sdk import Session
from travois.sessions import home as homes
from travois.sessions.catalog import Summary, find
from travois.settings.sources import ANSWERS
from travois.settings.validate import keep
from travois.snapshots import rewind as rewinding
from travois.snapshots.snapshots import Snapshots, Turn, turns
from travois.terminal.tables import clean, overheard, table
from travois.tools.output import readable
from travois.tui.agent_progress import price, progress_line, running_agents
from travois.tui.slash import Command, Desk

if TYPE_CHECKING:
    from travois.memory.store import FolderMemories


# /memory, and a line that begins with #: what is remembered, without leaving the conversation.


MEMORY_WORDS = ("search", "show", "add", "forget", "undo", "history", "inbox", "accept", "reject")


async def _memory(desk: Desk, typed: str) -> str:
    place, loaded = prepare(desk.options)
    known = open_here(place.home, place.project, loaded)
    return await anyio.to_thread.run_sync(partial(_answer, known, typed, session=desk.session.id))


def _answer(memories: FolderMemories, typed: str, *, session: str) -> str:
    from travois.commands import memory as change
    from travois.commands import memory as told

    word, _, rest = typed.partition(" ")
    now, rest = time.time(), rest.strip()

    def rejected(id: str) -> str:
        memories.reject(id)
        return f"{id} is rejected, and will not be proposed again."

    answers: dict[str, Callable[[], str]] = {
        "": lambda: told.listing(memories, memories.all(), now=now),
        "search": lambda: told.listing(memories, memories.search(rest, limit=10), now=now),
        "show": lambda: told.whole(memories, memories.get(rest), now=now),
        "add": lambda: change.render_change(change.keep(memories, rest, session=session)),
        "forget": lambda: change.render_change(memories.forget(rest)),
        "undo": lambda: change.render_change(memories.undo(rest)),
        "history": lambda: told.changes(memories.history(), now=now),
        "inbox": lambda: told.proposals(memories.inbox(), now=now),
        "accept": lambda: change.render_change(memories.accept(rest)),
        "reject": lambda: rejected(rest),
    }
    if word not in answers:
        raise Fault(f"/memory does not know {word!r}", fix=f"It knows: {', '.join(MEMORY_WORDS)}.")
    return answers[word]().replace("travois memory", "/memory")


MEMORY_COMMANDS = {
    "memory": Command(
        "/memory [WORD …]",
        "what is remembered; #TEXT adds to it",
        _memory,
        lambda desk: MEMORY_WORDS,
        when="ever",
    )
}


# What the command line answers, at the prompt: /config, /doctor, /search, /dream and /export.


KINDS = {".html": "html", ".htm": "html", ".json": "json"}


async def told(desk: Desk, run: Callable[[], object]) -> str:
    """What is said while something runs, which may take its time."""

    def listen() -> str:
        with overheard(desk.columns) as lines:
            run()
        return "\n".join(lines)

    return await anyio.to_thread.run_sync(listen)


async def _config(desk: Desk, key: str) -> str:
    from travois.commands import models

    def explain() -> str:
        loaded = prepare(desk.options)[1]
        found = models.find_settings(
            loaded, "" if key == "all" else key.removeprefix("explain").strip()
        )
        if not key:
            found = {k: v for k, v in found.items() if models.origin(k, loaded) != "default"}
        return models.listing(found, loaded)

    more = "" if key else "\n\nThe rest is as it comes: /config all, or /config KEY."
    return await anyio.to_thread.run_sync(explain) + more


async def _doctor(desk: Desk, _: str) -> str:
    from travois.commands import models

    return await told(desk, partial(models.run_doctor, Namespace(json=False)))


async def _search(desk: Desk, text: str) -> str:
    from travois.commands.sessions import run_search

    flags = dict.fromkeys(("here", "json", "wait", "rebuild", "catch_up"), False)
    args = Namespace(text=[text], agent=None, limit=5, **flags)
    return (await told(desk, partial(run_search, args))).replace("travois --resume", "/resume")


async def _dream(desk: Desk, word: str) -> str:
    from travois.commands import dream
    from travois.compose.dreaming import opened

    if word not in ("", "status", "stop"):
        raise Fault(f"/dream does not know {word!r}", fix="It knows: status, stop.")
    nights = opened(*prepare(desk.options))
    show = (
        partial(dream.stop, nights) if word == "stop" else partial(dream.show, nights, json=False)
    )
    return (await told(desk, show)).replace("travois memory", "/memory")


async def _export(desk: Desk, name: str) -> str:
    from travois.commands.sessions import run_export

    path = os.path.expanduser(name) or strftime("travois-%Y%m%d-%H%M%S.md", localtime())
    if os.path.lexists(path):
        raise Fault(f"{path} exists already", fix="Choose another name.")
    kind = KINDS.get(os.path.splitext(path)[1].lower(), "markdown")
    args = Namespace(session=desk.session.id, format=kind, output=path)
    return await told(desk, partial(run_export, args))


PROGRAM_COMMANDS = {
    "search": Command(
        "/search TEXT", "find a session by what was said in it", _search, when="ever"
    ),
    "export": Command("/export [FILE]", "the conversation as .md, .html or .json", _export),
    "config": Command(
        "/config [KEY]", "settings, and which file decided them", _config, when="ever"
    ),
    "doctor": Command("/doctor", "what works on this machine", _doctor, when="ever"),
    "dream": Command(
        "/dream [stop]",
        "how memories are put in order",
        _dream,
        lambda desk: ("status", "stop"),
        when="ever",
    ),
}


HEADING = ("AGENT", "TYPE", "STATE", "TOKENS", "COST", "LAST TOOL", "DOING", "TASK")
LINES = 40
"""How many of the last lines of a program are shown."""


async def _agents(desk: Desk, typed: str) -> str:
    word, _, rest = typed.partition(" ")
    id, _, text = rest.strip().partition(" ")
    agents = desk.session.crew.agent.team.children
    assert agents is not None
    match word:
        case "":
            return f"{_running(desk.session.crew.agent, agents)}\n\n{_kinds(agents)}"
        case "show":
            from travois.commands.agents import show_one

            return await told(desk, partial(show_one, id, desk.session.id, json=False))
        case "tell" if agents.tell(id, text.strip(), sender="the user"):
            return f"{id} hears of it at its next step."
        case "stop" if id in agents.reports():
            return f"{id}: {(await agents.stop(id)).state}."
        case "tell" | "stop":
            raise Fault(f"No agent {id!r} runs", fix="/agents lists those that do.")
        case _:
            raise Fault(f"/agents does not know {word!r}", fix="It knows: show, tell, stop.")


def _running(agent: Agent, agents: Agents) -> str:
    states = {id: report.state for id, report in agents.reports().items()}
    rows = [
        (id, born.kind, states.get(id, "ended"), *_used(agents, id), clean(born.what, lines="show"))
        for id, born in agent.session.children.items()
    ]
    return table([HEADING, *rows], right=(3, 4)) if rows else "No agents so far."


def _used(agents: Agents, id: str) -> tuple[str, str, str, str]:
    """What an agent has used, its last tool, and what it is doing, as far as this process knows."""
    now = agents.progress().get(id)
    if now is None:
        return ("", "", "", "")
    tool, doing = clean(now.tool, lines="show"), clean(now.doing, lines="show")
    return (f"{now.tokens:,}", price(now.dollars), tool, doing)


def _kinds(agents: Agents) -> str:
    rows = [(name, clean(what, lines="show")) for name, what in agents.kinds.items()]
    return table([("TYPE", "FOR"), *rows])


async def _tasks(desk: Desk, typed: str) -> str:
    word, _, id = typed.partition(" ")
    agent = desk.session.crew.agent
    match word:
        case "":
            return _listed(desk, agent)
        case "see" | "stop":
            return await _task(desk, word, id.strip())
        case _:
            raise Fault(f"/tasks does not know {word!r}", fix="It knows: see, stop.")


def _listed(desk: Desk, agent: Agent) -> str:
    programs = [
        (job.id, "running" if job.status is None else "ended", clean(job.label, lines="show"))
        for job in agent.world.processes.jobs().values()
    ]
    known = {now.id: progress_line(now) for now in running_agents(agent)}
    helpers = [
        (id, "running", clean(one.what, lines="show"), known.get(id, ""))
        for id, one in agent.session.running.items()
    ]
    rows = [*((*program, "") for program in programs), *helpers]
    heading = ("TASK", "STATE", "WHAT", "DOING")
    return table([heading, *rows]) if rows else "Nothing runs beside."


async def _task(desk: Desk, word: str, id: str) -> str:
    agent = desk.session.crew.agent
    job = agent.world.processes.jobs().get(id)
    if job is None:
        return await _agents(desk, f"{'show' if word == 'see' else 'stop'} {id}")
    if word == "see":
        lines = readable(job.waiting()).text.rstrip().split("\n")
        return "\n".join(lines[-LINES:]) or "It has said nothing that the model has not read."
    if job.status is not None:
        return f"{id} had ended before."
    if id in running_jobs(agent):  # before it ends: the model hears of it, but is not woken
        agent.session.append(report_end(job, state="stopped by the user"))
    await job.kill()
    return f"{id} was ended with all it had started."


async def _mcp(desk: Desk, _: str) -> str:
    loan = desk.session.crew.loan
    rows = [tuple(clean(cell, lines="show") for cell in row) for row in lending.rows(loan)]
    if not rows:
        return "No servers lend tools here; `travois mcp add` names one."
    said = table([("SERVER", "STATE", "TOOLS", "WHERE"), *rows])
    prompts = sorted(f"/{name}" for name in lending.prompts(loan))
    return f"{said}\n\nPrompts: {', '.join(prompts)}" if prompts else said


async def _skills(desk: Desk, _: str) -> str:
    skills = desk.session.crew.agent.prompt.skills
    found = skills.standing().skills if skills is not None else ()
    rows = [(one.name, clean(one.description, lines="show")) for one in found]
    return table([("SKILL", "FOR"), *rows]) if rows else "No skills: none lie here or at home."


SIDE_COMMANDS = {
    "agents": Command(
        "/agents [WORD …]",
        "agents and their types; show, tell, stop ID",
        _agents,
        lambda desk: ("show", "tell", "stop"),
        when="ever",
    ),
    "tasks": Command(
        "/tasks [WORD ID]",
        "what runs in the background; see, stop ID",
        _tasks,
        lambda desk: ("see", "stop"),
        when="ever",
    ),
    "mcp": Command("/mcp", "servers that lend tools", _mcp, when="ever"),
    "skills": Command("/skills", "what the model can read up on", _skills, when="ever"),
}


# /permissions and /hooks: what may happen, and what happens by itself.


PERMISSION_WORDS = ("why", "forget", "mode")


async def _permissions(desk: Desk, typed: str) -> str:
    from travois.commands import permissions

    word, _, rest = typed.partition(" ")
    guard, rest = desk.session.crew.agent.permissions.guard, rest.strip()
    match word:
        case "":
            bounds = desk.session.crew.agent.permissions.sandbox
            origin = "your answer, or the settings" if bounds is not None and bounds.free else ""
            rules = permissions.listing(guard.rules, sandboxed=origin)
            return f"Mode {guard.mode}.\n\n{rules}"
        case "why":
            args = Namespace(
                text=rest, mode=guard.mode, tool="Bash", settings=desk.options.settings
            )
            return await told(desk, partial(permissions.run_why, args))
        case "forget":
            return await _forget(desk, rest)
        case "mode":
            desk.session.enter(rest)
            return f"The mode is {desk.session.crew.agent.permissions.guard.mode}."
        case _:
            fix = f"It knows: {', '.join(PERMISSION_WORDS)}."
            raise Fault(f"/permissions does not know {word!r}", fix=fix)


async def _forget(desk: Desk, rule: str) -> str:
    """Drop an answer of the person's, for this session and those to come."""
    from travois.commands.permissions import SANDBOXED_COMMANDS, run_forget

    await told(desk, partial(run_forget, Namespace(rule=rule)))
    agent = desk.session.crew.agent
    if rule == SANDBOXED_COMMANDS and agent.permissions.sandbox is not None:
        agent.permissions.sandbox = replace(agent.permissions.sandbox, free=False, offered=True)
    answers = {(rule, origin) for origin in (ANSWERS, "your answer")}
    left = (one for one in agent.permissions.guard.rules if (one.text, one.origin) not in answers)
    agent.permissions.guard = replace(agent.permissions.guard, rules=tuple(left))
    return f"{rule} is no longer allowed by an answer of yours."


async def _hooks(desk: Desk, _: str) -> str:
    hooks, notices = hooking.known(prepare(desk.options)[1])
    if not hooks and not notices:
        return "No hooks: nothing runs by itself here."
    rows = [(one.event, one.matcher or "*", one.origin, one.name) for one in hooks]
    return "\n".join((table([("EVENT", "FOR", "SAID BY", "RUNS"), *rows]), *notices))


PERMISSION_COMMANDS = {
    "permissions": Command(
        "/permissions [WORD …]",
        "rules in force; why COMMAND, forget RULE, mode NAME",
        _permissions,
        lambda desk: PERMISSION_WORDS,
        when="ever",
    ),
    "hooks": Command("/hooks", "what runs by itself, and who said so", _hooks, when="ever"),
}


# /resume, /fork, /rename and /inspect: this session among the others.


Browse = Callable[[Shelf], Awaitable[Summary | None]]
PATIENCE = 20.0
_pages: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
"""Where the page of a session can be looked at."""


async def pick_up(browse: Browse, options: Options, *, but: str = "") -> Options | None:
    """The session that a person chooses to go on with; None if they turn away."""
    place, _ = prepare(replace(options, resume=""))
    shelf = Shelf(place.home, place.project, but=but)
    found = await browse(shelf)
    return None if found is None else shelf.options(found, options)


async def _resume(desk: Desk, name: str) -> str:
    if not name or name == PICK:
        chosen = await pick_up(desk.browse, desk.options, but=desk.session.id)
    else:
        place, _ = prepare(desk.options)
        found = find(place.home, name, project=place.project)
        if found.id == desk.session.id:
            return "This is that session."
        chosen = Shelf(place.home, place.project).options(found, desk.options)
    if chosen is not None:
        desk.turn_to(chosen)
    return ""


async def _fork(desk: Desk, _: str) -> str:
    session = desk.session
    if not session.crew.agent.session.prompted:
        return "Nothing was said yet that a branch could begin with."
    desk.turn_to(replace(desk.options, resume=session.id, latest=False, fork=True, session_id=""))
    return f"Branching off. The session as it was: /resume {session.id[:8]}"


async def _rename(desk: Desk, name: str) -> str:
    if not name:
        raise Fault("A name cannot be empty", fix="For example: /rename the parser")
    known = " ".join(name.split())
    desk.session.crew.agent.session.append(Changed("name", known))
    return f"It is called so: /resume {known}"


async def _inspect(desk: Desk, _: str) -> str:
    session = desk.session
    if session not in _pages:
        _pages[session] = await _shown(session)
    return f"The page shows this session while it is open:\n{_pages[session]}"


async def _shown(session: Session) -> str:
    """Start the page in a process of its own, which ends with the session; gives its address."""
    send, receive = anyio.create_memory_object_stream[str](1)
    beside = session.crew.agent.runtime.background
    assert beside is not None

    async def serve() -> None:
        command = (sys.executable, "-m", "travois", "inspect", session.id)
        async with await anyio.open_process(command) as process:
            assert process.stdout is not None and process.stderr is not None
            async for text in TextReceiveStream(process.stdout):
                send.send_nowait(text.partition("\n")[0])
                break
            async for text in TextReceiveStream(process.stderr):
                send.send_nowait(text)

    beside(serve)
    with anyio.move_on_after(PATIENCE):
        told = await receive.receive()
        if told.startswith("http"):
            return told
        raise Fault("The page cannot be shown", why=told.removeprefix("travois: ").strip())
    raise Fault("The page cannot be shown", why="it does not start")


SESSION_COMMANDS = {
    "resume": Command("/resume [ID|NAME]", "go on with another session", _resume),
    "fork": Command("/fork", "branch off here; the session stays as it is", _fork),
    "rename": Command("/rename NAME", "give this session a name", _rename, when="ever"),
    "inspect": Command(
        "/inspect", "look inside this session in the browser", _inspect, when="ever"
    ),
}


# The conversation itself: /model, /effort, /mode, /todos, /rewind, /clear, /theme and the like.


MARKS = {"completed": "✓", "in_progress": "▸", "pending": " ", "deleted": "-"}
MAX_TURNS_OFFERED = 30
EFFORTS = (*LEVELS, "auto")
THEMES = ("auto", "dark", "light", "none")
REWIND_PARTS = (
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
    return f"The mode is {desk.session.crew.agent.permissions.guard.mode}."


async def _todos(desk: Desk, _: str) -> str:
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
    if not isinstance(agent.world.snapshots, Snapshots) or not said:
        return "There is nothing to go back to."
    turn = await _chosen(desk, said, number)
    part = await desk.pick("What goes back?", REWIND_PARTS) if turn else None
    if turn is None or part is None:
        return ""
    way = rewinding.before_turn
    find = partial(
        way,
        entries,
        agent.world.snapshots,
        number=turn.number - 1,
        part=("all", "conversation")[part],
    )
    found = await anyio.to_thread.run_sync(find)
    outcome = rewinding.go(
        agent.session, agent.world.snapshots, found, wrote=agent.world.processes.accept
    )
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
    last = said[::-1][:MAX_TURNS_OFFERED]
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
    place, loaded = prepare(desk.options)
    found, _ = styles(places(place, loaded, desk.options))
    return {DEFAULT: "as we speak"} | {one.name: one.description for one in found.values()}


async def _quit(desk: Desk, _: str) -> str:
    desk.turn_to(None)
    return ""


TALK_COMMANDS = {
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


# /compact, /context, /notes and /cost: what is in the window, and what it costs.


MAX_MESSAGES_OFFERED = 100
"""How many messages are offered at most."""
FROM, UP_TO, PICK_MESSAGE = "from", "up-to", "pick"
COMPACT_PARTS = (
    ("everything but the newest messages", "as when it starts by itself"),
    ("from a message on", "what stands before it stays as it is, and so does its cache"),
    ("up to a message", "what comes after it stays as it is"),
)


CHOSEN = re.compile(r"(from|up-to)(?:\s+(\d+)(?:\s+(.*))?)?", re.DOTALL)


async def _compact(desk: Desk, typed: str) -> str:
    """Compact all, or what stands on one side of a message that is named or picked."""
    from travois.context.compaction.compact import receipt

    if typed == PICK_MESSAGE:
        part = await desk.pick("What is to be set aside?", COMPACT_PARTS)
        if part is None:
            return ""
        typed = ("", FROM, UP_TO)[part]
    chosen = CHOSEN.fullmatch(typed)
    if chosen is None:
        return receipt(await desk.session.compact(typed))
    entry = int(chosen[2]) if chosen[2] else await _picked(desk, chosen[1])
    if entry is None:
        return ""
    first, last = (entry, 0) if chosen[1] == FROM else (0, entry)
    return receipt(await desk.session.compact(chosen[3] or "", first=first, last=last))


async def _picked(desk: Desk, side: str) -> int | None:
    """Let the person pick one of their messages; the newest is pointed at first."""
    items = desk.session.crew.agent.session.view.items
    said = [
        (item.seq, " ".join(words(item.fact.content).split())[:200])
        for item in items
        if isinstance(item.fact, User) and item.fact.origin == "human"
    ][::-1][:MAX_MESSAGES_OFFERED]
    if not said:
        raise Fault("There is no message to choose", why="nothing that you said is in the window")
    title = "Set aside from which message on?" if side == FROM else "Set aside up to which message?"
    picked = await desk.pick(title, [(text, "") for _, text in said])
    return None if picked is None else said[picked][0]


async def _context(desk: Desk, _: str) -> str:
    from travois.commands.context import line

    agent = desk.session.crew.agent
    return line(agent.session, agent.context.layers)


async def _notes(desk: Desk, _: str) -> str:
    from travois.commands.context import told, versions

    return told(versions(desk.session.crew.agent.session.record()))


async def _cost(desk: Desk, _: str) -> str:
    from travois.commands.context import bill, render_bill

    return render_bill(bill(desk.session.crew.agent.session.record()), time.time())


WINDOW_COMMANDS = {
    "compact": Command(
        "/compact [FOCUS | from [N] | up-to [N] | pick]",
        "set the older conversation aside, or what is on one side of a message",
        _compact,
        lambda desk: (FROM, UP_TO, PICK_MESSAGE),
        when="long",
    ),
    "context": Command("/context", "what is in the window", _context, when="ever"),
    "notes": Command(
        "/notes", "the notes that the model keeps on the session", _notes, when="ever"
    ),
    "cost": Command(
        "/cost", "what the session cost, and what its cache missed", _cost, when="ever"
    ),
}
