"""What the real disk promises to the tools."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from travois.files.disk import MAX_INLINE_READ_BYTES, DiskFiles
from travois.permissions.access import Access
from travois.permissions.resolve_paths import JudgedFiles, resolve_accesses
from travois.ports.world import Files, FileStat, StaleFile, content_digest

T = TypeVar("T")
FILES: Files = DiskFiles()


def judged(*paths: Path, files: Files = FILES) -> Files:
    """The files as a call sees them that was judged to touch these paths."""
    accesses = tuple(Access("write", str(path)) for path in paths)
    return JudgedFiles(files, resolve_accesses(accesses), lambda path: False)


def wait(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work()

    return anyio.run(main)


def replace(path: Path, data: bytes, expect: bytes | None) -> str:
    known = None if expect is None else content_digest(expect)
    return wait(lambda: judged(path).replace(str(path), data, expect=known))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_new_file_gets_the_folders_that_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    assert replace(path, b"hello", None) == content_digest(b"hello")
    assert path.read_bytes() == b"hello"
    assert names(path.parent) == ["c.txt"]


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace(tmp_path / "a", b"x", None)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_file_that_should_not_be_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"theirs")
    with pytest.raises(StaleFile):
        replace(tmp_path / "a", b"ours", None)
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert names(tmp_path) == ["a"]


def test_a_link_that_leads_nowhere_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    replace(tmp_path / "link", b"x", None)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"x"


def test_content_is_replaced_only_if_it_is_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    assert replace(path, b"two", b"one") == content_digest(b"two")
    with pytest.raises(StaleFile):
        replace(path, b"three", b"one")
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["a"]


def test_a_file_that_is_gone_is_stale(tmp_path: Path) -> None:
    with pytest.raises(StaleFile):
        replace(tmp_path / "a", b"two", b"one")
    assert names(tmp_path) == []


def test_mode_owner_and_attributes_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"one")
    path.chmod(0o751)
    os.setxattr(path, "user.note", b"keep me")
    owner = (path.stat().st_uid, path.stat().st_gid)
    replace(path, b"two", b"one")
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o751
    assert (found.st_uid, found.st_gid) == owner
    assert os.getxattr(path, "user.note") == b"keep me"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_stays_when_root_writes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    os.chown(path, 12345, 23456)
    path.chmod(0o4755)
    replace(path, b"two", b"one")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 23456, 0o4755)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "a", tmp_path / "link"
    target.write_bytes(b"one")
    link.symlink_to("real/a")
    replace(link, b"two", b"one")
    assert os.readlink(link) == "real/a"
    assert target.read_bytes() == b"two"
    assert names(target.parent) == ["a"]


def test_a_read_only_file_is_an_error_even_for_root(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        replace(path, b"two", b"one")
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(PermissionError) as caught:
            replace(path, b"two", b"one")
    finally:
        tmp_path.chmod(0o755)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"one"


def test_a_name_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        replace(tmp_path / ("n" * 300), b"x", None)
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    program = f"""
import anyio, resource
from travois.ports.world import content_digest
from travois.files.disk import DiskFiles

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        await DiskFiles().replace({str(path)!r}, b"x" * 5000, expect=content_digest(b"one"))
    except OSError as error:
        print(type(error).__name__, error.filename)

anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"OSError {path}\n", "")
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_a_folder_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        replace(tmp_path / "a", b"x", b"")
    with pytest.raises(StaleFile):
        replace(tmp_path / "a", b"x", None)


def test_a_program_that_has_the_file_open_for_writing_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    with path.open("ab", buffering=0) as log:
        with pytest.raises(OSError, match="open for writing"):
            replace(path, b"two\n", b"one\n")
        log.write(b"more\n")
    assert path.read_bytes() == b"one\nmore\n"
    assert names(tmp_path) == ["log"]


