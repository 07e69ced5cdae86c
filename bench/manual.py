"""Write the manual page that the wheel installs: `python -m bench.manual`."""

from __future__ import annotations

from pathlib import Path

from travois.cli.command_tree import read_command_tree
from travois.cli.manual import render_manual

MANUAL = Path(__file__).parents[1] / "docs" / "travois.1"

if __name__ == "__main__":
    MANUAL.write_text(render_manual(read_command_tree()), "utf-8")
