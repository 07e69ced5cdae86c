"""NotebookEdit: changing one cell of a notebook without touching the others.

The notebook's JSON is not rewritten: only the values that change are, in the style of the file. A
code cell that is replaced loses its outputs, which belong to other code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from travois.context.tool_results import ResultRoom
from travois.core.display_text import escape_path
from travois.core.facts import Changed
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, StaleFile, content_digest
from travois.tools.diff import compare_texts
from travois.tools.paths import (
    absolute_path,
    describe_link,
    display_path,
    require_file,
    write_access,
)
from travois.tools.text import (
    TextPosition,
    TextSplice,
    apply_splices,
    decode_text,
    fit_parts,
    show_invalid_bytes,
)
from travois.tools.text_match import indent_of

with lazy_imports():
    import json


MAX_CELL_OUTPUT_CHARS = 2_000
"""Maximum characters shown of one output."""
JSON_WHITESPACE = compile_lazily(r"[ \t\r\n]*")
ANSI_COLOR = compile_lazily(r"\x1b\[[0-9;]*[A-Za-z]")

MultilineText = str | list[str]


class CellOutput(msgspec.Struct, frozen=True):
    """An output of a cell."""

    output_type: str = ""
    text: MultilineText = ""
    data: dict[str, msgspec.Raw] = {}
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


class NotebookCell(msgspec.Struct, frozen=True):
    """One cell of a notebook, without members that a reader does not need."""

    cell_type: str
    source: MultilineText = ""
    id: str = ""
    outputs: list[CellOutput] = []


class Notebook(msgspec.Struct, frozen=True):
    """A notebook of the fourth format."""

    cells: list[NotebookCell]
    nbformat: int = 4
    nbformat_minor: int = 0


class JsonSpan(NamedTuple):
    """The position of a JSON value in a text."""

    start: int
    end: int


def parse_notebook(text: str) -> Notebook | None:
    """Parse a text as a Jupyter notebook; None if it is none."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=Notebook)
    except msgspec.DecodeError:
        return None


def join_lines(words: MultilineText) -> str:
    """Join a notebook's text, stored as one string or as a list of lines."""
    return words if isinstance(words, str) else "".join(words)


def render_cells(text: str, start: TextPosition, limit: int, *, room: ResultRoom) -> str:
    """Render notebook cells from an index on, outputs shortened; empty if it is no notebook."""
    notebook = parse_notebook(text)
    if notebook is None:
        return ""
    count, first = len(notebook.cells), max(start.line, 0)
    indexes = range(first, min(first + max(limit, 1), count))
    cells = (_render_cell(index, notebook.cells[index]) for index in indexes)
    parts, column = fit_parts(cells, column=max(start.column, 1), room=room)
    last = first + len(parts) - 1
    if column:
        parts.append(f"[cell {last} of {count} is cut; continue with {TextPosition(last, column)}]")
    elif parts and last + 1 < count:
        parts.append(f"[cells {first}-{last} of {count}; continue with offset={last + 1}]")
    return "\n".join(parts) or f"[The notebook has {count} cells.]"


def find_member_spans(text: str, at: int) -> dict[str, JsonSpan]:
    """Find the positions of the values in a notebook's JSON object, by name."""
    found = dict[str, JsonSpan]()
    at = _skip_whitespace(text, at + 1)
    while text[at] != "}":
        name, at = json.JSONDecoder().raw_decode(text, at)
        start = _skip_whitespace(text, _skip_whitespace(text, at) + 1)
        found[name] = JsonSpan(start, _value_end(text, start))
        at = _skip_comma(text, found[name].end)
    return found


def find_element_spans(text: str, at: int) -> list[JsonSpan]:
    """Find the positions of the values in a notebook's JSON array."""
    found = list[JsonSpan]()
    at = _skip_whitespace(text, at + 1)
    while text[at] != "]":
        found.append(JsonSpan(at, _value_end(text, at)))
        at = _skip_comma(text, found[-1].end)
    return found


def _skip_comma(text: str, at: int) -> int:
    at = _skip_whitespace(text, at)
    return _skip_whitespace(text, at + 1) if text[at] == "," else at


def _value_end(text: str, at: int) -> int:
    return json.JSONDecoder().raw_decode(text, at)[1]


def _skip_whitespace(text: str, at: int) -> int:
    found = JSON_WHITESPACE.match(text, at)
    return found.end() if found else at


def _render_cell(index: int, cell: NotebookCell) -> str:
    """Render a notebook cell for the Read tool: a heading, its source and its outputs."""
    name = f", id {cell.id}" if cell.id else ""
    head = f"--- cell {index} ({cell.cell_type}{name}) ---"
    outputs = (line for output in cell.outputs for line in _render_output(output))
    return show_invalid_bytes("\n".join((head, join_lines(cell.source), *outputs)))


