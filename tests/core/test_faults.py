"""Problems as a person reads them."""

from __future__ import annotations

import pytest

from travois.core.content import Call, Media, Text, calls, words
from travois.core.errors import Fault


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("It broke"), "It broke"),
        (Fault("It broke", why="no key"), "It broke: no key"),
        (Fault("It broke", fix="Set one."), "It broke\n  Set one."),
        (Fault("It broke", why="no key", fix="Set one."), "It broke: no key\n  Set one."),
    ],
)
def test_a_fault_says_what_why_and_what_to_do(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_a_fault_earns_exit_code_two_unless_it_says_otherwise() -> None:
    assert (Fault("x").code, Fault("x", code=3).code) == (2, 3)


def test_words_and_calls_are_found_among_blocks() -> None:
    call = Call("a", "Read", "{}")
    content = (Text("one"), Media("image", "image/png", "b", 1), call, Text("two"))
    assert (words(content), calls(content)) == ("one\ntwo", (call,))
