"""Kinds of agents as the model is told of them, and which tools they may use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.agents.types import (
    MAX_LISTING_TOKENS,
    AgentType,
    find_agent_type,
    render_agent_types,
    select_agent_tools,
)
from travois.core.tokens import estimate_tokens

TOOLS = ("Bash", "Read", "Edit", "mcp__db__query", "mcp__db__drop", "mcp__web__get")


def kind(name: str, description: str = "Does it.", **more: object) -> AgentType:
    return AgentType(name, description, "Do it.", **more)  # type: ignore[arg-type]


def test_each_kind_has_one_line_in_the_order_of_names() -> None:
    long = "Use this <agent>\\n\\n<example>user: hi</example>"
    kinds = [kind("zoo", long), kind("Alpha", "a\n b"), kind("beta", "word " * 100)]
    assert render_agent_types(kinds).splitlines() == [
        "- Alpha: a",
        f"- beta: {('word ' * 100)[:299].rstrip()}…",
        "- zoo: Use this \\x3cagent\\x3e",
    ]
    assert render_agent_types(kinds) == render_agent_types(kinds[::-1])
    assert render_agent_types([]) == ""


@given(st.integers(1, 600), st.text(max_size=400))
def test_many_kinds_are_told_in_bounded_room(count: int, description: str) -> None:
    text = render_agent_types([kind(f"agent-{number:04}", description) for number in range(count)])
    assert estimate_tokens(text) <= MAX_LISTING_TOKENS
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
    assert select_agent_tools(kind("a", tools=given_, denied=denied), TOOLS) == left


def test_kinds_are_found_however_they_are_spelt() -> None:
    general, mine = kind("general"), kind("My Agent")
    assert find_agent_type([general, mine], " my agent") is mine
    assert find_agent_type([general, mine], "general-purpose") is general
    assert find_agent_type([general, mine], "") is general
    assert find_agent_type([general, mine], "other") is None
