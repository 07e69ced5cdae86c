"""Looking at JSON from servers that promise nothing: what has the wrong shape counts as absent."""

from __future__ import annotations

from typing import Any, cast

import msgspec


def table(value: object) -> dict[str, Any]:
    """An object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def rows(value: object) -> list[Any]:
    """A list, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """A string, or an empty one."""
    return value if isinstance(value, str) else ""


def number(counts: dict[str, Any], name: str) -> int:
    """A count among others, or zero."""
    value = counts.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


# JSON as final bytes: what is written here is sent as it stands, today and on every replay.


Members = dict[str, msgspec.Raw]
"""The members of a JSON object, each as the text it came in."""

_objects = msgspec.json.Decoder(dict[str, object])
_members = msgspec.json.Decoder(Members)


def utf8(text: str) -> bytes:
    """These words as valid UTF-8; a lone surrogate becomes the replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def quote(text: str) -> bytes:
    """A JSON string of these words."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(utf8(text).decode())


def encoded(value: object) -> bytes:
    """A value as JSON; lone surrogates, which come from file names, are replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def is_object(text: str) -> bool:
    """Whether this is the text of one JSON object, strictly."""
    try:
        _objects.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def object_text(text: str) -> bytes:
    """This text if it is a JSON object, untouched; else an object that holds the text."""
    if is_object(text):
        return text.encode()
    return b'{"_invalid_arguments":' + quote(text) + b"}"


def members(text: str | bytes) -> Members:
    """The members of this JSON object, in order; raises `msgspec.DecodeError`."""
    return _members.decode(text)


def raw(value: object) -> msgspec.Raw:
    """A value as the text of a member."""
    return msgspec.Raw(msgspec.json.encode(value))


def joined(inside: Members) -> str:
    """These members as text without braces."""
    return msgspec.json.encode(inside)[1:-1].decode("utf-8", "replace")
