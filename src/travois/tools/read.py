"""Read: text with line numbers, images, PDF text and notebooks."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from travois.context.tool_results import ResultRoom
from travois.core.content import Media, Text
from travois.core.display_text import escape_path
from travois.core.facts import Changed
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env, FileStat, content_digest
from travois.tools.paths import (
    absolute_path,
    display_path,
    read_access,
    require_file,
)
from travois.tools.text import (
    DEFAULT_PAGE_LINES,
    ENCODING_SAMPLE_BYTES,
    DecodedText,
    FittedPage,
    LinePage,
    TextEncoding,
    TextPosition,
    decode_text,
    detect_encoding,
    fit_parts,
    line_endings,
)

if TYPE_CHECKING:
    from pypdf import PdfReader

with lazy_imports():
    import logging

    import pypdf
    from pypdf import errors as pypdf_errors

    from travois.tools import notebook


# What some bytes are, by how they begin.


IMAGE_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
)
FILE_SIGNATURES = (
    (0, b"\x7fELF", "a compiled program"),
    (0, b"MZ", "a compiled program"),
    (0, b"\xcf\xfa\xed\xfe", "a compiled program"),
    (0, b"\xca\xfe\xba\xbe", "compiled code"),
    (0, b"\0asm", "compiled code"),
    (0, b"PK\x03\x04", "a zip archive or office document"),
    (0, b"7z\xbc\xaf", "an archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (257, b"ustar", "a tar archive"),
    (0, b"SQLite format 3", "an SQLite database"),
    (0, b"II*\0", "a TIFF image (convert it to PNG)"),
    (0, b"MM\0*", "a TIFF image (convert it to PNG)"),
    (0, b"BM", "a BMP image (convert it to PNG)"),
    (4, b"ftyp", "a video or HEIF image"),
    (0, b"RIFF", "sound or video"),
    (0, b"OggS", "sound or video"),
    (0, b"ID3", "sound"),
)
CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


def image_type(head: bytes) -> str:
    """Return the media type of an image that the Read tool can show; empty for other files."""
    return next((mime for at, start, mime in IMAGE_SIGNATURES if head.startswith(start, at)), "")


def describe_file_kind(head: bytes) -> str:
    """Describe a binary file's kind by its first bytes, for the Read tool."""
    return next(
        (name for at, start, name in FILE_SIGNATURES if head.startswith(start, at)), "binary data"
    )


def is_garbled(head: bytes) -> bool:
    """Return whether a file has too many control characters for the Read tool to show as text."""
    return len(head) - len(head.translate(None, CONTROL_BYTES)) > len(head) // 10


# The text of a PDF's pages.


MAX_PDF_PAGES = 20
PAGE_RANGE = compile_lazily(r"(\d+)(?:\s*-\s*(\d*))?")
EMPTY_PAGE = "[no text on this page; it may be scanned]"
PDF_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that a malformed document can make a parser raise."""


def read_pdf_pages(data: bytes, wanted: str, *, column: int, room: ResultRoom) -> str:
    """Return PDF pages selected as `3` or `1-5`, each under a heading; all by default."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        count = len(reader.pages)
        first, last = _parse_page_range(wanted, count)
        parts, cut = fit_parts(
            _render_pdf_pages(reader, first, last, count=count), column=column, room=room
        )
        return "\n".join((*parts, *_pdf_continuation(first, len(parts), count=count, cut=cut)))
    except (pypdf_errors.PyPdfError, *PDF_ERRORS) as error:
        raise ToolError(f"This PDF cannot be read ({error}); try Bash with pdftotext.") from error


def _parse_page_range(wanted: str, count: int) -> tuple[int, int]:
    """Return the first and last PDF page requested, as far as they exist."""
    said = PAGE_RANGE.fullmatch(wanted.strip()) if wanted else None
    if wanted and said is None:
        raise ToolError(f'pages must be like "3" or "1-5", not {wanted!r}.')
    first = int(said[1]) if said else 1
    last = int(said[2] or count) if said and said[2] is not None else first if said else count
    if not 1 <= first <= min(last, count):
        raise ToolError(f"The PDF has pages 1-{count}; {wanted!r} is out of range.")
    return first, min(last, count, first + MAX_PDF_PAGES - 1)


