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
from travois.tools.text import Place, Splice, fit_parts, shown

OUTPUT = 2_000
"""Maximum characters shown of one output."""
BLANK = re.compile(r"[ \t\r\n]*")
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

Words = str | list[str]


class Output(msgspec.Struct, frozen=True):
    """An output of a cell."""

    output_type: str = ""
    text: Words = ""
    data: dict[str, msgspec.Raw] = {}
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


class Cell(msgspec.Struct, frozen=True):
    """One cell, as far as a reader cares."""

    cell_type: str
    source: Words = ""
    id: str = ""
    outputs: list[Output] = []


class Notebook(msgspec.Struct, frozen=True):
    """A notebook of the fourth format."""

    cells: list[Cell]
    nbformat: int = 4
    nbformat_minor: int = 0


class Span(NamedTuple):
    """The position of a JSON value in a text."""

    start: int
    end: int


def parse(text: str) -> Notebook | None:
    """Return the notebook in this text; None if it is none."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=Notebook)
    except msgspec.DecodeError:
        return None


def joined(words: Words) -> str:
    """Join text that notebooks store as one string or as a list of lines."""
    return words if isinstance(words, str) else "".join(words)


def show(text: str, start: Place, limit: int, *, room: ResultRoom) -> str:
    """Return the cells from a place on with shortened outputs; empty if this is no notebook."""
    notebook = parse(text)
    if notebook is None:
        return ""
    count, first = len(notebook.cells), max(start.line, 0)
    indexes = range(first, min(first + max(limit, 1), count))
    cells = (_cell(index, notebook.cells[index]) for index in indexes)
    parts, column = fit_parts(cells, column=max(start.column, 1), room=room)
    last = first + len(parts) - 1
    if column:
        parts.append(f"[cell {last} of {count} is cut; continue with {Place(last, column)}]")
    elif parts and last + 1 < count:
        parts.append(f"[cells {first}-{last} of {count}; continue with offset={last + 1}]")
    return "\n".join(parts) or f"[The notebook has {count} cells.]"


def members(text: str, at: int) -> dict[str, Span]:
    """Return the values of the JSON object that begins here, by name."""
    found = dict[str, Span]()
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = JSONDecoder().raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        found[name] = Span(start, _end(text, start))
        at = _after_comma(text, found[name].end)
    return found


def elements(text: str, at: int) -> list[Span]:
    """Return the values of the JSON array that begins here."""
    found = list[Span]()
    at = _skip(text, at + 1)
    while text[at] != "]":
        found.append(Span(at, _end(text, at)))
        at = _after_comma(text, found[-1].end)
    return found


def _after_comma(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _end(text: str, at: int) -> int:
    return JSONDecoder().raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return found.end() if found else at


def _cell(index: int, cell: Cell) -> str:
    name = f", id {cell.id}" if cell.id else ""
    head = f"--- cell {index} ({cell.cell_type}{name}) ---"
    outputs = (line for output in cell.outputs for line in _output(output))
    return shown("\n".join((head, joined(cell.source), *outputs)))


def _output(output: Output) -> Iterator[str]:
    yield f"[output{': ' + output.output_type if output.output_type == 'error' else ''}]"
    if output.output_type == "error":
        trace = output.traceback or [f"{output.ename}: {output.evalue}"]
        yield _short("\n".join(trace))
    elif output.text:
        yield _short(joined(output.text))
    elif "text/plain" in output.data:
        yield _short(_plain(output.data["text/plain"]))
    for mime, value in output.data.items():
        if not mime.startswith("text/"):
            yield f"[{mime}, {len(bytes(value)):,} bytes]"


def _plain(value: msgspec.Raw) -> str:
    try:
        return joined(msgspec.json.decode(value, type=Words))
    except msgspec.ValidationError:
        return bytes(value).decode()


def _short(text: str) -> str:
    """Return plain text without colors, shortened in the middle if it is long."""
    text = ESCAPE.sub("", text).rstrip("\n")
    if len(text) <= OUTPUT:
        return text
    half = OUTPUT // 2
    return f"{text[:half]}\n[... {len(text) - OUTPUT} characters ...]\n{text[-half:]}"


# Changing single cells in a notebook's JSON text, in the style of that text.


OPENING = re.compile(r'\s*\{(\s*)"(?:[^"\\]|\\.)*"(\s*:\s*)')
ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")


class Style(msgspec.Struct, frozen=True):
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


class Sheet(msgspec.Struct, frozen=True):
    """A notebook, its text, and where in it the cells are."""

    text: str
    notebook: Notebook
    array: Span
    cells: tuple[Span, ...]
    style: Style


def sheet_of(text: str) -> Sheet | None:
    """Return the notebook in this text with its places; None if it is none."""
    notebook = parse(text)
    if notebook is None:
        return None
    array = members(text, text.index("{"))["cells"]
    return Sheet(text, notebook, array, tuple(elements(text, array.start)), _style(text))


def replace(sheet: Sheet, index: int, *, source: str, cell_type: str) -> list[Splice]:
    """Replace a cell's source, and perhaps its type; its outputs are cleared."""
    span = sheet.cells[index]
    parts = members(sheet.text, span.start)
    if cell_type != sheet.notebook.cells[index].cell_type or "source" not in parts:
        return [_retyped(sheet, span, source=source, cell_type=cell_type)]
    as_lines = sheet.text[parts["source"].start] == "["
    news = {"source": _lines(source) if as_lines else source}
    if cell_type == "code":
        news |= {"outputs": list[str](), "execution_count": None}
    splices = [_value(sheet, parts[name], new) for name, new in news.items() if name in parts]
    return sorted(splices)


