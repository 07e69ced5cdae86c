"""The OpenAI chat completions API and its dialects: builds request bodies, parses replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, assert_never

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
    is_json_object,
    join_members,
    quote_json,
    read_count,
    split_members,
    to_raw_json,
)
from travois.core.models import ModelCard, ModelQuirk, Usage
from travois.core.view import ViewItem
from travois.providers.errors import streamed
from travois.providers.http.sse import Event
from travois.providers.options import (
    ECHOED,
    GO_ON,
    HIDDEN,
    IMAGES,
    NO_OUTPUT,
    NO_WORDS,
    STARTED_BEFORE,
    call_id,
    further,
    note,
    shown,
    spoken,
    tool_name,
)
from travois.providers.replies import (
    Began,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Problem,
    Reply,
    StreamDelta,
    guess,
)
from travois.providers.request import Head, Piece, asked
from travois.providers.web_search import annotated, merged

BETWEEN = "(noted)"
ATTACHED = "Shown by the tools above:"


class Chat:
    """An encoder of views as chat completion requests: parts are messages."""

    close = b""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._quirks = frozenset[ModelQuirk](epoch.model.quirks)
        self._images = epoch.model.images and "text-parts" not in self._quirks
        self._nothing = b'""' if "text-parts" in self._quirks else b"null"
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """Return a comma, except before the first message."""
        return b"," if before else b""

    def pieces(self, items: Sequence[ViewItem], index: int, *, before: str) -> Iterator[Piece]:
        """Encode one item as messages, with those that must stand around it."""
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

    def _user(self, content: tuple[TextOrMedia, ...], *, before: str) -> Iterator[Piece]:
        if before == "tool" and "no-user-after-tool" in self._quirks:
            yield message("assistant", quote_json(BETWEEN))
        yield message("user", self._content(content))

    def _content(self, content: tuple[TextOrMedia, ...]) -> bytes:
        """Encode text as one string, which every server takes; as parts only with media."""
        told = tuple(self._told(block) for block in content)
        if all(isinstance(block, Text) for block in told):
            text = extract_text(told)
            return quote_json(text if text.strip() else NO_WORDS)
        parts = (self._part(b) for b in told if isinstance(b, Media) or b.text.strip())
        return b"[" + b",".join(parts) + b"]"

    def _told(self, block: TextOrMedia) -> TextOrMedia:
        return block if self._shows(block) else self._mentioned(block)

    def _shows(self, block: TextOrMedia) -> bool:
        return self._images and isinstance(block, Media) and block.mime in IMAGES

    def _part(self, block: TextOrMedia) -> bytes:
        if isinstance(block, Text):
            return b'{"type":"text","text":' + quote_json(block.text) + b"}"
        data = shown(block, self._fetch)
        if isinstance(data, str):
            return self._part(Text(data))
        url = b'"data:' + encode_utf8(block.mime) + b";base64," + data + b'"'
        return b'{"type":"image_url","image_url":{"url":' + url + b"}}"

    def _result(self, fact: Result, call: Call) -> Piece:
        said = b'{"role":"tool","tool_call_id":%s,"content":%s}'
        return Piece(
            "tool", said % (quote_json(self._id(call.id)), quote_json(self._outcome(fact)))
        )

    def _outcome(self, fact: Result) -> str:
        """Return a result as text; the tool role takes no images, they follow the batch."""
        told = tuple(self._mentioned(block) for block in fact.content)
        text = extract_text(told) if extract_text(told).strip() else NO_OUTPUT
        return f"Error: {text}" if fact.error and not text.lower().startswith("error") else text

    def _mentioned(self, block: TextOrMedia) -> Text:
        if isinstance(block, Text):
            return block
        return Text(note(block, "see below" if self._shows(block) else HIDDEN))

    def _attached(self, items: Sequence[ViewItem], last: int) -> Iterator[Piece]:
        """Encode the images of the batch of results that ends here as a user message."""
        batch: list[TextOrMedia] = []
        while last >= 0 and isinstance(fact := items[last].fact, Result):
            batch[:0] = [block for block in fact.content if self._shows(block)]
            last -= 1
        if batch:
            yield from self._user((Text(ATTACHED), *batch), before="tool")

    def _reply(self, fact: Assistant, *, before: str) -> Iterator[Piece]:
        inside = self._inside(fact.content)
        if inside and before in ("", self.head.role):
            yield message("user", quote_json(STARTED_BEFORE))
        if inside:
            yield Piece(
                "assistant", b'{"role":"assistant",' + encode_utf8(join_members(inside)) + b"}"
            )
        open_end = bool(inside) or before == "assistant"
        if fact.stop == "pause" and open_end and "tool_calls" not in inside:
            yield message("user", quote_json(GO_ON))

    def _inside(self, content: tuple[AnyBlock, ...]) -> JsonMembers:
        """Return the members of an assistant message; none if there is nothing to say."""
        text = "\n".join(part for block in content if (part := spoken(block)).strip())
        made = [self._call(call) for call in extract_calls(content)]
        if not text and not made:
            return {}
        inside: JsonMembers = {"content": msgspec.Raw(quote_json(text) if text else self._nothing)}
        inside |= self._reasoning(content)
        if made:
            inside["tool_calls"] = msgspec.Raw(b"[" + b",".join(made) + b"]")
        return inside

    def _reasoning(self, content: tuple[AnyBlock, ...]) -> JsonMembers:
        """Return the reasoning to echo: only servers that ask for it get it, and always."""
        thoughts, wanted = thought(content), JsonMembers()
        if "echo-reasoning" in self._quirks:
            wanted["reasoning_content"] = thoughts.get("reasoning_content", to_raw_json(""))
        if "reasoning_details" in thoughts and self._quirks & {"echo-reasoning", "usage-include"}:
            wanted["reasoning_details"] = thoughts["reasoning_details"]
        return wanted

    def _call(self, call: Call) -> bytes:
        id, name = quote_json(self._id(call.id)), quote_json(tool_name(call.name))
        said = b'{"id":%s,"type":"function","function":{"name":%s,"arguments":' % (id, name)
        extra = split_members(b"{" + encode_utf8(call.extra) + b"}").get(ECHOED)
        echoed = b"" if extra is None else b',"extra_content":' + bytes(extra)
        return said + quote_json(call.args) + b"}" + echoed + b"}"

    def _id(self, id: str) -> str:
        if "short-ids" in self._quirks:
            return call_id(id, legal=r"[A-Za-z0-9]{9}", start="")[:9]
        return call_id(id, legal=r"[\x21-\x7e]{1,40}", start="call_")


def _head(epoch: Epoch) -> Head:
    """Build the path, tools and system message that all requests of an epoch share."""
    model = epoch.model
    limit = b"max_tokens" if "max-tokens" in model.quirks else b"max_completion_tokens"
    role = "system" if "system-role" in model.quirks else "developer"
    tools = [declared(tool) for tool in epoch.tools]
    system = [message(role, quote_json(epoch.system)).data] if epoch.system.strip() else []
    opening = b'{"model":' + quote_json(model.id) + b',"%s":%d' % (limit, model.output)
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    return Head(
        path="/chat/completions",
        headers=(("content-type", "application/json"),),
        pieces=(*(Piece("tools", tool) for tool in tools), *(Piece(role, s) for s in system)),
        opening=opening + b',"messages":[' + b"".join(system),
        closing=b'],"stream":true' + _options(model) + b"}",
        role=role if system else "",
    )


def _options(model: ModelCard) -> bytes:
    options = b""
    if "no-stream-options" not in model.quirks:
        options += b',"stream_options":{"include_usage":true}'
    if "usage-include" in model.quirks:
        options += b',"usage":{"include":true}'
    return options + further(model)


def thought(content: tuple[AnyBlock, ...]) -> JsonMembers:
    """Collect the reasoning of a reply, under the server's own names."""
    thoughts: JsonMembers = {}
    for block in content:
        if isinstance(block, Opaque) and (block.protocol, block.kind) == ("chat", "reasoning"):
            thoughts |= split_members(encode_utf8(block.raw))
    return thoughts


