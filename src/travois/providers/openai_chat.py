"""OpenAI chat completions and its dialects: how a view is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Shown, Text, calls, words
from travois.core.facts import Assistant, Epoch, Result, ToolSpec, User
from travois.core.json import Members, joined, members, quote, raw, utf8
from travois.core.models import Model, Quirk
from travois.core.view import Item
from travois.providers.media import HIDDEN, IMAGES, note, shown
from travois.providers.names import (
    ECHOED,
    GO_ON,
    NO_OUTPUT,
    NO_WORDS,
    STARTED_BEFORE,
    call_id,
    spoken,
    tool_name,
)
from travois.providers.options import further
from travois.providers.request import Head, Piece, asked

BETWEEN = "(noted)"
ATTACHED = "Shown by the tools above:"


class Chat:
    """Pieces are messages."""

    close = b""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._quirks = frozenset[Quirk](epoch.model.quirks)
        self._images = epoch.model.images and "text-parts" not in self._quirks
        self._nothing = b'""' if "text-parts" in self._quirks else b"null"
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """A comma, but not before the first message."""
        return b"," if before else b""

    def pieces(self, items: Sequence[Item], index: int, *, before: str) -> Iterator[Piece]:
        """The messages of one item, and those that must stand around it."""
        fact = items[index].fact
        match fact:
            case User():
                yield from self._user(fact.content, before=before)
            case Result():
                yield self._result(fact, asked(items, index, fact.call))
                if index + 1 == len(items) or not isinstance(items[index + 1].fact, Result):
                    yield from self._attached(items, index)
            case Assistant():
                yield from self._reply(fact, before=before)
            case _:
                assert_never(fact)

    def _user(self, content: tuple[Shown, ...], *, before: str) -> Iterator[Piece]:
        if before == "tool" and "no-user-after-tool" in self._quirks:
            yield message("assistant", quote(BETWEEN))
        yield message("user", self._content(content))

    def _content(self, content: tuple[Shown, ...]) -> bytes:
        """Plain text as one string, which every server takes; parts only where media need them."""
        told = tuple(self._told(block) for block in content)
        if all(isinstance(block, Text) for block in told):
            text = words(told)
            return quote(text if text.strip() else NO_WORDS)
        parts = (self._part(b) for b in told if isinstance(b, Media) or b.text.strip())
        return b"[" + b",".join(parts) + b"]"

    def _told(self, block: Shown) -> Shown:
        return block if self._shows(block) else self._mentioned(block)

    def _shows(self, block: Shown) -> bool:
        return self._images and isinstance(block, Media) and block.mime in IMAGES

    def _part(self, block: Shown) -> bytes:
        if isinstance(block, Text):
            return b'{"type":"text","text":' + quote(block.text) + b"}"
        data = shown(block, self._fetch)
        if isinstance(data, str):
            return self._part(Text(data))
        url = b'"data:' + utf8(block.mime) + b";base64," + data + b'"'
        return b'{"type":"image_url","image_url":{"url":' + url + b"}}"

    def _result(self, fact: Result, call: Call) -> Piece:
        said = b'{"role":"tool","tool_call_id":%s,"content":%s}'
        return Piece("tool", said % (quote(self._id(call.id)), quote(self._outcome(fact))))

    def _outcome(self, fact: Result) -> str:
        """The tool role takes only text: images come in a message after the whole batch."""
        told = tuple(self._mentioned(block) for block in fact.content)
        text = words(told) if words(told).strip() else NO_OUTPUT
        return f"Error: {text}" if fact.error and not text.lower().startswith("error") else text

    def _mentioned(self, block: Shown) -> Text:
        if isinstance(block, Text):
            return block
        return Text(note(block, "see below" if self._shows(block) else HIDDEN))

    def _attached(self, items: Sequence[Item], last: int) -> Iterator[Piece]:
        """The images of the batch of results that ends here, as a message of the user's."""
        batch: list[Shown] = []
        while last >= 0 and isinstance(fact := items[last].fact, Result):
            batch[:0] = [block for block in fact.content if self._shows(block)]
            last -= 1
        if batch:
            yield from self._user((Text(ATTACHED), *batch), before="tool")

    def _reply(self, fact: Assistant, *, before: str) -> Iterator[Piece]:
        inside = self._inside(fact.content)
        if inside and before in ("", self.head.role):
            yield message("user", quote(STARTED_BEFORE))
        if inside:
            yield Piece("assistant", b'{"role":"assistant",' + utf8(joined(inside)) + b"}")
        open_end = bool(inside) or before == "assistant"
        if fact.stop == "pause" and open_end and "tool_calls" not in inside:
            yield message("user", quote(GO_ON))

    def _inside(self, content: tuple[AnyBlock, ...]) -> Members:
        """The members of an assistant's message; none if there is nothing to say."""
        text = "\n".join(part for block in content if (part := spoken(block)).strip())
        made = [self._call(call) for call in calls(content)]
        if not text and not made:
            return {}
        inside: Members = {"content": msgspec.Raw(quote(text) if text else self._nothing)}
        inside |= self._reasoning(content)
        if made:
            inside["tool_calls"] = msgspec.Raw(b"[" + b",".join(made) + b"]")
        return inside

    def _reasoning(self, content: tuple[AnyBlock, ...]) -> Members:
        """Thoughts go back only to servers that ask for them, and there always."""
        thoughts, wanted = thought(content), Members()
        if "echo-reasoning" in self._quirks:
            wanted["reasoning_content"] = thoughts.get("reasoning_content", raw(""))
        if "reasoning_details" in thoughts and self._quirks & {"echo-reasoning", "usage-include"}:
            wanted["reasoning_details"] = thoughts["reasoning_details"]
        return wanted

    def _call(self, call: Call) -> bytes:
        id, name = quote(self._id(call.id)), quote(tool_name(call.name))
        said = b'{"id":%s,"type":"function","function":{"name":%s,"arguments":' % (id, name)
        extra = members(b"{" + utf8(call.extra) + b"}").get(ECHOED)
        echoed = b"" if extra is None else b',"extra_content":' + bytes(extra)
        return said + quote(call.args) + b"}" + echoed + b"}"

    def _id(self, id: str) -> str:
        if "short-ids" in self._quirks:
            return call_id(id, legal=r"[A-Za-z0-9]{9}", start="")[:9]
        return call_id(id, legal=r"[\x21-\x7e]{1,40}", start="call_")


