"""The night: gates from the cheapest on, and one process that has it, whatever is killed when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from travois.memory.dreaming import lock as night
from travois.memory.dreaming.lock import DreamClaim, DreamConditions, DreamLock, DreamLockState
from travois.sessions import lock

NOW = 1_800_000_000.0
HOUR = 3600.0
DREAMER = """
import sys, time
from pathlib import Path
from travois.memory.dreaming import lock as night
folder = Path(sys.argv[1])
seen = night.read_lock_state(folder)
print("ready", flush=True)
sys.stdin.readline()
mine = night.claim_dream(folder, str(sys.argv[2]), state=seen)
print("mine" if mine else "not mine", flush=True)
if mine and sys.argv[3] == "done":
    mine.complete()
elif mine:
    time.sleep(60)
"""


def dreamer(folder: Path, name: str, then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DREAMER, str(folder), name, then]
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True)


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def begun(folder: Path, dream: str = "d1") -> DreamLock:
    mine = night.claim_dream(folder, dream, state=night.read_lock_state(folder))
    assert mine is not None
    return mine


def left(folder: Path, holder: lock.LockHolder, *, age: float) -> DreamLockState:
    """What a process left behind that claimed the night so long ago and never ended it."""
    path = folder / night.LOCK_FILE
    path.write_bytes(msgspec.json.encode(DreamClaim(holder, "d0", before=0)))
    os.utime(path, (NOW - age, NOW - age))
    return night.read_lock_state(folder)


def test_nothing_is_counted_while_a_cheaper_gate_is_closed(tmp_path: Path) -> None:
    asked: list[float] = []

    def sessions(since: float) -> int:
        asked.append(since)
        return 4

    def tried(gates: DreamConditions, *, now: float) -> DreamLockState | str:
        return night.check_dream_conditions(tmp_path, gates, now=now, sessions=sessions)

    assert tried(DreamConditions(enabled=False), now=NOW) == "dreaming is turned off"
    begun(tmp_path).complete()
    last = night.read_lock_state(tmp_path).last_time
    assert (
        tried(DreamConditions(), now=last + HOUR)
        == "1.0 of 24 hours have passed since the last consolidation"
    )
    assert asked == []
    assert tried(DreamConditions(), now=last + 25 * HOUR) == (
        "4 of 5 sessions have run since the last consolidation"
    )
    os.utime(tmp_path / night.SCAN_STAMP_FILE, (last + 25 * HOUR,) * 2)
    told = tried(DreamConditions(sessions=3), now=last + 25 * HOUR + 599)
    assert told == "sessions were last counted less than 10 minutes ago"
    assert tried(DreamConditions(sessions=3), now=last + 25 * HOUR + 601) == night.read_lock_state(
        tmp_path
    )
    assert asked == [last, last]


def test_the_time_of_the_file_is_the_time_of_the_last_consolidation(tmp_path: Path) -> None:
    assert night.read_lock_state(tmp_path) == DreamLockState()
    first = begun(tmp_path)
    assert night.read_lock_state(tmp_path).is_running(NOW)
    assert night.read_lock_state(tmp_path).last_time == 0
    first.complete()
    since = night.read_lock_state(tmp_path).claim
    assert since is not None
    assert (tmp_path / night.LOCK_FILE).stat().st_mtime == pytest.approx(since.holder.since)
    assert not night.read_lock_state(tmp_path).is_running(NOW)


def test_a_night_that_fails_leaves_the_time_as_it_was(tmp_path: Path) -> None:
    begun(tmp_path).roll_back()
    assert (
        night.read_lock_state(tmp_path).last_time,
        (tmp_path / night.LOCK_FILE).stat().st_mtime,
    ) == (0, 0)
    begun(tmp_path).complete()
    before = (tmp_path / night.LOCK_FILE).stat().st_mtime_ns
    begun(tmp_path).roll_back()
    assert (tmp_path / night.LOCK_FILE).stat().st_mtime_ns == before
    assert begun(tmp_path).is_held()


def test_who_saw_an_older_state_comes_too_late(tmp_path: Path) -> None:
    seen = night.read_lock_state(tmp_path)
    begun(tmp_path).complete()
    assert night.claim_dream(tmp_path, "d2", state=seen) is None
    begun(tmp_path).roll_back()


def test_twenty_at_once_dream_one_dream(tmp_path: Path) -> None:
    some = [dreamer(tmp_path, f"d{number}", "done") for number in range(20)]
    assert [heard(process) for process in some] == ["ready"] * 20
    for process in some:
        go(process)
    assert sorted(heard(process) for process in some) == ["mine"] + ["not mine"] * 19
    for process in some:
        process.communicate()


def test_the_night_of_a_killed_process_can_be_claimed_again(tmp_path: Path) -> None:
    begun(tmp_path).complete()
    before = night.read_lock_state(tmp_path)
    other = dreamer(tmp_path, "d2", "sleep")
    heard(other)
    go(other)
    assert heard(other) == "mine"
    assert night.read_lock_state(tmp_path).is_running(NOW)
    assert night.claim_dream(tmp_path, "d3", state=night.read_lock_state(tmp_path)) is None
    other.send_signal(signal.SIGKILL)
    other.communicate()
    seen = night.read_lock_state(tmp_path)
    assert (seen.is_running(NOW), seen.last_time) == (False, before.last_time)
    again = begun(tmp_path, "d3")
    again.roll_back()
    assert (tmp_path / night.LOCK_FILE).stat().st_mtime_ns == before.stamp


ME = lock.describe_this_process()
GONE = msgspec.structs.replace(ME, started="1")


@pytest.mark.parametrize(
    ("holder", "age", "dreams", "opens"),
    [
        (ME, 2 * HOUR, True, False),
        (GONE, HOUR - 1, False, False),
        (GONE, HOUR + 1, False, True),
        (msgspec.structs.replace(ME, boot="before the restart"), HOUR + 1, False, True),
        (msgspec.structs.replace(ME, host="elsewhere"), 23 * HOUR, True, False),
        (msgspec.structs.replace(ME, host="elsewhere"), 25 * HOUR, False, True),
    ],
    ids=["alive", "died just now", "number taken over", "rebooted", "elsewhere", "long ago"],
)
def test_a_claim_is_stale_after_an_hour_and_only_if_its_process_is_gone(
    tmp_path: Path, holder: lock.LockHolder, age: float, dreams: bool, opens: bool
) -> None:
    seen = left(tmp_path, holder, age=age)
    assert seen.is_running(NOW) == dreams
    assert (
        isinstance(
            night.check_dream_conditions(
                tmp_path, DreamConditions(), now=NOW, sessions=lambda since: 9
            ),
            DreamLockState,
        )
        == opens
    )


def test_where_files_cannot_be_locked_the_last_to_claim_has_the_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, operation: int) -> None:
        raise OSError(38, "not here")

    seen = night.read_lock_state(tmp_path)
    monkeypatch.setattr("fcntl.flock", unsupported)
    monkeypatch.setattr("time.sleep", lambda seconds: left(tmp_path, GONE, age=0))
    assert night.claim_dream(tmp_path, "d1", state=seen) is None


def test_damage_is_a_night_of_which_only_the_time_is_known(tmp_path: Path) -> None:
    (tmp_path / night.LOCK_FILE).write_bytes(b"\x00\xff not ours")
    os.utime(tmp_path / night.LOCK_FILE, (NOW, NOW))
    assert night.read_lock_state(tmp_path) == DreamLockState(None, round(NOW * 1e9))
    begun(tmp_path).complete()
