"""`make run` leaves standard output to the program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_what_is_set_up_is_told_on_standard_error_only(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin" / "python", 'echo "Setting up: $*"')
    write_program(tmp_path / "bin" / "travois", """echo '{"type": "result"}'; echo "$@" >&2""")
    (tmp_path / ".installed").touch()
    done = subprocess.run(
        ["make", "run", f"VENV={tmp_path}", "ARGS=-p 'two words' --output-format json"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    told = "Setting up: scripts/offline.py\n-p two words --output-format json\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"type": "result"}\n', told)
