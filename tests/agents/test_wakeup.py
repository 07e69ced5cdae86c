"""The bell of a mailbox: heard by its owner, for nobody but its owner."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from travois.agents import mailbox as doorbell

RING = """
import sys
from pathlib import Path
import anyio
from travois.agents.mailbox import send_wakeup
print(anyio.run(send_wakeup, Path(sys.argv[1])))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One whose path is longer than the name of a socket may be."""
    deep = tmp_path / ("x" * 100)
    deep.mkdir(mode=0o700)
    return deep


def listening(folder: Path, visit: Callable[[], Awaitable[object]]) -> tuple[object, int]:
    """What a visitor found, and how often the owner heard the bell."""
    heard: list[bool] = []

    async def main() -> object:
        async with anyio.create_task_group() as group:
            group.start_soon(doorbell.listen_for_wakeups, folder, lambda: heard.append(True))
            while not await doorbell.send_wakeup(folder):
                await anyio.lowlevel.checkpoint()
            heard.clear()
            found = await visit()
            group.cancel_scope.cancel()
        return found

    return anyio.run(main), len(heard)


def test_the_owner_hears_the_bell(folder: Path) -> None:
    async def visit() -> list[bool]:
        return [await doorbell.send_wakeup(folder), await doorbell.send_wakeup(folder)]

    assert listening(folder, visit) == ([True, True], 2)
    assert list(folder.iterdir()) == []


def test_another_process_can_ring(folder: Path) -> None:
    async def visit() -> bytes:
        done = await anyio.run_process([sys.executable, "-c", RING, str(folder)])
        return done.stdout

    assert listening(folder, visit) == (b"True\n", 1)


def test_nobody_is_there_where_nobody_listens(folder: Path, tmp_path: Path) -> None:
    assert not anyio.run(doorbell.send_wakeup, folder)
    assert not anyio.run(doorbell.send_wakeup, tmp_path / "missing")


def test_what_a_killed_owner_left_does_not_stand_in_the_way(folder: Path) -> None:
    script = (
        "import sys, anyio; from pathlib import Path; "
        "from travois.agents.mailbox import listen_for_wakeups;"
        "anyio.run(listen_for_wakeups, Path(sys.argv[1]), print)"
    )
    with subprocess.Popen([sys.executable, "-c", script, folder]) as owner:
        while not (folder / doorbell.SOCKET_NAME).exists():
            assert owner.poll() is None
        owner.kill()
    assert (folder / doorbell.SOCKET_NAME).exists()
    assert not anyio.run(doorbell.send_wakeup, folder)
    assert listening(folder, lambda: doorbell.send_wakeup(folder)) == (True, 1)


def test_bell_and_password_are_for_the_owner_only(folder: Path) -> None:
    async def visit() -> list[str]:
        paths = (folder / doorbell.SOCKET_NAME, folder / doorbell.TOKEN_FILE)
        return [stat.filemode(path.stat().st_mode) for path in paths]

    assert listening(folder, visit) == (["srw-------", "-rw-------"], 0)


@pytest.mark.parametrize("said", [b"\n", b"x" * 32 + b"\n", b"x" * 1_000_000])
def test_whoever_does_not_know_the_password_is_not_heard(folder: Path, said: bytes) -> None:
    async def visit() -> bytes:
        with doorbell._short_folder_path(folder) as at:
            async with await anyio.connect_unix(f"{at}/{doorbell.SOCKET_NAME}") as stream:
                try:
                    await stream.send(said)
                    return await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return b""

    assert listening(folder, visit) == (b"", 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_is_not_heard_even_with_the_password(folder: Path) -> None:
    async def visit() -> bytes:
        folder.chmod(0o755)
        (folder / doorbell.SOCKET_NAME).chmod(0o777)
        token = (folder / doorbell.TOKEN_FILE).read_bytes()
        return await anyio.to_thread.run_sync(as_nobody, folder, token)

    assert listening(folder, visit) == (b"not heard", 0)


def as_nobody(folder: Path, token: bytes) -> bytes:
    script = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setuid(65534);"
        "bell = socket.socket(socket.AF_UNIX); bell.connect('bell');"
        "bell.send(bytes.fromhex(sys.argv[2])); said = bell.recv(9);"
        "sys.stdout.buffer.write(said or b'not heard')"
    )
    command = [sys.executable, "-c", script, str(folder), token.hex()]
    done = subprocess.run(command, capture_output=True, check=False)
    broken = b"BrokenPipeError" in done.stderr or b"ConnectionResetError" in done.stderr
    return b"not heard" if broken else done.stdout + done.stderr


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="the system tells no ports")
def test_no_port_is_opened(folder: Path) -> None:
    async def visit() -> set[str]:
        links = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
        return {link for link in links if link.startswith("socket:[")} & ports()

    assert listening(folder, visit) == (set(), 0)


def ports() -> set[str]:
    """All sockets of the machine that listen at a port."""
    tables = (Path(f"/proc/self/net/tcp{six}") for six in ("", "6"))
    rows = [row.split() for table in tables for row in table.read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
