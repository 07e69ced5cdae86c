"""A disk that takes nothing: the session goes on, and one warning says so."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from tests.core.told import EPOCH, user
from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from tests.sessions.sample import opened
from travois.ports.world import Event
from travois.sessions.log_file import LOG_FILE_NAME, ResilientSessionLog, read_entries
from travois.sessions.session import Session


class Disk:
    """A disk that can be full."""

    def __init__(self) -> None:
        self.full = False

    def write(self, fd: int, data: bytes) -> int:
        if self.full and len(data) > 10:
            return os.write(fd, data[:10])
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data)


def test_a_full_disk_is_told_once_and_caught_up_with_when_there_is_space(tmp_path: Path) -> None:
    disk = Disk()
    with ResilientSessionLog.create(tmp_path / "s1", opened(), write=disk.write) as log:
        session = Session(log)
        session.append(EPOCH)
        with session.watch() as heard:
            disk.full = True
            for number in range(5):
                session.append(user(f"held {number}"))
                session.sync()
            whole = (tmp_path / "s1" / LOG_FILE_NAME).read_bytes()
            assert whole.endswith(b"}\n") and b"held" not in whole
            assert [entry.seq for entry in session.all_entries()] == list(range(1, 8))
            disk.full = False
            session.append(user("last"))
            told = [str(getattr(event, "text", "")) for event in _all(heard)]
    warned = [text for text in told if "memory" in text]
    assert len(warned) == 2
    assert "the disk is full" in warned[0] and "saved again" in warned[1]
    assert [entry.seq for entry in read_entries(tmp_path / "s1" / LOG_FILE_NAME, [])] == list(
        range(1, 9)
    )


def _all(heard: MemoryObjectReceiveStream[Event]) -> list[Event]:
    found: list[Event] = []
    while heard.statistics().current_buffer_used:
        found.append(heard.receive_nowait())
    return found


def check_passing(program: Program) -> None:
    """The program works, says once that nothing is kept, and leaves nothing behind."""
    use = {"name": "Write", "input": {"file_path": "made.txt", "content": "x"}}
    with program.served([{"say": [{"tool_use": use}]}, "Done."]):
        done = program.ask("go", "--output-format", "json", "--permission-mode", "bypass")
    assert (done.code, done.result["result"]) == (0, "Done."), done.err
    assert done.err.count("Nothing will be saved: ") == 1
    assert "Traceback" not in done.err and "bug" not in done.err
    assert (program.folder / "made.txt").read_text() == "x"
    resumed = program.run("-p", "go", "--continue", *program.model)
    assert resumed.code == 2 and "Traceback" not in resumed.err


def test_no_home_at_all(program: Program) -> None:
    env = ("env", "-u", "HOME", "-u", "TRAVOIS_HOME", "-u", "XDG_STATE_HOME")
    program.launcher = (*env, *program.launcher)
    check_passing(program)


def test_a_home_that_is_a_file(program: Program) -> None:
    program.home.parent.mkdir(parents=True, exist_ok=True)
    if program.home.is_dir():
        program.home.rmdir()
    program.home.write_text("")
    check_passing(program)


def test_a_home_on_a_disk_that_is_read_only(program: Program) -> None:
    mount = f'mount -t tmpfs -o ro none "{program.home}" && exec "$@"'
    program.home.mkdir(parents=True, exist_ok=True)
    apart = ("unshare", "-m", "sh", "-c", mount, "sh")
    if os.geteuid() or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("only root may mount a read-only disk")
    program.launcher = (*apart, *program.launcher)
    check_passing(program)


def test_an_answer_of_always_on_a_full_disk_holds_and_is_said_not_to_last(
    program: Program,
) -> None:
    mount = f'mount -t tmpfs -o size=3m none "{program.home}" && exec "$@"'
    program.home.mkdir(parents=True, exist_ok=True)
    apart = ("unshare", "-m", "sh", "-c", mount, "sh")
    if os.geteuid() or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    program.launcher = (*apart, *program.launcher)
    script = [
        {"say": [use("WebFetch", url="http://127.0.0.1:9/", prompt="x")]},
        {"say": "First."},
        {"say": [use("WebFetch", url="http://127.0.0.1:9/a", prompt="x")]},
        {"say": "Second."},
    ]
    with program.served(script):
        glass = Glass(program, *program.model, columns=160)
        glass.ready()
        glass.type("go\r")
        glass.until("? Fetch", "don't ask again")
        pid: object = glass.child.pid  # pyright: ignore[reportUnknownMemberType] - of pexpect
        fill(Path(f"/proc/{pid}/root{program.home}/filler"))
        glass.still()
        glass.type("a")
        glass.until("First.", "applies until this session ends")
        glass.ready()
        glass.type("again\r")
        assert "? Fetch" not in glass.until("Second.").rpartition("again")[2]
        assert "Traceback" not in glass.story


def fill(path: Path) -> None:
    """Leave no room on a disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(path).f_bavail == 0
