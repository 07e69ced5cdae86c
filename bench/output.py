"""Programs started, waited for and heard: what our one way costs beside the bare ones.

Times are medians of interleaved rounds, so that a busy machine slows all rows alike. Growth is the
peak of resident memory while a flood is drained, over what was resident before.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import anyio
import msgspec

from travois.context.tool_results import ResultRoom
from travois.ports.world import Command, ProcessResult
from travois.process.local_processes import LocalProcesses
from travois.tools.shell.bash import BASH

ROUNDS = 100
FLOOD = 1_000_000_000
ROOM = ResultRoom(cap=8_000, share=100_000)
TRUE = ("/bin/true",)
SHELL = ("/bin/bash", "-c", "true")
ESCAPEES = """
sleep 60 & nohup sleep 60 >/dev/null 2>&1 & setsid sleep 60 & (setsid sh -c 'sleep 60 &' &)
sleep 60 & disown; exec 9> >(sleep 60); (trap '' TERM; sleep 60) & sleep 60
"""


def bare_run(argv: tuple[str, ...]) -> None:
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)


def bare_spawn(argv: tuple[str, ...]) -> None:
    """The least that Python can do: spawn, read to the end, wait."""
    read, write = os.pipe()
    actions = ((os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2))
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    os.close(write)
    while os.read(read, 65536):
        pass
    os.close(read)
    os.waitpid(pid, 0)


async def asyncio_run(argv: tuple[str, ...]) -> None:
    from asyncio.subprocess import DEVNULL, PIPE, STDOUT, create_subprocess_exec

    child = await create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    await child.communicate()


class Folder(SimpleNamespace):
    """As much of an `Env` as Bash needs."""

    def __init__(self, processes: LocalProcesses, root: str) -> None:
        super().__init__(
            processes=processes, root=root, cwd=root, state={}, kept="", sandbox=None, room=ROOM
        )

    def spill(self, call: str, data: bytes) -> str:
        path = Path(self.root, call)
        path.write_bytes(data)
        return str(path)

    def progress(self, text: str) -> None:
        pass


async def trivial(processes: LocalProcesses, env: Folder) -> None:
    """Print the milliseconds of a trivial command, every way."""

    async def ours(argv: tuple[str, ...]) -> None:
        await processes.run(Command(argv, "/"), timeout=60)

    async def bash() -> None:
        await BASH.run(msgspec.convert({"command": "true"}, BASH.args), env, "call")  # type: ignore[arg-type]

    async def bare(function: Callable[[tuple[str, ...]], None], argv: tuple[str, ...]) -> None:
        function(argv)

    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "true: posix_spawn": lambda: bare(bare_spawn, TRUE),
        "true: subprocess.run": lambda: bare(bare_run, TRUE),
        "true: asyncio": lambda: asyncio_run(TRUE),
        "true: ours": lambda: ours(TRUE),
        "bash -c true: posix_spawn": lambda: bare(bare_spawn, SHELL),
        "bash -c true: subprocess.run": lambda: bare(bare_run, SHELL),
        "bash -c true: asyncio": lambda: asyncio_run(SHELL),
        "bash -c true: ours": lambda: ours(SHELL),
        "Bash tool, true": bash,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            await way()
            taken[name].append((time.perf_counter() - start) * 1000)
    for name, times in taken.items():
        floor = taken[("true" if name.startswith("true") else "bash -c true") + ": subprocess.run"]
        ratio = median(times) / median(floor)
        print(f"{name:32} p50 {median(times):6.2f} ms   min {min(times):6.2f}   {ratio:5.2f}x")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def flood(name: str, run: Callable[[], Awaitable[object]], *, size: int) -> None:
    """Print how fast a flood is drained and how much memory it takes."""
    Path("/proc/self/clear_refs").write_text("5")
    before, start = resident(), time.perf_counter()
    await run()
    seconds = time.perf_counter() - start
    growth = (peak() - before) / 1e6
    print(f"{name:32} {size / seconds / 1e6:6.0f} MB/s   growth {growth:6.1f} MB")


async def floods(processes: LocalProcesses, env: Folder, *, size: int) -> None:
    """Drain that many bytes of several kinds."""

    async def run(text: str) -> ProcessResult:
        done = await processes.run(Command(("/bin/bash", "-c", text), "/"), timeout=600)
        assert done.output.total == size, done
        return done

    async def bash() -> None:
        args = {"command": f"yes | head -c {size}", "timeout": 600_000}
        await BASH.run(msgspec.convert(args, BASH.args), env, "call")  # type: ignore[arg-type]

    await flood("zeros, one line", lambda: run(f"head -c {size} /dev/zero"), size=size)
    await flood("yes, short lines", lambda: run(f"yes | head -c {size}"), size=size)
    await flood("Bash tool, short lines", bash, size=size)


async def kill(processes: LocalProcesses) -> None:
    """Print how long it takes to end a tree that will not go."""
    job = await processes.start(Command(("/bin/bash", "-c", ESCAPEES), "/"), id="escapees")
    await anyio.sleep(0.3)
    start = time.perf_counter()
    await job.kill()
    print(f"{'kill of 8, one deaf to TERM':32}     {(time.perf_counter() - start) * 1000:6.0f} ms")


async def measure() -> None:
    """Print everything."""
    processes = LocalProcesses()
    with tempfile.TemporaryDirectory() as root:
        env = Folder(processes, root)
        start = time.perf_counter()
        await processes.run(Command(SHELL, "/"), timeout=60)
        first = (time.perf_counter() - start) * 1000
        print(f"{'first command of a session':32}     {first:6.2f} ms (watchdog and all)")
        await trivial(processes, env)
        await floods(processes, env, size=FLOOD)
        await kill(processes)
    await processes.aclose()


def main() -> None:
    anyio.run(measure)


if __name__ == "__main__":
    main()
