"""Every example runs against a scripted model, and uses public names only."""

from __future__ import annotations

import ast
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import travois
import travois_lab as lab

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MAX_LINES = 60
PUBLIC_MODULES = ("travois", "travois.testing")


def use(name: str, **args: object) -> dict[str, object]:
    return {"say": [{"tool_use": {"name": name, "input": args}}]}


class Example(msgspec.Struct, frozen=True):
    """What the model says to an example, the files that it finds, and what it prints."""

    script: list[Any]
    prints: tuple[str, ...]
    files: dict[str, str] = {}
    code: int = 0
    prepare: Callable[[Path], None] | None = None


def make_shop(folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as shop:
        shop.execute("create table orders (eur real)")
        shop.execute("insert into orders values (50), (50)")


def make_repository(folder: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    (folder / "a.py").write_text("def f(): pass\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)


FINDING = {"file": "a.py", "line": 3, "severity": "high", "problem": "off by one"}
ITEM = {"name": "chair", "count": 2, "price": 40.0}
INVOICE = {"number": "A-17", "day": "2026-05-03", "items": [ITEM]}
EVERY = {
    "code_reviewer": Example(
        [use("StructuredOutput", value=[FINDING]), "Done."],
        ("a.py:3: high: off by one",),
        code=1,
    ),
    "fix_tests": Example(
        [
            use("Write", file_path="test_sum.py", content=""),
            "Fixed.",
            use("Read", file_path="sums.py"),
            use("Write", file_path="sums.py", content="TWO = 1 + 1\n"),
            "Now it is fixed.",
        ],
        ("Now it is fixed.",),
        files={
            "sums.py": "TWO = 3\n",
            "test_sum.py": "import unittest, sums\n\n\nclass Sums(unittest.TestCase):\n"
            "    def test_two(self):\n        self.assertEqual(sums.TWO, 2)\n",
        },
    ),
    "doc_writer": Example(
        [use("Write", file_path="README.md", content="## Usage\n"), "Written."],
        ("[Write README.md]", "Written.", "finished, "),
    ),
    "custom_tool": Example(
        [
            use("query", database="shop.db", sql="select sum(eur) from orders"),
            use("convert_money", amount=100, source="EUR", target="USD"),
            {"when": {"tool_result": {"contains": "108"}}, "say": "108 dollars."},
        ],
        ("108 dollars.",),
        prepare=make_shop,
    ),
    "custom_hook": Example(
        [
            use("Bash", command="rm -r old"),
            use("Bash", command="mkdir new"),
            use("Bash", command="curl x.example"),
            "Made.",
        ],
        ("used Bash with", "may it?", "Made.", "denied: Bash: "),
    ),
    "mcp_in_process": Example(
        [
            use("mcp__shop__stock", item="apple"),
            {"when": {"tool_result": {"contains": "3"}}, "say": "Three."},
        ],
        ("Three.",),
    ),
    "extraction": Example(
        [
            use("StructuredOutput", **(INVOICE | {"day": "May"})),
            use("StructuredOutput", **INVOICE),
            "Done.",
        ],
        ("A-17 2026-05-03 80.0",),
    ),
    "fan_out": Example(
        [{"say": "It says hello.", "repeat": True}],
        ("What does main.py do? It says hello.", "$0."),
    ),
    "subagents": Example(
        [
            use("Agent", description="search", prompt="Where?", subagent_type="finder"),
            {"when": {"last_text": "Where?"}, "say": "Nowhere."},
            {"when": {"tool_result": {"contains": "Nowhere"}}, "say": "It is not used."},
        ],
        ("It is not used.", "tokens, those of subagents"),
    ),
    "durable": Example(
        [
            {"when": {"last_text": "List what changed"}, "say": "Two things."},
            use("Write", file_path="CHANGES.md", content="1.2\n"),
            "Written.",
        ],
        ("Written.",),
    ),
    "custom_model": Example(["never asked"], ("These are the files.",)),
    "fleet_tasks": Example(
        [use("Write", file_path="b.py", content="B = 1\n"), {"say": "Done.", "repeat": True}],
        ("docs-work",),
        prepare=make_repository,
    ),
}


def run_program(
    folder: Path, api: lab.Api, *words: str | Path, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder.parent),
            "TRAVOIS_HOME": str(folder.parent / "home"),
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "sk-lab",
        },
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.mark.parametrize("name", EVERY)
def test_an_example_does_what_it_says(name: str, folder: Path) -> None:
    example = EVERY[name]
    if name in ("durable", "fleet_tasks"):
        pytest.importorskip("dbos", reason="the extra `fleet` is not installed")
    for path, text in example.files.items():
        (folder / path).write_text(text)
    if example.prepare is not None:
        example.prepare(folder)
    with lab.server(example.script) as api:
        done = run_program(folder, api, EXAMPLES / f"{name}.py")
        api.no_invalid()
    assert done.returncode == example.code, done.stdout + done.stderr
    for text in example.prints:
        assert text in done.stdout, done.stdout + done.stderr


CHAT = """
import chat_server
from starlette.testclient import TestClient
client = TestClient(chat_server.app)
for message in ("Hello.", "And again?"):
    print(client.post("/chats/ann", content=message).text)
"""


def test_the_chat_server_streams_events_and_remembers(folder: Path) -> None:
    script = ["Hello, Ann.", {"when": {"text": "Hello, Ann."}, "say": "Hello again."}]
    with lab.server(script) as api:
        (folder / "chat_server.py").write_bytes((EXAMPLES / "chat_server.py").read_bytes())
        done = run_program(folder, api, "-W", "ignore", "-c", CHAT)
    assert done.returncode == 0, done.stderr
    assert 'event: text\ndata: "Hello' in done.stdout and "again." in done.stdout
    assert done.stdout.count('event: end\ndata: {"why": "finished"') == 2


CELLS = """
import ast, asyncio, inspect, json, sys
cells = json.load(open(sys.argv[1]))["cells"]
names = {}
async def main():
    for cell in cells:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            found = eval(code, names)
            if inspect.isawaitable(found):
                await found
asyncio.run(main())
"""


def test_the_notebook_runs(folder: Path) -> None:
    said = {"when": {"tool_result": {"contains": "6"}}, "say": "Six."}
    with lab.server([use("word_count", text="to be or not to be"), said, "Five."]) as api:
        done = run_program(folder, api, "-c", CELLS, EXAMPLES / "notebook.ipynb")
    assert (done.returncode, done.stdout) == (0, "Six.\nFive."), done.stderr


def test_the_evals_pass(folder: Path) -> None:
    with lab.server() as api:
        done = run_program(folder, api, "-m", "travois", "eval", EXAMPLES / "evals.yaml")
    assert done.returncode == 0 and "2 of 2 passed" in done.stdout, done.stdout + done.stderr


def test_examples_are_short_and_use_public_names_only() -> None:
    paths = [*EXAMPLES.glob("*.py")]
    assert len([*EXAMPLES.iterdir()]) >= 12
    for path in paths:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < MAX_LINES, path.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("travois"):
                assert node.module in PUBLIC_MODULES, path.name
                assert {alias.name for alias in node.names} <= {*travois.__all__}, path.name
