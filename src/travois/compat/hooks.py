"""Hook settings of Codex and Gemini CLI, translated to ours."""

from __future__ import annotations

import re

from travois.settings.schema import Json
from travois.settings.validate import is_json_array, is_settings_tree

GEMINI = "gemini"
EVENTS = {
    "BeforeTool": ("PreToolUse",),
    "AfterTool": ("PostToolUse", "PostToolUseFailure"),
    "BeforeAgent": ("UserPromptSubmit",),
    "AfterAgent": ("Stop",),
    "PreCompress": ("PreCompact",),
}
"""Gemini's events, and what they are called here."""
PATIENCE = 60_000
"""The default timeout of a Gemini hook in milliseconds."""
PATCH = re.compile(r"\bapply_patch\b")
"""The tool by which Codex changes files."""


def codex(tree: Json) -> Json:
    """Parse the hooks of Codex's settings or hooks file."""
    written, features = _inner(tree, "hooks"), _inner(tree, "features")
    if False in (features.get("hooks"), features.get("codex_hooks")):
        return {}
    listed = ((event, groups) for event, groups in written.items() if is_json_array(groups))
    return {event: [_editing(group) for group in groups] for event, groups in listed}


def _editing(group: object) -> object:
    """Translate a matcher of apply_patch to our editing tools."""
    matcher = group.get("matcher") if is_settings_tree(group) else None
    if not is_settings_tree(group) or not isinstance(matcher, str):
        return group
    ours = "Edit|Write" if PATCH.fullmatch(matcher) else "(?:Edit|Write)"
    return {**group, "matcher": PATCH.sub(ours, matcher)}


def gemini(tree: Json) -> Json:
    """Parse the hooks of Gemini's settings."""
    written, switches = _inner(tree, "hooks"), _inner(tree, "hooksConfig")
    if False in (written.get("enabled"), switches.get("enabled")):
        return {}
    off = [*_listed(written.get("disabled")), *_listed(switches.get("disabled"))]
    found: Json = {}
    for theirs, groups in written.items():
        kept = [_group(one, off) for one in _listed(groups) if is_settings_tree(one)]
        for event in EVENTS.get(theirs, (theirs,)) if kept else ():
            found[event] = kept
    return found


def _group(group: Json, off: list[object]) -> Json:
    hooks = [one for one in _listed(group.get("hooks")) if is_settings_tree(one)]
    live = [one for one in hooks if one.get("name") not in off and one.get("command") not in off]
    return {**group, "hooks": [_hook(one) for one in live]}


def _hook(written: Json) -> Json:
    wait = written.get("timeout")
    seconds = (wait if isinstance(wait, int | float) and wait > 0 else PATIENCE) / 1000
    return {**written, "timeout": seconds, "dialect": GEMINI}


def _inner(tree: Json, key: str) -> Json:
    return inner if is_settings_tree(inner := tree.get(key)) else {}


def _listed(value: object) -> list[object]:
    return value if is_json_array(value) else []
