"""Kinds of agents as the model is told of them, and which tools they may use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.agents.types import BUDGET, Kind, listing, named, usable
from travois.core.tokens import estimate_tokens

TOOLS = ("Bash", "Read", "Edit", "mcp__db__query", "mcp__db__drop", "mcp__web__get")


def kind(name: str, description: str = "Does it.", **more: object) -> Kind:
    return Kind(name, description, "Do it.", **more)  # type: ignore[arg-type]


def test_each_kind_has_one_line_in_the_order_of_names() -> None:
    long = "Use this <agent>\\n\\n<example>user: hi</example>"
    kinds = [kind("zoo", long), kind("Alpha", "a\n b"), kind("beta", "word " * 100)]
    assert listing(kinds).splitlines() == [
        "- Alpha: a",
        f"- beta: {('word ' * 100)[:299].rstrip()}…",
        "- zoo: Use this \\x3cagent\\x3e",
    ]
    assert listing(kinds) == listing(kinds[::-1])
    assert listing([]) == ""


@given(st.integers(1, 600), st.text(max_size=400))
def test_many_kinds_are_told_in_bounded_room(count: int, description: str) -> None:
    text = listing([kind(f"agent-{number:04}", description) for number in range(count)])
    assert estimate_tokens(text) <= BUDGET
    shown = sum(f"agent-{number:04}" in text for number in range(count))
    assert shown == count or f", and {count - shown} more" in text


@pytest.mark.parametrize(
    ("given_", "denied", "left"),
    [
        (None, (), TOOLS),
        (None, ("Bash", "mcp__*"), ("Read", "Edit")),
        (("Edit", "Read", "Missing"), (), ("Read", "Edit")),
        (("Read", "Bash"), ("Read",), ("Bash",)),
        (("mcp__db",), ("mcp__db__drop",), ("mcp__db__query",)),
        (("mcp__db__*", "mcp__we"), (), ("mcp__db__query", "mcp__db__drop")),
        ((), (), ()),
    ],
)
def test_a_kind_uses_what_it_is_given_and_not_denied(
    given_: tuple[str, ...] | None, denied: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert usable(kind("a", tools=given_, denied=denied), TOOLS) == left


def test_kinds_are_found_however_they_are_spelt() -> None:
    general, mine = kind("general"), kind("My Agent")
    assert named([general, mine], " my agent") is mine
    assert named([general, mine], "general-purpose") is general
    assert named([general, mine], "") is general
    assert named([general, mine], "other") is None
