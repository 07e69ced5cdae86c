"""A hundred edits of one file at once, while other programs write to it too."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from tests.files.test_files_race import append, rival
from tests.tools.world import World
from travois.files.disk import DiskFiles
from travois.ports.tool import ToolError
from travois.ports.world import StaleFile, content_digest
from travois.tools.edit import EDIT, MULTI_EDIT, WRITE
from travois.tools.read import READ


async def edit(world: World, number: int, done: list[int]) -> None:
    """Mark a line as done; remember it only if the tool said that it was."""
    change = {"old_string": f"line {number} open", "new_string": f"line {number} done"}
    with suppress(ToolError):
        if number % 2:
            await world.call(EDIT, file_path="a", **change)
        else:
            await world.call(MULTI_EDIT, file_path="a", edits=[change])
        done.append(number)


@pytest.mark.parametrize("read", [True, False], ids=["after reading", "without reading"])
def test_a_hundred_edits_at_once_all_arrive(tmp_path: Path, *, read: bool) -> None:
    world, done = World(tmp_path), list[int]()
    world.write("a", "".join(f"line {number} open\n" for number in range(100)))

    async def main() -> None:
        if read:
            await world.call(READ, file_path="a")
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(edit, world, number, done)

    anyio.run(main)
    assert sorted(done) == list(range(100))
    assert world.bytes("a") == b"".join(b"line %d done\n" % number for number in range(100))


def test_a_hundred_edits_against_other_programs_lose_nothing(tmp_path: Path) -> None:
    world, done = World(tmp_path), list[int]()
    path = Path(world.write("a", "".join(f"line {number} open\n" for number in range(100))))
    before = path.stat().st_size
    rivals = [
        rival("append", path, count=120, gap=0.008),
        rival("trade", path, count=40, gap=0.02),
    ]

    async def main() -> None:
        await world.call(READ, file_path="a")
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(edit, world, number, done)

    while path.stat().st_size == before:
        time.sleep(0.001)
    anyio.run(main)
    assert [other.wait() for other in rivals] == [0, 0]
    lines = path.read_text().splitlines()
    marked = sorted(int(n) for n in re.findall(r"line (\d+) done", path.read_text()))
    assert marked == sorted(done), "what was said to be done is, and nothing else"
    assert len(done) > 90
    theirs = [f"append-{n}" for n in range(120)] + [f"trade-{n}" for n in range(40)]
    assert sorted(line for line in lines if "-" in line) == sorted(theirs)
    assert len(lines) == 260
    assert os.listdir(world.root) == ["a"]


class Meddling(DiskFiles):
    """A disk on which another program writes between each reading and replacing."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        if self.times and expect is not None:
            self.times -= 1
            append(Path(path), b"theirs\n")
        return await super().replace(path, data, expect=expect)


def test_an_edit_is_tried_again_on_what_the_other_program_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.files = Meddling(3)
    world.write("a", "one\n")
    world.run(READ, file_path="a")
    outcome = world.run(EDIT, file_path="a", old_string="one", new_string="two")
    assert "had changed since you read it" in outcome.content[0].text
    assert world.bytes("a") == b"two\ntheirs\ntheirs\ntheirs\n"


def test_an_edit_that_never_gets_its_turn_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.files = Meddling(1_000)
    world.write("a", "one\n")
    with pytest.raises(ToolError, match="Another program keeps changing a; your edit was not made"):
        world.run(EDIT, file_path="a", old_string="one", new_string="two")
    assert world.bytes("a").startswith(b"one\ntheirs\n")


def test_a_write_never_overwrites_what_came_between(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.files = Meddling(1)
    world.write("a", "one\n")
    world.run(READ, file_path="a")
    with pytest.raises(ToolError, match="changed by another program just now"):
        world.run(WRITE, file_path="a", content="two\n")
    assert world.bytes("a") == b"one\ntheirs\n"


def test_a_replacement_from_a_second_process_of_ours_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")

    async def main() -> None:
        ours, theirs = DiskFiles(), DiskFiles()
        async with ours.queue(str(path)):
            now = await ours.read(str(path))
            await theirs.replace(str(path), b"theirs", expect=content_digest(b"one"))
            with pytest.raises(StaleFile):
                await ours.replace(str(path), b"ours", expect=content_digest(now))

    anyio.run(main)
    assert path.read_bytes() == b"theirs"
