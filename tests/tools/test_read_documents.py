"""Read: PDFs by page and notebooks by cell."""

from __future__ import annotations

import io
import json
from typing import Any

from tests.tools.test_read import read, refused
from tests.tools.world import World
from travois.context.tool_results import ResultRoom
from travois.ports.world import content_digest


def pdf(*pages: str) -> bytes:
    """A document with one line of text on each page."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(k): NameObject(v) for k, v in names.items()})
    for text in pages:
        page = writer.add_blank_page(width=200, height=200)
        fonts = DictionaryObject({NameObject("/F"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_a_pdf_is_read_by_page(world: World) -> None:
    data = pdf("Hello", "", "World")
    path = world.write("a.pdf", data)
    assert read(world, "a.pdf") == (
        "--- page 1 of 3 ---\nHello\n"
        "--- page 2 of 3 ---\n[no text on this page; it may be scanned]\n"
        "--- page 3 of 3 ---\nWorld"
    )
    assert world.state[f"seen:{path}"] == content_digest(data)


def test_some_pages_of_a_pdf(world: World) -> None:
    world.write("a.pdf", pdf(*(f"text {number}" for number in range(1, 31))))
    assert read(world, "a.pdf", pages="30") == "--- page 30 of 30 ---\ntext 30"
    assert read(world, "a.pdf", pages="29-40").startswith("--- page 29 of 30 ---\ntext 29\n")
    assert read(world, "a.pdf", pages="2-3") == (
        "--- page 2 of 30 ---\ntext 2\n--- page 3 of 30 ---\ntext 3\n"
        '[pages 2-3 of 30; continue with pages="4-"]'
    )
    assert read(world, "a.pdf", pages="20-").endswith("--- page 30 of 30 ---\ntext 30")


def test_at_most_twenty_pages_at_once(world: World) -> None:
    world.write("a.pdf", pdf(*(["x"] * 30)))
    for pages in ("", "1-30"):
        text = read(world, "a.pdf", pages=pages)
        assert text.endswith('[pages 1-20 of 30; continue with pages="21-"]')
        assert text.count("--- page") == 20


def test_pages_with_much_text_end_where_the_room_does(world: World) -> None:
    world.write("a.pdf", pdf("a" * 30_000, "b" * 30_000, "c"))
    world.room = ResultRoom(cap=10_000, share=10_000)
    assert read(world, "a.pdf").endswith('[pages 1-1 of 3; continue with pages="2-"]')


def test_a_page_that_alone_has_no_room_is_read_in_parts(world: World) -> None:
    words = " ".join(map(str, range(6_000)))
    world.write("a.pdf", pdf("x", words))
    world.room = ResultRoom(cap=4_000, share=4_000)
    text, column = "", 1
    while 'continue with pages="2-", column=' in (
        part := read(world, "a.pdf", pages="2", column=column)
    ):
        part, _, note = part.rpartition("\n[")
        text += part
        column = int(note.rpartition("=")[2].rstrip("]"))
    assert text + part == f"--- page 2 of 2 ---\n{words}"


def test_pages_that_are_not_there_are_refused(world: World) -> None:
    world.write("a.pdf", pdf("x", "y"))
    assert refused(world, "a.pdf", pages="5") == "The PDF has pages 1-2; '5' is out of range."
    assert refused(world, "a.pdf", pages="two") == ('pages must be like "3" or "1-5", not \'two\'.')
    assert "out of range" in refused(world, "a.pdf", pages="2-1")


def test_a_broken_pdf_is_refused(world: World) -> None:
    world.write("a.pdf", b"%PDF-1.7\nnothing of the kind")
    assert refused(world, "a.pdf").startswith("This PDF cannot be read (")


def test_a_pdf_that_is_too_large_is_refused(world: World) -> None:
    path = world.write("a.pdf", pdf("x"))
    with open(path, "ab") as file:
        file.truncate(50_000_001)
    assert refused(world, "a.pdf") == (
        "This PDF (50,000,001 bytes) is too large; use Bash with pdftotext -f -l."
    )


def notebook(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def code(source: str, *outputs: dict[str, Any], name: str = "") -> dict[str, Any]:
    named = {"id": name} if name else {}
    lines = source.splitlines(keepends=True)
    return {"cell_type": "code", "source": lines, "outputs": list(outputs), **named}


def test_a_notebook_is_read_by_cell(world: World) -> None:
    stream = {"output_type": "stream", "name": "stdout", "text": ["1\n", "2\n"]}
    result = {"output_type": "execute_result", "data": {"text/plain": "3", "image/png": "aGk="}}
    odd = {"output_type": "display_data", "data": {"text/plain": {"a": 1}, "text/html": "<p>"}}
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE: v"]}
    path = world.write(
        "a.ipynb",
        notebook(
            {"cell_type": "markdown", "id": "m", "source": "# Title"},
            code("print(1)\nprint(2)", stream, result, name="c"),
            code("boom", odd, error),
        ),
    )
    assert read(world, "a.ipynb") == (
        "--- cell 0 (markdown, id m) ---\n# Title\n"
        "--- cell 1 (code, id c) ---\nprint(1)\nprint(2)\n"
        "[output]\n1\n2\n[output]\n3\n[image/png, 6 bytes]\n"
        '--- cell 2 (code) ---\nboom\n[output]\n{"a": 1}\n[output: error]\nE: v'
    )
    assert world.state[f"seen:{path}"] == content_digest(world.bytes("a.ipynb"))


def test_long_outputs_are_shortened(world: World) -> None:
    text = "a" * 5_000 + "b" * 5_000
    world.write("a.ipynb", notebook(code("x", {"output_type": "stream", "text": text})))
    assert read(world, "a.ipynb") == (
        "--- cell 0 (code) ---\nx\n[output]\n"
        + "a" * 1_000
        + "\n[... 8000 characters ...]\n"
        + "b" * 1_000
    )


def test_a_long_notebook_is_read_in_parts(world: World) -> None:
    world.write("a.ipynb", notebook(*(code(f"cell {n}") for n in range(10))))
    assert read(world, "a.ipynb", offset=3, limit=2) == (
        "--- cell 3 (code) ---\ncell 3\n--- cell 4 (code) ---\ncell 4\n"
        "[cells 3-4 of 10; continue with offset=5]"
    )
    assert read(world, "a.ipynb", offset=9) == "--- cell 9 (code) ---\ncell 9"
    world.write("b.ipynb", notebook(*(code("x" * 20_000) for _ in range(10))))
    world.room = ResultRoom(cap=12_000, share=12_000)
    assert read(world, "b.ipynb").endswith("[cells 0-1 of 10; continue with offset=2]")


def test_a_cell_that_alone_has_no_room_is_read_in_parts(world: World) -> None:
    source = "".join(f"line {n}\n" for n in range(2_000))
    world.write("a.ipynb", notebook(code("x"), code(source), code("y")))
    world.room = ResultRoom(cap=4_000, share=4_000)
    first = read(world, "a.ipynb")
    assert first.endswith("[cells 0-0 of 3; continue with offset=1]")
    text, column = "", 1
    while "[cell 1 of 3 is cut" in (part := read(world, "a.ipynb", offset=1, column=column)):
        part, _, note = part.rpartition("\n[")
        text += part if part.endswith("\n") else f"{part}\n"
        assert note.startswith("cell 1 of 3 is cut; continue with offset=1, column=")
        column = int(note.rpartition("=")[2].rstrip("]"))
    assert (text + part).startswith(f"--- cell 1 (code) ---\n{source}")
    assert "--- cell 2 (code) ---\ny" in part


def test_an_empty_notebook_is_said_to_be_empty(world: World) -> None:
    world.write("a.ipynb", notebook())
    assert read(world, "a.ipynb") == "[The notebook has 0 cells.]"


def test_a_broken_notebook_is_read_as_text(world: World) -> None:
    world.write("a.ipynb", '{"cells": [oops\n')
    assert read(world, "a.ipynb") == '1\t{"cells": [oops'
