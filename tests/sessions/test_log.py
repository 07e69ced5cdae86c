from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sessions.sample import EPOCH, clock, entries, facts, opened, turns, write
from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import Changed, Entry, Noted, Result, Unknown, User
from travois.core.view import project_view
from travois.sessions import log_line as line
from travois.sessions.log_file import LOG_FILE_NAME, DamagedPlace, SessionLog, read_history


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    with SessionLog.create(tmp_path / "s1", opened(), clock=clock()) as log:
        written = [log.append(fact) for fact in facts()]
        log.sync()
        first, *rest = log.read()
    assert first == Entry(1, 1_700_000_000.0, opened())
    assert rest == written
    assert [entry.seq for entry in rest] == list(range(2, len(written) + 2))
    assert entries(tmp_path / "s1") == [first, *rest]


def test_numbers_go_on_after_reopening(tmp_path: Path) -> None:
    write(tmp_path / "s1", then=[EPOCH])
    with SessionLog.open(tmp_path / "s1") as log:
        assert log.append(Noted("a", "b")).seq == 3
    assert [entry.seq for entry in entries(tmp_path / "s1")] == [1, 2, 3]


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    write(tmp_path / "s1")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "s1").iterdir()}
    assert modes == {LOG_FILE_NAME: 0o600, "lock": 0o600}
    assert (tmp_path / "s1").stat().st_mode & 0o777 == 0o700


def test_a_log_cut_at_any_byte_opens_and_loses_only_the_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # a thousand of them take their time
    write(tmp_path / "whole", then=facts(1)[1:5])
    data = (tmp_path / "whole" / LOG_FILE_NAME).read_bytes()
    whole = entries(tmp_path / "whole")
    for cut in range(len(data) + 1):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / LOG_FILE_NAME).write_bytes(data[:cut])
        kept = data[:cut].count(b"\n")
        end = data.rfind(b"\n", 0, cut) + 1
        with SessionLog.open(folder) as log:
            assert list(log.read()) == whole[:kept]
            assert log.skipped == ()
            aside = log.torn.read_bytes() if log.torn else b""
            assert (aside, (folder / LOG_FILE_NAME).read_bytes()) == (data[end:cut], data[:end])
            assert log.append(Noted("after", "")).seq == kept + 1
        assert len(entries(folder)) == kept + 1


@settings(max_examples=150, deadline=None)
@given(number=st.integers(0, 40), cut=st.floats(0, 1), garbage=st.binary(max_size=30))
def test_a_torn_end_with_any_garbage_is_kept_aside(
    tmp_path_factory: pytest.TempPathFactory, number: int, cut: float, garbage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("torn") / "s1"
    write(folder, then=list(turns(number))[: number * 2])
    path = folder / LOG_FILE_NAME
    data = path.read_bytes()
    whole = entries(folder)
    end = data.rfind(b"\n", 0, int(len(data) * cut)) + 1
    path.write_bytes(data[:end] + garbage)
    with SessionLog.open(folder) as log:
        assert list(log.read()) == whole[: data[:end].count(b"\n")]
        assert (log.torn.read_bytes() if log.torn else b"") == garbage
    assert path.read_bytes() == data[:end]


def test_a_second_torn_end_does_not_replace_the_first(tmp_path: Path) -> None:
    write(tmp_path / "s1")
    for number, rest in enumerate((b"{one", b"{two"), 1):
        with (tmp_path / "s1" / LOG_FILE_NAME).open("ab") as file:
            file.write(rest)
        with SessionLog.open(tmp_path / "s1") as log:
            assert log.torn == tmp_path / "s1" / f"log.torn-{number}"
    assert (tmp_path / "s1" / "log.torn-1").read_bytes() == b"{one"


def test_a_wrong_byte_anywhere_costs_only_the_record_it_hits(tmp_path: Path) -> None:
    write(tmp_path / "s1", then=facts(1)[1:4])
    path = tmp_path / "s1" / LOG_FILE_NAME
    data = path.read_bytes()
    whole = entries(tmp_path / "s1")
    for position in range(len(data)):
        hit = data.count(b"\n", 0, position)
        for wrong in {data[position] ^ 1, ord("\n"), 0} - {data[position]}:
            path.write_bytes(data[:position] + bytes([wrong]) + data[position + 1 :])
            skipped: list[DamagedPlace] = []
            found = list(read_history(tmp_path / "s1", skipped))
            between = data[position] == ord("\n") and position < len(data) - 1
            rest = whole if between else whole[:hit] + whole[hit + 1 :]
            assert found == rest, (position, wrong)
            assert {bad.line - hit for bad in skipped} <= {1, 2}
            assert skipped[0].line == hit + 1


def test_damage_in_the_middle_is_reported_and_the_file_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "s1")
    path = tmp_path / "s1" / LOG_FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"let me look", b"let me l00k")
    path.write_bytes(b"".join(lines))
    with SessionLog.open(tmp_path / "s1") as log:
        found = [entry.seq for entry in log.read()]
        offset = sum(map(len, lines[:3]))
        assert log.skipped == (DamagedPlace(str(path), 4, offset, line.DAMAGED_REASON),)
    assert found == [1, 2, 3, *range(5, len(lines) + 1)]
    assert path.read_bytes() == b"".join(lines)


