"""Firing hooks at the points of a session where they run.

An agent without hooks pays for none of this: every point returns before it builds anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Changed, Failed, Noted, Result, User
from travois.core.json import as_object
from travois.engine.agent import Agent
from travois.engine.interpret_call import canonical_call_or_same
from travois.engine.sandbox_auto_allow import accept_sandbox
from travois.hooks import events
from travois.hooks.config import parse_hooks
from travois.hooks.output import NO_DECISION, HookContext, HookDecision
from travois.lazy_imports import lazy_imports
from travois.permissions.rules import ToolUse
from travois.permissions.updates import (
    SANDBOX_MODE,
    SAVED_DESTINATIONS,
    PermissionUpdate,
    apply_permission_update,
)
from travois.ports.tool import ToolOutcome
from travois.ports.world import ActivityShown, TerminalSignal, UserWarned

with lazy_imports():
    from travois.core import tool_conversions


HOOK_MODE_NAMES = {
    "accept-edits": "acceptEdits",
    "dont-ask": "dontAsk",
    "bypass": "bypassPermissions",
}
"""Modes by the names that hooks know, where those differ from ours."""
STOP_FAILURE_CODES = {
    "rate": "rate_limit",
    "overloaded": "overloaded",
    "auth": "authentication_failed",
    "quota": "billing_error",
    "invalid": "invalid_request",
    "server": "server_error",
}
"""API errors by the names that hooks know."""
MAX_HOOK_TEXT_CHARS = 10_000
HOOK_TEXT_PREVIEW_CHARS = 2_000
"""Limit of a hook's text for the model, and of the preview of a longer text."""
IDLE_REMINDER_SECONDS = 60.0
"""After how many seconds of silence a person is reminded."""
MAX_STOP_BLOCKS = 8
"""Consecutive Stop blocks after which the turn ends anyway."""


async def fire_hooks(
    agent: Agent, occasion: events.AnyHookEvent, *, call: str = "", use: ToolUse | None = None
) -> HookDecision:
    """Fire the hooks for an event; text for the model waits in the turn's inbox."""
    if agent.hooks.active is None:
        return NO_DECISION
    around = _build_hook_context(agent, call, use)
    heard = await agent.hooks.active.fire(
        occasion,
        around,
        record=agent.session.append,
        runner=partial(agent.hooks.run_inline, agent)
        if agent.hooks.run_inline is not None
        else None,
        show=lambda text: agent.session.emit(ActivityShown(text)),
    )
    for message in heard.messages:
        agent.session.emit(UserWarned(message))
    # What is said at PreCompact is for the summariser, who is asked by the caller.
    for text in () if isinstance(occasion, events.PreCompact) else heard.context:
        noted = Text(f"<hook>\n{shorten_hook_text(agent, text)}\n</hook>")
        agent.turn.inbox.append(User((noted,), origin="hook"))
    if heard.title:
        agent.session.append(Changed("name", heard.title))
    if heard.signal:
        agent.session.emit(TerminalSignal(heard.signal))
    if heard.exports:
        _save_exports(agent, dict(heard.exports))
    agent.turn.stop_reason = agent.turn.stop_reason or heard.stop
    return heard


def _build_hook_context(agent: Agent, call: str, use: ToolUse | None) -> HookContext:
    """Build the context that every hook receives besides the event."""
    mode, epoch = agent.permissions.guard.mode, agent.session.view.epoch
    id, kind = (agent.team.birth.id, agent.team.birth.kind) if agent.team.birth else ("", "")
    return HookContext(
        agent.session.state.get("cwd", agent.world.root),
        HOOK_MODE_NAMES.get(mode, mode),
        call,
        use,
        agent=id,
        kind=kind,
        effort=epoch.model.effort if epoch else "",
        model=epoch.model.id if epoch else "",
        turn=f"turn-{agent.turn.began}" if agent.turn.began else "",
        at=agent.runtime.clock(),
        transcript=agent.hooks.write_transcript(),
    )


def add_hooks(agent: Agent, tree: Mapping[str, object], *, origin: str, whose: str = "") -> None:
    """Add a skill's or subagent's hooks, as settings write them, until the session ends."""
    if not tree or agent.hooks.make is None:
        return
    parsed = parse_hooks(tree, origin=origin, whose=whose)
    for notice in parsed.notices:
        agent.session.emit(UserWarned(notice))
    agent.hooks.active = agent.hooks.active or agent.hooks.make()
    agent.hooks.active.update(parsed.hooks)


def shorten_hook_text(agent: Agent, text: str) -> str:
    """Shorten a hook's text to the limit for the model; the full text goes to a file."""
    if len(text) <= MAX_HOOK_TEXT_CHARS:
        return text
    last = agent.session.last
    name = f"hook-{last.seq if last else 0}-{len(agent.turn.inbox)}"
    path = agent.world.spill(name, text.encode(errors="replace"))
    return (
        f"{text[:HOOK_TEXT_PREVIEW_CHARS]}\n[{len(text):,} characters in total; full text: {path}]"
    )


