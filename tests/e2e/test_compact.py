"""Seeing and steering the context with the real program: compaction asked for, undone, prepared."""

from __future__ import annotations

import json
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.program import Program
from tests.e2e.test_terminal import Screen
from travois.context.switch_model import TrialLog
from travois.core.facts import Compacted, Ended, Epoch, Finished, Noted, Sent, Spawned
from travois.sessions.session import Session

FILES = 18
PROSE = "The parser was the hard part."
ASKED = "This is the harness"


def model(prompt: lab.Prompt, state: dict[str, Any]) -> Any:
    """Reads one file after the other, and writes a summary when the harness asks for one."""
    if ASKED in prompt.last_text:
        return PROSE
    state["read"] = state.get("read", -1) + 1
    number = state["read"]
    return [lab.call("Read", file_path=f"f{number}.txt")] if number < FILES else "done"


@pytest.fixture
def work(program: Program) -> Program:
    for number in range(FILES):
        lines = (f"line {n} of file {number}: value_{number}_{n}" for n in range(120))
        (program.folder / f"f{number}.txt").write_text("\n".join(lines))
    return program


def settings(**context: object) -> tuple[str, str]:
    return "--settings", json.dumps({"context": context})


EARLY = settings(threshold=14_000, tailTokens=3_000, offload=False, clearPressure=False)


