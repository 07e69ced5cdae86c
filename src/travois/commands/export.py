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

from travois.compat.claude_transcript import ClaudeTranscriptWriter, encode_claude_transcript
from travois.core.content import Media
from travois.core.facts import Entry
from travois.diff_rows import DiffRow, render_diff_html
from travois.presentation import TOOLS_BY_KIND, DocumentPart, document_parts
from travois.sessions.catalog import SessionSummary
from travois.sessions.log_file import DamagedPlace
from travois.terminal import escape_controls, style_text

ExportFormat = Literal["markdown", "json", "html", "claude"]
FetchMedia = Callable[[str], bytes]
HTML_TEMPLATE = Path(__file__).parent / "templates" / "session.html"
EDIT_TOOLS = TOOLS_BY_KIND["edit"]
MAX_IMAGE_BYTES = 5_000_000
MAX_SNIPPET_LINES = 12
MAX_SNIPPET_LINE_CHARS = 400


class SessionDocument(msgspec.Struct, frozen=True):
    """A whole session, and what of its log could not be read."""

    summary: SessionSummary
    entries: list[Entry]
    skipped: tuple[DamagedPlace, ...] = ()


def export_session(document: SessionDocument, style: ExportFormat, *, fetch: FetchMedia) -> str:
    """Export a session in one of the formats."""
    match style:
        case "markdown":
            return export_markdown(document)
        case "html":
            return export_html(document, fetch=fetch)
        case "claude":
            writer = ClaudeTranscriptWriter(document.summary.id, fetch)
            return b"".join(encode_claude_transcript(writer, document.entries)).decode()
        case "json":
            return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def describe_document(document: SessionDocument) -> str:
    """Describe an exported session in one line."""
    summary = document.summary
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.created))
    lost = f" · {len(document.skipped)} damaged lines skipped" if document.skipped else ""
    return f"{when} · {summary.cwd} · {_pluralize(summary.turns, 'turn')} · {summary.id}{lost}"


