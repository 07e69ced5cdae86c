"""The Gemini API: builds request bodies (`GeminiEncoder`) and parses replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never
from urllib.parse import quote as escaped

import msgspec

from travois.core.content import (
    AnyBlock,
    Call,
    Media,
    Opaque,
    Text,
    TextOrMedia,
    extract_calls,
    extract_text,
)
from travois.core.facts import Assistant, Epoch, Result, StopReason, ToolSpec, User
from travois.core.json import (
    JsonMembers,
    as_list,
    as_object,
    as_string,
    encode_utf8,
    ensure_json_object,
    join_members,
    quote_json,
    read_count,
    split_members,
)
from travois.core.models import Usage
from travois.core.view import ViewItem
from travois.providers.errors import parse_stream_error
from travois.providers.http.sse import SseEvent
from travois.providers.openai_chat import decode_stream_object, make_call_id
from travois.providers.replies import (
    ApiError,
    BlockBegan,
    BlockEnded,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
    estimate_reply_usage,
)
from travois.providers.request import (
    CONTINUE_TEXT,
    EMPTY_MESSAGE_TEXT,
    IMAGE_TYPES,
    NO_OUTPUT_TEXT,
    PDF_TYPE,
    STARTED_EARLIER_TEXT,
    RequestHead,
    RequestPart,
    encode_effort,
    find_call_of_result,
    make_legal_tool_name,
    media_or_placeholder,
    media_placeholder,
    text_of_block,
)
from travois.providers.web_search import collect_grounding_hits, merge_hits

GEMINI_PROTOCOL = "gemini"
PART_EXTRA_KIND = "part"
"""A block that holds what a part has besides its words, for the words after it."""
UNSIGNED_CALL_SIGNATURE = b'"skip_thought_signature_validator"'
"""The signature that Google documents for a call that another model made."""


class GeminiEncoder:
    """An encoder of views as Gemini requests: parts, grouped by role into contents."""

    close = b"]}"

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _build_gemini_head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def encode_separator(self, before: str, role: str) -> bytes:
        """Return a comma inside a content, else the end of one and the start of the next."""
        if before == role:
            return b","
        opening = b'{"role":"' + role.encode() + b'","parts":['
        return b"]}," + opening if before else opening

    def encode_item(
        self, items: Sequence[ViewItem], index: int, *, before: str
    ) -> Iterator[RequestPart]:
        """Encode one item as parts; images of tool results follow the whole batch."""
        fact = items[index].fact
        match fact:
            case User():
                yield from (
                    RequestPart("user", part) for part in self._encode_user_parts(fact.content)
                )
            case Result():
                yield RequestPart(
                    "user",
                    _encode_function_response(fact, find_call_of_result(items, index, fact.call)),
                )
                if index + 1 == len(items) or not isinstance(items[index + 1].fact, Result):
                    yield from self._encode_result_media(items, index)
            case Assistant():
                yield from _encode_gemini_reply(fact, before=before)
            case _:
                assert_never(fact)

    def _encode_user_parts(self, content: tuple[TextOrMedia, ...]) -> list[bytes]:
        parts = [
            self._encode_user_part(b) for b in content if isinstance(b, Media) or b.text.strip()
        ]
        return parts or [_encode_text_part(EMPTY_MESSAGE_TEXT)]

    def _encode_user_part(self, block: TextOrMedia) -> bytes:
        if isinstance(block, Text):
            return _encode_text_part(block.text)
        taken = self._images and block.mime in (*IMAGE_TYPES, PDF_TYPE)
        data = media_or_placeholder(block, self._fetch, taken=taken)
        if isinstance(data, str):
            return _encode_text_part(data)
        return b'{"inlineData":{"mimeType":%s,"data":"%s"}}' % (quote_json(block.mime), data)

    def _encode_result_media(self, items: Sequence[ViewItem], last: int) -> Iterator[RequestPart]:
        batch: list[RequestPart] = []
        while last >= 0 and isinstance(fact := items[last].fact, Result):
            media = (block for block in fact.content if isinstance(block, Media))
            batch[:0] = [RequestPart("user", self._encode_user_part(block)) for block in media]
            last -= 1
        yield from batch


def _build_gemini_head(epoch: Epoch) -> RequestHead:
    """Build the path, tools and system instruction that all Gemini requests of an epoch share."""
    model = epoch.model
    tools = [_encode_gemini_tool(tool) for tool in epoch.tools]
    system = [_encode_text_part(epoch.system)] if epoch.system.strip() else []
    opening = (
        b'{"generationConfig":{"maxOutputTokens":%d' % model.output + encode_effort(model) + b"}"
    )
    if system:
        opening += b',"systemInstruction":{"parts":[' + system[0] + b"]}"
    if tools:
        opening += b',"tools":[{"functionDeclarations":[' + b",".join(tools) + b"]}]"
    return RequestHead(
        path=f"/v1beta/models/{escaped(model.id, safe='')}:streamGenerateContent?alt=sse",
        headers=(("content-type", "application/json"),),
        pieces=(
            *(RequestPart("tool", t) for t in tools),
            *(RequestPart("system", s) for s in system),
        ),
        opening=opening + b',"contents":[',
        closing=b"]" + (b"," + encode_utf8(model.params) if model.params else b"") + b"}",
    )


def _encode_gemini_tool(tool: ToolSpec) -> bytes:
    """Encode a tool definition for Gemini."""
    name, said, schema = (
        quote_json(tool.name),
        quote_json(tool.description),
        encode_utf8(tool.schema),
    )
    return b'{"name":%s,"description":%s,"parametersJsonSchema":%s}' % (name, said, schema)


def _encode_function_response(fact: Result, call: Call) -> bytes:
    """Encode a tool result as a `functionResponse` part for Gemini."""
    told = [
        b if isinstance(b, Text) else Text(media_placeholder(b, "see below")) for b in fact.content
    ]
    text = extract_text(tuple(told))
    member = b"error" if fact.error else b"output"
    said = b'{"%s":%s}' % (member, quote_json(text if text.strip() else NO_OUTPUT_TEXT))
    inside = b'%s"name":%s,"response":%s' % (
        _encode_call_id_member(call),
        quote_json(make_legal_tool_name(call.name)),
        said,
    )
    return b'{"functionResponse":{' + inside + b"}}"


def _encode_gemini_reply(fact: Assistant, *, before: str) -> Iterator[RequestPart]:
    """Encode an earlier reply as parts for Gemini, with user turns where it needs them."""
    parts = list(_encode_gemini_parts(fact.content))
    if parts and not before:
        yield RequestPart("user", _encode_text_part(STARTED_EARLIER_TEXT))
    yield from (RequestPart("model", part) for part in parts)
    open_end = bool(parts) or before == "model"
    if fact.stop == "pause" and open_end and not extract_calls(fact.content):
        yield RequestPart("user", _encode_text_part(CONTINUE_TEXT))


def _encode_gemini_parts(content: tuple[AnyBlock, ...]) -> Iterator[bytes]:
    """Encode the parts of a reply, with the members that stood beside each text."""
    beside, first = b"", True
    for block in content:
        match block:
            case Opaque(protocol="gemini", kind="part"):
                yield from _flush_part_members(beside)
                beside = b"," + encode_utf8(block.raw)[1:-1]
                continue
            case Opaque(protocol="gemini"):
                yield from _flush_part_members(beside)
                yield encode_utf8(block.raw)
            case Call():
                yield from _flush_part_members(beside)
                yield _encode_function_call(block, first=first)
                first = False
            case _ if (text := text_of_block(block)).strip() or (text and beside):
                yield _encode_text_part(text, beside)
            case _:
                continue
        beside = b""
    yield from _flush_part_members(beside)


def _flush_part_members(beside: bytes) -> Iterator[bytes]:
    """Encode Gemini part members, such as signatures, that came without text."""
    if beside:
        yield _encode_text_part("", beside)


def _encode_function_call(call: Call, *, first: bool) -> bytes:
    """Encode a tool call as a `functionCall` part for Gemini, with its signature."""
    name, args = quote_json(make_legal_tool_name(call.name)), ensure_json_object(call.args)
    said = b'{"functionCall":{%s"name":%s,"args":%s}' % (_encode_call_id_member(call), name, args)
    made = _gemini_call_members(call)
    signature = (
        UNSIGNED_CALL_SIGNATURE if made is None and first else (made or {}).get("thoughtSignature")
    )
    signed = b"" if signature is None else b',"thoughtSignature":' + bytes(signature)
    return said + signed + b"}"


def _encode_call_id_member(call: Call) -> bytes:
    """Encode a tool call's ID for Gemini, if Gemini itself assigned one."""
    id = (_gemini_call_members(call) or {}).get("id")
    return b"" if id is None else b'"id":' + bytes(id) + b","


