"""The commands in the documentation are accepted by the real command line, and the recipes run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program, write_launcher
from travois.commands.flags import COMMAND_MODULES, COMMANDS, build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(?:bash|sh|console)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
RECIPES = BLOCK.findall((ROOT / "docs" / "recipes.md").read_text("utf-8"))
TUTORIAL = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text("utf-8"), re.DOTALL
)
SCRIPT = [
    {
        "when": {"tool": "order_status", "last_text": {"contains": "Where is"}},
        "say": [{"tool_use": {"name": "order_status", "input": {"number": "A-17"}}}],
    },
    {
        "when": {"tool": "StructuredOutput"},
        "say": [
            {
                "tool_use": {
                    "name": "StructuredOutput",
                    "input": {"names": [], "number": "A-18", "is_paid": False},
                }
            }
        ],
    },
    {"say": "Done.", "repeat": True},
]
MAY_FAIL = ("travois search", "travois sessions show", "travois rewind", "travois permissions why")
"""Their exit code says what was found or decided."""


def read_commands(page: Path) -> Iterator[list[str]]:
    """Yield each `travois` command of a page's shell blocks, without comments and pipes."""
    for block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\s\|\s", line.strip().removeprefix("$ ")):
                if part.strip().startswith("travois "):
                    yield _split_command(re.split(r"\s{2,}", part.strip())[0])


def _split_command(text: str) -> list[str]:
    try:
        text = re.sub(r"\b(\w+)(?:\|\w+)+", r"\1", text)  # `show|test`: the first of several
        words = shlex.split(text, comments=True)[1:]
    except ValueError:
        return []
    ends = [at for at, word in enumerate(words) if word in (">", "2>", "&", "<", ";")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_commands_are_accepted(page: Path) -> None:
    refused = []
    for words in read_commands(page):
        if re.search(r"…|\.\.\.", " ".join(words)) or not words:
            continue  # a form to be filled in
        try:
            _parse(words)
        except SystemExit as stop:
            if stop.code:
                refused.append(" ".join(words))
    assert refused == []


def _parse(words: list[str]) -> None:
    if words[0] not in COMMANDS:
        build_parser().parse_args([] if words[0] == "help" else words)
        return
    name = words[0]
    top = ArgumentParser(prog="travois")
    module = import_module(f"travois.{COMMAND_MODULES.get(name, f'commands.{name}')}")
    getattr(module, f"register_{name}")(top.add_subparsers(required=True))
    top.parse_args(words)


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_a_recipe_runs(number: int, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    write_launcher(tmp_path / "bin" / "travois")
    work = tmp_path / "work"
    work.mkdir()
    (work / "tasks.jsonl").write_text('{"id": "a", "repo": ".", "prompt": "Say it is done."}\n')
    (work / "Makefile").write_text("clean:\n\ttrue\n")
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=work, check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *author, "commit", "-q", "--allow-empty", "-m", "a"], cwd=work)
    with lab.server(SCRIPT) as api:
        program = Program(work, tmp_path / "home", api.url)
        session = program.ask("hello", "--output-format", "json").result["session_id"]
        text = RECIPES[number].replace("3f2a", session).replace("/mnt/shared", str(tmp_path))
        text = re.sub(r"^(travois -r .*)$", r"\1 -p 'Go on.'", text, flags=re.MULTILINE)
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        for line in text.replace("\\\n", " ").strip().splitlines():
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=work,
                env={**program.environment, "PATH": path},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            allowed = (0, 1) if line.startswith(MAY_FAIL) else (0,)
            assert done.returncode in allowed, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("number", range(len(TUTORIAL)))
def test_a_step_of_the_tutorial_runs(number: int, tmp_path: Path) -> None:
    with lab.server(SCRIPT) as api:
        done = subprocess.run(
            [sys.executable, "-c", TUTORIAL[number]],
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
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout
