"""NotebookEdit: one cell changes, and no byte of any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.world import World
from travois.core.content import extract_text
from travois.permissions.access import Access
from travois.ports.tool import ToolError
from travois.ports.world import content_digest
from travois.tools import notebook as sheets
from travois.tools.notebook import NOTEBOOK_EDIT, parse_notebook_text
from travois.tools.read import READ
from travois.tools.text import DecodedText, TextEncoding, apply_splices

NOTEBOOK = """\
{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "intro",
   "metadata": {},
   "source": [
    "# Übersicht\\n",
    "more"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 7,
   "id": "sum",
   "metadata": {"tags":   ["odd spacing"]},
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "2\\n"
     ]
    }
   ],
   "source": [
    "print(1 + 1)"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": null,
   "id": "end",
   "metadata": {},
   "outputs": [],
   "source": []
  }
 ],
 "metadata": {"kernelspec": {"name": "python3"}},
 "nbformat": 4,
 "nbformat_minor": 5
}
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write("a.ipynb", NOTEBOOK)
    world.run(READ, file_path="a.ipynb")
    return world


def edit(world: World, **args: Any) -> str:
    return extract_text(world.run(NOTEBOOK_EDIT, notebook_path="a.ipynb", **args).content)


def refused(world: World, **args: Any) -> str:
    with pytest.raises(ToolError) as caught:
        edit(world, **args)
    return str(caught.value)


def text(world: World) -> str:
    return world.bytes("a.ipynb").decode()


def test_a_replaced_cell_loses_its_outputs_and_all_else_stays(world: World) -> None:
    assert edit(world, cell_id="sum", new_source="a = 'ü'\nprint(a)\n") == (
        "Replaced cell 1 of a.ipynb."
    )
    start = NOTEBOOK.index('"execution_count": 7')
    end = NOTEBOOK.index('  },\n  {\n   "cell_type": "code",\n   "execution_count": null')
    assert text(world) == (
        NOTEBOOK[:start]
        + '"execution_count": null,\n   "id": "sum",\n'
        + '   "metadata": {"tags":   ["odd spacing"]},\n   "outputs": [],\n   "source": [\n'
        + '    "a = \'ü\'\\n",\n    "print(a)\\n"\n   ]\n'
        + NOTEBOOK[end:]
    )


def test_a_cell_may_be_named_by_its_number(world: World) -> None:
    edit(world, cell_number=0, new_source="# Title")
    old = '[\n    "# Übersicht\\n",\n    "more"\n   ]'
    assert text(world) == NOTEBOOK.replace(old, '[\n    "# Title"\n   ]')
    edit(world, cell_id="cell-0", new_source="# Übersicht\nmore")
    assert text(world) == NOTEBOOK


def test_an_inserted_cell_follows_the_one_named(world: World) -> None:
    assert edit(world, cell_id="intro", new_source="x = 1", edit_mode="insert") == (
        "Inserted a code cell as cell 1 of a.ipynb."
    )
    made = text(world)
    at = NOTEBOOK.index('  {\n   "cell_type": "code",\n   "execution_count": 7')
    assert made.startswith(NOTEBOOK[:at]) and made.endswith(NOTEBOOK[at:])
    name = json.loads(made)["cells"][1]["id"]
    assert made[at : len(made) - len(NOTEBOOK[at:])] == (
        '  {\n   "cell_type": "code",\n   "execution_count": null,\n'
        f'   "id": "{name}",\n   "metadata": {{}},\n   "outputs": [],\n'
        '   "source": [\n    "x = 1"\n   ]\n  },\n'
    )


def test_a_cell_can_be_inserted_first_and_last(world: World) -> None:
    edit(world, new_source="first", cell_type="markdown", edit_mode="insert")
    edit(world, cell_id="end", new_source="last", cell_type="markdown", edit_mode="insert")
    cells = json.loads(text(world))["cells"]
    assert ["".join(cell["source"])[:5] for cell in cells] == [
        "first",
        "# Übe",
        "print",
        "",
        "last",
    ]
    assert set(cells[0]) == {"cell_type", "id", "metadata", "source"}


def test_a_deleted_cell_leaves_the_others_as_they_are(world: World) -> None:
    sheet = parse_notebook_text(NOTEBOOK)
    assert sheet is not None
    bodies = [NOTEBOOK[span.start : span.end] for span in sheet.cells]
    for index, name in enumerate(("intro", "sum", "end")):
        world.write("a.ipynb", NOTEBOOK)
        world.run(READ, file_path="a.ipynb")
        assert edit(world, cell_id=name, edit_mode="delete") == f"Deleted cell {index} of a.ipynb."
        left = ",\n  ".join(body for i, body in enumerate(bodies) if i != index)
        whole = ",\n  ".join(bodies)
        assert text(world) == NOTEBOOK.replace(whole, left)


def test_the_last_cell_can_go_and_come_back(world: World) -> None:
    for name in ("intro", "sum", "end"):
        edit(world, cell_id=name, edit_mode="delete")
    assert '"cells": [],\n' in text(world)
    edit(world, new_source="x", cell_type="markdown", edit_mode="insert")
    assert text(world).startswith(
        '{\n "cells": [\n  {\n   "cell_type": "markdown",\n'
    ) and '   ]\n  }\n ],\n "metadata"' in text(world)


def test_a_cell_can_change_its_type(world: World) -> None:
    edit(world, cell_id="sum", new_source="words", cell_type="markdown")
    cells = json.loads(text(world))["cells"]
    assert cells[1] == {
        "cell_type": "markdown",
        "id": "sum",
        "metadata": {"tags": ["odd spacing"]},
        "source": ["words"],
    }
    edit(world, cell_id="sum", new_source="1", cell_type="code")
    cell = json.loads(text(world))["cells"][1]
    assert (cell["cell_type"], cell["outputs"], cell["execution_count"]) == ("code", [], None)