def declared(tool: ToolSpec) -> bytes:
    """Encode a tool definition for chat completions."""
    name, said, schema = (
        quote_json(tool.name),
        quote_json(tool.description),
        encode_utf8(tool.schema),
    )
    inside = b'{"name":%s,"description":%s,"parameters":%s}' % (name, said, schema)
    return b'{"type":"function","function":' + inside + b"}"


def message(role: str, content: bytes) -> Piece:
    """Encode one message of this role."""
    return Piece(role, b'{"role":"' + role.encode() + b'","content":' + content + b"}")


# Tool calls of a chat completion, put together from deltas that each server numbers its way.


class _Growing:
    """A tool call being assembled from deltas."""

    def __init__(self) -> None:
        self.index: int | None = None
        self.id = ""
        self.name = ""
        self.args: list[str] = []
        self.extra = ""


class Calls:
    """The tool calls of one reply, assembled from deltas in the order they began."""

    def __init__(self) -> None:
        self._calls: list[_Growing] = []

    def take(self, delta: dict[str, Any], *, reply: str) -> tuple[int, str]:
        """Add one delta; returns the call it belongs to and the added argument text."""
        inside = as_object(delta.get("function"))
        id, name = as_string(delta.get("id")), as_string(inside.get("name"))
        args = _text(inside.get("arguments"))
        index = delta.get("index")
        call = self._of(index if isinstance(index, int) else None, id=id, name=name, args=args)
        if not call.id:
            call.id = id or made_id(reply, self._calls.index(call))
        call.name = call.name or name
        call.args.append(args)
        if delta.get(ECHOED) is not None:
            call.extra = msgspec.json.encode({ECHOED: delta[ECHOED]})[1:-1].decode()
        return self._calls.index(call), args

    def named(self, key: object) -> tuple[str, str]:
        """Return the id and the name of a call."""
        assert isinstance(key, int)
        return self._calls[key].id, self._calls[key].name

    def made(self, reply: str, *, cut: bool) -> tuple[tuple[Call, ...], bool]:
        """Build all calls, without a last one that was cut off, and say whether one was."""
        made = [Call(c.id, c.name, arguments("".join(c.args)), extra=c.extra) for c in self._calls]
        half = cut and bool(made) and not is_json_object("".join(self._calls[-1].args))
        return tuple(made[:-1] if half else made), half

    def _of(self, index: int | None, *, id: str, name: str, args: str) -> _Growing:
        """Return the call that a delta belongs to: by index, else by id, else the last one."""
        call = self._known(index, id=id, name=name)
        if call is not None and not _starts_another(call, id=id, name=name, args=args):
            return call
        self._calls.append(_Growing())
        self._calls[-1].index = index
        return self._calls[-1]

    def _known(self, index: int | None, *, id: str, name: str) -> _Growing | None:
        same = [call for call in self._calls if id and call.id == id]
        if index is not None:
            same = same or [call for call in self._calls if call.index == index]
        elif not id and not name:
            same = self._calls
        return same[-1] if same else None


