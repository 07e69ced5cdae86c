"""What the host may ask of us while a session goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from travois.compose import commands as custom
from travois.compose import skills as skilled
from travois.compose.hooks import switching
from travois.compose.session import prepare
from travois.context.receipts import look
from travois.core.errors import Fault
from travois.core.facts import Changed, Entry, User
from travois.core.tokens import stop_at
from travois.engine.background_jobs import report_end, running_jobs
from travois.headless.control import files, listing, servers
from travois.headless.control.driven_session import Driven
from travois.headless.control.lines import Request
from travois.headless.json_shapes import Json, Object
from travois.headless.stream_json import uuid
from travois.hooks.fire import MODES
from travois.prompt.style_files import styles
from travois.prompt.style_text import DEFAULT
from travois.providers.options import worth
from travois.sdk import Session
from travois.snapshots import rewind as rewinding
from travois.snapshots.snapshots import Snapshots
from travois.version import __version__


async def hello(driven: Driven, request: Request) -> Object:
    """What there is to know of a session that begins."""
    crew = driven.session.crew
    return {
        "commands": listing.named(driven),
        "agents": listing.kinds(driven),
        "output_style": crew.style,
        **await _styles(driven, request),
        "models": listing.reachable(driven),
        "account": {"apiKeySource": crew.key_source},
        "pid": os.getpid(),
        "hooks_applied": True,
        "hook_on_failure_supported": True,
        "version": __version__,
    }


async def _styles(driven: Driven, request: Request) -> Object:
    known, _ = styles(skilled.places(*prepare(driven.options), driven.options))
    return {"available_output_styles": [DEFAULT, *(style.name for style in known.values())]}


async def _interrupt(driven: Driven, request: Request) -> Object:
    driven.session.stop()
    return {}


async def _mode(driven: Driven, request: Request) -> Object:
    driven.session.enter(request.mode)
    mode = driven.session.crew.agent.guard.mode
    return {"mode": MODES.get(mode, mode)}


async def _model(driven: Driven, request: Request) -> Object:
    """Between two turns; in the middle of one, after it."""
    named = request.model not in (None, "default")
    wanted = request.model if named and request.model else driven.model
    async with switching(driven.session.crew.agent, wanted, source="host"):
        await driven.go_on_with(wanted)
    return {}


async def _thinking(driven: Driven, request: Request) -> Object:
    """Models take no budget of tokens: the effort that comes nearest holds."""
    tokens = request.max_thinking_tokens
    effort = "" if tokens is None else worth(tokens)
    await driven.exert(effort)
    return {"effort": effort or None}


async def _context(driven: Driven, request: Request) -> Object:
    session, card = driven.session.crew.agent.session, driven.session.crew.model
    window = look(session.view, session.history(), cache=session.cache, now=time.time())
    rows: list[Json] = [
        {"name": kind, "tokens": size, "color": ""} for kind, size in window.sizes.items()
    ]
    tools: list[Json] = [
        {"name": one.source, "serverName": one.source.split("__")[1], "tokens": one.tokens}
        for one in window.portions
        if one.kind == "tools" and one.source.startswith("mcp__")
    ]
    return {
        "categories": rows,
        "totalTokens": window.used,
        "maxTokens": stop_at(card),
        "rawMaxTokens": card.window,
        "percentage": round(100 * window.used / card.window, 2),
        "model": card.id,
        "isAutoCompactEnabled": True,
        "memoryFiles": [],
        "mcpTools": tools,
        "agents": [],
        "gridRows": [],
    }


async def _cost(driven: Driven, request: Request) -> Object:
    return {"total_cost_usd": driven.session.crew.agent.session.dollars}


async def _plugins(driven: Driven, request: Request) -> Object:
    """Take over the commands and skills of plugins as they are on disk; all else stays."""
    crew, (place, loaded) = driven.session.crew, prepare(driven.options)
    driven.run.commands, notices = custom.known(driven.options)
    crew.agent.skills = skilled.skills(place, loaded, driven.options)
    crew.plugins = loaded.plugins
    return {
        "commands": listing.named(driven),
        "agents": listing.kinds(driven),
        "plugins": [{"name": one.name, "path": one.folder} for one in loaded.plugins],
        **await servers.status(driven, request),
        "error_count": len(notices),
    }


async def _stop_task(driven: Driven, request: Request) -> Object:
    agent, id = driven.session.crew.agent, request.task_id
    if agent.agents is not None and id in agent.agents.reports():
        await agent.agents.stop(id)
        return {}
    job = agent.world.processes.jobs().get(id)
    if job is None:
        raise Fault(f"There is no task {id!r}")
    if id in running_jobs(agent):
        agent.session.append(report_end(job, state="stopped by the user"))
    await job.kill()
    return {}


async def _rename(driven: Driven, request: Request) -> Object:
    driven.session.crew.agent.session.append(Changed("name", request.title))
    return {}


async def _rewind(driven: Driven, request: Request) -> Object:
    """Bring the files back to what they were before a person said something."""
    agent = driven.session.crew.agent
    if driven.session.running:
        raise Fault("A turn is under way", fix="Interrupt it first.")
    if not isinstance(agent.keeper, Snapshots):
        raise Fault("This session keeps no snapshots")
    entries = agent.session.history()
    number = _turn(driven.session, entries, driven.said, request.user_message_id)
    way = replace(rewinding.before_turn(entries, agent.keeper, number=number), to=0)
    changed: list[Json] = [os.fsdecode(change.path) for change in way.changes]
    if not request.dry_run:
        rewinding.go(agent.session, agent.keeper, way, wrote=agent.world.processes.accept)
    return {"canRewind": True, "filesChanged": changed}


def _turn(session: Session, entries: list[Entry], said: dict[str, int], wanted: str) -> int:
    """Which of the things that people said this one was, counted from nought."""
    human = [e.seq for e in entries if isinstance(e.fact, User) and e.fact.origin == "human"]
    names = {uuid(session.id, str(seq)): seq for seq in human} | said
    if names.get(wanted) not in human:
        raise Fault(f"There is no message {wanted!r} to go back to")
    return human.index(names[wanted])


ANSWERS: dict[str, Callable[[Driven, Request], Awaitable[Object]]] = {
    "initialize": hello,
    "interrupt": _interrupt,
    "set_permission_mode": _mode,
    "set_model": _model,
    "set_max_thinking_tokens": _thinking,
    "mcp_status": servers.status,
    "mcp_reconnect": servers.reconnect,
    "mcp_toggle": servers.toggle,
    "mcp_set_servers": servers.replaced,
    "mcp_message": servers.heard,
    "list_models": listing.models,
    "supported_models": listing.models,
    "supported_commands": listing.commands,
    "supported_agents": listing.agents,
    "reload_skills": listing.practised,
    "reload_plugins": _plugins,
    "reload_output_styles": _styles,
    "read_file": files.read,
    "seed_read_state": files.seed,
    "list_permission_rules": listing.rules,
    "get_hooks_listing": listing.hooks,
    "update_settings": listing.settings,
    "apply_flag_settings": listing.settings,
    "get_context_usage": _context,
    "get_session_cost": _cost,
    "stop_task": _stop_task,
    "rename_session": _rename,
    "rewind_files": _rewind,
}


async def answer(driven: Driven, request: Request) -> Object:
    """Do what the host asks; raises `Fault` if it cannot be done."""
    known = ANSWERS.get(request.subtype)
    if known is None:
        raise Fault(f"There is no control request {request.subtype!r} here")
    return await known(driven, request)
