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
from travois.providers.errors import parse_stream_error
from travois.providers.http.sse import SseEvent
from travois.providers.replies import (
    ApiError,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
    estimate_reply_usage,
)
from travois.providers.request import (
    CONTINUE_TEXT,
    ECHOED_CALL_MEMBER,
    EMPTY_MESSAGE_TEXT,
    IMAGE_TYPES,
    NO_OUTPUT_TEXT,
    NOT_SHOWN_REASON,
    STARTED_EARLIER_TEXT,
    RequestHead,
    RequestPart,
    encode_closing_options,
    find_call_of_result,
    make_legal_call_id,
    make_legal_tool_name,
    media_or_placeholder,
    media_placeholder,
    text_of_block,
)
from travois.providers.web_search import collect_annotation_hits, merge_hits

BETWEEN_TOOL_AND_USER = "(noted)"
ATTACHED_IMAGES_TEXT = "Shown by the tools above:"


class ChatEncoder:
    """An encoder of views as chat completion requests: parts are messages."""

    close = b""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _build_chat_head(epoch)
        self._quirks = frozenset[ModelQuirk](epoch.model.quirks)
        self._images = epoch.model.images and "text-parts" not in self._quirks
        self._nothing = b'""' if "text-parts" in self._quirks else b"null"
        self._fetch = fetch

    def encode_separator(self, before: str, role: str) -> bytes:
        """Return a comma, except before the first message."""
        return b"," if before else b""

    def encode_item(
        self, items: Sequence[ViewItem], index: int, *, before: str
    ) -> Iterator[RequestPart]:
        """Encode one item as messages, with those that must stand around it."""
        fact = items[index].fact
        match fact:
            case User():
                yield from self._encode_user(fact.content, before=before)
            case Result():
                yield self._encode_result(fact, find_call_of_result(items, index, fact.call))
                if index + 1 == len(items) or not isinstance(items[index + 1].fact, Result):
                    yield from self._encode_batch_images(items, index)
            case Assistant():
                yield from self._encode_assistant(fact, before=before)
            case _:
                assert_never(fact)

    def _encode_user(
        self, content: tuple[TextOrMedia, ...], *, before: str
    ) -> Iterator[RequestPart]:
        if before == "tool" and "no-user-after-tool" in self._quirks:
            yield encode_chat_message("assistant", quote_json(BETWEEN_TOOL_AND_USER))
        yield encode_chat_message("user", self._encode_content(content))

    def _encode_content(self, content: tuple[TextOrMedia, ...]) -> bytes:
        """Encode text as one string, which every server takes; as parts only with media."""
        told = tuple(self._replace_unshowable(block) for block in content)
        if all(isinstance(block, Text) for block in told):
            text = extract_text(told)
            return quote_json(text if text.strip() else EMPTY_MESSAGE_TEXT)
        parts = (self._encode_part(b) for b in told if isinstance(b, Media) or b.text.strip())
        return b"[" + b",".join(parts) + b"]"

    def _replace_unshowable(self, block: TextOrMedia) -> TextOrMedia:
        return block if self._can_show(block) else self._mention_media(block)

    def _can_show(self, block: TextOrMedia) -> bool:
        return self._images and isinstance(block, Media) and block.mime in IMAGE_TYPES

    def _encode_part(self, block: TextOrMedia) -> bytes:
        if isinstance(block, Text):
            return b'{"type":"text","text":' + quote_json(block.text) + b"}"
        data = media_or_placeholder(block, self._fetch)
        if isinstance(data, str):
            return self._encode_part(Text(data))
        url = b'"data:' + encode_utf8(block.mime) + b";base64," + data + b'"'
        return b'{"type":"image_url","image_url":{"url":' + url + b"}}"

    def _encode_result(self, fact: Result, call: Call) -> RequestPart:
        said = b'{"role":"tool","tool_call_id":%s,"content":%s}'
        return RequestPart(
            "tool",
            said % (quote_json(self._legal_call_id(call.id)), quote_json(self._result_text(fact))),
        )

    def _result_text(self, fact: Result) -> str:
        """Return a result as text; the tool role takes no images, they follow the batch."""
        told = tuple(self._mention_media(block) for block in fact.content)
        text = extract_text(told) if extract_text(told).strip() else NO_OUTPUT_TEXT
        return f"Error: {text}" if fact.error and not text.lower().startswith("error") else text

    def _mention_media(self, block: TextOrMedia) -> Text:
        if isinstance(block, Text):
            return block
        return Text(
            media_placeholder(block, "see below" if self._can_show(block) else NOT_SHOWN_REASON)
        )

    def _encode_batch_images(self, items: Sequence[ViewItem], last: int) -> Iterator[RequestPart]:
        """Encode the images of the batch of results that ends here as a user message."""
        batch: list[TextOrMedia] = []
        while last >= 0 and isinstance(fact := items[last].fact, Result):
            batch[:0] = [block for block in fact.content if self._can_show(block)]
            last -= 1
        if batch:
            yield from self._encode_user((Text(ATTACHED_IMAGES_TEXT), *batch), before="tool")

    def _encode_assistant(self, fact: Assistant, *, before: str) -> Iterator[RequestPart]:
        inside = self._assistant_members(fact.content)
        if inside and before in ("", self.head.role):
            yield encode_chat_message("user", quote_json(STARTED_EARLIER_TEXT))
        if inside:
            yield RequestPart(
                "assistant", b'{"role":"assistant",' + encode_utf8(join_members(inside)) + b"}"
            )
        open_end = bool(inside) or before == "assistant"
        if fact.stop == "pause" and open_end and "tool_calls" not in inside:
            yield encode_chat_message("user", quote_json(CONTINUE_TEXT))

    def _assistant_members(self, content: tuple[AnyBlock, ...]) -> JsonMembers:
        """Return the members of an assistant message; none if there is nothing to say."""
        text = "\n".join(part for block in content if (part := text_of_block(block)).strip())
        made = [self._encode_call(call) for call in extract_calls(content)]
        if not text and not made:
            return {}
        inside: JsonMembers = {"content": msgspec.Raw(quote_json(text) if text else self._nothing)}
        inside |= self._reasoning_members(content)
        if made:
            inside["tool_calls"] = msgspec.Raw(b"[" + b",".join(made) + b"]")
        return inside

    def _reasoning_members(self, content: tuple[AnyBlock, ...]) -> JsonMembers:
        """Return the reasoning to echo: only servers that ask for it get it, and always."""
        thoughts, wanted = collect_thoughts(content), JsonMembers()
        if "echo-reasoning" in self._quirks:
            wanted["reasoning_content"] = thoughts.get("reasoning_content", to_raw_json(""))
        if "reasoning_details" in thoughts and self._quirks & {"echo-reasoning", "usage-include"}:
            wanted["reasoning_details"] = thoughts["reasoning_details"]
        return wanted

    def _encode_call(self, call: Call) -> bytes:
        id, name = (
            quote_json(self._legal_call_id(call.id)),
            quote_json(make_legal_tool_name(call.name)),
        )
        said = b'{"id":%s,"type":"function","function":{"name":%s,"arguments":' % (id, name)
        extra = split_members(b"{" + encode_utf8(call.extra) + b"}").get(ECHOED_CALL_MEMBER)
        echoed = b"" if extra is None else b',"extra_content":' + bytes(extra)
        return said + quote_json(call.args) + b"}" + echoed + b"}"

    def _legal_call_id(self, id: str) -> str:
        if "short-ids" in self._quirks:
            return make_legal_call_id(id, legal=r"[A-Za-z0-9]{9}", start="")[:9]
        return make_legal_call_id(id, legal=r"[\x21-\x7e]{1,40}", start="call_")


