"""Ollama's own API: how a view is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from travois.core.content import AnyBlock, Call, Media, Shown, Text, words
from travois.core.facts import Epoch, Result
from travois.core.json import Members, object_text, quote
from travois.providers.media import base64, note
from travois.providers.names import NO_WORDS, tool_name
from travois.providers.openai_chat import Chat, declared, message, thought
from travois.providers.options import further
from travois.providers.request import Head, Piece


class Ollama(Chat):
    """Chat messages without ids: a result names its tool, and arguments are objects."""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        super().__init__(epoch, fetch)
        self.head = _head(epoch)
        self._nothing = b'""'

    def _user(self, content: tuple[Shown, ...], *, before: str) -> Iterator[Piece]:
        """Words in one string, pictures beside it."""
        told, images = list[Text](), list[bytes]()
        for block in map(self._told, content):
            data = base64(block, self._fetch) if isinstance(block, Media) else None
            if data is not None:
                images.append(b'"' + data + b'"')
            else:
                told.append(block if isinstance(block, Text) else Text(note(block, "it is lost")))
        text = words(tuple(told))
        said = b'{"role":"user","content":' + quote(text if text.strip() else NO_WORDS)
        shown = b',"images":[' + b",".join(images) + b"]" if images else b""
        yield Piece("user", said + shown + b"}")

    def _result(self, fact: Result, call: Call) -> Piece:
        said = b'{"role":"tool","tool_name":%s,"content":%s}'
        return Piece("tool", said % (quote(tool_name(call.name)), quote(self._outcome(fact))))

    def _reasoning(self, content: tuple[AnyBlock, ...]) -> Members:
        thoughts = thought(content).get("reasoning_content")
        return {} if thoughts is None else {"thinking": thoughts}

    def _call(self, call: Call) -> bytes:
        name, args = quote(tool_name(call.name)), object_text(call.args)
        return b'{"function":{"name":%s,"arguments":%s}}' % (name, args)


def _head(epoch: Epoch) -> Head:
    """The window is always named: left to itself, the server cuts prompts to a few thousand."""
    model = epoch.model
    tools = [declared(tool) for tool in epoch.tools]
    system = [message("system", quote(epoch.system))] if epoch.system.strip() else []
    sizes = b'"num_ctx":%d,"num_predict":%d' % (model.window, model.output)
    opening = b'{"model":' + quote(model.id) + b',"options":{' + sizes + b"}"
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    return Head(
        path="/api/chat",
        headers=(("content-type", "application/json"),),
        pieces=(*(Piece("tools", tool) for tool in tools), *system),
        opening=opening + b',"messages":[' + b"".join(piece.data for piece in system),
        closing=b'],"stream":true' + further(model) + b"}",
        role="system" if system else "",
    )
