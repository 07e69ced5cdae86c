"""A repository that holds the files of every agent at once: the merged view is a golden file.

Write it again with `TRAVOIS_GOLDEN=write pytest FILE`, and read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.e2e.program import Program

EVERYTHING = Path(__file__).parent / "everything"
GOLDEN = Path(__file__).parent / "everything.json"
PARTS = ("instructions", "agents", "commands", "skills", "outputStyles", "mcpServers", "rules")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    copytree(EVERYTHING, tmp_path / "repo")
    (tmp_path / "repo/.git").mkdir()
    return Program(tmp_path / "repo", tmp_path / "home")


def view(program: Program) -> Any:
    """Settings that are not the default, and all else, each with the file that decided it."""

    def told(*key: str) -> Any:
        done = program.run("config", "explain", *key, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out.replace(str(program.folder), "REPO"))

    settings = {
        k: one
        for k, one in told().items()
        if one["origin"] not in ("default", "TRAVOIS_LSP_ENABLED")  # set by the tests themselves
    }
    parts = [one for part in PARTS for one in told(part).items() if one[1]["origin"] != "built-in"]
    return settings | dict(parts)


def test_before_and_after_trust_it_is_what_the_golden_file_says(program: Program) -> None:
    stranger = view(program)
    assert program.run("trust").code == 0
    found = {"stranger": stranger, "trusted": view(program)}
    if os.environ.get("TRAVOIS_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(GOLDEN.read_text())


def test_each_key_names_the_file_that_decided_it(program: Program) -> None:
    assert program.run("trust").code == 0
    for key, file in {
        "model": ".claude/settings.json",
        "context.resultTokens": ".codex/config.toml",
        "context.tailTokens": ".travois/settings.json",
        "permissions.defaultMode": ".claude/settings.json",
        "hooks.PostToolUse": ".claude/settings.json",
        "skills.lint": ".agents/skills/lint/SKILL.md",
        "commands.test": ".opencode/command/test.md",
        "mcpServers.tickets": "opencode.json",
        "agents.critic": ".claude/agents/critic.md",
        "outputStyles.teacher": ".claude/output-styles/teacher.md",
    }.items():
        done = program.run("config", "explain", key)
        assert (done.code, str(program.folder / file) in done.out) == (0, True), key
    missing = program.run("config", "explain", "skills.lin")
    assert (missing.code, "Did you mean skills.lint?" in missing.err) == (2, True)