def _build_chat_head(epoch: Epoch) -> RequestHead:
    """Build the path, tools and system message that all chat requests of an epoch share."""
    model = epoch.model
    limit = b"max_tokens" if "max-tokens" in model.quirks else b"max_completion_tokens"
    role = "system" if "system-role" in model.quirks else "developer"
    tools = [encode_chat_tool(tool) for tool in epoch.tools]
    system = (
        [encode_chat_message(role, quote_json(epoch.system)).data] if epoch.system.strip() else []
    )
    opening = b'{"model":' + quote_json(model.id) + b',"%s":%d' % (limit, model.output)
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    return RequestHead(
        path="/chat/completions",
        headers=(("content-type", "application/json"),),
        pieces=(
            *(RequestPart("tools", tool) for tool in tools),
            *(RequestPart(role, s) for s in system),
        ),
        opening=opening + b',"messages":[' + b"".join(system),
        closing=b'],"stream":true' + _encode_chat_options(model) + b"}",
        role=role if system else "",
    )


def _encode_chat_options(model: ModelCard) -> bytes:
    """Encode the options of a chat completion, as far as the server accepts them."""
    options = b""
    if "no-stream-options" not in model.quirks:
        options += b',"stream_options":{"include_usage":true}'
    if "usage-include" in model.quirks:
        options += b',"usage":{"include":true}'
    return options + encode_closing_options(model)


