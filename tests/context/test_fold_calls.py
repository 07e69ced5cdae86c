"""Folding in a running session: in place of a compaction if it is enough, else not at all."""

from __future__ import annotations

from pathlib import Path

from tests.context.test_manage import shown, working
from tests.engine.fakes import facts, log, play
from travois.context.layers import ContextLayers
from travois.context.manage import compaction_trigger
from travois.context.microcompact.fold import FOLDED_MARK
from travois.core.content import extract_text
from travois.core.facts import Compacted, Restored
from travois.sessions.session import Session


def test_folding_takes_the_place_of_a_compaction_and_names_its_files(tmp_path: Path) -> None:
    one, disk = working(tmp_path, 60, window=60_000, layers=ContextLayers(collapse=True))
    assert play(one, "Never touch main.py. Then look at sixty things.") == "end"
    cuts = facts(one, Compacted)
    assert {fact.by for fact in cuts} == {"folded"}
    text = shown(one)
    assert FOLDED_MARK in text and "Never touch main.py." in text
    assert "- Look 3: result 3 " in text
    for fact in cuts:
        assert fact.after < fact.before
        assert all(path in disk.held for path in fact.files)
    held = "".join(disk.held.values())
    assert all(f"result {number} " in held + text for number in range(60))


def test_where_folding_is_not_enough_a_compaction_follows(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 200, window=24_000, layers=ContextLayers(collapse=True))
    assert play(one) == "end"
    kinds = {fact.by for fact in facts(one, Compacted)}
    assert "folded" in kinds and kinds - {"folded"}
    assert compaction_trigger(one) is None


def test_snipping_leaves_out_the_oldest_steps(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 200, window=30_000, layers=ContextLayers(collapse=True, snip=True))
    assert play(one, "Keep to the rule: tabs only.") == "end"
    cuts = [fact for fact in facts(one, Compacted) if fact.by == "folded"]
    assert any("oldest steps are left out here" in extract_text(fact.summary) for fact in cuts)
    assert "Keep to the rule: tabs only." in shown(one)


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 60, window=40_000)
    play(one)
    assert "folded" not in {fact.by for fact in facts(one, Compacted)}


def test_a_folding_can_be_undone_and_is_the_same_after_a_resume(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 60, window=60_000, layers=ContextLayers(collapse=True))
    play(one)
    again = Session(log(one))
    assert again.view.items == one.session.view.items
    seq = max(one.session.view.summaries)
    one.session.append(Restored(seq))
    assert seq not in one.session.view.summaries
