"""Notes kept while working: when the model is asked, what it may do, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from tests.context.test_manage import DONE, Line, look, saying, shown, weighed
from tests.engine.against import Disk
from tests.engine.fakes import (
    PRICE,
    MemoryLog,
    agent,
    begun,
    card,
    facts,
    log,
    play,
    spec,
    with_parts,
)
from travois.context.compaction.compact import compact_conversation
from travois.context.layers import ContextLayers
from travois.context.manage import manage_window
from travois.context.session_memory.notes import (
    MAX_UPDATE_ROUNDS,
    current_notes,
    load_notes_template,
    should_keep_notes,
)
from travois.core.facts import Compacted, Epoch, Finished, Noted, Rewound, Spawned, ToolSpec
from travois.core.models import Price
from travois.engine.agent import Agent
from travois.providers.replies import ApiError
from travois.providers.request import Request
from travois.sessions.session import Session
from travois.testing import Scripted, calls, say
from travois.tools.edit import EDIT

Job = Callable[[], Awaitable[None]]
FILLER = "result # " + "filler words that mean nothing " * 100
STATE = "(what is being done at this moment, what is half done, the next step)"


def noting(folder: Path, rounds: int = 52, **more: Any) -> tuple[Agent, list[Job], Disk]:
    """An agent that has worked for a while, and what it wants to do in the background."""
    tool, disk = saying(FILLER), Disk()
    window, edits = more.pop("window", 100_000), more.pop("edits", True)
    session = begun((tool,), window=window, output=window // 50)
    specs = (spec(tool), *((ToolSpec("Edit", "Edits.", '{"type":"object"}'),) if edits else ()))
    session.append(Epoch(card(window=window, output=window // 50), "Be brief.", specs))
    lines: list[Line] = [*(look(number) for number in range(rounds)), DONE]
    one = agent(folder, *lines, tools=(tool,), session=session, **more)
    with_parts(one, tools={"Look": tool, "Edit": EDIT})
    one.world = replace(one.world, spill=disk.spill, kept=str(folder))
    wanted: list[Job] = []
    one.runtime.background = wanted.append
    play(one)
    return one, wanted, disk


def edit(one: Agent, old: str, new: str, path: str = "") -> tuple[str, dict[str, object]]:
    where = path or f"{one.world.kept}/notes.md"
    return "Edit", {"file_path": where, "old_string": old, "new_string": new}


def run(what: Job) -> None:
    async def main() -> None:
        await what()

    anyio.run(main)


def updated(one: Agent, job: Job, *lines: Line) -> Scripted:
    """Run an update to which the model says these lines."""
    model = one.model = Scripted(*lines)
    run(job)
    return model


def noted(one: Agent) -> list[Noted]:
    return [fact for fact in facts(one, Noted) if fact.what == "notes"]


def test_the_model_makes_small_edits_beside_the_conversation(tmp_path: Path) -> None:
    one, wanted, disk = noting(tmp_path)
    before, seq = one.session.view.items[:], one.session.seq
    last = one.session.view.sent
    reply = calls(
        edit(one, STATE, "The lexer is half done."), edit(one, "# Title\n", "# Title\nP\n")
    )
    model = updated(one, wanted[0], weighed(reply))
    assert one.session.view.items == before
    assert last is not None
    assert len(model.requests) == 1
    assert [(s.kind, s.what) for s in facts(one, Spawned)] == [("fork", "notes")]
    held = current_notes(one)
    assert "# Current state\nThe lexer is half done.\n" in held.text
    assert held.covers == seq
    assert disk.held[one.world.spill("notes.md", held.text.encode())] == held.text


def test_an_update_begins_with_the_bytes_of_the_conversation(tmp_path: Path) -> None:
    """Else it would read nothing from the provider's cache."""
    one, wanted, _ = noting(tmp_path)
    assert isinstance(one.model, Scripted)
    sent = bare(one.model.requests[-1].body)
    model = updated(one, wanted[0], weighed(calls(edit(one, STATE, "x"))))
    prefix = sent[: sent.rindex(b'"tool_result"')]
    assert len(prefix) > 0.95 * len(sent)
    assert bare(model.requests[0].body).startswith(prefix)


def bare(body: bytes) -> bytes:
    """A request without cache markers, which are no part of what is cached."""
    return re.sub(rb',"cache_control":\{[^}]*\}', b"", body)