def _gemini_call_members(call: Call) -> JsonMembers | None:
    """Return Gemini's own members of a tool call; None if another model made it."""
    extra = split_members(b"{" + encode_utf8(call.extra) + b"}").get(GEMINI_PROTOCOL)
    return None if extra is None else split_members(bytes(extra))


def _encode_text_part(text: str, beside: bytes = b"") -> bytes:
    return b'{"text":' + quote_json(text) + beside + b"}"


# Gemini: how a reply is heard.


GEMINI_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
}
GEMINI_REFUSALS = frozenset(
    ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
)
GEMINI_MALFORMED_STOPS = frozenset(
    ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL")
)
"""The model made a call that nobody can read: another try may go well."""


class _TextRun:
    """Consecutive text, or thoughts, that came in parts."""

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.text: list[str] = []
        self.beside: JsonMembers = {}

    def build_blocks(self) -> Iterator[AnyBlock]:
        text = "".join(self.text)
        if self.thought:
            said = {"text": text, "thought": True, **self.beside}
            yield Opaque(GEMINI_PROTOCOL, "thinking", msgspec.json.encode(said).decode(), text)
            return
        if self.beside:
            yield Opaque(GEMINI_PROTOCOL, PART_EXTRA_KIND, "{" + join_members(self.beside) + "}")
        if text:
            yield Text(text)


