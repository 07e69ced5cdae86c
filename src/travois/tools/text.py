"""Decoding, encoding and paging text files, without changing bytes that nobody edits."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from travois.context.tool_results import (
    MAX_CHARS_PER_TOKEN,
    ResultRoom,
    count_fitting_parts,
    estimate_text_tokens,
)
from travois.core.patterns import compile_lazily
from travois.core.tokens import estimate_tokens

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
ENCODING_DECLARATION = rb"""(?:coding[:=]\s*|<\?xml[^>]*\bencoding=["'])([-\w.]+)"""
STATELESS_CODECS = r"cp\d+|iso8859-\d+|koi8-\w|mac-\w+|shift_jis\w*|euc_\w+|gb\w+|big5\w*"
"""Encodings in which the bytes of a character do not depend on what stands before it."""
LINE_BREAK = compile_lazily(r"\r\n|\r|\n")
SURROGATE = compile_lazily("[\ud800-\udfff]")
ENCODING_SAMPLE_BYTES = 8192
LINE_END_SEARCH_CHARS = 4096


class TextEncoding(msgspec.Struct, frozen=True):
    """A text encoding: codec, byte order mark, and how invalid bytes are handled."""

    codec: str
    bom: bytes = b""
    errors: str = "strict"

    @property
    def label(self) -> str:
        """The encoding's name for a reader; empty for plain UTF-8."""
        if self.errors == "surrogateescape":
            return "UTF-8 with invalid bytes, shown as \\xNN"
        bom = " with BOM" if self.bom and self.codec == "utf-8" else ""
        return "" if self.codec == "utf-8" and not bom else self.codec.upper() + bom

    def encode(self, text: str) -> bytes:
        """Return the bytes of some text, without the mark; raises UnicodeEncodeError."""
        return text.encode(self.codec, self.errors)


class DecodedText(msgspec.Struct, frozen=True):
    """Bytes and the text that they are; encoding the text gives the same bytes again."""

    data: bytes
    text: str
    encoding: TextEncoding


class TextSplice(NamedTuple):
    """An edit of a text: the characters from `start` to `end` become `new`."""

    start: int
    end: int
    new: str


def decode_text(data: bytes) -> DecodedText | None:
    """Decode a file's bytes; None if they are not text."""
    encoding = detect_encoding(data)
    if encoding == TextEncoding("utf-8") and not _is_utf8(data, final=True):
        encoding = _guess_encoding(data)
    if encoding is None:
        return None
    try:
        text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    except UnicodeDecodeError:
        return None
    return DecodedText(data, text, encoding)


def detect_encoding(data: bytes) -> TextEncoding | None:
    """Return the text encoding of a file by its first bytes; None if it is not text."""
    for bom, codec in BOMS:
        if data.startswith(bom):
            return _encoding_with_bom(bom, codec, data)
    if b"\0" in data:
        return _detect_utf16(data[:ENCODING_SAMPLE_BYTES])
    if _is_utf8(data):
        return TextEncoding("utf-8")
    return _read_encoding_declaration(data) or _guess_encoding(data)


def apply_splices(source: DecodedText, splices: Sequence[TextSplice]) -> DecodedText:
    """Apply these edits to a text, in order and without overlap; other bytes stay the same."""
    encode, data, text = source.encoding.encode, source.data, source.text
    at, byte = 0, len(source.encoding.bom)
    parts, words = [data[:byte]], list[str]()
    for start, end, new in splices:
        kept = len(encode(text[at:start]))
        parts += (data[byte : byte + kept], encode(new))
        words += (text[at:start], new)
        byte += kept + len(encode(text[start:end]))
        at = end
    parts.append(data[byte:])
    words.append(text[at:])
    return DecodedText(b"".join(parts), "".join(words), source.encoding)


def show_invalid_bytes(text: str) -> str:
    """Return a decoded text with its invalid bytes made visible."""
    return SURROGATE.sub(_escape_surrogate, text)


def split_lines(text: str) -> list[str]:
    """Split a text into lines without their endings; an empty last one is left out.

    A lone carriage return ends a line only where there is no line feed at all, so that line numbers
    agree with those of other tools.
    """
    if "\n" not in text:
        found = text.split("\r")
    else:
        found = [line.removesuffix("\r") for line in text.split("\n")]
    return found if found[-1] else found[:-1]


def line_number(text: str, index: int) -> int:
    """Return the line number of a character in a text, from 1."""
    return text.count("\n" if "\n" in text else "\r", 0, index) + 1


def line_endings(text: str) -> list[str]:
    """Return the kinds of line endings in a text, the most frequent first."""
    crlf = text.count("\r\n")
    counts = {"\n": text.count("\n") - crlf, "\r\n": crlf, "\r": text.count("\r") - crlf}
    return sorted((kind for kind in counts if counts[kind]), key=lambda kind: -counts[kind])


def line_ending_near(text: str, start: int, end: int, *, usual: str) -> str:
    """Return the most frequent line ending in a span of text and at its borders."""
    floor = max(start - LINE_END_SEARCH_CHARS, 0)
    first = max(text.rfind("\n", floor, start), text.rfind("\r", floor, start), floor)
    first -= text[max(first - 1, 0) : first + 1] == "\r\n"
    after = LINE_BREAK.search(text, end)
    there = LINE_BREAK.findall(text, first, after.end() if after else end)
    return Counter(there).most_common(1)[0][0] if there else usual


class FlatText(msgspec.Struct, frozen=True):
    """A text with every line end as one line feed, and the way back to its own positions."""

    text: str
    pairs: tuple[int, ...]
    """The positions of two-character line endings."""

    def original_index(self, index: int) -> int:
        """Return the position in the original of this one."""
        return index + bisect_left(self.pairs, index)


def flatten_line_ends(text: str) -> FlatText:
    """Replace every kind of line ending by a line feed, as a model sees the text."""
    if "\r" not in text:
        return FlatText(text, ())
    pairs = tuple(m.start() - i for i, m in enumerate(re.finditer("\r\n", text)))
    return FlatText(text.replace("\r\n", "\n").replace("\r", "\n"), pairs)


def _encoding_with_bom(bom: bytes, codec: str, data: bytes) -> TextEncoding:
    """Return the encoding of a text whose byte order mark has been found."""
    if codec == "utf-8" and not _is_utf8(data, final=True):
        return TextEncoding(codec, bom, "surrogateescape")
    return TextEncoding(codec, bom, "surrogatepass" if codec.startswith("utf-16") else "strict")


def _detect_utf16(sample: bytes) -> TextEncoding | None:
    """Detect UTF-16 without a byte order mark by the zero bytes of plain text."""
    units = len(sample) // 2
    low, high = sample[: units * 2 : 2].count(0), sample[1 : units * 2 : 2].count(0)
    for zeros, others, codec in ((high, low, "utf-16-le"), (low, high, "utf-16-be")):
        if zeros > 0.4 * units and others <= 0.05 * units:
            return TextEncoding(codec, errors="surrogatepass")
    return None


def _is_utf8(data: bytes, *, final: bool = False) -> bool:
    """Return whether a text sample is UTF-8, ignoring a character cut off at its end."""
    if data.isascii():
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final)
    except UnicodeDecodeError:
        return False
    return True


def _read_encoding_declaration(data: bytes) -> TextEncoding | None:
    """Return the encoding that a text's first lines declare, if it decodes that way."""
    said = re.search(ENCODING_DECLARATION, b"\n".join(data[:1024].split(b"\n")[:2]))
    if said is None:
        return None
    try:
        codec = codecs.lookup(said[1].decode()).name
        text = data.decode(codec) if re.fullmatch(STATELESS_CODECS, codec) else ""
        true = said[0].decode() in text and text.encode(codec) == data
    except (LookupError, UnicodeError):
        return None
    return TextEncoding(codec) if true else None


def _guess_encoding(data: bytes) -> TextEncoding:
    """Guess an 8-bit encoding, or broken UTF-8 if most non-ASCII bytes make sense as UTF-8."""
    text = data.decode("utf-8", "surrogateescape")
    bad = len(SURROGATE.findall(text))
    odd = sum(map(len, re.findall(r"[^\x00-\x7f]+", text)))
    if 2 * odd >= 3 * bad:
        return TextEncoding("utf-8", errors="surrogateescape")
    undefined = re.search(rb"[\x81\x8d\x8f\x90\x9d]", data)
    return TextEncoding("latin-1" if undefined else "cp1252")


def _escape_surrogate(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


# Some lines out of a long text, numbered, as many as there is room for.


DEFAULT_PAGE_LINES = 2_000
PAGE_OVERHEAD_TOKENS = 110
"""The tokens for what is said below a page, and for what a provider puts around a result."""
MIN_PAGE_TOKENS = 32
"""A page has room for so many tokens, or nobody would ever get on."""


class TextPosition(NamedTuple):
    """A place in a text: a line, or another part of a file, and a character in it, both from 1."""

    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"offset={self.line}" + (f", column={self.column}" if self.column > 1 else "")


class FittedPage(NamedTuple):
    """The text of a page, and where the next one begins."""

    text: str
    next: TextPosition
    lines: int


def fit_parts(parts: Iterable[str], *, column: int, room: ResultRoom) -> tuple[list[str], int]:
    """Return the parts of a page that fit whole; of one too large by itself, what fits.

    The first part begins at a column. The result includes the column at which the last part
    continues, zero if it is whole.
    """
    fitting, left = (
        list[str](),
        max(MIN_PAGE_TOKENS, min(room.cap, room.share) - PAGE_OVERHEAD_TOKENS),
    )
    for part in parts:
        text = part if fitting else part[column - 1 :]
        if (size := estimate_text_tokens(text)) > left:
            return (fitting, 0) if fitting else _fit_beginning(text, column=column, tokens=left)
        fitting.append(text)
        left -= size
    return fitting, 0


def _fit_beginning(text: str, *, column: int, tokens: int) -> tuple[list[str], int]:
    """Return as much of a text as fits on a page, up to a line's end if possible."""
    size = max(
        1,
        count_fitting_parts(
            len(text), lambda size: estimate_text_tokens(text[:size]), tokens=tokens
        ),
    )
    size = text.rfind("\n", 0, size) + 1 or size
    return [text[:size]], column + size


class LinePage:
    """The lines of a page, taken from text that comes in parts.

    Once there is more than could ever be shown, `full` is set and no more is taken.
    """

    def __init__(
        self, first: TextPosition, limit: int, *, room: ResultRoom, feed: str = "\n"
    ) -> None:
        self.first = first
        self.lines: list[str] = []
        self.number = 1
        """The line that is being read."""
        self.full = False
        self.open = False
        """True if the last line continues beyond what was taken."""
        self._limit = limit
        self._room = room
        self._feed = feed
        self._left = MAX_CHARS_PER_TOKEN * max(MIN_PAGE_TOKENS, room.share)
        self._line = ""
        self._begun = False
        self._skip_chars = first.column - 1

    def add(self, text: str) -> None:
        """Take what belongs on the page from the next part of the text."""
        at = self._skip_lines(text) if self.number < self.first.line else 0
        while not self.full and at < len(text):
            end = text.find(self._feed, at)
            stop = end if end >= 0 else len(text)
            self._extend(text, at, stop)
            at = stop + 1
            if end >= 0 and not self.full:
                self._finish_line()

    def close(self) -> None:
        """Take what was read of a last line without an end."""
        if self._begun and not self.full:
            self._finish_line()

    @property
    def is_past_line_end(self) -> bool:
        """True if the line was shorter than the column to begin at."""
        return self._skip_chars > 0

    def fit(self) -> FittedPage:
        """Return as many whole lines as there is room for; a part of the first if it has none."""
        whole = self.lines[:-1] if self.open else self.lines
        count = count_fitting_parts(len(whole), self._count_tokens, tokens=self._tokens)
        if count:
            return FittedPage(
                self._number_lines(count), TextPosition(self.first.line + count), count
            )
        line, number = self.lines[0], self.first.line
        most = min(self._tokens, self._room.cap)
        size = count_fitting_parts(
            len(line),
            lambda size: estimate_text_tokens(show_invalid_bytes(line[:size])),
            tokens=most,
        )
        ended = size == len(line) and not self.open
        onward = (
            TextPosition(number + 1)
            if ended
            else TextPosition(number, self.first.column + max(1, size))
        )
        return FittedPage(f"{number}\t{show_invalid_bytes(line[: max(1, size)])}", onward, 1)

    @property
    def _tokens(self) -> int:
        return max(MIN_PAGE_TOKENS, self._room.share - PAGE_OVERHEAD_TOKENS)

    def _number_lines(self, count: int) -> str:
        lines = enumerate(self.lines[:count], self.first.line)
        return show_invalid_bytes("\n".join(f"{number}\t{line}" for number, line in lines))

    def _count_tokens(self, count: int) -> int:
        """Count the tokens of so many lines, scaled so that the tool's cap holds too.

        The cap counts the file's own text, as nobody who asks for a file asks for numbers.
        """
        text = self._number_lines(count)
        size = estimate_text_tokens(text)
        first = self.first.line
        numbers = estimate_tokens("\t".join(map(str, range(first, first + count))))
        own = (size - numbers) * self._tokens / self._room.cap
        return round(max(size, own))

    def _skip_lines(self, text: str) -> int:
        """Return where the first wanted line begins in this part, or its end."""
        passed = text.count(self._feed)
        if self.number + passed < self.first.line:
            self.number += passed
            return len(text)
        at = 0
        while self.number < self.first.line:
            at = text.index(self._feed, at) + 1
            self.number += 1
        return at

    def _extend(self, text: str, start: int, stop: int) -> None:
        self._begun = True
        skipped = min(self._skip_chars, stop - start)
        self._skip_chars -= skipped
        self._line += text[start + skipped : stop]
        if len(self._line) > self._left:
            self.lines.append(self._line[: self._left])
            self.full = self.open = True

    def _finish_line(self) -> None:
        self.lines.append(self._line.removesuffix("\r"))
        self._left -= len(self._line)
        self.number += 1
        self._line, self._begun = "", False
        self.full = len(self.lines) >= self._limit or self.is_past_line_end