def collect_thoughts(content: tuple[AnyBlock, ...]) -> JsonMembers:
    """Collect the reasoning of a chat reply, under the server's own field names."""
    thoughts: JsonMembers = {}
    for block in content:
        if isinstance(block, Opaque) and (block.protocol, block.kind) == ("chat", "reasoning"):
            thoughts |= split_members(encode_utf8(block.raw))
    return thoughts


def encode_chat_tool(tool: ToolSpec) -> bytes:
    """Encode a tool definition for chat completions."""
    name, said, schema = (
        quote_json(tool.name),
        quote_json(tool.description),
        encode_utf8(tool.schema),
    )
    inside = b'{"name":%s,"description":%s,"parameters":%s}' % (name, said, schema)
    return b'{"type":"function","function":' + inside + b"}"


def encode_chat_message(role: str, content: bytes) -> RequestPart:
    """Encode one chat completion message of this role."""
    return RequestPart(role, b'{"role":"' + role.encode() + b'","content":' + content + b"}")


# Tool calls of a chat completion, put together from deltas that each server numbers its way.


class _GrowingCall:
    """A tool call being assembled from deltas."""

    def __init__(self) -> None:
        self.index: int | None = None
        self.id = ""
        self.name = ""
        self.args: list[str] = []
        self.extra = ""


class ChatCallAssembler:
    """The tool calls of one reply, assembled from deltas in the order they began."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []

    def add_delta(self, delta: dict[str, Any], *, reply: str) -> tuple[int, str]:
        """Add one delta; returns the call it belongs to and the added argument text."""
        inside = as_object(delta.get("function"))
        id, name = as_string(delta.get("id")), as_string(inside.get("name"))
        args = _arguments_text(inside.get("arguments"))
        index = delta.get("index")
        call = self._call_for_delta(
            index if isinstance(index, int) else None, id=id, name=name, args=args
        )
        if not call.id:
            call.id = id or make_call_id(reply, self._calls.index(call))
        call.name = call.name or name
        call.args.append(args)
        if delta.get(ECHOED_CALL_MEMBER) is not None:
            call.extra = msgspec.json.encode({ECHOED_CALL_MEMBER: delta[ECHOED_CALL_MEMBER]})[
                1:-1
            ].decode()
        return self._calls.index(call), args

    def id_and_name(self, key: object) -> tuple[str, str]:
        """Return the id and the name of a call."""
        assert isinstance(key, int)
        return self._calls[key].id, self._calls[key].name

    def build_calls(self, reply: str, *, cut: bool) -> tuple[tuple[Call, ...], bool]:
        """Build all calls, without a last one that was cut off, and say whether one was."""
        made = [
            Call(c.id, c.name, normalize_arguments("".join(c.args)), extra=c.extra)
            for c in self._calls
        ]
        half = cut and bool(made) and not is_json_object("".join(self._calls[-1].args))
        return tuple(made[:-1] if half else made), half

    def _call_for_delta(self, index: int | None, *, id: str, name: str, args: str) -> _GrowingCall:
        """Return the call that a delta belongs to: by index, else by id, else the last one."""
        call = self._find_call(index, id=id, name=name)
        if call is not None and not _is_another_call(call, id=id, name=name, args=args):
            return call
        self._calls.append(_GrowingCall())
        self._calls[-1].index = index
        return self._calls[-1]

    def _find_call(self, index: int | None, *, id: str, name: str) -> _GrowingCall | None:
        same = [call for call in self._calls if id and call.id == id]
        if index is not None:
            same = same or [call for call in self._calls if call.index == index]
        elif not id and not name:
            same = self._calls
        return same[-1] if same else None


def make_call_id(reply: str, index: int) -> str:
    """Make an ID for a chat reply's tool call without one: the same for the same reply."""
    return "call_" + blake2b(f"{reply}/{index}".encode(), digest_size=12).hexdigest()


def normalize_arguments(text: str) -> str:
    """Return a chat tool call's arguments as one JSON text; empty becomes {}."""
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


