"""Read: text in pages, in any encoding, and what is no text."""

from __future__ import annotations

import codecs
import os
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.world import World
from travois.context.tool_results import ResultRoom
from travois.core.content import Media, Text, extract_text
from travois.core.facts import Changed
from travois.core.tokens import estimate_tokens
from travois.permissions.access import Access
from travois.ports.tool import ToolError, ToolOutcome
from travois.ports.world import content_digest
from travois.tools import read as module
from travois.tools.edit import EDIT
from travois.tools.read import READ
from travois.tools.text import LinePage, TextPosition

ROOM = ResultRoom(cap=25_000, share=25_000)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def read(world: World, path: str, **more: Any) -> str:
    return extract_text(world.run(READ, file_path=path, **more).content)


def refused(world: World, path: str, **more: Any) -> str:
    with pytest.raises(ToolError) as caught:
        read(world, path, **more)
    return str(caught.value)


def test_text_has_line_numbers_and_is_remembered_as_seen(world: World) -> None:
    path = world.write("a.py", "import os\n\nprint(1)\n")
    assert world.run(READ, file_path="a.py") == ToolOutcome(
        content=(Text("1\timport os\n2\t\n3\tprint(1)"),),
        lines=3,
        changes=(Changed(f"seen:{path}", content_digest(b"import os\n\nprint(1)\n")),),
    )


def test_an_empty_file_is_said_to_be_empty(world: World) -> None:
    path = world.write("a", "")
    assert read(world, "a") == "[The file is empty.]"
    assert world.state[f"seen:{path}"] == content_digest(b"")


def test_a_part_is_read_by_offset_and_limit(world: World) -> None:
    path = world.write("a", "".join(f"{n}\n" for n in range(1, 101)))
    assert read(world, "a", offset=3, limit=2) == (
        "3\t3\n4\t4\n[lines 3-4 of 100; continue with offset=5]"
    )
    assert read(world, "a", offset=99) == "99\t99\n100\t100"
    assert world.state[f"seen:{path}"] == content_digest(world.bytes("a"))


def test_a_file_that_was_read_in_part_can_be_edited(world: World) -> None:
    world.write("a", "".join(f"line {n}\n" for n in range(1, 3_001)))
    world.room = ResultRoom(cap=500, share=500)
    assert "continue with offset=" in read(world, "a", offset=1_000)
    world.run(EDIT, file_path="a", old_string="line 2999\n", new_string="the last but one\n")
    assert world.bytes("a").endswith(b"line 2998\nthe last but one\nline 3000\n")


def test_an_offset_behind_the_end_is_refused(world: World) -> None:
    world.write("a", "one\ntwo\n")
    assert refused(world, "a", offset=9) == ("The file has only 2 lines; offset 9 is past the end.")


def test_two_thousand_lines_are_read_at_once(world: World) -> None:
    world.write("a", "x\n" * 2_500)
    assert read(world, "a").endswith(
        "\n2000\tx\n[lines 1-2000 of 2,500; continue with offset=2001]"
    )


def test_a_page_ends_at_the_last_whole_line_that_has_room(world: World) -> None:
    world.write("a", ("y" * 999 + "\n") * 100)
    world.room = ResultRoom(cap=5_000, share=50_000)
    first = read(world, "a")
    shown = first.count("\n")
    assert first.endswith(
        f"{'y' * 999}\n[lines 1-{shown} of 100; continue with offset={shown + 1}]"
    )
    assert 0.9 * 5_000 < estimate_tokens("y" * 999) * shown <= 5_000
    assert read(world, "a", offset=shown + 1).startswith(f"{shown + 1}\tyyy")


def test_long_lines_are_shown_whole_where_there_is_room(world: World) -> None:
    world.write("a", "short\n" + "z" * 9_000 + "\nend\n")
    assert read(world, "a") == f"1\tshort\n2\t{'z' * 9_000}\n3\tend"


