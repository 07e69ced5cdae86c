"""The Language Server Protocol as far as we speak it: framing, messages, positions, results.

Only UTF-16 positions are offered, which every server has to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os.path import isabs
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

MAX_MESSAGE_BYTES = 32 << 20
MAX_HEADER_BYTES = 4096
CONTENT_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
WORD = re.compile(r"\w+")
Json = dict[str, object]
DecodedT = TypeVar("DecodedT")


class ProtocolError(Exception):
    """A server wrote something that is not the protocol; it is ended."""


class ResponseError(msgspec.Struct, frozen=True):
    """A server's error in place of a result."""

    code: int = 0
    message: str = ""


class Message(msgspec.Struct, frozen=True):
    """A JSON-RPC message from a server: a request, a notification or a response."""

    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: ResponseError | None = None


class MessageReader:
    """Splits a language server's output into messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def split_messages(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete; raises `ProtocolError`."""
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            _refuse_long_header(end)
            size = _content_length(bytes(self._held[:end]))
            start = end + 4
            if len(self._held) < start + size:
                return
            body = bytes(self._held[start : start + size])
            del self._held[: start + size]
            yield decode(body, Message)
        _refuse_long_header(len(self._held))


def _refuse_long_header(size: int) -> None:
    """Raise `ProtocolError` if a language server writes something else than messages."""
    if size > MAX_HEADER_BYTES:
        raise ProtocolError("its output has no message headers")


def _content_length(header: bytes) -> int:
    """Return the length of a language server's message from its header."""
    found = CONTENT_LENGTH.search(header)
    if found is None:
        raise ProtocolError("a message header has no Content-Length")
    if int(found[1]) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a message has {int(found[1]):,} bytes")
    return int(found[1])


def encode_message(body: Json) -> bytes:
    """Encode a message for a language server, with its header."""
    data = msgspec.json.encode({"jsonrpc": "2.0", **body})
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


def decode(data: bytes | msgspec.Raw, kind: type[DecodedT]) -> DecodedT:
    """Decode JSON of a language server; raises `ProtocolError`."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"a message is not valid: {error}") from None


# Where something is, and what is wrong there.


class Position(msgspec.Struct, frozen=True):
    """A place in a text, from 0; `character` counts UTF-16 units."""

    line: int
    character: int


class Range(msgspec.Struct, frozen=True):
    """A range of a text."""

    start: Position
    end: Position


class Diagnostic(msgspec.Struct, frozen=True):
    """A problem that a language server reports."""

    range: Range
    message: str
    severity: int = 1
    code: int | str | None = None


class PublishedDiagnostics(msgspec.Struct, frozen=True):
    """The diagnostics of a file that a server sends by itself."""

    uri: str
    diagnostics: tuple[Diagnostic, ...]
    version: int | None = None


class PulledDiagnostics(msgspec.Struct, frozen=True):
    """The diagnostics of a file that a server was asked for."""

    items: tuple[Diagnostic, ...] = ()


class ProgressValue(msgspec.Struct, frozen=True):
    """The stage of some work."""

    kind: str = ""


class ProgressParams(msgspec.Struct, frozen=True):
    """A server's report on its work."""

    token: int | str
    value: ProgressValue = ProgressValue()


class Location(msgspec.Struct, frozen=True, rename="camel"):
    """A place in a file, also as a link to one."""

    uri: str = ""
    range: Range | None = None
    target_uri: str = ""
    target_selection_range: Range | None = None

    @property
    def local_path(self) -> str:
        """The path of the file; empty if it is no file."""
        return path_of_uri(self.uri or self.target_uri)

    @property
    def start_position(self) -> Position:
        """The start of the place."""
        found = self.range or self.target_selection_range
        return found.start if found else Position(0, 0)


class MarkedText(msgspec.Struct, frozen=True):
    """A text of a hover, in one of the protocol's forms."""

    value: str


def decode_locations(data: msgspec.Raw) -> tuple[Location, ...]:
    """Decode one place or several, as servers answer; raises `ProtocolError`."""
    if bytes(data).lstrip()[:1] == b"[":
        return decode(data, tuple[Location, ...])
    return (decode(data, Location),)


