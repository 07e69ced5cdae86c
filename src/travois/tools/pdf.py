"""The text of a PDF's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from travois.ports.tool import Refusal
from travois.ports.world import Room
from travois.tools.page import fit_parts

if TYPE_CHECKING:
    from pypdf import PdfReader

AT_ONCE = 20
RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d*))?")
EMPTY = "[no text on this page; it may be a scan]"
BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a malformed document can make a parser raise."""


def pages_of(data: bytes, wanted: str, *, column: int, room: Room) -> str:
    """The pages named like `3` or `1-5`, each under a mark; all if none are and they are few."""
    import io
    import logging

    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(data))
        count = len(reader.pages)
        first, last = _range(wanted, count)
        parts, cut = fit_parts(_told(reader, first, last, count=count), column=column, room=room)
        return "\n".join((*parts, *_onward(first, len(parts), count=count, cut=cut)))
    except (PyPdfError, *BROKEN) as error:
        raise Refusal(f"This PDF cannot be read ({error}); try Bash with pdftotext.") from error


def _range(wanted: str, count: int) -> tuple[int, int]:
    """The first and the last page asked for, as far as they exist."""
    said = RANGE.fullmatch(wanted.strip()) if wanted else None
    if wanted and said is None:
        raise Refusal(f'pages must be like "3" or "1-5", not {wanted!r}.')
    first = int(said[1]) if said else 1
    last = int(said[2] or count) if said and said[2] is not None else first if said else count
    if not 1 <= first <= min(last, count):
        raise Refusal(f"The PDF has pages 1-{count}; {wanted!r} is not among them.")
    return first, min(last, count, first + AT_ONCE - 1)


def _told(reader: PdfReader, first: int, last: int, *, count: int) -> Iterator[str]:
    for number in range(first, last + 1):
        text = reader.pages[number - 1].extract_text().strip()
        yield f"--- page {number} of {count} ---\n{text or EMPTY}"


def _onward(first: int, shown: int, *, count: int, cut: int) -> Iterator[str]:
    last = first + shown - 1
    if cut:
        yield f'[page {last} of {count} is cut; continue with pages="{last}-", column={cut}]'
    elif last < count:
        yield f'[pages {first}-{last} of {count}; continue with pages="{last + 1}-"]'