def _save_exports(agent: Agent, exports: dict[str, str]) -> None:
    """Save environment variables that hooks export for later commands."""
    held = parse_exported_variables(agent.session.state.get("env", ""))
    agent.session.append(Changed("env", msgspec.json.encode(held | exports).decode()))


def parse_exported_variables(text: str) -> dict[str, str]:
    """Return the environment variables that hooks exported, from the session state."""
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


def decode_call_args(call: Call) -> object:
    """Decode a tool call's arguments for hooks; return text if they are not valid JSON."""
    try:
        return msgspec.json.decode(call.args or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return call.args


# --- a session and its turns ----------------------------------------------------------------------


async def on_user_prompt(agent: Agent, said: User) -> str:
    """Fire the UserPromptSubmit hooks; return why one blocks the prompt, else empty."""
    if agent.hooks.active is not None and said.origin == "human":
        title = agent.session.state.get("name", "")
        heard = await fire_hooks(agent, events.UserPromptSubmit(extract_text(said.content), title))
        if heard.block:
            agent.session.emit(UserWarned(f"The prompt was blocked by a hook: {heard.block}"))
            return heard.block
    return ""


async def on_stop(agent: Agent) -> bool:
    """Fire the Stop hooks; return whether one makes the model continue."""
    if agent.hooks.active is None or agent.session.view.replied < 0:
        return False
    heard = await fire_hooks(agent, _build_stop_event(agent))
    if not heard.block or heard.stop:
        return False
    if agent.turn.sent_back >= MAX_STOP_BLOCKS:
        agent.session.emit(
            UserWarned(f"A Stop hook blocked {MAX_STOP_BLOCKS} times in a row; ending the turn.")
        )
        return False
    agent.turn.sent_back += 1
    agent.session.append(User((Text(shorten_hook_text(agent, heard.block)),), origin="hook"))
    return True


def _build_stop_event(agent: Agent) -> events.Stop | events.SubagentStop:
    """Build the Stop event, or the SubagentStop event of a subagent."""
    active, last, birth = agent.turn.sent_back > 0, _get_last_reply(agent), agent.team.birth
    if birth is None:
        return events.Stop(active, last, tuple(_list_background_tasks(agent)), ())
    return events.SubagentStop(birth.id, birth.kind, birth.log, active, last)


def _list_background_tasks(agent: Agent) -> Iterator[events.BackgroundTask]:
    """Yield the background commands and subagents, for Stop hooks."""
    for id, job in agent.world.processes.jobs().items():
        if job.status is None:
            yield events.BackgroundTask(id, "shell", job.label)
    for id, child in agent.session.running.items():
        yield events.BackgroundTask(id, "subagent", child.what)


async def on_idle(agent: Agent, *, after: float = IDLE_REMINDER_SECONDS) -> None:
    """Fire the idle Notification hooks after this many seconds without input."""
    if agent.hooks.active is not None and agent.turn.began:
        await anyio.sleep(after)
        await notify_hooks(agent, "idle_prompt", "Travois is waiting for your input")


async def notify_hooks(agent: Agent, kind: str, message: str) -> None:
    """Fire the Notification hooks."""
    if agent.hooks.active is not None:
        await fire_hooks(agent, events.Notification(message, kind, "Travois"))


async def on_stop_failure(agent: Agent, why: str) -> None:
    """Fire the StopFailure hooks after a turn that ended with an API error."""
    last = agent.session.last
    if agent.hooks.active is None or last is None:
        return
    kind = last.fact.kind if isinstance(last.fact, Failed) else "unknown"
    await fire_hooks(
        agent,
        events.StopFailure(STOP_FAILURE_CODES.get(kind, "unknown"), why, _get_last_reply(agent)),
    )


def _get_last_reply(agent: Agent) -> str:
    """Return the text of the model's last reply, for Stop hooks."""
    view = agent.session.view
    reply = view.items[view.replied].fact if view.replied >= 0 else None
    return extract_text(reply.content) if isinstance(reply, Assistant) else ""


async def on_prompt_expansion(agent: Agent, occasion: events.UserPromptExpansion) -> str:
    """Fire the UserPromptExpansion hooks; return why one blocks the command, else empty."""
    heard = await fire_hooks(agent, occasion)
    return heard.block or heard.stop


# --- a call ---------------------------------------------------------------------------------------


async def on_pre_tool_use(agent: Agent, call: Call, use: ToolUse) -> HookDecision:
    """Fire the PreToolUse hooks for a call that neither rules nor the mode deny."""
    heard = NO_DECISION
    for given in _split_hook_inputs(call, use):
        occasion = events.PreToolUse(call.name, given, call.id)
        said = await fire_hooks(agent, occasion, call=call.id, use=use)
        if said.block or said.stop:
            return said
        # What one file of a patch must be asked about, all of it is.
        heard = said if not heard.decision or said.decision in ("ask", "defer") else heard
    return heard


def _split_hook_inputs(call: Call, use: ToolUse) -> list[object]:
    """Return a call's arguments as PreToolUse hooks see them: once per file of several."""
    given = decode_call_args(call)
    patch = as_object(given).get("input")
    if call.name == "ApplyRename":
        paths = [access.target for access in use.accesses]
    elif call.name == "ApplyPatch" and isinstance(patch, str):
        paths = list(dict.fromkeys(path for _, path in tool_conversions.list_patched_files(patch)))
    else:
        return [given]
    return [{**as_object(given), "file_path": path, "file_paths": paths} for path in paths] or [
        given
    ]


async def on_permission_denied(agent: Agent, call: Call, use: ToolUse, *, why: str) -> bool:
    """Fire the PermissionDenied hooks; return whether one lets the model retry."""
    occasion = events.PermissionDenied(call.name, decode_call_args(call), call.id, why)
    return (await fire_hooks(agent, occasion, call=call.id, use=use)).retry


def apply_permission_updates(agent: Agent, updates: tuple[msgspec.Raw, ...]) -> None:
    """Apply and log the permission updates in a hook's output."""
    for raw in updates:
        try:
            wanted = msgspec.json.decode(raw, type=PermissionUpdate)
            if wanted.type == "setMode" and wanted.mode == SANDBOX_MODE:
                accept_sandbox(agent)
            else:
                agent.permissions.guard = apply_permission_update(agent.permissions.guard, wanted)
        except (msgspec.DecodeError, ValueError) as error:
            agent.session.emit(UserWarned(f"A hook's permission update was ignored: {error}"))
            continue
        agent.session.append(Noted("hook changed permissions", bytes(raw).decode()))
        if wanted.destination in SAVED_DESTINATIONS:
            # A hook answers for the project that it runs in, whatever place it names.
            agent.permissions.save_rules(replace(wanted, destination="localSettings"))


async def on_post_tool_use(
    agent: Agent, call: Call, outcome: ToolOutcome, *, use: ToolUse, seconds: float
) -> ToolOutcome:
    """Fire the hooks after a tool call; return the outcome that the model sees."""
    lasted = round(seconds * 1000)
    for given in _split_hook_inputs(call, use):
        heard = await fire_hooks(
            agent, _build_result_event(call, given, outcome, lasted), call=call.id, use=use
        )
        if heard.block:
            note = f"A hook reports on the {call.name} call: {heard.block}"
            agent.turn.inbox.append(User((Text(shorten_hook_text(agent, note)),), origin="hook"))
        outcome = _replace_output(agent, call, outcome, heard) if heard.output else outcome
    return outcome


def _build_result_event(
    call: Call, given: object, outcome: ToolOutcome, lasted: int
) -> events.PostToolUse | events.PostToolUseFailure:
    """Build the PostToolUse or PostToolUseFailure event of a call."""
    if not outcome.error:
        return events.PostToolUse(call.name, given, build_tool_response(outcome), call.id, lasted)
    return events.PostToolUseFailure(
        call.name,
        given,
        call.id,
        error=extract_text(outcome.content),
        is_interrupt=False,
        duration_ms=lasted,
    )


def build_tool_response(outcome: ToolOutcome) -> object:
    """Build a tool result as PostToolUse hooks see it, with a command's output."""
    text = extract_text(outcome.content)
    found: object = msgspec.json.decode(outcome.detail) if outcome.detail else text
    return (
        {"stdout": text, "stderr": "", **as_object(found)}
        if "exitCode" in as_object(found)
        else found
    )


def _replace_output(
    agent: Agent, call: Call, outcome: ToolOutcome, decision: HookDecision
) -> ToolOutcome:
    """Replace a tool result by a PostToolUse hook's output; the original is kept as a blob."""
    blob = agent.world.blobs.put(msgspec.json.encode(outcome))
    kept = {"call": call.id, "blob": blob}
    agent.session.append(Noted("hook changed output", msgspec.json.encode(kept).decode()))
    value: object = msgspec.json.decode(decision.output)
    text = value if isinstance(value, str) else decision.output
    return msgspec.structs.replace(outcome, content=(Text(text),), detail=decision.output)


async def on_tool_batch(agent: Agent) -> None:
    """Fire the PostToolBatch hooks; return whether a block ends the turn."""
    view = agent.session.view
    reply, *rest = (item.fact for item in view.items[view.replied :])
    assert isinstance(reply, Assistant)
    shown = {fact.call: extract_text(fact.content) for fact in rest if isinstance(fact, Result)}
    answered = tuple(
        events.AnsweredCall(call.name, decode_call_args(call), call.id, shown.get(call.id, ""))
        for call in (
            canonical_call_or_same(one, agent.tools.by_name, agent.tools.find_mcp_tool)
            for one in extract_calls(reply.content)
        )
    )
    heard = await fire_hooks(agent, events.PostToolBatch(answered))
    agent.turn.stop_reason = agent.turn.stop_reason or heard.block