def made_id(reply: str, index: int) -> str:
    """Make an id for a call without one: always the same for the same reply."""
    return "call_" + blake2b(f"{reply}/{index}".encode(), digest_size=12).hexdigest()


def arguments(text: str) -> str:
    """Return arguments as one JSON text; empty becomes {}, a JSON string is unwrapped."""
    bare = text.strip()
    if bare in ("", "null", '""'):
        return "{}"
    if bare.startswith('"'):
        try:
            inner = msgspec.json.decode(bare, type=str)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return text
        return inner if is_json_object(inner) else text
    return text


def _starts_another(call: _Growing, *, id: str, name: str, args: str) -> bool:
    """Return whether a delta starts a new call: Google numbers all parallel calls 0."""
    if not name or not call.name:
        return False
    if id:
        return id != call.id
    return bool(args) and is_json_object("".join(call.args))


def _text(args: object) -> str:
    """Return part of the arguments as text; some servers send them whole, as an object."""
    if args is None:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


# Tool calls that a model wrote as text, for models known to do so.


TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
MISTRAL = re.compile(r"\[TOOL_CALLS\]\s*(\[.*\])\s*\Z", re.DOTALL)
FENCED = re.compile(r"\A\s*```(?:json|tool_call)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


def split(text: str, *, reply: str) -> tuple[str, tuple[Call, ...]]:
    """Split text into words and tool calls; a text without whole calls stays as it is."""
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
    every = [as_object(one) for one in as_list(parsed) or [parsed]]
    return every if all(as_string(one.get("name")) for one in every) else []


def _call(call: dict[str, Any], *, reply: str, index: int) -> Call:
    args = call.get("arguments", call.get("parameters"))
    text = args if isinstance(args, str) else msgspec.json.encode(args or {}).decode()
    return Call(made_id(reply, index), call["name"], text)


# OpenAI chat completions and its dialects: how a reply is heard.


STOPS: dict[str, StopReason] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "model_context_window_exceeded": "window",
}
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
GROWING = ("text", "summary", "data")
"""Members of a reasoning detail that come in parts."""