@pytest.mark.parametrize(
    "layout",
    [
        {"indent": 2},
        {"indent": "\t"},
        {"indent": 4, "ensure_ascii": False},
        {"indent": None},
        {"separators": (",", ":")},
    ],
)
def test_the_style_of_the_file_is_kept(world: World, layout: dict[str, Any]) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["é\n", "two"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": "a string"},
    ]
    whole = {"cells": cells, "nbformat": 4, "nbformat_minor": 4}
    world.write("a.ipynb", json.dumps(whole, **layout) + "\n")
    world.run(READ, file_path="a.ipynb")
    edit(world, cell_number=0, new_source="ü\nß\n")
    edit(world, cell_number=1, new_source="another\nstring")
    edit(world, cell_number=1, new_source="more", cell_type="markdown", edit_mode="insert")
    cells[0]["source"] = ["ü\n", "ß\n"]
    cells[1]["source"] = "another\nstring"
    cells.append({"cell_type": "markdown", "metadata": {}, "source": ["more"]})
    assert text(world) == json.dumps(whole, **layout) + "\n"


def test_line_ends_of_the_file_are_kept(world: World) -> None:
    world.write("a.ipynb", NOTEBOOK.replace("\n", "\r\n"))
    world.run(READ, file_path="a.ipynb")
    edit(world, cell_id="end", new_source="a\nb")
    new = '[\n    "a\\n",\n    "b"\n   ]\n  }\n ]'
    expected = NOTEBOOK.replace("[]\n  }\n ]", new)
    assert text(world) == expected.replace("\n", "\r\n")


def test_a_notebook_must_have_been_read_as_it_is(world: World) -> None:
    changed = NOTEBOOK.replace("1 + 1", "1 + 2")
    world.write("a.ipynb", changed)
    assert refused(world, cell_id="sum", new_source="x") == (
        "a.ipynb has changed or was not read; nothing was changed. Read it first."
    )
    assert text(world) == changed


def test_one_edit_after_another_needs_no_reading_between(world: World) -> None:
    edit(world, cell_id="sum", new_source="1")
    edit(world, cell_id="sum", new_source="2")
    assert world.state[f"seen:{world.root}/a.ipynb"] == content_digest(world.bytes("a.ipynb"))


def test_cells_that_are_not_there_are_refused_with_those_that_are(world: World) -> None:
    words = "There is no such cell. Cells: intro, sum, end."
    assert refused(world, cell_id="nope", new_source="x") == words
    assert refused(world, cell_number=3, new_source="x") == words
    assert refused(world, new_source="x") == ("Give cell_id, or cell_number counted from 0.")


def test_a_cell_that_is_like_this_already_is_refused(world: World) -> None:
    assert refused(world, cell_id="intro", new_source="# Übersicht\nmore") == (
        "Cell 0 already has this content; nothing to change."
    )


def test_what_is_no_notebook_is_refused(world: World) -> None:
    world.write("a.ipynb", "{}")
    world.run(READ, file_path="a.ipynb")
    assert refused(world, cell_number=0, new_source="x") == (
        "a.ipynb is not a readable notebook; use Edit on its text."
    )


def test_an_unknown_mode_is_a_schema_error(world: World) -> None:
    with pytest.raises(msgspec.ValidationError, match="edit_mode"):
        edit(world, cell_number=0, edit_mode="burn")


def test_what_an_edit_touches_is_said_before(world: World) -> None:
    target = f"{world.root}/a.ipynb"
    assert world.access(NOTEBOOK_EDIT, notebook_path="a.ipynb") == (Access("write", target),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
CELLS = st.fixed_dictionaries(
    {
        "cell_type": st.sampled_from(["code", "markdown", "raw"]),
        "metadata": st.dictionaries(st.text(max_size=5), JSON, max_size=3),
        "source": st.text(max_size=20) | st.lists(st.text(max_size=8), max_size=3),
    }
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(CELLS, min_size=1, max_size=4),
    st.sampled_from([None, 1, 2, "\t"]),
    st.booleans(),
    st.text(max_size=20),
    st.data(),
)
def test_any_notebook_changes_in_the_one_cell_only(
    cells: list[dict[str, Any]],
    indent: int | None,
    ascii_only: bool,
    source: str,
    chance: st.DataObject,
) -> None:
    whole = {"metadata": {"a": 1}, "cells": cells, "nbformat": 4}
    before = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    sheet = parse_notebook_text(before)
    assert sheet is not None
    index = chance.draw(st.integers(0, len(cells) - 1))
    kind = cells[index]["cell_type"]
    action = chance.draw(st.sampled_from(["replace", "insert", "delete"]))
    if action == "replace":
        made = sheets.replace_cell(sheet, index, source=source, cell_type=kind)
        lines = isinstance(cells[index]["source"], list)
        cells[index]["source"] = sheets._source_lines(source) if lines else source
    elif action == "insert":
        made = sheets.insert_cell(sheet, index, source=source, cell_type="markdown")
        fresh = {"cell_type": "markdown", "metadata": {}, "source": sheets._source_lines(source)}
        cells.insert(index, fresh)
    else:
        made = sheets.delete_cell(sheet, index)
        del cells[index]
    after = apply_splices(DecodedText(before.encode(), before, TextEncoding("utf-8")), made)
    assert json.loads(after.text) == whole
    assert after.data.startswith(before[: sheet.cells[index].start].rstrip(" \t\n,").encode())
    assert after.data.endswith(before[sheet.cells[index].end :].lstrip(" \t\n,").encode())
