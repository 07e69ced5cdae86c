"""Parsing shell command lines with tree-sitter, and checking that the tree covers all text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise, product, takewhile
from typing import TYPE_CHECKING

import msgspec

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.permissions.shell.plan import ShellWord, WorkBudget

if TYPE_CHECKING:
    from tree_sitter import Node

with lazy_imports():
    import tree_sitter
    import tree_sitter_bash


# The words of a command line: what each is, or as much of it as is known.


GLOB_CHARACTERS = frozenset("*?[")
PLAIN_TEXT = compile_lazily(r"[A-Za-z0-9_./:,@%+=-]*")
"""Words that mean themselves."""
UNQUOTED_ESCAPES = compile_lazily(r"\\(.)|([^\\]+)", re.DOTALL)
QUOTED_ESCAPES = compile_lazily(r'\\([$`"\\\n])|(.)', re.DOTALL)
MAX_BRACED_CHARS = 1_000
"""Longer words with braces are not expanded: that takes quadratic time."""
BRACE_LIST = compile_lazily(r"\{([^{}]*,[^{}]*)\}")
BRACE_RANGE = compile_lazily(r"\{[^{}]*\.\.[^{}]*\}")
SERIES_MARKER = "{..}"
"""Stands for `{1..3}`, which the grammar reads as one node."""
SPECIAL_PARAMETERS = frozenset("?#$!")
SAFE_ARITHMETIC = compile_lazily(r"\$\(\([0-9\s+*/%()-]*\)\)")
ANSI_C_ESCAPE = compile_lazily(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))",
    re.DOTALL,
)
ESCAPE_LETTERS = dict(zip("ntrabfveE\\'\"?", "\n\t\r\a\b\f\v\x1b\x1b\\'\"?", strict=True))
WORD_NODE_TYPES = split_names(
    """
    word number string raw_string ansi_c_string concatenation simple_expansion expansion
    command_substitution arithmetic_expansion process_substitution brace_expression
    extglob_pattern
    """
)
"""The kinds of node that a word can be."""


OPEN_WORD = ShellWord("", "open", single=False)


class UnclearCommand(Exception):
    """A command text that may mean more than the parser can tell."""


class WordPart(msgspec.Struct, frozen=True):
    """A part of a shell word: its text, whether it was quoted, and whether more is unknown."""

    text: str
    quoted: bool = False
    open: bool = False
    glob: bool = False


class WordReader(msgspec.Struct, frozen=True):
    """The context for reading a shell word from its syntax node."""

    source: bytes
    variables: Mapping[str, ShellWord]
    home: str
    inner: Callable[[Node], None]
    """Called with every substitution: what it runs is part of what the line runs."""
    work: WorkBudget


def read_words(node: Node, at: WordReader) -> tuple[ShellWord, ...]:
    """Return the shell words that a syntax node expands to; usually one."""
    text = node_text(node, at.source)
    if node.type in ("word", "number") and PLAIN_TEXT.fullmatch(text):
        return (ShellWord(text),)
    return expand_parts(list(iterate_word_parts(node, at)), at.home)


def node_text(node: Node, source: bytes) -> str:
    """Return the source text of a shell syntax node."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")


def iterate_word_parts(node: Node, at: WordReader) -> Iterator[WordPart]:
    """Yield the parts of a shell word in order."""
    match node.type:
        case "word" | "number" | "extglob_pattern":
            yield from _parts_of_unquoted(node_text(node, at.source))
        case "raw_string":
            yield WordPart(node_text(node, at.source)[1:-1], quoted=True)
        case "ansi_c_string":
            yield WordPart(_decode_escapes(node_text(node, at.source)[2:-1]), quoted=True)
        case "string":
            yield from _parts_of_string(node, at)
        case "concatenation":
            yield from _parts_of_concatenation(node, at)
        case "brace_expression":
            yield WordPart(SERIES_MARKER, open=True)
        case _:
            yield from _parts_of_expansion(node, at, quoted=False)


def _parts_of_concatenation(node: Node, at: WordReader) -> Iterator[WordPart]:
    """Yield the parts of a shell word that is made of adjacent strings, variables and text."""
    at.work.spend(8 * node.child_count)
    end = node.start_byte
    for child in node.children:
        if child.start_byte != end:
            raise UnclearCommand("a word could not be parsed")
        end = child.end_byte
        if child.type not in WORD_NODE_TYPES or child.type == "process_substitution":
            _follow_substitutions(node, at)
            raise UnclearCommand(f"a word contains {child.type!r}")
        yield from iterate_word_parts(child, at)


