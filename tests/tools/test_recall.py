"""Recall: what was set aside is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.world import World
from travois.core.content import extract_text
from travois.ports.tool import ToolError
from travois.tools.memory_and_skills import MAX_RECALL_LINES, RECALL


def found(world: World, query: str) -> str:
    return extract_text(world.run(RECALL, query=query).content)


def test_the_line_that_holds_most_of_the_words_comes_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spill("span-1", b"we met redis\nthen Redis was dropped for sqlite\n")
    path = world.spill("span-2", b"sqlite is small\n")
    first = str(tmp_path / "spilled" / "span-1.txt")
    assert found(world, "redis dropped").split("\n")[0] == (
        f"{first}:2: then Redis was dropped for sqlite"
    )
    assert f"{path}:1: sqlite is small" in found(world, "SQLITE")


def test_rare_words_and_forms_of_a_word_decide(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spill("span-1", b"the test is the test of it\n" * 30 + b"dropping sqlite was the test\n")
    first = str(tmp_path / "spilled" / "span-1.txt")
    assert found(world, "the sqlite test").startswith(f"{first}:31: dropping sqlite")


def test_few_lines_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spill("span-1", b"needle\n" * (MAX_RECALL_LINES + 7))
    assert found(world, "needle").endswith(
        "\n(7 more lines match in part.)\nRead the file at that line for its surroundings."
    )


def test_a_line_without_end_is_cut_with_a_mark(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spill("span-1", b"needle" + b"x" * 100_000)
    assert len(found(world, "needle")) < 1_000
    assert " …\n" in found(world, "needle")


def test_nothing_set_aside_and_nothing_found_are_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert found(world, "x1") == (
        "Nothing has left the context window yet: you see the whole session."
    )
    world.spill("span-1", b"hay\n")
    assert found(world, "needle") == "No earlier message or result contains 'needle'."
    with pytest.raises(ToolError, match="has no words"):
        found(world, "?!")
