"""A notebook's cells: as a model reads them, and as places in its JSON text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json.decoder import JSONDecoder
from typing import NamedTuple

import msgspec

from travois.ports.world import Room
from travois.tools.page import Place, fit_parts
from travois.tools.text import shown

OUTPUT = 2_000
"""How many characters of one output are shown."""
BLANK = re.compile(r"[ \t\r\n]*")
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

Words = str | list[str]


class Output(msgspec.Struct, frozen=True):
    """What a cell brought when it ran."""

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
    """Where a JSON value stands in a text."""

    start: int
    end: int


def parse(text: str) -> Notebook | None:
    """The notebook in this text; None if it is none."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=Notebook)
    except msgspec.DecodeError:
        return None


def joined(words: Words) -> str:
    """Text that notebooks write as one string or as a list of lines."""
    return words if isinstance(words, str) else "".join(words)


def show(text: str, start: Place, limit: int, *, room: Room) -> str:
    """The cells from a place on with shortened outputs; empty if this is no notebook."""
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
    """The values of the JSON object that begins here, by name."""
    found = dict[str, Span]()
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = JSONDecoder().raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        found[name] = Span(start, _end(text, start))
        at = _after_comma(text, found[name].end)
    return found


def elements(text: str, at: int) -> list[Span]:
    """The values of the JSON array that begins here."""
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
    """Plain text without colours, its middle left out if it is long."""
    text = ESCAPE.sub("", text).rstrip("\n")
    if len(text) <= OUTPUT:
        return text
    half = OUTPUT // 2
    return f"{text[:half]}\n[... {len(text) - OUTPUT} characters ...]\n{text[-half:]}"
