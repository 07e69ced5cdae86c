"""A summary that was paid for is used again where the conversation is the same, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.context.test_manage import DONE, look, shown, weighed, working
from tests.engine.fakes import MemoryLog, card, facts, log, play, with_parts
from travois.context.compaction.compact import compact_conversation
from travois.context.compaction.shared_summaries import MAX_STORED_SUMMARIES, SummaryFolder
from travois.context.layers import ContextLayers
from travois.core.content import Text
from travois.core.facts import Compacted, Epoch, Finished, User
from travois.engine.agent import Agent
from travois.engine.fork import REUSED_OUTCOME
from travois.sessions.session import Session
from travois.testing import Scripted, say

LAYERS = ContextLayers(notes=False)


def copies(folder: Path, count: int = 2) -> list[Agent]:
    """Sessions with the same past, which share what is kept in one folder."""
    first, _ = working(folder, 30, window=100_000, layers=LAYERS)
    play(first)
    found: list[Agent] = []
    for _ in range(count):
        one, _ = working(folder, 0, window=100_000, layers=LAYERS)
        one.session = Session(MemoryLog(log(first).entries))
        one.encoder = one.encoder.fork()
        with_parts(one, summaries=lambda: SummaryFolder(folder / "summaries"))
        found.append(one)
    return found


def compacted(one: Agent, text: str, **more: Any) -> Scripted:
    """Compact with a model that would say this; returns the model."""
    model = one.model = Scripted(weighed(say(text)))
    assert isinstance(
        anyio.run(lambda: compact_conversation(one, trigger="manual", **more)), Compacted
    )
    return model


def test_a_copy_takes_the_summary_that_another_one_paid_for(tmp_path: Path) -> None:
    one, other = copies(tmp_path)
    assert len(compacted(one, "Written once.").requests) == 1
    assert compacted(other, "Written twice.").requests == []
    assert "Written once." in shown(other)
    last = facts(other, Finished)[-1]
    assert (last.outcome, last.usage.prompt) == (REUSED_OUTCOME, 0)


def test_a_little_more_that_was_said_since_does_not_matter(tmp_path: Path) -> None:
    one, other = copies(tmp_path)
    compacted(one, "Written once.")
    other.model = Scripted(look(900), DONE)
    play(other, "look at one thing more")
    assert compacted(other, "Written twice.").requests == []
    assert "Written once." in shown(other) and "result 900 " in shown(other)


def differ_early(one: Agent) -> dict[str, Any]:
    for number in range(25):
        one.session.append(User((Text(f"{number}: " + "more words " * 400),)))
    return {}


def differ_in_model(one: Agent) -> dict[str, Any]:
    epoch = one.session.view.epoch
    assert epoch is not None
    one.session.append(Epoch(card(window=100_000, effort="high"), "Be long.", epoch.tools))
    return {}


def differ_in_focus(one: Agent) -> dict[str, Any]:
    return {"focus": "x"}


@pytest.mark.parametrize("differs", [differ_early, differ_in_model, differ_in_focus])
def test_what_is_not_the_same_is_asked_anew(tmp_path: Path, differs: Any) -> None:
    one, other = copies(tmp_path)
    compacted(one, "Written once.")
    more = differs(other)
    assert len(compacted(other, "Written twice.", **more).requests) == 1
    assert "Written once." not in shown(other)


def test_another_project_or_trust_shares_nothing(tmp_path: Path) -> None:
    one, other = copies(tmp_path)
    with_parts(other, summaries=lambda: SummaryFolder(tmp_path / "elsewhere"))
    compacted(one, "Written once.")
    assert len(compacted(other, "Written twice.").requests) == 1


def test_a_failed_or_cut_answer_is_not_kept(tmp_path: Path) -> None:
    one, other = copies(tmp_path)
    compacted(one, "")
    assert len(compacted(other, "Written now.").requests) == 1


def test_a_folder_keeps_only_so_many_and_no_stranger_file(tmp_path: Path) -> None:
    known = SummaryFolder(tmp_path / "s")
    for number in range(MAX_STORED_SUMMARIES + 5):
        known.put(f"k{number}", "text")
    assert len([*(tmp_path / "s").iterdir()]) == MAX_STORED_SUMMARIES
    (tmp_path / "secret").write_text("do not read")
    (tmp_path / "s" / "link.md").symlink_to(tmp_path / "secret")
    assert known.get("link") == ""
    assert known.get("none") == ""


def test_a_summary_in_a_call_of_its_own_is_used_again(tmp_path: Path) -> None:
    one, other = copies(tmp_path)
    for each in (one, other):
        each.model = Scripted(weighed(say("")), weighed(say("Written once, by itself.")))
        fact = anyio.run(lambda each=each: compact_conversation(each, trigger="manual"))
        assert isinstance(fact, Compacted) and fact.source == "direct"
    assert facts(other, Finished)[-1].outcome == REUSED_OUTCOME