def _is_another_call(call: _GrowingCall, *, id: str, name: str, args: str) -> bool:
    """Return whether a chat delta starts a new tool call: Google numbers parallel calls 0."""
    if not name or not call.name:
        return False
    if id:
        return id != call.id
    return bool(args) and is_json_object("".join(call.args))


def _arguments_text(args: object) -> str:
    """Return tool call arguments of a chat delta as text; some servers send an object."""
    if args is None:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


# Tool calls that a model wrote as text, for models known to do so.


TAGGED_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
MISTRAL_CALLS = re.compile(r"\[TOOL_CALLS\]\s*(\[.*\])\s*\Z", re.DOTALL)
FENCED_CALL = re.compile(r"\A\s*```(?:json|tool_call)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


def split_text_calls(text: str, *, reply: str) -> tuple[str, tuple[Call, ...]]:
    """Split a chat reply's text into words and tool calls; without whole calls it stays."""
    for pattern in (TAGGED_CALL, MISTRAL_CALLS, FENCED_CALL):
        found = [call for match in pattern.findall(text) for call in _parse_text_calls(match)]
        if found:
            made = (_build_text_call(call, reply=reply, index=n) for n, call in enumerate(found))
            return pattern.sub("", text).strip(), tuple(made)
    return text, ()


def _parse_text_calls(text: str) -> list[dict[str, Any]]:
    """Parse tool calls that a chat model wrote as JSON text; empty if it is anything else."""
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return []
    every = [as_object(one) for one in as_list(parsed) or [parsed]]
    return every if all(as_string(one.get("name")) for one in every) else []


def _build_text_call(call: dict[str, Any], *, reply: str, index: int) -> Call:
    """Build a tool call from one that a chat model wrote as JSON text."""
    args = call.get("arguments", call.get("parameters"))
    text = args if isinstance(args, str) else msgspec.json.encode(args or {}).decode()
    return Call(make_call_id(reply, index), call["name"], text)


# OpenAI chat completions and its dialects: how a reply is heard.


CHAT_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "model_context_window_exceeded": "window",
}
REASONING_MEMBERS = ("reasoning_content", "reasoning", "reasoning_text")
GROWING_DETAIL_MEMBERS = ("text", "summary", "data")
"""Members of a reasoning detail that come in parts."""

_chat_chunk_decoder = msgspec.json.Decoder(dict[str, Any])


