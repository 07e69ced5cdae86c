"""Faults by rule: what goes wrong, with which request, and how far into its answer."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from typing import Any

import msgspec

from travois.core.errors import UserError
from travois_lab.http import Cut, Pause, Response
from travois_lab.objects import Json, inner, is_list, is_object
from travois_lab.refusal import Refusal
from travois_lab.stream import Event, Item, steps

HTML_413 = (
    b"<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>"
)
MATCH = ("n", "every", "path", "model", "p", "times", "after")
ARGS: dict[str, tuple[str, ...]] = {
    "http": ("status", "type", "message", "details", "headers", "body_raw"),
    "html_413": (),
    "sse_error": ("type", "message"),
    "disconnect": (),
    "reset": (),
    "stall": ("s",),
    "drip": ("bytes", "ms"),
    "truncate": (),
    "omit": ("event",),
    "duplicate": ("event",),
    "reorder": (),
    "unknown_event": (),
    "ping_flood": ("n",),
    "bad_json_event": (),
    "split_utf8": (),
    "crlf": (),
    "giant_event": ("bytes",),
    "no_done": (),
    "wrong_content_length": (),
    "slow_headers": ("s",),
    "gzip_response": (),
}


class Shape(msgspec.Struct, frozen=True):
    """How a protocol says the things that faults put into its streams."""

    ping: bytes
    unknown: bytes
    error: Callable[[Refusal], bytes]
    last: str
    """The name of the event that ends a stream."""


class Rule(msgspec.Struct):
    """One fault, and which requests it befalls."""

    action: str
    args: Json = {}
    n: tuple[int, ...] = ()
    every: int = 0
    path: str = ""
    model: str = ""
    p: float = 1.0
    times: int = 0
    after: Json = {}
    seen: int = 0
    done: int = 0

    def befalls(self, path: str, model: str, chance: random.Random) -> bool:
        """Whether the next request that this rule looks at suffers; counts it."""
        if self.path not in path or (self.model and self.model != model):
            return False
        self.seen += 1
        if self.times and self.done >= self.times:
            return False
        if self.n and self.seen not in self.n:
            return False
        if (self.every and self.seen % self.every) or chance.random() > self.p:
            return False
        self.done += 1
        return True


class Faults:
    """All rules in force, and the dice they throw."""

    def __init__(self, rules: list[Rule], *, seed: int = 0) -> None:
        self.rules = rules
        self.chance = random.Random(seed)  # noqa: S311

    def pick(self, path: str, model: str) -> list[Rule]:
        """The rules that befall this request."""
        return [rule for rule in self.rules if rule.befalls(path, model, self.chance)]


def parse_rules(rows: list[Any]) -> list[Rule]:
    """Rules from their written form: `{"match": {"n": 2}, "do": {"stall": {"s": 5}}}`."""
    return [_rule(row, f"faults[{i}]") for i, row in enumerate(rows)]


def _rule(row: Any, where: str) -> Rule:
    if isinstance(row, Rule):
        return row
    _known(row, ("match", "do"), where)
    do: Any = row.get("do")
    written: Json = {do: {}} if isinstance(do, str) else inner(row, "do")
    action, args = next(iter(written.items()), ("", None))
    if action not in ARGS:
        raise UserError(f"{where}.do: unknown fault {action!r}", fix=f"known: {', '.join(ARGS)}")
    _known(args or {}, ARGS[action], f"{where}.do.{action}")
    match: Json = dict(row.get("match") or {})
    _known(match, MATCH, f"{where}.match")
    _known(match.get("after") or {}, ("events", "bytes", "ms"), f"{where}.match.after")
    if "n" in match:
        match["n"] = tuple(match["n"]) if is_list(match["n"]) else (match["n"],)
    return Rule(action, args or {}, **match)


def _known(row: Any, names: tuple[str, ...], where: str) -> None:
    if not is_object(row):
        raise UserError(f"{where}: an object is needed", why=f"got {type(row).__name__}")
    for name in row:
        if name not in names:
            fix = f"known fields: {', '.join(names) or 'none'}"
            raise UserError(f"{where}: unknown field {name!r}", fix=fix)


# --- instead of an answer -------------------------------------------------------------------------


def refuse(rules: list[Rule]) -> Response | None:
    """Raise the HTTP error that a rule asks for, or return its raw page."""
    for rule in rules:
        if rule.action == "html_413":
            return Response(413, (("content-type", "text/html"),), (HTML_413,))
        if rule.action == "http":
            return _http(rule.args)
    return None


def _http(args: Json) -> Response:
    status = int(args.get("status", 500))
    headers = tuple((str(k), str(v)) for k, v in inner(args, "headers").items())
    if "body_raw" in args:
        return Response(status, headers, (str(args["body_raw"]).encode(),))
    message = str(args.get("message") or "the lab says so")
    raise Refusal(
        message,
        status=status,
        kind=str(args.get("type") or ""),
        details=args.get("details"),
        headers=headers,
    )


# --- within an answer -----------------------------------------------------------------------------


def tamper(response: Response, items: list[Item], *, rules: list[Rule], shape: Shape) -> Response:
    """The response with the faults of these rules in it; `items` are its content."""
    length = sum(len(item.raw) for item in items if isinstance(item, Event))
    for rule in rules:
        edit = EDITS.get(rule.action)
        if edit is None:
            continue
        wait = [Pause(rule.after["ms"] / 1000)] if "ms" in rule.after else []
        head, tail = _split(items, rule.after)
        items = edit(head + wait, tail, rule.args, shape)
    made = msgspec.structs.replace(response, steps=steps(items))
    for rule in rules:
        made = _reframe(made, rule, length)
    return made


def _split(items: list[Item], after: Json) -> tuple[list[Item], list[Item]]:
    if "bytes" in after:
        return _split_bytes(items, int(after["bytes"]))
    left = int(after.get("events", 1))
    for i, item in enumerate(items):
        if left <= 0:
            return items[:i], items[i:]
        left -= isinstance(item, Event)
    return items, []


def _split_bytes(items: list[Item], left: int) -> tuple[list[Item], list[Item]]:
    for i, item in enumerate(items):
        if not isinstance(item, Event):
            continue
        if left < len(item.raw):
            first, second = Event(item.name, item.raw[:left]), Event(item.name, item.raw[left:])
            return [*items[:i], first], [second, *items[i + 1 :]]
        left -= len(item.raw)
    return items, []


def _reframe(response: Response, rule: Rule, length: int) -> Response:
    replace = msgspec.structs.replace
    match rule.action:
        case "slow_headers":
            return replace(response, before=float(rule.args.get("s", 1)))
        case "wrong_content_length":
            return replace(response, framing="length", claimed=length + 100)
        case "disconnect" | "reset" | "truncate" if response.framing == "length":
            return replace(response, claimed=length)
        case "gzip_response":
            body = b"".join(step for step in response.steps if isinstance(step, bytes))
            headers = (*response.headers, ("content-encoding", "gzip"))
            return replace(response, headers=headers, steps=(gzip.compress(body),))
        case _:
            return response


Edit = Callable[[list[Item], list[Item], Json, Shape], list[Item]]


def _sse_error(head: list[Item], _tail: list[Item], args: Json, shape: Shape) -> list[Item]:
    kind = str(args.get("type") or "overloaded_error")
    refusal = Refusal(str(args.get("message") or "Overloaded"), status=529, kind=kind)
    return [*head, Event("error", shape.error(refusal))]


def _drip(head: list[Item], tail: list[Item], args: Json, _shape: Shape) -> list[Item]:
    raw = b"".join(item.raw for item in (*head, *tail) if isinstance(item, Event))
    size, wait = int(args.get("bytes", 1)), Pause(float(args.get("ms", 0)) / 1000)
    pieces = [Event("drip", raw[i : i + size]) for i in range(0, len(raw), size)]
    return [item for piece in pieces for item in (piece, wait)]


def _omit(head: list[Item], tail: list[Item], args: Json, _shape: Shape) -> list[Item]:
    return [i for i in (*head, *tail) if not isinstance(i, Event) or i.name != args.get("event")]


def _duplicate(head: list[Item], tail: list[Item], args: Json, _shape: Shape) -> list[Item]:
    items = [*head, *tail]
    for i, item in enumerate(items):
        if isinstance(item, Event) and item.name == args.get("event"):
            return [*items[: i + 1], *items[i:]]
    return items


def _bad_json(head: list[Item], tail: list[Item], _args: Json, _shape: Shape) -> list[Item]:
    if not tail or not isinstance(tail[0], Event):
        return [*head, *tail]
    raw = tail[0].raw
    broken = raw[: raw.rfind(b"}")].rstrip(b"}") + raw[len(raw.rstrip()) :]
    return [*head, Event(tail[0].name, broken), *tail[1:]]


def _split_utf8(head: list[Item], tail: list[Item], _args: Json, _shape: Shape) -> list[Item]:
    done: list[Item] = []
    for item in (*head, *tail):
        if not isinstance(item, Event):
            done.append(item)
            continue
        wide = next((i for i, byte in enumerate(item.raw) if byte >= 0xC0), len(item.raw) // 2)
        first, second = item.raw[: wide + 1], item.raw[wide + 1 :]
        done += [Event(item.name, first), Pause(0.001), Event(item.name, second)]
    return done


def _crlf(head: list[Item], tail: list[Item], _args: Json, _shape: Shape) -> list[Item]:
    return [
        Event(i.name, i.raw.replace(b"\n", b"\r\n")) if isinstance(i, Event) else i
        for i in (*head, *tail)
    ]


def _padded(ping: bytes, size: int) -> bytes:
    """A ping of at least this many bytes, which says no more than a small one."""
    if ping.startswith(b":"):
        return b": %b\n\n" % (b"x" * size)
    return ping.replace(b"}", b',"pad":"%b"}' % (b"x" * size), 1)


EDITS: dict[str, Edit] = {
    "sse_error": _sse_error,
    "disconnect": lambda head, _t, _a, _s: [*head, Cut()],
    "reset": lambda head, _t, _a, _s: [*head, Pause(0.01), Cut("reset")],
    "truncate": lambda head, _t, _a, _s: head,
    "stall": lambda head, tail, args, _s: [*head, Pause(float(args.get("s", 60))), *tail],
    "drip": _drip,
    "omit": _omit,
    "no_done": lambda head, tail, _a, shape: _omit(head, tail, {"event": shape.last}, shape),
    "duplicate": _duplicate,
    "reorder": lambda head, tail, _a, _s: [*head, *tail[1:2], *tail[:1], *tail[2:]],
    "unknown_event": lambda head, tail, _a, shape: [*head, Event("?", shape.unknown), *tail],
    "ping_flood": lambda head, tail, args, shape: [
        *head,
        Event("ping", shape.ping * int(args.get("n", 100))),
        *tail,
    ],
    "bad_json_event": _bad_json,
    "split_utf8": _split_utf8,
    "crlf": _crlf,
    "giant_event": lambda head, tail, args, shape: [
        *head,
        Event("ping", _padded(shape.ping, int(args.get("bytes", 2_000_000)))),
        *tail,
    ],
}
