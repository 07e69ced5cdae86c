"""Export of sessions: Markdown, HTML, JSON and Claude Code transcripts."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from string import Template
from typing import Literal

import msgspec

from travois.compat.claude_transcript import Writer, encoded
from travois.core.content import Media
from travois.core.facts import Entry
from travois.presentation.document import DocumentPart, document_parts
from travois.sessions.catalog import SessionSummary
from travois.sessions.log_file import DamagedPlace
from travois.terminal.tables import clean, styled

Format = Literal["markdown", "json", "html", "claude"]
Fetch = Callable[[str], bytes]
TEMPLATE = Path(__file__).parent / "templates" / "session.html"
LARGEST_IMAGE = 5_000_000
SNIPPET = 12
LONGEST_LINE = 400


class Document(msgspec.Struct, frozen=True):
    """A whole session, and what of its log could not be read."""

    summary: SessionSummary
    entries: list[Entry]
    skipped: tuple[DamagedPlace, ...] = ()


def export(document: Document, style: Format, *, fetch: Fetch) -> str:
    """Return the session in one of the formats."""
    match style:
        case "markdown":
            return markdown(document)
        case "html":
            return html(document, fetch=fetch)
        case "claude":
            writer = Writer(document.summary.id, fetch)
            return b"".join(encoded(writer, document.entries)).decode()
        case "json":
            return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def about(document: Document) -> str:
    """Return one line that describes the session."""
    summary = document.summary
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.created))
    lost = f" · {len(document.skipped)} damaged lines skipped" if document.skipped else ""
    return f"{when} · {summary.cwd} · {_plural(summary.turns, 'turn')} · {summary.id}{lost}"


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# --- Markdown ------------------------------------------------------------------------------------


def markdown(document: Document) -> str:
    """Return a document that reads well as it is, and on any site that renders Markdown."""
    title = document.summary.title.lstrip("#").strip()
    body = "\n\n".join(_marked(part) for part in document_parts(document.entries))
    return f"# {title}\n\n{about(document)}\n\n{body}\n"


def _marked(part: DocumentPart) -> str:
    match part.kind:
        case "person" | "model":
            return f"## {part.title}\n\n{part.text}{_pictures(part.media)}".rstrip()
        case "call":
            return f"**{part.title}**\n\n{_fenced(_pretty(part.text), 'json')}"
        case "result" | "error" | "note" | "thinking":
            label = escape(f"{part.kind}: {part.title}", quote=False)
            inside = f"{_fenced(part.text)}{_pictures(part.media)}"
            return f"<details><summary>{label}</summary>\n\n{inside}\n\n</details>"
        case "event":
            return f"*{part.title}*"


def _fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _pictures(media: Iterable[Media]) -> str:
    return "".join(f"\n\n({item.kind} {item.name or item.mime}, {item.size} B)" for item in media)


def _pretty(args: str) -> str:
    """Indent arguments if they are JSON."""
    try:
        return msgspec.json.format(args, indent=2)
    except (ValueError, msgspec.MsgspecError):
        return args


# --- HTML ----------------------------------------------------------------------------------------


def html(document: Document, *, fetch: Fetch) -> str:
    """Return one static HTML page without scripts or external resources."""
    body = "\n".join(_tagged(part, fetch) for part in document_parts(document.entries))
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        title=escape(document.summary.title), about=escape(about(document)), body=body
    )


def _tagged(part: DocumentPart, fetch: Fetch) -> str:
    title, text = escape(part.title), escape(part.text)
    images = "".join(_image(item, fetch) for item in part.media)
    match part.kind:
        case "person" | "model":
            words = f'<div class="words">{text}</div>' if text else ""
            head = f'<b><a href="#e{part.seq}">{title}</a></b>'
            return f'<section class="{part.kind}" id="e{part.seq}">{head}{words}{images}</section>'
        case "call" | "result" | "error" | "note" | "thinking":
            label = title if part.kind == "call" else f"{part.kind}: {title}"
            pre = f"<pre>{escape(_pretty(part.text)) if part.kind == 'call' else text}</pre>"
            whole = f"<summary>{label}</summary>{pre}{images}"
            opened = " open" if part.kind == "call" else ""
            return f'<details class="{part.kind}"{opened}>{whole}</details>'
        case "event":
            return f'<p class="event">{title}</p>'


def _image(item: Media, fetch: Fetch) -> str:
    label = escape(f"{item.kind} {item.name or item.mime}, {item.size} B")
    if item.kind != "image" or item.size > LARGEST_IMAGE:
        return f'<p class="event">{label}</p>'
    try:
        data = b64encode(fetch(item.blob)).decode()
    except KeyError:
        return f'<p class="event">{label} (missing)</p>'
    return f'<img alt="{label}" src="data:{escape(item.mime)};base64,{data}">'


# --- the terminal --------------------------------------------------------------------------------

COLOURS = {"person": "bold", "model": "green", "call": "cyan", "error": "red"}


def shown(part: DocumentPart) -> str:
    """Return a part for the terminal; long texts are cut, with a note."""
    title, text = clean(part.title, lines="show"), clean(part.text)
    media = "".join(f"\n  [{item.kind} {item.mime}, {item.size} B]" for item in part.media)
    match part.kind:
        case "person" | "model":
            return f"\n{styled(title, COLOURS[part.kind])}\n{text}{media}"
        case "call":
            return f"{styled(title, 'cyan')} {_cut(text)}"
        case "result" | "error" | "note" | "thinking":
            head = styled(f"  {part.kind}: {title}", COLOURS.get(part.kind, "dim"))
            return f"{head}{_snippet(text)}{media}"
        case "event":
            return styled(f"— {title}", "dim")


def _snippet(text: str) -> str:
    lines = text.splitlines()
    rest = len(lines) - SNIPPET
    more = [f"… {_plural(rest, 'more line')}"] if rest > 0 else []
    return "".join(f"\n    {_cut(line)}" for line in (*lines[:SNIPPET], *more))


def _cut(text: str) -> str:
    rest = len(text) - LONGEST_LINE
    return f"{text[:LONGEST_LINE]}… {rest} more characters" if rest > 0 else text
