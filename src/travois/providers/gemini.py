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
from travois.providers.errors import streamed
from travois.providers.http.sse import Event
from travois.providers.openai_chat import decode, made_id
from travois.providers.options import (
    GO_ON,
    IMAGES,
    NO_OUTPUT,
    NO_WORDS,
    PDF,
    STARTED_BEFORE,
    effort,
    note,
    shown,
    spoken,
    tool_name,
)
from travois.providers.replies import (
    Began,
    BlockBegan,
    BlockEnded,
    Grew,
    Problem,
    Reply,
    StreamDelta,
    guess,
)
from travois.providers.request import Head, Piece, asked
from travois.providers.web_search import grounded, merged

MINE = "gemini"
BESIDE = "part"
"""A block that holds what a part has besides its words, for the words after it."""
UNSIGNED = b'"skip_thought_signature_validator"'
"""The signature that Google documents for a call that another model made."""


class Gemini:
    """An encoder of views as Gemini requests: parts, grouped by role into contents."""

    close = b"]}"

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """Return a comma inside a content, else the end of one and the start of the next."""
        if before == role:
            return b","
        opening = b'{"role":"' + role.encode() + b'","parts":['
        return b"]}," + opening if before else opening

    def pieces(self, items: Sequence[ViewItem], index: int, *, before: str) -> Iterator[Piece]:
        """Encode one item as parts; images of tool results follow the whole batch."""
        fact = items[index].fact
        match fact:
            case User():
                yield from (Piece("user", part) for part in self._shown(fact.content))
            case Result():
                yield Piece("user", _result(fact, asked(items, index, fact.call)))
                if index + 1 == len(items) or not isinstance(items[index + 1].fact, Result):
                    yield from self._attached(items, index)
            case Assistant():
                yield from _reply(fact, before=before)
            case _:
                assert_never(fact)

    def _shown(self, content: tuple[TextOrMedia, ...]) -> list[bytes]:
        parts = [self._part(b) for b in content if isinstance(b, Media) or b.text.strip()]
        return parts or [_text(NO_WORDS)]

    def _part(self, block: TextOrMedia) -> bytes:
        if isinstance(block, Text):
            return _text(block.text)
        taken = self._images and block.mime in (*IMAGES, PDF)
        data = shown(block, self._fetch, taken=taken)
        if isinstance(data, str):
            return _text(data)
        return b'{"inlineData":{"mimeType":%s,"data":"%s"}}' % (quote_json(block.mime), data)

    def _attached(self, items: Sequence[ViewItem], last: int) -> Iterator[Piece]:
        batch: list[Piece] = []
        while last >= 0 and isinstance(fact := items[last].fact, Result):
            media = (block for block in fact.content if isinstance(block, Media))
            batch[:0] = [Piece("user", self._part(block)) for block in media]
            last -= 1
        yield from batch


def _head(epoch: Epoch) -> Head:
    """Build the path, tools and system instruction that all requests of an epoch share."""
    model = epoch.model
    tools = [_tool(tool) for tool in epoch.tools]
    system = [_text(epoch.system)] if epoch.system.strip() else []
    opening = b'{"generationConfig":{"maxOutputTokens":%d' % model.output + effort(model) + b"}"
    if system:
        opening += b',"systemInstruction":{"parts":[' + system[0] + b"]}"
    if tools:
        opening += b',"tools":[{"functionDeclarations":[' + b",".join(tools) + b"]}]"
    return Head(
        path=f"/v1beta/models/{escaped(model.id, safe='')}:streamGenerateContent?alt=sse",
        headers=(("content-type", "application/json"),),
        pieces=(*(Piece("tool", t) for t in tools), *(Piece("system", s) for s in system)),
        opening=opening + b',"contents":[',
        closing=b"]" + (b"," + encode_utf8(model.params) if model.params else b"") + b"}",
    )


def _tool(tool: ToolSpec) -> bytes:
    name, said, schema = (
        quote_json(tool.name),
        quote_json(tool.description),
        encode_utf8(tool.schema),
    )
    return b'{"name":%s,"description":%s,"parametersJsonSchema":%s}' % (name, said, schema)


def _result(fact: Result, call: Call) -> bytes:
    told = [b if isinstance(b, Text) else Text(note(b, "see below")) for b in fact.content]
    text = extract_text(tuple(told))
    member = b"error" if fact.error else b"output"
    said = b'{"%s":%s}' % (member, quote_json(text if text.strip() else NO_OUTPUT))
    inside = b'%s"name":%s,"response":%s' % (_id(call), quote_json(tool_name(call.name)), said)
    return b'{"functionResponse":{' + inside + b"}}"


