"""The file that was judged is the file that is opened, whatever happens in between."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.tools.world import World
from travois.core.content import Text
from travois.files import atomic as swap
from travois.files import openat as beneath
from travois.files.disk import MIN_DRAFT_AGE_SECONDS, DiskFiles, remove_stale_drafts
from travois.files.openat import open_parent
from travois.permissions.access import Access
from travois.permissions.resolve_paths import JudgedFiles, resolve_accesses
from travois.ports.tool import AnyTool, ToolError, ToolOutcome
from travois.ports.world import StaleFile, content_digest
from travois.tools.edit import EDIT, WRITE
from travois.tools.read import READ

FILES = DiskFiles()


def read(path: Path | str) -> bytes:
    return anyio.run(lambda: FILES.read(str(path)))


def put(path: Path | str, data: bytes, expect: bytes | None) -> str:
    known = None if expect is None else content_digest(expect)
    return anyio.run(lambda: FILES.replace(str(path), data, expect=known))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a").write_bytes(b"secret")
    return folder


@pytest.mark.parametrize("way", ["link/a", "file"])
def test_no_link_is_followed(tmp_path: Path, outside: Path, way: str) -> None:
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "file").symlink_to(outside / "a")
    for work in (
        lambda: read(tmp_path / way),
        lambda: put(tmp_path / way, b"x", b"secret"),
        lambda: anyio.run(lambda: FILES.stat(str(tmp_path / way))),
    ):
        with pytest.raises(OSError, match="the path changed") as caught:
            work()
        assert caught.value.errno == errno.ELOOP
        assert caught.value.filename == str(tmp_path / way)
    assert os.listdir(outside) == ["a"]
    assert (outside / "a").read_bytes() == b"secret"


def test_nothing_is_made_through_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "nowhere").symlink_to(outside / "missing")
    for way in ("link/b", "link/b/c", "nowhere/b", "nowhere/b/c"):
        with pytest.raises(OSError, match="the path changed"):
            put(tmp_path / way, b"x", None)
    with pytest.raises(StaleFile):
        put(tmp_path / "nowhere", b"x", None)
    assert os.listdir(outside) == ["a"]


def test_a_linked_folder_is_not_listed(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="the path changed"):
        anyio.run(lambda: FILES.list_names(str(tmp_path / "link"), limit=5))


def test_links_that_the_kernel_makes_up_are_no_way_either() -> None:
    fd = os.open("/etc", os.O_RDONLY)
    try:
        for path in (f"/proc/self/fd/{fd}/hostname", "/proc/self/root/etc/hostname"):
            with pytest.raises(OSError, match="the path changed"):
                read(path)
    finally:
        os.close(fd)


def test_the_way_up_is_no_part_of_a_judged_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(OSError, match="was never checked"):
        read(f"{tmp_path}/b/../a")


def test_a_file_in_the_place_of_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(NotADirectoryError) as caught:
        read(tmp_path / "a" / "b")
    assert caught.value.filename == str(tmp_path / "a" / "b")


def test_the_top_folder_can_be_looked_at() -> None:
    found = anyio.run(lambda: FILES.stat("/"))
    assert found is not None and found.kind == "folder"
    assert "etc/" in anyio.run(lambda: FILES.list_names("/", limit=1000))


def test_a_path_longer_than_any_disk_takes_makes_no_folders(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        put(f"{tmp_path}/{'a/' * 2500}x", b"x", None)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_another_program_makes_first_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkdir

    def make(name: str, *, dir_fd: int) -> None:
        made(name, dir_fd=dir_fd)
        made(name, dir_fd=dir_fd)

    monkeypatch.setattr(beneath.os, "mkdir", make)
    put(tmp_path / "a" / "b", b"x", None)
    assert (tmp_path / "a" / "b").read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_would_keep_us_waiting_fails_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    else:
        import socket

        socket.socket(socket.AF_UNIX).bind(str(path))
    with pytest.raises(OSError, match=r"not a regular file|No such device"):
        read(path)
    with pytest.raises(OSError, match="not a regular file"):
        put(path, b"x", b"")
    with pytest.raises(StaleFile):
        put(path, b"x", None)


def test_a_folder_is_held_open_while_its_name_goes_elsewhere(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "ours").mkdir()
    with open_parent(str(tmp_path / "ours" / "a"), missing="fail") as place:
        (tmp_path / "ours").rename(tmp_path / "moved")
        (tmp_path / "ours").symlink_to(outside)
        os.close(place.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    assert os.listdir(tmp_path / "moved") == ["a"]
    assert (outside / "a").read_bytes() == b"secret"


@contextmanager
def swapping(folder: Path, outside: Path) -> Generator[list[int]]:
    """Someone who lets a folder and a link to another one trade names, again and again."""
    stop, rounds, link = threading.Event(), [0], folder.with_name("link")
    link.symlink_to(outside)

    def work() -> None:
        with open_parent(str(folder)) as one:
            while not stop.is_set():
                assert swap._exchange_names(one, one.sibling("link"))
                time.sleep(0)
                rounds[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield rounds
    finally:
        stop.set()
        thread.join()


def test_whoever_swaps_a_folder_for_a_link_gets_nothing_out_and_nothing_in(tmp_path: Path) -> None:
    inner, outside = tmp_path / "ws" / "sub", tmp_path / "outside"
    for folder in (inner, outside):
        folder.mkdir(parents=True)
    (inner / "a").write_bytes(b"ours")
    (outside / "a").write_bytes(b"secret")
    path, made = str(inner / "a"), 0
    seen = set[bytes]()
    with swapping(inner, outside) as rounds:
        while rounds[0] < 3000 or not made:
            with suppress(OSError):
                seen.add(read_now(path))
            with suppress(OSError, StaleFile):
                swap.replace_file(path, b"ours", expect=content_digest(b"ours"))
            with suppress(OSError, StaleFile):
                swap.create_file(str(inner / f"made-{rounds[0]}" / "b"), b"x")
                made += 1
    assert seen == {b"ours"}
    assert made > 0
    assert os.listdir(outside) == ["a"]
    assert (outside / "a").read_bytes() == b"secret"


def test_the_tools_neither_read_nor_write_outside_while_a_folder_is_swapped(tmp_path: Path) -> None:
    world, outside = World(tmp_path), tmp_path / "outside"
    inner = world.folder / "sub"
    outside.mkdir()
    world.write("sub/a", "ours\n")
    (outside / "a").write_text("secret\n")
    calls: list[tuple[AnyTool, dict[str, str]]] = [
        (READ, {"file_path": "sub/a"}),
        (WRITE, {"file_path": "sub/a", "content": "ours\n"}),
        (EDIT, {"file_path": "sub/a", "old_string": "ours", "new_string": "our"}),
        (EDIT, {"file_path": "sub/a", "old_string": "our\n", "new_string": "ours\n"}),
        (WRITE, {"file_path": "sub/b/c", "content": "ours\n"}),
    ]
    said, failed = list[str](), 0

    async def main(rounds: list[int]) -> None:
        nonlocal failed
        while rounds[0] < 2000 or not said or not failed:
            for tool, args in calls:
                try:
                    judged = resolve_accesses(world.access(tool, **args))
                    if not judged[0].target.startswith(world.root):
                        continue
                    outcome = await run(world, tool, args, judged)
                    said.extend(b.text for b in outcome.content if isinstance(b, Text))
                except (OSError, ToolError):
                    failed += 1

    with swapping(inner, outside) as rounds:
        anyio.run(main, rounds)
    assert not any("secret" in text for text in said)
    assert os.listdir(outside) == ["a"]
    assert (outside / "a").read_text() == "secret\n"


async def run(
    world: World, tool: AnyTool, args: dict[str, str], judged: tuple[Access, ...]
) -> ToolOutcome:
    """A call whose paths were judged a moment ago."""
    seen = copy(world)
    seen.files = JudgedFiles(FILES, judged, world.hidden)
    return await tool.run(msgspec.convert(args, tool.args), seen, "t1")


def read_now(path: str) -> bytes:
    with open_parent(path) as place:
        fd = place.open(swap.READ_FLAGS)
    try:
        return swap.read_bytes(fd)
    finally:
        os.close(fd)


def test_drafts_of_the_dead_are_swept_when_the_folder_is_next_written(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    gone = int(dead.stdout)
    draft = f".travois-{gone}-0123456789ab"
    kept = [
        f".travois-{os.getpid()}-0123456789ab",
        ".travois-1-0123456789ab",
        f".travois-{'9' * 30}-0123456789ab",
        f".travois-{gone}-notes",
        f".travois-{gone}-bbbbbbbbbbbb",
    ]
    for name in (draft, *kept):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (0, time.time() - MIN_DRAFT_AGE_SECONDS - 60))
    os.utime(tmp_path / kept[-1])
    folder = tmp_path / f".travois-{gone}-cccccccccccc"
    folder.mkdir()
    os.utime(folder, (0, 0))
    anyio.run(lambda: DiskFiles().replace(str(tmp_path / "a"), b"x", expect=None))
    assert sorted(os.listdir(tmp_path)) == sorted(["a", folder.name, *kept])


def test_sweeping_where_nothing_is_or_may_be_seen_is_nothing(tmp_path: Path) -> None:
    remove_stale_drafts(str(tmp_path / "missing"))
    (tmp_path / "link").symlink_to(tmp_path)
    remove_stale_drafts(str(tmp_path / "link"))


def test_a_draft_that_goes_away_meanwhile_does_not_stop_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f".travois-{2**22 + n}-0123456789ab" for n in range(2)]
    (tmp_path / names[1]).write_bytes(b"half")
    os.utime(tmp_path / names[1], (0, 0))
    monkeypatch.setattr("travois.files.disk.os.listdir", lambda fd: names)
    remove_stale_drafts(str(tmp_path))
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
