"""Tool calls of a chat completion, put together from deltas that each server numbers its way."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from travois.core.content import Call
from travois.core.json import is_object, string, table
from travois.providers.names import ECHOED


class _Growing:
    """One call while it is being said."""

    def __init__(self) -> None:
        self.index: int | None = None
        self.id = ""
        self.name = ""
        self.args: list[str] = []
        self.extra = ""


class Calls:
    """The calls of one reply, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Growing] = []

    def take(self, delta: dict[str, Any], *, reply: str) -> tuple[int, str]:
        """Take one more delta; returns which call it belongs to and what its arguments gained."""
        inside = table(delta.get("function"))
        id, name = string(delta.get("id")), string(inside.get("name"))
        args = _text(inside.get("arguments"))
        index = delta.get("index")
        call = self._of(index if isinstance(index, int) else None, id=id, name=name, args=args)
        if not call.id:
            call.id = id or made_id(reply, self._calls.index(call))
        call.name = call.name or name
        call.args.append(args)
        if delta.get(ECHOED) is not None:
            call.extra = msgspec.json.encode({ECHOED: delta[ECHOED]})[1:-1].decode()
        return self._calls.index(call), args

    def named(self, key: object) -> tuple[str, str]:
        """The id and the name of a call."""
        assert isinstance(key, int)
        return self._calls[key].id, self._calls[key].name

    def made(self, reply: str, *, cut: bool) -> tuple[tuple[Call, ...], bool]:
        """All calls; if the reply was cut, without a last one that is half, and whether it was."""
        made = [Call(c.id, c.name, arguments("".join(c.args)), extra=c.extra) for c in self._calls]
        half = cut and bool(made) and not is_object("".join(self._calls[-1].args))
        return tuple(made[:-1] if half else made), half

    def _of(self, index: int | None, *, id: str, name: str, args: str) -> _Growing:
        """The call that a delta belongs to: by index, else by id, else the last one."""
        call = self._known(index, id=id, name=name)
        if call is not None and not _starts_another(call, id=id, name=name, args=args):
            return call
        self._calls.append(_Growing())
        self._calls[-1].index = index
        return self._calls[-1]

    def _known(self, index: int | None, *, id: str, name: str) -> _Growing | None:
        same = [call for call in self._calls if id and call.id == id]
        if index is not None:
            same = same or [call for call in self._calls if call.index == index]
        elif not id and not name:
            same = self._calls
        return same[-1] if same else None


def made_id(reply: str, index: int) -> str:
    """An id for a call that came without one: the same whenever the same reply is read."""
    return "call_" + blake2b(f"{reply}/{index}".encode(), digest_size=12).hexdigest()


def arguments(text: str) -> str:
    """Arguments as one JSON text: nothing means none, and a string of JSON is unwrapped."""
    bare = text.strip()
    if bare in ("", "null", '""'):
        return "{}"
    if bare.startswith('"'):
        try:
            inner = msgspec.json.decode(bare, type=str)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return text
        return inner if is_object(inner) else text
    return text


def _starts_another(call: _Growing, *, id: str, name: str, args: str) -> bool:
    """Google's endpoint numbers all parallel calls 0: another name and id is another call."""
    if not name or not call.name:
        return False
    if id:
        return id != call.id
    return bool(args) and is_object("".join(call.args))


def _text(args: object) -> str:
    """A part of the arguments; some servers send them whole, as an object."""
    if args is None:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()
