"""Read: what is in a file, as text with line numbers, as an image, or page by page."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import msgspec
from anyio import to_thread

from travois.engine.ports import Env, Stat, digest
from travois.engine.tool import Outcome, Refusal, Tool, said
from travois.kernel.blocks import Media, Text
from travois.kernel.facts import Changed
from travois.tools import sniff
from travois.tools.page import LINES, Page
from travois.tools.place import absolute, existing, plain, reads, short
from travois.tools.text import SAMPLE, Decoded, Encoding, decode, detect, endings, shown

WHOLE = 50_000_000
"""Larger files are read in parts, and are not known as a whole afterwards."""
PART = 4_000_000
IMAGE = 3_750_000
"""What providers take once it is encoded."""
EIGHT_BIT = ("cp1252", "latin-1")
NAMES = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


class ReadArgs(msgspec.Struct, frozen=True):
    """Which file, and which part of it."""

    file_path: str
    offset: int = 0
    limit: int = LINES
    pages: str = ""


async def _read(args: ReadArgs, env: Env, call: str) -> Outcome:
    path = absolute(args.file_path, env.cwd)
    stat = await existing(path, env)
    whole = stat.size <= WHOLE
    data = await env.files.read(path, limit=WHOLE if whole else SAMPLE)
    if mime := sniff.image_type(data):
        outcome = _image(data, mime, stat, path=path, env=env)
    elif data.startswith(b"%PDF-"):
        outcome = await _pages(data, args, size=stat.size)
    elif whole:
        outcome = _text(data, args, short(path, env))
    else:
        return said(await _part(path, data, args, size=stat.size, env=env))
    return msgspec.structs.replace(outcome, changes=(Changed(f"seen:{path}", digest(data)),))


async def _pages(data: bytes, args: ReadArgs, *, size: int) -> Outcome:
    from travois.tools.pdf import pages_of

    if size > len(data):
        raise Refusal(f"This PDF of {size:,} bytes is too large; use Bash with pdftotext -f -l.")
    return said(await to_thread.run_sync(pages_of, data, args.pages, abandon_on_cancel=True))


def _image(data: bytes, mime: str, stat: Stat, *, path: str, env: Env) -> Outcome:
    if stat.size > IMAGE:
        raise Refusal(
            f"{short(path, env)} ({mime}, {stat.size:,} bytes) is too large to be shown; make a "
            f"smaller copy with Bash and read that. The limit is {IMAGE:,} bytes."
        )
    name = short(path, env)
    image = Media("image", mime, env.blobs.put(data), size=len(data), name=name)
    return Outcome((Text(f"{name}: {mime}, {len(data):,} bytes"), image))


def _text(data: bytes, args: ReadArgs, name: str) -> Outcome:
    source = decode(data)
    if source is None or _garbled(source.encoding, data):
        raise Refusal(_binary(name, data, len(data)))
    if not source.text:
        return said("[The file is empty.]")
    cells = _cells(source, args) if name.endswith(".ipynb") else ""
    return said(cells or _lines(source, args))


def _cells(source: Decoded, args: ReadArgs) -> str:
    from travois.tools.cells import show

    return show(source.text, args.offset, args.limit)


def _lines(source: Decoded, args: ReadArgs) -> str:
    feed = "\n" if "\n" in source.text else "\r"
    page = Page(max(args.offset, 1), max(args.limit, 1), feed=feed)
    page.add(source.text)
    page.close()
    total = source.text.count(feed) + (not source.text.endswith(feed))
    if not page.lines:
        raise Refusal(f"The file has only {total} lines; offset {args.offset} is behind its end.")
    notes = list(_oddities(source))
    if page.last < total:
        notes.append(f"lines {page.first}-{page.last} of {total}; {_onward(page)}")
    return shown(str(page)) + "".join(f"\n[{note}]" for note in notes)


def _oddities(source: Decoded) -> Iterator[str]:
    if source.encoding.label:
        yield f"encoding: {source.encoding.label}"
    kinds = endings(source.text)
    if len(kinds) > 1:
        yield f"mixed line ends: {', '.join(NAMES[kind] for kind in kinds)}"


def _onward(page: Page) -> str:
    return f"read on with offset={page.last + 1}"


async def _part(path: str, head: bytes, args: ReadArgs, *, size: int, env: Env) -> str:
    """Some lines of a file that is too large to be held in memory."""
    encoding = detect(head)
    if encoding is None or _garbled(encoding, head):
        raise Refusal(_binary(short(path, env), head, size))
    errors = "surrogateescape" if encoding.codec == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding.codec)(errors)
    page = Page(max(args.offset, 1), max(args.limit, 1), feed="\n" if b"\n" in head else "\r")
    at = len(encoding.bom)
    while at < size and not page.full:
        data = await env.files.read(path, offset=at, limit=PART)
        at = at + len(data) if data else size
        page.add(decoder.decode(data))
        env.progress(f"{at * 100 // size}% of {size:,} bytes")
    page.close()
    if not page.lines:
        raise Refusal(f"The file has only {page.number - 1} lines; choose a smaller offset.")
    onward = f"; {_onward(page)}" if page.full else ", its last"
    return f"{shown(str(page))}\n[lines {page.first}-{page.last} of {size:,} bytes{onward}]"


def _garbled(encoding: Encoding, data: bytes) -> bool:
    return encoding.codec in EIGHT_BIT and sniff.garbled(data[:SAMPLE])


def _binary(name: str, head: bytes, size: int) -> str:
    advice = "Look into it with Bash (file, strings, xxd, unzip -l)."
    return f"{name} is {sniff.kind(head)} of {size:,} bytes, not text. {advice}"


READ = Tool(
    name="Read",
    description=(
        "Read a file: text as line number, tab, line (2000 lines unless limit says otherwise, from "
        "line offset on); images; PDF text (pages like 1-5); notebooks by cell (offset is a cell)."
    ),
    args=ReadArgs,
    access=lambda args, here: reads(args.file_path, here),
    run=_read,
    summary=lambda args: f"Read {plain(args.file_path)}",
)
