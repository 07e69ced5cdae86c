"""What a simulated model reads and says, in whatever protocol it came and will leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from travois_lab.objects import Json
from travois_lab.positions import as_blocks
from travois_lab.tokens import compact

Protocol = Literal["anthropic", "chat", "responses", "gemini", "ollama"]


class Prompt(msgspec.Struct, frozen=True):
    """A request as the model reads it: messages are in the Anthropic shape, content as blocks."""

    protocol: Protocol
    model: str
    messages: list[Json]
    system: str = ""
    tools: tuple[Json, ...] = ()
    body: Json = {}
    n: int = 0
    purpose: Literal["reply", "compaction"] = "reply"
    """Whether it is to answer, or to summarise what it read."""

    @property
    def last(self) -> list[Json]:
        """The blocks said to the model since its last word."""
        blocks: list[Json] = []
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                break
            blocks = [*as_blocks(message.get("content")), *blocks]
        return blocks

    @property
    def last_text(self) -> str:
        """The words said to the model since its last word, tool results aside."""
        return "\n".join(str(b.get("text", "")) for b in self.last if b.get("type") == "text")

    @property
    def results(self) -> list[tuple[str, str, Json]]:
        """The tool results since its last word, each as (tool name, text, block)."""
        names = {
            b.get("id"): str(b.get("name", ""))
            for m in self.messages
            for b in as_blocks(m.get("content"))
            if b.get("type") == "tool_use"
        }
        found = [b for b in self.last if b.get("type") == "tool_result"]
        return [(names.get(b.get("tool_use_id"), ""), flat(b.get("content")), b) for b in found]

    @property
    def text(self) -> str:
        """Everything the model can read, as one text."""
        said = [block_text(b) for m in self.messages for b in as_blocks(m.get("content"))]
        return "\n".join([self.system, *said])

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools on offer."""
        return [str(tool.get("name", "")) for tool in self.tools]


class Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream is cut: into pieces of this many characters, with a wait after each event."""

    by: Literal["char", "token", "event"] = "event"
    size: int = 0
    delay_ms: float = 0.0

    @property
    def step(self) -> int:
        """Characters in one piece."""
        return self.size or {"char": 1, "token": 4, "event": 256}[self.by]


class Reply(msgspec.Struct, frozen=True):
    """What the model says: blocks in the Anthropic shape, and how it stops.

    A `tool_use` block may carry `args`, JSON text valid or not, in place of `input`.
    """

    blocks: tuple[Json, ...] = ()
    stop: str = ""
    usage: Json = {}
    pace: Pace = Pace()
    details: Json | None = None
    error: Json | None = None
    """Answer with this HTTP error instead: status, type, message, headers."""


State = dict[str, object]
Program = Callable[[Prompt, State], "Reply | list[Json] | str"]
"""A model as a Python function; the state is its own, one dictionary for each server."""


def flat(content: object) -> str:
    """The text of some content."""
    if isinstance(content, str):
        return content
    return "\n".join(block_text(block) for block in as_blocks(content))


def block_text(block: Json) -> str:
    """The text of a block."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "tool_result":
            return flat(block.get("content"))
        case "tool_use":
            return f"{block.get('name')} {compact(block.get('input'))}"
        case "thinking":
            return str(block.get("thinking", ""))
        case "compaction":
            return str(block.get("content") or "")
        case _:
            return ""


def text(words: str) -> Json:
    """A text block."""
    return {"type": "text", "text": words}


def thinking(words: str) -> Json:
    """A thinking block; the lab signs it."""
    return {"type": "thinking", "thinking": words}


def call(name: str, **args: object) -> Json:
    """A tool call."""
    return {"type": "tool_use", "name": name, "input": args}


def searched(query: str, url: str, *, title: str, quote: str) -> list[Json]:
    """A search of the web by the provider, and what it found; the page is cited by `quote`."""
    use = {"type": "server_tool_use", "id": "srvtoolu_lab", "name": "web_search"}
    page = {"type": "web_search_result", "url": url, "title": title, "page_age": "May 1, 2026"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_lab"}
    cited = {"type": "web_search_result_location", "url": url, "title": title, "cited_text": quote}
    return [
        {**use, "input": {"query": query}},
        {**result, "content": [{**page, "encrypted_content": "bGFi"}]},
        {"type": "text", "text": quote, "citations": [{**cited, "encrypted_index": "bGFi"}]},
    ]


def as_reply(said: Reply | list[Json] | str) -> Reply:
    """What a program returned, as a reply."""
    if isinstance(said, Reply):
        return said
    if isinstance(said, str):
        return Reply((text(said),))
    return Reply(tuple(said))
