"""Edit and MultiEdit on a real disk: what they do, say, and refuse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.world import World
from travois.core.content import Text, extract_text
from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.ports.tool import ToolError, ToolOutcome
from travois.ports.world import content_digest
from travois.tools.edit import EDIT, MULTI_EDIT
from travois.tools.read import READ


def edit(world: World, path: str, old: str, new: str, **more: Any) -> ToolOutcome:
    return world.run(EDIT, file_path=path, old_string=old, new_string=new, **more)


def refused(world: World, path: str, old: str, new: str = "new") -> str:
    with pytest.raises(ToolError) as caught:
        edit(world, path, old, new)
    return str(caught.value)


def test_an_edit_shows_what_it_did(world: World) -> None:
    path = world.write("src/a.py", "one\ntwo\nthree\nfour\nfive\n")
    world.run(READ, file_path="src/a.py")
    assert edit(world, "src/a.py", "three", "3\n3.5") == ToolOutcome(
        content=(Text("Edited src/a.py.\n2\ttwo\n3\t3\n4\t3.5\n5\tfour"),),
        detail=(
            f'{{"type":"update","filePath":"{path}","added":2,"removed":1,"structuredPatch":['
            '{"oldStart":1,"oldLines":5,"newStart":1,"newLines":6,'
            '"lines":[" one"," two","-three","+3","+3.5"," four"," five"]}]}'
        ),
        changes=(Changed(f"seen:{path}", content_digest(b"one\ntwo\n3\n3.5\nfour\nfive\n")),),
    )


def test_long_changes_are_shown_in_part(world: World) -> None:
    world.write("a", "x\n")
    new = "\n".join(map(str, range(100)))
    shown = extract_text(edit(world, "a", "x", new).content)
    assert shown.splitlines() == [
        "Edited a.",
        "1\t0",
        "2\t1",
        "3\t2",
        "4\t3",
        "5\t4",
        "... 93 more lines",
        "99\t98",
        "100\t99",
    ]


def test_every_place_at_once(world: World) -> None:
    world.write("a", "x\ny\nx\n")
    outcome = edit(world, "a", "x", "z", replace_all=True)
    assert extract_text(outcome.content).startswith("Edited a in 2 places.\n")
    assert world.bytes("a") == b"z\ny\nz\n"


def test_a_file_that_was_not_read_can_be_edited_by_who_can_quote_it(world: World) -> None:
    world.write("a", "alpha “beta”\n")
    assert edit(world, "a", "alpha", "ALPHA").changes == ()
    assert world.bytes("a") == "ALPHA “beta”\n".encode()


def test_a_file_that_was_not_read_is_not_edited_by_guess(world: World) -> None:
    world.write("a", "alpha “beta”\n")
    assert refused(world, "a", 'alpha "beta"').endswith(
        "You have not read the file in its current state: Read it first."
    )
    world.run(READ, file_path="a")
    assert "the file's own were kept" in extract_text(
        edit(world, "a", 'pha "beta"', 'PHA "beta"').content
    )
    assert world.bytes("a") == "alPHA “beta”\n".encode()


def test_a_file_that_changed_is_edited_as_it_is_and_the_model_is_told(world: World) -> None:
    world.write("a", "one\ntwo\n")
    world.run(READ, file_path="a")
    world.write("a", "zero\none\ntwo\nthree\n")
    outcome = edit(world, "a", "two", "2")
    assert "had changed since you read it" in extract_text(outcome.content)
    assert world.bytes("a") == b"zero\none\n2\nthree\n"
    assert outcome.changes == ()


def test_a_file_that_changed_where_the_edit_would_be_is_refused(world: World) -> None:
    world.write("a", "one\ntwo\n")
    world.run(READ, file_path="a")
    world.write("a", "one\n2\n")
    assert "Read it first" in refused(world, "a", "two")
    world.write("a", "two\ntwo\n")
    assert "2 times" in refused(world, "a", "two")
    assert world.bytes("a") == b"two\ntwo\n"


def test_one_edit_after_another_needs_no_reading_between(world: World) -> None:
    world.write("a", "one\ntwo\n")
    world.run(READ, file_path="a")
    edit(world, "a", "one", "1")
    outcome = edit(world, "a", "two", "2")
    assert "changed since" not in extract_text(outcome.content)
    assert world.bytes("a") == b"1\n2\n"


def test_an_empty_old_string_makes_a_file(world: World) -> None:
    outcome = edit(world, "new/a.txt", "", "hello\n")
    assert extract_text(outcome.content) == "Created new/a.txt."
    assert world.bytes("new/a.txt") == b"hello\n"
    assert world.state[f"seen:{world.root}/new/a.txt"] == content_digest(b"hello\n")
    edit(world, "new/a.txt", "hello", "bye")


def test_an_empty_old_string_fills_an_empty_file(world: World) -> None:
    path = world.write("a", "")
    os.chmod(path, 0o755)
    edit(world, "a", "", "hello\n")
    assert world.bytes("a") == b"hello\n"
    assert os.stat(path).st_mode & 0o777 == 0o755
    assert "only works for an empty" in refused(world, "a", "")


def test_a_link_stays_and_is_mentioned(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("one\n")
    (world.folder / "link").symlink_to(outside)
    outcome = edit(world, "link", "one", "two")
    assert extract_text(outcome.content).startswith(f"Edited link (a link to {outside}).")
    assert (world.folder / "link").is_symlink()
    assert outside.read_text() == "two\n"


def test_a_missing_file_is_refused_with_names_like_it(world: World) -> None:
    world.write("src/parser.py", "")
    world.write("src/Makefile", "")
    assert refused(world, "src/parsre.py", "x") == (
        "src/parsre.py does not exist. Did you mean src/parser.py?"
    )
    assert "Did you mean src/Makefile?" in refused(world, "src/makefile", "x")
    assert "nor does the folder" in refused(world, "nowhere/a.py", "x")


def test_what_is_no_text_is_refused(world: World) -> None:
    world.write("a.bin", b"\x00\x01\x02binary")
    assert refused(world, "a.bin", "binary") == "a.bin is not a text file and cannot be edited."
    (world.folder / "folder").mkdir()
    assert "is a folder" in refused(world, "folder", "x")
    os.mkfifo(world.folder / "pipe")
    assert "not a file" in refused(world, "pipe", "x")


def test_characters_that_the_encoding_cannot_hold_are_refused(world: World) -> None:
    data = "prix: 5 €\n".encode("cp1252")
    world.write("a", data)
    assert refused(world, "a", "prix", "価格") == (
        "The file is CP1252, which cannot encode '価格'; use other characters or convert the file "
        "first (Bash: iconv). You have not read the file in its current state: Read it first."
    )
    assert world.bytes("a") == data


def test_an_unwritable_file_is_an_error_of_the_disk(world: World) -> None:
    path = world.write("a", "one\n")
    os.chmod(path, 0o444)
    with pytest.raises(PermissionError):
        edit(world, "a", "one", "two")
    assert world.bytes("a") == b"one\n"


def test_several_edits_build_on_each_other(world: World) -> None:
    world.write("a", b"one\r\ntwo\r\nthree\r\n")
    world.run(READ, file_path="a")
    outcome = world.run(
        MULTI_EDIT,
        file_path="a",
        edits=[
            {"old_string": "one", "new_string": "1\nextra"},
            {"old_string": "extra\ntwo", "new_string": "2"},
            {"old_string": "e", "new_string": "E", "replace_all": True},
        ],
    )
    assert extract_text(outcome.content).startswith("Edited a in 4 places.")
    assert world.bytes("a") == b"1\r\n2\r\nthrEE\r\n"


def test_several_edits_are_made_all_or_none(world: World) -> None:
    world.write("a", "one\ntwo\n")
    world.run(READ, file_path="a")
    edits = [
        {"old_string": "one", "new_string": "1"},
        {"old_string": "missing", "new_string": "2"},
    ]
    with pytest.raises(
        ToolError, match="Edit 2 of 2 failed; nothing was changed: old_string is not"
    ):
        world.run(MULTI_EDIT, file_path="a", edits=edits)
    assert world.bytes("a") == b"one\ntwo\n"


def test_several_edits_can_make_a_file(world: World) -> None:
    edits = [
        {"old_string": "", "new_string": "one two\n"},
        {"old_string": "two", "new_string": "2"},
    ]
    world.run(MULTI_EDIT, file_path="a", edits=edits)
    assert world.bytes("a") == b"one 2\n"


def test_edits_that_undo_each_other_are_refused(world: World) -> None:
    world.write("a", "one\n")
    edits = [
        {"old_string": "one", "new_string": "two"},
        {"old_string": "two", "new_string": "one"},
    ]
    with pytest.raises(ToolError, match="cancel each other out"):
        world.run(MULTI_EDIT, file_path="a", edits=edits)


def test_no_edits_at_all_are_a_schema_error(world: World) -> None:
    with pytest.raises(msgspec.ValidationError, match="edits"):
        world.run(MULTI_EDIT, file_path="a", edits=[])


def test_what_an_edit_touches_is_said_before(world: World) -> None:
    args = {"old_string": "a", "new_string": "b"}
    inside = Access("write", f"{world.root}/b")
    for path in ("b", "./x/../b", f"{world.root}//b", f"/{world.root}/b"):
        assert world.access(EDIT, file_path=path, **args) == (inside,)
    home = Access("write", os.path.expanduser("~/b"))
    assert world.access(EDIT, file_path="~/b", **args) == (home,)
    assert world.access(MULTI_EDIT, file_path="b", edits=[args]) == (inside,)
    with pytest.raises(ToolError, match="NUL character"):
        world.access(EDIT, file_path="a\0b", **args)


def test_a_name_cannot_play_tricks_on_who_reads_it(world: World) -> None:
    name = "a\nb\x1b[31m\u202ec"
    world.write(name, "one\n")
    escaped = "a\\nb\\x1b[31m\\u202ec"
    args = {"file_path": name, "old_string": "one", "new_string": "two"}
    assert extract_text(world.run(EDIT, **args).content).startswith(f"Edited {escaped}.")
    assert EDIT.summary(msgspec.convert(args, EDIT.args)) == f"Edit {escaped}"
    assert f"Did you mean {escaped}?" in refused(world, name + "d", "x")


def test_an_edit_goes_where_it_said_it_would(world: World, tmp_path: Path) -> None:
    """`link/../a` is `a` beside the link, not beside the folder that it leads to."""
    far = tmp_path / "far" / "folder"
    far.mkdir(parents=True)
    (tmp_path / "far" / "a").write_text("one\n")
    (world.folder / "link").symlink_to(far)
    world.write("a", "one\n")
    edit(world, "link/../a", "one", "two")
    assert (world.bytes("a"), (tmp_path / "far" / "a").read_text()) == (b"two\n", "one\n")


def test_unicode_is_replaced_as_any_other_text(world: World) -> None:
    text = "naïve café 日本語 🎉👩‍👩‍👧 e\u0301\n"
    world.write("a", text)
    for old, new in (("日本", "中"), ("🎉", "🎊"), ("👩‍👩‍👧", "x"), ("e\u0301", "é")):
        edit(world, "a", old, new)
        text = text.replace(old, new)
    assert world.bytes("a") == text.encode()
