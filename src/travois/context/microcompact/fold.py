"""L2.6: where the prefix moves anyway, old calls fold into a line each that keeps the outcome.

Model sees: in place of the middle of the conversation, all words of both sides and these lines.
Tokens: the words, about 30 for each call, and one line for each file that has the whole.
Cache: moves the prefix, so only in place of a compaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from travois.context.compaction.cut import Cut, is_summary, is_whole
from travois.context.ledger.extractors import Act, decoded, kind_of
from travois.core.content import Call, calls, words
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import estimate, fact_tokens
from travois.core.view import Item, View

FOLDED = "Earlier steps of this conversation are folded here."
OPENING = (
    f"{FOLDED} What the user and you said stands word for word (further lines indented), each of "
    "your calls as one line with its outcome. The newest messages follow unchanged. The calls with "
    "their results can be read in these files, oldest first:"
)
SNIPPED = "(The {count} oldest steps are left out here; they are in the files above.)"
LISTED = 12
"""How many files have a line of their own."""
USER = "The user: "
OUTCOME = 120
"""How many characters of an outcome are shown."""
SUBJECT = 100
REMARK = 1_200
"""How many characters of what the harness said are shown."""


class Line(msgspec.Struct, frozen=True):
    """One step of the folded part."""

    text: str
    lasting: bool = False
    """Whether it is never left out: the user's words."""


def middle(view: View, *, tail: int) -> Cut | None:
    """What may fold: all between the first words and the newest tokens; none if that is little."""
    items = view.items
    begins = (i for i, one in enumerate(items) if isinstance(one.fact, Assistant) or is_folded(one))
    start = next(begins, len(items))
    end, size = len(items), 0
    while end > start and size < tail:
        end -= 1
        size += fact_tokens(items[end].fact)
    while end > start and not is_whole(items, end):
        end -= 1
    gone = tuple(items[start:end])
    if not any(isinstance(item.fact, Result) for item in gone):
        return None
    return Cut(gone, (*items[:start], *items[end:]))


def folded(items: Sequence[Item], paths: Sequence[str], *, budget: int, snip: bool) -> str:
    """The text that takes the place of these items; empty if it would be longer than its budget."""
    lines = list(_lines(items))
    head = "\n".join((OPENING, *(f"- {line}" for line in _listed(paths))))
    sizes = [estimate(f"{line.text}\n") for line in lines]
    over = estimate(head) + sum(sizes) - budget
    if over > 0 and not snip:
        return ""
    gone: set[int] = set()
    for number, line in enumerate(lines):
        if over <= 0:
            break
        if not line.lasting:
            gone.add(number)
            over -= sizes[number]
    if over > 0:
        return ""
    told = (SNIPPED.format(count=len(gone)),) if gone else ()
    kept = (line.text for number, line in enumerate(lines) if number not in gone)
    return "\n".join((head, "", *told, *kept))


def _listed(paths: Sequence[str]) -> Iterator[str]:
    """The newest paths, and the older ones as a range."""
    older, newer = paths[:-LISTED], paths[-LISTED:]
    if older:
        yield f"{older[0]} to {older[-1]} ({len(older)} files)"
    yield from newer


def is_folded(item: Item) -> bool:
    """Whether an item is what an earlier folding left."""
    fact = item.fact
    return (
        isinstance(fact, User) and fact.origin == "note" and words(fact.content).startswith(FOLDED)
    )


def _lines(items: Sequence[Item]) -> Iterator[Line]:
    results = {item.fact.call: item.fact for item in items if isinstance(item.fact, Result)}
    for item in items:
        fact = item.fact
        match fact:
            case User():
                yield from _said(item)
            case Assistant():
                if said := words(fact.content).strip():
                    yield Line(_indented(f"You: {said}"))
                for call in calls(fact.content):
                    yield Line(f"- {_did(call)}: {_outcome(call, results.get(call.id))}")
            case Result():
                pass


def _said(item: Item) -> Iterator[Line]:
    """What was said to the model; of an earlier folding, its own lines."""
    assert isinstance(item.fact, User)
    text = words(item.fact.content).strip()
    if is_folded(item):
        yield from _unfolded(text.partition("\n\n")[2])
    elif item.fact.origin == "human" or is_summary(item):
        yield Line(_indented(f"{USER}{text}"), lasting=True)
    else:
        yield Line(_indented(f"[{item.fact.origin}] {_short(text, REMARK)}"))


def _unfolded(text: str) -> Iterator[Line]:
    """The steps of an earlier folding: what is indented goes on with the line before it."""
    for step in re.split(r"\n(?!  |\n)", text):
        if not step.startswith("("):
            yield Line(step, lasting=step.startswith(USER))


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _did(call: Call) -> str:
    """What a call was: the tool, and the file, command or pattern."""
    args = decoded(call.args)
    act = Act(0, kind_of(call.name, args), call.name, args, "")
    other = act.arg("pattern", "query", "url", "description", "prompt", "name")
    subject = act.path or act.command or other
    return f"{call.name} {_short(' '.join(subject.split()), SUBJECT)}".strip()


def _outcome(call: Call, result: Result | None) -> str:
    """What came of it, in one line."""
    if result is None:
        return "no result"
    lines = [line.strip() for line in words(result.content).splitlines() if line.strip()]
    if not lines:
        return "failed, without a word" if result.error else "done, without output"
    kind = kind_of(call.name, decoded(call.args))
    if result.error:
        return f"failed: {_short(lines[-1] if kind == 'shell' else lines[0], OUTCOME)}"
    if kind == "read":
        return f"{len(lines)} lines"
    if kind == "shell":
        more = f" ({len(lines)} lines)" if len(lines) > 1 else ""
        return f"{_short(lines[-1], OUTCOME)}{more}"
    return _short(lines[0], OUTCOME)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
