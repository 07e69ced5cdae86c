from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from travois.core.errors import UserError
from travois.sessions import lock

HOLD = """
import sys, time
from pathlib import Path
from travois.sessions.lock import acquire_lock
held = acquire_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_until_the_holder_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, tmp_path]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UserError, match=f"process {other.pid}"):
            lock.acquire_lock(tmp_path)
        found = lock.find_lock_holder(tmp_path)
        assert found is not None and found.pid == other.pid
        other.kill()
    assert lock.find_lock_holder(tmp_path) is None
    lock.acquire_lock(tmp_path).release()


def test_nobody_holds_what_was_released(tmp_path: Path) -> None:
    held = lock.acquire_lock(tmp_path)
    assert lock.find_lock_holder(tmp_path) is not None
    held.release()
    held.release()
    assert lock.find_lock_holder(tmp_path) is None


def test_many_racing_for_one_session_give_one_winner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, tmp_path]
    racers = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) for _ in range(4)]
    said = [racer.stdout.readline() for racer in racers if racer.stdout]
    for racer in racers:
        racer.communicate()
    assert sorted(said) == [b"", b"", b"", b"held\n"]


def _claim(folder: Path, holder: lock.LockHolder) -> None:
    (folder / "lock.held").write_bytes(msgspec.json.encode(holder))


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(fd: int, operation: int) -> None:
        raise OSError(next(iter(lock.NO_LOCK_ERRORS)), "not supported")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_flock")
def test_without_file_locks_a_living_holder_is_respected(tmp_path: Path) -> None:
    held = lock.acquire_lock(tmp_path)
    with pytest.raises(UserError, match="in use"):
        lock.acquire_lock(tmp_path)
    held.release()
    lock.acquire_lock(tmp_path).release()


@pytest.mark.usefixtures("no_flock")
@pytest.mark.parametrize("change", [{"started": "1"}, {"boot": "earlier"}, {"pid": 2**22 - 1}])
def test_without_file_locks_a_dead_holder_is_not(tmp_path: Path, change: dict[str, object]) -> None:
    _claim(tmp_path, msgspec.structs.replace(lock.describe_this_process(), **change))
    lock.acquire_lock(tmp_path).release()


@pytest.mark.usefixtures("no_flock")
def test_without_file_locks_nothing_is_assumed_of_other_machines(tmp_path: Path) -> None:
    _claim(
        tmp_path,
        msgspec.structs.replace(lock.describe_this_process(), host="elsewhere", boot="other"),
    )
    with pytest.raises(UserError, match="on elsewhere since"):
        lock.acquire_lock(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_a_fault(tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / "lock")
    with pytest.raises(UserError, match="cannot be locked"):
        lock.acquire_lock(tmp_path)
