"""The doom-loop guard: a call that would only go round in a circle once more is not run.

All is read off the view: what was called since somebody last spoke, with which results. So a
resumed session knows what it had repeated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from travois.core.content import Call, Shown, Text, calls, words
from travois.core.facts import Assistant, Result, User
from travois.core.tool_names import canonical
from travois.core.view import View

ROUNDS = 3
"""So often a circle may be gone round."""
LONGEST = 4
"""How many calls a circle has at most."""
BREAKS = 2
"""So many replies may be stopped for repeating; the next one ends the turn."""
RECENT = 48
"""How many calls are looked at."""
MARK = "Not run, repetition "
HINTS = (
    "It would bring the same again. Look at what it said, then do something else: other "
    "arguments, another tool, or what the result asks for. To wait for something, run it in the "
    "background and read its output.",
    "You were told so before. If nothing else can be done, say what you found and what stands "
    "in the way; to repeat it once more ends the turn.",
    "It was repeated in spite of that, so the turn ends here.",
)
STORED = re.compile(r"\[stored [0-9a-f]{6}:")


class Step(msgspec.Struct, frozen=True):
    """One call and what it brought; nothing if it was not run because it was a repetition."""

    call: Call
    """As the model made it: what it means is looked up only where calls are compared."""
    content: tuple[Shown, ...]
    reply: int
    """In which reply it was asked for."""

    @property
    def stopped(self) -> bool:
        """Whether it was not run for being a repetition."""
        return words(self.content).startswith(MARK)


def looping(view: View, call: Call, *, after: Sequence[Call], polling: Collection[str]) -> str:
    """Why not to run a call, in words for the model; empty if it may run.

    `after` are calls of the same reply before it, which have no result yet.
    """
    past, asked = steps(view), [*after, call]
    for length in range(1, LONGEST + 1):
        if _circles(past, asked, length=length, polling=polling):
            return _told(past, asked[-1], length=length)
    return ""


def stuck(view: View) -> str:
    """Why the turn must end: it was stopped for repeating too often. Empty if it was not."""
    if _breaks(steps(view)) <= BREAKS:
        return ""
    return f"the model went on repeating calls after it was stopped {BREAKS} times"


def steps(view: View) -> list[Step]:
    """The last calls that have results since somebody spoke, in the order asked."""
    found: list[Step] = []
    results: dict[str, tuple[Shown, ...]] = {}
    for item in reversed(view.items):
        match item.fact:
            case Result(call=id, content=content):
                results[id] = content
            case Assistant(content=content):
                asked = reversed(calls(content))
                found += (Step(c, results[c.id], item.seq) for c in asked if c.id in results)
            case User(origin="human" | "mail" | "task"):
                break
            case _:
                pass
        if len(found) >= RECENT:
            break
    return found[::-1]


def _circles(
    past: Sequence[Step], asked: Sequence[Call], *, length: int, polling: Collection[str]
) -> bool:
    """Whether these calls begin a further round of a circle of this many calls."""
    rounds = past[-ROUNDS * length :]
    if len(rounds) < ROUNDS * length:
        return False
    circle = rounds[-length:]
    return (
        all(_same(call, circle[n % length].call) for n, call in enumerate(asked))
        and all(_alike(one, other) for one, other in zip(rounds, rounds[length:], strict=False))
        and not any(canonical(step.call).name in polling for step in circle)
    )


def _alike(one: Step, other: Step) -> bool:
    """Whether two calls and their results are the same; what was not run is like any."""
    if not _same(one.call, other.call):
        return False
    return one.stopped or other.stopped or [*_plain(one)] == [*_plain(other)]


def _same(one: Call, other: Call) -> bool:
    """Whether two calls mean the same, whatever names they use."""
    if one.name == other.name and one.args == other.args:
        return True
    one, other = canonical(one), canonical(other)
    return one.name == other.name and _canonical(one.args) == _canonical(other.args)


def _canonical(args: str) -> str | bytes:
    """Arguments without what makes no difference: spaces, and the order of their names."""
    try:
        return msgspec.json.encode(msgspec.json.decode(args or "{}"), order="sorted")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return args


def _plain(step: Step) -> Iterator[Shown]:
    """A result without what differs from call to call: its id, and the mark of a preview."""
    for block in step.content:
        if isinstance(block, Text):
            text = STORED.sub("[stored:", block.text.replace(step.call.id, ""))
            yield replace(block, text=text)
        else:
            yield block


def _told(past: Sequence[Step], call: Call, *, length: int) -> str:
    number = sum(step.stopped for step in past) + 1
    what = (
        f"{canonical(call).name} with these arguments has"
        if length == 1
        else f"These {length} calls have"
    )
    hint = HINTS[min(_breaks(past), BREAKS)]
    return f"{MARK}{number}: {what} brought the same result {ROUNDS} times in a row. {hint}"


def _breaks(past: Sequence[Step]) -> int:
    """In how many replies calls were stopped."""
    return len({step.reply for step in past if step.stopped})
