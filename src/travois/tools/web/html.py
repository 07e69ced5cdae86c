"""HTML to markdown or plain words: only the visible content of a page.

A hostile page can make parsing take quadratic time, so it happens in a program of its own that can
be killed: `python -P -m travois.tools.web.html CHARSET <page >text`.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from typing import TYPE_CHECKING

from travois.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

with lazy_imports():
    import bs4
    import markdownify


TAG_NAME = re.compile(rb"/?\w*")
NOISE_TAGS = re.compile(
    "script|style|noscript|template|svg|canvas|iframe|object|embed|video|audio|form|button|input|"
    "select|textarea|nav|footer|aside|dialog|img|link|meta"
)
MIN_CONTENT_CHARS = 200
"""With this many characters a page's `main` or `article` is taken to be its content."""
RECURSION_LIMIT = 20_000


def html_to_markdown(body: bytes, *, charset: str) -> str:
    """Convert an HTML page to markdown."""
    soup = _parse_html(body, charset)
    title = soup.title.extract().get_text(" ", strip=True) if soup.title else ""
    converter = markdownify.MarkdownConverter(
        heading_style="ATX", bullets="-", escape_underscores=False
    )
    text = _tidy_whitespace(converter.convert_soup(_find_main_content(soup)))
    return text if not title or title in text[:500] else f"# {title}\n\n{text}"


def html_to_text(body: bytes, *, charset: str) -> str:
    """Convert an HTML page to text without tags, in one pass over its bytes."""
    first, *pieces = body.split(b"<")
    kept, skipped = [first], b""
    for piece in pieces:
        tag, _, text = piece.partition(b">")
        name = TAG_NAME.match(tag)
        named = name[0].lower() if name else b""
        if skipped:
            skipped = b"" if named == b"/" + skipped else skipped
        elif named in (b"script", b"style"):
            skipped = named
        if not skipped:
            kept.append(text)
    return _tidy_whitespace(unescape(b" ".join(kept).decode(charset or "utf-8", errors="replace")))


def _parse_html(body: bytes, charset: str) -> bs4.BeautifulSoup:
    """Parse an HTML page without noise or an XML declaration, which would cause a warning."""
    body = re.sub(rb"^\s*<\?xml[^>]*>", b"", body, count=1)
    soup = bs4.BeautifulSoup(body, "html.parser", from_encoding=charset or None)
    for tag in soup.find_all(_is_hidden_tag):
        tag.extract()
    for anchor in soup.find_all("a", href=re.compile("^#")):
        anchor.unwrap()
    return soup


def _is_hidden_tag(tag: Tag) -> bool:
    """Return whether WebFetch skips an HTML tag because it is hidden or not content."""
    if NOISE_TAGS.fullmatch(tag.name) or "hidden" in tag.attrs or tag.get("aria-hidden") == "true":
        return True
    return "display:none" in str(tag.get("style", "")).replace(" ", "").lower() or (
        "headerlink" in str(tag.get("class", ""))
    )


def _find_main_content(soup: BeautifulSoup) -> BeautifulSoup | Tag:
    """Find the main part of an HTML page, or the whole page if that part is short."""
    found = (soup.find("main"), soup.find("article"))
    whole = (tag for tag in found if tag is not None and len(tag.get_text()) >= MIN_CONTENT_CHARS)
    return next(whole, soup)


def _tidy_whitespace(text: str) -> str:
    """Remove trailing spaces and runs of empty lines from converted HTML."""
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


if __name__ == "__main__":
    sys.setrecursionlimit(RECURSION_LIMIT)
    page = html_to_markdown(sys.stdin.buffer.read(), charset=sys.argv[1])
    sys.stdout.buffer.write(page.encode(errors="replace"))
