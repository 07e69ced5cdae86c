"""The lab as a distribution of its own, of the version of Travois, and what is said without it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from travois.files.installation import extra_command
from travois.version import __version__

ROOT = Path(__file__).parents[2]
WITHOUT = (
    "import sys; sys.modules['travois_lab'] = None; from travois.cli.main import run_command_line; "
)


def test_it_has_the_version_of_travois_and_needs_just_that() -> None:
    lab = tomllib.loads((ROOT / "packages/travois-lab/pyproject.toml").read_text("utf-8"))
    assert lab["project"]["version"] == __version__
    assert lab["project"]["dependencies"] == [f"travois=={__version__}"]
    travois = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert travois["project"]["optional-dependencies"]["lab"] == [f"travois-lab=={__version__}"]


@pytest.mark.parametrize("command", ["lab", "demo"])
def test_without_it_one_line_says_how_to_get_it(command: str) -> None:
    script = f"{WITHOUT} sys.exit(run_command_line([{command!r}]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert "The lab is not installed" in done.stderr
    assert extra_command("lab") in done.stderr


def test_its_first_name_still_starts_it() -> None:
    command = [sys.executable, "-m", "travois.lab", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--script" in done.stdout