_chunks = msgspec.json.Decoder(dict[str, Any])


class ChatReply:
    """A parser of chat completion chunks that builds up one reply."""

    def __init__(self, model: ModelCard, *, size: int = 0) -> None:
        self._size = size
        self._text_calls = "text-calls" in model.quirks
        self._id = ""
        self._model = ""
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._refusal: list[str] = []
        self._calls = Calls()
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self.done = False
        """Whether the server has said that nothing more comes."""
        self._began = False
        self._notes: list[dict[str, Any]] = []
        """Parts that say where the words come from."""
        self._blocks: list[tuple[BlockKind, object]] = []

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Parse one event; anything after the end is ignored."""
        data = event.data.strip()
        if self.done or not data:
            return
        if data == b"[DONE]":
            self.done = True
            yield from self._end()
            return
        chunk = decode(data)
        if event.name == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        yield from self.take(chunk)

    def whole(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        chunk = decode(body)
        list(self.take(chunk))
        self.done = bool(chunk.get("choices"))

    def reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self.done and not self._finish:
            raise Problem("garbled", "The stream ended before the reply was complete.")
        stop = STOPS.get(self._finish, "unknown")
        if self._refusal:
            stop = "refusal"
        asked, cut = self._calls.made(self._id, cut=stop in ("length", "window"))
        content = self._content(asked if stop != "refusal" else ())
        if extract_calls(content) and not cut:
            stop = "calls"
        elif stop == "calls":
            stop = "end"
        usage = _usage(self._usage) or guess(content, size=self._size)
        hits = merged(annotated(self._notes))
        return Reply(
            content,
            stop,
            usage,
            id=self._id,
            model=self._model,
            detail=self._detail(),
            hits=hits,
        )

    def take(self, chunk: dict[str, Any]) -> Iterator[StreamDelta]:
        """Parse one decoded chunk."""
        choice = as_object(next(iter(as_list(chunk.get("choices"))), None))
        groq = as_object(chunk.get("x_groq"))
        error = chunk.get("error") or choice.get("error") or groq.get("error")
        if error:
            raise streamed(error, protocol="chat")
        yield from self._begin(chunk)
        for usage in (groq.get("usage"), choice.get("usage"), chunk.get("usage")):
            self._usage = as_object(usage) or self._usage
        if read_count(choice, "index") == 0:
            yield from self._grow(
                as_object(choice.get("delta")) or as_object(choice.get("message"))
            )
            self._finish = as_string(choice.get("finish_reason")) or self._finish

    def _begin(self, chunk: dict[str, Any]) -> Iterator[StreamDelta]:
        self._id = self._id or as_string(chunk.get("id"))
        self._model = self._model or as_string(chunk.get("model"))
        if not self._began:
            self._began = True
            yield Began(self._id, self._model)

    def _grow(self, delta: dict[str, Any]) -> Iterator[StreamDelta]:
        self._notes += [delta] if delta.get("annotations") else []
        thoughts, text = _parts(delta.get("content"))
        thoughts += next((t for name in THOUGHTS if (t := as_string(delta.get(name)))), "")
        self._add_details(delta.get("reasoning_details"))
        if thoughts:
            self._thoughts.append(thoughts)
            yield from self._show("thinking", None, text=thoughts)
        refusal = as_string(delta.get("refusal"))
        if refusal:
            self._refusal.append(refusal)
        if text or refusal:
            self._text.append(text + refusal)
            yield from self._show("text", None, text=text + refusal)
        for call in _call_deltas(delta):
            key, grown = self._calls.take(call, reply=self._id)
            yield from self._show("call", key, text=grown)

    def _show(self, kind: BlockKind, key: object, *, text: str) -> Iterator[StreamDelta]:
        block = (kind, key)
        if block not in self._blocks:
            yield from self._end()
            self._blocks.append(block)
            id, name = self._calls.named(key) if kind == "call" else ("", "")
            yield BlockBegan(len(self._blocks) - 1, kind, id=id, name=name)
        if text:
            yield Grew(self._blocks.index(block), kind, text)

    def _end(self) -> Iterator[StreamDelta]:
        if self._blocks:
            yield BlockEnded(len(self._blocks) - 1)

    def _add_details(self, details: object) -> None:
        """Merge reasoning fragments; those of one detail share a type and an index."""
        for part in map(as_object, as_list(details)):
            last = self._details[-1] if self._details else {}
            same = (part.get("type"), part.get("index")) == (last.get("type"), last.get("index"))
            if not last or not same:
                self._details.append(dict(part))
                continue
            grown = {k: as_string(last.get(k)) + part[k] for k in GROWING if as_string(part.get(k))}
            last |= {k: v for k, v in part.items() if v is not None} | grown

    def _content(self, asked: tuple[Call, ...]) -> tuple[AnyBlock, ...]:
        text, thoughts = "".join(self._text), "".join(self._thoughts)
        if self._text_calls and not asked:
            text, asked = split(text, reply=self._id)
        kept: dict[str, Any] = {"reasoning_content": thoughts} if thoughts else {}
        if self._details:
            kept["reasoning_details"] = self._details
        content: list[AnyBlock] = []
        if kept:
            raw = msgspec.json.encode(kept).decode()
            content.append(Opaque("chat", "reasoning", raw, thoughts))
        if text:
            content.append(Text(text))
        return (*content, *asked)

    def _detail(self) -> str:
        if self._refusal:
            return "".join(self._refusal)
        return "" if self._finish in STOPS else self._finish


def decode(data: bytes) -> dict[str, Any]:
    """Decode one event of a stream as an object; raises `ApiError`."""
    try:
        return _chunks.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("garbled", f"A chunk of the stream is not an object: {error}") from error


def _parts(content: object) -> tuple[str, str]:
    """Split a content, a string or a list of parts, into thoughts and text."""
    parts = [as_object(part) for part in as_list(content)]
    thoughts = "".join(_parts(part.get("thinking"))[1] for part in parts)
    return thoughts, as_string(content) + "".join(as_string(part.get("text")) for part in parts)


def _call_deltas(delta: dict[str, Any]) -> list[dict[str, Any]]:
    if delta.get("function_call"):
        return [{"function": delta["function_call"]}]
    return [as_object(call) for call in as_list(delta.get("tool_calls"))]


def _usage(usage: dict[str, Any]) -> Usage | None:
    """Parse the token counts without overlap; None if there are none."""
    prompt, output = read_count(usage, "prompt_tokens"), read_count(usage, "completion_tokens")
    if not prompt and not output:
        return None
    inside = as_object(usage.get("prompt_tokens_details"))
    read = read_count(inside, "cached_tokens") or read_count(usage, "cached_tokens")
    read = min(prompt, read or read_count(usage, "prompt_cache_hit_tokens"))
    write = min(prompt - read, read_count(inside, "cache_write_tokens"))
    reasoning = read_count(as_object(usage.get("completion_tokens_details")), "reasoning_tokens")
    apart = read_count(usage, "total_tokens") == prompt + output + reasoning
    return Usage(
        input=prompt - read - write,
        read=read,
        write=write,
        output=output + reasoning if apart else output,
        reasoning=reasoning,
    )
