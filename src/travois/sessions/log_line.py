"""One line of a session log: an entry as JSON, with a checksum over everything before it."""

from __future__ import annotations

from zlib import crc32

import msgspec

from travois.core.facts import Entry, Unknown
from travois.core.json import encode_json

RECORD_START = b'{"seq":'
CRC_FIELD = b',"crc":'
TORN_REASON = "the line is incomplete"
DAMAGED_REASON = "the checksum does not match"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class UnknownFactError(Exception):
    """A whole line of a kind that this version does not know."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.problem = problem


class _LooseEntry(msgspec.Struct):
    """An entry whose fact is left undecoded."""

    seq: int
    at: float
    fact: msgspec.Raw
    ignorable: bool = False


class _FactType(msgspec.Struct):
    """The type tag of a fact."""

    type: str = "?"


def encode_entry(entry: Entry) -> tuple[Entry, bytes]:
    """Encode a log entry as a line; return it as it will be read again, and the line."""
    try:
        return entry, add_checksum(_encoder.encode(entry))
    except UnicodeEncodeError:
        return encode_entry(_replace_surrogates(entry))


def add_checksum(record: bytes) -> bytes:
    """Encode a log record as a line, with a checksum as its last field."""
    body = record[:-1]
    return b"%b%b%d}\n" % (body, CRC_FIELD, crc32(body))


def decode_record(record: bytes) -> Entry:
    """Decode a whole log record. Raises `UnknownFactError`."""
    try:
        return _decoder.decode(record)
    except (ValueError, RecursionError) as error:
        return _decode_unknown(record, error)


def decode_block(block: bytes) -> list[Entry]:
    """Decode many whole log lines. Raises `UnknownFactError` if a fact is unknown."""
    try:
        return _decoder.decode_lines(block)
    except (ValueError, RecursionError) as error:
        raise UnknownFactError("?", str(error)) from None


def is_block_whole(block: bytes) -> bool:
    """Return whether a block of a session log has only whole lines."""
    *lines, rest = block.split(b"\n")
    parts = [text.rpartition(CRC_FIELD) for text in lines]  # one step for all lines, then the next:
    bodies = [body for body, _, _ in parts]  # a loop over the lines would take half as long again
    right = [b"%d}" % crc32(body) for body in bodies] == [end for _, _, end in parts]
    return right and all(bodies) and not rest


def read_entry_number(record: bytes) -> int:
    """Return a log record's entry number from its first bytes; 0 if there is none."""
    digits = record[len(RECORD_START) : record.find(b",")]
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0


def split_records(line: bytes) -> tuple[list[bytes], str]:
    """Split a log line into whole records; also return what is wrong with it, else empty.

    A line that lost its line break, or that began with the rest of a torn one, still gives the
    records in it that are whole: no string in a record can hold the bytes that begin one.
    """
    if not line.endswith(b"\n"):
        return [], TORN_REASON
    if _is_record_whole(line[:-1]):
        return [line], ""
    parts = (RECORD_START + part for part in line.split(RECORD_START)[1:])
    return [part for part in map(_trim_record, parts) if _is_record_whole(part)], DAMAGED_REASON


def _is_record_whole(record: bytes) -> bool:
    body, _, end = record.rpartition(CRC_FIELD)
    return end == b"%d}" % crc32(body) and body != b""


def _trim_record(part: bytes) -> bytes:
    return part[: part.rfind(b"}") + 1]


def _decode_unknown(record: bytes, error: Exception) -> Entry:
    """Decode a log entry of unknown type; raise unless it is marked as ignorable."""
    try:
        loose = msgspec.json.decode(record, type=_LooseEntry)
        kind = msgspec.json.decode(loose.fact, type=_FactType).type
    except (ValueError, RecursionError):
        raise UnknownFactError("?", str(error)) from None
    if not loose.ignorable:
        raise UnknownFactError(kind, str(error)) from None
    return Entry(loose.seq, loose.at, Unknown(bytes(loose.fact).decode()))


def _replace_surrogates(entry: Entry) -> Entry:
    """Return a log entry without lone surrogates, which JSON cannot contain."""
    return _decoder.decode(encode_json(entry))
