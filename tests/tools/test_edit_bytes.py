"""Whatever the encoding and the line ends, an edit changes the bytes it must and no others."""

from __future__ import annotations

import codecs
from itertools import cycle, islice
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.tools.world import World
from travois.tools.edit import EDIT, Change, plan_edit
from travois.tools.read import READ
from travois.tools.text import (
    DecodedText,
    apply_splices,
    decode_text,
    flatten_line_ends,
    line_endings,
)

WORDS = {
    "utf-8": ("", "utf-8", "naïve — “日本” 🎉"),
    "utf-8 with BOM": (codecs.BOM_UTF8, "utf-8", "naïve 日本"),
    "utf-16-le": (codecs.BOM_UTF16_LE, "utf-16-le", "naïve 🎉"),
    "utf-16-be": (codecs.BOM_UTF16_BE, "utf-16-be", "naïve 🎉"),
    "utf-16-le without BOM": ("", "utf-16-le", "naïve"),
    "utf-16-be without BOM": ("", "utf-16-be", "naïve"),
    "utf-32-le": (codecs.BOM_UTF32_LE, "utf-32-le", "naïve 🎉"),
    "cp1252": ("", "cp1252", "naïve €"),
    "latin-1": ("", "latin-1", "naïve \x81"),
    "koi8-r, as declared": ("", "koi8-r", "# coding: koi8-r привет"),
    "shift_jis, as declared": ("", "shift_jis", "<?xml encoding='shift_jis'?> 日本"),
}
ENDINGS = {"LF": ("\n",), "CRLF": ("\r\n",), "CR": ("\r",), "mixed": ("\r\n", "\n", "\n", "\r")}
LINES = ("{}", "first", "second", "", "third {}", "fourth", "  fifth\t", "last {}")
EDITS = (
    ("first", "1st"),
    ("third", "three"),
    ("last", ""),
    ("second", "a\nb\nc"),
    ("second\n\nthird", "2\n\n3"),
    ("first\nsecond\n", ""),
    ("first\nsecond", "first\nsecond\nand more"),
    ("fourth\n  fifth\t\nlast", "4\n5\n6"),
)


def files(ends: tuple[str, ...], word: str) -> list[str]:
    """A text with these line ends, with and without one at its end."""
    lines = [line.format(word) for line in LINES]
    whole = "".join(line + end for line, end in zip(lines, cycle(ends), strict=False))
    last = list(islice(cycle(ends), len(lines)))[-1]
    return [whole, whole.removesuffix(last)]


def cases(name: str) -> list[tuple[str, str, str, str]]:
    word = WORDS[name][2]
    return [
        (kind, text, old, new)
        for kind, ends in ENDINGS.items()
        for text in files(ends, word)
        for old, new in EDITS
    ]


@pytest.mark.parametrize("name", WORDS)
def test_bytes_that_are_not_edited_stay(name: str, tmp_path: Path) -> None:
    bom, codec, _ = WORDS[name]
    mark = bom or b""
    world = World(tmp_path)

    async def main() -> None:
        for kind, text, old, new in cases(name):
            data = mark + text.encode(codec)
            world.write("a.txt", data)
            await world.call(READ, file_path="a.txt")
            await world.call(EDIT, file_path="a.txt", old_string=old, new_string=new)
            got = world.bytes("a.txt")
            end = ENDINGS[kind][0]
            if kind != "mixed":
                expected = text.replace(old.replace("\n", end), new.replace("\n", end))
                assert got == mark + expected.encode(codec), (kind, old, new)
            flat = flatten_line_ends(text).text
            start = flatten_line_ends(text).original_index(flat.index(old))
            stop = flatten_line_ends(text).original_index(flat.index(old) + len(old))
            assert got.startswith(mark + text[:start].encode(codec)), (kind, old, new)
            assert got.endswith(text[stop:].encode(codec)), (kind, old, new)
            assert flatten_line_ends(got[len(mark) :].decode(codec)).text == flat.replace(old, new)

    anyio.run(main)


