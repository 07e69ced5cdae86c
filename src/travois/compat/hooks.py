"""Hook settings of Codex and Gemini CLI, translated to ours."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from travois.core.json import as_object
from travois.core.patterns import compile_lazily
from travois.hooks.config import gemini_tool_name
from travois.hooks.output import HookResult
from travois.settings.schema import Json
from travois.settings.validate import is_json_array, is_settings_tree

GEMINI_DIALECT = "gemini"
EVENTS_OF_GEMINI = {
    "BeforeTool": ("PreToolUse",),
    "AfterTool": ("PostToolUse", "PostToolUseFailure"),
    "BeforeAgent": ("UserPromptSubmit",),
    "AfterAgent": ("Stop",),
    "PreCompress": ("PreCompact",),
}
"""Gemini's events, and what they are called here."""
GEMINI_HOOK_TIMEOUT_MS = 60_000
"""The default timeout of a Gemini hook in milliseconds."""
APPLY_PATCH_PATTERN = compile_lazily(r"\bapply_patch\b")
"""The tool by which Codex changes files."""


def parse_codex_hooks(tree: Json) -> Json:
    """Parse the hooks of Codex's settings or hooks file."""
    written, features = _object_at(tree, "hooks"), _object_at(tree, "features")
    if False in (features.get("hooks"), features.get("codex_hooks")):
        return {}
    listed = ((event, groups) for event, groups in written.items() if is_json_array(groups))
    return {
        event: [_translate_patch_matcher(group) for group in groups] for event, groups in listed
    }


def _translate_patch_matcher(group: object) -> object:
    """Translate a Codex hook's matcher of apply_patch to our editing tools."""
    matcher = group.get("matcher") if is_settings_tree(group) else None
    if not is_settings_tree(group) or not isinstance(matcher, str):
        return group
    ours = "Edit|Write" if APPLY_PATCH_PATTERN.fullmatch(matcher) else "(?:Edit|Write)"
    return {**group, "matcher": APPLY_PATCH_PATTERN.sub(ours, matcher)}


def parse_gemini_hooks(tree: Json) -> Json:
    """Parse the hooks of Gemini's settings."""
    written, switches = _object_at(tree, "hooks"), _object_at(tree, "hooksConfig")
    if False in (written.get("enabled"), switches.get("enabled")):
        return {}
    off = [*_list_or_empty(written.get("disabled")), *_list_or_empty(switches.get("disabled"))]
    found: Json = {}
    for theirs, groups in written.items():
        kept = [
            _parse_gemini_group(one, off) for one in _list_or_empty(groups) if is_settings_tree(one)
        ]
        for event in EVENTS_OF_GEMINI.get(theirs, (theirs,)) if kept else ():
            found[event] = kept
    return found


def _parse_gemini_group(group: Json, off: list[object]) -> Json:
    """Translate a group of Gemini CLI hooks, without those that are disabled."""
    hooks = [one for one in _list_or_empty(group.get("hooks")) if is_settings_tree(one)]
    live = [one for one in hooks if one.get("name") not in off and one.get("command") not in off]
    return {**group, "hooks": [_parse_gemini_hook(one) for one in live]}


def _parse_gemini_hook(written: Json) -> Json:
    """Translate a Gemini CLI hook: its timeout from milliseconds to seconds, and its dialect."""
    wait = written.get("timeout")
    seconds = (
        wait if isinstance(wait, int | float) and wait > 0 else GEMINI_HOOK_TIMEOUT_MS
    ) / 1000
    return {**written, "timeout": seconds, "dialect": GEMINI_DIALECT}


def _object_at(tree: Json, key: str) -> Json:
    return inner if is_settings_tree(inner := tree.get(key)) else {}


def _list_or_empty(value: object) -> list[object]:
    return value if is_json_array(value) else []


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


def decode_gemini_hook_output(event: str, result: HookResult, given: object) -> HookResult:
    """Decode a Gemini hook's output to our format; `given` is the call's input."""
    if result.failure or result.status not in (0, 2):
        return result
    try:
        output = as_object(msgspec.json.decode(result.out)) if not result.status else {}
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return result
    if result.status:
        output = {"decision": "block", "reason": result.error.strip()}
    spoken = _translate_gemini_decision(event, output, as_object(given))
    return replace(result, out=msgspec.json.encode(spoken).decode(), status=0)


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