def _parts_of_unquoted(text: str) -> Iterator[WordPart]:
    """Yield the parts of unquoted shell text, with its backslash escapes decoded."""
    if re.search(r"[\"'`$;&|<>()\s]", re.sub(r"\\.", "", text, flags=re.DOTALL)):
        raise UnclearCommand(f"{text!r} is more than one word")
    for escaped, plain in UNQUOTED_ESCAPES.findall(text):
        if escaped == "\n":
            raise UnclearCommand("a line continuation splits a word")
        yield WordPart(escaped or plain, quoted=bool(escaped))
    if text.endswith("\\") and len(text) - len(text.rstrip("\\")) & 1:
        raise UnclearCommand("a backslash ends a word")


def _parts_of_string(node: Node, at: WordReader) -> Iterator[WordPart]:
    """Yield the parts of a double-quoted shell string, with variables and substitutions."""
    yield WordPart("", quoted=True)
    at.work.spend(4 * node.child_count)
    inside = node.children[1:-1]
    end = node.start_byte + 1
    for child in inside:
        yield from _part_of_gap(at.source[end : child.start_byte])
        end = child.end_byte
        if child.type == "string_content":
            yield from _part_of_string_content(node_text(child, at.source))
        else:
            yield from _parts_of_expansion(child, at, quoted=True)
    yield from _part_of_gap(at.source[end : node.end_byte - 1])
    if at.source[node.start_byte : node.start_byte + 1] != b'"' or not node_text(
        node, at.source
    ).endswith('"'):
        raise UnclearCommand("a string is not closed")


def _part_of_gap(gap: bytes) -> Iterator[WordPart]:
    """Yield the whitespace that the shell parser dropped from a double-quoted string."""
    if gap.strip():
        raise UnclearCommand("a string could not be parsed")
    if gap:
        yield WordPart(gap.decode(), quoted=True)


def _part_of_string_content(text: str) -> Iterator[WordPart]:
    """Yield the literal text of a double-quoted shell string, with its escapes decoded."""
    if re.search(r'[`"]', re.sub(r"\\.", "", text, flags=re.DOTALL)):
        raise UnclearCommand("a string contains a quote or a backtick")
    if re.search(r"\$[A-Za-z0-9_({@*#?!$-]", re.sub(r"\\.", "..", text, flags=re.DOTALL)):
        raise UnclearCommand("a string contains an unknown expansion")
    value = "".join(
        plain or ("" if escaped == "\n" else escaped)
        for escaped, plain in QUOTED_ESCAPES.findall(text)
    )
    yield WordPart(value, quoted=True)


def _parts_of_expansion(node: Node, at: WordReader, *, quoted: bool) -> Iterator[WordPart]:
    """Yield the value of a shell expansion, as far as it is known before the command runs."""
    match node.type:
        case "simple_expansion":
            yield from _parts_of_variable(node, at, quoted=quoted)
        case "expansion":
            if [child.type for child in node.children] != ["${", "variable_name", "}"]:
                _follow_substitutions(node, at)
                raise UnclearCommand(f"{node_text(node, at.source)} is not a plain variable")
            yield from _parts_of_variable(node, at, quoted=quoted)
        case "command_substitution":
            at.inner(node)
            yield WordPart("", quoted=quoted, open=True)
        case "arithmetic_expansion":
            _follow_substitutions(node, at)
            if not SAFE_ARITHMETIC.fullmatch(node_text(node, at.source)):
                raise UnclearCommand("arithmetic may evaluate variables as code")
            yield WordPart("", quoted=quoted, open=True)
        case "process_substitution":
            at.inner(node)
            yield WordPart("/dev/fd/63", quoted=True)
        case _:
            _follow_substitutions(node, at)
            raise UnclearCommand(f"{node.type} in a word is not supported")


def _follow_substitutions(node: Node, at: WordReader) -> None:
    """Find the commands that run inside a shell expansion that is not understood."""
    waiting = node.children[::-1]
    while waiting:
        child = waiting.pop()
        if child.type in ("command_substitution", "process_substitution"):
            at.inner(child)
        else:
            waiting += reversed(child.children)