class _GeminiContent(msgspec.Struct):
    parts: list[msgspec.Raw] = []


class _GeminiCandidate(msgspec.Struct):
    content: _GeminiContent | None = None


class _GeminiChunk(msgspec.Struct):
    candidates: list[_GeminiCandidate] = []


_gemini_chunk_decoder = msgspec.json.Decoder(_GeminiChunk)


class GeminiReplyParser:
    """A parser of Gemini's stream chunks that builds up one reply."""

    done = False
    """Nothing but the end of the body tells that no more comes."""

    def __init__(self, *, size: int = 0) -> None:
        self._size = size
        self._id = ""
        self._model = ""
        self._said: list[_TextRun | AnyBlock] = []
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self._detail = ""
        self._grounds: dict[str, Any] = {}

    def parse_event(self, event: SseEvent) -> Iterator[StreamDelta]:
        """Parse one chunk."""
        if data := event.data.strip():
            yield from self._parse_gemini_chunk(data)

    def parse_body(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        list(self._parse_gemini_chunk(body))

    def build_reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self._finish:
            raise ApiError("garbled", "The stream ended before the reply was complete.")
        if self._finish in GEMINI_MALFORMED_STOPS:
            raise ApiError("garbled", self._detail or f"The model stopped: {self._finish}.")
        content = tuple(b for said in self._said for b in _blocks_of_run(said))
        stop = (
            "refusal"
            if self._finish in GEMINI_REFUSALS
            else GEMINI_STOP_REASONS.get(self._finish, "unknown")
        )
        if stop == "end" and extract_calls(content):
            stop = "calls"
        usage = _parse_gemini_usage(self._usage) or estimate_reply_usage(content, size=self._size)
        searches = len(as_list(self._grounds.get("webSearchQueries")))
        detail = self._detail or ("" if self._finish in GEMINI_STOP_REASONS else self._finish)
        return Reply(
            content,
            stop,
            msgspec.structs.replace(usage, searches=searches),
            id=self._id,
            model=self._model,
            detail=detail,
            hits=merge_hits(collect_grounding_hits(self._grounds)),
        )

    def _parse_gemini_chunk(self, data: bytes) -> Iterator[StreamDelta]:
        chunk = decode_stream_object(data)
        if chunk.get("error"):
            raise parse_stream_error(chunk["error"], protocol="gemini")
        if not self._id:
            self._id = as_string(chunk.get("responseId")) or "reply"
            self._model = as_string(chunk.get("modelVersion"))
            yield ReplyBegan(self._id, self._model)
        self._usage |= as_object(chunk.get("usageMetadata"))
        for part in _decode_gemini_parts(data):
            yield from self._read_part(part)
        self._read_finish(chunk)

    def _read_finish(self, chunk: dict[str, Any]) -> None:
        candidate = as_object(next(iter(as_list(chunk.get("candidates"))), None))
        blocked = as_string(as_object(chunk.get("promptFeedback")).get("blockReason"))
        self._grounds |= as_object(candidate.get("groundingMetadata"))
        self._finish = as_string(candidate.get("finishReason")) or self._finish
        self._detail = as_string(candidate.get("finishMessage")) or self._detail
        if blocked:
            self._finish, self._detail = "SAFETY", f"the prompt was blocked: {blocked}"

    def _read_part(self, part: JsonMembers) -> Iterator[StreamDelta]:
        index = len(self._said)
        if "functionCall" in part:
            call = _decode_function_call(part, make_call_id(self._id, index))
            self._said.append(call)
            yield BlockBegan(index, "call", id=call.id, name=call.name)
            yield Grew(index, "call", call.args)
            yield BlockEnded(index)
        elif "text" in part:
            yield from self._read_text_part(part)
        else:
            kind = next((name for name in part if name != "thoughtSignature"), PART_EXTRA_KIND)
            self._said.append(Opaque(GEMINI_PROTOCOL, kind, msgspec.json.encode(part).decode()))

    def _read_text_part(self, part: JsonMembers) -> Iterator[StreamDelta]:
        """Append text to the last run, unless that one is already signed."""
        text = as_string(msgspec.json.decode(part["text"]))
        thought = bytes(part.get("thought", msgspec.Raw(b"false"))) == b"true"
        kind = "thinking" if thought else "text"
        run = self._said[-1] if self._said else None
        if not isinstance(run, _TextRun) or run.thought != thought or run.beside:
            run = _TextRun(thought=thought)
            self._said.append(run)
            yield BlockBegan(len(self._said) - 1, kind)
        run.text.append(text)
        run.beside = {k: v for k, v in part.items() if k not in ("text", "thought")}
        if text:
            yield Grew(len(self._said) - 1, kind, text)


def _decode_gemini_parts(data: bytes) -> list[JsonMembers]:
    """Decode the parts of a Gemini reply's first candidate, each as its raw members."""
    try:
        first = next(iter(_gemini_chunk_decoder.decode(data).candidates), None)
        raw = first.content.parts if first and first.content else []
        return [split_members(bytes(part)) for part in raw]
    except msgspec.ValidationError as error:
        raise ApiError("garbled", f"A chunk of the stream is not valid: {error}") from error


def _decode_function_call(part: JsonMembers, made: str) -> Call:
    """Decode a `functionCall` part of a Gemini reply as a tool call."""
    inside = split_members(bytes(part["functionCall"]))
    signature = {k: v for k, v in part.items() if k == "thoughtSignature"}
    named = {k: v for k, v in inside.items() if k == "id" and len(bytes(v)) > len('""')}
    id = as_string(msgspec.json.decode(named["id"])) if named else ""
    return Call(
        id=id or made,
        name=as_string(msgspec.json.decode(inside.get("name", msgspec.Raw(b'""')))),
        args=bytes(inside.get("args", msgspec.Raw(b"{}"))).decode(),
        extra=f'"{GEMINI_PROTOCOL}":{{{join_members(named | signature)}}}',
    )


def _blocks_of_run(said: _TextRun | AnyBlock) -> Iterator[AnyBlock]:
    """Return the blocks of a text run in a Gemini reply; any other block stays as it is."""
    if isinstance(said, _TextRun):
        yield from said.build_blocks()
    else:
        yield said


def _parse_gemini_usage(usage: dict[str, Any]) -> Usage | None:
    """Parse Gemini's token counts without overlap; None if there are none."""
    prompt = read_count(usage, "promptTokenCount") + read_count(usage, "toolUsePromptTokenCount")
    thoughts = read_count(usage, "thoughtsTokenCount")
    output = read_count(usage, "candidatesTokenCount") + thoughts
    if not prompt and not output:
        return None
    read = min(prompt, read_count(usage, "cachedContentTokenCount"))
    return Usage(prompt - read, read=read, output=output, reasoning=thoughts)
