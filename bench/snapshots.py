"""What snapshots cost in a repository of 100,000 files, beside a walk of `find` and `git status`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep

import anyio

from travois.snapshots.snapshots import Snapshots

FOLDERS, EACH = 5_000, 20
COMMIT = (
    "git init -q && git config gc.auto 0 && git add -A && "
    "git -c user.name=b -c user.email=b@b commit -qm b && git repack -qad && git prune-packed"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work, home = Path(scratch, "work"), Path(scratch, "home")
        plant(work)
        sleep(1)  # files that have only just been written are read, whatever git says
        walk = min(spent(lambda: look(work)) for _ in range(5))
        status = min(spent(lambda: ask_git(work)) for _ in range(3))
        print(f"{FOLDERS * EACH} files in {FOLDERS} folders, all committed")
        print(f"{'find, a stat of each':32}{1000 * walk:8.0f} ms")
        print(f"{'git status':32}{1000 * status:8.0f} ms")
        for name, seconds in measure(work, home):
            ratios = f"{seconds / walk:6.2f} x find {seconds / status:6.2f} x git status"
            print(f"{name:32}{1000 * seconds:8.0f} ms {ratios}")
        size = sum(path.stat().st_size for path in home.rglob("*.db") if path.is_file())
        print(f"{'on disk, without packs':32}{size / 1e6:8.1f} MB")


def measure(work: Path, home: Path) -> list[tuple[str, float]]:
    """The cost of each kind of snapshot, in the order in which a session takes them."""
    found: list[tuple[str, float]] = []
    edited = [str(work / "d00/e0/f0.py")]
    anyio.run(session(work, home / "load").edit, edited)  # a session has loaded what this takes
    other = session(work, home / "cold")
    found.append(("first edit", spent(lambda: anyio.run(other.edit, edited))))
    found.append(("second edit", spent(lambda: anyio.run(other.edit, [edited[0] + "x"]))))
    found.append(("first command, no head start", spent(other.command)))
    other.close()
    one = session(work, home / "warm")
    found.append(("to start it in the background", spent(one.prepare)))
    sleep(2 + 2 * found[2][1])  # a model thinks meanwhile
    found.append(("first command, head start", spent(one.command)))
    found.append(("later, nothing changed", min(spent(one.command) for _ in range(5))))
    change(work)
    found.append(("later, 20 files changed", spent(one.command)))
    one.close()
    fresh = session(work, home / "warm")
    found.append(("new process, known project", spent(fresh.command)))
    fresh.close()
    found.append(("in this process, a stat of each", spent(lambda: fresh.take("bench"))))
    found.append(("the same once more", spent(lambda: fresh.take("bench"))))
    return found


class Session(Snapshots):
    """The snapshots of a session, as its tools ask for them."""

    async def edit(self, paths: list[str]) -> None:
        await self.snapshot_files(paths, why="bench")

    def command(self) -> None:
        anyio.run(lambda: self.snapshot_workspace(why="bench"))


def session(work: Path, home: Path) -> Session:
    return Session(home, "bench", folders=(str(work),))


def plant(work: Path) -> None:
    for number in range(FOLDERS):
        folder = work / f"d{number % 50:02}" / f"e{number}"
        folder.mkdir(parents=True)
        for name in range(EACH):
            (folder / f"f{name}.py").write_text(f"x = {number * EACH + name}\n" * 30)
    subprocess.run(["sh", "-c", COMMIT], cwd=work, check=True)


def change(work: Path) -> None:
    for number in range(20):
        (work / f"d{number:02}" / f"e{number}" / "f0.py").write_text("changed\n")


def look(work: Path) -> None:
    subprocess.run(["find", os.fspath(work), "-size", "+99G"], check=True)


def ask_git(work: Path) -> None:
    subprocess.run(["git", "status", "--porcelain"], cwd=work, check=True, capture_output=True)


def spent(act: Callable[[], object]) -> float:
    begun = perf_counter()
    act()
    return perf_counter() - begun