def test_a_line_that_alone_has_no_room_is_read_in_parts(world: World) -> None:
    line = "".join(f"{n} " for n in range(3_000))
    world.write("a", f"first\n{line}\nlast\n")
    world.room = ResultRoom(cap=2_000, share=50_000)
    assert read(world, "a") == "1\tfirst\n[lines 1-1 of 3; continue with offset=2]"
    parts, column = list[str](), 1
    while True:
        text = read(world, "a", offset=2, column=column)
        body, _, note = text.rpartition("\n[")
        parts.append(body.removeprefix("2\t"))
        assert estimate_tokens(parts[-1]) <= 2_000
        if "last" in body:
            break
        column += len(parts[-1])
        assert note.endswith(f"; continue with offset=2, column={column}]")
    assert len(parts) > 3
    assert note == f"lines 2-3 of 3, line 2 from character {column:,} on]"
    assert "".join(parts) == f"{line}\n3\tlast"


def test_a_column_behind_the_end_of_its_line_is_refused(world: World) -> None:
    world.write("a", "one\ntwo\n")
    assert read(world, "a", offset=1, column=4) == (
        "1\t\n2\ttwo\n[lines 1-2 of 2, line 1 from character 4 on]"
    )
    assert refused(world, "a", offset=1, column=5) == (
        "Line 1 is shorter than column 5; omit column to read it."
    )


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ("é\nb\n".encode(), ""),
        (codecs.BOM_UTF8 + "é\nb\n".encode(), "\n[encoding: UTF-8 with BOM]"),
        ("\ufeffé\nb\n".encode("utf-16-le"), "\n[encoding: UTF-16-LE]"),
        ("\ufeffé\nb\n".encode("utf-16-be"), "\n[encoding: UTF-16-BE]"),
        ("é\nb\n".encode("utf-16-be"), "\n[encoding: UTF-16-BE]"),
        (b"\xe9\nb\n", "\n[encoding: CP1252]"),
        (b"\xe9\r\nb", "\n[encoding: CP1252]"),
        ("é\r\nb\r\n".encode(), ""),
        ("é\rb\r".encode(), ""),
        ("é\r\nb\n".encode(), "\n[mixed line endings: LF, CRLF]"),
    ],
)
def test_other_encodings_and_mixed_line_ends_are_noted(
    world: World, data: bytes, note: str
) -> None:
    world.write("a", data)
    assert read(world, "a") == f"1\té\n2\tb{note}"


def test_a_declared_encoding_is_believed_if_it_is_true(world: World) -> None:
    text = "# coding: cp1251\nпривет\n"
    world.write("a", text.encode("cp1251"))
    assert read(world, "a").startswith("1\t# coding: cp1251\n2\tпривет\n[encoding: CP1251]")
    world.write("b", "# coding: cp1251\nпривет\n".encode())
    assert read(world, "b") == "1\t# coding: cp1251\n2\tпривет"


def test_bytes_that_are_no_characters_can_be_seen(world: World) -> None:
    world.write("a", "Größe Übung\n".encode() + b"\xff\n")
    assert read(world, "a") == (
        "1\tGröße Übung\n2\t\\xff\n[encoding: UTF-8 with invalid bytes, shown as \\xNN]"
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(50), "a compiled program"),
        (b"PK\x03\x04" + bytes(50), "a zip archive or office document"),
        (b"SQLite format 3\0" + bytes(50), "an SQLite database"),
        (bytes(range(256)), "binary data"),
        (b"\x80\x81\x01\x02\x03\x04\x05\x06", "binary data"),
    ],
)
def test_what_is_no_text_is_refused_with_what_it_is(world: World, data: bytes, what: str) -> None:
    world.write("a", data)
    assert refused(world, "a") == (
        f"a is {what} ({len(data)} bytes), not text. "
        "Inspect it with Bash (file, strings, xxd, unzip -l)."
    )


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "image/jpeg"),
        (b"GIF89a" + bytes(9), "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 " + bytes(9), "image/webp"),
    ],
)
def test_an_image_is_shown_whatever_its_name(world: World, data: bytes, mime: str) -> None:
    path = world.write("picture", data)
    outcome = world.run(READ, file_path="picture")
    image = Media("image", mime, content_digest(data), size=len(data), name="picture")
    assert outcome.content == (Text(f"picture: {mime}, {len(data)} bytes"), image)
    assert world.blobs.get(image.blob) == data
    assert outcome.changes == (Changed(f"seen:{path}", content_digest(data)),)


def test_an_image_that_is_too_large_is_refused(world: World) -> None:
    world.write("a.png", PNG + bytes(module.MAX_READ_IMAGE_BYTES))
    assert refused(world, "a.png") == (
        "a.png (image/png, 3,750,108 bytes) is too large (limit: 3,750,000 bytes); make a "
        "smaller copy with Bash and Read that."
    )
    assert world.blobs.held == {}


