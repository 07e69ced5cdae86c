"""What the imitators of chat completions refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from travois_lab.dialects import Dialect
from travois_lab.objects import Json, inner, is_list, listed
from travois_lab.validate_chat import chat_faults

EXTRA = ("Unrecognized request argument", "Unknown parameter")
SILENT = "The reasoning_content in the thinking mode must be passed back to the API."


def check(raw: bytes, body: Json, accent: Dialect) -> list[str]:
    """What is wrong with a request in the eyes of this server."""
    found = chat_faults(raw, _judge(accent))
    if not accent.known_models_only and not accent.forbid_extra:
        found = [fault for fault in found if not fault.startswith(EXTRA)]
    return [*found, *_peculiar(body["messages"], accent)]


def _judge(accent: Dialect) -> Literal["openai", "mistral", "deepseek"]:
    if accent.name == "mistral":
        return "mistral"
    return "deepseek" if accent.name == "deepseek" else "openai"


def _peculiar(messages: list[Json], accent: Dialect) -> Iterator[str]:
    if accent.text_parts and any(is_list(m.get("content")) for m in messages):
        yield "Failed to deserialize the JSON body: messages.content: expected a string"
    if accent.echo_reasoning and any(map(_silent, messages)):
        yield SILENT
    if accent.signatures:
        yield from _unsigned(messages)


def _silent(message: Json) -> bool:
    return message.get("role") == "assistant" and "reasoning_content" not in message


def _unsigned(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        for call in listed(message, "tool_calls")[:1]:
            google = inner(inner(call, "extra_content"), "google")
            if not google.get("thought_signature"):
                name = inner(call, "function").get("name")
                yield f"Function call `{name}` is missing a thought_signature."
