"""Files are read once while they stay the same, and never shown as they no longer are."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from travois.files.disk import MAX_CACHED_FILE_BYTES, MIN_REST_SECONDS, DiskFiles, ReadCache
from travois.ports.world import Files, StaleFile, content_digest

T = TypeVar("T")


class Counted(DiskFiles):
    """The disk, and how often it was read; `meanwhile` happens while it is."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.meanwhile: Callable[[], object] = lambda: None

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        self.reads += 1
        data = await super().read(path, offset=offset, limit=limit)
        self.meanwhile()
        return data


class Minutes:
    """A clock that is ahead of the disk's: all files have rested."""

    def __init__(self, ahead: float = 2 * MIN_REST_SECONDS) -> None:
        self.ahead = ahead

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def disk() -> Counted:
    return Counted()


def wait(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work()

    return anyio.run(main)


def read(files: Files, path: Path, **part: int) -> bytes:
    return wait(lambda: files.read(str(path), **part))


def failure(files: Files, path: str) -> str:
    try:
        wait(lambda: files.read(path))
    except OSError as error:
        return str(error)
    return ""


def test_ten_readers_of_a_file_read_it_from_the_disk_once(tmp_path: Path, disk: Counted) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    cache = ReadCache(disk, clock=Minutes())
    assert {read(cache, path, limit=50_000_000) for _ in range(10)} == {b"hello"}
    assert disk.reads == 1


CHANGES: dict[str, Callable[[Path], object]] = {
    "another size": lambda path: path.write_bytes(b"hello again"),
    "the same size": lambda path: path.write_bytes(b"HELLO"),
    "the same size and time": lambda path: (path.write_bytes(b"HELLO"), os.utime(path, (1, 1))),
    "another file in its place": lambda path: (
        path.with_name("b").write_bytes(b"HELLO"),
        path.with_name("b").rename(path),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_file_is_read_again(
    tmp_path: Path, disk: Counted, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    os.utime(path, (1, 1))
    cache = ReadCache(disk, clock=Minutes())
    assert read(cache, path) == b"hello"
    time.sleep(0.02)  # the disk's clock ticks
    change(path)
    assert read(cache, path) == path.read_bytes() != b"hello"


def test_a_file_that_was_changed_a_moment_ago_is_not_kept(tmp_path: Path, disk: Counted) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    cache = ReadCache(disk, clock=Minutes(ahead=MIN_REST_SECONDS / 2))
    for content in (b"hello", b"HELLO", b"hallo"):
        path.write_bytes(content)
        assert read(cache, path) == content
    assert (disk.reads, cache.size) == (3, 0)


def test_what_was_read_while_others_wrote_is_not_kept(tmp_path: Path, disk: Counted) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    time.sleep(0.02)
    cache = ReadCache(disk, clock=Minutes())
    disk.meanwhile = lambda: path.write_bytes(b"HELLO")
    assert read(cache, path) == b"hello"
    disk.meanwhile = lambda: None
    assert read(cache, path) == b"HELLO"


def test_a_replaced_file_is_read_as_it_is_and_a_stale_replacement_is_refused(
    tmp_path: Path, disk: Counted
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    cache = ReadCache(disk, clock=Minutes())
    first = content_digest(read(cache, path))
    wait(lambda: cache.replace(str(path), b"HELLO", expect=first))
    assert read(cache, path) == b"HELLO"
    with pytest.raises(StaleFile):
        wait(lambda: cache.replace(str(path), b"hallo", expect=first))


def test_parts_and_large_files_go_to_the_disk(tmp_path: Path, disk: Counted) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"hello")
    large.write_bytes(bytes(MAX_CACHED_FILE_BYTES + 1))
    cache = ReadCache(disk, clock=Minutes())
    for _ in range(2):
        assert read(cache, small, offset=1) == b"ello"
        assert read(cache, small, limit=2) == b"he"
        assert read(cache, large) == bytes(MAX_CACHED_FILE_BYTES + 1)
    assert (disk.reads, cache.size) == (6, 0)


def test_the_room_is_bounded_and_the_longest_unread_goes_first(
    tmp_path: Path, disk: Counted
) -> None:
    cache = ReadCache(disk, room=300, clock=Minutes())
    paths = [tmp_path / str(number) for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 100)
    for number in (0, 1, 2, 0, 3):
        read(cache, paths[number])
    assert (disk.reads, cache.size) == (4, 300)
    for number in (0, 2, 3):
        read(cache, paths[number])
    assert disk.reads == 4
    read(cache, paths[1])
    assert disk.reads == 5


def test_the_same_content_of_many_files_is_held_once(tmp_path: Path, disk: Counted) -> None:
    cache = ReadCache(disk, clock=Minutes())
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 100)
        read(cache, tmp_path / name)
    assert (disk.reads, cache.size) == (3, 100)


def test_what_cannot_be_read_fails_as_on_the_disk(tmp_path: Path, disk: Counted) -> None:
    cache = ReadCache(disk, clock=Minutes())
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    read(cache, tmp_path / "real")
    for name in ("missing", "link", "", "a\0b"):
        path = f"{tmp_path}/{name}"
        assert failure(cache, path) == failure(disk, path) != ""


def test_deleting_the_cache_changes_nothing_but_time(tmp_path: Path, disk: Counted) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    warm = ReadCache(disk, clock=Minutes())
    read(warm, path)
    assert read(warm, path) == read(ReadCache(disk), path) == b"hello"
    assert disk.reads == 2
