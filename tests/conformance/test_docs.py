"""The examples of docs/sdk.md do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import write_launcher

DOCS = Path(__file__).parents[2] / "docs" / "sdk.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
PLAN = {"ticket": "SHOP-1", "steps": ["read", "fix"]}
SCRIPT = [
    {
        "when": {"last_text": "team SHOP"},
        "say": [{"tool_use": {"name": "open_tickets", "input": {"team": "SHOP"}}}],
    },
    {
        "when": {"tool_result": {"contains": "empty files"}},
        "say": [{"tool_use": {"name": "StructuredOutput", "input": PLAN}}],
    },
    {"when": {"tool": "Dice"}, "say": [{"tool_use": {"name": "Dice", "input": {"sides": 6}}}]},
    {
        "when": {"tool": "mcp__game__Dice"},
        "say": [{"tool_use": {"name": "mcp__game__Dice", "input": {"sides": 6}}}],
    },
    {"when": {"tool_result": {"contains": "You rolled 3"}}, "say": "It is a three."},
    {"say": "Hello.", "repeat": True},
]
PRINTED = (
    r"Hello\.\nfinished 1 \d+ \$\d\.\d\d\n",
    r"SHOP-1\n- read\n- fix\n",
    r"Hello\.\nended: finished\nHello\.",
    r"There are none\.\n",
    r"(?s).*You rolled 3.*result='It is a three\.'.*",
)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    if "claude_agent_sdk" in EXAMPLES[number]:
        pytest.importorskip("claude_agent_sdk")
    folder = tmp_path / "bin"
    folder.mkdir()
    write_launcher(folder / "travois")
    with lab.server(SCRIPT) as api:
        done = subprocess.run(
            [sys.executable, "-c", EXAMPLES[number]],
            cwd=tmp_path,
            env={
                "PATH": f"{folder}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "TRAVOIS_HOME": str(tmp_path / "home"),
                "ANTHROPIC_BASE_URL": api.url,
                "ANTHROPIC_API_KEY": "sk-lab",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        api.no_invalid()
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTED[number], done.stdout), done.stdout