def _reply(fact: Assistant, *, before: str) -> Iterator[Piece]:
    parts = list(_encode_parts(fact.content))
    if parts and not before:
        yield Piece("user", _text(STARTED_BEFORE))
    yield from (Piece("model", part) for part in parts)
    open_end = bool(parts) or before == "model"
    if fact.stop == "pause" and open_end and not extract_calls(fact.content):
        yield Piece("user", _text(GO_ON))


def _encode_parts(content: tuple[AnyBlock, ...]) -> Iterator[bytes]:
    """Encode the parts of a reply, with the members that stood beside each text."""
    beside, first = b"", True
    for block in content:
        match block:
            case Opaque(protocol="gemini", kind="part"):
                yield from _empty(beside)
                beside = b"," + encode_utf8(block.raw)[1:-1]
                continue
            case Opaque(protocol="gemini"):
                yield from _empty(beside)
                yield encode_utf8(block.raw)
            case Call():
                yield from _empty(beside)
                yield _encode_call(block, first=first)
                first = False
            case _ if (text := spoken(block)).strip() or (text and beside):
                yield _text(text, beside)
            case _:
                continue
        beside = b""
    yield from _empty(beside)


def _empty(beside: bytes) -> Iterator[bytes]:
    """Encode members that stood beside no text."""
    if beside:
        yield _text("", beside)


def _encode_call(call: Call, *, first: bool) -> bytes:
    name, args = quote_json(tool_name(call.name)), ensure_json_object(call.args)
    said = b'{"functionCall":{%s"name":%s,"args":%s}' % (_id(call), name, args)
    made = _made(call)
    signature = UNSIGNED if made is None and first else (made or {}).get("thoughtSignature")
    signed = b"" if signature is None else b',"thoughtSignature":' + bytes(signature)
    return said + signed + b"}"


def _id(call: Call) -> bytes:
    """Encode a call's id, if Gemini itself gave it one."""
    id = (_made(call) or {}).get("id")
    return b"" if id is None else b'"id":' + bytes(id) + b","


def _made(call: Call) -> JsonMembers | None:
    """Return Gemini's own members of a call; None if another model made it."""
    extra = split_members(b"{" + encode_utf8(call.extra) + b"}").get(MINE)
    return None if extra is None else split_members(bytes(extra))


def _text(text: str, beside: bytes = b"") -> bytes:
    return b'{"text":' + quote_json(text) + beside + b"}"


# Gemini: how a reply is heard.


