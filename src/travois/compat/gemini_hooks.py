"""Payloads and outputs of hooks written for Gemini CLI.

It knows fewer events than we do, under other names, and calls tools otherwise.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from travois.core.json import as_object
from travois.hooks.config import gemini_tool_name
from travois.hooks.output import HookResult

GEMINI_EVENT_NAMES = {
    "PreToolUse": "BeforeTool",
    "PostToolUse": "AfterTool",
    "PostToolUseFailure": "AfterTool",
    "UserPromptSubmit": "BeforeAgent",
    "Stop": "AfterAgent",
    "PreCompact": "PreCompress",
}
"""Our names of events, and theirs."""
AFTER_TOOL_EVENTS = ("PostToolUse", "PostToolUseFailure")
ADVISORY_EVENTS = ("SessionStart", "SessionEnd", "Notification", "PreCompact")
"""Events at which such a hook has no say."""


def encode_gemini_hook_payload(heard: dict[str, Any], *, at: float) -> dict[str, Any]:
    """Encode a hook payload in Gemini CLI's format."""
    event = heard["hook_event_name"]
    found = {**heard, "hook_event_name": GEMINI_EVENT_NAMES.get(event, event)}
    found["timestamp"] = datetime.fromtimestamp(at, UTC).isoformat()
    if "tool_name" in heard:
        found["tool_name"] = gemini_tool_name(heard["tool_name"])
    if event in AFTER_TOOL_EVENTS:
        brought = heard.get("tool_response", heard.get("error"))
        brought = as_object(brought).get("stdout", brought)
        text = brought if isinstance(brought, str) else msgspec.json.encode(brought).decode()
        failed = {"error": {"message": text}} if "error" in heard else {}
        found["tool_response"] = {"llmContent": text, "returnDisplay": text, **failed}
    if event == "Stop":
        found["prompt_response"] = heard["last_assistant_message"]
    return found


def decode_gemini_hook_output(event: str, said: HookResult, given: object) -> HookResult:
    """Decode a Gemini hook's output to our format; `given` is the call's input."""
    if said.failure or said.status not in (0, 2):
        return said
    try:
        output = as_object(msgspec.json.decode(said.out)) if not said.status else {}
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return said
    if said.status:
        output = {"decision": "block", "reason": said.error.strip()}
    spoken = _translate_gemini_decision(event, output, as_object(given))
    return replace(said, out=msgspec.json.encode(spoken).decode(), status=0)


def _translate_gemini_decision(
    event: str, output: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """Translate the output of a Gemini CLI hook to our hook output."""
    own = as_object(output.get("hookSpecificOutput"))
    denied = output.get("decision") in ("deny", "block")
    kept = {key: value for key, value in output.items() if key != "decision"}
    if event in ADVISORY_EVENTS:
        return {key: kept[key] for key in ("systemMessage", "hookSpecificOutput") if key in kept}
    if "tool_input" in own:
        own = {**own, "updatedInput": {**given, **as_object(own["tool_input"])}}
    if event == "PostToolUse" and (denied or "tool_output" in own):
        own = {**own, "updatedToolOutput": own.get("tool_output") or output.get("reason") or ""}
        denied = False
    return {**kept, "hookSpecificOutput": own, **({"decision": "block"} if denied else {})}
