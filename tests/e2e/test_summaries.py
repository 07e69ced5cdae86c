"""Summaries by the real program: picked parts, status on every path, another model."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Line, Program
from travois.context.compaction.cut import UNATTENDED_INSTRUCTION
from travois.context.compaction.summary_prompt import UNATTENDED_NOTE
from travois.core.content import extract_text
from travois.core.facts import Cleared, Compacted

ASKED = "This is the harness"
FILES = 12
PARTS = "## 8. Current work\nThe parser was the hard part.\n## 9. Next step\nGo on."
SMALL = ("--settings", '{"context":{"threshold":9000,"tailTokens":2000,"offload":false}}')


def model(prompt: lab.Prompt, state: dict[str, Any]) -> Any:
    """Reads one file after the other; says so; sums up when the harness asks."""
    if ASKED in prompt.last_text:
        return PARTS
    state["read"] = state.get("read", -1) + 1
    number = state["read"]
    return [lab.call("Read", file_path=f"f{number}.txt")] if number < FILES else f"done {number}"


@pytest.fixture
def work(program: Program) -> Program:
    for number in range(FILES):
        lines = (f"line {n} of file {number}: value_{number}_{n}" for n in range(120))
        (program.folder / f"f{number}.txt").write_text("\n".join(lines))
    return program


def compactions(program: Program) -> list[Compacted]:
    return [e.fact for e in program.facts() if isinstance(e.fact, Compacted)]


def statuses(lines: list[Line]) -> list[Any]:
    told = [line for line in lines if line.get("subtype") in ("status", "compact_boundary")]
    return [line.get("status", "boundary") for line in told]


@pytest.mark.parametrize("side", ["from", "up-to"])
def test_a_message_is_picked_and_one_side_of_it_gives_way(work: Program, side: str) -> None:
    with work.served(model) as api:
        glass = Glass(work, *work.model)
        glass.ready()
        for prompt in ("read all", "alpha question", "beta question"):
            glass.type(f"{prompt}\r")
            glass.until("done")
            glass.still()
        glass.type("/compact pick\r")
        glass.until("Compact what?")
        glass.still()
        glass.type("2" if side == "from" else "3")
        glass.until("message")
        glass.still()
        glass.type("3" if side == "from" else "2")  # the newest is the first
        glass.until("Compacted (manual)", "saved to disk;", "by the model")
        assert glass.leave() == 0
        asked = next(e.body.decode() for e in api.ledger if ASKED in e.body.decode())
        api.no_invalid()
    (fact,) = compactions(work)
    where = "the later part of this conversation, from the message “read all”"
    ends = where if side == "from" else "the beginning of this conversation, up to the message"
    assert f"chosen to set aside {ends}" in asked
    stands = extract_text(fact.summary)
    assert "The parser was the hard part." in stands
    quoted = "- > beta question" in stands, "- > read all" in stands
    assert quoted == (side == "from", True)


def test_a_compaction_by_itself_tells_its_status_and_takes_it_back(work: Program) -> None:
    with work.served(model):
        done = work.ask("read them all", "--output-format", "stream-json", "--verbose", *SMALL)
    assert done.code == 0, done.err
    told = statuses(done.lines)
    assert "compacting" in told and told[-1] is None
    assert told.count("boundary") == len(compactions(work)) >= 1
    for at, status in enumerate(told):
        assert status != "boundary" or told[at + 1] is None
    made = [line for line in done.lines if line.get("subtype") == "compact_boundary"]
    by = {line["compact_metadata"]["summary_by"] for line in made}
    assert by == {fact.source for fact in compactions(work)}
    heard = [line["content"] for line in done.lines if line.get("subtype") == "informational"]
    assert any("summary by the model" in text for text in heard)


def test_results_that_are_cleared_to_make_room_are_told_in_one_line(work: Program) -> None:
    roomy = ("--settings", '{"context":{"threshold":14000,"offload":false}}')
    with work.served(model):
        done = work.ask("read them all", "--output-format", "stream-json", "--verbose", *roomy)
    assert done.code == 0, done.err
    made = [e.fact for e in work.facts() if isinstance(e.fact, Cleared)]
    heard = [line["content"] for line in done.lines if line.get("subtype") == "informational"]
    told = [text for text in heard if text.startswith("Cleared ")]
    assert len(told) == len(made) >= 1
    for text, fact in zip(told, made, strict=True):
        count = len(fact.calls)
        assert text.startswith(
            f"Cleared {count} old tool result{'' if count == 1 else 's'} to make"
        )
        assert text.endswith(" tokens. The full text is kept on disk.")


def test_a_summary_that_fails_is_told_and_the_status_taken_back(work: Program) -> None:
    def refusing(prompt: lab.Prompt, state: dict[str, Any]) -> Any:
        wrong = {"status": 400, "type": "invalid_request_error", "message": "no"}
        return lab.Reply(error=wrong) if ASKED in prompt.last_text else model(prompt, state)

    with work.served(refusing):
        done = work.ask("read them all", "--output-format", "stream-json", "--verbose", *SMALL)
    assert done.code == 0, done.err
    assert statuses(done.lines)[-1] is None
    assert {(fact.by, fact.source) for fact in compactions(work)} == {("ledger", "ledger")}
    heard = [line["content"] for line in done.lines if line.get("subtype") == "informational"]
    assert any("summary from the log, without a model (fork: invalid" in text for text in heard)


def test_a_compaction_that_is_stopped_takes_its_status_back(work: Program) -> None:
    with work.served(model) as api:
        assert work.ask("read them all").code == 0
        before = len(api.ledger)
        api.fault({"stall": {"s": 60}})
        child = work.start(
            *("-p", "/compact", "-c", "--output-format", "stream-json", "--verbose"), *work.model
        )
        while len(api.ledger) <= before and child.poll() is None:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    lines = [json.loads(line) for line in out.decode().splitlines()]
    assert [status for status in statuses(lines) if status != "boundary"][-1:] == [None]
    assert compactions(work) == []


def test_a_run_that_nobody_watches_is_told_to_go_on_by_itself(work: Program) -> None:
    with work.served(model) as api:
        assert work.ask("read them all", *SMALL).code == 0
        asked = [e.body.decode() for e in api.ledger if ASKED in e.body.decode()]
    asked = [body for body in asked if "<notes>" not in body]
    assert asked and all(
        UNATTENDED_NOTE in body for body in asked if "<summary-so-far>" not in body
    )
    assert all(UNATTENDED_INSTRUCTION in extract_text(fact.summary) for fact in compactions(work))


def test_the_model_so_far_sums_up_what_has_no_room_with_the_next(work: Program) -> None:
    with work.served(model) as api:
        assert work.ask("read them all").code == 0
        done = work.run("-p", "go on", "-c", "--model", "openai/lab-model[8k]")
        assert done.code == 0, done.err
        assert "summary by the model" in done.err
        asked = [e for e in api.ledger if ASKED in e.body.decode()]
        assert len(asked) == 1 and b"claude-opus-5-5" in asked[0].body
    (fact,) = compactions(work)
    assert (fact.trigger, fact.by, fact.source) == ("switch", "model", "fork")
    assert "The parser was the hard part." in extract_text(fact.summary)
