"""Read: what is in a file, as text with line numbers, as an image, or page by page."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import partial

import msgspec
from anyio import to_thread

from travois.core.content import Media, Text
from travois.core.facts import Changed
from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Env, Room, Stat, digest
from travois.tools import sniff
from travois.tools.page import LINES, Fitted, Page, Place
from travois.tools.paths import absolute, existing, plain, reads, short
from travois.tools.text import SAMPLE, Decoded, Encoding, decode, detect, endings

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
    column: int = 0
    pages: str = ""


async def _read(args: ReadArgs, env: Env, call: str) -> Outcome:
    path = absolute(args.file_path, env.cwd)
    stat = await existing(path, env)
    whole = stat.size <= WHOLE
    data = await env.files.read(path, limit=WHOLE if whole else SAMPLE)
    if mime := sniff.image_type(data):
        outcome = _image(data, mime, stat, path=path, env=env)
    elif data.startswith(b"%PDF-"):
        outcome = await _pages(data, args, size=stat.size, room=env.room)
    elif whole:
        outcome = _text(data, args, short(path, env), room=env.room)
    else:
        return await _part(path, data, args, size=stat.size, env=env)
    return msgspec.structs.replace(outcome, changes=(Changed(f"seen:{path}", digest(data)),))


async def _pages(data: bytes, args: ReadArgs, *, size: int, room: Room) -> Outcome:
    from travois.tools.pdf import pages_of

    if size > len(data):
        raise Refusal(f"This PDF of {size:,} bytes is too large; use Bash with pdftotext -f -l.")
    wanted = partial(pages_of, data, args.pages, column=max(args.column, 1), room=room)
    return said(await to_thread.run_sync(wanted, abandon_on_cancel=True))


def _image(data: bytes, mime: str, stat: Stat, *, path: str, env: Env) -> Outcome:
    if stat.size > IMAGE:
        raise Refusal(
            f"{short(path, env)} ({mime}, {stat.size:,} bytes) is too large to be shown; make a "
            f"smaller copy with Bash and read that. The limit is {IMAGE:,} bytes."
        )
    name = short(path, env)
    image = Media("image", mime, env.blobs.put(data), size=len(data), name=name)
    return Outcome((Text(f"{name}: {mime}, {len(data):,} bytes"), image))


def _text(data: bytes, args: ReadArgs, name: str, *, room: Room) -> Outcome:
    source = decode(data)
    if source is None or _garbled(source.encoding, data):
        raise Refusal(_binary(name, data, len(data)))
    if not source.text:
        return said("[The file is empty.]", lines=0)
    cells = _cells(source, args, room) if name.endswith(".ipynb") else ""
    return said(cells) if cells else _lines(source, args, room)


def _cells(source: Decoded, args: ReadArgs, room: Room) -> str:
    from travois.tools.cells import show

    return show(source.text, Place(args.offset, args.column), args.limit, room=room)


def _lines(source: Decoded, args: ReadArgs, room: Room) -> Outcome:
    feed = "\n" if "\n" in source.text else "\r"
    page = _page(args, room, feed)
    page.add(source.text)
    page.close()
    total = source.text.count(feed) + (not source.text.endswith(feed))
    if not page.lines:
        raise Refusal(f"The file has only {total} lines; offset {args.offset} is behind its end.")
    fitted = _fitted(page)
    notes = list(_oddities(source))
    if page.first.column > 1 or fitted.next.line <= total:
        notes.append(_where(page, fitted, f" of {total:,}", more=fitted.next.line <= total))
    return said(fitted.text + "".join(f"\n[{note}]" for note in notes), lines=fitted.lines)


def _page(args: ReadArgs, room: Room, feed: str) -> Page:
    first = Place(max(args.offset, 1), max(args.column, 1))
    return Page(first, max(args.limit, 1), room=room, feed=feed)


def _fitted(page: Page) -> Fitted:
    if page.missed:
        line, column = page.first
        raise Refusal(f"Line {line} is shorter than column {column}; leave column out to read it.")
    return page.fit()


def _where(page: Page, fitted: Fitted, total: str, *, more: bool) -> str:
    """Say which part of the file a page is, and how to read on."""
    (line, column), after = page.first, fitted.next
    if after.column > 1:
        told = f"line {line}{total} is cut: characters {column:,}-{after.column - 1:,}"
    else:
        told = f"lines {line}-{after.line - 1}{total}"
        told += f", line {line} from character {column:,} on" if column > 1 else ""
    return f"{told}; continue with {after}" if more else told


def _oddities(source: Decoded) -> Iterator[str]:
    if source.encoding.label:
        yield f"encoding: {source.encoding.label}"
    kinds = endings(source.text)
    if len(kinds) > 1:
        yield f"mixed line ends: {', '.join(NAMES[kind] for kind in kinds)}"


async def _part(path: str, head: bytes, args: ReadArgs, *, size: int, env: Env) -> Outcome:
    """Some lines of a file that is too large to be held in memory."""
    encoding = detect(head)
    if encoding is None or _garbled(encoding, head):
        raise Refusal(_binary(short(path, env), head, size))
    errors = "surrogateescape" if encoding.codec == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding.codec)(errors)
    page = _page(args, env.room, "\n" if b"\n" in head else "\r")
    at = len(encoding.bom)
    while at < size and not page.full:
        data = await env.files.read(path, offset=at, limit=PART)
        at = at + len(data) if data else size
        page.add(decoder.decode(data))
        env.progress(f"{at * 100 // size}% of {size:,} bytes")
    page.close()
    if not page.lines:
        raise Refusal(f"The file has only {page.number - 1} lines; choose a smaller offset.")
    fitted = _fitted(page)
    more = page.full or fitted.next.line < page.number
    where = _where(page, fitted, f" of {size:,} bytes", more=more) + ("" if more else ", its last")
    return said(f"{fitted.text}\n[{where}]", lines=fitted.lines)


def _garbled(encoding: Encoding, data: bytes) -> bool:
    return encoding.codec in EIGHT_BIT and sniff.garbled(data[:SAMPLE])


def _binary(name: str, head: bytes, size: int) -> str:
    advice = "Look into it with Bash (file, strings, xxd, unzip -l)."
    return f"{name} is {sniff.kind(head)} of {size:,} bytes, not text. {advice}"


READ = Tool(
    name="Read",
    description=(
        "Read a file: text as line number, tab, line (from line offset on, up to limit lines; "
        "column continues inside a long line); images; PDF text (pages like 1-5); notebooks by "
        "cell (offset is a cell)."
    ),
    args=ReadArgs,
    access=lambda args, here: reads(args.file_path, here),
    run=_read,
    summary=lambda args: f"Read {plain(args.file_path)}",
    paged=True,
)
