"""NotebookEdit: changing one cell of a notebook without touching the others.

The notebook's JSON is not written anew: only the values that change are, in the style of the file.
A code cell that is replaced loses its outputs, which are those of another text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from travois.core.facts import Changed
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, StaleFile, content_digest
from travois.tools.diff import compare
from travois.tools.paths import absolute, existing, linked, plain, short, writes
from travois.tools.text import Splice, decode, splice

if TYPE_CHECKING:
    from travois.tools.notebook_cells import Sheet

NUMBERED = re.compile(r"cell-(\d+)")
LIMIT = 50_000_000


class NotebookEditArgs(msgspec.Struct, frozen=True):
    """A cell, and the change to make."""

    notebook_path: str
    new_source: str = ""
    cell_id: str = ""
    cell_number: int = -1
    cell_type: Literal["", "code", "markdown"] = ""
    edit_mode: Literal["replace", "insert", "delete"] = "replace"


async def _notebook_edit(args: NotebookEditArgs, env: Env, call: str) -> ToolOutcome:
    path = absolute(args.notebook_path, env.cwd)
    async with env.files.queue(path):
        try:
            return await _change(path, args, env=env)
        except StaleFile as stale:
            raise ToolError(_changed(path, env)) from stale


async def _change(path: str, args: NotebookEditArgs, *, env: Env) -> ToolOutcome:
    from travois.tools.notebook_cells import sheet_of

    stat = await existing(path, env)
    data = await env.files.read(path, limit=LIMIT)
    if env.state.get(f"seen:{path}") != content_digest(data):
        raise ToolError(_changed(path, env))
    source = decode(data)
    sheet = sheet_of(source.text) if source else None
    if source is None or sheet is None:
        raise ToolError(f"{short(path, env)} is not a readable notebook; use Edit on its text.")
    index = _index(sheet, args)
    made, what = _planned(sheet, index, args)
    result = splice(source, made)
    assert sheet_of(result.text) is not None, "a notebook stays one"
    digested = await env.files.replace(path, result.data, expect=content_digest(data))
    return text_outcome(
        f"{what} of {short(path, env)}{linked(stat)}.",
        detail=compare(path, source.text, result.text).json(),
        changes=(Changed(f"seen:{path}", digested),),
    )


def _planned(sheet: Sheet, index: int, args: NotebookEditArgs) -> tuple[list[Splice], str]:
    """Return the splices for the edit, and a description of it."""
    from travois.tools import notebook_cells

    if args.edit_mode == "insert":
        kind = args.cell_type or "code"
        made = notebook_cells.insert(sheet, index + 1, source=args.new_source, cell_type=kind)
        return made, f"Inserted a {kind} cell as cell {index + 1}"
    if index < 0:
        raise ToolError("Give cell_id, or cell_number counted from 0.")
    if args.edit_mode == "delete":
        return notebook_cells.delete(sheet, index), f"Deleted cell {index}"
    kind = args.cell_type or sheet.notebook.cells[index].cell_type
    if notebook_cells.unchanged(sheet, index, source=args.new_source, cell_type=kind):
        raise ToolError(f"Cell {index} already has this content; nothing to change.")
    made = notebook_cells.replace(sheet, index, source=args.new_source, cell_type=kind)
    return made, f"Replaced cell {index}"


def _index(sheet: Sheet, args: NotebookEditArgs) -> int:
    """Return the number of the cell that is meant, from 0; -1 if none was named."""
    cells = sheet.notebook.cells
    if args.cell_id:
        numbered = NUMBERED.fullmatch(args.cell_id)
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


def _changed(path: str, env: Env) -> str:
    return f"{short(path, env)} has changed or was not read; nothing was changed. Read it first."


NOTEBOOK_EDIT = Tool(
    name="NotebookEdit",
    description=(
        "Replace, insert (after the given cell; none: first) or delete a cell of a notebook you "
        "have Read. Give cell_id, or cell_number from 0."
    ),
    args=NotebookEditArgs,
    access=lambda args, here: writes(args.notebook_path, here),
    run=_notebook_edit,
    summary=lambda args: f"{args.edit_mode.capitalize()} a cell of {plain(args.notebook_path)}",
    deferred=True,
)