def told(program: Program, *args: str) -> Any:
    done = program.run(*args, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_window_sums_to_the_providers_count_and_the_bill_to_the_sessions(work: Program) -> None:
    with lab.server(model) as api:
        work.url = api.url
        assert work.ask("read them all").code == 0
        window, cost = told(work, "context"), told(work, "cost")
        last = api.ledger[-1].usage
    assert window["used"] == window["measured"] == last.context
    assert sum(block["tokens"] for block in window["blocks"]) == last.context
    assert sum(window["parts"].values()) == last.context
    states = [block["cache"] for block in window["blocks"]]
    assert states == sorted(states, key=("read", "written", "not yet sent").index)
    assert states[-1] == "not yet sent"
    session = Session(TrialLog(work.facts()))
    assert cost["dollars"] == session.dollars
    assert cost["dollars"] == pytest.approx(api.cost())
    assert sum(kind["dollars"] for kind in cost["kinds"].values()) == pytest.approx(session.dollars)
    assert 0 < window["cache_seconds"] <= 300
    assert cost["misses"] == []


def test_a_compaction_that_was_asked_for_is_receipted_searched_and_undone(work: Program) -> None:
    with lab.server(model) as api:
        work.url = api.url
        assert work.ask("read them all").code == 0
        full = told(work, "context")["used"]
        receipt = told(work, "compact", "--focus", "values")
        assert (receipt["trigger"], receipt["by"], receipt["state"]) == (
            "manual",
            "model",
            "stands",
        )
        assert receipt["planned"] < receipt["before"] == full
        (asked,) = [e for e in api.ledger if "Give most room to: values" in e.body.decode()]
        assert asked.usage.read >= 0.99 * (full - 10)
        assert receipt["dollars"] == pytest.approx(asked.cost)
        lost = told(work, "context", "lost")
        assert [span["compaction"] for span in lost] == [1] * len(receipt["spans"])
        (hit,) = told(work, "context", "lost", "--search", "value_2_77")
        assert "line 77 of file 2" in hit["text"]
        assert hit["file"] in {span["file"] for span in lost}
        assert work.ask("and then?", "-c").code == 0
        measured = api.ledger[-1].usage
        assert told(work, "context", "receipts")[0]["measured"] == measured.prompt
        (miss,) = told(work, "cost")["misses"]
        assert (miss["cause"], miss["expected"]) == ("compaction", True)
        undone = work.run("context", "undo")
        assert undone.code == 0 and undone.out.startswith("Undid compaction 1")
        assert work.ask("and now?", "-c").code == 0
        assert api.ledger[-1].usage.prompt > full
        again = work.run("context", "undo")
        assert (again.code, "No such compaction" in again.err) == (2, True)
        api.no_invalid()
    assert told(work, "context", "receipts")[0]["state"] == "undone"
    assert work.run("audit", work.logs()[0].parent.name).code == 0
    assert [e.fact.why for e in work.facts() if isinstance(e.fact, Ended)] == ["end"] * 3


def hooks(*commands: str) -> tuple[str, str]:
    """Settings with hooks at PreCompact that run these, in this order."""
    written = [{"type": "command", "command": command} for command in commands]
    return "--settings", json.dumps({"hooks": {"PreCompact": [{"hooks": written}]}})


PLAIN_HOOK = "echo 'Keep the ticket ABC-1.'"
JSON_HOOK = f"""printf %s '{
    json.dumps(
        {
            "hookSpecificOutput": {
                "hookEventName": "PreCompact",
                "additionalContext": "Keep the branch name.",
            }
        }
    )
}'"""
OWN_HOOK = f"""printf %s '{
    json.dumps(
        {
            "hookSpecificOutput": {
                "hookEventName": "PreCompact",
                "customInstructions": "Write in French.",
            }
        }
    )
}'"""
HOOKS_SAY = ("Keep the ticket ABC-1.", "Keep the branch name.", "Write in French.")


def test_what_hooks_say_before_a_compaction_reaches_the_summariser(work: Program) -> None:
    with lab.server(model) as api:
        work.url = api.url
        assert work.ask("read them all").code == 0
        slow = f"sleep 0.3; {PLAIN_HOOK}"  # the order is that of the settings, not who ends first
        told(work, "compact", "--focus", "values", *hooks(slow, JSON_HOOK, OWN_HOOK, "exit 1"))
        (asked,) = [e.body.decode() for e in api.ledger if ASKED in e.body.decode()]
        places = [asked.find(said) for said in ("Give most room to: values", *HOOKS_SAY)]
        assert -1 < places[0] < places[1] < places[2] < places[3]
        assert work.ask("and then?", "-c").code == 0
        assert "<hook>" not in api.ledger[-1].body.decode()


def test_what_hooks_say_before_a_compaction_by_itself_reaches_the_summariser(
    work: Program,
) -> None:
    early = json.loads(EARLY[1]) | json.loads(hooks(PLAIN_HOOK, JSON_HOOK)[1])
    with lab.server(model) as api:
        work.url = api.url
        done = work.ask("read them all", "--settings", json.dumps(early))
        assert done.code == 0, done.err
        asked = [e.body.decode() for e in api.ledger if HOOKS_SAY[0] in e.body.decode()]
        assert asked and all(ASKED in body and HOOKS_SAY[1] in body for body in asked)
        api.no_invalid()
    made = [e.fact for e in work.facts() if isinstance(e.fact, Compacted)]
    assert {(fact.by, fact.trigger) for fact in made} == {("model", "auto")}


def test_what_hooks_say_is_kept_as_it_is_where_no_model_summarises(work: Program) -> None:
    tree = json.loads(settings(draft=False)[1]) | json.loads(hooks(PLAIN_HOOK)[1])
    with lab.server(model) as api:
        work.url = api.url
        assert work.ask("read them all").code == 0
        told(work, "compact", "--settings", json.dumps(tree))
        assert work.ask("and then?", "-c").code == 0
        assert HOOKS_SAY[0] in api.ledger[-1].body.decode()


def test_a_part_can_give_way_and_what_stands_before_it_keeps_its_cache(work: Program) -> None:
    with lab.server(model) as api:
        work.url = api.url
        assert work.ask("read them all").code == 0
        blocks = told(work, "context")["blocks"]
        results = [block["entry"] for block in blocks if block["kind"] == "results"]
        before = sum(b["tokens"] for b in blocks if b["entry"] <= results[5])
        told(work, "compact", "--from", str(results[5] + 1))
        kept = [b["entry"] for b in told(work, "context")["blocks"] if b["kind"] == "results"]
        assert kept == results[:6]
        assert work.ask("and then?", "-c").code == 0
        assert api.ledger[-1].usage.read >= 0.9 * before
        wrong = work.run("compact", "--from", "9999")
        assert (wrong.code, "There are no messages from 9999" in wrong.err) == (2, True)


def test_a_session_in_use_and_a_switch_that_is_off_are_refused_clearly(work: Program) -> None:
    with lab.server(model) as api:
        work.url = api.url
        screen = Screen(work, *work.model)
        screen.until("> ")
        screen.type("read them all\n")
        screen.until("done")
        screen.until("> ")
        busy = work.run("compact")
        assert busy.code == 2 and "in use" in busy.err, busy.err
        screen.type("/context\n")
        assert "compaction begins at 967,000" in screen.until("cache warm for")
        screen.type("/compact values\n")
        screen.until("Compacted (manual)")
        screen.type("/cost\n")
        screen.until("of input from cache")
        screen.type("/model anthropic/claude-haiku-5-5\n")
        screen.until("The model is anthropic/claude-haiku-5-5.")
        screen.type("/nonsense\n")
        screen.until("There is no command /nonsense")
        assert screen.leave() == 0
        off = work.run("compact", *settings(compact=False))
        assert off.code == 1 and "turned off" in off.err
        assert work.ask("go on", "-c").code == 0
    assert [e.fact.why for e in work.facts() if isinstance(e.fact, Ended)] == ["end", "end"]


def test_a_draft_is_prepared_beside_the_turn_and_the_compaction_uses_it(work: Program) -> None:
    with lab.server(model) as api:
        work.url = api.url
        done = work.ask("read them all", *EARLY)
        assert done.code == 0, done.err
        draft, *_ = [e for e in api.ledger if ASKED in e.body.decode()]
        sizes = [e.usage.prompt for e in api.ledger if e.n < draft.n]
        before = max(size for size in sizes if size <= draft.usage.prompt)  # the turn may be ahead
        assert draft.usage.read >= 0.99 * before
        api.no_invalid()
    facts = [entry.fact for entry in work.facts()]
    noted, *_ = [fact for fact in facts if isinstance(fact, Noted)]
    made, *_ = [fact for fact in facts if isinstance(fact, Compacted)]
    assert (noted.text, made.by, made.trigger, made.limit) == (PROSE, "model", "auto", 14_000)
    kinds = [type(fact) for fact in facts]
    assert kinds.index(Spawned) < kinds.index(Finished) < kinds.index(Noted)
    assert told(work, "context", "receipts")[0]["set_by"] == "settings"


def test_a_draft_under_way_never_delays_the_end_and_its_failure_is_silent(work: Program) -> None:
    def refusing(prompt: lab.Prompt, state: dict[str, Any]) -> Any:
        wrong = {"status": 400, "type": "invalid_request_error", "message": "no"}
        return lab.Reply(error=wrong) if ASKED in prompt.last_text else model(prompt, state)

    with lab.server(refusing) as api:
        work.url = api.url
        done = work.ask("read them all", *EARLY)
        assert (done.code, done.out) == (0, "done\n")
        assert "400" not in done.err
    facts = [entry.fact for entry in work.facts()]
    assert [fact.outcome for fact in facts if isinstance(fact, Finished)] != ["done"]
    assert {fact.by for fact in facts if isinstance(fact, Compacted)} == {"ledger"}


def test_each_kind_of_compaction_can_be_switched_off_by_variables_that_others_know(
    work: Program,
) -> None:
    with lab.server(model) as api:
        work.url, work.extra = (
            api.url,
            {"DISABLE_AUTO_COMPACT": "1", "DISABLE_MICROCOMPACT": "true"},
        )
        assert work.ask("read them all", *settings(threshold=9_000, offload=False)).code == 0
        assert not any(isinstance(entry.fact, Compacted) for entry in work.facts())
        assert told(work, "compact")["trigger"] == "manual"
    explained = told(work, "config", "explain", "context")
    assert explained["context.autoCompact"] == {"value": False, "origin": "DISABLE_AUTO_COMPACT"}
    assert explained["context.clear"]["value"] is False
    assert explained["context.compact"] == {"value": True, "origin": "default"}


def test_a_smaller_model_takes_over_what_fits_or_what_was_shortened_or_nothing(
    work: Program,
) -> None:
    with lab.server(model) as api:
        work.url = api.url
        assert work.ask("read them all").code == 0
        count = len(work.facts())
        refused = work.run("-p", "go on", "-c", "--model", "openai/lab-model[2k]")
        assert refused.code == 2
        assert "Cannot switch to openai/lab-model" in refused.err
        assert "Nothing was changed" in refused.err
        assert len(work.facts()) == count
        done = work.run("-p", "go on", "-c", "--model", "openai/lab-model[8k]")
        assert done.code == 0, done.err
    later = [entry.fact for entry in work.facts()[count:]]
    kinds = [type(fact) for fact in later]
    assert kinds.index(Compacted) < kinds.index(Epoch) < kinds.index(Sent)
    assert [fact.what for fact in later if isinstance(fact, Spawned)] == ["summary"]
    assert [e.fact.why for e in work.facts() if isinstance(e.fact, Ended)] == ["end", "end"]


# --- switched off, and where it starts ------------------------------------------------------------


OFF = {
    "DISABLE_AUTO_COMPACT": "Automatic compaction is off (DISABLE_AUTO_COMPACT). Compact with ",
    "DISABLE_COMPACT": "Compaction is off (DISABLE_COMPACT). Turn it back on",
}


@pytest.mark.parametrize("variable", OFF)
def test_a_full_window_ends_the_turn_with_a_way_out_where_compaction_is_off(
    work: Program, variable: str
) -> None:
    low = {"TRAVOIS_CONTEXT_HARD_LIMIT": "12000", "TRAVOIS_CONTEXT_CLEAR": "false"}
    with lab.server(model) as api:
        work.url, work.extra = api.url, {variable: "1", **low}
        done = work.ask("read them all")
        sent = len(api.ledger)
        assert (done.code, done.out) == (1, "")
        assert "the context window is full: " in done.err and "nothing was sent" in done.err
        assert OFF[variable] in done.err and "/model" in done.err and "/rewind" in done.err
        assert not any(isinstance(entry.fact, Compacted) for entry in work.facts())
        again = work.ask("go on", "-c")
        assert (again.code, len(api.ledger)) == (1, sent)
        asked = work.run("compact")
        assert asked.code == (0 if variable == "DISABLE_AUTO_COMPACT" else 1), asked.err
        if asked.code:
            assert "compaction is turned off (DISABLE_COMPACT)" in asked.err
            work.extra = low
            assert work.run("compact").code == 0
        assert work.ask("go on", "-c").code == (1 if variable == "DISABLE_AUTO_COMPACT" else 0)
        assert len(api.ledger) > sent


def test_a_window_that_the_provider_calls_full_is_not_compacted_unasked(work: Program) -> None:
    error = {"status": 400, "type": "invalid_request_error"}
    error["message"] = "prompt is too long: 250000 tokens > 200000 maximum"
    with lab.server(model) as api:
        work.url, work.extra = api.url, {"DISABLE_AUTO_COMPACT": "1"}
        api.fault({"http": error}, n=3)
        done = work.ask("read them all")
        assert len(api.ledger) == 3
    assert done.code == 1
    assert "prompt is too long" in done.err and "Compact with /compact" in done.err
    assert not any(isinstance(entry.fact, Compacted) for entry in work.facts())


@pytest.mark.parametrize(
    ("variable", "value", "trigger"),
    [
        ("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "40", "auto"),
        ("TRAVOIS_CONTEXT_THRESHOLD_PERCENT", "40", "auto"),
        ("CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE", "12000", "overflow"),
    ],
)
def test_compaction_starts_earlier_where_a_variable_says_so(
    work: Program, variable: str, value: str, trigger: str
) -> None:
    small = ("--model", "anthropic/claude-opus-5-5[32k]")
    with lab.server(model) as api:
        work.url, work.extra = api.url, {variable: value}
        done = work.run("-p", "read them all", *small, *settings(clear=False, offload=False))
        assert done.code == 0, done.err
        api.no_invalid()
    first = next(e.fact for e in work.facts() if isinstance(e.fact, Compacted))
    assert (first.trigger, first.before < 16_000) == (trigger, True)


def test_a_percentage_that_is_none_is_refused(work: Program) -> None:
    done = work.run("-p", "x", *settings(thresholdPercent=140))
    assert done.code == 2 and "context.thresholdPercent" in done.err
