"""Kill -9 at every write of a scripted 30-turn session: nothing acknowledged is lost, ever."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program, read
from tests.sampling import first
from travois.core.facts import Ended
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

TURNS = 30
MANNERS = ("before", "torn", "after")
SHARDS = 8


def model(prompt: Prompt, state: object) -> list[Json]:
    """Thirty turns of reads, edits, looks and commands; then the last word."""
    step = sum(message["role"] == "assistant" for message in prompt.messages)
    if step >= TURNS or "go on" in prompt.last_text:
        return [text("done")]
    wanted = (
        call("Read", file_path="a.txt"),
        call("Write", file_path=f"new{step}.txt", content="x"),
        call("Grep", pattern="x"),
        call("Bash", command=f"echo {step} >> log.txt"),
        call("TodoWrite", todos=[{"content": "a", "status": "pending"}]),
        call("Glob", pattern="*.txt"),
    )
    return [wanted[step % len(wanted)]]


def mortal(program: Program, fatal: int, manner: str, acks: Path) -> Program:
    here = (sys.executable, "-m", "tests.e2e.mortal", str(fatal), manner, str(acks))
    path = str(Path(__file__).parents[2])
    return replace(program, launcher=here, extra={"PYTHONPATH": path})


def scene(program: Program, number: int) -> Program:
    folder, home = program.folder / f"w{number}", program.home / f"h{number}"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("x\n")
    return replace(program, folder=folder, home=home)


FLAGS = ("--permission-mode", "bypass")


@pytest.mark.slow
@pytest.mark.parametrize("shard", first(2, range(SHARDS)))
def test_killed_at_any_write_a_session_loses_nothing_and_goes_on(
    program: Program, shard: int, tmp_path: Path
) -> None:
    fatal = shard + 1
    while True:
        place, acks = scene(program, fatal), tmp_path / f"acks{fatal}"
        with lab.server(model) as api:
            place.url = api.url
            manner = MANNERS[fatal % len(MANNERS)]
            done = mortal(place, fatal, manner, acks).ask("go", *FLAGS)
            if done.code == 0:
                assert fatal > 4 * TURNS
                return
            assert done.code == -9, done.err
            survived(place, api, acked=int(acks.read_text() or 0) if acks.exists() else 0)
        fatal += SHARDS


def survived(place: Program, api: lab.Api, *, acked: int) -> None:
    """Everything acknowledged is there, and the next request is valid and keeps the prefix."""
    if acked < 4:  # before the prompt itself was on file there is no session to go on with
        return
    (log,) = place.logs()
    before = log.read_bytes().count(b"\n")
    assert before >= acked
    done = place.ask("go on", "-c", *FLAGS)
    assert (done.code, done.out) == (0, "done\n"), done.err
    assert [entry.seq for entry in read(log)] == list(range(1, len(read(log)) + 1))
    assert isinstance(read(log)[-1].fact, Ended)
    api.no_orphans()
    api.no_invalid()
    api.append_only()
