"""Runs as DBOS steps: what had ended is not run again, what had not goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import travois_lab as lab

pytest.importorskip("dbos", reason="the extra `fleet` is not installed")

FLOW = """
import asyncio, os, sys
from dataclasses import dataclass
from dbos import DBOS, SetWorkflowID
from travois import Options, run_dbos_step, tool

@dataclass
class Count:
    files: int

@tool(safe=True)
def look() -> str:
    "Look at the folder."
    if not os.path.exists("looked"):
        open("looked", "w").close()
        os._exit(9)
    return "two files"

OPTIONS = Options(model="anthropic/claude-opus-5-5", tools=[look], builtin_tools=())

@DBOS.workflow()
async def count_files():
    first = await run_dbos_step("Say hello.", OPTIONS)
    second = await run_dbos_step("Count the files.", OPTIONS, output=Count)
    return [first.text, second.output.files, first.session_id == second.session_id]

async def main():
    with SetWorkflowID("flow-1"):
        handle = await DBOS.start_workflow_async(count_files)
    print(await handle.get_result(), flush=True)

CONFIG = {"name": "flows", "system_database_url": "sqlite:///flow.sqlite"}
DBOS(config={**CONFIG, "run_admin_server": False, "log_level": "ERROR"})
DBOS.launch()
asyncio.run(main())
os._exit(0)
"""
SCRIPT = [
    {"when": {"last_text": "Say hello."}, "say": "Hello."},
    {
        "when": {"last_text": "Count the files."},
        "say": [{"tool_use": {"name": "look", "input": {}}}],
    },
    {"say": [{"tool_use": {"name": "StructuredOutput", "input": {"files": 2}}}]},
    {"say": "Done.", "repeat": True},
]


def test_a_workflow_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    def run(api: lab.Api) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", FLOW],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "TRAVOIS_HOME": str(tmp_path / "home"),
                "ANTHROPIC_BASE_URL": api.url,
                "ANTHROPIC_API_KEY": "sk-lab",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )

    with lab.server(SCRIPT) as api:
        assert run(api).returncode == 9
        done = run(api)
        assert (done.returncode, done.stdout) == (0, "['Hello.', 2, True]\n"), done.stderr
        prompts = [json.dumps(body["messages"]) for body in api.bodies]
        assert sum(text.count("Say hello.") == 1 for text in prompts) == len(prompts)
        assert prompts[-1].count("Count the files.") == 1
        assert api.bodies[0]["messages"][-1]["role"] == "user" and len(prompts) == 4
