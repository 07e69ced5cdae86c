"""Framing, positions and names of files, as the protocol has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.lsp.problems import find_new_problems
from travois.lsp.protocol import (
    Diagnostic,
    MessageReader,
    Position,
    ProtocolError,
    Range,
    character_to_column,
    column_to_character,
    encode_message,
    find_symbol_position,
    path_of_uri,
    split_document_lines,
    uri_of_path,
)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.integers(1, 7))
def test_messages_are_read_however_they_are_cut(words: list[str], size: int) -> None:
    data = b"".join(encode_message({"method": word}) for word in words)
    reader, found = MessageReader(), list[str]()
    for at in range(0, len(data), size):
        found += [message.method for message in reader.split_messages(data[at : at + size])]
    assert found == words


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Type: x\r\n\r\n{}",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: 2\r\n\r\n[]",
        b"no headers at all " * 500,
    ],
)
def test_what_is_not_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(MessageReader().split_messages(data))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 45))
def test_a_column_survives_the_way_to_utf_16_and_back(line: str, column: int) -> None:
    column = min(column, len(line))
    assert character_to_column(line, column_to_character(line, column)) == column


def test_a_column_counts_characters_and_the_protocol_counts_utf_16_units() -> None:
    assert column_to_character("x = '🙂' + bad", 10) == 11
    assert character_to_column("x = '🙂' + bad", 11) == 10


def test_lines_end_as_the_protocol_says() -> None:
    assert split_document_lines("a\r\nb\rc\nd\x0be") == ["a", "b", "c", "d\x0be"]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_a_path_survives_the_way_to_a_uri_and_back(name: str) -> None:
    path = f"/work/{name}"
    assert path_of_uri(uri_of_path(path)) == path


@pytest.mark.parametrize(
    "uri", ["untitled:1", "https://example.org/a", "file://host/a", "file:a", "file://["]
)
def test_what_is_no_file_has_no_path(uri: str) -> None:
    assert path_of_uri(uri) == ""


def test_a_symbol_is_found_as_a_whole_word() -> None:
    lines = ["counter = 1", "count = counter", "x.count(1)"]
    assert find_symbol_position(lines, "count") == Position(1, 0)
    assert find_symbol_position(lines, "x.count", 3) == Position(2, 2)
    assert find_symbol_position(lines, "count", 1) is None


def at(line: int, message: str = "wrong") -> Diagnostic:
    return Diagnostic(Range(Position(line, 0), Position(line, 1)), message)


def test_an_error_that_only_moved_is_not_new() -> None:
    found = find_new_problems([at(0)], [at(2), at(1)], old="bad()", new="a\nb()\nbad()")
    assert found == (at(1),)


def test_an_old_error_in_a_changed_line_is_not_new_and_a_second_one_is() -> None:
    old, new = "bad(1)", "bad(2)\nbad(3)"
    assert find_new_problems([at(0)], [at(0)], old=old, new=new) == ()
    assert find_new_problems([at(0)], [at(0), at(1)], old=old, new=new) == (at(1),)
