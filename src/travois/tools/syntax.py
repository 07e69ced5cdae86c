"""Definitions and uses of names in a source file, read from its syntax tree.

What a language calls a definition is data (`grammars.toml`). The grammars are an extra; a language
that is not installed is named, and never guessed at.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query

TABLE = Path(__file__).with_name("grammars.toml")
CLASSES = ("class", "interface", "struct", "enum", "trait", "union")
FUNCTIONS = ("function", "method")
LOCALS = ("variable", "constant", "field", "prototype")
"""Kinds that count only outside functions."""
AROUND = (*CLASSES, *FUNCTIONS, "module", "type", "scope", "closed")
"""Kinds that contain other definitions."""
KINDS = (*CLASSES, *FUNCTIONS, *LOCALS, "type", "typedef", "module", "macro")
NAMES = re.compile(r"identifier|name|constant|variable|symbol|^word$|^preproc_arg$")
"""Kinds of leaves that are names; a macro's text is one leaf."""
SIGNATURE = 160
PATIENCE = 1.0
PIECE = 16 * 1024
UNRULY = 10_000
"""Seconds for one file, bytes per parser read, and children of an error node."""
ASCII = bytes(byte if byte < 128 else ord("_") for byte in range(256))
"""For grammars whose scanners read beyond their tables at other characters."""


class Unparsed(Exception):
    """A source is of a kind that takes too long to be understood."""


class Grammar(msgspec.Struct, frozen=True):
    """A language: its grammar package, file endings and definition nodes."""

    module: str
    endings: str
    call: str = "language"
    like: str = ""
    """The language whose definitions it has, too."""
    near: str = ""
    named: dict[str, str] = {}
    also: str = ""


class Symbol(msgspec.Struct, frozen=True):
    """One definition: its name with those around it, and how it is introduced."""

    line: int
    kind: str
    name: str
    text: str
    start: int
    end: int


NOWHERE = Symbol(0, "", "", "", 0, 0)


class Mention(msgspec.Struct, frozen=True):
    """A line that uses a name, and the definition that it stands in."""

    line: int
    within: str
    text: str


class Found(msgspec.Struct, frozen=True):
    """A node that a query marked."""

    kind: str
    node: Node
    name: Node | None
    owner: str


@cache
def grammars() -> dict[str, Grammar]:
    """Return all languages, by name."""
    from tomllib import loads

    return msgspec.convert(loads(TABLE.read_text("utf-8")), dict[str, Grammar])


@cache
def endings() -> dict[str, str]:
    """Return the language of each file ending."""
    return {end: name for name, found in grammars().items() for end in found.endings.split()}


def language_of(path: str) -> str:
    """Return the language that a path speaks of; empty if it is none of ours."""
    return endings().get(path.rpartition(".")[2].lower(), "")


@cache
def installed(language: str) -> bool:
    """Return whether the grammar is there."""
    from importlib.util import find_spec

    return find_spec(grammars()[language].module) is not None


@cache
def _loaded(language: str) -> tuple[Language, Query]:
    from tree_sitter import Language, Query

    found = grammars()[language]
    grammar: object = getattr(import_module(found.module), found.call)()
    made = Language(grammar)
    return made, Query(made, _query(found))


def _query(found: Grammar) -> str:
    base = _query(grammars()[found.like]) if found.like else ""
    own = (
        f"({node} name: (_) @name) @{kind}\n"
        for kind, nodes in found.named.items()
        for node in nodes.split()
    )
    return "".join((base, *own, found.also))


def symbols(data: bytes, language: str) -> tuple[Symbol, ...]:
    """Return all that a source defines, in order; local variables are nobody else's business."""
    return _symbols(data, _root(data, language), language)


def _symbols(data: bytes, root: Node, language: str) -> tuple[Symbol, ...]:
    around: list[tuple[int, str, str]] = []
    named, made, lines = set[int](), list[Symbol](), _starts(data)
    for found in _definitions(data, root, language):
        node, at = found.node, found.name.start_byte if found.name else -1
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        _, outer, inside = around[-1] if around else (0, "", "")
        if at in named:
            continue
        own = _plain(data, found.name) if found.name else ""
        name = ".".join(filter(None, (outer, found.owner, own)))
        if found.kind in AROUND:
            around.append((node.end_byte, name, found.kind))
        kind = _kind(found.kind, inside)
        if found.name and own and kind in KINDS:
            named.add(at)
            text = _signature(data, node, found.name, kind=kind)
            line = bisect(lines, at)
            made.append(Symbol(line, kind, name, text, node.start_byte, node.end_byte))
    return tuple(sorted(made, key=lambda one: one.line))


