"""One line of a session log: an entry as JSON, with a checksum over everything before it."""

from __future__ import annotations

from zlib import crc32

import msgspec

from travois.core.facts import Entry, Unknown
from travois.core.json import encode_json

START = b'{"seq":'
CRC = b',"crc":'
TORN = "the line is incomplete"
DAMAGED = "the checksum does not match"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class Foreign(Exception):
    """A whole line of a kind that this version does not know."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.problem = problem


class _Loose(msgspec.Struct):
    """An entry whose fact is left undecoded."""

    seq: int
    at: float
    fact: msgspec.Raw
    ignorable: bool = False


class _Kind(msgspec.Struct):
    """The type tag of a fact."""

    type: str = "?"


def encode(entry: Entry) -> tuple[Entry, bytes]:
    """Return an entry as it will be read again, and its line."""
    try:
        return entry, sealed(_encoder.encode(entry))
    except UnicodeEncodeError:
        return encode(_legible(entry))


def sealed(record: bytes) -> bytes:
    """Return a JSON object as a line, with a checksum as its last field."""
    body = record[:-1]
    return b"%b%b%d}\n" % (body, CRC, crc32(body))


def decode(record: bytes) -> Entry:
    """Decode a whole record. Raises `UnknownFactError`."""
    try:
        return _decoder.decode(record)
    except (ValueError, RecursionError) as error:
        return _unknown(record, error)


def decode_all(block: bytes) -> list[Entry]:
    """Decode many whole lines. Raises `UnknownFactError` if one of them is not known."""
    try:
        return _decoder.decode_lines(block)
    except (ValueError, RecursionError) as error:
        raise Foreign("?", str(error)) from None


def all_whole(block: bytes) -> bool:
    """Return whether a block consists of whole lines and nothing else."""
    *lines, rest = block.split(b"\n")
    parts = [text.rpartition(CRC) for text in lines]  # one step for all lines, then the next:
    bodies = [body for body, _, _ in parts]  # a loop over the lines would take half as long again
    right = [b"%d}" % crc32(body) for body in bodies] == [end for _, _, end in parts]
    return right and all(bodies) and not rest


def number(record: bytes) -> int:
    """Return the entry number of a whole record from its first bytes; 0 if there is none."""
    digits = record[len(START) : record.find(b",")]
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0


def records(line: bytes) -> tuple[list[bytes], str]:
    """Return the whole records of a line, and what is wrong with it; empty if nothing is.

    A line that lost its line break, or that began with the rest of a torn one, still gives the
    records in it that are whole: no string in a record can hold the bytes that begin one.
    """
    if not line.endswith(b"\n"):
        return [], TORN
    if _whole(line[:-1]):
        return [line], ""
    parts = (START + part for part in line.split(START)[1:])
    return [part for part in map(_trimmed, parts) if _whole(part)], DAMAGED


def _whole(record: bytes) -> bool:
    body, _, end = record.rpartition(CRC)
    return end == b"%d}" % crc32(body) and body != b""


def _trimmed(part: bytes) -> bytes:
    return part[: part.rfind(b"}") + 1]


def _unknown(record: bytes, error: Exception) -> Entry:
    try:
        loose = msgspec.json.decode(record, type=_Loose)
        kind = msgspec.json.decode(loose.fact, type=_Kind).type
    except (ValueError, RecursionError):
        raise Foreign("?", str(error)) from None
    if not loose.ignorable:
        raise Foreign(kind, str(error)) from None
    return Entry(loose.seq, loose.at, Unknown(bytes(loose.fact).decode()))


def _legible(entry: Entry) -> Entry:
    """Return the entry without lone surrogates, which no JSON can hold."""
    return _decoder.decode(encode_json(entry))
