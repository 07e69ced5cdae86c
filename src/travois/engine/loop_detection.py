"""Loop detection: a tool call that would only repeat a cycle once more is not run.

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
"""The rounds of a cycle that may run."""
LONGEST = 4
"""The most calls in a cycle."""
BREAKS = 2
"""The replies that may be stopped for repeating; the next one ends the turn."""
RECENT = 48
"""The most calls that are compared."""
MARK = "Not run, repetition "
HINTS = (
    "It would return the same again. Read that result, then do something else: other "
    "arguments, another tool, or what the result asks for. To wait for something, run it in the "
    "background and read its output.",
    "You were warned before. If nothing else can be done, say what you found and what is in "
    "the way; repeating it once more ends the turn.",
    "It was repeated anyway, so the turn ends here.",
)
STORED = re.compile(r"\[stored [0-9a-f]{6}:")


class Step(msgspec.Struct, frozen=True):
    """One call and its result; a notice if it was not run because it was a repetition."""

    call: Call
    """As the model made it: what it means is looked up only where calls are compared."""
    content: tuple[Shown, ...]
    reply: int
    """In which reply it was asked for."""

    @property
    def stopped(self) -> bool:
        """True if the call was not run because it was a repetition."""
        return words(self.content).startswith(MARK)


def looping(view: View, call: Call, *, after: Sequence[Call], polling: Collection[str]) -> str:
    """Return why not to run a call, in words for the model; empty if it may run.

    `after` are calls of the same reply before it, which have no result yet.
    """
    past, asked = steps(view), [*after, call]
    for length in range(1, LONGEST + 1):
        if _circles(past, asked, length=length, polling=polling):
            return _told(past, asked[-1], length=length)
    return ""


def stuck(view: View) -> str:
    """Return why the turn must end for repetition; empty if it need not."""
    if _breaks(steps(view)) <= BREAKS:
        return ""
    return f"the model kept repeating tool calls after it was stopped {BREAKS} times"


def steps(view: View) -> list[Step]:
    """Return the last answered calls since someone spoke, in the order asked."""
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
    """Return whether these calls begin another round of a cycle of this length."""
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
    """Return whether two calls and their results are equal; unrun calls equal any."""
    if not _same(one.call, other.call):
        return False
    return one.stopped or other.stopped or [*_plain(one)] == [*_plain(other)]


def _same(one: Call, other: Call) -> bool:
    """Return whether two calls mean the same, whatever names they use."""
    if one.name == other.name and one.args == other.args:
        return True
    one, other = canonical(one), canonical(other)
    return one.name == other.name and _canonical(one.args) == _canonical(other.args)


def _canonical(args: str) -> str | bytes:
    """Return arguments without differences in spacing and key order."""
    try:
        return msgspec.json.encode(msgspec.json.decode(args or "{}"), order="sorted")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return args


def _plain(step: Step) -> Iterator[Shown]:
    """Yield a result without what differs between calls: its id and preview mark."""
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
    return f"{MARK}{number}: {what} returned the same result {ROUNDS} times in a row. {hint}"


def _breaks(past: Sequence[Step]) -> int:
    """Count the replies in which calls were stopped."""
    return len({step.reply for step in past if step.stopped})