def test_a_program_that_reads_the_file_does_not_hinder(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    with path.open("rb") as reader:
        replace(path, b"two", b"one")
        assert reader.read() == b"one"
    assert path.read_bytes() == b"two"


def test_reading_any_part(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = bytes(range(256)) * (MAX_INLINE_READ_BYTES // 64)
    path.write_bytes(data)

    async def main() -> None:
        for offset, limit in ((0, -1), (10, -1), (10, 20), (0, len(data)), (len(data), 5)):
            end = None if limit < 0 else offset + limit
            assert await FILES.read(str(path), offset=offset, limit=limit) == data[offset:end]
        assert await FILES.read(str(path), limit=0) == b""

    anyio.run(main)


def test_a_file_without_a_size_is_read_to_its_end() -> None:
    assert b"MemTotal" in wait(lambda: FILES.read("/proc/meminfo"))


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            wait(lambda path=path: FILES.read(path))
    with pytest.raises(IsADirectoryError):
        wait(lambda: FILES.read(str(tmp_path)))
    with pytest.raises(OSError, match="not a regular file"):
        replace(tmp_path / "pipe", b"x", b"")


def test_a_path_with_a_nul_is_an_error_of_the_disk() -> None:
    for work in (FILES.stat, FILES.read):
        with pytest.raises(OSError, match="NUL"):
            wait(lambda work=work: work("/a\0b"))  # type: ignore[operator]


def test_what_a_path_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    os.utime(tmp_path / "a", (5, 7))

    async def main() -> None:
        files = judged(tmp_path / "link")
        stats = [await files.stat(str(tmp_path / name)) for name in ("a", "link", "nothing", "a/b")]
        real = os.path.realpath(tmp_path / "a")
        assert stats == [FileStat("file", 3, 7.0), FileStat("file", 3, 7.0, real), None, None]
        folder, zero = await FILES.stat(str(tmp_path)), await FILES.stat("/dev/zero")
        assert folder is not None and folder.kind == "folder"
        assert zero is not None and zero.kind == "other"

    anyio.run(main)


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="links form a loop"):
        wait(lambda: FILES.stat(str(tmp_path / "a")))
    with pytest.raises((OSError, StaleFile)):
        replace(tmp_path / "a", b"x", b"")


def test_the_names_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "a").mkdir()
    assert wait(lambda: FILES.list_names(str(tmp_path), limit=10)) == ["a/", "b.txt"]
    assert len(wait(lambda: FILES.list_names(str(tmp_path), limit=1))) == 1


def test_when_files_were_changed(tmp_path: Path) -> None:
    for second, name in enumerate((b"a", b"b", b"\xff")):
        path = os.path.join(os.fsencode(tmp_path), name)
        with open(path, "wb"):
            os.utime(path, (second, second))
    paths = [os.path.join(tmp_path, name) for name in ("b", "gone", "a", "\udcff", "nul\0")]
    assert wait(lambda: FILES.modified_times(paths)) == [1_000_000_000, 0, 0, 2_000_000_000, 0]


def test_callers_queue_for_one_file_whichever_way_they_come(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0")
    (tmp_path / "link").symlink_to("a")
    disk = DiskFiles()
    files = judged(tmp_path / "a", tmp_path / "link", files=disk)
    inside: list[str] = []

    async def count(name: str) -> None:
        path = str(tmp_path / name)
        async with files.queue(path):
            inside.append(name)
            assert len(inside) == 1
            await anyio.sleep(0.001)
            now = await files.read(path)
            await files.replace(path, b"%d" % (int(now) + 1), expect=content_digest(now))
            inside.remove(name)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for index in range(20):
                group.start_soon(count, "link" if index % 2 else "a")

    anyio.run(main)
    assert (tmp_path / "a").read_bytes() == b"20"
    assert disk._turns == {}


def test_a_cancelled_caller_leaves_the_queue_and_no_draft(tmp_path: Path) -> None:
    files, path = DiskFiles(), tmp_path / "a"
    path.write_bytes(b"one")

    async def main() -> None:
        with anyio.move_on_after(0):
            async with files.queue(str(path)):
                await files.replace(str(path), b"two", expect=content_digest(b"one"))
        async with files.queue(str(path)):
            pass

    anyio.run(main)
    assert path.read_bytes() in (b"one", b"two")
    assert names(tmp_path) == ["a"]