def _parts_of_variable(node: Node, at: WordReader, *, quoted: bool) -> Iterator[WordPart]:
    """Yield the known value of a shell variable, or an open part if it is unknown."""
    name = node_text(node.children[1], at.source)
    if node_text(node, at.source) not in (f"${name}", f"${{{name}}}"):
        raise UnclearCommand("a dollar sign is not followed by a name")
    if name in SPECIAL_PARAMETERS:  # `$!` is empty before the first job, and then no word at all
        yield WordPart("", quoted=quoted or name != "!", open=True)
        return
    if not name.isidentifier() or not name.isascii():
        raise UnclearCommand(f"${name} is not a known variable")
    word = at.variables.get(name)
    if word is None or word.kind == "open":
        yield WordPart(word.text if word and quoted else "", quoted=quoted)
        yield WordPart("", quoted=quoted, open=True)
        return
    if not quoted and not word.text:
        return
    # In a pattern, a backslash out of a variable quotes what comes after it: `${x}a/*`.
    if not quoted and (word.kind == "glob" or re.search(r"[\s\\]", word.text)):
        yield WordPart("", open=True)
        return
    special = word.kind == "glob" or (not quoted and bool(GLOB_CHARACTERS.intersection(word.text)))
    yield WordPart(word.text, quoted=True, glob=special)


def expand_parts(found: list[WordPart], home: str) -> tuple[ShellWord, ...]:
    """Expand the parts of a shell word: braces, `~` and unquoted globs."""
    if not found:
        return ()
    bare = "".join("\0" if part.quoted or part.open else part.text for part in found)
    if _may_have_braces(bare):
        return _expand_brace_list(found, bare, home)
    if any(part.text == SERIES_MARKER and part.open for part in found) and _has_quoted_start(found):
        return (OPEN_WORD,)  # as in `_expand_brace_list`: `$x{1..3}` is `$x1`, `$x2` and `$x3`
    if "~" in bare:
        found = _expand_tilde(found, bare, home)
    return (_join_parts(found),)


def _has_quoted_start(found: list[WordPart]) -> bool:
    """Return whether a shell word has a quoted part before its first unknown one."""
    known = list(takewhile(lambda part: not part.open, found))
    return any(part.quoted for part in known)


def _may_have_braces(bare: str) -> bool:
    """Return whether braces in a shell word may expand to several words."""
    inner = bare[max(bare.find("{"), 0) : bare.rfind("}") + 1]
    return inner.startswith("{") and ("," in inner or ".." in inner)


def _expand_brace_list(found: list[WordPart], bare: str, home: str) -> tuple[ShellWord, ...]:
    """Expand `{a,b}` in a shell word to several words; one open word if that is too complex."""
    if len(bare) > MAX_BRACED_CHARS:
        return (OPEN_WORD,)
    pieces = BRACE_LIST.split(bare)
    nested = any("{" in piece or "}" in piece for piece in pieces[::2])
    if nested or "\0" in bare or BRACE_RANGE.search(bare) or len(pieces) > 5:
        return (OPEN_WORD,)  # braces come before variables: `$x{a,b}` is `$xa` and `$xb`
    choices = [piece.split(",") if at % 2 else [piece] for at, piece in enumerate(pieces)]
    made = ("".join(choice) for choice in product(*choices))
    return tuple(word for text in made if text for word in expand_parts([WordPart(text)], home))


def _expand_tilde(found: list[WordPart], bare: str, home: str) -> list[WordPart]:
    """Replace a leading `~` of a shell word with the home; any other tilde makes the rest open."""
    tilde = bare.partition("/")[0]
    if tilde == "~" and home and bare.count("~") == 1 and found[0].text[:1] == "~":
        rest = WordPart(found[0].text[1:])
        return [WordPart(home, quoted=True), rest, *found[1:]]
    if bare.startswith("~") or re.search(r"[=:]~", bare):
        return [WordPart(_known_prefix(found, stop="~"), quoted=True), WordPart("", open=True)]
    return found


def _known_prefix(found: list[WordPart], *, stop: str) -> str:
    """Return the text of a shell word before its first unknown part or unquoted stop character."""
    text = ""
    for part in found:
        if part.open:
            break
        if not part.quoted and stop in part.text:
            return text + part.text.partition(stop)[0]
        text += part.text
    return text


def _join_parts(found: list[WordPart]) -> ShellWord:
    """Join the parts of a shell word into a plain word, a glob, or an open word."""
    special = any(
        part.glob or (not part.quoted and GLOB_CHARACTERS.intersection(part.text)) for part in found
    )
    if any(part.open for part in found):
        single = not special and all(part.quoted or not part.open for part in found)
        return ShellWord("" if special else _known_prefix(found, stop="\0"), "open", single=single)
    text = "".join(part.text for part in found)
    return ShellWord(text, "glob" if special else "plain", single=not special)


