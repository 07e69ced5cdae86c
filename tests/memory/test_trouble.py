"""Memory folders that are not as they should be: it is told, nothing is lost, nothing crashes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from tests.memory.test_memories import PORT, UV, opened, stamped
from travois.core.errors import UserError
from travois.memory.memory import DropMemory, Memory, PutMemory
from travois.memory.store import FolderMemoryStore


@pytest.fixture
def memories(tmp_path: Path) -> FolderMemoryStore:
    return opened(tmp_path)


@pytest.fixture
def folder(memories: FolderMemoryStore) -> Path:
    memories.add(UV)
    return memories.folders()["project"]


def whats(memories: FolderMemoryStore) -> dict[str, str]:
    return {os.path.basename(flaw.where): flaw.what for flaw in memories.find_flaws()}


def test_files_that_are_no_memories_are_told_and_left_alone(
    memories: FolderMemoryStore, folder: Path
) -> None:
    junk = {
        "binary.md": b"\x7fELF\0\1\2",
        "huge.md": b"x" * 5_000_000,
        "front.md": b"---\ntype: wish\nno end",
        "long.md": b"y" * 9_000,
        "latin.md": b"caf\xe9",
        "READ ME.md": b"Loud.\n",
    }
    for name, data in junk.items():
        (folder / name).write_bytes(data)
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    wrong = whats(memories)
    assert wrong == {
        "binary.md": "a memory cannot be read: it is a binary file",
        "huge.md": "a memory cannot be read: it has 5,000,000 bytes (limit 4,194,304)",
        "front.md": "the front matter is not closed; add a line with --- below it",
        "long.md": "a line has more than 4,000 characters",
        "folder.md": "a memory cannot be read: Is a directory",
        "pipe.md": "a memory cannot be read: it is not a regular file",
        "MEMORY.md": "the index does not match the memories",
    }
    assert all(flaw.fix for flaw in memories.find_flaws())
    names = ["READ ME", "front", "latin", "long", "use-uv"]
    assert [one.name for one in memories.read_all()] == names
    assert [one.name for one in memories.search("loud", limit=5)] == ["READ ME"]
    done = memories.apply(
        [PutMemory(PORT), PutMemory(replace(PORT, name="binary")), DropMemory("huge")], why="w"
    )
    assert done.refused == ()
    memories.undo(done.id)
    assert {name: (folder / name).read_bytes() for name in junk} == junk
    assert "MEMORY.md" not in whats(memories)
    assert "- [READ ME](READ%20ME.md): Loud." in (folder / "MEMORY.md").read_text()


def test_a_file_that_a_person_called_by_an_odd_name_can_be_changed(
    memories: FolderMemoryStore, folder: Path
) -> None:
    (folder / "READ ME.md").write_text("Loud.\n")
    told = memories.get("READ ME")
    assert memories.apply([PutMemory(replace(told, body="Quiet."))], why="w").refused == ()
    assert memories.get("READ ME").body == "Quiet."
    assert memories.apply([PutMemory(replace(told, name="read me"))], why="w").refused == (
        "read me: READ ME exists and differs only in case; use that name",
    )


def test_a_name_that_is_not_text_is_told(memories: FolderMemoryStore, folder: Path) -> None:
    with open(os.fsencode(folder) + b"/caf\xe9.md", "wb") as file:
        file.write(b"x")
    assert next(flaw.what for flaw in memories.find_flaws()) == (
        "a memory cannot be read: its name is not valid UTF-8"
    )
    assert memories.apply([PutMemory(PORT)], why="w").refused == ()
    assert [one.name for one in memories.read_all()] == ["port", "use-uv"]


def test_links_are_never_followed(
    memories: FolderMemoryStore, folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("Private.\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "more.md").write_text("Private, too.\n")
    (folder / "port.md").symlink_to(secret)
    (folder / "pinned").symlink_to(outside)
    (folder / "topics").symlink_to(outside)
    (folder / "inbox").symlink_to(outside)
    assert memories.read_all() == (stamped(UV),)
    assert whats(memories) == {
        "port.md": "a memory cannot be read: it is a symbolic link, and links are not followed",
        "pinned": "the folder is ignored: it is a symbolic link, and links are not followed",
        "topics": "the folder is ignored: it is a symbolic link, and links are not followed",
    }
    done = memories.apply([PutMemory(PORT), PutMemory(replace(UV, body="More."))], why="w")
    assert done.refused == ("port: it is a symbolic link, and links are not followed",)
    with pytest.raises(UserError, match="it is a symbolic link"):
        memories.add(replace(PORT, name="mine", pinned=True))
    with pytest.raises(UserError, match="it is a symbolic link"):
        memories.propose([PutMemory(PORT)], why="w")
    many = [PutMemory(Memory(f"m{n}", "x" * 100, "project")) for n in range(250)]
    with pytest.raises(UserError, match="it is a symbolic link"):
        memories.apply(many, why="an index of several pages")
    assert [one.name for one in memories.read_all()] == ["use-uv"]
    assert [path.name for path in outside.iterdir()] == ["more.md"]
    assert secret.read_text() == "Private.\n"
    assert (folder / "port.md").is_symlink()


def test_what_lies_where_the_index_belongs_is_kept_beside_it(
    memories: FolderMemoryStore, folder: Path
) -> None:
    (folder / "MEMORY.md").write_bytes(b"\0\xff junk")
    assert memories.index().endswith("MEMORY.md:\n- [use-uv](use-uv.md): Use uv, never pip\n")
    memories.add(PORT)
    kept = list(folder.glob("MEMORY.md.*.kept"))
    assert [path.read_bytes() for path in kept] == [b"\0\xff junk"]
    assert (folder / "MEMORY.md").read_text().count("\n") == 2
    assert list(whats(memories).values()) == ["it was moved aside because the index belongs there"]
    kept[0].unlink()
    (folder / "MEMORY.md").unlink()
    (folder / "MEMORY.md").mkdir()
    memories.forget("port")
    assert (folder / "MEMORY.md").read_text() == "- [use-uv](use-uv.md): Use uv, never pip\n"


def test_a_folder_that_cannot_be_is_told(memories: FolderMemoryStore, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    assert (memories.read_all(), memories.search("x", limit=3), memories.index()) == ((), (), "")
    with pytest.raises(UserError, match="Memory cannot be written"):
        memories.apply([PutMemory(UV)], why="w")


@pytest.fixture
def humble() -> Iterator[Path]:
    """A folder of somebody to whom things can be forbidden, and that somebody at work."""
    user = os.geteuid()
    os.setresuid(user or 65_534, user or 65_534, user)
    try:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        os.setresuid(user, user, user)


def test_a_folder_that_cannot_be_written_to_is_told_and_read(humble: Path) -> None:
    memories = opened(humble)
    memories.add(UV)
    folder = memories.folders()["project"]
    folder.chmod(0o500)
    assert whats(memories) == {folder.name: "the folder is not writable"}
    with pytest.raises(UserError, match="Memory cannot be written"):
        memories.apply(
            [PutMemory(PORT), PutMemory(replace(PORT, name="mine", scope="user"))], why="w"
        )
    assert opened(humble).read_all() == (stamped(UV),)
    memories.add(replace(PORT, scope="user"))
    folder.chmod(0o700)
    assert [one.name for one in opened(humble).read_all()] == ["use-uv", "port"]


def test_memories_are_read_where_nothing_may_be_written(humble: Path) -> None:
    opened(humble).add(UV)
    places = [humble, *(path for path in humble.rglob("*") if path.is_dir())]
    for place in places:
        place.chmod(0o500)
    memories = opened(humble)
    assert memories.read_all() == (stamped(UV),)
    assert [one.name for one in memories.search("pip packages", limit=3)] == ["use-uv"]
    memories.count_recalls(["use-uv"])
    with pytest.raises(UserError, match="Memory cannot be written"):
        memories.forget("use-uv")
    for place in places:
        place.chmod(0o700)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for some pages only."""
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=240k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_at_any_step_loses_nothing(tiny: Path) -> None:
    ballast = tiny / "ballast"
    for pages in range(8, 30):
        ballast.write_bytes(b"x" * (240 - 4 * pages) * 1024)
        memories = opened(tiny)
        kept, full = list[str](), ""
        while not full:
            name = f"m{len(kept)}"
            wanted = [
                PutMemory(Memory(name, "d", "project", "x" * 3_000)),
                PutMemory(replace(UV, body=name)),
            ]
            try:
                memories.apply(wanted, why="w")
                kept.append(name)
            except UserError as fault:
                full = fault.why
        assert full == "the disk is full"
        ballast.unlink()
        again = opened(tiny)
        found = {one.name: one.body for one in again.read_all()}
        assert sorted(found) == sorted((*kept, *(["use-uv"] if kept else [])))
        assert not kept or found["use-uv"] == kept[-1]
        again.add(PORT)
        assert again.find_flaws() == []
        rmtree(tiny / "home")


