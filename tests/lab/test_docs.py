"""The worked example of the lab's page, run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import travois_lab as lab
from travois_lab.report import ledger_json, render, summary

PAGE = Path(__file__).parents[2].joinpath("docs", "lab.md").read_text()
SYSTEM = ' + f"You may call {3 - turn} more tools."'
NEWEST = '"content": results}'
TOLD = '"content": [*results, {"type": "text", "text": f"{2 - turn} more calls."}]}'


def example() -> str:
    found = re.search(r"```python\n(import json.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def report(agent: str) -> list[str]:
    with lab.server("lab-tool-loop:3") as api:
        env = {**os.environ, "ANTHROPIC_BASE_URL": api.url, "no_proxy": "*"}
        subprocess.run([sys.executable, "-c", agent], env=env, check=True)
        lines = render(ledger_json(api.ledger), summary(api.ledger))
        return [line.rstrip() for line in lines]


def printed() -> list[list[str]]:
    """The reports on the page: what follows each call of `travois lab report`."""
    parts = PAGE.split("    $ travois lab report\n")[1:]
    shown = [re.match(r"(?:    .*\n|\n(?=    ))+", part) for part in parts]
    return [[line[4:].rstrip() for line in m[0].splitlines()] for m in shown if m]


def test_the_page_shows_what_the_example_really_prints() -> None:
    assert printed()[0] == report(example())


def test_the_page_shows_what_the_mended_example_really_prints() -> None:
    agent = example()
    assert SYSTEM in agent and NEWEST in agent
    assert printed()[1] == report(agent.replace(SYSTEM, "").replace(NEWEST, TOLD))
