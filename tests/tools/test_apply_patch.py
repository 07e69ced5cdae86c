"""Patches in the grammar that OpenAI's models know."""

from __future__ import annotations

import pytest

from tests.tools.world import World
from travois.core.content import extract_text
from travois.ports.tool import ToolError
from travois.tools.apply_patch import APPLY_PATCH


def patched(world: World, *lines: str) -> str:
    text = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
    return extract_text(world.run(APPLY_PATCH, input=text).content)


def test_one_patch_adds_changes_moves_and_deletes_files(world: World) -> None:
    (world.folder / "a.py").write_bytes(b"def one():\n    return 1\n\n\ndef two():\n    return 1\n")
    (world.folder / "old.txt").write_bytes(b"x\n")
    (world.folder / "moved.txt").write_bytes(b"keep\nchange\n")
    told = patched(
        world,
        "*** Update File: a.py",
        "@@ def two():",
        "-    return 1",
        "+    return 2",
        "*** Add File: sub/new.txt",
        "+first",
        "+",
        "+third",
        "*** Delete File: old.txt",
        "*** Update File: moved.txt",
        "*** Move to: there/moved.txt",
        "@@",
        " keep",
        "-change",
        "+changed",
    )
    assert (world.folder / "a.py").read_bytes().endswith(b"def two():\n    return 2\n")
    assert (world.folder / "a.py").read_bytes().startswith(b"def one():\n    return 1\n")
    assert (world.folder / "sub" / "new.txt").read_bytes() == b"first\n\nthird\n"
    assert not (world.folder / "old.txt").exists()
    assert not (world.folder / "moved.txt").exists()
    assert (world.folder / "there" / "moved.txt").read_bytes() == b"keep\nchanged\n"
    assert told.splitlines()[:6] == [
        "Success. Updated the following files:",
        "M a.py",
        "A sub/new.txt",
        "D old.txt",
        "D moved.txt",
        "A there/moved.txt",
    ]


def test_a_patch_that_fits_one_file_of_two_changes_neither(world: World) -> None:
    (world.folder / "a.txt").write_bytes(b"a\n")
    (world.folder / "b.txt").write_bytes(b"b\n")
    with pytest.raises(ToolError, match=r"chunk 1 of 1 in b.txt does not match"):
        patched(
            world,
            "*** Update File: a.txt",
            "-a",
            "+A",
            "*** Update File: b.txt",
            "-x",
            "+B",
        )
    assert (world.folder / "a.txt").read_bytes() == b"a\n"


def test_untouched_bytes_stay_as_they_are(world: World) -> None:
    (world.folder / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo  \r\nthree")
    patched(world, "*** Update File: dos.txt", "@@", " two", "-three", "+drei")
    assert (world.folder / "dos.txt").read_bytes() == b"\xef\xbb\xbfone\r\ntwo  \r\ndrei"


def test_a_chunk_of_added_lines_alone_goes_to_the_end(world: World) -> None:
    (world.folder / "a.txt").write_bytes(b"a\n")
    patched(world, "*** Update File: a.txt", "@@", "+b")
    assert (world.folder / "a.txt").read_bytes() == b"a\nb\n"


def test_the_end_of_the_file_chooses_the_last_of_several_places(world: World) -> None:
    (world.folder / "a.txt").write_bytes(b"x\ny\nx\n")
    patched(world, "*** Update File: a.txt", "@@", "-x", "+z", "*** End of File")
    assert (world.folder / "a.txt").read_bytes() == b"x\ny\nz\n"


def test_a_file_that_was_not_read_is_not_overwritten(world: World) -> None:
    (world.folder / "a.txt").write_bytes(b"precious\n")
    with pytest.raises(ToolError, match="exists and you have not read it"):
        patched(world, "*** Add File: a.txt", "+new")
    assert (world.folder / "a.txt").read_bytes() == b"precious\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("diff --git a b", "the first line must be"),
        ("*** Begin Patch\n*** Update File: a", "The patch is incomplete"),
        ("*** Begin Patch\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "changes nothing in a"),
        ("*** Begin Patch\n*** Add File: a\nplain\n*** End Patch", "does not start with"),
        ("*** Begin Patch\n*** Update File: a\n*hm\n*** End Patch", "must start with one of"),
    ],
)
def test_what_is_no_patch_says_what_is_wrong(world: World, text: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        world.run(APPLY_PATCH, input=text)
