"""What a language server costs an edit: with basedpyright cold and warm, and without any.

Each figure is a call of Edit in the real program, from its decision to its result. Beside it stands
what basedpyright takes from the command line for the same file.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from tests.e2e.program import Program

from travois.core.facts import Decided, Result

SCRIPTS = sysconfig.get_path("scripts")
EDITS = 11
"""The first one is cold."""
MODULES = 40
MODULE = "def total_{0}(coins: list[int]) -> int:\n    return sum(coins)\n"


def main() -> None:
    with TemporaryDirectory(prefix=".travois-bench-", dir=Path.home()) as scratch:
        cold, warm = _edit_seconds(Path(scratch) / "with", on="true")
        _, plain = _edit_seconds(Path(scratch) / "without", on="false")
        checker = _checker_seconds(Path(scratch) / "with" / "work")
    print(f"  cold: {cold:.2f} s with the start of the server and the first errors")
    print(
        f"  warm: {1000 * warm:.0f} ms (median of {EDITS - 1}); without a server {1000 * plain:.1f} ms"
    )
    print(
        f"  basedpyright from the command line: {checker:.2f} s; warm is {checker / warm:.0f} times faster"
    )


def _edit_seconds(place: Path, *, on: str) -> tuple[float, float]:
    """Let the program make wrong edits; return how long the first and the others took."""
    program = Program(place / "work", place / "home")
    program.folder.mkdir(parents=True)
    for number in range(MODULES):
        (program.folder / f"module_{number}.py").write_text(MODULE.format(number))
    program.extra = {
        "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        "TRAVOIS_LSP_ENABLED": on,
        "TRAVOIS_LSP_EDIT_SECONDS": "60",
    }
    with program.served([*map(_edit_call, range(EDITS)), {"say": "Done."}]):
        done = program.ask("go", "--permission-mode", "acceptEdits")
        assert done.code == 0, done.err
    first, *others = _call_seconds(program, told="new error" if on == "true" else "Edited")
    return first, median(others)


def _edit_call(number: int) -> dict[str, Any]:
    words = "sum(coins)" if not number else f"wrong_{number - 1}(coins)"
    args = {"file_path": "module_0.py", "old_string": words, "new_string": f"wrong_{number}(coins)"}
    return {"say": [{"tool_use": {"name": "Edit", "input": args}}]}


def _call_seconds(program: Program, *, told: str) -> list[float]:
    began, found = 0.0, list[float]()
    for entry in program.facts():
        if isinstance(entry.fact, Decided):
            began = entry.at
        if isinstance(entry.fact, Result):
            assert told in str(entry.fact.content), entry.fact
            found.append(entry.at - began)
    return found


def _checker_seconds(folder: Path) -> float:
    began = perf_counter()
    command = [f"{SCRIPTS}/basedpyright", str(folder / "module_0.py")]
    subprocess.run(command, cwd=folder, capture_output=True)
    return perf_counter() - began
