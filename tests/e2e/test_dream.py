"""Nights as they really happen: many processes, kills, a person in a terminal."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import BinaryIO

import anyio

from tests.e2e.program import Program
from tests.e2e.test_terminal import Screen
from travois.compose.dreaming import ProjectDreams
from travois.compose.open_session import Workspace
from travois.memory.dreaming import lock as night
from travois.memory.dreaming.lock import DreamConditions
from travois.memory.memory import Memory, MemoryConsent, MemoryScope, PutMemory
from travois.memory.store import open_memories
from travois.sessions.home import TravoisHome, identify_project
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

VAULT = "Backups are taken with make vault from the archive branch"
WISH = "Never push to the main branch"
KEPT = {"vault": VAULT, "wish": WISH}
EAGER = ("--settings", '{"memory": {"extract": "off", "dream": {"sessions": 1}}}')


def opened(program: Program) -> ProjectDreams:
    home = TravoisHome(program.home).prepare()
    place = Workspace(home, identify_project(home, str(program.folder)), str(program.folder))
    auto: dict[MemoryScope, MemoryConsent] = {"project": "auto"}
    memories = open_memories(home, place.project, consent=auto, index=None, trusted=False)
    return ProjectDreams(place, memories, DreamConditions(sessions=0))


def seeded(program: Program) -> Program:
    """Two memories, and a double of the first."""
    put = [Memory("vault", VAULT, "project"), Memory("twin", VAULT, "project")]
    opened(program).memories.apply(
        [*map(PutMemory, put), PutMemory(Memory("wish", WISH, "feedback"))], why="x"
    )
    return program


def remembered(program: Program) -> dict[str, str]:
    return {one.name: one.description for one in opened(program).memories.read_all()}


def changed(program: Program) -> list[str]:
    """The ids of all that nights have changed."""
    return [one.id for one in opened(program).memories.history(100_000) if one.why == "dream"]


def dream(program: Program, go: Event, tell: int) -> None:
    """What a session does when it looks whether it is time, and says whether it was."""
    nights = opened(program)
    go.wait()
    seen = nights.check_gates()
    mine = None if isinstance(seen, str) else nights.claim(seen)
    os.write(tell, b"mine\n" if mine else b"not mine\n")
    if mine is not None:
        anyio.run(nights.run, "nobody to ask", mine)


def started(program: Program, number: int) -> tuple[list[BaseProcess], BinaryIO]:
    """So many processes that dream at the same moment, and what they say."""
    fork, (read, tell) = get_context("fork"), os.pipe()
    go = fork.Event()
    some = [fork.Process(target=dream, args=(program, go, tell)) for _ in range(number)]
    for process in some:
        process.start()
    go.set()
    os.close(tell)
    return list(some), os.fdopen(read, "rb")


def last(program: Program) -> None:
    """One more night, which must come to its end."""
    nights = opened(program)
    mine = nights.claim(night.read_lock_state(nights.folder))
    assert mine is not None
    assert anyio.run(nights.run, "nobody to ask", mine).state == "completed"


def test_twenty_processes_dream_one_dream(program: Program) -> None:
    some, told = started(seeded(program), 20)
    with told:
        assert sorted(told) == [b"mine\n"] + [b"not mine\n"] * 19
    for process in some:
        process.join()
    assert [process.exitcode for process in some] == [0] * 20
    assert remembered(program) == KEPT
    assert len(changed(program)) == len(opened(program).list_statuses()) == 1


def test_a_killed_night_has_changed_all_or_nothing_and_the_next_one_comes(program: Program) -> None:
    before = {"twin": VAULT, **KEPT}
    for seed in range(20):
        place = replace(program, home=program.home / str(seed))
        (process,), told = started(seeded(place), 1)
        with told:
            assert told.readline() == b"mine\n"
            time.sleep(random.Random(seed).uniform(0, 0.08))
            process.kill()
            process.join()
        assert remembered(place) in (before, KEPT)
        last(place)
        assert remembered(place) == KEPT
        assert len(changed(place)) == 1


def keep(program: Program, writer: int, tell: int) -> None:
    """Remember one thing after the other, and say so of each when it is kept."""
    memories = opened(program).memories
    for number in range(10_000):
        name = f"w{writer}-{os.getpid()}-{number}"
        memories.apply(
            [PutMemory(Memory(name, f"Host {name} is number {number}", "project"))], why="w"
        )
        os.write(tell, f"{name}\n".encode())


def toss(program: Program, writer: int, tell: int) -> None:
    """Dream one night after the other, whenever nobody else does."""
    nights = opened(program)
    while True:
        if mine := nights.claim(night.read_lock_state(nights.folder)):
            anyio.run(nights.run, "nobody to ask", mine)


def test_remembering_and_dreaming_at_once_loses_nothing_whoever_is_killed(program: Program) -> None:
    seeded(program)
    fork, (read, tell), chance = get_context("fork"), os.pipe(), random.Random(7)

    def started(number: int) -> BaseProcess:
        work = keep if number % 2 else toss
        process = fork.Process(target=work, args=(program, number, tell))
        process.start()
        return process

    some = [started(number) for number in range(20)]
    until = time.monotonic() + 4
    while time.monotonic() < until:
        time.sleep(chance.uniform(0, 0.05))
        victim = chance.randrange(20)
        some[victim].kill()
        some[victim].join()
        some[victim] = started(victim)
    for process in some:
        process.kill()
        process.join()
    os.close(tell)
    with os.fdopen(read) as file:
        kept = set(file.read().split())
    last(program)
    there = remembered(program)
    assert len(kept) > 20 and kept <= set(there)
    assert {name: text for name, text in there.items() if name[0] != "w" or name == "wish"} == KEPT
    assert len(changed(program)) == 1
    times = sorted((one.began, one.over) for one in opened(program).list_statuses())
    assert all(over <= began for (_, over), (began, _) in pairwise(times))


def model(prompt: Prompt, state: object) -> list[Json]:
    """Dreams with care, and in a conversation says little."""
    if "project/vault" not in json.dumps(prompt.messages):
        return [text("hello")]
    if len(prompt.messages) == 1:
        return [call("Bash", command="touch made.txt; sleep 60")]
    return [text('[{"do": "drop", "names": ["project/wish"], "why": "it is in the way"}]')]


def test_a_night_on_command_shows_what_it_does_and_can_be_taken_back(program: Program) -> None:
    seeded(program)
    with program.served(model) as api:
        shown = program.run("dream", "--now", "--dry-run", *program.model)
        files = sorted(program.home.rglob("*"))
        assert (shown.code, remembered(program)) == (0, {"twin": VAULT, **KEPT})
        assert "Nothing was changed" in shown.out
        assert sorted(program.home.rglob("*")) == files
        done = program.run("dream", "--now", *program.model)
        api.no_invalid()
    assert done.code == 0, done.err
    phases = [line for line in done.out.splitlines() if line.endswith(" …")]
    assert phases == ["orient …", "gather …", "consolidate …", "prune …"]
    assert "--- twin.md\n+++ /dev/null" in done.out
    assert "- rejected: drop project/wish: nothing the user has said since" in done.out
    assert list(program.folder.iterdir()) == []
    (id,) = changed(program)
    assert f"Undo: travois memory undo {id}" in done.out
    status = program.run("dream", "--status")
    assert "completed; changed project/" in status.out
    assert program.run("memory", "undo", id).code == 0
    assert remembered(program) == {"twin": VAULT, **KEPT}


def test_without_a_model_a_night_says_that_rules_work_alone(program: Program) -> None:
    done = seeded(program).run("dream", "--now")
    assert (done.code, remembered(program)) == (0, KEPT)
    assert "Used rules only, no model: local/smollm2 is too small for this." in done.out


def test_a_night_runs_beside_a_conversation_and_the_next_one_tells_of_it(program: Program) -> None:
    seeded(program)
    with program.served(model) as api:
        assert program.ask("hello", *EAGER).code == 0
        assert remembered(program) == {"twin": VAULT, **KEPT}
        screen = Screen(program, "--plain", *program.model, *EAGER)
        screen.until("> ")
        until = time.monotonic() + 180
        while "completed" not in program.run("dream").out and time.monotonic() < until:
            time.sleep(0.1)
        row = json.loads(program.run("agents", "--json").out)[-1]
        assert (row["kind"], row["state"], row["doing"]) == (
            "dream",
            "completed",
            "updating: prune",
        )
        assert "touch made.txt" in program.run("agents", "show", row["id"]).out
        assert screen.leave() == 0
        assert remembered(program) == KEPT
        assert program.ask("again", *EAGER).err == ""
        for told in (True, False):
            screen = Screen(program, "--plain", *program.model, *EAGER)
            assert ("memories were consolidated in the background" in screen.until("\n> ")) == told
            assert screen.leave() == 0
        assert all(b"last night" not in exchange.body for exchange in api.requests(1))


def test_a_night_that_runs_is_seen_and_stopped_from_elsewhere(program: Program) -> None:
    seeded(program)
    stalled = [{"match": {"n": 1}, "do": {"stall": {"s": 60}}}]
    with program.served(model, faults=stalled) as api:
        process = program.start("dream", "--now", *program.model)
        api.requests(1)
        assert "running, updating (consolidate)" in program.run("dream").out
        assert program.run("dream", "--now", "--rules").code == 1
        stopped = program.run("dream", "--stop")
        assert (stopped.code, "memories are unchanged" in stopped.out) == (0, True)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert b"Killed: it was stopped. Nothing changed." in out
    assert remembered(program) == {"twin": VAULT, **KEPT}
    assert "Last consolidation: never" in program.run("dream").out


def test_where_nothing_is_remembered_there_is_nothing_to_dream_of(program: Program) -> None:
    done = program.run("dream", "--now")
    assert (done.code, done.err.splitlines()[0]) == (2, "travois: This project has no memories")
    assert not (program.home / "memory").exists()
    assert Path(program.home / "dreams").exists() is False
