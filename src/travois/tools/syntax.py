"""Definitions and uses of names in a source file, read from its syntax tree.

What a language calls a definition is data (`grammars.toml`). The grammars are an extra; a language
that is not installed is named, and never guessed at.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Literal

import msgspec

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from tree_sitter import Node

with lazy_imports():
    import faulthandler
    import tomllib
    from importlib import util

    import tree_sitter


GRAMMAR_TABLE = Path(__file__).with_name("grammars.toml")
CLASS_KINDS = ("class", "interface", "struct", "enum", "trait", "union")
FUNCTION_KINDS = ("function", "method")
LOCAL_KINDS = ("variable", "constant", "field", "prototype")
"""Kinds that count only outside functions."""
CONTAINER_KINDS = (*CLASS_KINDS, *FUNCTION_KINDS, "module", "type", "scope", "closed")
"""Kinds that contain other definitions."""
SYMBOL_KINDS = (*CLASS_KINDS, *FUNCTION_KINDS, *LOCAL_KINDS, "type", "typedef", "module", "macro")
NAME_NODE = compile_lazily(r"identifier|name|constant|variable|symbol|^word$|^preproc_arg$")
"""Kinds of leaves that are names; a macro's text is one leaf."""
MAX_SIGNATURE_CHARS = 160
PARSE_TIMEOUT_SECONDS = 1.0
PARSE_CHUNK_BYTES = 16 * 1024
MAX_ERROR_CHILDREN = 10_000
"""Seconds for one file, bytes per parser read, and children of an error node."""
ASCII_TABLE = bytes(byte if byte < 128 else ord("_") for byte in range(256))
"""For grammars whose scanners read beyond their tables at other characters."""


class ParseTimeout(Exception):
    """A source takes too long to parse."""


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


NO_SYMBOL = Symbol(0, "", "", "", 0, 0)


class Mention(msgspec.Struct, frozen=True):
    """A line that uses a name, and the definition that it stands in."""

    line: int
    within: str
    text: str


class DefinitionNode(msgspec.Struct, frozen=True):
    """A node that a query marked."""

    kind: str
    node: Node
    name: Node | None
    owner: str


@cache
def load_grammars() -> dict[str, Grammar]:
    """Return the syntax grammars of all languages, by name."""
    return msgspec.convert(tomllib.loads(GRAMMAR_TABLE.read_text("utf-8")), dict[str, Grammar])


@cache
def languages_by_extension() -> dict[str, str]:
    """Map each file extension to the language whose grammar parses it."""
    return {end: name for name, found in load_grammars().items() for end in found.endings.split()}


def language_of_path(path: str) -> str:
    """Return the programming language of a path; empty if it is not supported."""
    return languages_by_extension().get(path.rpartition(".")[2].lower(), "")


@cache
def is_grammar_installed(language: str) -> bool:
    """Return whether the tree-sitter grammar of a language is installed."""
    return util.find_spec(load_grammars()[language].module) is not None


@cache
def _load_grammar(language: str) -> tuple[tree_sitter.Language, tree_sitter.Query]:
    """Load the tree-sitter grammar of a language and its query for definitions."""
    found = load_grammars()[language]
    grammar: object = getattr(import_module(found.module), found.call)()
    made = tree_sitter.Language(grammar)
    return made, tree_sitter.Query(made, _grammar_query(found))


def _grammar_query(found: Grammar) -> str:
    """Build the tree-sitter query that finds a language's definitions."""
    base = _grammar_query(load_grammars()[found.like]) if found.like else ""
    own = (
        f"({node} name: (_) @name) @{kind}\n"
        for kind, nodes in found.named.items()
        for node in nodes.split()
    )
    return "".join((base, *own, found.also))


def find_symbols(data: bytes, language: str) -> tuple[Symbol, ...]:
    """Return all definitions in a source file's syntax tree in order, without local variables."""
    return _collect_symbols(data, _parse_tree(data, language), language)


def _collect_symbols(data: bytes, root: Node, language: str) -> tuple[Symbol, ...]:
    """Collect the named definitions of a source file with their qualified names."""
    around: list[tuple[int, str, str]] = []
    named, made, lines = set[int](), list[Symbol](), _line_starts(data)
    for found in _find_definitions(data, root, language):
        node, at = found.node, found.name.start_byte if found.name else -1
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        _, outer, inside = around[-1] if around else (0, "", "")
        if at in named:
            continue
        own = _plain_name(data, found.name) if found.name else ""
        name = ".".join(filter(None, (outer, found.owner, own)))
        if found.kind in CONTAINER_KINDS:
            around.append((node.end_byte, name, found.kind))
        kind = _definition_kind(found.kind, inside)
        if found.name and own and kind in SYMBOL_KINDS:
            named.add(at)
            text = _definition_signature(data, node, found.name, kind=kind)
            line = bisect(lines, at)
            made.append(Symbol(line, kind, name, text, node.start_byte, node.end_byte))
    return tuple(sorted(made, key=lambda one: one.line))


