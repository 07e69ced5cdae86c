"""A notebook's cells: as a model reads them, and as positions in the JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecoder
from typing import NamedTuple

import msgspec

from travois.context.tool_results import ResultRoom
from travois.ports.world import content_digest
from travois.tools.match import indent_of
from travois.tools.text import TextPosition, TextSplice, fit_parts, show_invalid_bytes

MAX_CELL_OUTPUT_CHARS = 2_000
"""Maximum characters shown of one output."""
JSON_WHITESPACE = re.compile(r"[ \t\r\n]*")
ANSI_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

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
    """One cell, as far as a reader cares."""

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
    """Return the notebook in this text; None if it is none."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=Notebook)
    except msgspec.DecodeError:
        return None


def join_lines(words: MultilineText) -> str:
    """Join text that notebooks store as one string or as a list of lines."""
    return words if isinstance(words, str) else "".join(words)


def render_cells(text: str, start: TextPosition, limit: int, *, room: ResultRoom) -> str:
    """Return the cells from a place on with shortened outputs; empty if this is no notebook."""
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
    """Find the values of the JSON object that begins here, by name."""
    found = dict[str, JsonSpan]()
    at = _skip_whitespace(text, at + 1)
    while text[at] != "}":
        name, at = JSONDecoder().raw_decode(text, at)
        start = _skip_whitespace(text, _skip_whitespace(text, at) + 1)
        found[name] = JsonSpan(start, _value_end(text, start))
        at = _skip_comma(text, found[name].end)
    return found


def find_element_spans(text: str, at: int) -> list[JsonSpan]:
    """Find the values of the JSON array that begins here."""
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
    return JSONDecoder().raw_decode(text, at)[1]


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


OBJECT_OPENING = re.compile(r'\s*\{(\s*)"(?:[^"\\]|\\.)*"(\s*:\s*)')
UNICODE_ESCAPE = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")


class JsonStyle(msgspec.Struct, frozen=True):
    """The layout of a JSON text: `unit` is one step of indentation, None if all is on one line."""

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
    """A notebook, its text, and where in it the cells are."""

    text: str
    notebook: Notebook
    array: JsonSpan
    cells: tuple[JsonSpan, ...]
    style: JsonStyle


def parse_notebook_text(text: str) -> NotebookText | None:
    """Return the notebook in this text with its places; None if it is none."""
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
    """Replace a cell's source, and perhaps its type; its outputs are cleared."""
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
    """Delete a cell, with the comma beside it."""
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