def _render_pdf_pages(reader: PdfReader, first: int, last: int, *, count: int) -> Iterator[str]:
    """Render the text of PDF pages for the Read tool, each below a page heading."""
    for number in range(first, last + 1):
        text = reader.pages[number - 1].extract_text().strip()
        yield f"--- page {number} of {count} ---\n{text or EMPTY_PAGE}"


def _pdf_continuation(first: int, shown: int, *, count: int, cut: int) -> Iterator[str]:
    """Tell the Read tool's caller which pages or column of a PDF to read next."""
    last = first + shown - 1
    if cut:
        yield f'[page {last} of {count} is cut; continue with pages="{last}-", column={cut}]'
    elif last < count:
        yield f'[pages {first}-{last} of {count}; continue with pages="{last + 1}-"]'


MAX_WHOLE_FILE_BYTES = 50_000_000
"""Larger files are read in parts, and are not known as a whole afterwards."""
READ_CHUNK_BYTES = 4_000_000
MAX_READ_IMAGE_BYTES = 3_750_000
"""The largest image that providers accept once it is encoded."""
EIGHT_BIT_CODECS = ("cp1252", "latin-1")
LINE_END_NAMES = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


class ReadArgs(msgspec.Struct, frozen=True):
    """A file, and the part of it to read."""

    file_path: str
    offset: int = 0
    limit: int = DEFAULT_PAGE_LINES
    column: int = 0
    pages: str = ""