def _find_definitions(data: bytes, root: Node, language: str) -> list[DefinitionNode]:
    """Return the syntax nodes of definitions, outer before inner."""
    rows = list[tuple[int, int, int, DefinitionNode]]()
    for pattern, marked in tree_sitter.QueryCursor(_load_grammar(language)[1]).matches(root):
        name, owner = marked.get("name", [None])[0], marked.get("owner")
        for kind, nodes in marked.items():
            if kind in ("name", "owner") or kind[0] == "_":
                continue
            found = DefinitionNode(
                kind, nodes[0], name, _plain_name(data, owner[0]) if owner else ""
            )
            rows.append((nodes[0].start_byte, -nodes[0].end_byte, pattern, found))
    rows.sort(key=lambda row: row[:3])
    return [row[3] for row in rows]


def _definition_kind(kind: str, inside: str) -> str:
    """Return the kind of a definition node, given what encloses it; empty if it is local."""
    if inside in (*FUNCTION_KINDS, "closed"):
        return "" if kind in LOCAL_KINDS else kind
    if inside in (*CLASS_KINDS, "scope"):
        return {"function": "method", "variable": "field", "prototype": "method"}.get(kind, kind)
    return kind


def _plain_name(data: bytes, name: Node) -> str:
    """Return a definition's name without type parameters; empty if it spans lines."""
    text = data[name.start_byte : name.end_byte].decode(errors="replace").strip("@$:#\"'")
    text = re.sub(r"(?<=\w)<[^<>]*>| ", "", text).replace("\\", ".").replace("::", ".")
    return "" if "\n" in text else text


def _definition_signature(data: bytes, node: Node, name: Node, *, kind: str) -> str:
    """Return the beginning of a definition, from the line of its name up to its body."""
    first = max(node.start_byte, data.rfind(b"\n", 0, name.start_byte) + 1)
    body = _definition_body(node)
    last = body.start_byte if body is not None and body.start_byte > first else node.end_byte
    text = data[first : min(last, first + 4 * MAX_SIGNATURE_CHARS)].decode(errors="replace")
    if kind in LOCAL_KINDS or kind in CLASS_KINDS:
        text = text.partition("\n" if kind in LOCAL_KINDS else "{")[0]
    text = re.sub(r"(?<=[(\[]) |,? (?=[)\]])", "", " ".join(text.split()).rstrip(" {:;="))
    return text if len(text) <= MAX_SIGNATURE_CHARS else text[: MAX_SIGNATURE_CHARS - 1] + "…"


def _definition_body(node: Node) -> Node | None:
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    return node.child_by_field_name("body") or (value and value.child_by_field_name("body"))


def _parse_tree(data: bytes, language: str) -> Node:
    """Parse a source file into its syntax tree; raises `ParseTimeout` if that takes too long.

    The parser is fed piece by piece, so that it can be stopped between two of them.
    """
    text, end = (
        data.translate(ASCII_TABLE) if language == "bash" else data,
        thread_time() + PARSE_TIMEOUT_SECONDS,
    )

    def piece(at: int, point: object) -> bytes:
        return text[at : at + PARSE_CHUNK_BYTES] if thread_time() < end else b""

    root = tree_sitter.Parser(_load_grammar(language)[0]).parse(piece).root_node
    if thread_time() >= end or _has_huge_error(root):
        raise ParseTimeout
    return root


def _has_huge_error(root: Node) -> bool:
    """Return whether a syntax error spans so much that examining it would take too long."""
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error and node.child_count > MAX_ERROR_CHILDREN:
            return True
        waiting += (child for child in node.children if child.has_error)
    return False


def find_mentions(data: bytes, language: str, word: str) -> tuple[Mention, ...]:
    """Find where a source uses a name, not counting strings and comments."""
    places = [match.start() for match in whole_word_pattern(word).finditer(data)]
    known: tuple[Symbol, ...] = ()
    if places and is_grammar_installed(language):
        root = _parse_tree(data, language)
        places = [at for at in places if _is_name(root, at, word.encode())]
        known = _collect_symbols(data, root, language) if places else ()
    return tuple(_collect_mentions(data, places, known))


def _is_name(root: Node, at: int, word: bytes) -> bool:
    """Return whether a word at a byte offset of a source file is a name in its syntax tree."""
    node = root.named_descendant_for_byte_range(at, at + len(word))
    if node is None or not NAME_NODE.search(node.type):
        return False
    size = node.end_byte - node.start_byte
    return node.type == "preproc_arg" or size <= len(word) + 2


