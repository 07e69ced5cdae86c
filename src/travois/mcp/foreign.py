"""Tools of others: told by a JSON schema, run by whoever offers them.

What they are called and what they bring is not ours: names are made safe, descriptions are cut and
shown with everything that could hide in them, and results are bounded.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Awaitable, Callable, Collection, Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from travois.context.tool_results import measure, preview
from travois.core.content import Media, Shown, Text
from travois.core.display_text import visible
from travois.core.json import table
from travois.permissions.access import Access
from travois.ports.tool import AnyTool, Outcome, Tool
from travois.ports.world import Env

LONGEST = 64
"""How many characters providers let a tool's name have."""
TOLD = 2_048
"""How many characters of a description the model is told."""
MOST = 500_000
"""How many characters a tool may say that it brings, so that all of them are shown."""
ALWAYS, SIZE = "anthropic/alwaysLoad", "anthropic/maxResultSizeChars"
MEETS = "anthropic/requiresUserInteraction"
LEAST_CHARS = 2
"""A token stands for at least so many characters in most texts."""
AROUND = 100
"""The tokens kept for what a provider puts around a result."""
PICTURE = 5_000_000
EMPTY = "It brought nothing."
UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class Offer(msgspec.Struct, frozen=True, rename="camel"):
    """One tool as its server tells of it."""

    name: str
    description: str | None = ""
    input_schema: msgspec.Raw = msgspec.Raw(b'{"type":"object"}')
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="_meta")

    @property
    def always(self) -> bool:
        """Whether it wants to stand in the head of every request."""
        return self._said(ALWAYS) is True

    @property
    def asks(self) -> bool:
        """Whether it wants a person to see each use of it."""
        return self._said(MEETS) is True

    @property
    def room(self) -> int:
        """How many characters of its results it wants to be shown; 0 if it does not say."""
        size = self._said(SIZE)
        return max(0, min(MOST, size)) if isinstance(size, int) else 0

    def _said(self, key: str) -> object:
        try:
            return table(msgspec.json.decode(self.meta)).get(key)
        except RecursionError:
            return None


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """A thing that a server has, in a result."""

    uri: str = ""
    text: str = ""
    blob: str = ""
    mime_type: str | None = ""


class Item(msgspec.Struct, frozen=True, rename="camel"):
    """One block of a result."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = ""
    uri: str = ""
    name: str = ""
    resource: Resource = Resource()


class Answered(msgspec.Struct, frozen=True, rename="camel"):
    """What a server answered to a call."""

    content: tuple[Item, ...] = ()
    structured_content: msgspec.Raw = msgspec.Raw(b"null")
    is_error: bool = False


Caller = Callable[[str, dict[str, Any]], Awaitable[Answered]]
"""Runs a tool by the name that its server gave it; may raise `Refusal`."""


def foreign(
    server: str,
    offers: Iterable[Offer],
    call: Caller,
    *,
    taken: Collection[str] = (),
) -> tuple[AnyTool, ...]:
    """The tools of a server, under names that nobody else has."""
    found: dict[str, AnyTool] = {}
    for offer in offers:
        name = named(server, offer.name, taken={*taken, *found})
        found[name] = _tool(server, offer, call, name=name)
    return tuple(found.values())


def named(server: str, tool: str, *, taken: Collection[str] = ()) -> str:
    """`mcp__server__tool`, as providers take it; what is too long or taken gets a mark."""
    name = f"mcp__{UNSAFE.sub('_', server)}__{UNSAFE.sub('_', tool)}"
    if len(name) <= LONGEST and name not in taken:
        return name
    mark = blake2b(f"{server}\0{tool}".encode(errors="replace"), digest_size=4).hexdigest()
    return f"{name[: LONGEST - len(mark) - 1]}_{mark}"


def described(text: str) -> str:
    """A description as the model is told: not too long, and nothing in it unseen."""
    shown = "\n".join(visible(line) for line in text.strip().splitlines())
    return shown if len(shown) <= TOLD else f"{shown[: TOLD - 1]}…"


def _tool(server: str, offer: Offer, call: Caller, *, name: str) -> AnyTool:
    async def run(args: dict[str, Any], env: Env, id: str) -> Outcome:
        return outcome(await call(offer.name, args), env, id, wish=offer.room)

    return Tool[Any](
        name=name,
        description=described(offer.description or offer.name),
        args=dict[str, Any],
        access=lambda args, here: (Access("call", server, asks=offer.asks),),
        run=run,
        bounded=True,
        summary=lambda args: f"{server}: {offer.name} {_brief(args)}",
        schema=_schema(offer.input_schema),
    )


def _schema(raw: msgspec.Raw) -> str:
    """As compact as it can be; providers want it to be that of an object."""
    told = table(msgspec.json.decode(raw))
    return msgspec.json.encode({**told, "type": "object"}).decode()


def _brief(args: dict[str, Any]) -> str:
    text = msgspec.json.encode(args).decode()
    return text if len(text) <= 120 else f"{text[:119]}…"


def outcome(answered: Answered, env: Env, id: str, *, wish: int = 0) -> Outcome:
    """A server's answer as the model sees it; what has no room is in a file.

    `wish` is how many characters the tool says that it brings: all of them are shown if that is
    free.
    """
    detail = bytes(answered.structured_content).decode().removeprefix("null")
    shown = [_shown(item, env, f"{id}-{n}") for n, item in enumerate(answered.content)]
    bounded: list[Shown] = []
    left = min(max(env.room.cap, wish // LEAST_CHARS), env.room.share - AROUND)
    for number, block in enumerate(shown or [Text(detail or EMPTY)]):
        fitting = _bounded(block, env, f"{id}-{number}", tokens=left)
        left -= measure(fitting.text) if isinstance(fitting, Text) else 0
        bounded.append(fitting)
    return Outcome(tuple(bounded), error=answered.is_error, detail=detail)


def _bounded(block: Shown, env: Env, name: str, *, tokens: int) -> Shown:
    if not isinstance(block, Text) or measure(block.text) <= tokens:
        return block
    path = env.spill(name, block.text.encode(errors="replace"))
    return Text(preview(block.text, path=path, tokens=tokens, nonce=""))


def _shown(item: Item, env: Env, name: str) -> Shown:
    held = item.resource
    match item.type:
        case "text":
            return Text(item.text)
        case "image" if (data := _bytes(item.data)) and len(data) <= PICTURE:
            return Media("image", item.mime_type or "image/png", env.blobs.put(data), len(data))
        case "resource" if held.text:
            return Text(f"{held.uri}:\n{held.text}")
        case "resource_link":
            return Text(f"[{item.name or 'resource'}: {item.uri}]")
        case _:
            data = _bytes(item.data or held.blob)
            kind = item.mime_type or held.mime_type or item.type
            return Text(f"[{kind}, {len(data):,} bytes: {env.spill(name, data)}]")


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text)
    except (Error, ValueError):
        return b""