def _decode_escapes(text: str) -> str:
    """Decode the escapes of a `$'...'` shell string; raise for control characters."""
    value = ANSI_C_ESCAPE.sub(_decode_escape, text).partition("\0")[0]
    if any(char < " " and char not in "\n\t" for char in value):
        raise UnclearCommand("a string contains control characters")
    return value


def _decode_escape(found: re.Match[str]) -> str:
    """Decode one escape of a `$'...'` shell string: octal, hexadecimal, Unicode or a letter."""
    octal, byte, short, long, control, letter = found.groups()
    if octal:
        return _ascii_character(int(octal, 8) & 0xFF)
    if byte:
        return _ascii_character(int(byte, 16))
    if short or long:
        return _ascii_character(int(short or long, 16))
    if control:
        raise UnclearCommand("a string contains control characters")
    return ESCAPE_LETTERS.get(letter, f"\\{letter}")


def _ascii_character(code: int) -> str:
    """Return the ASCII character that a numeric shell escape stands for; raise beyond that."""
    if code > 126:
        raise UnclearCommand("a string spells characters by number")
    return chr(code)


BLANK_GAP = re.compile(rb"[ \t]*")
LINE_CONTINUATION = re.compile(rb"(?=.*[ \t])[ \t]*(?:\\\n[ \t]*)+", re.DOTALL)
"""Lines may be continued between two words, but not inside one."""
BLANK_LINES = re.compile(rb"[ \t\n]*")
ASCII_TABLE = bytes(byte if byte < 128 else ord("%") for byte in range(256))
"""The grammar's scanner looks characters up in tables that end at 255 and crashes beyond them.

To the shell all of them are plain parts of words, as the percent sign is.
"""
SEPARATED_NODE_TYPES = WORD_NODE_TYPES | {"command_name", "variable_assignment"}


@cache
def _load_parser() -> tree_sitter.Parser:
    """Load the tree-sitter parser for bash, imported only when a command line is first parsed."""
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_syntax_tree(source: bytes) -> Node:
    """Parse a shell command; invalid text is in the syntax tree as well, marked as an error."""
    return _load_parser().parse(source.translate(ASCII_TABLE)).root_node


def children_without_gaps(node: Node, source: bytes, *, lines: bool = False) -> list[Node]:
    """Return the children of a syntax node; raise if text between them is left out."""
    children = node.children
    end = node.start_byte
    for child in children:
        gap = source[end : child.start_byte]
        if gap and not _is_blank_gap(gap, lines=lines):
            raise UnclearCommand(f"{gap.decode(errors='replace')!r} could not be parsed")
        end = child.end_byte
    rest = source[end : node.end_byte]
    if rest and not _is_blank_gap(rest, lines=True):
        raise UnclearCommand(f"{rest.decode(errors='replace')!r} could not be parsed")
    return children


def separate_children(node: Node, source: bytes) -> list[Node]:
    """Return the words of a syntax node; raise if two of them touch."""
    children = children_without_gaps(node, source)
    check_separate(children)
    return children


def check_separate(nodes: list[Node]) -> None:
    """Raise if two syntax nodes that should be separate shell words touch."""
    for one, other in pairwise(nodes):
        if (
            one.end_byte == other.start_byte
            and one.type in SEPARATED_NODE_TYPES
            and other.type in SEPARATED_NODE_TYPES
        ):
            raise UnclearCommand("two words are not separated")


def _is_blank_gap(gap: bytes, *, lines: bool) -> bool:
    blank = BLANK_LINES if lines else BLANK_GAP
    return bool(blank.fullmatch(gap) or LINE_CONTINUATION.fullmatch(gap))


# Tests between brackets: their words, and which of them evaluate what they are given.


EVALUATING_TESTS = split_names("-eq -ne -lt -le -gt -ge -v -R")
"""Operators that evaluate their operands between double brackets."""


def iterate_test_words(node: Node, at: WordReader) -> Iterator[ShellWord]:
    """Yield the words and operators of a shell test such as `[[ a = b ]]`."""
    for child in children_without_gaps(node, at.source, lines=node.type != "test_command"):
        if child.type in WORD_NODE_TYPES:
            yield from read_words(child, at)
        elif child.type in ("regex", "test_operator") or not child.children:
            yield ShellWord(node_text(child, at.source))
        else:
            yield from iterate_test_words(child, at)


def check_test_words(found: tuple[ShellWord, ...]) -> None:
    """Raise if a shell test in double brackets would evaluate text as code."""
    if any(word.text in EVALUATING_TESTS for word in found):
        raise UnclearCommand("a test evaluates text as arithmetic")


