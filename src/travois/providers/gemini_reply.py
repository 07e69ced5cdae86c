"""Gemini: how a reply is heard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.core.content import AnyBlock, Call, Opaque, Text, calls
from travois.core.facts import Stop
from travois.core.json import Members, joined, members, number, rows, string, table
from travois.core.models import Usage
from travois.providers.chat_calls import made_id
from travois.providers.chat_reply import decode
from travois.providers.errors import streamed
from travois.providers.gemini import BESIDE, MINE
from travois.providers.http.sse import Event
from travois.providers.replies import (
    Began,
    BlockBegan,
    BlockEnded,
    Grew,
    Problem,
    Reply,
    StreamDelta,
)
from travois.providers.usage import guess
from travois.providers.web_search import grounded, merged

STOPS: dict[str, Stop] = {"STOP": "end", "MAX_TOKENS": "length", "CONTINUATION": "pause"}
REFUSALS = frozenset(
    ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
)
BOTCHED = frozenset(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"))
"""The model made a call that nobody can read: another try may go well."""


class _Run:
    """Words, or thoughts, that came in parts."""

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.text: list[str] = []
        self.beside: Members = {}

    def blocks(self) -> Iterator[AnyBlock]:
        text = "".join(self.text)
        if self.thought:
            said = {"text": text, "thought": True, **self.beside}
            yield Opaque(MINE, "thinking", msgspec.json.encode(said).decode(), text)
            return
        if self.beside:
            yield Opaque(MINE, BESIDE, "{" + joined(self.beside) + "}")
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
    """A reply while it is being said."""

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
        """Take one more chunk."""
        if data := event.data.strip():
            yield from self._take(data)

    def whole(self, body: bytes) -> None:
        """Take a reply that was not streamed."""
        list(self._take(body))

    def reply(self) -> Reply:
        """What was said, once all of it was."""
        if not self._finish:
            raise Problem("garbled", "The stream ended before the reply was whole.")
        if self._finish in BOTCHED:
            raise Problem("garbled", self._detail or f"The model broke off: {self._finish}.")
        content = tuple(b for said in self._said for b in _blocks(said))
        stop = "refusal" if self._finish in REFUSALS else STOPS.get(self._finish, "unknown")
        if stop == "end" and calls(content):
            stop = "calls"
        usage = _usage(self._usage) or guess(content, size=self._size)
        searches = len(rows(self._grounds.get("webSearchQueries")))
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
            self._id = string(chunk.get("responseId")) or "reply"
            self._model = string(chunk.get("modelVersion"))
            yield Began(self._id, self._model)
        self._usage |= table(chunk.get("usageMetadata"))
        for part in _parts(data):
            yield from self._part(part)
        self._ends(chunk)

    def _ends(self, chunk: dict[str, Any]) -> None:
        candidate = table(next(iter(rows(chunk.get("candidates"))), None))
        blocked = string(table(chunk.get("promptFeedback")).get("blockReason"))
        self._grounds |= table(candidate.get("groundingMetadata"))
        self._finish = string(candidate.get("finishReason")) or self._finish
        self._detail = string(candidate.get("finishMessage")) or self._detail
        if blocked:
            self._finish, self._detail = "SAFETY", f"the prompt was blocked: {blocked}"

    def _part(self, part: Members) -> Iterator[StreamDelta]:
        index = len(self._said)
        if "functionCall" in part:
            call = _call(part, made_id(self._id, index))
            self._said.append(call)
            yield BlockBegan(index, "call", id=call.id, name=call.name)
            yield Grew(index, "call", call.args)
            yield BlockEnded(index)
        elif "text" in part:
            yield from self._words(part)
        else:
            kind = next((name for name in part if name != "thoughtSignature"), BESIDE)
            self._said.append(Opaque(MINE, kind, msgspec.json.encode(part).decode()))

    def _words(self, part: Members) -> Iterator[StreamDelta]:
        """Words go on where the last ones stopped, unless those were signed already."""
        text = string(msgspec.json.decode(part["text"]))
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


def _parts(data: bytes) -> list[Members]:
    """The parts of the first candidate, each as the text it came in."""
    try:
        first = next(iter(_chunks.decode(data).candidates), None)
        raw = first.content.parts if first and first.content else []
        return [members(bytes(part)) for part in raw]
    except msgspec.ValidationError as error:
        raise Problem("garbled", f"A chunk of the stream makes no sense: {error}") from error


def _call(part: Members, made: str) -> Call:
    inside = members(bytes(part["functionCall"]))
    signature = {k: v for k, v in part.items() if k == "thoughtSignature"}
    named = {k: v for k, v in inside.items() if k == "id" and len(bytes(v)) > len('""')}
    id = string(msgspec.json.decode(named["id"])) if named else ""
    return Call(
        id=id or made,
        name=string(msgspec.json.decode(inside.get("name", msgspec.Raw(b'""')))),
        args=bytes(inside.get("args", msgspec.Raw(b"{}"))).decode(),
        extra=f'"{MINE}":{{{joined(named | signature)}}}',
    )


def _blocks(said: _Run | AnyBlock) -> Iterator[AnyBlock]:
    if isinstance(said, _Run):
        yield from said.blocks()
    else:
        yield said


def _usage(usage: dict[str, Any]) -> Usage | None:
    """The counts without overlap; None if there are none."""
    prompt = number(usage, "promptTokenCount") + number(usage, "toolUsePromptTokenCount")
    thoughts = number(usage, "thoughtsTokenCount")
    output = number(usage, "candidatesTokenCount") + thoughts
    if not prompt and not output:
        return None
    read = min(prompt, number(usage, "cachedContentTokenCount"))
    return Usage(prompt - read, read=read, output=output, reasoning=thoughts)