def _pluralize(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# --- Markdown ------------------------------------------------------------------------------------


def export_markdown(document: SessionDocument) -> str:
    """Export a session as a Markdown document."""
    title = document.summary.title.lstrip("#").strip()
    body = "\n\n".join(_part_to_markdown(part) for part in document_parts(document.entries))
    return f"# {title}\n\n{describe_document(document)}\n\n{body}\n"


def _part_to_markdown(part: DocumentPart) -> str:
    """Render one part of an exported session as Markdown."""
    match part.kind:
        case "person" | "model":
            return f"## {part.title}\n\n{part.text}{_describe_media(part.media)}".rstrip()
        case "call":
            return f"**{part.title}**\n\n{_code_block(_indent_json(part.text), 'json')}"
        case "result" if part.rows:
            return f"**{part.title}**\n\n{_code_block(_format_diff(part.rows), 'diff')}"
        case "result" | "error" | "note" | "thinking":
            label = escape(f"{part.kind}: {part.title}", quote=False)
            inside = f"{_code_block(part.text)}{_describe_media(part.media)}"
            return f"<details><summary>{label}</summary>\n\n{inside}\n\n</details>"
        case "event":
            return f"*{part.title}*"


def _code_block(text: str, language: str = "") -> str:
    """Return a code block for an exported session, with a fence longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _format_diff(rows: Iterable[DiffRow]) -> str:
    """Format the rows of a change as plain lines with their signs."""
    signs = {"gap": "@@", "file": "# "}
    return "\n".join(f"{signs.get(row.kind, row.kind)}{row.text}" for row in rows)


def _describe_media(media: Iterable[Media]) -> str:
    return "".join(f"\n\n({item.kind} {item.name or item.mime}, {item.size} B)" for item in media)


def _indent_json(args: str) -> str:
    """Indent tool call arguments in an exported session, if they are JSON."""
    try:
        return msgspec.json.format(args, indent=2)
    except (ValueError, msgspec.MsgspecError):
        return args


# --- HTML ----------------------------------------------------------------------------------------


def export_html(document: SessionDocument, *, fetch: FetchMedia) -> str:
    """Export a session as one static HTML page without scripts or external resources."""
    body = "\n".join(_part_to_html(part, fetch) for part in document_parts(document.entries))
    return Template(HTML_TEMPLATE.read_text("utf-8")).substitute(
        title=escape(document.summary.title), about=escape(describe_document(document)), body=body
    )


def _part_to_html(part: DocumentPart, fetch: FetchMedia) -> str:
    """Render one part of an exported session as HTML."""
    title, text = escape(part.title), escape(part.text)
    images = "".join(_image_to_html(item, fetch) for item in part.media)
    match part.kind:
        case "person" | "model":
            words = f'<div class="words">{text}</div>' if text else ""
            head = f'<b><a href="#e{part.seq}">{title}</a></b>'
            return f'<section class="{part.kind}" id="e{part.seq}">{head}{words}{images}</section>'
        case "result" if part.rows:
            whole = f"<summary>{title}</summary>{render_diff_html(part.rows)}"
            return f'<details class="result" open>{whole}</details>'
        case "call" | "result" | "error" | "note" | "thinking":
            label = title if part.kind == "call" else f"{part.kind}: {title}"
            pre = f"<pre>{escape(_indent_json(part.text)) if part.kind == 'call' else text}</pre>"
            whole = f"<summary>{label}</summary>{pre}{images}"
            # What an edit replaces is shown by the diff of its result.
            is_edit = part.title in EDIT_TOOLS
            opened = " open" if part.kind == "call" and not is_edit else ""
            return f'<details class="{part.kind}"{opened}>{whole}</details>'
        case "event":
            return f'<p class="event">{title}</p>'


def _image_to_html(item: Media, fetch: FetchMedia) -> str:
    """Embed an image in an HTML export; other, large or missing media become a label."""
    label = escape(f"{item.kind} {item.name or item.mime}, {item.size} B")
    if item.kind != "image" or item.size > MAX_IMAGE_BYTES:
        return f'<p class="event">{label}</p>'
    try:
        data = b64encode(fetch(item.blob)).decode()
    except KeyError:
        return f'<p class="event">{label} (missing)</p>'
    return f'<img alt="{label}" src="data:{escape(item.mime)};base64,{data}">'


# --- the terminal --------------------------------------------------------------------------------

PART_STYLES = {"person": "bold", "model": "green", "call": "cyan", "error": "red"}


def render_part(part: DocumentPart) -> str:
    """Render a part of a session for the terminal; long texts are cut, with a note."""
    title, text = escape_controls(part.title, lines="show"), escape_controls(part.text)
    media = "".join(f"\n  [{item.kind} {item.mime}, {item.size} B]" for item in part.media)
    match part.kind:
        case "person" | "model":
            return f"\n{style_text(title, PART_STYLES[part.kind])}\n{text}{media}"
        case "call":
            return f"{style_text(title, 'cyan')} {_shorten_line(text)}"
        case "result" | "error" | "note" | "thinking":
            head = style_text(f"  {part.kind}: {title}", PART_STYLES.get(part.kind, "dim"))
            return f"{head}{_render_snippet(text)}{media}"
        case "event":
            return style_text(f"— {title}", "dim")


def _render_snippet(text: str) -> str:
    """Cut a tool result of a session to a few short lines for the terminal."""
    lines = text.splitlines()
    rest = len(lines) - MAX_SNIPPET_LINES
    more = [f"… {_pluralize(rest, 'more line')}"] if rest > 0 else []
    return "".join(f"\n    {_shorten_line(line)}" for line in (*lines[:MAX_SNIPPET_LINES], *more))


def _shorten_line(text: str) -> str:
    rest = len(text) - MAX_SNIPPET_LINE_CHARS
    return f"{text[:MAX_SNIPPET_LINE_CHARS]}… {rest} more characters" if rest > 0 else text