def test_numbers_that_do_not_rise_are_skipped_and_never_given_again(tmp_path: Path) -> None:
    write(tmp_path / "s1")
    path = tmp_path / "s1" / LOG_FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[4]]))
    with SessionLog.open(tmp_path / "s1") as log:
        assert len(list(log.read())) == len(lines)
        assert [bad.reason for bad in log.skipped] == [f"entry 5 after entry {len(lines)}"]
        assert log.append(Noted("a", "b")).seq == len(lines) + 1


def test_an_unknown_fact_refuses_the_log_and_names_itself(tmp_path: Path) -> None:
    write(tmp_path / "s1", first=opened(version="9.9"))
    body = b'{"seq":99,"at":1.0,"fact":{"type":"dreamt","of":"sheep"}'
    _append(tmp_path / "s1", body)
    with SessionLog.open(tmp_path / "s1") as log, pytest.raises(UserError) as caught:
        list(log.read())
    assert "version 9.9" in str(caught.value)
    assert "'dreamt'" in str(caught.value)


def test_an_unknown_fact_that_may_be_ignored_is_kept_verbatim(tmp_path: Path) -> None:
    write(tmp_path / "s1", then=[])
    raw = '{"type":"dreamt","of":"sheep"}'
    _append(tmp_path / "s1", b'{"seq":2,"at":1.0,"fact":%b,"ignorable":true' % raw.encode())
    assert entries(tmp_path / "s1")[1] == Entry(2, 1.0, Unknown(raw))


def _append(folder: Path, body: bytes) -> None:
    with (folder / LOG_FILE_NAME).open("ab") as file:
        file.write(b"%b%b%d}\n" % (body, line.CRC_FIELD, line.crc32(body)))


def test_a_lone_surrogate_is_replaced_not_refused(tmp_path: Path) -> None:
    with SessionLog.create(tmp_path / "s1", opened()) as log:
        entry = log.append(User((Text("caf\udce9"),)))
        assert entry.fact == User((Text("caf?"),))
        assert list(log.read())[1] == entry


# --- forks ----------------------------------------------------------------------------------------


def test_a_fork_reads_its_parent_up_to_the_point_of_the_fork(tmp_path: Path) -> None:
    write(tmp_path / "p" / "one")
    parent = entries(tmp_path / "p" / "one")
    write(tmp_path / "p" / "two", first=opened("two", parent="one", at=5), then=[Noted("x", "y")])
    write(tmp_path / "q" / "three", first=opened("three", parent="two", at=7), then=[EPOCH])
    two = entries(tmp_path / "p" / "two")
    assert two[:5] == parent[:5]
    assert [(e.seq, type(e.fact).__name__) for e in two[5:]] == [(6, "Opened"), (7, "Noted")]
    three = entries(tmp_path / "q" / "three")
    assert three[:7] == two
    assert [(e.seq, type(e.fact).__name__) for e in three[7:]] == [(8, "Opened"), (9, "Epoch")]
    assert project_view(three[:5]) == project_view(parent[:5])


def test_a_fork_of_a_fork_before_its_own_words_stands_on_the_grandparent(tmp_path: Path) -> None:
    write(tmp_path / "p" / "one")
    write(tmp_path / "p" / "two", first=opened("two", parent="one", at=5))
    write(tmp_path / "p" / "three", first=opened("three", parent="two", at=3), then=[])
    found = entries(tmp_path / "p" / "three")
    assert [entry.seq for entry in found] == [1, 2, 3, 4]
    assert found[:3] == entries(tmp_path / "p" / "one")[:3]


def test_a_fork_does_not_see_what_its_parent_says_later(tmp_path: Path) -> None:
    write(tmp_path / "p" / "one")
    write(tmp_path / "p" / "two", first=opened("two", parent="one", at=4))
    before = entries(tmp_path / "p" / "two")
    with SessionLog.open(tmp_path / "p" / "one") as log:
        log.append(Changed("name", "later"))
    assert entries(tmp_path / "p" / "two") == before


