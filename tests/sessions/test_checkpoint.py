"""A checkpoint is a cache beside a log: with it, without it, or with a wrong one, a session is
what its log says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.told import EPOCH, histories, reply, result, user
from tests.sessions.sample import opened
from travois.core.content import Text
from travois.core.facts import AnyFact, Compacted, Entry, Noted, Restored, Rewound
from travois.core.view import project_view
from travois.sessions import log_line as line
from travois.sessions.checkpoint import CHECKPOINT_FILE, LogCheckpoint, load_checkpoint
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog, read_entries
from travois.sessions.session import DerivedState, Session


def derived(session: Session) -> DerivedState:
    """All that a session knows."""
    return DerivedState(**{name: getattr(session, name) for name in DerivedState.__struct_fields__})


def written(folder: Path, told: list[Entry]) -> None:
    """A log of just these entries."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG_FILE_NAME).open("ab") as file:
        for entry in told:
            file.write(line.encode_entry(entry)[1])


def kept_at(folder: Path) -> DerivedState:
    """Open the session, keep a checkpoint of all so far, and return what is known."""
    with SessionLog.open(folder) as log:
        session = Session(log)
        session._save_derived_state()  # pyright: ignore[reportPrivateUsage] however small the log is
        return derived(session)


def resumed(folder: Path) -> DerivedState:
    """What a session knows that is opened again."""
    with SessionLog.open(folder) as log:
        return derived(Session(log))


def afresh(folder: Path) -> DerivedState:
    """The same without a checkpoint."""
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    return resumed(folder)


def numbered(told: list[Entry]) -> list[Entry]:
    """The same entries, after the one with which every session is opened."""
    return [Entry(1, 1.0, opened()), *(Entry(e.seq + 1, e.at, _moved(e)) for e in told)]


def _moved(entry: Entry) -> AnyFact:
    match entry.fact:
        case Rewound(to=to):
            return Rewound(to + 1)
        case Restored(compaction=number):
            return Restored(number + 1)
        case Compacted() as fact:
            return msgspec.structs.replace(fact, first=fact.first + 1, last=fact.last + 1)
        case fact:
            return fact


@settings(max_examples=60, deadline=None)
@given(told=histories(), share=st.floats(0, 1))
def test_a_session_that_goes_on_from_a_checkpoint_is_what_its_whole_log_says(
    tmp_path_factory: pytest.TempPathFactory, told: list[Entry], share: float
) -> None:
    folder, all_ = tmp_path_factory.mktemp("c") / "s1", numbered(told)
    cut = max(1, round(share * len(all_)))
    written(folder, all_[:cut])
    kept_at(folder)
    written(folder, all_[cut:])
    with SessionLog.open(folder) as log:
        session = Session(log)
        assert session.view == project_view(log.read())
        found = derived(session)
    assert found == afresh(folder)


def long_log(folder: Path, turns: int = 40) -> None:
    """A log with results, notes and one compaction."""
    with SessionLog.create(folder, opened()) as log:
        session = Session(log)
        session.append(EPOCH)
        for number in range(turns):
            session.append(user(f"do {number}"))
            session.append(reply("", f"c{number}"))
            session.append(result(f"c{number}"))
            session.append(reply(f"did {number}"))
        items = session.view.items
        session.append(Compacted(items[0].seq, items[-5].seq, (Text("so far"),), "notes"))
        session.append(Noted("notes", "n"))


def test_deleting_the_checkpoint_changes_nothing(tmp_path: Path) -> None:
    long_log(tmp_path / "s1")
    known = kept_at(tmp_path / "s1")
    assert load_checkpoint(tmp_path / "s1") is not None
    assert resumed(tmp_path / "s1") == known
    assert afresh(tmp_path / "s1") == known