def test_nothing_but_edits_of_the_notes_is_run(tmp_path: Path) -> None:
    """Neither other tools nor other files, whatever the model asks for."""
    one, wanted, _ = noting(tmp_path)
    other = tmp_path / "main.py"
    other.write_text("print(1)\n")
    mischief = calls(
        ("Look", {"path": "1"}),
        edit(one, "print(1)", "print(2)", str(other)),
        ("Write", {"file_path": f"{tmp_path}/notes.md", "content": "all anew"}),
        edit(one, STATE, "Fine."),
    )
    model = updated(one, wanted[0], weighed(mischief), weighed(say("")))
    assert other.read_text() == "print(1)\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["main.py"]
    assert "Fine." in current_notes(one).text
    assert len(model.requests) == 2
    assert model.requests[1].body.count(b"may only make partial edits") >= 2


def test_an_edit_that_fails_is_asked_for_again_but_not_for_ever(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    model = updated(one, wanted[0], weighed(calls(edit(one, "no such text", "x"))))
    assert len(model.requests) == MAX_UPDATE_ROUNDS
    assert noted(one) == []


def test_a_failed_update_is_not_repeated_at_the_next_step(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], ApiError("server", "500"))
    wanted.clear()
    one.model = Scripted(look(900), DONE)
    play(one, "one more")
    assert wanted == []
    assert facts(one, Finished)[-1].outcome != "done"


def test_a_model_without_an_edit_tool_answers_with_sections(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path, edits=False)
    model = updated(one, wanted[0], weighed(say("# Current state\nThe lexer is half done.")))
    assert "# Current state\nThe lexer is half done.\n\n# Task\n(" in current_notes(one).text
    assert b"call no tools" in model.requests[0].body


def test_a_reply_that_is_only_the_template_is_no_notes(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(say(load_notes_template(one))))
    assert noted(one) == []


def test_they_are_not_asked_for_again_before_the_conversation_has_grown(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "x"))))
    wanted.clear()
    one.model = Scripted(look(900), DONE)
    play(one, "one more")
    assert wanted == []
    one.model = Scripted(*(look(n) for n in range(25)), DONE)
    play(one, "many more")
    assert len(wanted) == 1


@pytest.mark.parametrize("window", [16_000, 32_000, 64_000])
def test_windows_of_every_size_have_notes_before_their_first_compaction(
    tmp_path: Path, window: int
) -> None:
    one, wanted, _ = noting(tmp_path, 1, window=window)
    rounds = 0
    while not wanted and rounds < 400:
        rounds += 1
        one.model = Scripted(look(rounds), DONE)
        play(one, "go on")
    assert wanted
    assert facts(one, Compacted) == []


def test_a_compaction_takes_the_notes_and_asks_nobody(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "The lexer is half done."))))
    covers = current_notes(one).covers
    one.model = Scripted(*(look(1_000 + n) for n in range(12)), DONE)
    play(one, "twelve more")
    model = one.model = Scripted(say("nobody asks me"))
    fact = anyio.run(lambda: compact_conversation(one, trigger="manual"))
    assert isinstance(fact, Compacted)
    assert model.requests == []
    assert fact.last <= covers
    assert "The lexer is half done." in shown(one)
    assert all(f"result {1_000 + n} " in shown(one) for n in range(12))


def test_what_a_person_asks_a_summary_to_dwell_on_is_no_matter_for_notes(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "The lexer is half done."))))
    model = one.model = Scripted(weighed(say("All about the parser.")))
    anyio.run(lambda: compact_conversation(one, trigger="manual", focus="the parser"))
    assert len(model.requests) >= 1
    assert "All about the parser." in shown(one)


def test_notes_that_are_too_far_behind_are_not_used(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "The lexer is half done."))))
    behind = replace(current_notes(one), covers=5)
    one.session.append(Noted("notes", msgspec.json.encode(behind).decode()))
    one.model = Scripted(weighed(say("Written at the cut.")))
    anyio.run(lambda: compact_conversation(one, trigger="manual"))
    assert "The lexer is half done." not in shown(one)
    assert "Written at the cut." in shown(one)


