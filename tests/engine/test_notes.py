"""Notes kept while working: when the model is asked, what is kept, and what a compaction takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from tests.engine.fakes import facts, play
from tests.engine.test_relief import look, shown, weighed, working
from travois.context.layers import Layers
from travois.engine.agent import Agent
from travois.engine.compaction import compact
from travois.kernel.facts import Compacted, Finished, Noted, Spawned
from travois.testing import Scripted, say

NOTES = "# Title\nThe parser\n\n# Current state\nThe lexer is half done."


def noting(folder: Path) -> tuple[Agent, list[Callable[[], Awaitable[None]]]]:
    """An agent that has worked for a while, and what it wants to do in the background."""
    one, _ = working(folder, 45)
    wanted: list[Callable[[], Awaitable[None]]] = []
    one.layers = Layers(notes=True)
    one.background = wanted.append
    play(one)
    return one, wanted


def run(what: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await what()

    anyio.run(main)


def test_the_model_is_asked_beside_the_conversation_and_its_words_are_kept(tmp_path: Path) -> None:
    one, wanted = noting(tmp_path)
    assert wanted
    one.model = Scripted(weighed(say(NOTES)))
    before = one.session.view.items[:]
    run(wanted[0])
    assert one.session.view.items == before
    assert [(s.kind, s.what) for s in facts(one, Spawned)] == [("fork", "notes")]
    assert [f.outcome for f in facts(one, Finished)] == ["done"]
    (noted,) = (fact for fact in facts(one, Noted) if fact.what == "notes")
    assert "The lexer is half done." in noted.text


def test_a_compaction_takes_the_notes_without_asking_anybody(tmp_path: Path) -> None:
    one, wanted = noting(tmp_path)
    one.model = Scripted(weighed(say(NOTES)))
    run(wanted[0])
    fact = anyio.run(lambda: compact(one, trigger="auto"))
    assert isinstance(fact, Compacted)
    assert "The lexer is half done." in shown(one)


def test_a_reply_that_is_only_the_template_is_no_notes(tmp_path: Path) -> None:
    from travois.engine.notes import template

    one, wanted = noting(tmp_path)
    one.model = Scripted(weighed(say(template(one))))
    run(wanted[0])
    assert [fact for fact in facts(one, Noted) if fact.what == "notes"] == []


def test_they_are_not_asked_for_again_before_the_conversation_has_grown(tmp_path: Path) -> None:
    one, wanted = noting(tmp_path)
    one.model = Scripted(weighed(say(NOTES)))
    run(wanted[0])
    wanted.clear()
    one.model = Scripted(look(900), weighed(say("done")))
    play(one, "one more")
    assert wanted == []


def test_without_the_layer_nothing_is_asked(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 45)
    wanted: list[Callable[[], Awaitable[None]]] = []
    one.background = wanted.append
    play(one)
    assert wanted == []
