"""Tool calls that a model wrote as text, for models known to do so."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from travois.core.content import Call
from travois.core.json import rows, string, table
from travois.providers.chat_calls import made_id

TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
MISTRAL = re.compile(r"\[TOOL_CALLS\]\s*(\[.*\])\s*\Z", re.DOTALL)
FENCED = re.compile(r"\A\s*```(?:json|tool_call)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


def split(text: str, *, reply: str) -> tuple[str, tuple[Call, ...]]:
    """The words and the calls of a text; a text without whole calls stays as it is."""
    for pattern in (TAGGED, MISTRAL, FENCED):
        found = [call for match in pattern.findall(text) for call in _calls(match)]
        if found:
            made = (_call(call, reply=reply, index=n) for n, call in enumerate(found))
            return pattern.sub("", text).strip(), tuple(made)
    return text, ()


def _calls(text: str) -> list[dict[str, Any]]:
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return []
    every = [table(one) for one in rows(parsed) or [parsed]]
    return every if all(string(one.get("name")) for one in every) else []


def _call(call: dict[str, Any], *, reply: str, index: int) -> Call:
    args = call.get("arguments", call.get("parameters"))
    text = args if isinstance(args, str) else msgspec.json.encode(args or {}).decode()
    return Call(made_id(reply, index), call["name"], text)
