"""Many processes, killed at any moment: nothing torn, nothing lost, an index of what is there."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.memory.test_memories import opened
from travois.memory.index import INDEX_FILE
from travois.memory.memory import DropMemory, Memory, PutMemory
from travois.memory.store import FolderMemoryStore

OLD = Memory("old", "It was there before", "project", "As it was.")
GONE = Memory("gone", "It was to go", "user", scope="user")
STEPS = frozenset(("write", "fsync", "open", "os.rename", "os.remove", "os.mkdir", "os.truncate"))
WRITERS, SECONDS = 20, 4.0


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in main memory where there is such a thing: a dead process leaves the same there."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


def change(tmp_path: Path) -> None:
    """One change that touches two folders: a file comes, one changes, one goes."""
    wanted = [
        PutMemory(Memory("fresh", "It comes", "feedback")),
        PutMemory(Memory("old", "It is otherwise", "project", "As it is.")),
        DropMemory("gone", "user"),
    ]
    opened(tmp_path).apply(wanted, why="a night")


def state(memories: FolderMemoryStore) -> dict[str, str]:
    return {memory.name: memory.body for memory in memories.read_all()}


def whole(memories: FolderMemoryStore) -> None:
    """The index tells what is there, and no half-written file lies about."""
    for folder in memories.folders().values():
        files = {path.name for path in folder.glob("*") if path.is_file()}
        names = {path.stem for path in folder.glob("[!.]*.md")} - {"MEMORY"}
        assert files == {f"{name}.md" for name in names} | ({INDEX_FILE} if names else set())
        lines = (folder / INDEX_FILE).read_text().splitlines() if names else []
        assert [line.partition("]")[0][3:] for line in lines] == sorted(names)
    assert memories.find_flaws() == []


def dying(act: Callable[[], object], *, at: int) -> bool:
    """Do something in a process that is gone at its nth step towards the disk; whether it lived.

    Every other time, half of what it was writing at that moment is written.
    """
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left, write, fsync = at, os.write, os.fsync

    def step(name: str, _: object) -> None:
        nonlocal left
        left -= name in STEPS
        if left < 0:
            os._exit(9)

    def cut(fd: int, data: bytes) -> int:
        if left == 0 and at % 2:
            write(fd, data[: len(data) // 2])
        step("write", None)
        return write(fd, data)

    def synced(fd: int) -> None:
        step("fsync", None)
        fsync(fd)

    try:
        os.write, os.fsync = cut, synced
        sys.addaudithook(step)
        act()
        os._exit(0)
    finally:
        os._exit(1)


BEFORE, AFTER = {"old": "As it was.", "gone": ""}, {"old": "As it is.", "fresh": ""}


def test_a_process_that_dies_at_any_step_has_changed_all_or_nothing(quick: Path) -> None:
    seen: list[dict[str, str]] = []
    lived = False
    while not lived:
        folder = quick / str(len(seen))
        opened(folder).apply([PutMemory(OLD), PutMemory(GONE)], why="first")
        lived = dying(partial(change, folder), at=len(seen))
        if len(seen) % 3 == 0:
            dying(opened(folder).read_all, at=len(seen) // 3)  # whoever mends it may die, too
        again = opened(folder)
        seen.append(state(again))
        again.apply([PutMemory(Memory("later", "Life goes on", "project"))], why="next")
        whole(again)
    assert len(seen) > 50
    assert seen == [BEFORE] * seen.count(BEFORE) + [AFTER] * seen.count(AFTER)
    assert seen[-1] == AFTER


def test_a_process_that_dies_while_undoing_has_undone_all_or_nothing(quick: Path) -> None:
    for at in range(0, 60, 4):
        folder = quick / str(at)
        opened(folder).apply([PutMemory(OLD), PutMemory(GONE)], why="first")
        change(folder)
        dying(opened(folder).undo, at=at)
        again = opened(folder)
        assert state(again) in (BEFORE, AFTER)
        if state(again) == AFTER:
            again.undo()
        assert state(again) == BEFORE
        whole(again)


def writing(tmp_path: Path, writer: int, tell: int) -> None:
    """Write memories, and say so of each when it is kept; now and then one is dropped again."""
    memories = opened(tmp_path)
    for number in range(10_000):
        name = f"w{writer}-{os.getpid()}-{number}"
        memories.apply(
            [PutMemory(Memory(name, f"By {writer}", "project", f"Body of {name}"))], why="w"
        )
        os.write(tell, f"{name}\n".encode())


def test_twenty_processes_that_are_killed_lose_nothing_that_was_kept(quick: Path) -> None:
    read, tell = os.pipe()
    chance = random.Random(7)
    fork = get_context("fork")

    def started(writer: int) -> BaseProcess:
        process = fork.Process(target=writing, args=(quick, writer, tell))
        process.start()
        return process

    writers = [started(number) for number in range(WRITERS)]
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(chance.uniform(0, 0.05))
        victim = chance.randrange(WRITERS)
        os.kill(writers[victim].pid or 0, signal.SIGKILL)
        writers[victim].join()
        writers[victim] = started(victim)
    for process in writers:
        process.kill()
        process.join()
    os.close(tell)
    with os.fdopen(read) as file:
        kept = file.read().split()
    memories = opened(quick)
    found = state(memories)
    assert len(kept) > WRITERS
    assert kept == list(dict.fromkeys(kept))
    assert set(kept) <= set(found)
    assert all(body == f"Body of {name}" for name, body in found.items())
    memories.apply([PutMemory(OLD)], why="last")
    assert memories.find_flaws() == []
    history = [one.files[0].file for one in memories.history(100_000)]
    assert sorted(history) == sorted(f"{name}.md" for name in (*found, "old"))
