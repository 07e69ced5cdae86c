"""Replacing a file while other programs write to it: nobody's update is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from travois.files import atomic as swap
from travois.ports.world import StaleFile, content_digest

RIVAL = """
import sys, time
from travois.ports.world import StaleFile, content_digest
from travois.files import atomic as swap

kind, path, count, gap = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
for number in range(count):
    line = b"%s-%d\\n" % (kind.encode(), number)
    while kind == "append":
        with open(path, "ab", buffering=0) as file:
            file.write(line)
        break
    while kind == "trade":
        with open(path, "rb") as file:
            now = file.read()
        try:
            swap.replace_file(path, now + line, expect=content_digest(now))
            break
        except StaleFile:
            time.sleep(gap)
    time.sleep(gap)
"""


def rival(kind: str, path: Path, *, count: int, gap: float) -> subprocess.Popen[bytes]:
    """Another program that adds lines, in place or by trading files."""
    words = [sys.executable, "-c", RIVAL, kind, str(path), str(count), str(gap)]
    return subprocess.Popen(words)


def between(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], None]) -> None:
    """Let others act just before the first, the second, ... trade of names."""
    real, left = swap._exchange_names, list(actions)

    def trade(draft: str, target: str) -> bool:
        if left:
            left.pop(0)()
        return real(draft, target)

    monkeypatch.setattr(swap, "_exchange_names", trade)


def leases() -> list[str]:
    return Path("/proc/locks").read_text().splitlines()


def append(path: Path, data: bytes = b"theirs") -> None:
    with path.open("ab") as file:
        file.write(data)


def rename_over(path: Path, data: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(data)
    other.rename(path)


def test_programs_that_append_and_programs_that_trade_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    rivals = [
        rival("append", path, count=250, gap=0.004),
        rival("trade", path, count=80, gap=0.004),
    ]
    ours = 0
    while any(other.poll() is None for other in rivals):
        now = path.read_bytes()
        try:
            swap.replace_file(str(path), now + b"ours-%d\n" % ours, expect=content_digest(now))
            ours += 1
        except StaleFile:
            pass
        time.sleep(0.002)
    assert [other.wait() for other in rivals] == [0, 0]
    want = [f"append-{i}" for i in range(250)] + [f"trade-{i}" for i in range(80)]
    want += [f"ours-{i}" for i in range(ours)]
    assert ours > 10
    assert sorted(path.read_text().split()) == sorted(want)
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_renamed_into_place_at_the_last_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    between(monkeypatch, lambda: rename_over(path, b"theirs"))
    with pytest.raises(StaleFile):
        swap.replace_file(str(path), b"ours", expect=content_digest(b"one"))
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_a_writer_who_comes_at_the_last_moment_waits_and_then_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one ")
    writer = threading.Thread(target=append, args=(path,))

    def come() -> None:
        writer.start()
        inode = str(path.stat().st_ino)
        while not any(inode in line and "BREAKING" in line for line in leases()):
            time.sleep(0.001)
        assert path.read_bytes() == b"one "

    between(monkeypatch, come)
    with pytest.raises(StaleFile):
        swap.replace_file(str(path), b"ours", expect=content_digest(b"one "))
    writer.join()
    assert path.read_bytes() == b"one theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_two_versions_that_cannot_both_stand_are_both_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    between(
        monkeypatch,
        lambda: rename_over(path, b"first of theirs"),
        lambda: rename_over(path, b"second of theirs"),
    )
    with pytest.raises(OSError, match="A copy is in") as caught:
        swap.replace_file(str(path), b"ours", expect=content_digest(b"one"))
    assert caught.value.errno == errno.EBUSY
    kept = next(tmp_path.glob("a.kept-*"))
    assert str(kept) in str(caught.value)
    assert (path.read_bytes(), kept.read_bytes()) == (b"second of theirs", b"first of theirs")
    assert len(os.listdir(tmp_path)) == 2


def test_a_file_deleted_at_the_last_moment_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    between(monkeypatch, path.unlink)
    with pytest.raises(StaleFile):
        swap.replace_file(str(path), b"ours", expect=content_digest(b"one"))
    assert os.listdir(tmp_path) == []


def test_without_leases_what_was_taken_out_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one ")
    monkeypatch.delattr(swap.fcntl, "F_SETLEASE")

    between(monkeypatch, lambda: append(path))
    with pytest.raises(StaleFile):
        swap.replace_file(str(path), b"ours", expect=content_digest(b"one "))
    assert path.read_bytes() == b"one theirs"
    swap.replace_file(str(path), b"ours", expect=content_digest(b"one theirs"))
    assert path.read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["a"]


def test_a_disk_that_cannot_trade_names_is_served_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str, *, flag: int) -> None:
        raise OSError(errno.EINVAL, "no such flag", target)

    monkeypatch.setattr(swap, "_call_renameat2", refuse)
    path = tmp_path / "a"
    swap.create_file(str(path), b"one")
    with pytest.raises(StaleFile):
        swap.create_file(str(path), b"again")
    swap.replace_file(str(path), b"two", expect=content_digest(b"one"))
    with pytest.raises(StaleFile):
        swap.replace_file(str(path), b"three", expect=content_digest(b"one"))
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a"]


def test_a_strangers_lock_on_the_folder_does_not_stop_us(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        swap.fcntl.flock(fd, swap.fcntl.LOCK_EX)
        swap.replace_file(str(path), b"two", expect=content_digest(b"one"))
    finally:
        os.close(fd)
    assert path.read_bytes() == b"two"


def test_many_who_create_one_file_are_told_apart(tmp_path: Path) -> None:
    path, winners = tmp_path / "a", list[int]()

    def create(number: int) -> None:
        try:
            swap.create_file(str(path), b"%d" % number)
            winners.append(number)
        except StaleFile:
            pass

    threads = [threading.Thread(target=create, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert path.read_bytes() == b"%d" % winners[0]
    assert os.listdir(tmp_path) == ["a"]