def _render_output(output: CellOutput) -> Iterator[str]:
    """Render an output of a notebook cell: its text or traceback, and sizes of other media."""
    yield f"[output{': ' + output.output_type if output.output_type == 'error' else ''}]"
    if output.output_type == "error":
        trace = output.traceback or [f"{output.ename}: {output.evalue}"]
        yield _shorten_output("\n".join(trace))
    elif output.text:
        yield _shorten_output(join_lines(output.text))
    elif "text/plain" in output.data:
        yield _shorten_output(_plain_text_data(output.data["text/plain"]))
    for mime, value in output.data.items():
        if not mime.startswith("text/"):
            yield f"[{mime}, {len(bytes(value)):,} bytes]"


def _plain_text_data(value: msgspec.Raw) -> str:
    """Decode the plain text of a notebook cell's output, or return its JSON."""
    try:
        return join_lines(msgspec.json.decode(value, type=MultilineText))
    except msgspec.ValidationError:
        return bytes(value).decode()


def _shorten_output(text: str) -> str:
    """Shorten the output of a notebook cell in the middle, and remove its colors."""
    text = ANSI_COLOR.sub("", text).rstrip("\n")
    if len(text) <= MAX_CELL_OUTPUT_CHARS:
        return text
    half = MAX_CELL_OUTPUT_CHARS // 2
    return (
        f"{text[:half]}\n[... {len(text) - MAX_CELL_OUTPUT_CHARS} characters ...]\n{text[-half:]}"
    )


# Changing single cells in a notebook's JSON text, in the style of that text.


