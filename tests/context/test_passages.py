"""Which parts of a file come back where there is no room for all of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from travois.context.compaction.passages import choose_passages, weigh_file, weigh_spoken_names
from travois.core.content import Call, Text
from travois.core.facts import Assistant, Entry, Result, User
from travois.core.tokens import estimate_tokens

BODY = "".join(f"    total += item_{number} * rate  # one more step\n" for number in range(20))
NAMES = [f"job_{number}" for number in range(12)]
PYTHON = "import os\n\n\n" + "\n\n".join(
    f"# Do what {name} is for.\ndef {name}(rate):\n{BODY}    return total\n" for name in NAMES
)
GO = "package main\n\n" + "\n".join(
    f"// {name} does it.\nfunc {name}(rate int) int {{\n{BODY}}}\n" for name in NAMES
)


def shown(text: str, names: dict[str, float], *, tokens: int, changed: tuple[int, ...] = ()) -> str:
    lines = text.splitlines(keepends=True)
    parts = choose_passages(
        lines, among=[(0, len(lines))], names=names, changed=changed, tokens=tokens
    )
    assert all(end <= first for (_, end), (first, _) in pairwise(parts))
    found = "".join("".join(lines[first:end]) for first, end in parts)
    assert estimate_tokens(found) <= tokens
    return found


@pytest.mark.parametrize("text", [PYTHON, GO])
def test_what_was_spoken_of_comes_back_whole_with_its_comment(text: str) -> None:
    found = shown(text, {"job_7": 3.0, "job_3": 1.0}, tokens=1_200)
    for name in ("job_7", "job_3"):
        start = text.index(f"{name}(rate")
        comment = text.rindex("\n", 0, text.rindex("\n", 0, start)) + 1
        assert text[comment : text.index("item_19", start)] in found
    assert "job_9(rate" not in found


def test_what_was_changed_comes_back() -> None:
    line = PYTHON[: PYTHON.index("def job_10(")].count("\n") + 5
    assert "def job_10(" in shown(PYTHON, {}, tokens=600, changed=(line,))


@pytest.mark.parametrize("tokens", [0, 50, 200, 1_000, 10**6])
def test_no_more_is_shown_than_there_is_room_for(tokens: int) -> None:
    found = shown("word word word\n" * 3_000, {}, tokens=tokens)
    assert bool(found) == (tokens > 60)


def test_lines_that_may_not_be_shown_are_not() -> None:
    lines = PYTHON.splitlines(keepends=True)
    parts = choose_passages(lines, among=[(10, 30), (50, 60)], names={"job_9": 9.0}, tokens=10**6)
    assert parts == [(10, 30), (50, 60)]


def test_names_weigh_more_the_more_often_and_the_later_they_were_spoken_of() -> None:
    said = [
        User((Text("change early and often"),), origin="human"),
        Assistant((Text("often"), Call("1", "Read", '{"file_path":"src/often.py"}')), "calls"),
        Result("1", (Text("printed"),)),
        Assistant((Call("2", "Write", '{"content":"written"}'),), "calls"),
        User((Text("noted"),), origin="note"),
        Assistant((Text("late"),), "end"),
    ]
    names = weigh_spoken_names(Entry(seq, 1.0, fact) for seq, fact in enumerate(said, 1))
    assert names["often"] > names["late"] > names["early"]
    assert not {"printed", "written", "noted"} & set(names)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("see hook_registry", "/src/hook_registry.go"),
        ("see prompt-generator.ts and more", "/src/prompt-generator.ts"),
        ("see src/a-b.test.ts", "C:\\x\\a-b.test.ts"),
        ("see `Makefile`", "Makefile"),
    ],
)
def test_a_file_weighs_what_its_name_does_with_or_without_its_ending(said: str, path: str) -> None:
    names = weigh_spoken_names([Entry(1, 1.0, User((Text(said),), origin="human"))])
    assert weigh_file(path, names) > 0
    assert weigh_file(f"{path}.other", {}) == 0


def test_files_that_differ_by_their_ending_are_weighed_apart() -> None:
    said = User((Text("change one-two.test.ts"),), origin="human")
    names = weigh_spoken_names([Entry(1, 1.0, said)])
    assert weigh_file("/x/one-two.test.ts", names) > weigh_file("/x/one-two.ts", names) == 0