def test_a_missing_file_is_refused_with_names_like_it(world: World) -> None:
    world.write("src/settings.toml", "")
    assert refused(world, "src/setings.toml") == (
        "src/setings.toml does not exist. Did you mean src/settings.toml?"
    )
    assert "Did you mean src/settings.toml?" in refused(world, "src/settings.json")
    assert refused(world, "zzz") == f"zzz does not exist. Relative paths start at {world.root}."


def test_a_folder_is_refused_with_what_it_holds(world: World) -> None:
    for number in range(12):
        world.write(f"d/{number:02}.py", "")
    assert refused(world, "d") == (
        "d is a folder; list it with Glob or Bash ls. It contains 00.py, 01.py, 02.py, 03.py, "
        "04.py, 05.py, 06.py, 07.py, 08.py, 09.py and 2 more."
    )


def test_what_never_ends_is_refused(world: World) -> None:
    os.mkfifo(world.folder / "pipe")
    (world.folder / "link").symlink_to("pipe")
    for path in ("pipe", "link", "/dev/zero"):
        assert "is a device, pipe or socket, not a file." in refused(world, path)


def test_a_file_of_the_kernel_that_has_no_size_is_read(world: World) -> None:
    assert "MemTotal" in read(world, "/proc/meminfo")


def test_a_huge_file_is_read_anywhere_without_being_held(world: World) -> None:
    path = world.folder / "huge.log"
    with path.open("wb") as file:
        file.write(b"".join(b"line %d\n" % n for n in range(1, 3_001)))
        file.seek(120_000_000)
        file.write(b"\nnear the end\nlast\n")
    tracemalloc.start()
    try:
        head = world.run(READ, file_path="huge.log", offset=2_999, limit=1)
        tail = read(world, "huge.log", offset=3_002)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = f"{path.stat().st_size:,}"
    assert extract_text(head.content) == (
        f"2999\tline 2999\n[lines 2999-2999 of {size} bytes; continue with offset=3000]"
    )
    assert head.changes == ()
    assert tail == f"3002\tnear the end\n3003\tlast\n[lines 3002-3003 of {size} bytes, its last]"
    assert peak < 40_000_000
    assert world.shown[-1] == f"100% of {size} bytes"
    assert refused(world, "huge.log", offset=9_999).startswith("The file has only 3003 lines")


def test_a_huge_file_that_is_no_text_is_refused(world: World) -> None:
    path = world.folder / "huge.img"
    with path.open("wb") as file:
        file.truncate(module.MAX_WHOLE_FILE_BYTES + 1)
    assert refused(world, "huge.img").startswith("huge.img is binary data (50,000,001 bytes)")


def test_what_a_read_touches_is_said_before(world: World) -> None:
    assert world.access(READ, file_path="../a") == (
        Access("read", f"{os.path.dirname(world.root)}/a"),
    )


TEXTS = st.text(alphabet="ab\n\r", max_size=60)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(TEXTS, st.integers(1, 8), st.integers(1, 5), st.lists(st.integers(0, 60), max_size=4))
def test_a_page_is_the_same_however_its_text_is_cut(
    text: str, first: int, limit: int, cuts: list[int]
) -> None:
    whole = LinePage(TextPosition(first), limit, room=ROOM)
    whole.add(text)
    whole.close()
    parts = LinePage(TextPosition(first), limit, room=ROOM)
    edges = [0, *sorted(cuts), len(text)]
    for start, end in pairwise(edges):
        parts.add(text[start:end])
    parts.close()
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    expected = lines[first - 1 : first - 1 + limit] if text else []
    assert parts.lines == whole.lines == expected


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    page = LinePage(TextPosition(1), 10, room=ResultRoom(cap=100, share=100))
    for _ in range(1_000):
        page.add("x" * 10_000)
    assert (page.full, page.open, [len(line) for line in page.lines]) == (True, True, [800])
    assert 100 < page.fit().next.column <= 400


def test_a_full_page_takes_no_more() -> None:
    page = LinePage(TextPosition(1), 10_000, room=ResultRoom(cap=1_000, share=1_000))
    page.add(("e" * 1_000 + "\n") * 100)
    assert (len(page.lines), page.full) == (9, True)
