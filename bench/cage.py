"""What walls around a command cost: `bash -c true` without any, and in each kind of cage.

Rounds are interleaved, so that a busy machine slows all rows alike. The workspace is a repository
with the usual names pinned, most of which it does not have. Rows named "open" hide only a list of
secrets of the home, as a measure of what hiding all of it costs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import quantiles

import anyio
from msgspec.structs import replace

from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.hidden_files import find_covered_places, find_program_folders
from travois.sandbox.policy import PINNED_PATHS, SECRET_HOME_PATHS
from travois.sandbox.probe import find_sandbox_support
from travois.sandbox.tool_chains import list_tool_chain_paths

ROUNDS = 100
SHELL = ("/bin/bash", "-c", "true")


async def measure(place: Path) -> None:
    """Print milliseconds per command, and what is added to a bare one."""
    walls = find_sandbox_support(None)
    print(walls.line)
    work, temp = place / "work", place / "temp"
    cage = SandboxProfile(
        "work",
        (str(work),),
        str(temp),
        pinned=tuple(f"{work}/{name}" for name in PINNED_PATHS),
        hidden=tuple(str(Path.home() / name) for name in SECRET_HOME_PATHS),
    )
    covered, needed = find_covered_places(), list_tool_chain_paths(str(Path.home()), os.environ)
    open_home = replace(cage, profile="look", pinned=())
    cage = replace(
        cage,
        hidden=(*cage.hidden, *covered),
        shown=(*needed.reads, *needed.settings, *find_program_folders(covered)),
        caches=needed.caches,
        home=str(Path.home()),
    )
    bare = Command(SHELL, str(work))
    ours = LocalProcesses(support=walls)
    partial = LocalProcesses(support=replace(walls, kind="partial"))
    looking = replace(cage, profile="look", pinned=())
    ways = {"bare": (ours, bare)}
    if walls.kind == "full":
        ways["look, open home"] = (ours, replace(bare, sandbox=open_home))
        ways["look"] = (ours, replace(bare, sandbox=looking))
        ways["work"] = (ours, replace(bare, sandbox=cage))
    if walls.kind != "none":
        ways["Landlock, open"] = (partial, replace(bare, sandbox=open_home))
        ways["Landlock, look"] = (partial, replace(bare, sandbox=looking))
        ways["Landlock, work"] = (partial, replace(bare, sandbox=cage))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (processes, command) in ways.items():
            begun = time.perf_counter()
            done = await processes.run(command, timeout=60)
            taken[name].append((time.perf_counter() - begun) * 1000)
            assert done.status == 0, done
    await ours.aclose()
    await partial.aclose()
    show(taken)


def show(taken: dict[str, list[float]]) -> None:
    floor = points(taken["bare"])
    for name, times in taken.items():
        found = points(times)
        told = (
            f"{which} {at:6.2f} ms (+{at - low:5.2f}, {at / low:5.2f}x)"
            for which, at, low in zip(("p50", "p90"), found, floor, strict=True)
        )
        print(f"{name:16} {'   '.join(told)}")


def points(times: list[float]) -> tuple[float, float]:
    cuts = quantiles(times, n=10)
    return cuts[4], cuts[8]


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        Path(place, "temp").mkdir()
        subprocess.run(["git", "init", "-q", f"{place}/work"], check=True)
        anyio.run(measure, Path(place))


if __name__ == "__main__":
    main()
