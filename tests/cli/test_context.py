"""`travois context`: what is in the window, and what becomes of what was set aside."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cli.commanding import run
from tests.core.told import EPOCH, entries, reply, result, user
from tests.sessions.sample import opened
from travois.commands import context
from travois.context.compaction.cut import SUMMARY_OPENING
from travois.context.receipts import list_compaction_receipts
from travois.context.switch_model import TrialLog
from travois.context.window import WindowBreakdown, break_down_window
from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import (
    AnyFact,
    Cleared,
    Compacted,
    Finished,
    Offloaded,
    Restored,
    Rewound,
    Sent,
    Spawned,
)
from travois.core.models import Usage
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session

SENT = Sent(3, "c", "d", 10)
FILES = '<files>\n<file path="/w/a.py" lines="1-2 of 2" mark="x">\nx\n</file x>\n</files>'
SUMMARY = (Text("<instructions>\nrules"), Text(SUMMARY_OPENING), Text(FILES))


def talk(*, usage: Usage | None = None) -> tuple[AnyFact, ...]:
    asked = (EPOCH, user("<environment>\nDate: x", origin="note"), user("go"), SENT)
    last = reply("done", usage=usage or Usage())
    return (*asked, reply("", "a"), result("a", "word " * 400), SENT, last)


def window(facts: Iterable[AnyFact], *, later: float = 0.0) -> WindowBreakdown:
    session = Session(TrialLog(entries(*facts)))
    now = session.cache.used + later
    return break_down_window(session.view, session.history(), cache=session.cache, now=now)


def test_every_block_is_there_with_its_source_and_they_sum_to_the_count() -> None:
    found = window(talk(usage=Usage(read=300, write=200, output=7)))
    assert [(one.kind, one.source, one.entry) for one in found.portions] == [
        ("tools", "Read", 0),
        ("system", "system prompt", 0),
        ("messages", "environment", 2),
        ("messages", "you: go", 3),
        ("messages", "reply: Read", 5),
        ("results", 'Read {"path":"a"}', 6),
        ("messages", "reply: done", 8),
    ]
    assert found.total_tokens == found.measured == sum(found.tokens_by_kind.values()) == 507


def test_what_came_after_the_count_is_estimated_and_not_sent_yet() -> None:
    facts = talk(usage=Usage(read=100, write=400, output=7))
    found = window((*facts, user("and then? " * 50)))
    assert found.total_tokens > found.measured == 507
    states = [one.cache for one in found.portions]
    assert states[0] == "read" and states[-3:] == ["written", "not yet sent", "not yet sent"]


def test_a_cache_that_has_died_is_cold() -> None:
    facts = talk(usage=Usage(read=300, write=200, output=7))
    assert {one.cache for one in window(facts, later=301).portions} == {"cold", "not yet sent"}
    plain = window(talk(usage=Usage(input=500, output=7)))
    assert {one.cache for one in plain.portions} == {"not cached", "not yet sent"}


def test_what_is_not_as_it_was_says_why() -> None:
    facts = talk()
    stored = (*facts[:6], Offloaded("a", "/kept/a.txt", "word …"), *facts[6:])
    assert window(stored).portions[5].why == "shortened; full text in /kept/a.txt"
    cleared = window((*facts, Cleared(("a",), "gone")))
    assert cleared.portions[5].why == "cleared; full text on disk"
    served = window((*facts, Cleared(("a",), "gone", where="server")))
    assert served.portions[5].tokens < window(facts).portions[5].tokens
    cut = window((*facts, Compacted(2, 8, SUMMARY, "notes", trigger="auto")))
    assert [(one.kind, one.source) for one in cut.portions[2:]] == [
        ("instructions", "instruction files"),
        ("summary", "summary"),
        ("summary", "files shown again"),
    ]
    assert cut.portions[3].why == "replaces entries 2 to 8 (auto)"
    assert cut.measured == 0


CUT = Compacted(
    2,
    8,
    SUMMARY,
    "model",
    trigger="auto",
    before=9_000,
    after=2_000,
    seconds=1.5,
    files=("/kept/1.txt",),
    titles=("what was done",),
    limit=8_000,
)


def test_a_receipt_tells_what_a_compaction_did_and_cost() -> None:
    forks = (Spawned("f", "fork", "summary"), Finished("f", "done", Usage(input=10)))
    later = (user("on"), SENT, reply("ok", usage=Usage(read=100, write=2_100)))
    (one,) = list_compaction_receipts(entries(*talk(), *forks, CUT, *later))
    assert (one.number, one.entry, one.trigger, one.by) == (1, 11, "auto", "model")
    assert (one.before, one.planned, one.measured) == (9_000, 2_000, 2_200)
    assert [(span.title, span.file) for span in one.spans] == [("what was done", "/kept/1.txt")]
    assert one.restored == ("/w/a.py",)
    assert (one.threshold, one.set_by, one.seconds) == (8_000, "settings", 1.5)
    assert (one.useless, one.breaker, one.state) == (0, False, "stands")


def test_a_receipt_says_whether_its_compaction_still_counts() -> None:
    once = (*talk(), CUT)
    again = Compacted(8, 10, SUMMARY, "notes")
    twice = (*once, user("on"), again)
    assert [one.state for one in list_compaction_receipts(entries(*twice))] == [
        "replaced by a later one",
        "stands",
    ]
    undone = list_compaction_receipts(entries(*twice, Restored(11)))
    assert [one.state for one in undone] == ["stands", "undone"]
    assert [one.state for one in list_compaction_receipts(entries(*once, Rewound(8)))] == [
        "rewound"
    ]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TravoisHome:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return TravoisHome(tmp_path / "home").prepare()


def write(home: TravoisHome, *facts: AnyFact) -> None:
    with SessionLog.create(home.session_folder("p", "s1"), opened()) as log:
        for fact in facts:
            log.append(fact)


def test_one_line_by_default(home: TravoisHome, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, *talk(usage=Usage(read=300, write=200, output=7)))
    assert run(context, "context", "s1") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("507 of 167,000 tokens (lab/echo-1, window 200,000): system ")
    assert " · free 166,493; scaled ×" in line and "cache warm for " in line


def test_an_undo_that_would_not_fit_is_refused_with_the_numbers(home: TravoisHome) -> None:
    long = (EPOCH, user("word " * 800_000), reply("ok"))
    write(home, *long, Compacted(3, 4, SUMMARY, "notes"))
    before = (home.session_folder("p", "s1") / "log.jsonl").read_bytes()
    with pytest.raises(UserError, match="cannot be undone") as refused:
        run(context, "context", "undo", "s1")
    assert "that can be used of 200,000" in refused.value.why
    assert (home.session_folder("p", "s1") / "log.jsonl").read_bytes() == before


def test_an_undo_names_what_has_to_be_undone_first(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = Compacted(3, 9, SUMMARY, "notes")
    write(home, *talk(), cut, user("on"), Compacted(9, 11, SUMMARY, "notes"))
    with pytest.raises(UserError, match="Compaction 1 cannot be undone") as refused:
        run(context, "context", "undo", "1", "s1")
    assert refused.value.why == "it is replaced by a later one"
    assert run(context, "context", "undo", "s1") == 0
    assert run(context, "context", "undo", "s1") == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in out] == ["Undid compaction 2", "Undid compaction 1"]
    with pytest.raises(UserError, match="No such compaction"):
        run(context, "context", "undo", "s1")


def test_lost_spans_are_listed_and_searched(
    home: TravoisHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "span.txt"
    path.write_text("one\nThe needle is here\nthree\n")
    write(home, *talk(), Compacted(3, 9, SUMMARY, "notes", files=(str(path),), titles=("it",)))
    assert run(context, "context", "lost", "s1", "--json") == 0
    (span,) = json.loads(capsys.readouterr().out)
    assert (span["compaction"], span["title"], span["file"]) == (1, "it", str(path))
    assert span["tokens"] > 0
    assert run(context, "context", "lost", "s1", "--search", "NEEDLE here") == 0
    assert capsys.readouterr().out == f"{path}:2: The needle is here\n"
    assert run(context, "context", "lost", "s1", "--search", "thimble") == 1
