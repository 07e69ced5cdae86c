"""Compaction by the real program: killed at any write it has happened or it has not; what holds
before it holds after it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.program import Program, read
from tests.e2e.test_kill import MANNERS, mortal
from travois.context.compaction.summary_prompt import PROMPT_FOLDER
from travois.core.content import extract_text
from travois.core.facts import Assistant, Changed, Compacted, Ended, Entry, Result
from travois.core.view import project_view
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session
from travois_lab import Prompt, Reply, call, text

ASIDE = (PROMPT_FOLDER / "summary.md").read_text("utf-8")[:60]
SMALL = ("--model", "anthropic/claude-opus-5-5[8k]")
FREE = (*SMALL, "--permission-mode", "bypass")
RULES = [f"Rule {number}: never rename the column c{number * 7919}." for number in range(20)]
READS = 28


def reads(prompt: Prompt, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Reads one file after another, then says that it is done; the next prompt begins anew."""
    if ASIDE in prompt.last_text:
        return [text("Files are read.")]
    step = state["step"] = state.get("step", 0) + 1
    if "go on" in prompt.last_text.splitlines()[-1:] or step % (READS + 1) == 0:
        return [text("done")]
    return [call("Read", file_path=f"f{step % READS}.txt")]


def furnish(program: Program) -> Program:
    program.folder.mkdir(exist_ok=True)
    for number in range(READS):
        lines = (f"{number}-{line}: words of file {number}, (x + {line});\n" for line in range(16))
        (program.folder / f"f{number}.txt").write_text("".join(lines))
    return program


def compactions(entries: list[Entry]) -> list[Compacted]:
    return [entry.fact for entry in entries if isinstance(entry.fact, Compacted)]


def scene(program: Program, name: str, api: lab.Api) -> Program:
    folder, home = program.folder / name, program.home / name
    folder.mkdir(parents=True)
    return furnish(replace(program, folder=folder, home=home, url=api.url))


def rehearse(program: Program) -> tuple[list[Entry], int]:
    """The entries of a run that nothing disturbs, and how many files it wrote."""
    with lab.server(reads) as api:
        place = scene(program, "whole", api)
        done = place.run("-p", RULES[0], *FREE)
        assert (done.code, done.out) == (0, "done\n"), done.err
        return place.facts(), len(list(place.home.glob("sessions/*/*/tool-results/span-*")))


@pytest.mark.slow
def test_killed_at_any_write_of_a_compaction_it_has_happened_or_it_has_not(
    program: Program, tmp_path: Path
) -> None:
    entries, files = rehearse(program)
    at = next(entry.seq for entry in entries if isinstance(entry.fact, Compacted))
    deaths = [(n, manner) for n in range(at - 1, at + 2) for manner in MANNERS]
    deaths += [(n, f"file-{m}") for n in range(1, files + 1) for m in MANNERS[:2]]
    for fatal, manner in deaths:
        with lab.server(reads) as api:
            place = scene(program, f"{manner}{fatal}", api)
            done = mortal(place, fatal, manner, tmp_path / "acks").run("-p", RULES[0], *FREE)
            assert done.code == -9, (fatal, manner, done.err)
            survived(place, api)


def survived(place: Program, api: lab.Api) -> None:
    (log,) = place.logs()
    with SessionLog.open(log.parent) as held:
        before = list(held.read())
    shown = extract_text(project_view(before).items[0].fact.content)
    assert ("span-" in shown) is bool(compactions(before))
    done = place.run("-p", "go on", "-c", "--permission-mode", "bypass")
    assert (done.code, done.out) == (0, "done\n"), done.err
    after = read(log)
    assert after[: len(before)] == before
    assert isinstance(after[-1].fact, Ended)
    for fact in compactions(after):
        texts = [Path(path).read_text("utf-8") for path in fact.files]
        assert all(texts)
    assert RULES[0] in str(api.bodies[-1])
    api.no_orphans()
    api.no_invalid()