def test_a_damaged_history_is_read_as_far_as_it_goes(
    memories: FolderMemoryStore, folder: Path, tmp_path: Path
) -> None:
    memories.add(PORT)
    journal = tmp_path / "home/memory/.history/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(
        b"\0junk\n" + lines[0][:50] + b"\n" + b"".join(lines[2:]) + b'{"state":"beg'
    )
    again = opened(tmp_path)
    assert again.read_all() == (stamped(PORT), stamped(UV))
    assert [one.why for one in again.history()] == ["added by hand"]
    again.forget("port")
    assert [one.why for one in again.history()] == ["forgotten", "edited outside", "added by hand"]
    journal.unlink()
    assert again.read_all() == (stamped(UV),)
    assert again.history() == []
    again.add(PORT)
    assert [one.why for one in again.history()] == ["added by hand", "edited outside"]


def test_a_lost_version_is_not_undone(
    memories: FolderMemoryStore, folder: Path, tmp_path: Path
) -> None:
    done = memories.apply([PutMemory(replace(UV, body="Otherwise."))], why="w")
    name = memories.history()[0].files[0].before
    blob = tmp_path / "home/memory/.history/blobs" / name[:2] / name[2:]
    blob.write_bytes(b"damaged")
    with pytest.raises(UserError, match="The earlier version is lost"):
        memories.undo(done.id)
    assert memories.get("use-uv").body == "Otherwise."