def test_lines_inside_an_edit_that_do_not_change_keep_their_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a.txt", b"a\r\nb\nc\rd\r\ne\n")
    world.run(READ, file_path="a.txt")
    world.run(EDIT, file_path="a.txt", old_string="a\nb\nc\nd\ne", new_string="A\nb\nc\nX\nd\nE")
    assert world.bytes("a.txt") == b"A\r\nb\nc\rX\r\nd\r\nE\n"


def test_invalid_bytes_elsewhere_in_the_file_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    data = "größer Übel\n".encode() + b"bad \xff\xfe\x80 bytes\nend\n"
    world.write("a.txt", data)
    assert "bad \\xff\\xfe\\x80 bytes" in world.run(READ, file_path="a.txt").content[0].text
    world.run(EDIT, file_path="a.txt", old_string="Übel", new_string="Öl")
    assert world.bytes("a.txt") == data.replace("Übel".encode(), "Öl".encode())


def test_control_characters_and_other_noise_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    noise = bytes(range(1, 256)) + b"needle" + bytes(range(255, 0, -1))
    world.write("a.bin", noise)
    world.run(EDIT, file_path="a.bin", old_string="needle", new_string="pin")
    assert world.bytes("a.bin") == noise.replace(b"needle", b"pin")


SOME_BYTES = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=80).map(str.encode),
    st.text(alphabet="ab \t\r\né“", max_size=60).map(str.encode),
    st.text(alphabet="ab\r\nü", max_size=60).map(lambda text: text.encode("latin-1")),
    st.text(max_size=60).map(lambda text: text.encode("utf-16")),
    st.binary(max_size=60).map(lambda data: codecs.BOM_UTF16_BE + data),
    st.binary(max_size=60).map(lambda data: codecs.BOM_UTF8 + data),
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(SOME_BYTES)
def test_text_is_the_same_bytes_when_it_is_encoded_again(data: bytes) -> None:
    decoded = decode_text(data)
    if b"\0" not in data:
        assert decoded is not None or data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if decoded is not None:
        assert decoded.encoding.bom + decoded.encoding.encode(decoded.text) == data


def unique(source: DecodedText, start: int, end: int) -> str:
    """The text between two positions as a model sees it, if it stands nowhere else."""
    flat = flatten_line_ends(source.text)
    needle = flatten_line_ends(source.text[start:end]).text
    assume(needle.strip() and flat.text.count(needle) == 1)
    assume(flat.text.find(needle, flat.text.find(needle) + 1) < 0)
    at = flat.text.index(needle)
    assume((flat.original_index(at), flat.original_index(at + len(needle))) == (start, end))
    return needle


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=SOME_BYTES, chance=st.data(), new=st.text(alphabet="ab \n\tx", max_size=12))
def test_bytes_around_any_unique_text_stay(data: bytes, chance: st.DataObject, new: str) -> None:
    source = decode_text(data)
    assume(source is not None and source.text)
    assert source is not None
    start = chance.draw(st.integers(0, len(source.text) - 1))
    end = chance.draw(st.integers(start + 1, len(source.text)))
    needle = unique(source, start, end)
    assume(needle != new)
    made = plan_edit(source.text, Change(needle, new), forgiving=True)
    result = apply_splices(source, made.splices)
    encode, mark = source.encoding.encode, source.encoding.bom
    assert result.data.startswith(mark + encode(source.text[:start]))
    assert result.data.endswith(encode(source.text[end:]))
    assert result.data == mark + encode(result.text)
    if len(line_endings(source.text)) > 1 and "\r" in line_endings(source.text):
        return  # a lone CR that comes to stand before an LF makes one line end of two
    before = flatten_line_ends(source.text[:start]).text
    assert (
        flatten_line_ends(result.text).text
        == before + new + flatten_line_ends(source.text[end:]).text
    )
