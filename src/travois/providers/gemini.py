"""Gemini: how a view is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import assert_never
from urllib.parse import quote as escaped

from travois.core.content import AnyBlock, Call, Media, Opaque, Shown, Text, calls, words
from travois.core.facts import Assistant, Epoch, Result, ToolSpec, User
from travois.core.json import Members, members, object_text, quote, utf8
from travois.core.view import Item
from travois.providers.media import IMAGES, PDF, note, shown
from travois.providers.names import GO_ON, NO_OUTPUT, NO_WORDS, STARTED_BEFORE, spoken, tool_name
from travois.providers.options import effort
from travois.providers.request import Head, Piece, asked

MINE = "gemini"
BESIDE = "part"
"""A block that holds what a part has besides its words, for the words after it."""
UNSIGNED = b'"skip_thought_signature_validator"'
"""What stands, by Google's own word, for the signature of a call that another model made."""


class Gemini:
    """Pieces are parts; neighbours of one role share a content."""

    close = b"]}"

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """A comma inside a content; else the end of one and the start of the next."""
        if before == role:
            return b","
        opening = b'{"role":"' + role.encode() + b'","parts":['
        return b"]}," + opening if before else opening

    def pieces(self, items: Sequence[Item], index: int, *, before: str) -> Iterator[Piece]:
        """The parts of one item; pictures of results come when all of these were told."""
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

    def _shown(self, content: tuple[Shown, ...]) -> list[bytes]:
        parts = [self._part(b) for b in content if isinstance(b, Media) or b.text.strip()]
        return parts or [_text(NO_WORDS)]

    def _part(self, block: Shown) -> bytes:
        if isinstance(block, Text):
            return _text(block.text)
        taken = self._images and block.mime in (*IMAGES, PDF)
        data = shown(block, self._fetch, taken=taken)
        if isinstance(data, str):
            return _text(data)
        return b'{"inlineData":{"mimeType":%s,"data":"%s"}}' % (quote(block.mime), data)

    def _attached(self, items: Sequence[Item], last: int) -> Iterator[Piece]:
        batch: list[Piece] = []
        while last >= 0 and isinstance(fact := items[last].fact, Result):
            media = (block for block in fact.content if isinstance(block, Media))
            batch[:0] = [Piece("user", self._part(block)) for block in media]
            last -= 1
        yield from batch


def _head(epoch: Epoch) -> Head:
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
        closing=b"]" + (b"," + utf8(model.params) if model.params else b"") + b"}",
    )


def _tool(tool: ToolSpec) -> bytes:
    name, said, schema = quote(tool.name), quote(tool.description), utf8(tool.schema)
    return b'{"name":%s,"description":%s,"parametersJsonSchema":%s}' % (name, said, schema)


def _result(fact: Result, call: Call) -> bytes:
    told = [b if isinstance(b, Text) else Text(note(b, "see below")) for b in fact.content]
    text = words(tuple(told))
    member = b"error" if fact.error else b"output"
    said = b'{"%s":%s}' % (member, quote(text if text.strip() else NO_OUTPUT))
    inside = b'%s"name":%s,"response":%s' % (_id(call), quote(tool_name(call.name)), said)
    return b'{"functionResponse":{' + inside + b"}}"


def _reply(fact: Assistant, *, before: str) -> Iterator[Piece]:
    parts = list(_parts(fact.content))
    if parts and not before:
        yield Piece("user", _text(STARTED_BEFORE))
    yield from (Piece("model", part) for part in parts)
    open_end = bool(parts) or before == "model"
    if fact.stop == "pause" and open_end and not calls(fact.content):
        yield Piece("user", _text(GO_ON))


def _parts(content: tuple[AnyBlock, ...]) -> Iterator[bytes]:
    """The parts of a reply; what stood beside words is put beside them again."""
    beside, first = b"", True
    for block in content:
        match block:
            case Opaque(protocol="gemini", kind="part"):
                yield from _empty(beside)
                beside = b"," + utf8(block.raw)[1:-1]
                continue
            case Opaque(protocol="gemini"):
                yield from _empty(beside)
                yield utf8(block.raw)
            case Call():
                yield from _empty(beside)
                yield _call(block, first=first)
                first = False
            case _ if (text := spoken(block)).strip() or (text and beside):
                yield _text(text, beside)
            case _:
                continue
        beside = b""
    yield from _empty(beside)


def _empty(beside: bytes) -> Iterator[bytes]:
    """What stood beside no words at all."""
    if beside:
        yield _text("", beside)


def _call(call: Call, *, first: bool) -> bytes:
    name, args = quote(tool_name(call.name)), object_text(call.args)
    said = b'{"functionCall":{%s"name":%s,"args":%s}' % (_id(call), name, args)
    made = _made(call)
    signature = UNSIGNED if made is None and first else (made or {}).get("thoughtSignature")
    signed = b"" if signature is None else b',"thoughtSignature":' + bytes(signature)
    return said + signed + b"}"


def _id(call: Call) -> bytes:
    """The member that names a call, where Gemini itself has named it."""
    id = (_made(call) or {}).get("id")
    return b"" if id is None else b'"id":' + bytes(id) + b","


def _made(call: Call) -> Members | None:
    """What Gemini said of a call besides its name and arguments; none if it did not make it."""
    extra = members(b"{" + utf8(call.extra) + b"}").get(MINE)
    return None if extra is None else members(bytes(extra))


def _text(text: str, beside: bytes = b"") -> bytes:
    return b'{"text":' + quote(text) + beside + b"}"
