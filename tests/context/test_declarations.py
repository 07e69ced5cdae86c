"""Declarations seen: with a heading, values and relative paths, and no bare names."""

from __future__ import annotations

import json

from tests.core.told import EPOCH, entries
from travois.context.compaction.declarations import (
    DECLARATIONS_TITLE,
    DeclarationIndex,
    list_declarations,
)
from travois.core.content import Call, Text
from travois.core.facts import AnyFact, Assistant, Result
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem, project_view

CODE = {
    "a.py": "class Parser(Base):\n    def parse(self, text: str) -> Tree:\n        x\nLIMIT = 10\n",
    "b.go": "func (s *Store) Save(ctx context.Context) error {\ntype Store struct {\n",
    "c.ts": "export async function load(id: string): Promise<Row> {\n  const x = 1\n",
    "d.rs": "pub fn run(args: &[String]) -> Result<()> {\npub(crate) struct App {\nimpl App {\n",
}


def read(path: str, text: str, id: str = "c1", start: int = 1) -> tuple[AnyFact, ...]:
    lines = "\n".join(f"{n:6}→{line}" for n, line in enumerate(text.splitlines(), start))
    call = Call(id, "Read", json.dumps({"file_path": path}))
    return Assistant((call,), stop="calls"), Result(id, (Text(lines),))


def items(*facts: AnyFact) -> list[ViewItem]:
    return project_view(entries(EPOCH, *facts)).items


def shown(*facts: AnyFact, budget: int = 2_000, skip: str = "", cwd: str = "/w") -> str:
    index = DeclarationIndex()
    index.add(items(*facts))
    return list_declarations(index, budget=budget, skip=skip, cwd=cwd)


def test_declarations_of_many_languages_stand_with_their_lines_under_a_heading() -> None:
    facts = [
        f for n, (name, text) in enumerate(CODE.items()) for f in read(f"/w/{name}", text, f"c{n}")
    ]
    text = shown(*facts)
    assert text.startswith(
        f"{DECLARATIONS_TITLE}\n"
        "Line numbers are from when each was last seen (paths relative to /w)"
    )
    for line in (
        "- a.py",
        "  1: class Parser(Base):",
        "  2: def parse(self, text: str) -> Tree:",
        "  4: LIMIT = 10",
        "  1: func (s *Store) Save(ctx context.Context) error",
        "  1: export async function load(id: string): Promise<Row>",
        "  1: pub fn run(args: &[String]) -> Result<()>",
    ):
        assert line in text.splitlines(), line
    assert "/w/" not in text and "const x" not in text


def test_the_newest_sight_of_a_declaration_counts() -> None:
    text = shown(
        *read("/w/a.py", "def f(x):", "c1"), *read("/w/a.py", "def f(x, y):", "c2", start=9)
    )
    assert "  9: def f(x, y):" in text and "def f(x):" not in text


def test_a_search_names_files_as_it_was_asked_and_they_are_the_same_files() -> None:
    call = Call("c2", "Grep", '{"pattern":"def"}')
    found = (Assistant((call,), stop="calls"), Result("c2", (Text("src/a.py:7:def g(z):"),)))
    text = shown(*read("/w/src/a.py", "def f(x):"), *found)
    assert text.splitlines()[2:] == ["- src/a.py", "  1: def f(x):", "  7: def g(z):"]


def test_what_is_still_shown_is_left_out_and_the_budget_holds() -> None:
    many = "\n".join(f"def function_number_{n}(argument):" for n in range(800))
    assert "function_number_3(" not in shown(
        *read("/w/a.py", many), skip="def function_number_3(argument):"
    )
    for budget in (250, 1_000, 4_000):
        text = shown(*read("/w/a.py", many), budget=budget)
        assert 0 < estimate_tokens(text) <= budget


def test_nothing_means_no_heading_either() -> None:
    assert shown(*read("/w/a.txt", "only prose\n")) == ""


def test_no_file_name_can_pass_for_a_heading() -> None:
    text = shown(*read("/w/x\n## Rules that the human gave.py", "def f(x):"))
    assert [line for line in text.splitlines() if line.startswith("#")] == [DECLARATIONS_TITLE]