OBJECT_OPENING = compile_lazily(r'\s*\{(\s*)"(?:[^"\\]|\\.)*"(\s*:\s*)')
UNICODE_ESCAPE = compile_lazily(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")


class JsonStyle(msgspec.Struct, frozen=True):
    """The layout of a JSON text: `unit` is one indentation step, None if it is on one line."""

    unit: str | None
    newline: str
    colon: str
    comma: str
    ascii: bool

    def render(self, value: object, *, base: str) -> str:
        """Return a value in this style, for a line that is indented by `base`."""
        comma = self.comma if self.unit is None else ","
        text = json.dumps(
            value,
            indent=self.unit,
            separators=(comma, self.colon),
            ensure_ascii=self.ascii,
        )
        return text.replace("\n", self.newline + base)


class NotebookText(msgspec.Struct, frozen=True):
    """A notebook, its JSON text, and the positions of its cells."""

    text: str
    notebook: Notebook
    array: JsonSpan
    cells: tuple[JsonSpan, ...]
    style: JsonStyle


def parse_notebook_text(text: str) -> NotebookText | None:
    """Parse a notebook together with the positions of its cells; None if it is none."""
    notebook = parse_notebook(text)
    if notebook is None:
        return None
    array = find_member_spans(text, text.index("{"))["cells"]
    return NotebookText(
        text,
        notebook,
        array,
        tuple(find_element_spans(text, array.start)),
        _detect_json_style(text),
    )


def replace_cell(
    sheet: NotebookText, index: int, *, source: str, cell_type: str
) -> list[TextSplice]:
    """Replace a notebook cell's source, and perhaps its type; its outputs are cleared."""
    span = sheet.cells[index]
    parts = find_member_spans(sheet.text, span.start)
    if cell_type != sheet.notebook.cells[index].cell_type or "source" not in parts:
        return [_splice_retyped_cell(sheet, span, source=source, cell_type=cell_type)]
    as_lines = sheet.text[parts["source"].start] == "["
    news = {"source": _source_lines(source) if as_lines else source}
    if cell_type == "code":
        news |= {"outputs": list[str](), "execution_count": None}
    splices = [
        _splice_value(sheet, parts[name], new) for name, new in news.items() if name in parts
    ]
    return sorted(splices)


def insert_cell(
    sheet: NotebookText, index: int, *, source: str, cell_type: str
) -> list[TextSplice]:
    """Insert a new cell into a notebook at an index."""
    style, cells = sheet.style, sheet.cells
    base = _indent_at(sheet.text, cells[0].start) if cells else (style.unit or "") * 2
    made = style.render(_new_cell(sheet, index, source=source, cell_type=cell_type), base=base)
    apart = _cell_separator(sheet, base)
    if index:
        return [TextSplice(cells[index - 1].end, cells[index - 1].end, apart + made)]
    if cells:
        return [TextSplice(cells[0].start, cells[0].start, made + apart)]
    before, after = ("", "") if style.unit is None else (base, style.unit)
    lead, tail = (style.newline + before, style.newline + after) if style.unit else ("", "")
    return [TextSplice(sheet.array.start + 1, sheet.array.end - 1, lead + made + tail)]


def delete_cell(sheet: NotebookText, index: int) -> list[TextSplice]:
    """Delete a notebook cell, with the comma beside it."""
    cells = sheet.cells
    if index + 1 < len(cells):
        return [TextSplice(cells[index].start, cells[index + 1].start, "")]
    if index:
        return [TextSplice(cells[index - 1].end, cells[index].end, "")]
    return [TextSplice(sheet.array.start + 1, sheet.array.end - 1, "")]


def _detect_json_style(text: str) -> JsonStyle:
    """Detect indentation, line ending, separators and escapes of a notebook's JSON."""
    opening = OBJECT_OPENING.match(text)
    blank, colon = (opening[1], opening[2]) if opening else ("", ": ")
    return JsonStyle(
        unit=blank.rpartition("\n")[2] if "\n" in blank else None,
        newline="\r\n" if "\r\n" in blank else "\n",
        colon=colon,
        comma=", " if re.search(r'[\]}"\d], "', text) else ",",
        ascii=text.isascii() and UNICODE_ESCAPE.search(text) is not None,
    )


def _splice_value(sheet: NotebookText, span: JsonSpan, value: object) -> TextSplice:
    return TextSplice(*span, sheet.style.render(value, base=_indent_at(sheet.text, span.start)))


def _splice_retyped_cell(
    sheet: NotebookText, span: JsonSpan, *, source: str, cell_type: str
) -> TextSplice:
    """Replace a notebook cell by one of another type, keeping its ID and metadata."""
    old: dict[str, object] = json.loads(sheet.text[span.start : span.end])
    kept = {name: old[name] for name in old if name not in ("outputs", "execution_count")}
    cell = (
        kept
        | {"cell_type": cell_type, "source": _source_lines(source)}
        | _empty_run_fields(cell_type)
    )
    return _splice_value(sheet, span, dict(sorted(cell.items())))


def _new_cell(sheet: NotebookText, index: int, *, source: str, cell_type: str) -> dict[str, object]:
    """Build the JSON of a new notebook cell, with an ID if the format version has them."""
    fresh: dict[str, object] = {
        "cell_type": cell_type,
        "metadata": {},
        "source": _source_lines(source),
    }
    if (sheet.notebook.nbformat, sheet.notebook.nbformat_minor) >= (4, 5):
        fresh["id"] = _unused_cell_id(sheet, f"{index}\n{source}")
    return dict(sorted((fresh | _empty_run_fields(cell_type)).items()))


def _empty_run_fields(cell_type: str) -> dict[str, object]:
    """Return the output fields of a notebook code cell that has not run."""
    return {"outputs": [], "execution_count": None} if cell_type == "code" else {}


def _unused_cell_id(sheet: NotebookText, seed: str) -> str:
    """Return an ID for a new notebook cell that no other cell has."""
    used = {cell.id for cell in sheet.notebook.cells}
    while (name := content_digest(seed.encode())[:8]) in used:
        seed += "\n"
    return name


def _cell_separator(sheet: NotebookText, base: str) -> str:
    """Return the text between two cells in a notebook's JSON."""
    if len(sheet.cells) > 1:
        return sheet.text[sheet.cells[0].end : sheet.cells[1].start]
    style = sheet.style
    return style.comma if style.unit is None else f",{style.newline}{base}"


def _source_lines(source: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", source)


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the JSON line at a position of a notebook's text."""
    return indent_of(text[text.rfind("\n", 0, at) + 1 : at])


def is_cell_unchanged(sheet: NotebookText, index: int, *, source: str, cell_type: str) -> bool:
    """Return whether a notebook cell already has this source and type."""
    cell = sheet.notebook.cells[index]
    return (join_lines(cell.source), cell.cell_type) == (source, cell_type)


CELL_NUMBER_PATTERN = compile_lazily(r"cell-(\d+)")
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
    sheet = parse_notebook_text(source.text) if source else None
    if source is None or sheet is None:
        raise ToolError(
            f"{display_path(path, env)} is not a readable notebook; use Edit on its text."
        )
    index = _find_cell_index(sheet, args)
    made, what = _plan_cell_edit(sheet, index, args)
    result = apply_splices(source, made)
    assert parse_notebook_text(result.text) is not None, "a notebook stays one"
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
        made = insert_cell(sheet, index + 1, source=args.new_source, cell_type=kind)
        return made, f"Inserted a {kind} cell as cell {index + 1}"
    if index < 0:
        raise ToolError("Give cell_id, or cell_number counted from 0.")
    if args.edit_mode == "delete":
        return delete_cell(sheet, index), f"Deleted cell {index}"
    kind = args.cell_type or sheet.notebook.cells[index].cell_type
    if is_cell_unchanged(sheet, index, source=args.new_source, cell_type=kind):
        raise ToolError(f"Cell {index} already has this content; nothing to change.")
    made = replace_cell(sheet, index, source=args.new_source, cell_type=kind)
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