class Hover(msgspec.Struct, frozen=True):
    """What a server says about a symbol."""

    contents: MarkedText | str | tuple[MarkedText | str, ...]

    @property
    def plain_text(self) -> str:
        """The whole text."""
        parts = self.contents if isinstance(self.contents, tuple) else (self.contents,)
        return "\n".join(one if isinstance(one, str) else one.value for one in parts).strip()


class Symbol(msgspec.Struct, frozen=True, rename="camel"):
    """A symbol of a file or of the workspace."""

    name: str
    kind: int = 0
    detail: str = ""
    container_name: str = ""
    selection_range: Range | None = None
    location: Location | None = None
    children: tuple[Symbol, ...] = ()

    @property
    def name_position(self) -> Position:
        """The start of its name."""
        if self.selection_range is not None:
            return self.selection_range.start
        return self.location.start_position if self.location else Position(0, 0)


class TextEdit(msgspec.Struct, frozen=True, rename="camel"):
    """A text to put in the place of a range."""

    range: Range
    new_text: str


class VersionedFile(msgspec.Struct, frozen=True):
    """The file of an edit."""

    uri: str


class FileEdits(msgspec.Struct, frozen=True, rename="camel"):
    """The edits of one file, or an operation on a file (`kind`), which we do not offer."""

    kind: str = ""
    text_document: VersionedFile | None = None
    edits: tuple[TextEdit, ...] = ()


class WorkspaceEdit(msgspec.Struct, frozen=True, rename="camel"):
    """The edits of a rename."""

    changes: dict[str, tuple[TextEdit, ...]] | None = None
    document_changes: tuple[FileEdits, ...] | None = None


SYMBOL_KINDS = (
    *("", "file", "module", "namespace", "package", "class", "method", "property", "field"),
    *("constructor", "enum", "interface", "function", "variable", "constant", "string", "number"),
    *("boolean", "array", "object", "key", "null", "enum member", "struct", "event", "operator"),
    "type parameter",
)


def name_symbol_kind(kind: int) -> str:
    """Return the name of a symbol kind's number."""
    return SYMBOL_KINDS[kind] if 0 < kind < len(SYMBOL_KINDS) else "symbol"


# Files and positions, both ways.


def uri_of_path(path: str) -> str:
    """Return the URI of an absolute path."""
    return f"file://{quote(path, errors='surrogateescape')}"


def path_of_uri(uri: str) -> str:
    """Return the path that a file URI names; empty for other URIs."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    path = unquote(parts.path, errors="surrogateescape")
    return path if parts.scheme == "file" and not parts.netloc and isabs(path) else ""


def split_document_lines(text: str) -> list[str]:
    """Split a text into lines as the protocol counts them."""
    return re.split(r"\r\n|\n|\r", text)


def document_line_starts(text: str) -> list[int]:
    """Return the offset of each line of a text."""
    return [0, *(found.end() for found in re.finditer(r"\r\n|\n|\r", text))]


def column_to_character(line: str, column: int) -> int:
    """Return the UTF-16 units before a column of a line."""
    return len(line[:column].encode("utf-16-le", "surrogatepass")) // 2


def character_to_column(line: str, character: int) -> int:
    """Return the column of a line after so many UTF-16 units."""
    units = line.encode("utf-16-le", "surrogatepass")[: max(character, 0) * 2]
    return len(units.decode("utf-16-le", "replace"))


def find_symbol_position(lines: Sequence[str], symbol: str, line: int = 0) -> Position | None:
    """Return where a symbol first occurs as a word: in a line from 1, or anywhere for 0."""
    name = symbol.rpartition(".")[2].strip()
    wanted = enumerate(lines) if line < 1 else enumerate(lines[line - 1 : line], line - 1)
    for number, text in wanted:
        for word in WORD.finditer(text):
            if word[0] == name:
                return Position(number, column_to_character(text, word.start()))
    return None