def test_a_compaction_waits_for_an_update_under_way(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    replied = anyio.Event()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: started(wanted[0]))
            await anyio.lowlevel.checkpoint()
            group.start_soon(lambda: compact_conversation(one, trigger="auto"))
            await anyio.sleep(0.05)
            assert facts(one, Compacted) == []
            replied.set()

    class Slow(Scripted):
        def stream(self, request: Request) -> Any:
            return Held(super().stream(request), replied)

    one.model = Slow(weighed(calls(edit(one, STATE, "Known just in time."))))
    anyio.run(main)
    assert "Known just in time." in shown(one)


async def started(job: Job) -> None:
    await job()


class Held:
    """A stream that does not begin before it may."""

    def __init__(self, stream: Any, may: anyio.Event) -> None:
        self._stream, self._may = stream, may

    async def __aenter__(self) -> Any:
        await self._may.wait()
        return await self._stream.__aenter__()

    async def __aexit__(self, *why: Any) -> Any:
        return await self._stream.__aexit__(*why)


def test_notes_outlive_the_process(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "The lexer is half done."))))
    again = Session(MemoryLog(log(one).entries))
    assert again.notes == one.session.notes


def test_a_rewind_takes_back_what_was_noted_since(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    seq = one.session.seq
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "The lexer is half done."))))
    one.session.append(Rewound(seq - 20))
    assert current_notes(one).text == ""


def test_a_person_may_have_a_template_and_a_prompt_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "home" / ".claude" / "session-memory" / "config"
    config.mkdir(parents=True)
    (config / "template.md").write_text("# Mine\n(hint)\n")
    (config / "prompt.md").write_text("Mind {{notesPath}}: {{currentNotes}}")
    one, wanted, _ = noting(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    reply = weighed(calls(edit(one, "(hint)", "Noted my way.")))
    model = updated(one, wanted[0], reply)
    assert current_notes(one).text == "# Mine\nNoted my way.\n"
    told = f"Mind {tmp_path}/notes.md: # Mine\\n(hint)".encode()
    assert told in model.requests[0].body
    own = tmp_path / "own.md"
    own.write_text("# Settings come first\n")
    with_parts(one, layers=ContextLayers(notes_template=str(own)))
    assert load_notes_template(one) == "# Settings come first\n"


def test_sections_that_are_over_their_budget_are_told(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    long = "\n".join(f"a long line of notes, number {n}" for n in range(600))
    updated(one, wanted[0], weighed(calls(edit(one, STATE, long))))
    wanted.clear()
    one.model = Scripted(*(look(n) for n in range(25)), DONE)
    play(one, "many more")
    model = updated(one, wanted[0], weighed(calls(edit(one, long, "Short."))))
    assert b"Too long, shorten to 2,000 tokens each: # Current state (" in model.requests[0].body
    assert "# Current state\nShort.\n" in current_notes(one).text


@pytest.mark.parametrize(
    ("layers", "price", "expected"),
    [
        (ContextLayers(), PRICE, True),
        (ContextLayers(), Price(), False),
        (ContextLayers(notes=True), Price(), True),
        (ContextLayers(notes=False), PRICE, False),
        (ContextLayers(draft=False), PRICE, False),
        (ContextLayers(compact=False), PRICE, False),
        (ContextLayers(compact=False, notes=True), PRICE, True),
    ],
)
def test_notes_are_kept_where_they_are_worth_it_or_as_the_user_says(
    tmp_path: Path, layers: ContextLayers, price: Price, expected: bool
) -> None:
    one = agent(tmp_path, session=begun(price=price), layers=layers)
    assert should_keep_notes(one) is False
    one.runtime.background = lambda work: None
    assert should_keep_notes(one) is expected


def test_without_the_layer_nothing_is_asked(tmp_path: Path) -> None:
    _, wanted, _ = noting(tmp_path, layers=ContextLayers(notes=False))
    assert wanted == []


def test_while_notes_are_kept_no_draft_is_written(tmp_path: Path) -> None:
    one, wanted, _ = noting(tmp_path)
    updated(one, wanted[0], weighed(calls(edit(one, STATE, "The lexer is half done."))))
    one.model = Scripted(*(look(n) for n in range(20)), DONE)
    play(one, "go on")
    assert anyio.run(lambda: manage_window(one)) == ""
    assert {fact.what for fact in facts(one, Spawned)} <= {"notes"}
    assert msgspec.json.decode(one.session.notes)["covers"] > 0
