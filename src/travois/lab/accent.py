"""What the imitators of chat completions refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from travois.lab.dialects import Dialect
from travois.lab.objects import Json, inner, is_list, is_object, listed

NINE = re.compile(r"[A-Za-z0-9]{9}")
MISTRAL_FIELDS = frozenset(
    [
        "model",
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "top_p",
        "max_tokens",
        "stream",
        "stop",
        "random_seed",
        "response_format",
        "presence_penalty",
        "frequency_penalty",
        "n",
        "prediction",
        "parallel_tool_calls",
        "prompt_mode",
        "safe_prompt",
        "metadata",
    ]
)


def check(body: Json, accent: Dialect) -> Iterator[str]:
    """What is wrong with a request in the eyes of this server."""
    yield from _fields(body, accent)
    messages: list[Json] = body["messages"]
    if accent.ids == "nine":
        yield from _long_ids(messages)
    if accent.no_user_after_tool:
        for before, after in pairwise(messages):
            if before.get("role") == "tool" and after.get("role") == "user":
                yield "Unexpected role 'user' after role 'tool'"
    if accent.echo_reasoning:
        yield from _silent(messages)
    if accent.signatures:
        yield from _unsigned(messages)


def _fields(body: Json, accent: Dialect) -> Iterator[str]:
    if accent.forbid_extra:
        for field in sorted(body.keys() - MISTRAL_FIELDS):
            yield f"extra_forbidden: body.{field}: Extra inputs are not permitted"
    if accent.plain_choice and is_object(body.get("tool_choice")):
        yield "tool_choice: Input should be 'auto', 'none', 'any' or 'required'"
    if accent.text_parts and any(is_list(m.get("content")) for m in body["messages"]):
        yield "Failed to deserialize the JSON body: messages.content: expected a string"


def _ids(message: Json) -> list[Any]:
    ids = [call.get("id") for call in listed(message, "tool_calls")]
    return [*ids, message["tool_call_id"]] if "tool_call_id" in message else ids


def _long_ids(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        for id in _ids(message):
            if not isinstance(id, str) or not NINE.fullmatch(id):
                yield (f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.")


def _silent(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        if message.get("role") == "assistant" and "reasoning_content" not in message:
            yield "The reasoning_content in the thinking mode must be passed back to the API."
            return


def _unsigned(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        for call in listed(message, "tool_calls")[:1]:
            google = inner(inner(call, "extra_content"), "google")
            if not google.get("thought_signature"):
                name = inner(call, "function").get("name")
                yield f"Function call `{name}` is missing a thought_signature."