def test_a_fork_whose_parent_is_missing_says_so(tmp_path: Path) -> None:
    for parent in ("gone", "../gone", "/etc"):
        folder = tmp_path / "p" / f"child-of-{parent.replace('/', '-')}"
        write(folder, first=opened("two", parent=parent, at=4))
        with pytest.raises(UserError, match="which is missing"):
            entries(folder)


def test_logs_that_claim_to_be_forks_of_each_other_still_end(tmp_path: Path) -> None:
    write(tmp_path / "p" / "one", first=opened("one", parent="two", at=5))
    write(tmp_path / "p" / "two", first=opened("two", parent="one", at=5))
    assert entries(tmp_path / "p" / "one")


# --- writers --------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_holds_the_session(tmp_path: Path) -> None:
    with SessionLog.create(tmp_path / "s1", opened()):
        with pytest.raises(UserError) as caught:
            SessionLog.open(tmp_path / "s1")
        assert f"process {os.getpid()}" in caught.value.why
        assert "--fork-session" in caught.value.fix
    SessionLog.open(tmp_path / "s1").close()


def test_a_session_that_exists_is_not_begun_again(tmp_path: Path) -> None:
    write(tmp_path / "s1")
    with pytest.raises(UserError, match="already exists"):
        SessionLog.create(tmp_path / "s1", opened())
    SessionLog.open(tmp_path / "s1").close()


def test_a_session_that_is_not_there_is_not_made_by_opening_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no session"):
        SessionLog.open(tmp_path / "s1")
    assert list(tmp_path.iterdir()) == []


def test_children_do_not_inherit_the_log(tmp_path: Path) -> None:
    with SessionLog.create(tmp_path / "s1", opened()):
        seen = subprocess.run(
            [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"],
            capture_output=True,
            text=True,
            close_fds=False,
        )
        mine = {
            fd
            for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")
            and str(tmp_path) in os.readlink(f"/proc/self/fd/{fd}")
        }
    assert len(mine) == 2
    assert not [fd for fd in mine if f"'{fd}'" in seen.stdout]


# --- trouble --------------------------------------------------------------------------------------


class Disk:
    """A disk with so many bytes left; it takes what fits, as real ones do."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = os.write(fd, data[: self.room])
        self.room -= done
        return done


def test_a_full_disk_leaves_no_half_line_and_the_session_goes_on_when_space_returns(
    tmp_path: Path,
) -> None:
    for room in range(1, 400, 7):
        disk = Disk(10_000)
        folder = tmp_path / str(room)
        with SessionLog.create(folder, opened(), write=disk.write) as log:
            disk.room = room
            with pytest.raises(UserError, match="disk is full"):
                [*map(log.append, turns(50))]
            done = (folder / LOG_FILE_NAME).read_bytes().count(b"\n")
            assert (folder / LOG_FILE_NAME).read_bytes().endswith(b"\n")
            disk.room = 10_000
            assert log.append(Noted("a", "b")).seq == done + 1
            assert len(list(log.read())) == done + 1
            assert log.skipped == ()


def test_a_file_size_limit_is_a_fault_not_a_crash(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from tests.sessions.sample import opened, turns
from travois.core.errors import UserError
from travois.sessions.log_file import SessionLog
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
done = 1
log = SessionLog.create(Path(sys.argv[1]), opened())
try:
    for fact in turns(50):
        log.append(fact)
        done += 1
except UserError as fault:
    print(done, fault)
"""
    folder = tmp_path / "s1"
    ran = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    done = int(ran.stdout.split()[0])
    assert "The session could not be saved" in ran.stdout
    assert len(entries(folder)) == done
    assert (folder / LOG_FILE_NAME).stat().st_size <= 2000


def test_short_writes_are_finished(tmp_path: Path) -> None:
    with SessionLog.create(
        tmp_path / "s1", opened(), write=lambda fd, data: os.write(fd, data[:7])
    ) as log:
        written = [log.append(fact) for fact in facts()]
        assert list(log.read())[1:] == written


def test_an_interrupt_in_the_middle_of_a_write_leaves_no_trace(tmp_path: Path) -> None:
    strike = iter([False, True, False, False])

    def write(fd: int, data: bytes) -> int:
        done = os.write(fd, data)
        if next(strike):
            raise KeyboardInterrupt
        return done

    with SessionLog.create(tmp_path / "s1", opened(), write=write) as log:
        with pytest.raises(KeyboardInterrupt):
            log.append(Noted("lost", ""))
        assert log.append(Noted("kept", "")).seq == 2
        assert [entry.fact for entry in log.read()] == [opened(), Noted("kept", "")]


@pytest.mark.parametrize("part", [0, 1, 40, -1])
def test_death_at_any_write_loses_nothing_that_was_acknowledged(tmp_path: Path, part: int) -> None:
    code = "from tests.sessions.test_log import die; import sys; die(sys.argv[1], int(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, tmp_path, str(part)], check=True)
    for fatal in range(2, 20):
        acknowledged = int((tmp_path / f"{fatal}.acknowledged").read_text())
        found = entries(tmp_path / str(fatal))
        assert acknowledged == fatal - 1
        assert len(found) == (fatal if part == -1 else acknowledged)
        assert [entry.seq for entry in found] == list(range(1, len(found) + 1))


def die(folder: str, part: int) -> None:
    """Once for each write: be killed in it, after so many of its bytes (-1: all)."""
    for fatal in range(2, 20):
        child = os.fork()
        if not child:
            _die_at(Path(folder) / str(fatal), fatal, part=part)
        os.waitpid(child, 0)


def _die_at(folder: Path, fatal: int, *, part: int) -> None:
    calls = 0

    def write(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == fatal:
            os.write(fd, data if part == -1 else data[:part])
            os.kill(os.getpid(), 9)
        return os.write(fd, data)

    log = SessionLog.create(folder, opened(), write=write)
    for done, fact in enumerate(turns(50), 1):
        folder.with_name(f"{folder.name}.acknowledged").write_text(str(done))
        log.append(fact)
    os._exit(0)


def test_a_home_that_cannot_be_written_to_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="The session cannot be saved"):
        SessionLog.create(tmp_path / "file" / "s1", opened())


def test_results_are_read_in_the_order_of_the_log(tmp_path: Path) -> None:
    late, early = Result("b", (Text("2"),)), Result("a", (Text("1"),))
    write(tmp_path / "s1", then=[late, early])
    assert [entry.fact for entry in entries(tmp_path / "s1")[1:]] == [late, early]


# --- hostile files --------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FACT = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "result", "compacted", "opened", "x"])},
    optional={"content": JSON, "call": JSON, "first": JSON, "parent": JSON, "at": JSON},
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(JSON | st.integers(-5, 99), JSON, FACT | JSON), max_size=4))
def test_lines_that_somebody_made_up_are_refused_or_skipped_never_crashed_on(
    tmp_path_factory: pytest.TempPathFactory, made_up: list[tuple[object, object, object]]
) -> None:
    folder = tmp_path_factory.mktemp("hostile") / "s1"
    write(folder, then=[EPOCH])
    for seq, at, fact in made_up:
        body = json.dumps({"seq": seq, "at": at, "fact": fact}, separators=(",", ":"))
        _append(folder, body[:-1].encode())
    with SessionLog.open(folder) as log, suppress(UserError):
        project_view(log.read())