def _head(epoch: Epoch) -> Head:
    model = epoch.model
    limit = b"max_tokens" if "max-tokens" in model.quirks else b"max_completion_tokens"
    role = "system" if "system-role" in model.quirks else "developer"
    tools = [declared(tool) for tool in epoch.tools]
    system = [message(role, quote(epoch.system)).data] if epoch.system.strip() else []
    opening = b'{"model":' + quote(model.id) + b',"%s":%d' % (limit, model.output)
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    return Head(
        path="/chat/completions",
        headers=(("content-type", "application/json"),),
        pieces=(*(Piece("tools", tool) for tool in tools), *(Piece(role, s) for s in system)),
        opening=opening + b',"messages":[' + b"".join(system),
        closing=b'],"stream":true' + _options(model) + b"}",
        role=role if system else "",
    )


def _options(model: Model) -> bytes:
    options = b""
    if "no-stream-options" not in model.quirks:
        options += b',"stream_options":{"include_usage":true}'
    if "usage-include" in model.quirks:
        options += b',"usage":{"include":true}'
    return options + further(model)


def thought(content: tuple[AnyBlock, ...]) -> Members:
    """The thoughts of a reply, as the server named them."""
    thoughts: Members = {}
    for block in content:
        if isinstance(block, Opaque) and (block.protocol, block.kind) == ("chat", "reasoning"):
            thoughts |= members(utf8(block.raw))
    return thoughts


def declared(tool: ToolSpec) -> bytes:
    """A tool as chat completions are told of it."""
    name, said, schema = quote(tool.name), quote(tool.description), utf8(tool.schema)
    inside = b'{"name":%s,"description":%s,"parameters":%s}' % (name, said, schema)
    return b'{"type":"function","function":' + inside + b"}"


def message(role: str, content: bytes) -> Piece:
    """One message of this role."""
    return Piece(role, b'{"role":"' + role.encode() + b'","content":' + content + b"}")
