"""What the lab has already read: a long history is parsed, judged and laid out only once.

Deleting it changes nothing but time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from travois_lab.objects import Json, is_list, is_object
from travois_lab.positions import Position, as_blocks, message_positions
from travois_lab.validate import anthropic_faults

LIMIT = 64 * 1024 * 1024
"""Bytes of messages after which it starts over."""
NONE: frozenset[str] = frozenset()
OPENING: Json = {"role": "user", "content": "(what was judged before)"}


class Memo:
    """Messages by their bytes, and what is known of each.

    A message read twice is the same object, which nothing may change; so its identity stands for
    its content.
    """

    def __init__(self) -> None:
        self.messages: dict[bytes, Any] = {}
        self.size = 0
        self.rows: dict[tuple[int, int], list[Position]] = {}
        self.calls: dict[int, frozenset[str]] = {}
        self.sound: set[int] = set()
        """Names of message rows that were found without fault, up to some reply."""

    def decode(self, raw: bytes) -> Any:
        """A request's body, with the messages that were read before taken from memory."""
        if self.size > LIMIT:
            self.__init__()
        try:
            parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            rows = msgspec.json.decode(parts.get("messages", b"[]"), type=list[msgspec.Raw])
        except msgspec.ValidationError:
            return msgspec.json.decode(raw)
        body = {key: msgspec.json.decode(part) for key, part in parts.items() if key != "messages"}
        return {**body, "messages": [self._message(bytes(row)) for row in rows]}

    def _message(self, raw: bytes) -> Any:
        found = self.messages.get(raw)
        if found is None:
            found = self.messages[raw] = msgspec.json.decode(raw)
            self.size += len(raw)
        return found

    def positions(self, index: int, message: Json) -> list[Position]:
        """Where the blocks of a message stand in the cache."""
        key = (id(message), index)
        row = self.rows.get(key)
        if row is None:
            row = list(message_positions(index, message))
            if id(message) in self.calls:
                self.rows[key] = row
        return row

    def faults(self, raw: bytes, body: Json) -> list[str]:
        """What the validator finds; a history that it has seen before is not judged again."""
        messages: object = body.get("messages")
        if not is_list(messages) or not all(is_object(message) for message in messages):
            return anthropic_faults(raw)
        names = self._names(messages)
        known = self._known(messages, names)
        if known:
            news = {**body, "messages": [OPENING, *messages[known:]]}
            if self._fresh(messages, known) and not anthropic_faults(msgspec.json.encode(news)):
                self._remember(messages, names)
                return []
        found = anthropic_faults(raw)
        if not found:
            self._remember(messages, names)
        return found

    def _names(self, messages: list[Json]) -> list[int]:
        """The name of the row up to each message, without that message."""
        name, names = 0, list[int]()
        for message in messages:
            names.append(name)
            name = hash((name, id(message)))
        return names

    def _known(self, messages: list[Json], names: list[int]) -> int:
        """Where the part begins that was never judged: at a reply, so that nothing is torn."""
        for i in range(len(messages) - 1, 0, -1):
            if names[i] in self.sound and messages[i].get("role") == "assistant":
                return i
        return 0

    def _fresh(self, messages: list[Json], known: int) -> bool:
        """Whether no call after this point has the id of one before it."""
        old: set[str] = set()
        for message in messages[:known]:
            old |= self.calls[id(message)]
        return all(old.isdisjoint(_ids(message)) for message in messages[known:])

    def _remember(self, messages: list[Json], names: list[int]) -> None:
        before = ""
        for message, name in zip(messages, names, strict=True):
            role = message.get("role")
            if id(message) not in self.calls:
                self.calls[id(message)] = _ids(message) if role == "assistant" else NONE
            if role == "assistant" and before == "user":
                self.sound.add(name)
            before = role


def _ids(message: Json) -> frozenset[str]:
    blocks = as_blocks(message.get("content"))
    return frozenset(
        str(block.get("id"))
        for block in blocks
        if is_object(block) and block.get("type") == "tool_use"
    )
