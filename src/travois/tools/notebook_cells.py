"""Changing single cells in a notebook's JSON text, in the style of that text."""

from __future__ import annotations

import json
import re

import msgspec

from travois.ports.world import digest
from travois.tools.cells import Notebook, Span, elements, joined, members, parse
from travois.tools.indent import indent_of
from travois.tools.text import Splice

OPENING = re.compile(r'\s*\{(\s*)"(?:[^"\\]|\\.)*"(\s*:\s*)')
ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")


class Style(msgspec.Struct, frozen=True):
    """How a JSON text is laid out: `unit` is a step of indentation, None if all is on one line."""

    unit: str | None
    newline: str
    colon: str
    comma: str
    ascii: bool

    def render(self, value: object, *, base: str) -> str:
        """A value in this style, for a line that is indented by `base`."""
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
    """The notebook in this text with its places; None if it is none."""
    notebook = parse(text)
    if notebook is None:
        return None
    array = members(text, text.index("{"))["cells"]
    return Sheet(text, notebook, array, tuple(elements(text, array.start)), _style(text))


def replace(sheet: Sheet, index: int, *, source: str, cell_type: str) -> list[Splice]:
    """Give a cell another source, and perhaps another type; what it brought is forgotten."""
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
    """A cell of its own, to stand at this index."""
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
    """Take a cell out, with the comma that parted it from its neighbour."""
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
    """What a code cell has before it has run."""
    return {"outputs": [], "execution_count": None} if cell_type == "code" else {}


def _unused_id(sheet: Sheet, seed: str) -> str:
    used = {cell.id for cell in sheet.notebook.cells}
    while (name := digest(seed.encode())[:8]) in used:
        seed += "\n"
    return name


def _apart(sheet: Sheet, base: str) -> str:
    """What stands between two cells."""
    if len(sheet.cells) > 1:
        return sheet.text[sheet.cells[0].end : sheet.cells[1].start]
    style = sheet.style
    return style.comma if style.unit is None else f",{style.newline}{base}"


def _lines(source: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", source)


def _indent(text: str, at: int) -> str:
    """The indentation of the line on which this character stands."""
    return indent_of(text[text.rfind("\n", 0, at) + 1 : at])


def unchanged(sheet: Sheet, index: int, *, source: str, cell_type: str) -> bool:
    """Whether a cell is like this already."""
    cell = sheet.notebook.cells[index]
    return (joined(cell.source), cell.cell_type) == (source, cell_type)
