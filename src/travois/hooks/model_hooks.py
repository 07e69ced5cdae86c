"""Hooks that are not commands: a prompt to a model, a read-only agent, or an MCP tool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from travois.context.window import current_model
from travois.core.content import Call, Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Entry, Epoch, User
from travois.core.json import as_object
from travois.core.view import project_view
from travois.engine.agent import Agent, SmallModel
from travois.engine.budget import BudgetExhausted
from travois.engine.fork import send_side_request
from travois.engine.tool_calls import InvalidCall, execute_call, parse_call
from travois.hooks.config import Hook
from travois.hooks.output import HookResult
from travois.ports.agents import HOOK_CALL, AgentOrder
from travois.ports.tool import ToolError
from travois.providers.replies import ApiError

VERDICT_PROMPT_FILE = Path(__file__).with_name("verdict.md")
EVENT_PLACEHOLDER = "$ARGUMENTS"
MAX_HOOK_AGENT_TURNS = 50
"""Turns of an agent that a hook starts, at most."""
EVENT_PATH_REFERENCE = re.compile(r"\$\{([\w.-]+)\}")
UNSAFE_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]")
TURN_ENDING_EVENTS = ("PostToolUse", "PostToolUseFailure")
"""Events at which what is not well ends the turn, unless the hook says that it goes on."""
STOP_EVENTS = ("Stop", "SubagentStop")
SMALL_MODEL_REFUSAL = "this model is too small to judge"


class ModelVerdict(msgspec.Struct, frozen=True):
    """The answer of a model that checked an event."""

    ok: bool
    reason: str = ""
    impossible: bool = False


async def run_model_hook(agent: Agent, hook: Hook, event: bytes) -> HookResult:
    """Run a prompt, agent or MCP tool hook; any error becomes its failure reason."""
    try:
        if hook.type == "mcp_tool":
            return await _call_mcp_tool(agent, hook, event)
        asked = _fill_hook_prompt(hook.prompt, event.decode())
        judge = _run_agent if hook.type == "agent" else _ask_model
        return _parse_model_verdict(hook, await judge(agent, hook, asked))
    except (ApiError, BudgetExhausted, ToolError, UserError) as error:
        return HookResult(failure=f"could not run: {error}")


def _fill_hook_prompt(prompt: str, event: str) -> str:
    """Insert the event into a model hook's prompt, or append it."""
    return (
        prompt.replace(EVENT_PLACEHOLDER, event)
        if EVENT_PLACEHOLDER in prompt
        else f"{prompt}\n\n{event}"
    )


def _parse_model_verdict(hook: Hook, text: str) -> HookResult:
    """Convert a model's verdict to the JSON that a command hook would print."""
    try:
        verdict = msgspec.json.decode(text[text.find("{") : text.rfind("}") + 1], type=ModelVerdict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return HookResult(failure=f"gave no verdict: {text[:200] or 'the reply is empty'}")
    why = verdict.reason or "a hook's check did not pass"
    output: dict[str, Any] = {"decision": "block", "reason": why}
    if verdict.ok:
        output = {}
    elif hook.event == "PermissionRequest":
        output = {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": why}}}
    elif hook.event in TURN_ENDING_EVENTS and not hook.continue_on_block:
        output = {"continue": False, "stopReason": why}
    elif verdict.impossible and hook.event in STOP_EVENTS:
        output = {"systemMessage": why}
    return HookResult(msgspec.json.encode(output).decode())


async def _ask_model(agent: Agent, hook: Hook, asked: str) -> str:
    """Ask the model that a prompt hook names, else a small model, else the session's model."""
    other = (
        agent.models.named(hook.model)
        if hook.model and agent.models.named is not None
        else agent.models.small()
    )
    judge = other or SmallModel(current_model(agent), agent.model)
    if judge.card.is_frail:
        raise ToolError(SMALL_MODEL_REFUSAL)
    at, head = (
        agent.runtime.clock(),
        Epoch(judge.card, VERDICT_PROMPT_FILE.read_text("utf-8").strip()),
    )
    view = project_view([Entry(1, at, head), Entry(2, at, User((Text(asked),)))])
    reply = await send_side_request(replace(agent, model=judge.model), view, what=HOOK_CALL)
    return extract_text(reply.content)


async def _run_agent(agent: Agent, hook: Hook, asked: str) -> str:
    """Run a read-only agent for an agent hook, and return its verdict."""
    if agent.team.children is None:
        raise ToolError("subagents are not available here")
    if current_model(agent).is_frail and not hook.model:
        raise ToolError(SMALL_MODEL_REFUSAL)
    small = agent.models.small()
    name = hook.model or (small.card.name if small else "")
    told = f"{VERDICT_PROMPT_FILE.read_text('utf-8').strip()}\n\n{asked}"
    order = AgentOrder(
        told, HOOK_CALL, "explore", call=HOOK_CALL, model=name, turns=MAX_HOOK_AGENT_TURNS
    )
    return (await agent.team.children.start(order)).text


async def _call_mcp_tool(agent: Agent, hook: Hook, event: bytes) -> HookResult:
    """Call the MCP tool of a hook, and return its result as the hook's output."""
    name = (
        f"mcp__{UNSAFE_NAME_CHARS.sub('_', hook.server)}__{UNSAFE_NAME_CHARS.sub('_', hook.tool)}"
    )
    ready = parse_call(agent, Call(HOOK_CALL, name, _fill_tool_args(hook, event)))
    if isinstance(ready, InvalidCall):
        return HookResult(failure=f"could not be called: {ready.why.partition('. The tools')[0]}")
    outcome = await execute_call(agent, ready, None)
    text = extract_text(outcome.content)
    return HookResult(failure=f"failed: {text[:200]}") if outcome.error else HookResult(text)


def _fill_tool_args(hook: Hook, event: bytes) -> str:
    """Fill `${path.of.field}` references in an MCP tool hook's input with event fields."""
    happened = as_object(msgspec.json.decode(event))

    def look_up_path(found: re.Match[str]) -> str:
        value: object = happened
        for name in found[1].split("."):
            value = as_object(value).get(name)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return msgspec.json.encode(text).decode()[1:-1]

    return EVENT_PATH_REFERENCE.sub(look_up_path, msgspec.json.encode(hook.input).decode())
