"""Servers of tools that flood us: whatever they say, it takes little memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

LISTENER = """
import resource, sys
import anyio
from travois.ports.world import Command
from travois.mcp import connection as line
from travois.process.local_processes import LocalProcesses

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main():
    line._parse_message(b'{"jsonrpc":"2.0","method":"x","params":{}}')
    processes, before, heard = LocalProcesses(), peak(), 0
    command = Command((sys.executable, "-c", sys.argv[1]), "/")
    ended = anyio.Event()
    start = lambda: processes.connect_stdio(command, log=lambda said: None)
    async with line.open_stdio_streams(start, ended=ended) as (read, _):
        async for message in read:
            heard += 1
    await processes.aclose()
    print(heard, (peak() - before) // 1024)

anyio.run(main)
"""
MESSAGE = """
import os
def say(data):
    while data:
        data = data[os.write(1, data):]
say(b'{"jsonrpc":"2.0","method":"x","params":{"a":' + %s + b'}}\\n')
"""
ENDLESS = "import os\nwhile True: os.write(1, b'x' * 65536)"
STRUCTURES = (
    "b'[' + b'1,' * 4_000_000 + b'1]'",
    "b'[' + b'[],' * 3_000_000 + b'1]'",
    "b'[' + b'{},' * 3_000_000 + b'1]'",
    "b'[' * 9_000_000",
    "b'{' + b'\"\":1,' * 1_500_000 + b'\"\":1}'",
)


def hear(server: str) -> tuple[int, int]:
    """How many messages were heard, and how many MB more that took at most."""
    done = subprocess.run(
        [sys.executable, "-c", LISTENER, server], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    heard, more = map(int, done.stdout.split())
    return heard, more


@pytest.mark.parametrize("server", [ENDLESS, *(MESSAGE % one for one in STRUCTURES)])
def test_a_flood_ends_the_conversation_before_it_takes_much_memory(server: str) -> None:
    heard, more = hear(server)
    assert heard == 0
    assert more <= 64


def test_a_long_text_with_all_the_signs_of_a_structure_is_heard() -> None:
    heard, more = hear(MESSAGE % "b'\"' + b'[,{' * 1_000_000 + b'\"'".replace("%", "%%"))
    assert heard == 1
    assert more <= 64
