"""Handlers of control requests from the client."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import Json, JsonObject, make_line_uuid
from travois.compose import commands as custom
from travois.compose import hooks as hooking
from travois.compose import models as serving
from travois.compose import skills as skilled
from travois.compose.hooks import fire_model_switch
from travois.compose.live_session import LiveSession
from travois.compose.session import load_workspace
from travois.context.window import break_down_window
from travois.core.content import Call
from travois.core.errors import UserError
from travois.core.facts import Changed, Entry, User
from travois.core.models import Effort, ModelCard
from travois.core.tokens import stop_threshold
from travois.engine.background_jobs import build_end_report, running_jobs
from travois.engine.permission_gate import preapprove_call
from travois.engine.tool_calls import CallEnv, InvalidCall, parse_call
from travois.headless.control import servers
from travois.headless.control.driven_session import DrivenSession
from travois.headless.control.messages import ControlRequest
from travois.hooks.fire import HOOK_MODE_NAMES
from travois.permissions.rules import PermissionRule, RuleEffect, parse_permission_rule
from travois.permissions.updates import PermissionUpdate, RuleSpec, apply_permission_update
from travois.ports.tool import ToolError
from travois.ports.world import content_digest
from travois.prompt.briefing import list_available_skills
from travois.prompt.output_styles import DEFAULT_STYLE, load_styles
from travois.providers import catalog
from travois.providers.request import EFFORT_LEVELS, effort_for_thinking_tokens
from travois.sessions import home
from travois.settings.edit import save_user_setting
from travois.snapshots import rewind
from travois.snapshots.snapshots import Snapshots
from travois.tools.paths import absolute_path, require_file
from travois.tools.read import MAX_WHOLE_FILE_BYTES
from travois.version import __version__

# Listings, and the settings that a client can change.


RULE_EFFECTS: tuple[RuleEffect, ...] = ("allow", "ask", "deny")
MODE_SETTING = "permissions.defaultMode"
CHANGEABLE_SETTINGS = frozenset(
    ("model", "effortLevel", MODE_SETTING, *(f"permissions.{effect}" for effect in RULE_EFFECTS))
)
"""Settings that a running session accepts."""


async def answer_list_models(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the models whose API keys are set."""
    return {"models": list_reachable_models(driven)}


def list_reachable_models(driven: DrivenSession) -> list[Json]:
    """List the models for the client: the current one and those with an API key."""
    _, loaded = load_workspace(driven.options)
    among, own = serving.model_catalog(loaded), driven.session.runtime.model
    found: dict[str, Json] = {own.name: _model_json(own)}
    for name in among.models:
        model = catalog.resolve_model(name, os.environ, among=among)
        try:
            catalog.resolve_endpoint(model, os.environ, among=among)
        except UserError:
            continue
        found.setdefault(name, _model_json(model))
    return list(found.values())


def _model_json(model: ModelCard) -> Json:
    """Build a model's JSON for the client; frail models support no effort."""
    told: JsonObject = {"value": model.name, "displayName": model.id or model.name}
    told |= {"description": f"{model.window:,} tokens", "supportsEffort": not model.is_frail}
    return told if model.is_frail else {**told, "supportedEffortLevels": list(EFFORT_LEVELS)}