def test_a_torn_or_damaged_checkpoint_is_ignored(tmp_path: Path) -> None:
    folder, chance = tmp_path / "s1", random.Random(7)
    long_log(folder)
    known = kept_at(folder)
    data = (folder / CHECKPOINT_FILE).read_bytes()
    damaged = [data[:cut] for cut in (0, 1, 3, 4, 5, len(data) // 2, len(data) - 1)]
    for _ in range(60):
        at = chance.randrange(len(data))
        damaged.append(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
    for each in damaged:
        (folder / CHECKPOINT_FILE).write_bytes(each)
        assert load_checkpoint(folder) is None
        assert resumed(folder) == known


def test_the_checkpoint_of_another_session_is_ignored(tmp_path: Path) -> None:
    long_log(tmp_path / "s1")
    long_log(tmp_path / "s2", turns=41)
    kept_at(tmp_path / "s1")
    known = afresh(tmp_path / "s2")
    os.replace(tmp_path / "s1" / CHECKPOINT_FILE, tmp_path / "s2" / CHECKPOINT_FILE)
    assert load_checkpoint(tmp_path / "s2") is None
    assert resumed(tmp_path / "s2") == known


def test_a_checkpoint_of_a_log_that_was_changed_or_cut_is_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "s1"
    long_log(folder)
    kept_at(folder)
    whole, kept = (folder / LOG_FILE_NAME).read_bytes(), (folder / CHECKPOINT_FILE).read_bytes()
    shorter = whole[: whole.rfind(b"\n", 0, len(whole) // 2) + 1]
    changed = whole.replace(b"did 3", b"die 3")
    for data in (shorter, changed, shorter + shorter):
        (folder / LOG_FILE_NAME).write_bytes(data)
        (folder / CHECKPOINT_FILE).write_bytes(kept)
        assert load_checkpoint(folder) is None
        found = resumed(folder)
        assert found == afresh(folder)
        (folder / CHECKPOINT_FILE).write_bytes(kept)


@pytest.mark.parametrize("change", [{"format": 0}, {"program": "0.0.0"}, {"state": b"\x93\x01"}])
def test_a_checkpoint_of_another_version_is_ignored(
    tmp_path: Path, change: dict[str, object]
) -> None:
    folder = tmp_path / "s1"
    long_log(folder)
    known = kept_at(folder)
    found = load_checkpoint(folder)
    assert found is not None
    from travois.sessions.checkpoint import save_checkpoint

    save_checkpoint(folder, msgspec.structs.replace(found, **change))
    assert resumed(folder) == known


def test_a_link_in_place_of_a_checkpoint_is_not_written_through(tmp_path: Path) -> None:
    folder, other = tmp_path / "s1", tmp_path / "other"
    long_log(folder)
    other.write_text("mine")
    (folder / CHECKPOINT_FILE).symlink_to(other)
    kept_at(folder)
    assert other.read_text() == "mine"
    assert (folder / CHECKPOINT_FILE).stat().st_mode & 0o777 == 0o600


def test_a_fork_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    long_log(tmp_path / "s1")
    at = read_entries(tmp_path / "s1" / LOG_FILE_NAME, [])
    last = [entry.seq for entry in at][-6]
    fork = msgspec.structs.replace(opened(), session="s2", parent="s1", at=last)
    with SessionLog.create(tmp_path / "s2", fork) as log:
        Session(log).append(user("another way"))
    known = kept_at(tmp_path / "s2")
    assert load_checkpoint(tmp_path / "s2") is not None
    with SessionLog.open(tmp_path / "s1") as log:
        Session(log).append(user("this way"))
    assert load_checkpoint(tmp_path / "s2") is not None, (
        "what its base does later is not its concern"
    )
    assert resumed(tmp_path / "s2") == known == afresh(tmp_path / "s2")


def test_damage_before_a_checkpoint_is_still_told(tmp_path: Path) -> None:
    folder = tmp_path / "s1"
    long_log(folder)
    data = (folder / LOG_FILE_NAME).read_bytes()
    (folder / LOG_FILE_NAME).write_bytes(data.replace(b"did 3", b"die 3"))
    with SessionLog.open(folder) as log:
        Session(log)._save_derived_state()  # pyright: ignore[reportPrivateUsage]
        before = log.skipped
    with SessionLog.open(folder) as log:
        Session(log)
        assert log.skipped == before != ()


KILLED = """
import os, signal, sys
from pathlib import Path
from travois.sessions.session import Session
from travois.sessions.log_file import SessionLog

at, count = int(sys.argv[2]), 0

def dying(real):
    def call(*args, **named):
        global count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)
    return call

log = SessionLog.open(Path(sys.argv[1]))
session = Session(log)
os.open, os.replace, os.fdopen, os.rename = map(dying, (os.open, os.replace, os.fdopen, os.rename))
Path.replace = dying(Path.replace)
session._save_derived_state()
print(count)
"""


def test_a_kill_at_any_step_of_writing_it_is_harmless(tmp_path: Path) -> None:
    folder, number = tmp_path / "s1", 1
    long_log(folder)
    known = afresh(folder)
    while True:
        child = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), str(number)], check=False
        )
        assert resumed(folder) == known
        if child.returncode != -signal.SIGKILL:
            break
        number += 1
    assert child.returncode == 0
    assert number > 2, "it was killed at some steps"
    assert load_checkpoint(folder) is not None


def test_a_log_is_kept_beside_once_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("travois.sessions.session.CHECKPOINT_STRIDE_BYTES", 2_000)
    folder = tmp_path / "s1"
    with SessionLog.create(folder, opened()) as log:
        session = Session(log)
        for number in range(60):
            session.append(user(f"say {number}"))
            session.sync()
        known = derived(session)
    found = load_checkpoint(folder)
    assert found is not None
    *_, mark = found.marks.values()
    assert (folder / LOG_FILE_NAME).stat().st_size - mark.size <= 2_200
    assert resumed(folder) == known


def test_a_rewind_behind_a_checkpoint_starts_over(tmp_path: Path) -> None:
    folder = tmp_path / "s1"
    long_log(folder)
    kept_at(folder)
    with SessionLog.open(folder) as log:
        session = Session(log)
        session.append(Rewound(40))
        assert session.view == project_view(log.read())
        known = derived(session)
    assert resumed(folder) == known == afresh(folder)


def test_what_was_decoded_is_of_the_present_shape(tmp_path: Path) -> None:
    long_log(tmp_path / "s1")
    kept_at(tmp_path / "s1")
    found = load_checkpoint(tmp_path / "s1")
    assert isinstance(found, LogCheckpoint)
    assert msgspec.msgpack.decode(found.state, type=DerivedState).seq == found.marks["s1"].seq
