"""Short ways to write logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from travois.core.content import AnyBlock, Call, Opaque, Text, extract_calls
from travois.core.facts import (
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Decided,
    Entry,
    Epoch,
    Offloaded,
    Restored,
    Result,
    Rewound,
    Sent,
    ToolSpec,
    User,
)
from travois.core.legality import find_send_blocker, find_violation
from travois.core.models import ModelCard, Usage
from travois.core.view import View, open_calls, project_view

TOOLS = (ToolSpec("Read", "Reads.", '{"type":"object"}'),)
EPOCH = Epoch(ModelCard("lab", "echo-1", "anthropic"), "Be brief.", TOOLS)
OTHER = Epoch(ModelCard("lab", "echo-1", "anthropic"), "Be long.", TOOLS, why="asked for")


def user(text: str, **more: Any) -> User:
    return User((Text(text),), **more)


def reply(text: str = "", *ids: str, thought: str = "", **more: Any) -> Assistant:
    """Words, then a call of Read for each id, after a thought if there is one."""
    content: list[AnyBlock] = [thinking(thought)] if thought else []
    content += [Text(text)] if text else []
    content += [Call(id, "Read", '{"path":"a"}') for id in ids]
    return Assistant(tuple(content), **({"stop": "calls" if ids else "end"} | more))


def thinking(text: str) -> Opaque:
    raw = f'{{"type":"thinking","thinking":"{text}","signature":"s"}}'
    return Opaque("anthropic", "thinking", raw, text)


def result(call: str, text: str = "") -> Result:
    return Result(call, (Text(text or f"result of {call}"),))


def entries(*facts: AnyFact) -> list[Entry]:
    return [Entry(seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]


def seen(*facts: AnyFact) -> View:
    return project_view(entries(*facts))


def shown(view: View) -> list[str]:
    """The conversation in short: who says what, in the order that the model sees."""
    return [_short(item.fact) for item in view.items]


def _short(fact: User | Assistant | Result) -> str:
    text = " ".join(_word(block) for block in fact.content)
    match fact:
        case User():
            return f"user: {text}"
        case Result():
            return f"{fact.call} = {text}"
        case Assistant():
            return f"model: {text}"


def _word(block: AnyBlock) -> str:
    match block:
        case Text():
            return block.text
        case Call():
            return f"{block.id}?"
        case Opaque():
            return f"<{block.text}>"
        case _:
            return "media"


@st.composite
def histories(draw: st.DrawFn, *, most: int = 25) -> list[Entry]:
    """Legal logs, as a session would write them, rewinds and compactions among them."""
    log, view = entries(EPOCH), seen(EPOCH)
    for _ in range(draw(st.integers(0, most))):
        fact = draw(st.sampled_from(list(_next(view, log, draw))))
        assert not find_violation(view, fact)
        log.append(Entry(log[-1].seq + 1, 0.0, fact))
        if isinstance(fact, Rewound | Restored):
            view = project_view(log)
        else:
            view.add(log[-1])
    return log


def _next(view: View, log: list[Entry], draw: st.DrawFn) -> Iterable[AnyFact]:
    """Facts that may come next; with calls open, mostly their results in any order."""
    number = len(log)
    yield user(f"said {number}", origin=draw(st.sampled_from(["human", "note"])))
    pending = open_calls(view)
    if pending:
        call = draw(st.sampled_from(pending)).id
        yield from (Decided(call, "allow", "read"), result(call), result(call, "again"))
        yield from [Offloaded(id, "blob", "short") for id, held in view.open.items() if held][:1]
    else:
        yield _reply(view, number, draw)
        yield from [] if find_send_blocker(view) else [Sent(number, f"chain-{number}", "d", 1)]
    yield from (f for f in _moving(view, log, draw) if not find_violation(view, f))


def _reply(view: View, number: int, draw: st.DrawFn) -> Assistant:
    """Ids are small numbers that a session has not used: as local servers give them."""
    free = [f"call_{n}" for n in range(200) if f"call_{n}" not in view.ids]
    ids = free[: draw(st.integers(0, 3))]
    thought = draw(st.sampled_from(["", f"thought {number}"]))
    if draw(st.integers(0, 9)) == 0:
        return reply("", thought=thought)
    stop = "calls" if ids else draw(st.sampled_from(["end", "length", "pause", "refusal"]))
    return reply(f"answer {number}", *ids, thought=thought, stop=stop, usage=Usage(input=number))


def _moving(view: View, log: list[Entry], draw: st.DrawFn) -> Iterable[AnyFact]:
    """Facts that move the prefix, one kind at a time."""
    done = [item.fact.call for item in view.items if isinstance(item.fact, Result)]
    spans = [item.seq for item in view.items]
    match draw(st.integers(0, 6)):
        case 0:
            yield draw(st.sampled_from([EPOCH, OTHER]))
        case 1:
            yield Rewound(draw(st.integers(1, log[-1].seq)))
        case 5 if view.summaries:
            yield Restored(draw(st.sampled_from(list(view.summaries))))
        case 2 if done:
            yield Cleared((draw(st.sampled_from(done)),), "cleared")
        case 3 | 4 if len(spans) > 1:
            first = draw(st.integers(0, len(spans) - 1))
            last = draw(st.integers(first, len(spans) - 1))
            by = draw(st.sampled_from(["model", "dropped"]))
            yield Compacted(spans[first], spans[last], (Text("summary"),), by)
        case _:
            pass


def ids(log: Iterable[Entry]) -> list[str]:
    replies = (entry.fact for entry in log if isinstance(entry.fact, Assistant))
    return [call.id for fact in replies for call in extract_calls(fact.content)]
