"""Spans: the compacted conversation, split into files that one Read can show.

Model sees: a line for each text, with the name of the file that holds it.
Tokens: about 30 a line; the texts themselves only when they are read.
Cache: moves nothing itself; a compaction that names them does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import basename, dirname

import msgspec

from travois.context.ledger.extractors import ToolAction, classify_tool, decode_arguments
from travois.core.content import AnyBlock, Call, Media, Opaque, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem

CHARS_PER_TOKEN = 2.75
"""The ratio of the model families that count most tokens for a text."""
TARGET_SPAN_CHARS = int(6_000 * CHARS_PER_TOKEN)
FULL_SPAN_CHARS = int(2_000 * CHARS_PER_TOKEN)
"""The size from which on a user's message begins another span."""
MAX_TITLE_CHARS = 100
MAX_LISTED_SPANS = 60
"""The number of newest spans with a line of their own; older ones share lines."""
MIN_LISTED_SPANS = 3
"""The fewest spans with a line of their own, however small the budget."""
UNLIMITED_TOKENS = 1 << 20
SPANS_PER_LINE = 8
"""The number of older spans that share a line."""
MAX_SHARED_LINES = 20
"""The most lines of shared spans; still older spans are listed as one range."""
CONTINUED_MARK = "(continued)\n"
CONTINUED_TITLE = re.compile(r" \(continued, \d+\)$")
FILES_IN_FOLDER = "The files are in"
FILES_BY_PATH = "The files are these"
SPANS_NOTE = (
    "each holds a part of the conversation, the oldest first, word for word. Read one when you "
    "need its exact text."
)


class ConversationSpan(msgspec.Struct, frozen=True):
    """A part of the conversation as text, with a one-line title."""

    title: str
    text: str


def split_into_spans(items: Sequence[ViewItem]) -> tuple[ConversationSpan, ...]:
    """Split a compacted conversation into spans in order, cut before a message or a reply."""
    doings = {call.id: _describe_call(call) for item in items for call in _calls_of_item(item)}
    spans: list[ConversationSpan] = []
    held: list[ViewItem] = []
    size = 0
    for group in _split_long_groups(items):
        added = sum(len(format_message(item.fact)) + 1 for item in group)
        human = isinstance(group[0].fact, User) and group[0].fact.origin == "human"
        if held and (size + added > TARGET_SPAN_CHARS or (human and size >= FULL_SPAN_CHARS)):
            spans += _make_spans(held, doings)
            held, size = [], 0
        held += group
        size += added
    return (*spans, *_make_spans(held, doings)) if held else tuple(spans)


def list_spans(
    titles: Sequence[str], paths: Sequence[str], *, budget: int = UNLIMITED_TOKENS
) -> str:
    """List conversation spans with their file names; older ones of many share lines."""
    if not paths:
        return ""
    folders = {dirname(path) for path in paths}
    one = folders.pop() if len(folders) == 1 else ""
    names = [basename(path) for path in paths] if one else paths
    pairs = _merge_continued(list(zip(titles, names, strict=True)))
    where = f"{FILES_IN_FOLDER} {one}" if one else FILES_BY_PATH
    listed, lines = MAX_LISTED_SPANS, MAX_SHARED_LINES
    text = _format_listing(pairs, listed, lines)
    while listed > MIN_LISTED_SPANS and estimate_tokens(text) > budget:
        listed, lines = listed // 2, lines // 2
        text = _format_listing(pairs, listed, lines)
    return f"{where}: {SPANS_NOTE}\n{text}"