STOPS: dict[str, StopReason] = {"STOP": "end", "MAX_TOKENS": "length", "CONTINUATION": "pause"}
REFUSALS = frozenset(
    ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
)
BOTCHED = frozenset(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"))
"""The model made a call that nobody can read: another try may go well."""


class _Run:
    """Consecutive text, or thoughts, that came in parts."""

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.text: list[str] = []
        self.beside: JsonMembers = {}

    def blocks(self) -> Iterator[AnyBlock]:
        text = "".join(self.text)
        if self.thought:
            said = {"text": text, "thought": True, **self.beside}
            yield Opaque(MINE, "thinking", msgspec.json.encode(said).decode(), text)
            return
        if self.beside:
            yield Opaque(MINE, BESIDE, "{" + join_members(self.beside) + "}")
        if text:
            yield Text(text)


class _Content(msgspec.Struct):
    parts: list[msgspec.Raw] = []


class _Candidate(msgspec.Struct):
    content: _Content | None = None


class _Chunk(msgspec.Struct):
    candidates: list[_Candidate] = []


_chunks = msgspec.json.Decoder(_Chunk)


class GeminiReply:
    """A parser of Gemini's stream chunks that builds up one reply."""

    done = False
    """Nothing but the end of the body tells that no more comes."""

    def __init__(self, *, size: int = 0) -> None:
        self._size = size
        self._id = ""
        self._model = ""
        self._said: list[_Run | AnyBlock] = []
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self._detail = ""
        self._grounds: dict[str, Any] = {}

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Parse one chunk."""
        if data := event.data.strip():
            yield from self._take(data)

    def whole(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        list(self._take(body))

    def reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self._finish:
            raise Problem("garbled", "The stream ended before the reply was complete.")
        if self._finish in BOTCHED:
            raise Problem("garbled", self._detail or f"The model stopped: {self._finish}.")
        content = tuple(b for said in self._said for b in _blocks(said))
        stop = "refusal" if self._finish in REFUSALS else STOPS.get(self._finish, "unknown")
        if stop == "end" and extract_calls(content):
            stop = "calls"
        usage = _usage(self._usage) or guess(content, size=self._size)
        searches = len(as_list(self._grounds.get("webSearchQueries")))
        detail = self._detail or ("" if self._finish in STOPS else self._finish)
        return Reply(
            content,
            stop,
            msgspec.structs.replace(usage, searches=searches),
            id=self._id,
            model=self._model,
            detail=detail,
            hits=merged(grounded(self._grounds)),
        )

    def _take(self, data: bytes) -> Iterator[StreamDelta]:
        chunk = decode(data)
        if chunk.get("error"):
            raise streamed(chunk["error"], protocol="gemini")
        if not self._id:
            self._id = as_string(chunk.get("responseId")) or "reply"
            self._model = as_string(chunk.get("modelVersion"))
            yield Began(self._id, self._model)
        self._usage |= as_object(chunk.get("usageMetadata"))
        for part in _decode_parts(data):
            yield from self._part(part)
        self._ends(chunk)

    def _ends(self, chunk: dict[str, Any]) -> None:
        candidate = as_object(next(iter(as_list(chunk.get("candidates"))), None))
        blocked = as_string(as_object(chunk.get("promptFeedback")).get("blockReason"))
        self._grounds |= as_object(candidate.get("groundingMetadata"))
        self._finish = as_string(candidate.get("finishReason")) or self._finish
        self._detail = as_string(candidate.get("finishMessage")) or self._detail
        if blocked:
            self._finish, self._detail = "SAFETY", f"the prompt was blocked: {blocked}"

    def _part(self, part: JsonMembers) -> Iterator[StreamDelta]:
        index = len(self._said)
        if "functionCall" in part:
            call = _decode_call(part, made_id(self._id, index))
            self._said.append(call)
            yield BlockBegan(index, "call", id=call.id, name=call.name)
            yield Grew(index, "call", call.args)
            yield BlockEnded(index)
        elif "text" in part:
            yield from self._words(part)
        else:
            kind = next((name for name in part if name != "thoughtSignature"), BESIDE)
            self._said.append(Opaque(MINE, kind, msgspec.json.encode(part).decode()))

    def _words(self, part: JsonMembers) -> Iterator[StreamDelta]:
        """Append text to the last run, unless that one is already signed."""
        text = as_string(msgspec.json.decode(part["text"]))
        thought = bytes(part.get("thought", msgspec.Raw(b"false"))) == b"true"
        kind = "thinking" if thought else "text"
        run = self._said[-1] if self._said else None
        if not isinstance(run, _Run) or run.thought != thought or run.beside:
            run = _Run(thought=thought)
            self._said.append(run)
            yield BlockBegan(len(self._said) - 1, kind)
        run.text.append(text)
        run.beside = {k: v for k, v in part.items() if k not in ("text", "thought")}
        if text:
            yield Grew(len(self._said) - 1, kind, text)


def _decode_parts(data: bytes) -> list[JsonMembers]:
    """Decode the parts of the first candidate, each as its raw members."""
    try:
        first = next(iter(_chunks.decode(data).candidates), None)
        raw = first.content.parts if first and first.content else []
        return [split_members(bytes(part)) for part in raw]
    except msgspec.ValidationError as error:
        raise Problem("garbled", f"A chunk of the stream is not valid: {error}") from error


def _decode_call(part: JsonMembers, made: str) -> Call:
    inside = split_members(bytes(part["functionCall"]))
    signature = {k: v for k, v in part.items() if k == "thoughtSignature"}
    named = {k: v for k, v in inside.items() if k == "id" and len(bytes(v)) > len('""')}
    id = as_string(msgspec.json.decode(named["id"])) if named else ""
    return Call(
        id=id or made,
        name=as_string(msgspec.json.decode(inside.get("name", msgspec.Raw(b'""')))),
        args=bytes(inside.get("args", msgspec.Raw(b"{}"))).decode(),
        extra=f'"{MINE}":{{{join_members(named | signature)}}}',
    )


def _blocks(said: _Run | AnyBlock) -> Iterator[AnyBlock]:
    if isinstance(said, _Run):
        yield from said.blocks()
    else:
        yield said


def _usage(usage: dict[str, Any]) -> Usage | None:
    """Parse the token counts without overlap; None if there are none."""
    prompt = read_count(usage, "promptTokenCount") + read_count(usage, "toolUsePromptTokenCount")
    thoughts = read_count(usage, "thoughtsTokenCount")
    output = read_count(usage, "candidatesTokenCount") + thoughts
    if not prompt and not output:
        return None
    read = min(prompt, read_count(usage, "cachedContentTokenCount"))
    return Usage(prompt - read, read=read, output=output, reasoning=thoughts)
