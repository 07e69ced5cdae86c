"""Keeping the window in bounds: what is stored, when a conversation is cut, and what survives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.engine.against import Disk
from tests.engine.fakes import Place, agent, begun, facts, log, play, small, with_parts
from travois.context.compaction.compact import compact_conversation
from travois.context.compaction.cut import SUMMARY_OPENING
from travois.context.layers import ContextLayers
from travois.context.tool_results import estimate_text_tokens
from travois.core.content import AnyBlock, Media, Text, extract_text
from travois.core.facts import (
    Assistant,
    Cleared,
    Compacted,
    Failed,
    Finished,
    Offloaded,
    Result,
    User,
)
from travois.core.models import Usage
from travois.core.tokens import context_tokens, estimate_tokens, stop_threshold
from travois.engine.agent import Agent
from travois.ports.tool import AnyTool, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.replies import ApiError, Reply
from travois.providers.request import Request
from travois.testing import Scripted, calls, say


def saying(text: str) -> AnyTool:
    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        return text_outcome(text.replace("#", args.path))

    return small("Look", run)


def looking(folder: Path, replies: list[Line], text: str, **more: Any) -> tuple[Agent, Disk]:
    """An agent whose one tool always says the same; what it sets aside is kept in memory."""
    tool, disk = saying(text), Disk()
    more.setdefault("layers", ContextLayers(draft=False))  # the lines are the conversation's own
    session = begun((tool,), window=more.pop("window", 200_000), output=more.pop("output", 4_000))
    one = agent(folder, *replies, tools=(tool,), session=session, **more)
    one.world = replace(one.world, spill=disk.spill)
    return one, disk


Line = Callable[[Request], Reply | ApiError] | Reply | ApiError


def weighed(reply: Reply) -> Line:
    """The same reply with an honest count: three bytes of the request are a token."""

    def count(request: Request) -> Reply:
        return replace(reply, usage=Usage(input=len(request.body) // 3, output=5))

    return count


def look(number: int) -> Line:
    return weighed(calls(("Look", {"path": str(number)})))


DONE = weighed(say("done"))


def shown(one: Agent) -> str:
    return "\n".join(extract_text(item.fact.content) for item in one.session.view.items)


def test_a_result_that_is_too_large_is_stored_before_the_model_sees_it(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(20_000))
    one, disk = looking(tmp_path, [look(1), DONE], text)
    play(one)
    (stored,) = facts(one, Offloaded)
    assert disk.held == {stored.blob: text}
    assert stored.preview.startswith("line 0\nline 1\n")
    assert stored.preview.endswith("\nline 19999")
    head, mark, tail = re.split(r"^\[(stored .*)\]\n", stored.preview, flags=re.MULTILINE)
    hidden = 20_000 - len(head.splitlines()) - len(tail.splitlines())
    size = f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters"
    assert re.sub("[0-9a-f]{6}", "", mark, count=1) == (
        f"stored : {hidden:,} of 20,000 lines ({size}) are left out here. All of it is in "
        f"{stored.blob}; continue with Read offset={len(head.splitlines()) + 1}, or use Grep."
    )
    assert stored.preview in shown(one)
    assert 0.85 * 8_000 < estimate_tokens(stored.preview) <= 8_000


def test_a_result_of_one_endless_line_is_cut_inside_it(tmp_path: Path) -> None:
    one, _ = looking(tmp_path, [look(1), DONE], "x" * 400_000)
    play(one)
    (stored,) = facts(one, Offloaded)
    assert 7_000 < estimate_text_tokens(stored.preview) <= 8_000


def test_of_many_results_the_largest_are_stored_until_all_fit(tmp_path: Path) -> None:
    sizes = {"1": 20_000, "2": 60_000, "3": 56_000}

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        return text_outcome("word " * (sizes[args.path] // 5))

    one, _ = looking(tmp_path, [], "")
    tool = small("Look", run)
    batch = calls(*(("Look", {"path": name}) for name in sizes))
    one.model = Scripted(batch, DONE)
    with_parts(one, tools={"Look": tool}, layers=ContextLayers(reply=25_000, result=20_000))
    play(one)
    kept = {fact.call for fact in facts(one, Offloaded)}
    ids = [
        call.id for item in facts(one, Assistant) for call in item.content if hasattr(call, "id")
    ]
    assert kept == {ids[1]}


def working(folder: Path, rounds: int, **more: Any) -> tuple[Agent, Disk]:
    """Some rounds of work that each add about 1,000 tokens."""
    text = "result # " + "filler words that mean nothing " * 100
    replies: list[Line] = [look(number) for number in range(rounds)]
    return looking(folder, [*replies, DONE], text, **more)


def test_a_conversation_over_its_limit_is_compacted_and_goes_on(tmp_path: Path) -> None:
    one, disk = working(tmp_path, 60, window=40_000)
    assert play(one, "Never touch main.py. Then look at sixty things.") == "end"
    first, *_ = facts(one, Compacted)
    assert (first.trigger, first.by) == ("auto", "ledger")
    assert first.after < first.before
    assert "Never touch main.py." in shown(one)
    assert SUMMARY_OPENING in shown(one)
    for path in first.files:
        assert path in disk.held
    held = "".join(disk.held.values())
    assert all(f"result {number} " in held + shown(one) for number in range(60))


def test_no_request_is_ever_over_the_window(tmp_path: Path) -> None:
    sizes: list[int] = []

    def measure(body: bytes) -> list[str]:
        sizes.append(len(body))
        return []

    one, _ = working(tmp_path, 300, window=24_000)
    replies = [look(number) for number in range(300)]
    one.model = Scripted(*replies, DONE, judge=measure)
    assert play(one) == "end"
    assert max(sizes) // 3 < 24_000
    assert len(facts(one, Compacted)) < 60


@pytest.mark.parametrize("window", [8_000, 16_000, 32_000, 100_000])
def test_windows_of_every_size_work(tmp_path: Path, window: int) -> None:
    one, _ = working(tmp_path, 40, window=window)
    assert play(one, "Keep to the rule: tabs only.") == "end"
    assert context_tokens(one.session.view) < stop_threshold(one.session.view.epoch.model)  # type: ignore[union-attr]
    assert "Keep to the rule: tabs only." in shown(one)


def test_twenty_rules_survive_five_compactions_word_for_word(tmp_path: Path) -> None:
    rules = [f"Rule {number}: never rename the column c{number * 7919}." for number in range(20)]
    one, _ = working(tmp_path, 10, window=60_000)
    play(one, "\n".join(rules))
    for number in range(5):
        one.model = Scripted(*(look(100 * number + n) for n in range(8)), DONE)
        play(one, f"go on {number}")
        assert anyio.run(lambda: compact_conversation(one, trigger="cold")) is not None
        assert [rule for rule in rules if rule not in shown(one)] == []


def test_where_the_bill_counts_most_a_large_conversation_is_compacted_once_its_cache_is_gone(
    tmp_path: Path,
) -> None:
    one, _ = working(tmp_path, 70, layers=ContextLayers(idle="cheap"))
    one.runtime.clock = lambda: log(one).entries[-1].at + 1
    play(one)
    assert facts(one, Compacted) == []
    one.runtime.clock = lambda: log(one).entries[-1].at + 301
    one.model = Scripted(say("back"))
    play(one, "and now?")
    (fact,) = facts(one, Compacted)
    assert fact.trigger == "cold"


def test_an_overflow_that_the_provider_reports_is_held_back_and_mended(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 20)
    play(one)
    told = ApiError("overflow", "prompt is too long", tokens=30_000, limit=20_000)
    one.model = Scripted(told, say("fits"))
    assert play(one, "go on") == "end"
    assert [fact.kind for fact in facts(one, Failed)] == ["overflow"]
    assert one.session.view.epoch is not None
    assert one.session.view.epoch.model.window == 20_000


def test_a_provider_that_never_takes_it_ends_the_turn_after_three_calls(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 20)
    play(one)
    model = Scripted(*(ApiError("overflow", "too long") for _ in range(9)))
    one.model = model
    assert play(one, "go on") == "failed"
    assert len([fact for fact in facts(one, Failed) if fact.kind == "overflow"]) == 3
    one.model = Scripted(say("here I am"))
    assert play(one, "still there?") == "end"


def test_two_useless_compactions_stop_it_until_a_person_speaks(tmp_path: Path) -> None:
    huge = Usage(input=39_000, output=10)

    def heavy(reply: Reply) -> Reply:
        return replace(reply, usage=huge)

    replies: list[Line] = [heavy(calls(("Look", {"path": str(n)}))) for n in range(12)]
    one, _ = looking(tmp_path, [*replies, heavy(say("done"))], "x", window=40_000)
    play(one)
    assert len(facts(one, Compacted)) == 2
    one.model = Scripted(heavy(say("so be it")))
    play(one, "go on")
    assert len(facts(one, Compacted)) == 3


def test_the_models_part_is_written_when_a_person_asks_and_its_failure_costs_only_that(
    tmp_path: Path,
) -> None:
    one, _ = working(tmp_path, 10, layers=ContextLayers())
    play(one)
    one.model = Scripted(say("We renamed the parser; the lexer is next."))
    fact = anyio.run(lambda: compact_conversation(one, trigger="manual", focus="the lexer"))
    assert fact is not None
    assert fact.by == "model"
    assert "We renamed the parser; the lexer is next." in shown(one)
    assert [done.outcome for done in facts(one, Finished)] == ["done"]
    one.model = Scripted(*(look(100 + n) for n in range(10)), DONE)
    play(one)
    one.model = Scripted(ApiError("overloaded", "busy"))
    again = anyio.run(lambda: compact_conversation(one, trigger="manual"))
    assert again is not None
    assert again.by == "ledger"


def test_a_conversation_that_cannot_shrink_says_so_with_the_numbers(tmp_path: Path) -> None:
    one, _ = looking(tmp_path, [say("hi")], "")
    play(one)
    assert anyio.run(lambda: compact_conversation(one, trigger="cold")) is None
    (fact,) = facts(one, Failed)
    assert fact.kind == "compaction"
    assert fact.message.startswith("nothing left to shorten: ")


def test_a_compacted_session_is_the_same_after_a_resume(tmp_path: Path) -> None:
    from tests.engine.fakes import MemoryLog
    from travois.sessions.session import Session

    one, _ = working(tmp_path, 60, window=40_000)
    play(one)
    again = Session(MemoryLog(log(one).entries))
    assert again.view == one.session.view
    assert again.strikes == one.session.strikes


def test_what_the_human_said_last_is_never_set_aside(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 60, window=40_000)
    play(one)
    one.model = Scripted(say("yes"))
    play(one, "the newest words")
    last = [item.fact for item in one.session.view.items if isinstance(item.fact, User)][-1]
    assert last == User((Text("the newest words"),))
    assert not any(isinstance(item.fact, Result) for item in one.session.view.items[-2:])


def test_of_more_pictures_than_a_request_may_hold_the_newest_stay(tmp_path: Path) -> None:
    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        picture = Media("image", "image/png", f"gone-{args.path}", size=3)
        return ToolOutcome((Text(f"picture {args.path}"), picture))

    one, _ = looking(
        tmp_path, [], "", window=1_000_000, layers=ContextLayers(compact=False, clear=False)
    )
    with_parts(one, tools={"Look": small("Look", run)})
    one.model = Scripted(*(look(number) for number in range(110)), DONE)
    assert play(one) == "end"
    left = [item for item in one.session.view.items if _pictures(item.fact.content)]
    assert 20 <= len(left) <= 100
    assert "picture 109" in extract_text(left[-1].fact.content)
    assert "left out: a request cannot hold more]" in shown(one)
    assert len(facts(one, Cleared)) == 1


def _pictures(content: tuple[AnyBlock, ...]) -> list[AnyBlock]:
    return [block for block in content if isinstance(block, Media)]
