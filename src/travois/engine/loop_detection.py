"""Loop detection: a tool call that would only repeat a cycle once more is not run.

Everything is read from the view: what was called since the last message, with which results. So a
resumed session knows what it has repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from travois.core.content import Call, Text, TextOrMedia, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.patterns import compile_lazily
from travois.core.tool_names import canonical_call
from travois.core.view import View

MAX_CYCLE_ROUNDS = 3
"""The rounds of a cycle that may run."""
MAX_CYCLE_CALLS = 4
"""The most calls in a cycle."""
MAX_STOPPED_REPLIES = 2
"""The replies that may be stopped for repeating; the next one ends the turn."""
MAX_RECENT_CALLS = 48
"""The most calls that are compared."""
REPETITION_MARK = "Not run, repetition "
REPETITION_HINTS = (
    "It would return the same again. Read that result, then do something else: other "
    "arguments, another tool, or what the result asks for. To wait for something, run it in the "
    "background and read its output.",
    "You were warned before. If nothing else can be done, say what you found and what is in "
    "the way; repeating it once more ends the turn.",
    "It was repeated anyway, so the turn ends here.",
)
STORED_PATTERN = compile_lazily(r"\[stored [0-9a-f]{6}:")


class AnsweredCall(msgspec.Struct, frozen=True):
    """One call and its result; a notice if it was not run because it was a repetition."""

    call: Call
    """As the model made it: what it means is looked up only where calls are compared."""
    content: tuple[TextOrMedia, ...]
    reply: int
    """In which reply it was asked for."""

    @property
    def is_repetition(self) -> bool:
        """True if the call was not run because it was a repetition."""
        return extract_text(self.content).startswith(REPETITION_MARK)


def find_repetition(
    view: View, call: Call, *, after: Sequence[Call], polling: Collection[str]
) -> str:
    """Return, for the model, why a repeated call must not run; empty if it may.

    `after` are calls of the same reply before it, which have no result yet.
    """
    past, asked = list_answered_calls(view), [*after, call]
    for length in range(1, MAX_CYCLE_CALLS + 1):
        if _continues_cycle(past, asked, length=length, polling=polling):
            return _explain_repetition(past, asked[-1], length=length)
    return ""


def find_stuck_turn(view: View) -> str:
    """Return why a turn stuck in a loop must end; empty if it need not."""
    if _count_stopped_replies(list_answered_calls(view)) <= MAX_STOPPED_REPLIES:
        return ""
    return f"the model kept repeating tool calls after it was stopped {MAX_STOPPED_REPLIES} times"


def list_answered_calls(view: View) -> list[AnsweredCall]:
    """Return the last answered tool calls since the last message, in order, to detect loops."""
    found: list[AnsweredCall] = []
    results: dict[str, tuple[TextOrMedia, ...]] = {}
    for item in reversed(view.items):
        match item.fact:
            case Result(call=id, content=content):
                results[id] = content
            case Assistant(content=content):
                asked = reversed(extract_calls(content))
                found += (
                    AnsweredCall(c, results[c.id], item.seq) for c in asked if c.id in results
                )
            case User(origin="human" | "mail" | "task"):
                break
            case _:
                pass
        if len(found) >= MAX_RECENT_CALLS:
            break
    return found[::-1]


def _continues_cycle(
    past: Sequence[AnsweredCall], asked: Sequence[Call], *, length: int, polling: Collection[str]
) -> bool:
    """Return whether tool calls begin another round of a loop of this length."""
    rounds = past[-MAX_CYCLE_ROUNDS * length :]
    if len(rounds) < MAX_CYCLE_ROUNDS * length:
        return False
    circle = rounds[-length:]
    return (
        all(_is_same_call(call, circle[n % length].call) for n, call in enumerate(asked))
        and all(
            _has_same_outcome(one, other)
            for one, other in zip(rounds, rounds[length:], strict=False)
        )
        and not any(canonical_call(step.call).name in polling for step in circle)
    )


def _has_same_outcome(one: AnsweredCall, other: AnsweredCall) -> bool:
    """Return whether two calls of a loop and their results are equal; unrun calls equal any."""
    if not _is_same_call(one.call, other.call):
        return False
    return (
        one.is_repetition
        or other.is_repetition
        or [*_comparable_result(one)] == [*_comparable_result(other)]
    )


def _is_same_call(one: Call, other: Call) -> bool:
    """Return whether two calls in a loop mean the same, whatever names they use."""
    if one.name == other.name and one.args == other.args:
        return True
    one, other = canonical_call(one), canonical_call(other)
    return one.name == other.name and _normalise_args(one.args) == _normalise_args(other.args)


def _normalise_args(args: str) -> str | bytes:
    """Normalise the spacing and key order of a call's arguments, to detect repetition."""
    try:
        return msgspec.json.encode(msgspec.json.decode(args or "{}"), order="sorted")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return args


def _comparable_result(step: AnsweredCall) -> Iterator[TextOrMedia]:
    """Yield a result without the parts that differ between repeated calls."""
    for block in step.content:
        if isinstance(block, Text):
            text = STORED_PATTERN.sub("[stored:", block.text.replace(step.call.id, ""))
            yield replace(block, text=text)
        else:
            yield block


def _explain_repetition(past: Sequence[AnsweredCall], call: Call, *, length: int) -> str:
    """Explain to the model why a repeated call was not run, and hint at a way out."""
    number = sum(step.is_repetition for step in past) + 1
    what = (
        f"{canonical_call(call).name} with these arguments has"
        if length == 1
        else f"These {length} calls have"
    )
    hint = REPETITION_HINTS[min(_count_stopped_replies(past), MAX_STOPPED_REPLIES)]
    return (
        f"{REPETITION_MARK}{number}: {what} returned the same result "
        f"{MAX_CYCLE_ROUNDS} times in a row. {hint}"
    )


def _count_stopped_replies(past: Sequence[AnsweredCall]) -> int:
    """Count the replies in which loop detection stopped calls."""
    return len({step.reply for step in past if step.is_repetition})
