"""`travois memory` and `travois search`, as a user starts them."""

from __future__ import annotations

from tests.e2e.program import Program
from tests.store.recorded.writing import TALK, claude, put


def test_what_is_remembered_outlives_the_process_and_can_be_taken_back(program: Program) -> None:
    assert program.run("memory", "add", "deploys happen on Tuesdays").code == 0
    (found,) = program.run("memory", "list", "--json").lines
    assert found["name"] == "deploys-happen-on-tuesdays"
    assert program.run("memory", "undo").code == 0
    assert program.run("memory", "list", "--json").out == ""


def test_an_answer_comes_first_and_waiting_makes_it_complete(program: Program) -> None:
    folder = program.home.parent / ".claude" / "projects" / "-w"
    for number in range(400):
        put(folder / f"s{number}.jsonl", claude(TALK))
    assert program.run("search", "redis", "--json").code == 0
    done = program.run("search", "redis", "--json", "--wait", "--limit", "7")
    assert (done.code, done.err, len(done.lines)) == (0, "", 7)