def _collect_mentions(
    data: bytes, places: Iterable[int], known: tuple[Symbol, ...]
) -> Iterator[Mention]:
    """Collect the lines that use a name, each with its enclosing definition."""
    starts, last = _line_starts(data), 0
    for at in places:
        line = bisect(starts, at)
        if line == last:
            continue
        last = line
        end = starts[line] - 1 if line < len(starts) else len(data)
        text = data[starts[line - 1] : end].decode(errors="replace").strip()
        yield Mention(line, _enclosing_name(known, at), text[:MAX_SIGNATURE_CHARS])


def _line_starts(data: bytes) -> list[int]:
    """Return the byte offset of each source line. Asking nodes crashes tree-sitter 0.26.0."""
    return [0, *(match.end() for match in re.finditer(b"\n", data))]


def _enclosing_name(known: tuple[Symbol, ...], at: int) -> str:
    around = (one for one in known if one.start <= at < one.end)
    return max(around, key=lambda one: one.start, default=NO_SYMBOL).name


def whole_word_pattern(word: str) -> re.Pattern[bytes]:
    """Return the pattern for a name as a whole word in sources; non-ASCII bytes are letters."""
    return re.compile(rb"(?<![\w\x80-\xff])" + re.escape(word.encode()) + rb"(?![\w\x80-\xff])")


SOURCE_TIMEOUT_SECONDS = 3.0
"""Seconds that one source may take."""
NAME_SEPARATOR = compile_lazily(r"\.|::|#|->")


class SymbolQuery(msgspec.Struct, frozen=True):
    """A name as it was asked for; loose, it is part of the name in whichever case."""

    name: str
    loose: bool = False

    @property
    def last_part(self) -> str:
        """Return the name without the names around it."""
        return NAME_SEPARATOR.split(self.name)[-1].lstrip("$@")

    @property
    def expression(self) -> str:
        """Return the name as a regular expression, for ripgrep and for syntax trees."""
        text = r"\w*".join(re.escape(part) for part in self.last_part.split("*"))
        return rf"\w*{text}\w*" if self.loose else text

    @property
    def full_pattern(self) -> re.Pattern[str]:
        """Return the pattern that finds the name among qualified names."""
        outer = "".join(rf"{re.escape(part)}\." for part in NAME_SEPARATOR.split(self.name)[:-1])
        return re.compile(rf"(?:.*\.)?{outer}{self.expression}", re.IGNORECASE if self.loose else 0)

    def may_define(self, data: bytes, language: str) -> bool:
        """Return whether some line looks like a definition of the name in this language."""
        flags = re.IGNORECASE if self.loose else 0
        line = load_grammars()[language].near.replace("NAME", f"(?:{self.expression})")
        defines, text = re.compile(line, flags), data.decode(errors="replace")
        core = re.escape(max(self.last_part.split("*"), key=len))
        for match in re.finditer(core, text, flags):
            first, last = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            if defines.search(text[first : last if last >= 0 else len(text)]):
                return True
        return False


class SourceText(msgspec.Struct, frozen=True):
    """A text and its language."""

    data: bytes
    language: str


class ParseTask(msgspec.Struct, frozen=True):
    """A parse job: list definitions, find definitions of a name, or find its uses."""

    what: Literal["outline", "definitions", "uses"]
    wanted: SymbolQuery
    kinds: tuple[str, ...]
    sources: tuple[SourceText, ...] = ()

    def find_lines(self, source: SourceText) -> Iterable[str]:
        """Return the result lines for one source; any line with the word if it has no grammar."""
        known = is_grammar_installed(source.language)
        if self.what == "uses" or (self.what == "definitions" and not known):
            return (
                _format_mention(one)
                for one in find_mentions(*self._source_args(source), self.wanted.last_part)
            )
        if self.what == "definitions" and not self.wanted.may_define(*self._source_args(source)):
            return ()
        found = find_symbols(*self._source_args(source)) if known else ()
        whole = self.wanted.full_pattern if self.what == "definitions" else re.compile(".*")
        return (
            _format_symbol(one)
            for one in found
            if one.kind in self.kinds and whole.fullmatch(one.name)
        )

    def _source_args(self, source: SourceText) -> tuple[bytes, str]:
        return source.data, source.language


def _format_mention(one: Mention) -> str:
    return f"{one.line} in {one.within}: {one.text}" if one.within else f"{one.line}: {one.text}"


def _format_symbol(one: Symbol) -> str:
    return f"{one.line} {one.kind} {one.name} {one.text}"


def parse_source(task: ParseTask, source: SourceText) -> list[str] | None:
    """Return the definitions or uses found in one source; None if it cannot be parsed."""
    try:
        return list(task.find_lines(source))
    except ParseTimeout:
        return None


def main() -> None:
    """Parse the sources named on standard input; write a line of JSON for each one."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ParseTask)
    for source in task.sources:
        faulthandler.dump_traceback_later(SOURCE_TIMEOUT_SECONDS, exit=True)
        line = msgspec.json.encode(parse_source(task, source))
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