async def answer_list_commands(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the custom commands and skills."""
    return {"commands": list_custom_commands(driven)}


def list_custom_commands(driven: DrivenSession) -> list[Json]:
    """List each custom command with its description for the client."""
    return [
        {"name": one.name, "description": one.description, "argumentHint": one.hint}
        for one in driven.run.commands.values()
    ]


async def answer_list_agents(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the agent types."""
    return {"agents": agent_types_json(driven)}


def agent_types_json(driven: DrivenSession) -> list[Json]:
    """Build the JSON of each agent type with its description for the client."""
    agents = driven.session.runtime.agent.team.children
    known = agents.kinds.items() if agents is not None else ()
    return [{"name": name, "description": what} for name, what in known]


async def answer_reload_skills(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request to reload skills; they are reread before every turn."""
    known = list_available_skills(driven.session.runtime.agent).skills
    return {"skills": [{"name": one.name, "description": one.description} for one in known]}


async def answer_list_rules(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the permission rules in force with their sources."""
    known = driven.session.runtime.agent.permissions.guard.rules
    return {
        "rules": [
            {"behavior": rule.effect, "rule": rule.text, "source": rule.origin} for rule in known
        ]
    }


async def answer_list_hooks(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the hooks in settings; the client knows its own."""
    _, loaded = load_workspace(driven.options)
    known, _ = hooking.load_hooks(loaded)
    told: list[Json] = [
        {"event": h.event, "matcher": h.matcher, "what": h.name, "source": h.origin} for h in known
    ]
    return {"hooks": told}


async def answer_update_settings(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Apply the settings of a control request: all of them, or none."""
    asked = dict(_flatten_given_settings(request.settings or {}))
    if request.source:
        return _save_effort(request.source, asked)
    # Everything is checked before anything is applied, so that a refusal changes nothing.
    if strange := sorted(asked.keys() - CHANGEABLE_SETTINGS):
        why = f"a running session accepts only {', '.join(sorted(CHANGEABLE_SETTINGS))}"
        raise UserError(f"{', '.join(strange)} cannot be changed", why=why)
    effort = msgspec.convert(asked.get("effortLevel") or "", Effort)
    agent, guard = driven.session.runtime.agent, driven.session.runtime.agent.permissions.guard
    for effect in RULE_EFFECTS:
        texts = msgspec.convert(asked.get(f"permissions.{effect}", ()), tuple[str, ...])
        specs = tuple(
            RuleSpec(rule.tool, rule.what or None) for rule in _parse_given_rules(texts, effect)
        )
        guard = apply_permission_update(guard, PermissionUpdate("addRules", specs, behavior=effect))
    agent.permissions.guard = guard
    if MODE_SETTING in asked:
        driven.session.enter(str(asked[MODE_SETTING]))
    if "model" in asked:
        await driven.switch_model(str(asked["model"] or driven.model))
    if "effortLevel" in asked:
        await driven.set_effort(effort)
    return {}


def _save_effort(source: str, asked: JsonObject) -> JsonObject:
    """Save the effort of a control request to the user's settings file."""
    if source != "userSettings" or asked.keys() != {"effortLevel"}:
        raise UserError("Only effortLevel can be saved, and only in userSettings")
    effort = msgspec.convert(asked["effortLevel"], Effort)
    save_user_setting(home.locate_home(os.environ), "effortLevel", effort)
    return {}


def _parse_given_rules(texts: tuple[str, ...], effect: RuleEffect) -> list[PermissionRule]:
    """Parse the permission rules of a control request; raise `UserError` if one is invalid."""
    try:
        return [parse_permission_rule(text, effect) for text in texts]
    except ValueError as error:
        raise UserError("Invalid permission rule", why=str(error)) from None


def _flatten_given_settings(tree: JsonObject) -> list[tuple[str, Json]]:
    """Return the settings of a control request by dotted names."""
    found: list[tuple[str, Json]] = []
    for key, value in tree.items():
        inner = value.items() if key == "permissions" and isinstance(value, dict) else ()
        found += [(f"{key}.{name}", each) for name, each in inner] or [(key, value)]
    return found


# Files: a client gets only what the model may read without asking.


NOT_READABLE = "no rule allows Read to do that without asking"


async def answer_read_file(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for a file's content."""
    path, env, size = await _check_readable(driven, request.path)
    most = (
        MAX_WHOLE_FILE_BYTES
        if request.max_bytes is None
        else max(0, min(MAX_WHOLE_FILE_BYTES, request.max_bytes))
    )
    data = await env.files.read(path, limit=most)
    cut: JsonObject = {"truncated": True} if size > len(data) else {}
    if request.encoding == "base64":
        return {"contents": b64encode(data).decode(), "absPath": path, "encoding": "base64", **cut}
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=not cut)
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8", fix="Ask for it with encoding base64.") from None
    return {"contents": text, "absPath": path, **cut}


async def answer_seed_read_state(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Mark a file as read for a control request, if unchanged since the client saw it."""
    path, env, size = await _check_readable(driven, request.path)
    if size > MAX_WHOLE_FILE_BYTES:
        raise UserError(f"{path} is too large to read whole")
    data = await env.files.read(path)
    stat = await env.files.stat(path)
    if stat is None or int(stat.modified * 1000) > request.mtime:
        raise UserError(f"{path} has changed since", fix="Let the model read it.")
    driven.session.runtime.agent.session.append(Changed(f"seen:{path}", content_digest(data)))
    return {}


async def _check_readable(driven: DrivenSession, path: str) -> tuple[str, CallEnv, int]:
    """Return a file of a control request that Read may open, its environment and its size."""
    agent = driven.session.runtime.agent
    asked = Call("host", "Read", msgspec.json.encode({"file_path": path}).decode())
    ready = parse_call(agent, asked)
    if isinstance(ready, InvalidCall):
        raise UserError(f"{path} cannot be read", why=ready.why)
    if preapprove_call(agent, ready) is None:
        raise UserError(f"{path} may not be read", why=NOT_READABLE)
    env = CallEnv(agent, ready, None)
    whole = absolute_path(path, env.cwd)
    try:
        return whole, env, (await require_file(whole, env)).size
    except ToolError as refusal:
        raise UserError(f"{path} cannot be read", why=str(refusal)) from None


async def answer_initialize(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer the `initialize` control request with a description of the session."""
    runtime = driven.session.runtime
    return {
        "commands": list_custom_commands(driven),
        "agents": agent_types_json(driven),
        "output_style": runtime.style,
        **await _answer_output_styles(driven, request),
        "models": list_reachable_models(driven),
        "account": {"apiKeySource": runtime.key_source},
        "pid": os.getpid(),
        "hooks_applied": True,
        "hook_on_failure_supported": True,
        "version": __version__,
    }


async def _answer_output_styles(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    known, _ = load_styles(skilled.skill_folders(*load_workspace(driven.options), driven.options))
    return {"available_output_styles": [DEFAULT_STYLE, *(style.name for style in known.values())]}


async def _answer_interrupt(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    driven.session.stop()
    return {}


async def _answer_set_mode(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Switch the permission mode for a control request."""
    driven.session.enter(request.mode)
    mode = driven.session.runtime.agent.permissions.guard.mode
    return {"mode": HOOK_MODE_NAMES.get(mode, mode)}


async def _answer_set_model(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Switch the model; during a turn, after it."""
    named = request.model not in (None, "default")
    wanted = request.model if named and request.model else driven.model
    async with fire_model_switch(driven.session.runtime.agent, wanted, source="host"):
        await driven.switch_model(wanted)
    return {}


async def _answer_set_thinking(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Set the effort nearest to a thinking budget: models take no token budget here."""
    tokens = request.max_thinking_tokens
    effort = "" if tokens is None else effort_for_thinking_tokens(tokens)
    await driven.set_effort(effort)
    return {"effort": effort or None}


async def _answer_context_usage(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Answer a control request for the context window's use by category."""
    session, card = driven.session.runtime.agent.session, driven.session.runtime.model
    window = break_down_window(
        session.view, session.history(), cache=session.cache, now=time.time()
    )
    rows: list[Json] = [
        {"name": kind, "tokens": size, "color": ""} for kind, size in window.tokens_by_kind.items()
    ]
    tools: list[Json] = [
        {"name": one.source, "serverName": one.source.split("__")[1], "tokens": one.tokens}
        for one in window.portions
        if one.kind == "tools" and one.source.startswith("mcp__")
    ]
    return {
        "categories": rows,
        "totalTokens": window.total_tokens,
        "maxTokens": stop_threshold(card),
        "rawMaxTokens": card.window,
        "percentage": round(100 * window.total_tokens / card.window, 2),
        "model": card.id,
        "isAutoCompactEnabled": True,
        "memoryFiles": [],
        "mcpTools": tools,
        "agents": [],
        "gridRows": [],
    }


async def _answer_cost(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    return {"total_cost_usd": driven.session.runtime.agent.session.dollars}


async def _answer_reload_plugins(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Reload plugins' commands and skills for a control request; nothing else changes."""
    runtime, (place, loaded) = driven.session.runtime, load_workspace(driven.options)
    driven.run.commands, notices = custom.compose_commands(driven.options)
    runtime.agent.use_skills(skilled.compose_skills(place, loaded, driven.options))
    runtime.plugins = loaded.plugins
    return {
        "commands": list_custom_commands(driven),
        "agents": agent_types_json(driven),
        "plugins": [{"name": one.name, "path": one.folder} for one in loaded.plugins],
        **await servers.answer_mcp_status(driven, request),
        "error_count": len(notices),
    }


async def _answer_stop_task(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Stop a background agent or process for a control request."""
    agent, id = driven.session.runtime.agent, request.task_id
    if agent.team.children is not None and id in agent.team.children.reports():
        await agent.team.children.stop(id)
        return {}
    job = agent.world.processes.jobs().get(id)
    if job is None:
        raise UserError(f"There is no task {id!r}")
    if id in running_jobs(agent):
        agent.session.append(build_end_report(job, state="stopped by the user"))
    await job.kill()
    return {}


async def _answer_rename(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    driven.session.runtime.agent.session.append(Changed("name", request.title))
    return {}


async def _answer_rewind(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Restore the files before a user message, for a control request."""
    agent = driven.session.runtime.agent
    if driven.session.running:
        raise UserError("A turn is running", fix="Interrupt it first.")
    if not isinstance(agent.world.snapshots, Snapshots):
        raise UserError("This session has no snapshots")
    entries = agent.session.history()
    number = _find_turn_number(driven.session, entries, driven.said, request.user_message_id)
    way = replace(rewind.plan_rewind_to_turn(entries, agent.world.snapshots, number=number), to=0)
    changed: list[Json] = [os.fsdecode(change.path) for change in way.changes]
    if not request.dry_run:
        rewind.apply_rewind(
            agent.session, agent.world.snapshots, way, wrote=agent.world.processes.accept_change
        )
    return {"canRewind": True, "filesChanged": changed}


def _find_turn_number(
    session: LiveSession, entries: list[Entry], said: dict[str, int], wanted: str
) -> int:
    """Return the index of the user message that a control request rewinds to."""
    human = [e.seq for e in entries if isinstance(e.fact, User) and e.fact.origin == "human"]
    names = {make_line_uuid(session.id, str(seq)): seq for seq in human} | said
    if names.get(wanted) not in human:
        raise UserError(f"There is no message {wanted!r} to rewind to")
    return human.index(names[wanted])


REQUEST_HANDLERS: dict[str, Callable[[DrivenSession, ControlRequest], Awaitable[JsonObject]]] = {
    "initialize": answer_initialize,
    "interrupt": _answer_interrupt,
    "set_permission_mode": _answer_set_mode,
    "set_model": _answer_set_model,
    "set_max_thinking_tokens": _answer_set_thinking,
    "mcp_status": servers.answer_mcp_status,
    "mcp_reconnect": servers.answer_reconnect,
    "mcp_toggle": servers.answer_toggle,
    "mcp_set_servers": servers.answer_set_servers,
    "mcp_message": servers.answer_mcp_message,
    "list_models": answer_list_models,
    "supported_models": answer_list_models,
    "supported_commands": answer_list_commands,
    "supported_agents": answer_list_agents,
    "reload_skills": answer_reload_skills,
    "reload_plugins": _answer_reload_plugins,
    "reload_output_styles": _answer_output_styles,
    "read_file": answer_read_file,
    "seed_read_state": answer_seed_read_state,
    "list_permission_rules": answer_list_rules,
    "get_hooks_listing": answer_list_hooks,
    "update_settings": answer_update_settings,
    "apply_flag_settings": answer_update_settings,
    "get_context_usage": _answer_context_usage,
    "get_session_cost": _answer_cost,
    "stop_task": _answer_stop_task,
    "rename_session": _answer_rename,
    "rewind_files": _answer_rewind,
}


async def answer_request(driven: DrivenSession, request: ControlRequest) -> JsonObject:
    """Run a control request; raise `UserError` if it fails."""
    known = REQUEST_HANDLERS.get(request.subtype)
    if known is None:
        raise UserError(f"Unknown control request {request.subtype!r}")
    return await known(driven, request)
