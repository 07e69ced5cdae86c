"""Write: whole files, and nothing lost that the model did not know of."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest

from tests.tools.world import World
from travois.core.content import Text, extract_text
from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.ports.tool import ToolError, ToolOutcome
from travois.ports.world import content_digest
from travois.tools.edit import WRITE
from travois.tools.read import READ


def refused(world: World, path: str, content: str = "new") -> str:
    with pytest.raises(ToolError) as caught:
        world.run(WRITE, file_path=path, content=content)
    return str(caught.value)


def test_a_new_file_is_made_with_its_folders(world: World) -> None:
    path = f"{world.root}/src/deep/a.py"
    assert world.run(WRITE, file_path="src/deep/a.py", content="one\ntwo\n") == ToolOutcome(
        content=(Text("Created src/deep/a.py: 2 lines."),),
        detail=f'{{"type":"create","filePath":"{path}","added":2,"removed":0}}',
        changes=(Changed(f"seen:{path}", content_digest(b"one\ntwo\n")),),
    )
    assert world.bytes("src/deep/a.py") == b"one\ntwo\n"


def test_a_file_just_written_may_be_written_again(world: World) -> None:
    world.run(WRITE, file_path="a", content="one\ntwo\n")
    outcome = world.run(WRITE, file_path="a", content="one\n2\n3\n")
    assert extract_text(outcome.content) == "Wrote a: +2 -1."
    assert '"lines":[" one","-two","+2","+3"]' in outcome.detail
    assert world.bytes("a") == b"one\n2\n3\n"


def test_a_file_that_was_not_read_is_not_overwritten(world: World) -> None:
    world.write("a", "precious\n")
    assert refused(world, "a") == (
        "a exists and you have not read it; nothing was written. "
        "Read it first, so that nothing is lost; to change part of it, use Edit."
    )
    assert world.bytes("a") == b"precious\n"


def test_a_file_that_changed_since_is_not_overwritten(world: World) -> None:
    world.write("a", "one\n")
    world.run(READ, file_path="a")
    world.write("a", "one\nprecious\n")
    assert "a has changed since you read it" in refused(world, "a")
    assert world.bytes("a") == b"one\nprecious\n"
    world.run(READ, file_path="a")
    world.run(WRITE, file_path="a", content="new")
    assert world.bytes("a") == b"new"


def test_an_empty_file_has_nothing_to_lose(world: World) -> None:
    world.write("a", "")
    world.run(WRITE, file_path="a", content="new")
    assert world.bytes("a") == b"new"


@pytest.mark.parametrize(
    ("before", "after", "remark"),
    [
        (codecs.BOM_UTF8 + b"old", codecs.BOM_UTF8 + "é\n".encode(), " (kept UTF-8 with BOM)"),
        ("\ufeffold\n".encode("utf-16-le"), "\ufeffé\n".encode("utf-16-le"), " (kept UTF-16-LE)"),
        (b"old\r\nfile\r\n", "é\r\n".encode(), " (kept CRLF)"),
        (b"old\rfile\r", "é\r".encode(), " (kept CR)"),
        (b"old\r\nfile\n", "é\n".encode(), ""),
        (b"caf\xe9 old\n", b"\xe9\n", " (kept CP1252)"),
        ("größer\n".encode() + b"\xff\n", "é\n".encode(), ""),
        (b"\x00\x01\x02", "é\n".encode(), ""),
    ],
)
def test_the_encoding_and_the_line_ends_stay(
    world: World, before: bytes, after: bytes, remark: str
) -> None:
    path = world.write("a", before)
    world.state[f"seen:{path}"] = content_digest(before)
    outcome = world.run(WRITE, file_path="a", content="é\n")
    assert world.bytes("a") == after
    assert extract_text(outcome.content).startswith(f"Wrote a{remark}: ")


def test_line_ends_that_are_written_out_are_meant(world: World) -> None:
    world.write("a", b"old\r\n")
    world.run(READ, file_path="a")
    world.run(WRITE, file_path="a", content="x\r\ny\n")
    assert world.bytes("a") == b"x\r\ny\n"


def test_what_the_old_encoding_cannot_hold_is_utf_8_and_told(world: World) -> None:
    world.write("a", b"caf\xe9\n")
    world.run(READ, file_path="a")
    outcome = world.run(WRITE, file_path="a", content="日本\n")
    assert extract_text(outcome.content).startswith("Wrote a (as UTF-8; it was CP1252): ")
    assert world.bytes("a") == "日本\n".encode()


def test_the_mode_stays(world: World) -> None:
    path = world.write("run.sh", "old\n")
    os.chmod(path, 0o755)
    world.run(READ, file_path="run.sh")
    world.run(WRITE, file_path="run.sh", content="new\n")
    assert os.stat(path).st_mode & 0o777 == 0o755


def test_a_link_stays_and_is_mentioned(world: World, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old\n")
    (world.folder / "link").symlink_to(target)
    world.run(READ, file_path="link")
    outcome = world.run(WRITE, file_path="link", content="new\n")
    assert extract_text(outcome.content) == f"Wrote link (a link to {target}): +1 -1."
    assert (world.folder / "link").is_symlink()
    assert target.read_text() == "new\n"


def test_a_folder_is_not_written(world: World) -> None:
    world.write("folder/a", "")
    assert refused(world, "folder") == (
        "folder is a folder; list it with Glob or Bash ls. It contains a."
    )


def test_a_file_in_the_way_of_a_folder_is_an_error_of_the_disk(world: World) -> None:
    world.write("a", "")
    with pytest.raises(OSError, match="a"):
        world.run(WRITE, file_path="a/b", content="x")
    assert world.bytes("a") == b""


def test_large_differences_are_counted_and_not_told(world: World) -> None:
    world.run(WRITE, file_path="a", content="x\n" * 5_000)
    outcome = world.run(WRITE, file_path="a", content="y\n" * 6_000)
    assert extract_text(outcome.content) == "Wrote a: +6000 -5000."
    assert len(outcome.detail) < 200
    assert outcome.detail.endswith('"truncated":true}')


def test_what_a_write_touches_is_said_before(world: World) -> None:
    target = f"{world.root}/a"
    assert world.access(WRITE, file_path="a", content="") == (Access("write", target),)
