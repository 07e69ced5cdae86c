"""What a snapshot of 100,000 files costs: the first, one of an unchanged tree, one after edits."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from travois.store.snapshots import Snapshots

FOLDERS, EACH = 5_000, 20


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work, home = Path(scratch, "work"), Path(scratch, "home")
        plant(work)
        first = Snapshots(home, "bench", folders=(str(work),))
        print(f"{FOLDERS * EACH} files in {FOLDERS} folders")
        print(f"first snapshot           {1000 * spent(lambda: first.take('first')):8.0f} ms")
        again = min(spent(lambda: first.take("again")) for _ in range(5))
        print(f"unchanged, same process  {1000 * again:8.0f} ms")
        fresh = spent(lambda: Snapshots(home, "bench", folders=(str(work),)).take("fresh"))
        print(f"unchanged, new process   {1000 * fresh:8.0f} ms")
        for number in range(20):
            (work / f"d{number:02}" / f"e{number}" / "f0.py").write_text("changed\n")
        print(f"20 files changed         {1000 * spent(lambda: first.take('edits')):8.0f} ms")
        floor = min(spent(lambda: look(work)) for _ in range(5))
        print(f"find, looking at each    {1000 * floor:8.0f} ms   (ratio {again / floor:.1f})")
        size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
        print(f"on disk                  {size / 1e6:8.1f} MB")


def plant(work: Path) -> None:
    for number in range(FOLDERS):
        folder = work / f"d{number % 50:02}" / f"e{number}"
        folder.mkdir(parents=True)
        for name in range(EACH):
            (folder / f"f{name}.py").write_text(f"x = {number * EACH + name}\n" * 30)


def look(work: Path) -> None:
    subprocess.run(["find", os.fspath(work), "-size", "+99G"], check=True)


def spent(act: Callable[[], object]) -> float:
    begun = perf_counter()
    act()
    return perf_counter() - begun
