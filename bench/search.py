"""What Glob and Grep cost in a tree of 100,000 files, with plain ripgrep beside each."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import anyio
from tests.tools.local import Local, told

from travois.ports.tool import AnyTool
from travois.process.local_processes import LocalProcesses
from travois.process.spawn import find_program
from travois.tools.search import GLOB, GREP

RUNS = 3
FOLDERS, EACH = 250, 400
FLOOD, LINES = 24, 100_000
"""How many of the files are full of matching lines, and of how many."""
CASES: tuple[tuple[AnyTool, dict[str, Any], tuple[str, ...]], ...] = (
    (GLOB, {"pattern": "**/*"}, ("--files",)),
    (GLOB, {"pattern": "**/*.ts"}, ("--files", "--glob=**/*.ts")),
    (GLOB, {"pattern": "**/*_0399_*.py"}, ("--files", "--glob=**/*_0399_*.py")),
    (GLOB, {"pattern": "package_249/**/*.py"}, ("--files", "--glob=package_249/**/*.py")),
    (GLOB, {"pattern": "*.md"}, ("--files", "--glob=*.md")),
    (GREP, {"pattern": "hit", "output_mode": "content"}, ("--line-number", "hit")),
    (GREP, {"pattern": "hit", "output_mode": "count"}, ("--count", "hit")),
    (GREP, {"pattern": "hit"}, ("--files-with-matches", "hit")),
    (GREP, {"pattern": "source", "output_mode": "content"}, ("--line-number", "source")),
    (GREP, {"pattern": "needle", "output_mode": "content"}, ("--line-number", "needle")),
    (GREP, {"pattern": "needle", "glob": "package_249/**"}, ("-l", "-g=package_249/**", "needle")),
)


def main() -> None:
    with TemporaryDirectory() as scratch:
        world = Local(Path(scratch))
        paths = _grow(world.folder)
        print(f"{len(paths)} files, {sum(map(len, paths)) / 1e6:.0f} MB of paths")
        for tool, args, options in CASES:
            _row(world, tool, args, options=options)


def _grow(root: Path) -> list[str]:
    paths = list[str]()
    for number in range(FOLDERS):
        folder = f"package_{number:03}/{'a_rather_long_folder_name_' * 2}"
        (root / folder).mkdir(parents=True)
        paths += (
            f"{folder}/module_with_a_long_name_{n:04}_{'x' * 30}.{'py' if n % 4 else 'ts'}"
            for n in range(EACH)
        )
    for path in paths:
        (root / path).write_bytes(b"a source\n")
    for path in paths[:: len(paths) // FLOOD]:
        (root / path).write_bytes(b"a hit on a line of ordinary length\n" * LINES)
    (root / paths[-1]).write_bytes(b"a needle\n")
    (root / "README.md").write_bytes(b"read me\n")
    return [*paths, "README.md"]


def _row(world: Local, tool: AnyTool, args: dict[str, Any], *, options: tuple[str, ...]) -> None:
    ours, shown = anyio.run(partial(_ours, world, tool, args))
    rg = median(_plain(world.root, options) for _ in range(RUNS))
    title = " ".join(map(str, args.values()))
    last = shown.rpartition("\n")[2] if shown.count("\n") else shown
    print(
        f"  {tool.name} {title:28} {1000 * ours:6.0f} ms; ripgrep {1000 * rg:5.0f} ms"
        f"   ratio {ours / rg:5.1f}   {last[:70]}"
    )


async def _ours(world: Local, tool: AnyTool, args: dict[str, Any]) -> tuple[float, str]:
    world.processes = LocalProcesses()
    times, shown = list[float](), ""
    for _ in range(RUNS):
        begun = perf_counter()
        shown = told(await world.call(tool, **args))
        times.append(perf_counter() - begun)
    await world.processes.aclose()
    return median(times), shown


def _plain(root: str, options: tuple[str, ...]) -> float:
    words = [find_program("rg"), "--no-config", "--hidden", *options, os.curdir]
    begun = perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        subprocess.run(words, cwd=root, stdout=nowhere, check=False)
    return perf_counter() - begun


if __name__ == "__main__":
    main()
