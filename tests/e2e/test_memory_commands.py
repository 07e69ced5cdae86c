"""`travois memory` and `travois search`, as a user starts them."""

from __future__ import annotations

import json
import sys

import pexpect

from tests.compat.sessions.writing import TALK, claude, put
from tests.e2e.program import Program


def test_what_is_remembered_outlives_the_process_and_can_be_taken_back(program: Program) -> None:
    assert program.run("memory", "add", "deploys happen on Tuesdays").code == 0
    (found,) = json.loads(program.run("memory", "list", "--json").out)
    assert found["name"] == "deploys-happen-on-tuesdays"
    assert program.run("memory", "undo").code == 0
    assert program.run("memory", "list", "--json").out == "[]\n"


def test_an_answer_comes_first_and_waiting_makes_it_complete(program: Program) -> None:
    folder = program.home.parent / ".claude" / "projects" / "-w"
    for number in range(400):
        put(folder / f"s{number}.jsonl", claude(TALK))
    assert program.run("search", "redis", "--json").code == 0
    done = program.run("search", "redis", "--json", "--wait", "--limit", "7")
    assert (done.code, done.err, len(json.loads(done.out))) == (0, "", 7)


def test_on_a_terminal_the_words_that_were_looked_for_stand_out(program: Program) -> None:
    put(program.home.parent / ".claude" / "projects" / "-w" / "s.jsonl", claude(TALK))
    out = pexpect.run(
        f"{sys.executable} -m travois search redis writes",
        cwd=str(program.folder),
        env={**program.environment, "TERM": "xterm"},  # type: ignore[arg-type]
    )
    assert b"It lost \x1b[33mwrites\x1b[0m." in out
    assert b"\x1b[36mcd /w && claude --resume s\x1b[0m" in out
