"""The conversation of a session as a person reads it: prompts, answers, calls and results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

from travois.core.content import Opaque, Text, extract_text
from travois.core.facts import Compacted, Ended, Entry, Failed, Rewound, User
from travois.core.view import THINKING_KINDS
from travois.diff_rows import DiffRow
from travois.inspector.story import SessionStory, find_step_of_entry
from travois.presentation import ReplyItem, SessionItems, ToolCallItem, list_named_files

BLOCKS_PER_PAGE = 200
MAX_BLOCK_CHARS = 20_000
"""Characters of a text that are sent; the request shows all of it."""
MAX_DIFF_ROWS = 400
MAX_TITLE_CHARS = 300
TITLE_ARGUMENTS = (
    *("command", "file_path", "notebook_path", "pattern", "path", "query", "url", "description"),
    *("skill", "prompt", "text"),
)
"""The arguments that say best what a call is about, the best first."""


class TranscriptCall(msgspec.Struct, frozen=True):
    """A tool call with its result."""

    name: str
    title: str
    args: str
    text: str = ""
    length: int = 0
    """Of the text, before it was cut."""
    state: Literal["running", "done", "failed", "denied"] = "running"
    seconds: float = 0.0
    rows: tuple[DiffRow, ...] = ()
    """The change of a file."""


class TranscriptBlock(msgspec.Struct, frozen=True):
    """A prompt, an answer, thinking, a tool call or a remark."""

    entry: int
    at: float
    step: int
    kind: Literal["prompt", "answer", "thinking", "call", "remark"]
    text: str = ""
    length: int = 0
    call: TranscriptCall | None = None


class TranscriptPage(msgspec.Struct, frozen=True):
    """Some blocks of a transcript, how many there are, and how often each tool was called."""

    start: int
    blocks: list[TranscriptBlock]
    total: int
    tools: dict[str, int]


def build_transcript_page(
    story: SessionStory, *, first: int = -1, entry: int = 0, tool: str = ""
) -> TranscriptPage:
    """Build a page of the transcript: from the first block, around an entry, or the newest.

    With a tool, there are only its calls.
    """
    blocks = list(iterate_blocks(story))
    tools = Counter(block.call.name for block in blocks if block.call)
    kept = [one for one in blocks if not tool or (one.call and one.call.name == tool)]
    if entry:
        at = next((n for n, one in enumerate(kept) if one.entry >= entry), len(kept))
        first = max(0, at - BLOCKS_PER_PAGE // 2)
    start = max(0, len(kept) - BLOCKS_PER_PAGE) if first < 0 else first
    shown = kept[start : start + BLOCKS_PER_PAGE]
    return TranscriptPage(start, shown, len(kept), dict(tools.most_common()))


def iterate_blocks(story: SessionStory) -> Iterator[TranscriptBlock]:
    """Yield all blocks in the order of the log; a call stands where it was asked for."""
    items, own = SessionItems(), story.entries[story.own :]
    results = {
        item.id: (item, entry)
        for entry in own
        if isinstance(item := items.add(entry), ToolCallItem) and item.result
    }
    items = SessionItems()
    for entry in own:
        item = items.add(entry)
        if isinstance(item, ReplyItem):
            yield from _reply_blocks(item, entry, story, results)
        elif (block := _other_block(entry, story)) is not None:
            yield block


def _reply_blocks(
    item: ReplyItem,
    entry: Entry,
    story: SessionStory,
    results: dict[str, tuple[ToolCallItem, Entry]],
) -> Iterator[TranscriptBlock]:
    step = find_step_of_entry(story, entry.seq, replied=True)
    for block in item.fact.content:
        if isinstance(block, Text) and block.text.strip():
            yield _text_block(entry, step, "answer", block.text)
        elif isinstance(block, Opaque) and block.kind in THINKING_KINDS and block.text.strip():
            yield _text_block(entry, step, "thinking", block.text)
    for call in item.calls:
        done, ended = results.get(call.id, (call, None))
        seconds = ended.at - entry.at if ended else 0.0
        yield TranscriptBlock(
            entry.seq, entry.at, step, "call", call=_describe_call(done, seconds=seconds)
        )


def _other_block(entry: Entry, story: SessionStory) -> TranscriptBlock | None:
    step = find_step_of_entry(story, entry.seq)
    match entry.fact:
        case User(origin="human", content=content):
            return _text_block(entry, step, "prompt", extract_text(content))
        case User(origin="mail" | "task", content=content):
            return _text_block(entry, step, "remark", extract_text(content))
        case Compacted(by=by):
            return _text_block(entry, step, "remark", f"Compacted ({by})")
        case Rewound(to=to):
            return _text_block(entry, step, "remark", f"Rewound to entry {to}")
        case Failed(message=message):
            return _text_block(entry, step, "remark", f"Request failed: {message}")
        case Ended(why=why, detail=detail) if why != "end":
            return _text_block(entry, step, "remark", f"Turn ended: {why} {detail}".strip())
        case _:
            return None


def _text_block(
    entry: Entry, step: int, kind: Literal["prompt", "answer", "thinking", "remark"], text: str
) -> TranscriptBlock:
    return TranscriptBlock(entry.seq, entry.at, step, kind, text[:MAX_BLOCK_CHARS], len(text))


def _describe_call(item: ToolCallItem, *, seconds: float) -> TranscriptCall:
    state = "running" if item.result is None else "failed" if item.is_error else "done"
    return TranscriptCall(
        item.name,
        _call_title(item),
        item.own_call.args[:MAX_BLOCK_CHARS],
        item.text[:MAX_BLOCK_CHARS],
        len(item.text),
        "denied" if item.is_denied else state,
        seconds,
        item.diff_rows[:MAX_DIFF_ROWS],
    )


def _call_title(item: ToolCallItem) -> str:
    """Return the argument that says best what a call is about."""
    known = item.arguments if isinstance(item.arguments, dict) else {}
    texts = (known.get(name) for name in TITLE_ARGUMENTS)
    files = ", ".join(list_named_files(item.own_call))
    found = next((text for text in texts if isinstance(text, str) and text), files)
    return " ".join(found.split())[:MAX_TITLE_CHARS]