async def _run_read(args: ReadArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Read tool for a text file, image, PDF or notebook."""
    path = absolute_path(args.file_path, env.cwd)
    stat = await require_file(path, env)
    whole = stat.size <= MAX_WHOLE_FILE_BYTES
    data = await env.files.read(
        path, limit=MAX_WHOLE_FILE_BYTES if whole else ENCODING_SAMPLE_BYTES
    )
    if mime := image_type(data):
        outcome = _read_image(data, mime, stat, path=path, env=env)
    elif data.startswith(b"%PDF-"):
        outcome = await _read_pdf(data, args, size=stat.size, room=env.room)
    elif whole:
        outcome = _read_text_file(data, args, display_path(path, env), room=env.room)
    else:
        return await _read_large_file(path, data, args, size=stat.size, env=env)
    return msgspec.structs.replace(
        outcome, changes=(Changed(f"seen:{path}", content_digest(data)),)
    )


async def _read_pdf(data: bytes, args: ReadArgs, *, size: int, room: ResultRoom) -> ToolOutcome:
    """Read pages of a PDF as text for the Read tool, in a thread."""
    if size > len(data):
        raise ToolError(f"This PDF ({size:,} bytes) is too large; use Bash with pdftotext -f -l.")
    wanted = partial(read_pdf_pages, data, args.pages, column=max(args.column, 1), room=room)
    return text_outcome(await to_thread.run_sync(wanted, abandon_on_cancel=True))


def _read_image(data: bytes, mime: str, stat: FileStat, *, path: str, env: Env) -> ToolOutcome:
    """Store an image for the Read tool and show it to the model; refuse very large ones."""
    if stat.size > MAX_READ_IMAGE_BYTES:
        raise ToolError(
            f"{display_path(path, env)} ({mime}, {stat.size:,} bytes) is too large "
            f"(limit: {MAX_READ_IMAGE_BYTES:,} bytes); "
            "make a smaller copy with Bash and Read that."
        )
    name = display_path(path, env)
    image = Media("image", mime, env.blobs.put(data), size=len(data), name=name)
    return ToolOutcome((Text(f"{name}: {mime}, {len(data):,} bytes"), image))


def _read_text_file(data: bytes, args: ReadArgs, name: str, *, room: ResultRoom) -> ToolOutcome:
    """Read a text file or notebook for the Read tool; refuse binary files."""
    source = decode_text(data)
    if source is None or _is_garbled_text(source.encoding, data):
        raise ToolError(_binary_file_message(name, data, len(data)))
    if not source.text:
        return text_outcome("[The file is empty.]", lines=0)
    cells = _render_notebook(source, args, room) if name.endswith(".ipynb") else ""
    return text_outcome(cells) if cells else _render_text(source, args, room)


def _render_notebook(source: DecodedText, args: ReadArgs, room: ResultRoom) -> str:
    """Render a notebook's cells for the Read tool, or nothing if it cannot be parsed."""
    return notebook.render_cells(
        source.text, TextPosition(args.offset, args.column), args.limit, room=room
    )


def _render_text(source: DecodedText, args: ReadArgs, room: ResultRoom) -> ToolOutcome:
    """Render a page of a text file with line numbers for the Read tool."""
    feed = "\n" if "\n" in source.text else "\r"
    page = _start_page(args, room, feed)
    page.add(source.text)
    page.close()
    total = source.text.count(feed) + (not source.text.endswith(feed))
    if not page.lines:
        raise ToolError(f"The file has only {total} lines; offset {args.offset} is past the end.")
    fitted = _fit_page(page)
    notes = list(_describe_encoding(source))
    if page.first.column > 1 or fitted.next.line <= total:
        notes.append(
            _describe_position(page, fitted, f" of {total:,}", more=fitted.next.line <= total)
        )
    return text_outcome(fitted.text + "".join(f"\n[{note}]" for note in notes), lines=fitted.lines)


def _start_page(args: ReadArgs, room: ResultRoom, feed: str) -> LinePage:
    first = TextPosition(max(args.offset, 1), max(args.column, 1))
    return LinePage(first, max(args.limit, 1), room=room, feed=feed)


def _fit_page(page: LinePage) -> FittedPage:
    """Fit a page of the Read tool into its size limit; refuse a column past the line's end."""
    if page.is_past_line_end:
        line, column = page.first
        raise ToolError(f"Line {line} is shorter than column {column}; omit column to read it.")
    return page.fit()


def _describe_position(page: LinePage, fitted: FittedPage, total: str, *, more: bool) -> str:
    """Describe which part of a file the Read tool returned, and how to read on."""
    (line, column), after = page.first, fitted.next
    if after.column > 1:
        told = f"line {line}{total} is cut: characters {column:,}-{after.column - 1:,}"
    else:
        told = f"lines {line}-{after.line - 1}{total}"
        told += f", line {line} from character {column:,} on" if column > 1 else ""
    return f"{told}; continue with {after}" if more else told


def _describe_encoding(source: DecodedText) -> Iterator[str]:
    """List remarks on a read file's unusual encoding or mixed line endings."""
    if source.encoding.label:
        yield f"encoding: {source.encoding.label}"
    kinds = line_endings(source.text)
    if len(kinds) > 1:
        yield f"mixed line endings: {', '.join(LINE_END_NAMES[kind] for kind in kinds)}"


async def _read_large_file(
    path: str, head: bytes, args: ReadArgs, *, size: int, env: Env
) -> ToolOutcome:
    """Read some lines of a file that is too large for memory."""
    encoding = detect_encoding(head)
    if encoding is None or _is_garbled_text(encoding, head):
        raise ToolError(_binary_file_message(display_path(path, env), head, size))
    errors = "surrogateescape" if encoding.codec == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding.codec)(errors)
    page = _start_page(args, env.room, "\n" if b"\n" in head else "\r")
    at = len(encoding.bom)
    while at < size and not page.full:
        data = await env.files.read(path, offset=at, limit=READ_CHUNK_BYTES)
        at = at + len(data) if data else size
        page.add(decoder.decode(data))
        env.progress(f"{at * 100 // size}% of {size:,} bytes")
    page.close()
    if not page.lines:
        raise ToolError(f"The file has only {page.number - 1} lines; choose a smaller offset.")
    fitted = _fit_page(page)
    more = page.full or fitted.next.line < page.number
    where = _describe_position(page, fitted, f" of {size:,} bytes", more=more) + (
        "" if more else ", its last"
    )
    return text_outcome(f"{fitted.text}\n[{where}]", lines=fitted.lines)


def _is_garbled_text(encoding: TextEncoding, data: bytes) -> bool:
    return encoding.codec in EIGHT_BIT_CODECS and is_garbled(data[:ENCODING_SAMPLE_BYTES])


def _binary_file_message(name: str, head: bytes, size: int) -> str:
    advice = "Inspect it with Bash (file, strings, xxd, unzip -l)."
    return f"{name} is {describe_file_kind(head)} ({size:,} bytes), not text. {advice}"


READ = Tool(
    name="Read",
    description=(
        "Read a file: text as line number, tab, line (from line offset on, up to limit lines; "
        "column continues inside a long line); images; PDF text (pages like 1-5); notebooks by "
        "cell (offset is a cell)."
    ),
    args=ReadArgs,
    access=lambda args, here: read_access(args.file_path, here),
    run=_run_read,
    summary=lambda args: f"Read {escape_path(args.file_path)}",
    paged=True,
)
