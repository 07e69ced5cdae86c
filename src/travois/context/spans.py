"""What a compaction drops, cut into texts that one read can show.

Model sees: a line for each text, with the name of the file that holds it.
Tokens: about 30 a line; the texts themselves only when they are read.
Cache: moves nothing itself; a compaction that names them does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from travois.context.ledger.acts import Act, decoded, kind_of
from travois.kernel.blocks import AnyBlock, Call, Media, Opaque, Text, calls, words
from travois.kernel.facts import Assistant, Result, User
from travois.kernel.view import Item

CHARS_PER_TOKEN = 2.75
"""Of the model families that count most tokens for a text."""
AIM = int(6_000 * CHARS_PER_TOKEN)
FULL = int(2_000 * CHARS_PER_TOKEN)
"""From here on a message of the human begins another span."""
TITLE = 100
LISTED = 60
"""So many spans have a line of their own in the contents; older ones share lines."""
TOGETHER = 8
CONTINUED = "(continued)\n"


class Span(msgspec.Struct, frozen=True):
    """A part of the conversation as text, and one line that says what happened in it."""

    title: str
    text: str


def split(items: Sequence[Item]) -> tuple[Span, ...]:
    """These items as spans, in order and without loss, cut before a message or a reply."""
    spans: list[Span] = []
    held: list[Item] = []
    size = 0
    for group in _groups(items):
        added = sum(len(told(item.fact)) + 1 for item in group)
        human = isinstance(group[0].fact, User) and group[0].fact.origin == "human"
        if held and (size + added > AIM or (human and size >= FULL)):
            spans += _spans(held)
            held, size = [], 0
        held += group
        size += added
    return (*spans, *_spans(held)) if held else tuple(spans)


def contents(spans: Sequence[Span], paths: Sequence[str]) -> str:
    """The list of these spans by the paths of their files; of many, the older ones share lines."""
    pairs = list(zip(spans, paths, strict=True))
    older, newer = pairs[:-LISTED], pairs[-LISTED:]
    lines = [_shared(older[at : at + TOGETHER]) for at in range(0, len(older), TOGETHER)]
    return "\n".join(lines + [f"- {path}: {span.title}" for span, path in newer])


def told(fact: User | Assistant | Result) -> str:
    """One message as text: who speaks, then all that was said, called or answered."""
    match fact:
        case User(origin="human"):
            who = "[human]"
        case User(origin=origin):
            who = f"[{origin}]"
        case Assistant():
            who = "[model]"
        case Result(call=call, error=error):
            who = f"[result of {call}{', an error' if error else ''}]"
    return "\n".join((who, *(_block(block) for block in fact.content)))


def _block(block: AnyBlock) -> str:
    match block:
        case Text(text=text):
            return text
        case Call(id=id, name=name, args=args):
            return f"[call {id}] {name} {args}"
        case Media(kind=kind, name=name, blob=blob):
            return f"[{kind} {name} {blob}]"
        case Opaque(kind=kind, text=text):
            return f"[{kind}] {text}"


def _groups(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Each message with the results that answer it."""
    group: list[Item] = []
    for item in items:
        if group and not isinstance(item.fact, Result):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _spans(items: list[Item]) -> Iterator[Span]:
    title = _title(items)
    for number, text in enumerate(_pieces("\n".join(told(item.fact) for item in items))):
        more = f"{title[: TITLE - 18]} (continued, {number})" if number else title
        yield Span(more, CONTINUED + text if number else text)


def _pieces(text: str) -> Iterator[str]:
    """A text in parts of at most the size that is aimed at, cut at line breaks if there are any."""
    at = 0
    while len(text) - at > AIM:
        cut = text.rfind("\n", at + AIM // 2, at + AIM) + 1 or at + AIM
        yield text[at:cut]
        at = cut
    yield text[at:]


def _title(items: list[Item]) -> str:
    facts = [item.fact for item in items]
    human = [words(f.content) for f in facts if isinstance(f, User) and f.origin == "human"]
    made = [call for f in facts if isinstance(f, Assistant) for call in calls(f.content)]
    spoken = " ".join(" ".join(human).split())
    quote = f"“{_short(spoken, 60)}” " if spoken else ""
    line = quote + ", ".join(dict.fromkeys(_did(call) for call in made))
    plain = line.strip() or " ".join(" ".join(words(f.content) for f in facts).split())
    return _short(plain, TITLE) or "(nothing said)"


def _did(call: Call) -> str:
    args = decoded(call.args)
    act = Act(0, kind_of(call.name, args), call.name, args, "")
    where = act.path.rpartition("/")[2] or " ".join(act.command.split()[:4])
    return f"{call.name.rpartition('__')[2]} {where}".strip()


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _shared(pairs: list[tuple[Span, str]]) -> str:
    names = ", ".join(path for _, path in pairs)
    return f"- {names}: {_short(pairs[0][0].title, 60)} … {_short(pairs[-1][0].title, 60)}"
