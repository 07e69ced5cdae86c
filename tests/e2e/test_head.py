"""One head for all requests: nothing that changes while people work stands in it."""

from __future__ import annotations

import subprocess
from random import Random

import travois_lab as lab
from tests.e2e.program import Program
from travois.engine.tool_definitions import build_tool_specs
from travois.tools.catalog import TOOLS

WEST, EAST = "Etc/GMT+12", "Pacific/Kiritimati"
"""Where it is never the same day."""


def git(program: Program, *args: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *author, *args], cwd=program.folder, check=True, capture_output=True)


def test_midnight_cd_and_commits_leave_the_head_and_the_cache_as_they_are(
    program: Program,
) -> None:
    use = {"tool_use": {"name": "Bash", "input": {"command": "mkdir -p sub; cd sub"}}}
    with lab.server([{"say": [use]}, {"say": "ok", "repeat": True}]) as api:
        program.url, program.extra = api.url, {"TZ": WEST}
        git(program, "init", "-q")
        assert program.ask("one", "--permission-mode", "bypass").code == 0
        program.extra = {"TZ": EAST}
        assert program.ask("two", "-c").code == 0
        git(program, "commit", "-qm", "x", "--allow-empty")
        git(program, "checkout", "-qb", "other")
        assert program.ask("three", "-c").code == 0
        assert program.ask("another session").code == 0
        heads = {str((body["system"], body["tools"])) for body in api.bodies}
        api.append_only()
        for before, after in zip(api.ledger, list(api.ledger)[1:-1], strict=False):
            assert after.usage.read >= 0.99 * before.usage.prompt
    assert len(heads) == 1


def test_the_order_of_tools_does_not_matter() -> None:
    chance, tools = Random(0), list(TOOLS)
    heads = {build_tool_specs(tuple(tools))}
    for _ in range(1_000):
        chance.shuffle(tools)
        heads.add(build_tool_specs(tuple(tools)))
    assert len(heads) == 1
