"""Floods: an MCP server that never ends its line, and commands that print beyond all measure.

Growth is the peak of resident memory over what was resident before. The command runs through the
real program, once with little output and once with more than is kept of any.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from bench.loopback import server, shell, words
from bench.program import Scratch, scratch

LITTLE, MUCH = 1_000_000, 3_000_000_000
LISTENER = """
import resource, sys
import anyio
from travois.ports.world import Command
from travois.mcp import connection as line
from travois.process.local_processes import LocalProcesses

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

async def main():
    line._parse_message(b'{"jsonrpc":"2.0","method":"x","params":{}}')
    processes, before, heard = LocalProcesses(), peak(), 0
    command = Command((sys.executable, "-c", sys.argv[1]), "/")
    start = lambda: processes.connect_stdio(command, log=lambda said: None)
    async with line.open_stdio_streams(start, ended=anyio.Event()) as (read, _):
        async for message in read:
            heard += 1
    await processes.aclose()
    print(f"{heard} messages, growth {peak() - before:.1f} MB over {before:.1f} MB")

anyio.run(main)
"""
ENDLESS = "import os\nwhile True: os.write(1, b'x' * 65536)"


def main() -> None:
    print("an MCP server that sends bytes and no line break: ", end="", flush=True)
    subprocess.run([sys.executable, "-c", LISTENER, ENDLESS], check=True)
    for size in (LITTLE, MUCH):
        command = f"yes 0123456789abcdef | head -c {size} && touch ended"
        with (
            server(lambda n, text=command: shell(n, text) if n == 1 else words(n)) as (url, _),
            scratch(url) as place,
        ):
            _print_command(place, size)


def _print_command(place: Scratch, size: int) -> None:
    begun = perf_counter()
    child = place.start("--permission-mode", "bypass")
    assert child.stdout is not None
    child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    files = [
        path
        for path in place.home.rglob("*")
        if path.is_file() and path.stat().st_size > LITTLE // 2
    ]
    ended = (place.folder / "ended").exists()
    print(
        f"a command that prints {size / 1e6:,.0f} MB: {perf_counter() - begun:.1f} s, exit {status}, "
        f"{'it ran to its end' if ended else 'it was stopped'}, "
        f"largest file {max((_size(path) for path in files), default=0) / 1e6:,.0f} MB, "
        f"peak (RSS) {used.ru_maxrss / 1024:.0f} MB"
    )


def _size(path: Path) -> int:
    return path.stat().st_size