def test_twenty_rules_survive_five_compactions_by_the_program(program: Program) -> None:
    furnish(program)
    with program.served(reads) as api:
        assert program.run("-p", "\n".join(RULES), *FREE).code == 0
        while len(compactions(program.facts())) < 5:
            assert program.run("-p", "more", "-c", *FREE[2:]).out == "done\n"
        requests = [str(body) for body in api.bodies]
        api.no_invalid()
    assert [rule for rule in RULES for request in requests if rule not in request] == []


FORBIDDEN = {
    "a denied command": call("Bash", command="touch made"),
    "a command that must be asked for": call("Bash", command="cp f0.txt made"),
    "a file in plan mode": call("Write", file_path="made", content="x"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_was_forbidden_stays_so_after_a_compaction(program: Program, what: str) -> None:
    furnish(program)

    def model(prompt: Prompt, state: dict[str, Any]) -> list[dict[str, Any]]:
        if "try it" in prompt.last_text and not prompt.results:
            return [FORBIDDEN[what]]
        return [text("done")] if "try it" in str(prompt.messages[-3:]) else reads(prompt, state)

    rules = '{"permissions":{"deny":["Bash(touch *)"],"ask":["Bash(cp *)"],"allow":["Bash"]}}'
    mode = "plan" if "plan" in what else "default"
    flags = ("--settings", rules, "--permission-mode", mode)
    with program.served(model):
        assert program.run("-p", "go", *SMALL, *flags).out == "done\n"
        assert compactions(program.facts())
        assert program.run("-p", "try it", "-c", *flags).code == 0
    last = [entry.fact for entry in program.facts() if isinstance(entry.fact, Result)][-1]
    assert last.error
    assert not (program.folder / "made").exists()


def test_what_is_done_is_never_told_as_open_again(program: Program) -> None:
    furnish(program)
    steps = [f"Convert module m{number * 31}" for number in range(140)]

    def status(number: int, done: int) -> str:
        return "completed" if number < done else "in_progress" if number == done else "pending"

    def model(prompt: Prompt, state: dict[str, Any]) -> list[dict[str, Any]]:
        if ASIDE in prompt.last_text:
            return [text("Modules are converted one by one.")]
        done = state["done"] = state.get("done", -1) + 1
        todos = [{"content": s, "status": status(n, done)} for n, s in enumerate(steps)]
        if done > len(steps):
            return [text("done")]
        if done % 2:
            return [call("Read", file_path=f"f{done % READS}.txt")]
        return [call("TodoWrite", todos=todos[max(0, done - 5) : done + 5])]

    with program.served(model) as api:
        done = program.run("-p", "Convert all modules.", *FREE)
        assert (done.code, done.out) == (0, "done\n"), done.err
        api.no_invalid()
    told, finished = 0, set[str]()
    for entry in program.facts():
        if isinstance(entry.fact, Changed) and entry.fact.what == "todos":
            todos = json.loads(entry.fact.value)
            finished |= {todo["content"] for todo in todos if todo["status"] == "completed"}
        if isinstance(entry.fact, Compacted):
            told += 1
            lines = extract_text(entry.fact.summary).splitlines()
            still = {
                line[len("- [pending] ") :] for line in lines if line.startswith("- [pending]")
            }
            assert still and not still & finished
    assert told >= 5


def test_two_useless_compactions_are_remembered_after_a_kill(
    program: Program, tmp_path: Path
) -> None:
    furnish(program)
    usage = {"input_tokens": 7_800, "cache_creation_input_tokens": 0, "cache_creation": {}}

    def model(prompt: Prompt, state: dict[str, Any]) -> Reply:
        looks = [call("Glob", pattern=f"f{prompt.n}*")]
        said = [text("So far.")] if ASIDE in prompt.last_text else looks
        return Reply(tuple(said), usage=usage | {"cache_read_input_tokens": 0})

    with program.served(model):
        done = mortal(program, 60, "torn", tmp_path / "acks").run("-p", "go", *FREE)
        assert done.code == -9, done.err
    (log,) = program.logs()
    with SessionLog.open(log.parent) as held:
        session = Session(held)
        assert session.strikes.is_out
    entries = read(log)
    assert len(compactions(entries)) == 2
    assert len([entry for entry in entries if isinstance(entry.fact, Assistant)]) > 5
