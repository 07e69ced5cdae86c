"""What a definition costs: by syntax, and plain ripgrep for the same word beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio
from tests.tools.local import Local

from travois.process.local_processes import LocalProcesses
from travois.process.spawn import find_program
from travois.tools import syntax
from travois.tools.symbols import SYMBOLS

RUNS = 3
TREES = {
    "this repository": (Path(__file__).parents[1], ("JudgedFiles", "Session.append", "waiting")),
    "site-packages": (Path(sysconfig.get_path("purelib")), ("Session", "Client.send", "get")),
}


def main() -> None:
    for title, (root, names) in TREES.items():
        files = sum(1 for path in _files(root) if syntax.language_of_path(path))
        print(f"{title}: {files} source files")
        for name in names:
            for what in ("definitions", "references"):
                _row(root, name, what)


def _files(root: Path) -> list[str]:
    done = subprocess.run([find_program("rg"), "--files", root], capture_output=True, text=True)
    return done.stdout.splitlines()


def _row(root: Path, name: str, what: str) -> None:
    word = name.rpartition(".")[2]
    rg = median(_spent(lambda: _plain(root, word)) for _ in range(RUNS))
    with TemporaryDirectory() as scratch:
        world = Local(Path(scratch))
        world.root = world.cwd = str(root)
        first, again, told = anyio.run(partial(_ours, world, name, what))
    more = re.search(r" of (\d+); offset", told)
    found = more[1] if more else sum(":" in row for row in told.splitlines())
    print(
        f"  {what:11} of {name:15} {found!s:>5} rows  {1000 * first:6.0f} ms, again "
        f"{1000 * again:6.0f} ms; ripgrep {1000 * rg:5.0f} ms   ratio {first / rg:.1f}, {again / rg:.1f}"
    )


async def _ours(world: Local, name: str, what: str) -> tuple[float, float, str]:
    world.processes = LocalProcesses()
    times, told = list[float](), ""
    for _ in range(RUNS):
        begun = perf_counter()
        outcome = await world.call(SYMBOLS, name=name, references=what == "references")
        times.append(perf_counter() - begun)
        told = outcome.content[0].text  # type: ignore[union-attr]
    await world.processes.aclose()
    return times[0], median(times[1:]), told


def _plain(root: Path, word: str) -> None:
    subprocess.run(
        [find_program("rg"), "--hidden", "--word-regexp", "--line-number", word, os.fspath(root)],
        stdout=subprocess.DEVNULL,
    )


def _spent(act: Callable[[], object]) -> float:
    begun = perf_counter()
    act()
    return perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
