"""HTML to markdown or plain words: only the visible content of a page.

Parsing takes time that grows with the square of a hostile page, so it happens in a program of its
own that can be killed: `python -P -m travois.tools.web.html CHARSET <page >text`.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

NAME = re.compile(rb"/?\w*")
NOISE = re.compile(
    "script|style|noscript|template|svg|canvas|iframe|object|embed|video|audio|form|button|input|"
    "select|textarea|nav|footer|aside|dialog|img|link|meta"
)
CONTENT = 200
"""With this many characters a page's `main` or `article` is taken to be its content."""
DEPTH = 20_000


def markdown(body: bytes, *, charset: str) -> str:
    """Return the page as markdown."""
    from markdownify import MarkdownConverter

    soup = _soup(body, charset)
    title = soup.title.extract().get_text(" ", strip=True) if soup.title else ""
    converter = MarkdownConverter(heading_style="ATX", bullets="-", escape_underscores=False)
    text = _tidied(converter.convert_soup(_content(soup)))
    return text if not title or title in text[:500] else f"# {title}\n\n{text}"


def words(body: bytes, *, charset: str) -> str:
    """Return the page without its tags, in one pass over its bytes."""
    first, *pieces = body.split(b"<")
    kept, skipped = [first], b""
    for piece in pieces:
        tag, _, text = piece.partition(b">")
        name = NAME.match(tag)
        named = name[0].lower() if name else b""
        if skipped:
            skipped = b"" if named == b"/" + skipped else skipped
        elif named in (b"script", b"style"):
            skipped = named
        if not skipped:
            kept.append(text)
    return _tidied(unescape(b" ".join(kept).decode(charset or "utf-8", errors="replace")))


def _soup(body: bytes, charset: str) -> BeautifulSoup:
    """Parse the page, without an XML declaration (the parser would warn) and noise."""
    from bs4 import BeautifulSoup

    body = re.sub(rb"^\s*<\?xml[^>]*>", b"", body, count=1)
    soup = BeautifulSoup(body, "html.parser", from_encoding=charset or None)
    for tag in soup.find_all(_unseen):
        tag.extract()
    for anchor in soup.find_all("a", href=re.compile("^#")):
        anchor.unwrap()
    return soup


def _unseen(tag: Tag) -> bool:
    if NOISE.fullmatch(tag.name) or "hidden" in tag.attrs or tag.get("aria-hidden") == "true":
        return True
    return "display:none" in str(tag.get("style", "")).replace(" ", "").lower() or (
        "headerlink" in str(tag.get("class", ""))
    )


def _content(soup: BeautifulSoup) -> BeautifulSoup | Tag:
    found = (soup.find("main"), soup.find("article"))
    whole = (tag for tag in found if tag is not None and len(tag.get_text()) >= CONTENT)
    return next(whole, soup)


def _tidied(text: str) -> str:
    """Remove trailing spaces and runs of empty lines."""
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


if __name__ == "__main__":
    sys.setrecursionlimit(DEPTH)
    page = markdown(sys.stdin.buffer.read(), charset=sys.argv[1])
    sys.stdout.buffer.write(page.encode(errors="replace"))
