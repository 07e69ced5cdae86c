"""NotebookEdit: changing one cell of a notebook without touching the others.

The notebook's JSON is not written anew: only the values that change are, in the style of the file.
A code cell that is replaced loses its outputs, which are those of another text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from travois.core.facts import Changed
from travois.lazy_imports import lazy_imports
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, StaleFile, content_digest
from travois.tools.diff import compare_texts
from travois.tools.paths import (
    absolute_path,
    describe_link,
    display_path,
    escape_path,
    require_file,
    write_access,
)
from travois.tools.text import TextSplice, apply_splices, decode_text

if TYPE_CHECKING:
    from travois.tools.notebook_cells import NotebookText

with lazy_imports():
    from travois.tools import notebook_cells


CELL_NUMBER_PATTERN = re.compile(r"cell-(\d+)")
MAX_NOTEBOOK_BYTES = 50_000_000


class NotebookEditArgs(msgspec.Struct, frozen=True):
    """A cell, and the change to make."""

    notebook_path: str
    new_source: str = ""
    cell_id: str = ""
    cell_number: int = -1
    cell_type: Literal["", "code", "markdown"] = ""
    edit_mode: Literal["replace", "insert", "delete"] = "replace"


async def _run_notebook_edit(args: NotebookEditArgs, env: Env, call: str) -> ToolOutcome:
    """Run the NotebookEdit tool, unless another program changes the notebook meanwhile."""
    path = absolute_path(args.notebook_path, env.cwd)
    async with env.files.queue(path):
        try:
            return await _edit_notebook(path, args, env=env)
        except StaleFile as stale:
            raise ToolError(_unread_notebook_message(path, env)) from stale


async def _edit_notebook(path: str, args: NotebookEditArgs, *, env: Env) -> ToolOutcome:
    """Replace, insert or delete one cell of a notebook that the model has read."""
    stat = await require_file(path, env)
    data = await env.files.read(path, limit=MAX_NOTEBOOK_BYTES)
    if env.state.get(f"seen:{path}") != content_digest(data):
        raise ToolError(_unread_notebook_message(path, env))
    source = decode_text(data)
    sheet = notebook_cells.parse_notebook_text(source.text) if source else None
    if source is None or sheet is None:
        raise ToolError(
            f"{display_path(path, env)} is not a readable notebook; use Edit on its text."
        )
    index = _find_cell_index(sheet, args)
    made, what = _plan_cell_edit(sheet, index, args)
    result = apply_splices(source, made)
    assert notebook_cells.parse_notebook_text(result.text) is not None, "a notebook stays one"
    digested = await env.files.replace(path, result.data, expect=content_digest(data))
    return text_outcome(
        f"{what} of {display_path(path, env)}{describe_link(stat)}.",
        detail=compare_texts(path, source.text, result.text).json(),
        changes=(Changed(f"seen:{path}", digested),),
    )


def _plan_cell_edit(
    sheet: NotebookText, index: int, args: NotebookEditArgs
) -> tuple[list[TextSplice], str]:
    """Plan a NotebookEdit call: the splices of the JSON text and a description."""
    if args.edit_mode == "insert":
        kind = args.cell_type or "code"
        made = notebook_cells.insert_cell(sheet, index + 1, source=args.new_source, cell_type=kind)
        return made, f"Inserted a {kind} cell as cell {index + 1}"
    if index < 0:
        raise ToolError("Give cell_id, or cell_number counted from 0.")
    if args.edit_mode == "delete":
        return notebook_cells.delete_cell(sheet, index), f"Deleted cell {index}"
    kind = args.cell_type or sheet.notebook.cells[index].cell_type
    if notebook_cells.is_cell_unchanged(sheet, index, source=args.new_source, cell_type=kind):
        raise ToolError(f"Cell {index} already has this content; nothing to change.")
    made = notebook_cells.replace_cell(sheet, index, source=args.new_source, cell_type=kind)
    return made, f"Replaced cell {index}"


def _find_cell_index(sheet: NotebookText, args: NotebookEditArgs) -> int:
    """Return the index of the cell that a NotebookEdit call names; -1 if it names none."""
    cells = sheet.notebook.cells
    if args.cell_id:
        numbered = CELL_NUMBER_PATTERN.fullmatch(args.cell_id)
        ids = [cell.id for cell in cells]
        if args.cell_id in ids:
            return ids.index(args.cell_id)
        number = int(numbered[1]) if numbered else len(cells)
    else:
        number = args.cell_number
    if number >= len(cells):
        known = ", ".join(cell.id or f"cell-{i}" for i, cell in enumerate(cells[:50]))
        raise ToolError(f"There is no such cell. Cells: {known or 'none'}.")
    return max(number, -1)


def _unread_notebook_message(path: str, env: Env) -> str:
    return (
        f"{display_path(path, env)} has changed or was not read; nothing was changed. "
        "Read it first."
    )


NOTEBOOK_EDIT = Tool(
    name="NotebookEdit",
    description=(
        "Replace, insert (after the given cell; none: first) or delete a cell of a notebook you "
        "have Read. Give cell_id, or cell_number from 0."
    ),
    args=NotebookEditArgs,
    access=lambda args, here: write_access(args.notebook_path, here),
    run=_run_notebook_edit,
    summary=lambda args: (
        f"{args.edit_mode.capitalize()} a cell of {escape_path(args.notebook_path)}"
    ),
    deferred=True,
)
