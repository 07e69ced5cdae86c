"""Problems as a person reads them."""

from __future__ import annotations

import pytest

from travois.core.content import Call, Media, Text, extract_calls, extract_text
from travois.core.errors import UserError


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (UserError("It broke"), "It broke"),
        (UserError("It broke", why="no key"), "It broke: no key"),
        (UserError("It broke", fix="Set one."), "It broke\n  Set one."),
        (UserError("It broke", why="no key", fix="Set one."), "It broke: no key\n  Set one."),
    ],
)
def test_a_fault_says_what_why_and_what_to_do(fault: UserError, text: str) -> None:
    assert str(fault) == text


def test_a_fault_earns_exit_code_two_unless_it_says_otherwise() -> None:
    assert (UserError("x").code, UserError("x", code=3).code) == (2, 3)


def test_words_and_calls_are_found_among_blocks() -> None:
    call = Call("a", "Read", "{}")
    content = (Text("one"), Media("image", "image/png", "b", 1), call, Text("two"))
    assert (extract_text(content), extract_calls(content)) == ("one\ntwo", (call,))
