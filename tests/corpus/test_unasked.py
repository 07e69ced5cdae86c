"""What runs unasked has no effect outside the workspace, on the network or on a protected path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engine.fakes import RecordingPerson, agent
from tests.engine.test_consent import Shell, shell
from tests.engine.test_sandboxed import Snapshots
from travois.engine.agent import Agent
from travois.engine.consent import Ready, Ruling, decide
from travois.engine.dispatch import understand
from travois.kernel.blocks import Call
from travois.policy.bounds import Bounds
from travois.policy.judge import Guard, Mode

CORPUS = Path(__file__).parents[3] / "shared" / "lab" / "security" / "commands.jsonl"
pytestmark = pytest.mark.skipif(
    not CORPUS.exists(), reason="the security corpora are not beside this repository"
)
MODES: dict[str, tuple[Mode, bool]] = {
    "default": ("default", False),
    "sandboxed": ("default", True),
    "accept-edits": ("accept-edits", False),
    "auto": ("auto", False),
    "plan": ("plan", False),
}


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CORPUS.read_text().splitlines()]


def session(folder: Path, mode: str) -> Agent:
    named, free = MODES[mode]
    root, temp = str(folder.resolve()), "/var/lib/private"
    return agent(
        folder,
        tools=(shell(Shell()),),
        guard=Guard(named, folders=(root,), scratch=temp),
        bounds=Bounds(temp, free=free, attended=True, offered=True),
        keeper=Snapshots(),
        person=RecordingPerson(),
    )


async def ruled(one: Agent, command: str) -> Ruling | None:
    """How a command is ruled on; none if it is no command at all."""
    call = Call("c", "Bash", json.dumps({"path": command}))
    ready = understand(one, call)
    return await decide(one, ready) if isinstance(ready, Ready) else None


def is_held(one: Agent, ruling: Ruling) -> bool:
    """Whether the sandbox lets a command that runs reach nothing but the workspace."""
    cage, bounds = ruling.cage, one.bounds
    if cage is None or bounds is None or cage.network != "off":
        return False
    within = cage.writable in ((), bounds.writable) and cage.folders == one.guard.folders
    return within and not cage.lifted


@pytest.mark.parametrize("mode", MODES)
def test_what_runs_unasked_is_held_by_the_sandbox_in_every_mode(tmp_path: Path, mode: str) -> None:
    one, silent = session(tmp_path, mode), []
    for row in rows():
        ruling = anyio.run(ruled, one, row["command"])
        if ruling is None or ruling.decided.verdict == "deny":
            continue
        if row["kind"] == "catastrophic" or not is_held(one, ruling):
            silent.append((row["id"], row["command"]))
    assert silent == []


@pytest.mark.parametrize("mode", ["sandboxed", "auto"])
def test_hardly_anything_benign_is_asked_about_in_the_sandbox(tmp_path: Path, mode: str) -> None:
    one = session(tmp_path, mode)
    benign = [row["command"] for row in rows() if row["kind"] == "benign"]
    found = [(line, anyio.run(ruled, one, line)) for line in benign]
    asked = [line for line, ruling in found if ruling and ruling.decided.verdict == "deny"]
    assert len(asked) <= 0.05 * len(benign), asked
