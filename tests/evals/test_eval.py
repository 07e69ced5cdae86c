"""`travois eval` with the real program: scripted and recorded models, checks, reports, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

import travois_lab as lab
from travois_lab.recording import Took

WRITE = {"tool_use": {"name": "Write", "input": {"file_path": "hello.txt", "content": "hello\n"}}}
ANSWER = {"tool_use": {"name": "StructuredOutput", "input": {"tests": 3, "names": ["a"]}}}
SCHEMA = {"type": "object", "properties": {"tests": {"type": "integer"}}, "required": ["tests"]}
CASES = f"""
cases:
  - name: greeting
    prompt: Write hello to hello.txt.
    files: {{notes/a.txt: "old"}}
    script: {json.dumps([{"say": [WRITE]}, {"say": "Written."}])}
    runs: 2
    checks:
      - {{file: hello.txt, equals: hello}}
      - {{file: notes/a.txt, contains: old, absent: new, matches: "^o.d$"}}
      - {{contains: Written, calls: Write, never_calls: Bash, max_turns: 2}}
      - {{command: test -s hello.txt}}
  - name: counting
    prompt: How many tests?
    script: {json.dumps([{"say": [ANSWER]}, {"say": "Done."}])}
    schema: {json.dumps(SCHEMA)}
    checks: [{{output: {{tests: 3}}}}]
  - name: limited
    prompt: Go on.
    script: {json.dumps([{"say": [WRITE]}])}
    budget: {{turns: 1}}
    ends: limit
"""


class Evals:
    """The real program in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "cases.yaml"

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(self.folder), "TRAVOIS_HOME": str(self.folder / "home")}
        return subprocess.run(
            [sys.executable, "-m", "travois", "eval", *args],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **home, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def evals(tmp_path: Path) -> Evals:
    return Evals(tmp_path)


def test_cases_that_pass(evals: Evals) -> None:
    evals.file.write_text(CASES)
    done = evals.run("cases.yaml", "--junit", "report.xml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 passed" in done.stdout and done.stdout.count("greeting") == 2
    suite = ElementTree.parse(evals.folder / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("4", "0")


def test_each_check_that_fails_is_named(evals: Evals) -> None:
    broken = CASES.replace("equals: hello", "equals: bye").replace("tests: 3}}", "tests: 4}}")
    broken = broken.replace("test -s", "ls no-such").replace("calls: Write,", "calls: Read,")
    evals.file.write_text(broken.replace("ends: limit", "ends: finished"))
    done = evals.run("cases.yaml", "--json", "--junit", "report.xml", "--parallel", "1")
    assert done.returncode == 1, done.stderr
    rows = json.loads(done.stdout)
    problems = {row["name"]: " ".join(row["problems"]) for row in rows}
    for text in ("hello.txt is", "Read was not called", "ls no-such"):
        assert text in problems["greeting"]
    assert "output.tests is 3, not 4" in problems["counting"]
    assert "ended with limit, not finished" in problems["limited"]
    suite = ElementTree.parse(evals.folder / "report.xml").getroot()
    assert suite.get("failures") == "4"


def test_a_recorded_and_a_real_model(evals: Evals) -> None:
    events = [
        {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}
            for t in ("Re", "corded.")
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    write_recording(evals.folder / "real.jsonl", events)
    case = {"name": "said", "prompt": "Go.", "checks": [{"equals": "Recorded."}]}
    evals.file = evals.folder / "cases.json"
    evals.file.write_text(json.dumps([case | {"recording": "real.jsonl"}]))
    done = evals.run("cases.json")
    assert done.returncode == 0, done.stdout + done.stderr
    with lab.server(["Real."]) as api:
        env = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-lab"}
        real = evals.run("cases.json", "--model", "anthropic/claude-opus-5-5", **env)
    assert real.returncode == 1 and "the answer is 'Real.', not 'Recorded.'" in real.stdout


def write_recording(path: Path, events: list[dict[str, object]]) -> None:
    """Write a recording with one answer, as `travois lab record` does."""
    raw = (f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)
    steps = tuple((0.0, b64encode(one).decode()) for one in raw)
    headers = {"content-type": "text/event-stream"}
    took = Took(1, 0.0, "POST", "/v1/messages", "", "", 200, headers, steps)
    path.write_bytes(msgspec.json.encode(took) + b"\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cases: [", "not valid YAML"),
        ("cases: [{name: a}]", "missing required field `prompt`"),
        ("cases: [{name: a, prompt: b, checks: [{contain: x}]}]", "unknown field `contain`"),
        ("cases: [{name: a, prompt: b, checks: [{file: ../x, contains: y}]}]", "out of its folder"),
        ("cases: [{name: a, prompt: b, checks: [{}]}]", "without anything to check"),
        ("cases: [{name: a, prompt: b, recording: no.jsonl}]", "no recording no.jsonl"),
        ("cases: []", "no cases"),
    ],
)
def test_a_file_with_an_error_runs_nothing(text: str, why: str, evals: Evals) -> None:
    evals.file.write_text(text)
    done = evals.run("cases.yaml")
    assert done.returncode == 2 and why in done.stderr and done.stdout == ""