def test_a_line_nested_beyond_reason_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "s1", then=[EPOCH])
    deep = b"[" * 100_000 + b"]" * 100_000
    _append(tmp_path / "s1", b'{"seq":3,"at":1.0,"fact":{"type":"noted","x":%b}' % deep)
    with pytest.raises(UserError, match="not this one"):
        entries(tmp_path / "s1")


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), min_size=1, max_size=6))
def test_a_log_that_was_scribbled_over_keeps_what_was_not_hit(
    tmp_path_factory: pytest.TempPathFactory, scribbles: list[tuple[float, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("scribbled") / "s1"
    write(folder)
    data = (folder / LOG_FILE_NAME).read_bytes()
    spoilt = bytearray(data)
    for place, ink in scribbles:
        at = int(place * len(data))
        spoilt[at : at + len(ink)] = ink[: len(data) - at]
    whole = entries(folder)
    (folder / LOG_FILE_NAME).write_bytes(spoilt)
    lines = zip(whole, data.splitlines(), strict=True)
    unhurt = [entry.seq for entry, text in lines if text in bytes(spoilt).split(b"\n")]
    skipped: list[DamagedPlace] = []
    found = list(read_history(folder, skipped))
    assert set(unhurt) - {whole[-1].seq} <= {entry.seq for entry in found}
    assert all(entry in whole for entry in found)
    assert bool(skipped) == (bytes(spoilt) != data)


def test_what_came_since_an_entry_is_read_back_from_the_end(tmp_path: Path) -> None:
    write(tmp_path / "p" / "one", then=[*[Noted("x", "y" * 3_000)] * 90])
    fork = opened("two", parent="one", at=80)
    write(tmp_path / "p" / "two", first=fork, then=[*[Noted("x", "z" * 3_000)] * 90])
    for name in ("one", "two"):
        whole = entries(tmp_path / "p" / name)
        with SessionLog.open(tmp_path / "p" / name) as log:
            for seq in (0, 1, 40, 79, 80, 81, whole[-2].seq, whole[-1].seq):
                assert log.read_since(seq) == [entry for entry in whole if entry.seq > seq]
