"""A strict judge of chat-completion requests, with the peculiarities of single servers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import msgspec

from travois_lab.validate_blocks import NAME, Json, is_like, item, items, names

Dialect = Literal["openai", "mistral", "deepseek"]

FIELDS = names(
    "model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens "
    "max_completion_tokens temperature top_p n stop presence_penalty frequency_penalty logit_bias "
    "logprobs top_logprobs user seed response_format reasoning_effort verbosity metadata store "
    "service_tier prompt_cache_key prompt_cache_options safety_identifier modalities prediction "
    "web_search_options usage reasoning thinking provider"
)
MISTRAL_FIELDS = names(
    "model messages tools tool_choice parallel_tool_calls stream max_tokens temperature top_p n "
    "stop presence_penalty frequency_penalty random_seed response_format prediction prompt_mode "
    "safe_prompt metadata"
)
MEMBERS = {
    "system": names("role content name"),
    "developer": names("role content name"),
    "user": names("role content name"),
    "assistant": names(
        "role content name tool_calls refusal audio reasoning_content reasoning_details"
    ),
    "tool": names("role content tool_call_id"),
}
PARTS = frozenset(("text", "image_url", "input_audio", "file"))


def chat_faults(body: bytes, dialect: Dialect = "openai") -> list[str]:
    """Everything that is wrong with this request; the first is what the server would say."""
    try:
        request = msgspec.json.decode(body, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [f"We could not parse the JSON body of your request: {error}"]
    messages = items(request.get("messages"))
    shapes = (fault for n, m in enumerate(messages) for fault in _message(f"messages[{n}]", m))
    return [
        *_top(request, MISTRAL_FIELDS if dialect == "mistral" else FIELDS),
        *_tools(items(request.get("tools"))),
        *shapes,
        *_pairs(messages),
        *(_mistral(request, messages) if dialect == "mistral" else ()),
        *(_deepseek(messages) if dialect == "deepseek" else ()),
    ]


def _top(request: Json, known: frozenset[str]) -> Iterator[str]:
    yield from (f"Unrecognized request argument supplied: {n}" for n in request if n not in known)
    if not isinstance(request.get("model"), str):
        yield "you must provide a model parameter"
    if not items(request.get("messages")):
        yield "[] is too short - 'messages'"
    if "max_tokens" in request and "max_completion_tokens" in request:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    if "stream_options" in request and not request.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."


def _tools(tools: list[Json]) -> Iterator[str]:
    for index, tool in enumerate(tools):
        function = item(tool.get("function"))
        if tool.get("type") != "function":
            yield f"Invalid value: 'tools[{index}].type'. Supported values are: 'function'."
        if not is_like(function.get("name"), NAME):
            yield f"Invalid 'tools[{index}].function.name'"
        if item(function.get("parameters", {"type": "object"})).get("type") != "object":
            yield f"Invalid schema for function {function.get('name')!r}: type must be 'object'"


def _message(where: str, message: Json) -> Iterator[str]:
    role = str(message.get("role"))
    if role not in MEMBERS:
        yield f"Invalid value: {role!r}. Supported values are: {sorted(MEMBERS)}"
        return
    extra = (name for name in message if name not in MEMBERS[role])
    yield from (f"Unknown parameter: '{where}.{name}'." for name in extra)
    yield from _content(where, message, role=role)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield f"Missing required parameter: '{where}.tool_call_id'."
    if "tool_calls" in message:
        yield from _calls(where, items(message["tool_calls"]))


def _content(where: str, message: Json, *, role: str) -> Iterator[str]:
    content = message.get("content")
    if content is None and role == "assistant":
        if not message.get("tool_calls"):
            yield f"Invalid value for 'content' of '{where}': expected a string, got null."
        return
    if isinstance(content, str):
        return
    parts = items(content)
    if not parts:
        yield f"Invalid value for 'content' of '{where}': expected a string or a list."
    for index, part in enumerate(parts):
        kind = part.get("type")
        if kind not in PARTS or (role != "user" and kind != "text"):
            yield f"Invalid value: {kind!r} at '{where}.content[{index}].type'"
        if kind == "text" and not part.get("text"):
            yield f"Invalid '{where}.content[{index}].text': empty string."


def _calls(where: str, calls: list[Json]) -> Iterator[str]:
    if not calls:
        yield f"Invalid '{where}.tool_calls': empty array. Expected at least one element."
    for index, call in enumerate(calls):
        at, function = f"{where}.tool_calls[{index}]", item(call.get("function"))
        id = call.get("id")
        if not isinstance(id, str) or not 0 < len(id) <= 40:
            yield f"Invalid '{at}.id': expected a string of 1 to 40 characters."
        if call.get("type") != "function":
            yield f"Missing required parameter: '{at}.type'."
        if not is_like(function.get("name"), NAME):
            yield f"Invalid '{at}.function.name': {function.get('name')!r}"
        if not isinstance(function.get("arguments"), str):
            yield f"Invalid type for '{at}.function.arguments': expected a string."


def _pairs(messages: list[Json]) -> Iterator[str]:
    """After a message with calls come the results of all of them, each once, and nothing else."""
    pending: list[str] = []
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            id = str(message.get("tool_call_id"))
            if id not in pending:
                yield (
                    f"messages[{index}]: messages with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'."
                )
            pending = [other for other in pending if other != id]
            continue
        if pending:
            yield _unanswered(pending)
        pending = [str(call.get("id")) for call in items(message.get("tool_calls"))]
        if len(set(pending)) < len(pending):
            yield f"messages[{index}]: duplicate tool call ids: {pending}"
    if pending:
        yield _unanswered(pending)


def _unanswered(ids: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        f"{', '.join(ids)}"
    )


def _mistral(request: Json, messages: list[Json]) -> Iterator[str]:
    if isinstance(request.get("tool_choice"), dict):
        yield "tool_choice: Input should be 'auto', 'none', 'any' or 'required'"
    roles = [str(message.get("role")) for message in messages]
    if "developer" in roles:
        yield "Invalid role 'developer'"
    if ("tool", "user") in pairwise(roles):
        yield "Unexpected role 'user' after role 'tool'"
    if roles and roles[-1] not in ("user", "tool"):
        yield f"Expected last role User or Tool (or Assistant with prefix True) but got {roles[-1]}"
    for call in (call for message in messages for call in items(message.get("tool_calls"))):
        if not is_like(call.get("id"), r"[A-Za-z0-9]{9}"):
            yield (
                f"Tool call id was {call.get('id')} but must be a-z, A-Z, 0-9, with a length of 9."
            )
    extra = {"reasoning_content", "reasoning_details"}
    yield from (f"extra_forbidden: {name}" for m in messages for name in sorted(extra & m.keys()))


def _deepseek(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        if not isinstance(message.get("content", ""), str | None):
            yield "Failed to deserialize the JSON body: content must be a string"
        if message.get("role") == "assistant" and "reasoning_content" not in message:
            yield "The reasoning_content in the thinking mode must be passed back to the API."