def _merge_continued(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merge the listed spans of one long message into one line."""
    found: list[tuple[str, list[str]]] = []
    for title, name in pairs:
        if found and CONTINUED_TITLE.search(title):
            found[-1][1].append(name)
        else:
            found.append((title, [name]))
    return [(title, _format_range(names)) for title, names in found]


def _format_range(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _format_listing(pairs: list[tuple[str, str]], listed: int, lines: int) -> str:
    """Format the list of conversation files in a summary: newer ones singly, older ones grouped."""
    older, newer = pairs[:-listed], pairs[-listed:]
    shared = older[max(0, len(older) - SPANS_PER_LINE * lines) :]
    oldest = older[: len(older) - len(shared)]
    told = (
        [f"- {oldest[0][1]} to {oldest[-1][1]}: {_first_and_last_title(oldest)}"] if oldest else []
    )
    for at in range(0, len(shared), SPANS_PER_LINE):
        group = shared[at : at + SPANS_PER_LINE]
        told.append(f"- {', '.join(path for _, path in group)}: {_first_and_last_title(group)}")
    return "\n".join(told + [f"- {path}: {title}" for title, path in newer])


def format_message(fact: User | Assistant | Result) -> str:
    """Format one message as text: its sender, then everything said, called or answered."""
    match fact:
        case User(origin="human"):
            who = "[human]"
        case User(origin=origin):
            who = f"[{origin}]"
        case Assistant():
            who = "[model]"
        case Result(call=call, error=error):
            who = f"[result of {call}{', an error' if error else ''}]"
    return "\n".join((who, *(_format_block(block) for block in fact.content)))


def _format_block(block: AnyBlock) -> str:
    """Render one content block of a message as text for a conversation file."""
    match block:
        case Text(text=text):
            return text
        case Call(id=id, name=name, args=args):
            return f"[call {id}] {name} {args}"
        case Media(kind=kind, name=name, blob=blob):
            return f"[{kind} {name} {blob}]"
        case Opaque(kind=kind, text=text):
            return f"[{kind}] {text}" if text else f"[{kind}]"


def _split_long_groups(items: Sequence[ViewItem]) -> Iterator[list[ViewItem]]:
    """Yield conversation items to keep in one span: a reply with its results, if not too long."""
    for group in _group_by_reply(items):
        if sum(len(format_message(item.fact)) for item in group) <= TARGET_SPAN_CHARS:
            yield group
        else:
            yield from ([item] for item in group)


def _group_by_reply(items: Sequence[ViewItem]) -> Iterator[list[ViewItem]]:
    """Group messages for spans, so that tool results stay with their reply."""
    group: list[ViewItem] = []
    for item in items:
        if group and not isinstance(item.fact, Result):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _make_spans(items: list[ViewItem], doings: dict[str, str]) -> Iterator[ConversationSpan]:
    """Yield the conversation files of some messages, continued where one would be too long."""
    title = _span_title(items, doings)
    for number, text in enumerate(
        _split_text("\n".join(format_message(item.fact) for item in items))
    ):
        more = f"{title[: MAX_TITLE_CHARS - 18]} (continued, {number})" if number else title
        yield ConversationSpan(more, CONTINUED_MARK + text if number else text)


def _split_text(text: str) -> Iterator[str]:
    """Split a conversation span's text to the target size, at line breaks where possible."""
    at = 0
    while len(text) - at > TARGET_SPAN_CHARS:
        cut = (
            text.rfind("\n", at + TARGET_SPAN_CHARS // 2, at + TARGET_SPAN_CHARS) + 1
            or at + TARGET_SPAN_CHARS
        )
        yield text[at:cut]
        at = cut
    yield text[at:]


def _span_title(items: list[ViewItem], doings: dict[str, str]) -> str:
    """Return the title of a conversation span: the user's words, if any, and what was done."""
    facts = [item.fact for item in items]
    human = [extract_text(f.content) for f in facts if isinstance(f, User) and f.origin == "human"]
    spoken = " ".join(" ".join(human).split())
    quote = f"“{_shorten_title(spoken, 60)}” " if spoken else ""
    called = [doings[call.id] for item in items for call in _calls_of_item(item)]
    answered = [doings.get(f.call, "") for f in facts if isinstance(f, Result)]
    line = quote + ", ".join(dict.fromkeys(called or answered))
    plain = line if line.strip() else " ".join(extract_text(f.content) for f in facts)
    return _shorten_title(" ".join(plain.split()), MAX_TITLE_CHARS) or "(nothing said)"


def _calls_of_item(item: ViewItem) -> tuple[Call, ...]:
    return extract_calls(item.fact.content) if isinstance(item.fact, Assistant) else ()


def _describe_call(call: Call) -> str:
    """Describe a tool call in a few words for the title of a conversation file."""
    args = decode_arguments(call.args)
    act = ToolAction(0, classify_tool(call.name, args), call.name, args, "")
    where = act.path.rpartition("/")[2] or " ".join(act.command.split()[:4])
    sought = " ".join(act.arg("pattern", "query", "url", "description").split())
    where = f"“{_shorten_title(sought, 40)}” {where}" if sought and not act.command else where
    return f"{call.name.rpartition('__')[2]} {where}".strip()


def _shorten_title(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _first_and_last_title(pairs: list[tuple[str, str]]) -> str:
    return f"{_shorten_title(pairs[0][0], 60)} … {_shorten_title(pairs[-1][0], 60)}"