# Here-documents: text between two lines, handed over as it stands.


HEREDOC_OPERATOR = compile_lazily(r"<<[ \t]*(['\"]?)([A-Za-z0-9_.-]+)\1")
"""A possible start of a here-document; the parser decides whether it is one."""
HEREDOC_PLACEHOLDER = "x\n"
MAX_SHORTENED_HEREDOCS = 50
MAX_OPERATOR_SEARCHES = 2_000
HEREDOC_DELIMITER = compile_lazily(r"(['\"]?)([A-Za-z0-9_.-]+)\1")
HEREDOC_EXPANSION = compile_lazily(r"[$`\\]")


class ShortenedCommand(msgspec.Struct, frozen=True):
    """A command without the bodies of its here-documents, and their operators."""

    text: str
    operators: frozenset[int]
    """Their positions, in bytes."""


def shorten_heredocs(command: str) -> ShortenedCommand:
    """Leave out the bodies of here-documents that seem to be plain text."""
    parts: list[str] = []
    operators: list[int] = []
    done = length = 0
    while (found := _find_heredoc_operator(command, done)) and len(
        operators
    ) < MAX_SHORTENED_HEREDOCS:
        line_end = command.find("\n", found.end()) + 1
        end = _find_heredoc_end(command, found[2], line_end) if line_end else -1
        if end < 0:
            break
        before, line = command[done : found.start()], command[found.start() : line_end]
        body = command[line_end:end]
        expands = not found[1] and HEREDOC_EXPANSION.search(body)
        operators.append(length + _utf8_size(before))
        parts += (before, line, body if expands else HEREDOC_PLACEHOLDER)
        length = sum(map(_utf8_size, parts[-3:]), length)
        done = end
    return ShortenedCommand("".join((*parts, command[done:])), frozenset(operators))


def _find_heredoc_operator(command: str, at: int) -> re.Match[str] | None:
    """Return the next here-document operator `<<`; None if none is found soon."""
    for _ in range(MAX_OPERATOR_SEARCHES):
        at = command.find("<<", at)
        if at < 0:
            return None
        found = HEREDOC_OPERATOR.match(command, at) if command[at - 1 : at] != "<" else None
        if found:
            return found
        at += 1
    return None


def _find_heredoc_end(command: str, delimiter: str, at: int) -> int:
    """Return the position of a here-document's closing delimiter line; -1 if none."""
    end = f"{delimiter}\n"
    if command.startswith(end, at) or command[at:] == delimiter:
        return at
    found = command.find(f"\n{end}", at - 1)
    if found >= 0:
        return found + 1
    return len(command) - len(delimiter) if command.endswith(f"\n{delimiter}") else -1


def _utf8_size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def nodes_after_heredoc(node: Node, source: bytes) -> list[Node]:
    """Return the nodes after a here-document operator on its line; the text must be plain."""
    children = node.children
    if children[0].type == "file_descriptor" and node_text(children[0], source) == "0":
        children = children[1:]
    kinds = [child.type for child in children]
    if kinds[:2] != ["<<", "heredoc_start"] or kinds[-2:] != ["heredoc_body", "heredoc_end"]:
        raise UnclearCommand("this kind of here-document is not supported")
    start = HEREDOC_DELIMITER.fullmatch(node_text(children[1], source))
    if start is None or start[2] != node_text(children[-1], source):
        raise UnclearCommand("the delimiter of a here-document is not plain text")
    between = children[2:-2]
    _check_heredoc_lines(
        [children[0], children[1], *between], source, body=children[-2], end=children[-1]
    )
    text = node_text(children[-2], source)
    if start[2] in text.split("\n") or (not start[1] and HEREDOC_EXPANSION.search(text)):
        raise UnclearCommand("a here-document is not plain text")
    if any(child.type not in ("pipeline", "file_redirect") for child in between):
        raise UnclearCommand("another command follows a here-document on its line")
    return between


def _check_heredoc_lines(head: list[Node], source: bytes, *, body: Node, end: Node) -> None:
    """Raise if the parser left a gap between the lines of a here-document."""
    for one, next_ in pairwise(head):
        if source[one.end_byte : next_.start_byte].strip(b" \t"):
            raise UnclearCommand("a here-document could not be parsed")
    gap = source[head[-1].end_byte : body.start_byte]
    after = source[end.end_byte : end.end_byte + 1]
    if gap.strip(b" \t") != b"\n" or body.end_byte != end.start_byte or after not in (b"", b"\n"):
        raise UnclearCommand("a here-document is not on lines of its own")
