"""Strict judges of requests to OpenAI's Responses, to Gemini and to Ollama's own API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from travois_lab.validate_blocks import NAME, Json, is_like, item, items, names

RESPONSES = names(
    "model input instructions tools tool_choice parallel_tool_calls stream stream_options store "
    "include max_output_tokens reasoning text prompt_cache_key prompt_cache_options metadata "
    "temperature top_p truncation previous_response_id conversation context_management "
    "service_tier safety_identifier user background"
)
GEMINI = names(
    "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent"
)
OLLAMA = names("model messages tools options stream think format keep_alive")
ITEMS = {
    "message": names("type role content id status phase"),
    "function_call": names("type call_id name arguments id status namespace caller async"),
    "function_call_output": names("type call_id output id status"),
    "custom_tool_call": names("type call_id name input id status"),
    "custom_tool_call_output": names("type call_id output id status"),
    "reasoning": names("type id summary encrypted_content content status"),
}
CALLS = ("function_call", "custom_tool_call")
SAID = names("text functionCall functionResponse inlineData")
MEMBERS = {
    "system": names("role content"),
    "user": names("role content images"),
    "assistant": names("role content thinking tool_calls"),
    "tool": names("role content tool_name"),
}


def responses_faults(body: bytes) -> list[str]:
    """Everything that is wrong with a request to `/v1/responses`."""
    return _faults(body, _response)


def gemini_faults(body: bytes) -> list[str]:
    """Everything that is wrong with a request to `generateContent`."""
    return _faults(body, _gemini)


def ollama_faults(body: bytes) -> list[str]:
    """Everything that is wrong with a request to `/api/chat`."""
    return _faults(body, _ollama)


def _faults(body: bytes, judge: Callable[[Json], Iterator[str]]) -> list[str]:
    try:
        return list(judge(msgspec.json.decode(body, type=Json)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [f"We could not parse the JSON body of your request: {error}"]


def _unknown(request: Json, known: frozenset[str], where: str = "") -> Iterator[str]:
    yield from (f"Unknown parameter: '{where}{name}'." for name in request if name not in known)


# --- responses ------------------------------------------------------------------------------------


def _response(request: Json) -> Iterator[str]:
    given = request.get("input")
    told = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
    yield from _unknown(request, RESPONSES)
    if not told and "previous_response_id" not in request:
        yield "Missing required parameter: 'input'."
    for index, one in enumerate(told):
        yield from _item(f"input[{index}]", one)
    yield from _pairs(told)
    yield from _lonely(told)


def _item(where: str, one: Json) -> Iterator[str]:
    kind = str(one.get("type", "message"))
    if kind in ITEMS:
        yield from _unknown(one, ITEMS[kind], f"{where}.")
    match kind:
        case "message" if not one.get("content") or not one.get("role"):
            yield f"Invalid '{where}.content': it is empty."
        case "function_call":
            if not is_like(one.get("name"), NAME) or not isinstance(one.get("arguments"), str):
                yield f"Invalid '{where}.name' or '{where}.arguments'."
            if not is_like(one.get("call_id"), r".{1,64}"):
                yield f"Invalid '{where}.call_id': expected a string of 1 to 64 characters."
        case "custom_tool_call":
            if not is_like(one.get("name"), NAME) or not isinstance(one.get("input"), str):
                yield f"Invalid '{where}.name' or '{where}.input'."
        case "function_call_output" | "custom_tool_call_output" if one.get("output") is None:
            yield f"Missing required parameter: '{where}.output'."
        case "reasoning" if not is_like(one.get("id"), r"rs\w*"):
            yield f"Missing required parameter: '{where}.id'."
        case _:
            pass


def _pairs(told: list[Json]) -> Iterator[str]:
    called, answered = dict[str, str](), set[str]()
    for one in told:
        id, kind = str(one.get("call_id")), str(one.get("type"))
        if kind in CALLS:
            if id in called:
                yield f"Duplicate function call id {id}."
            called[id] = kind
        elif kind.removesuffix("_output") in CALLS:
            if called.get(id) != kind.removesuffix("_output") or id in answered:
                yield f"No tool call found for function call output with call_id {id}."
            answered.add(id)
    lacking = (id for id in called if id not in answered)
    yield from (f"No tool output found for function call {id}." for id in lacking)


def _lonely(told: list[Json]) -> Iterator[str]:
    """Reasoning is heard only with what it led to."""
    for one, after in pairwise([*told, {}]):
        follows = after.get("type") in ("reasoning", "compaction", *CALLS)
        if one.get("type") == "reasoning" and not follows and after.get("role") != "assistant":
            yield (
                f"Item '{one.get('id')}' of type 'reasoning' was provided without its required "
                "following item."
            )


# --- gemini ---------------------------------------------------------------------------------------


def _gemini(request: Json) -> Iterator[str]:
    yield from _unknown(request, GEMINI)
    contents = items(request.get("contents"))
    roles = [str(content.get("role")) for content in contents]
    if not contents or roles[0] != "user":
        yield "Please ensure that multiturn requests begin with a user turn."
    if any(one == other for one, other in pairwise(roles)):
        yield "Please ensure that multiturn requests alternate between user and model."
    for index, content in enumerate(contents):
        yield from _parts(f"contents[{index}]", items(content.get("parts")))
    for before, content in pairwise([{}, *contents, {}]):
        asked, given = _functions(before, "functionCall"), _functions(content, "functionResponse")
        if asked != given:
            yield (
                "Please ensure that the number of function response parts is equal to the number "
                f"of function call parts of the function call turn: {asked}, {given}."
            )


def _functions(content: Json, kind: str) -> list[str]:
    return [str(item(p[kind]).get("name")) for p in items(content.get("parts")) if kind in p]


def _parts(where: str, parts: list[Json]) -> Iterator[str]:
    if not parts:
        yield f"{where}.parts must not be empty."
    for part in parts:
        if len(SAID & part.keys()) != 1:
            yield f"{where}.parts: required oneof field 'data' must have one initialized field"
        call = item(part.get("functionCall"))
        if call and not (is_like(call.get("name"), NAME) and isinstance(call.get("args"), dict)):
            yield f"{where}.parts: invalid function call"


# --- ollama ---------------------------------------------------------------------------------------


def _ollama(request: Json) -> Iterator[str]:
    yield from _unknown(request, OLLAMA)
    messages = items(request.get("messages"))
    if not isinstance(request.get("model"), str) or not messages:
        yield "model is required"
    for index, message in enumerate(messages):
        known = MEMBERS.get(str(message.get("role")), frozenset[str]())
        yield from _unknown(message, known, f"messages[{index}].")
        if not isinstance(message.get("content"), str):
            yield f"json: cannot unmarshal messages[{index}].content into a string"
        for call in items(message.get("tool_calls")):
            if not isinstance(item(call.get("function")).get("arguments"), dict):
                yield f"json: cannot unmarshal arguments of messages[{index}] into an object"
    given = [str(m.get("tool_name")) for m in messages if m.get("role") == "tool"]
    if _asked(messages) != given:
        yield f"results do not follow their calls: {_asked(messages)}, {given}"


def _asked(messages: list[Json]) -> list[str]:
    calls = (call for message in messages for call in items(message.get("tool_calls")))
    return [str(item(call.get("function")).get("name")) for call in calls]