class ChatReplyParser:
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
        self._calls = ChatCallAssembler()
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self.done = False
        """Whether the server has said that nothing more comes."""
        self._began = False
        self._notes: list[dict[str, Any]] = []
        """Parts that say where the words come from."""
        self._blocks: list[tuple[BlockKind, object]] = []

    def parse_event(self, event: SseEvent) -> Iterator[StreamDelta]:
        """Parse one event; anything after the end is ignored."""
        data = event.data.strip()
        if self.done or not data:
            return
        if data == b"[DONE]":
            self.done = True
            yield from self._end_block()
            return
        chunk = decode_stream_object(data)
        if event.name == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        yield from self.parse_chat_chunk(chunk)

    def parse_body(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        chunk = decode_stream_object(body)
        list(self.parse_chat_chunk(chunk))
        self.done = bool(chunk.get("choices"))

    def build_reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self.done and not self._finish:
            raise ApiError("garbled", "The stream ended before the reply was complete.")
        stop = CHAT_STOP_REASONS.get(self._finish, "unknown")
        if self._refusal:
            stop = "refusal"
        asked, cut = self._calls.build_calls(self._id, cut=stop in ("length", "window"))
        content = self._build_content(asked if stop != "refusal" else ())
        if extract_calls(content) and not cut:
            stop = "calls"
        elif stop == "calls":
            stop = "end"
        usage = _parse_chat_usage(self._usage) or estimate_reply_usage(content, size=self._size)
        hits = merge_hits(collect_annotation_hits(self._notes))
        return Reply(
            content,
            stop,
            usage,
            id=self._id,
            model=self._model,
            detail=self._reply_detail(),
            hits=hits,
        )

    def parse_chat_chunk(self, chunk: dict[str, Any]) -> Iterator[StreamDelta]:
        """Parse one decoded chunk."""
        choice = as_object(next(iter(as_list(chunk.get("choices"))), None))
        groq = as_object(chunk.get("x_groq"))
        error = chunk.get("error") or choice.get("error") or groq.get("error")
        if error:
            raise parse_stream_error(error, protocol="chat")
        yield from self._start_reply(chunk)
        for usage in (groq.get("usage"), choice.get("usage"), chunk.get("usage")):
            self._usage = as_object(usage) or self._usage
        if read_count(choice, "index") == 0:
            yield from self._read_delta(
                as_object(choice.get("delta")) or as_object(choice.get("message"))
            )
            self._finish = as_string(choice.get("finish_reason")) or self._finish

    def _start_reply(self, chunk: dict[str, Any]) -> Iterator[StreamDelta]:
        self._id = self._id or as_string(chunk.get("id"))
        self._model = self._model or as_string(chunk.get("model"))
        if not self._began:
            self._began = True
            yield ReplyBegan(self._id, self._model)

    def _read_delta(self, delta: dict[str, Any]) -> Iterator[StreamDelta]:
        self._notes += [delta] if delta.get("annotations") else []
        thoughts, text = _split_thoughts(delta.get("content"))
        thoughts += next((t for name in REASONING_MEMBERS if (t := as_string(delta.get(name)))), "")
        self._add_reasoning_details(delta.get("reasoning_details"))
        if thoughts:
            self._thoughts.append(thoughts)
            yield from self._emit_delta("thinking", None, text=thoughts)
        refusal = as_string(delta.get("refusal"))
        if refusal:
            self._refusal.append(refusal)
        if text or refusal:
            self._text.append(text + refusal)
            yield from self._emit_delta("text", None, text=text + refusal)
        for call in _call_deltas(delta):
            key, grown = self._calls.add_delta(call, reply=self._id)
            yield from self._emit_delta("call", key, text=grown)

    def _emit_delta(self, kind: BlockKind, key: object, *, text: str) -> Iterator[StreamDelta]:
        block = (kind, key)
        if block not in self._blocks:
            yield from self._end_block()
            self._blocks.append(block)
            id, name = self._calls.id_and_name(key) if kind == "call" else ("", "")
            yield BlockBegan(len(self._blocks) - 1, kind, id=id, name=name)
        if text:
            yield Grew(self._blocks.index(block), kind, text)

    def _end_block(self) -> Iterator[StreamDelta]:
        if self._blocks:
            yield BlockEnded(len(self._blocks) - 1)

    def _add_reasoning_details(self, details: object) -> None:
        """Merge reasoning fragments; those of one detail share a type and an index."""
        for part in map(as_object, as_list(details)):
            last = self._details[-1] if self._details else {}
            same = (part.get("type"), part.get("index")) == (last.get("type"), last.get("index"))
            if not last or not same:
                self._details.append(dict(part))
                continue
            grown = {
                k: as_string(last.get(k)) + part[k]
                for k in GROWING_DETAIL_MEMBERS
                if as_string(part.get(k))
            }
            last |= {k: v for k, v in part.items() if v is not None} | grown

    def _build_content(self, asked: tuple[Call, ...]) -> tuple[AnyBlock, ...]:
        text, thoughts = "".join(self._text), "".join(self._thoughts)
        if self._text_calls and not asked:
            text, asked = split_text_calls(text, reply=self._id)
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

    def _reply_detail(self) -> str:
        if self._refusal:
            return "".join(self._refusal)
        return "" if self._finish in CHAT_STOP_REASONS else self._finish


def decode_stream_object(data: bytes) -> dict[str, Any]:
    """Decode one event of a chat stream as an object; raises `ApiError`."""
    try:
        return _chat_chunk_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("garbled", f"A chunk of the stream is not an object: {error}") from error


def _split_thoughts(content: object) -> tuple[str, str]:
    """Split a chat reply's content, a string or a list of parts, into thoughts and text."""
    parts = [as_object(part) for part in as_list(content)]
    thoughts = "".join(_split_thoughts(part.get("thinking"))[1] for part in parts)
    return thoughts, as_string(content) + "".join(as_string(part.get("text")) for part in parts)


def _call_deltas(delta: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls in a chat delta; the old `function_call` counts as one."""
    if delta.get("function_call"):
        return [{"function": delta["function_call"]}]
    return [as_object(call) for call in as_list(delta.get("tool_calls"))]


def _parse_chat_usage(usage: dict[str, Any]) -> Usage | None:
    """Parse a chat completion's token counts without overlap; None if there are none."""
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
