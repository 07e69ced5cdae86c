"""A log that no window could take: what is held of it, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.told import EPOCH, reply, result, user
from tests.sessions.sample import opened
from travois.core.content import Text
from travois.core.facts import AnyFact, Compacted, Noted, Rewound, User
from travois.core.legality import find_send_blocker
from travois.core.tokens import context_tokens
from travois.core.view import project_view
from travois.providers.encoder import RequestEncoder
from travois.sessions import scan
from travois.sessions.log_file import SessionLog, read_history
from travois.sessions.session import Session

TURNS = 400


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a window held next to nothing, so that a short log is a long one."""
    monkeypatch.setattr("travois.core.view.MIN_KEPT_CHARS", 4_000)
    monkeypatch.setattr("travois.core.view.CHARS_PER_WINDOW_TOKEN", 0)
    monkeypatch.setattr("travois.sessions.session.TRIM_CHECK_ITEMS", 50)
    monkeypatch.setattr("travois.sessions.scan.READ_BLOCK_BYTES", 4_096)


def facts() -> list[AnyFact]:
    """A long conversation with calls, which was never compacted."""
    told: list[AnyFact] = [EPOCH]
    for number in range(TURNS):
        told += (user(f"do {number}"), reply("", f"c{number}"))
        told += (result(f"c{number}", "x" * 40), reply(f"did {number}"))
    return [*told, user("the last")]


def written(folder: Path) -> Path:
    with SessionLog.create(folder, opened()) as log:
        for fact in facts():
            log.append(fact)
    return folder


def test_only_the_first_item_and_the_last_are_held(tmp_path: Path) -> None:
    with SessionLog.open(written(tmp_path / "s1")) as log:
        view, whole = Session(log).view, project_view(log.read())
        assert 0 < len(view.items) < 100
        assert view.items[0] == whole.items[0]
        assert view.items[1:] == whole.items[1 - len(view.items) :]
        assert view.omitted + len(view.items) == len(whole.items)
        assert view.ids == whole.ids
        assert view.items[view.replied] == whole.items[whole.replied]


def test_it_is_the_same_from_a_checkpoint_on_at_any_entry(tmp_path: Path) -> None:
    told, views = facts(), list[object]()
    for number in (200, 803, 1_400):
        folder = tmp_path / f"s{number}"
        with SessionLog.create(folder, opened()) as log:
            for fact in told[:number]:
                log.append(fact)
            Session(log)._save_derived_state()  # pyright: ignore[reportPrivateUsage]
            for fact in told[number:]:
                log.append(fact)
        with SessionLog.open(folder) as log:
            assert log.resume()[0]
            views.append(Session(log).view)
    with SessionLog.open(written(tmp_path / "s1")) as log:
        assert [Session(log).view] * len(views) == views


def test_nothing_is_sent_before_it_is_compacted_and_then_what_the_log_says(tmp_path: Path) -> None:
    with SessionLog.open(written(tmp_path / "s1")) as log:
        session = Session(log)
        assert "larger than any window" in find_send_blocker(session.view)
        assert context_tokens(session.view) > 4_000
        first, *_, last = session.view.items[:-2]
        session.append(Compacted(first.seq, last.seq, (Text("so far"),), "notes"))
        assert session.view.omitted == 0
        assert session.view.items == project_view(log.read()).items
        sent = RequestEncoder(lambda name: b"").build_request(session.view)
        again = RequestEncoder(lambda name: b"").build_request(project_view(log.read()))
        assert (sent.digest, sent.body) == (again.digest, again.body)


def test_a_compaction_among_what_is_left_out_is_honoured(tmp_path: Path) -> None:
    folder = written(tmp_path / "s1")
    with SessionLog.open(folder) as log:
        whole = project_view(log.read())
        log.append(Compacted(whole.items[8].seq, whole.items[11].seq, (Text("x"),), "dropped"))
    with SessionLog.open(folder) as log:
        assert Session(log).view.items == project_view(log.read()).items


def test_a_rewind_into_what_is_left_out_brings_it_back(tmp_path: Path) -> None:
    with SessionLog.open(written(tmp_path / "s1")) as log:
        session = Session(log)
        session.append(Rewound(30))
        assert session.view == project_view(log.read())
        assert session.view.omitted == 0


def test_who_looks_back_on_a_long_log_sees_its_end_and_the_turns_of_events_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "s1")
    whole = list(read_history(folder, []))
    with SessionLog.open(folder) as log:
        assert Session(log).all_entries() == whole
        monkeypatch.setattr(scan, "MAX_WHOLE_LOG_BYTES", 10_000)
        monkeypatch.setattr(scan, "EXCERPT_TAIL_BYTES", 5_000)
        found = Session(log).all_entries()
    end = next(n for n, entry in enumerate(found) if isinstance(entry.fact, type(reply(""))))
    assert found[end:] == whole[end - len(found) :]
    said = [entry for entry in whole if isinstance(entry.fact, User)]
    assert [entry for entry in found if isinstance(entry.fact, User)] == said
    assert found[:2] == whole[:2]


def test_an_excerpt_skips_what_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "s1")
    path = folder / "log.jsonl"
    path.write_bytes(path.read_bytes().replace(b"do 7", b"du 7").replace(b"did 399", b"dad 399"))
    monkeypatch.setattr(scan, "MAX_WHOLE_LOG_BYTES", 10_000)
    monkeypatch.setattr(scan, "EXCERPT_TAIL_BYTES", 5_000)
    with SessionLog.open(folder) as log:
        log.append(Noted("a", "b"))
        assert {entry.seq for entry in Session(log).all_entries()} <= {e.seq for e in log.read()}


def test_an_excerpt_is_the_same_whether_the_log_was_read_or_a_checkpoint_spared_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_WHOLE_LOG_BYTES", 10_000)
    monkeypatch.setattr(scan, "EXCERPT_TAIL_BYTES", 5_000)
    monkeypatch.setattr("travois.sessions.log_file.MAX_WHOLE_LOG_BYTES", 10_000)
    folder = written(tmp_path / "s1")
    with SessionLog.open(folder) as log:
        session = Session(log)
        session._save_derived_state()  # pyright: ignore[reportPrivateUsage] however small the log is
        session.append(user("said since"))
        read = session.all_entries()
    with SessionLog.open(folder) as log:
        assert log.resume()[0]
        session = Session(log)
        assert session.all_entries() == read
        assert read[-1].fact == user("said since")