def insert(sheet: Sheet, index: int, *, source: str, cell_type: str) -> list[Splice]:
    """Return a cell of its own, to stand at this index."""
    style, cells = sheet.style, sheet.cells
    base = _indent(sheet.text, cells[0].start) if cells else (style.unit or "") * 2
    made = style.render(_made(sheet, index, source=source, cell_type=cell_type), base=base)
    apart = _apart(sheet, base)
    if index:
        return [Splice(cells[index - 1].end, cells[index - 1].end, apart + made)]
    if cells:
        return [Splice(cells[0].start, cells[0].start, made + apart)]
    before, after = ("", "") if style.unit is None else (base, style.unit)
    lead, tail = (style.newline + before, style.newline + after) if style.unit else ("", "")
    return [Splice(sheet.array.start + 1, sheet.array.end - 1, lead + made + tail)]


def delete(sheet: Sheet, index: int) -> list[Splice]:
    """Delete a cell, with the comma beside it."""
    cells = sheet.cells
    if index + 1 < len(cells):
        return [Splice(cells[index].start, cells[index + 1].start, "")]
    if index:
        return [Splice(cells[index - 1].end, cells[index].end, "")]
    return [Splice(sheet.array.start + 1, sheet.array.end - 1, "")]


def _style(text: str) -> Style:
    opening = OPENING.match(text)
    blank, colon = (opening[1], opening[2]) if opening else ("", ": ")
    return Style(
        unit=blank.rpartition("\n")[2] if "\n" in blank else None,
        newline="\r\n" if "\r\n" in blank else "\n",
        colon=colon,
        comma=", " if re.search(r'[\]}"\d], "', text) else ",",
        ascii=text.isascii() and ESCAPED.search(text) is not None,
    )


def _value(sheet: Sheet, span: Span, value: object) -> Splice:
    return Splice(*span, sheet.style.render(value, base=_indent(sheet.text, span.start)))


def _retyped(sheet: Sheet, span: Span, *, source: str, cell_type: str) -> Splice:
    old: dict[str, object] = json.loads(sheet.text[span.start : span.end])
    kept = {name: old[name] for name in old if name not in ("outputs", "execution_count")}
    cell = kept | {"cell_type": cell_type, "source": _lines(source)} | _run(cell_type)
    return _value(sheet, span, dict(sorted(cell.items())))


def _made(sheet: Sheet, index: int, *, source: str, cell_type: str) -> dict[str, object]:
    fresh: dict[str, object] = {"cell_type": cell_type, "metadata": {}, "source": _lines(source)}
    if (sheet.notebook.nbformat, sheet.notebook.nbformat_minor) >= (4, 5):
        fresh["id"] = _unused_id(sheet, f"{index}\n{source}")
    return dict(sorted((fresh | _run(cell_type)).items()))


def _run(cell_type: str) -> dict[str, object]:
    """Return the fields of a code cell that has not run."""
    return {"outputs": [], "execution_count": None} if cell_type == "code" else {}


def _unused_id(sheet: Sheet, seed: str) -> str:
    used = {cell.id for cell in sheet.notebook.cells}
    while (name := content_digest(seed.encode())[:8]) in used:
        seed += "\n"
    return name


def _apart(sheet: Sheet, base: str) -> str:
    """Return the text between two cells."""
    if len(sheet.cells) > 1:
        return sheet.text[sheet.cells[0].end : sheet.cells[1].start]
    style = sheet.style
    return style.comma if style.unit is None else f",{style.newline}{base}"


def _lines(source: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", source)


def _indent(text: str, at: int) -> str:
    """Return the indentation of the line on which this character stands."""
    return indent_of(text[text.rfind("\n", 0, at) + 1 : at])


def unchanged(sheet: Sheet, index: int, *, source: str, cell_type: str) -> bool:
    """Return whether a cell is like this already."""
    cell = sheet.notebook.cells[index]
    return (joined(cell.source), cell.cell_type) == (source, cell_type)
