"""`@hook`: a function that hears what happens in a session and may object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, Literal, cast, get_args

import msgspec

from travois.core.errors import UserError
from travois.core.json import as_object
from travois.extensions.function_tools import call_function
from travois.hooks.config import CALLBACK_TIMEOUT_SECONDS, Listener

HookEventName = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Notification",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Stop",
    "StopFailure",
    "FileChanged",
]


class HookEvent(msgspec.Struct, frozen=True):
    """What a hook function hears."""

    name: str
    """The name of the event, such as `PreToolUse`."""
    session_id: str = ""
    cwd: str = ""
    tool: str = ""
    """The called tool, at events of tools."""
    input: Mapping[str, Any] = {}
    """The arguments of the call."""
    output: Any = None
    """The result of the call, at `PostToolUse`."""
    prompt: str = ""
    """The prompt, at `UserPromptSubmit`."""
    raw: Mapping[str, Any] = {}
    """All fields, as a hook program reads them (docs/hooks.md)."""


class HookReply(msgspec.Struct, frozen=True):
    """What a hook function answers; each part that is left out changes nothing."""

    block: str = ""
    """The reason why this must not happen; at `Stop`, what is still to do."""
    allow: bool = False
    """True to let a call run without a question, at `PreToolUse`."""
    ask: str = ""
    """The reason to ask the person first, at `PreToolUse`."""
    input: Mapping[str, Any] | None = None
    """The arguments that the call should have instead, at `PreToolUse`."""
    context: str = ""
    """A text for the model."""
    stop: str = ""
    """The reason to end the whole turn."""


HookFunction = Callable[[HookEvent], HookReply | Awaitable[HookReply | None] | None]


class FunctionHook:
    """A function that hears one kind of event. It is still the function: calling it runs it."""

    def __init__(
        self,
        event: str,
        function: HookFunction,
        *,
        matcher: str = "",
        timeout: float = CALLBACK_TIMEOUT_SECONDS,
    ) -> None:
        if event not in get_args(HookEventName):
            fix = f"Choose one of: {', '.join(get_args(HookEventName))}."
            raise UserError(f"There is no hook event {event!r}", fix=fix)
        self.event = event
        self.function = function
        self.matcher = matcher
        self.timeout = timeout
        update_wrapper(cast("HookFunction", self), function)

    def __call__(self, event: HookEvent) -> HookReply | Awaitable[HookReply | None] | None:
        """Run the function itself."""
        return self.function(event)


def build_function_listener(hook: FunctionHook) -> Listener:
    """Build the listener of a hook; a function that fails blocks what it guards."""

    async def answer_event(payload: dict[str, Any]) -> object:
        event = _read_event(payload, hook.event)
        reply = await call_function(partial(hook.function, event))
        if reply is None:
            return None
        if not isinstance(reply, HookReply):
            raise TypeError(f"a hook returns HookReply or None, not {type(reply).__name__}")
        return encode_hook_reply(reply, event=event.name)

    guards = hook.event in ("PreToolUse", "UserPromptSubmit")
    return Listener(
        hook.event,
        answer_event,
        matcher=hook.matcher,
        timeout=hook.timeout,
        on_failure="block" if guards else "continue",
    )


def _read_event(payload: Mapping[str, Any], name: str) -> HookEvent:
    return HookEvent(
        name=str(payload.get("hook_event_name", name)),
        session_id=str(payload.get("session_id", "")),
        cwd=str(payload.get("cwd", "")),
        tool=str(payload.get("tool_name", "")),
        input=as_object(payload.get("tool_input")),
        output=payload.get("tool_response"),
        prompt=str(payload.get("prompt", "")),
        raw=payload,
    )


def encode_hook_reply(reply: HookReply, *, event: str) -> dict[str, object]:
    """Encode a hook's reply as the JSON that a hook program would print."""
    specific: dict[str, object] = {"hookEventName": event}
    if event == "PreToolUse" and (reply.block or reply.ask or reply.allow):
        decision = "deny" if reply.block else "ask" if reply.ask else "allow"
        specific |= {"permissionDecision": decision}
        specific |= {"permissionDecisionReason": reply.block or reply.ask}
    if reply.input is not None:
        specific["updatedInput"] = dict(reply.input)
    if reply.context:
        specific["additionalContext"] = reply.context
    told: dict[str, object] = {"hookSpecificOutput": specific} if len(specific) > 1 else {}
    if reply.block and event != "PreToolUse":
        told |= {"decision": "block", "reason": reply.block}
    return told | ({"continue": False, "stopReason": reply.stop} if reply.stop else {})


def hook(
    event: HookEventName, *, matcher: str = "", timeout: float = CALLBACK_TIMEOUT_SECONDS
) -> Callable[[HookFunction], FunctionHook]:
    """Make a hook of a function; `matcher` selects tools by name, such as `Bash|Write`."""
    return lambda function: FunctionHook(event, function, matcher=matcher, timeout=timeout)
