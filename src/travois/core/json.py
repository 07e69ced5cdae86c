"""Reading untrusted JSON (wrong shapes count as absent), and writing JSON as final bytes."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from travois.lazy_imports import lazy_imports

with lazy_imports():
    import json


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_string(value: object) -> str:
    """Return a JSON value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def read_count(counts: dict[str, Any], name: str) -> int:
    """Return a named count of a JSON object; zero if it is missing or not a number."""
    value = counts.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


# JSON as final bytes: what is written here is sent as it stands, today and on every replay.


JsonMembers = dict[str, msgspec.Raw]
"""The members of a JSON object, each as the text it came in."""

_object_decoder = msgspec.json.Decoder(dict[str, object])
_member_decoder = msgspec.json.Decoder(JsonMembers)


def encode_utf8(text: str) -> bytes:
    """Encode text as valid UTF-8 for JSON; a lone surrogate becomes the replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def quote_json(text: str) -> bytes:
    """Encode text as a JSON string."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(encode_utf8(text).decode())


def encode_json(value: object) -> bytes:
    """Encode a value as JSON; lone surrogates, which come from file names, are replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def is_json_object(text: str) -> bool:
    """Return whether the text is exactly one JSON object."""
    try:
        _object_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def ensure_json_object(text: str) -> bytes:
    """Return the text if it is a JSON object, else an object that contains the text."""
    if is_json_object(text):
        return text.encode()
    return b'{"_invalid_arguments":' + quote_json(text) + b"}"


def split_members(text: str | bytes) -> JsonMembers:
    """Split a JSON object into its members, in order; raises `msgspec.DecodeError`."""
    return _member_decoder.decode(text)


def to_raw_json(value: object) -> msgspec.Raw:
    """Encode a value as the raw JSON of an object member."""
    return msgspec.Raw(msgspec.json.encode(value))


def join_members(inside: JsonMembers) -> str:
    """Join members into JSON object text without braces."""
    return msgspec.json.encode(inside)[1:-1].decode("utf-8", "replace")