def _definitions(data: bytes, root: Node, language: str) -> list[Found]:
    """Return the nodes that the query finds, outer before inner."""
    from tree_sitter import QueryCursor

    rows = list[tuple[int, int, int, Found]]()
    for pattern, marked in QueryCursor(_loaded(language)[1]).matches(root):
        name, owner = marked.get("name", [None])[0], marked.get("owner")
        for kind, nodes in marked.items():
            if kind in ("name", "owner") or kind[0] == "_":
                continue
            found = Found(kind, nodes[0], name, _plain(data, owner[0]) if owner else "")
            rows.append((nodes[0].start_byte, -nodes[0].end_byte, pattern, found))
    rows.sort(key=lambda row: row[:3])
    return [row[3] for row in rows]


def _kind(kind: str, inside: str) -> str:
    """Return the kind of a definition in view of what it stands in; empty for what is local."""
    if inside in (*FUNCTIONS, "closed"):
        return "" if kind in LOCALS else kind
    if inside in (*CLASSES, "scope"):
        return {"function": "method", "variable": "field", "prototype": "method"}.get(kind, kind)
    return kind


def _plain(data: bytes, name: Node) -> str:
    """Return a name as it is told; empty if it goes over lines, as only what is broken does."""
    text = data[name.start_byte : name.end_byte].decode(errors="replace").strip("@$:#\"'")
    text = re.sub(r"(?<=\w)<[^<>]*>| ", "", text).replace("\\", ".").replace("::", ".")
    return "" if "\n" in text else text


def _signature(data: bytes, node: Node, name: Node, *, kind: str) -> str:
    """Return the beginning of a definition, from the line of its name up to its body."""
    first = max(node.start_byte, data.rfind(b"\n", 0, name.start_byte) + 1)
    body = _body(node)
    last = body.start_byte if body is not None and body.start_byte > first else node.end_byte
    text = data[first : min(last, first + 4 * SIGNATURE)].decode(errors="replace")
    if kind in LOCALS or kind in CLASSES:
        text = text.partition("\n" if kind in LOCALS else "{")[0]
    text = re.sub(r"(?<=[(\[]) |,? (?=[)\]])", "", " ".join(text.split()).rstrip(" {:;="))
    return text if len(text) <= SIGNATURE else text[: SIGNATURE - 1] + "…"


def _body(node: Node) -> Node | None:
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    return node.child_by_field_name("body") or (value and value.child_by_field_name("body"))


def _root(data: bytes, language: str) -> Node:
    """Return the syntax tree; raises `Unparsed` for what takes too long.

    The parser is fed piece by piece, so that it can be stopped between two of them.
    """
    from tree_sitter import Parser

    text, end = data.translate(ASCII) if language == "bash" else data, thread_time() + PATIENCE

    def piece(at: int, point: object) -> bytes:
        return text[at : at + PIECE] if thread_time() < end else b""

    root = Parser(_loaded(language)[0]).parse(piece).root_node
    if thread_time() >= end or _unruly(root):
        raise Unparsed
    return root


def _unruly(root: Node) -> bool:
    """Return whether an error holds so much that each look into it would go through all of that."""
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error and node.child_count > UNRULY:
            return True
        waiting += (child for child in node.children if child.has_error)
    return False


def mentions(data: bytes, language: str, word: str) -> tuple[Mention, ...]:
    """Find where a source uses a name, not counting strings and comments."""
    places = [match.start() for match in worded(word).finditer(data)]
    known: tuple[Symbol, ...] = ()
    if places and installed(language):
        root = _root(data, language)
        places = [at for at in places if _is_name(root, at, word.encode())]
        known = _symbols(data, root, language) if places else ()
    return tuple(_mentions(data, places, known))


def _is_name(root: Node, at: int, word: bytes) -> bool:
    node = root.named_descendant_for_byte_range(at, at + len(word))
    if node is None or not NAMES.search(node.type):
        return False
    size = node.end_byte - node.start_byte
    return node.type == "preproc_arg" or size <= len(word) + 2


def _mentions(data: bytes, places: Iterable[int], known: tuple[Symbol, ...]) -> Iterator[Mention]:
    starts, last = _starts(data), 0
    for at in places:
        line = bisect(starts, at)
        if line == last:
            continue
        last = line
        end = starts[line] - 1 if line < len(starts) else len(data)
        text = data[starts[line - 1] : end].decode(errors="replace").strip()
        yield Mention(line, _within(known, at), text[:SIGNATURE])


def _starts(data: bytes) -> list[int]:
    """Return the start of each line. Asking nodes for it crashes with tree-sitter 0.26.0."""
    return [0, *(match.end() for match in re.finditer(b"\n", data))]


def _within(known: tuple[Symbol, ...], at: int) -> str:
    around = (one for one in known if one.start <= at < one.end)
    return max(around, key=lambda one: one.start, default=NOWHERE).name


def worded(word: str) -> re.Pattern[bytes]:
    """Finds a word as a whole; bytes beyond ASCII are letters."""
    return re.compile(rb"(?<![\w\x80-\xff])" + re.escape(word.encode()) + rb"(?![\w\x80-\xff])")
