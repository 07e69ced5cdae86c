"""Parsing of command lines with tree-sitter, and checks that the tree covers all text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise, product, takewhile
from typing import TYPE_CHECKING

import msgspec

from travois.core.display_text import split_names
from travois.permissions.shell.plan import Word
from travois.permissions.shell.work import Work

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


# The words of a command line: what each is, or as much of it as is known.


GLOB = frozenset("*?[")
PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=-]*")
"""Words that mean themselves."""
UNQUOTED = re.compile(r"\\(.)|([^\\]+)", re.DOTALL)
IN_QUOTES = re.compile(r'\\([$`"\\\n])|(.)', re.DOTALL)
LONGEST_BRACED = 1_000
"""Longer words with braces are not expanded: that takes quadratic time."""
BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
RANGE = re.compile(r"\{[^{}]*\.\.[^{}]*\}")
SERIES = "{..}"
"""Stands for `{1..3}`, which the grammar reads as one node."""
COUNTED = frozenset("?#$!")
SAFE_SUM = re.compile(r"\$\(\([0-9\s+*/%()-]*\)\)")
ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))",
    re.DOTALL,
)
LETTERS = dict(zip("ntrabfveE\\'\"?", "\n\t\r\a\b\f\v\x1b\x1b\\'\"?", strict=True))
WORDS = split_names(
    """
    word number string raw_string ansi_c_string concatenation simple_expansion expansion
    command_substitution arithmetic_expansion process_substitution brace_expression
    extglob_pattern
    """
)
"""The kinds of node that a word can be."""


OPEN = Word("", "open", single=False)


class Unclear(Exception):
    """The text may mean more than the parser can tell."""


class Part(msgspec.Struct, frozen=True):
    """A run of a word: its text, whether it was quoted, and whether there is more to it."""

    text: str
    quoted: bool = False
    open: bool = False
    glob: bool = False


class Reading(msgspec.Struct, frozen=True):
    """The context for reading a word from its node."""

    source: bytes
    variables: Mapping[str, Word]
    home: str
    inner: Callable[[Node], None]
    """Called with every substitution: what it runs is part of what the line runs."""
    work: Work


def read(node: Node, at: Reading) -> tuple[Word, ...]:
    """Return the words that this node stands for; usually one."""
    text = raw(node, at.source)
    if node.type in ("word", "number") and PLAIN.fullmatch(text):
        return (Word(text),)
    return expand(list(parts(node, at)), at.home)


def raw(node: Node, source: bytes) -> str:
    """Return the text of a node."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")


def parts(node: Node, at: Reading) -> Iterator[Part]:
    """Yield the runs of a word, one after the other."""
    match node.type:
        case "word" | "number" | "extglob_pattern":
            yield from _bare(raw(node, at.source))
        case "raw_string":
            yield Part(raw(node, at.source)[1:-1], quoted=True)
        case "ansi_c_string":
            yield Part(_escapes(raw(node, at.source)[2:-1]), quoted=True)
        case "string":
            yield from _string(node, at)
        case "concatenation":
            yield from _joined(node, at)
        case "brace_expression":
            yield Part(SERIES, open=True)
        case _:
            yield from _dynamic(node, at, quoted=False)


def _joined(node: Node, at: Reading) -> Iterator[Part]:
    at.work.spend(8 * node.child_count)
    end = node.start_byte
    for child in node.children:
        if child.start_byte != end:
            raise Unclear("a word could not be parsed")
        end = child.end_byte
        if child.type not in WORDS or child.type == "process_substitution":
            _descend(node, at)
            raise Unclear(f"a word contains {child.type!r}")
        yield from parts(child, at)


def _bare(text: str) -> Iterator[Part]:
    if re.search(r"[\"'`$;&|<>()\s]", re.sub(r"\\.", "", text, flags=re.DOTALL)):
        raise Unclear(f"{text!r} is more than one word")
    for escaped, plain in UNQUOTED.findall(text):
        if escaped == "\n":
            raise Unclear("a line continuation splits a word")
        yield Part(escaped or plain, quoted=bool(escaped))
    if text.endswith("\\") and len(text) - len(text.rstrip("\\")) & 1:
        raise Unclear("a backslash ends a word")


def _string(node: Node, at: Reading) -> Iterator[Part]:
    yield Part("", quoted=True)
    at.work.spend(4 * node.child_count)
    inside = node.children[1:-1]
    end = node.start_byte + 1
    for child in inside:
        yield from _between(at.source[end : child.start_byte])
        end = child.end_byte
        if child.type == "string_content":
            yield from _quoted(raw(child, at.source))
        else:
            yield from _dynamic(child, at, quoted=True)
    yield from _between(at.source[end : node.end_byte - 1])
    if at.source[node.start_byte : node.start_byte + 1] != b'"' or not raw(
        node, at.source
    ).endswith('"'):
        raise Unclear("a string is not closed")


def _between(gap: bytes) -> Iterator[Part]:
    if gap.strip():
        raise Unclear("a string could not be parsed")
    if gap:
        yield Part(gap.decode(), quoted=True)


def _quoted(text: str) -> Iterator[Part]:
    if re.search(r'[`"]', re.sub(r"\\.", "", text, flags=re.DOTALL)):
        raise Unclear("a string contains a quote or a backtick")
    if re.search(r"\$[A-Za-z0-9_({@*#?!$-]", re.sub(r"\\.", "..", text, flags=re.DOTALL)):
        raise Unclear("a string contains an unknown expansion")
    value = "".join(
        plain or ("" if escaped == "\n" else escaped) for escaped, plain in IN_QUOTES.findall(text)
    )
    yield Part(value, quoted=True)


def _dynamic(node: Node, at: Reading, *, quoted: bool) -> Iterator[Part]:
    match node.type:
        case "simple_expansion":
            yield from _variable(node, at, quoted=quoted)
        case "expansion":
            if [child.type for child in node.children] != ["${", "variable_name", "}"]:
                _descend(node, at)
                raise Unclear(f"{raw(node, at.source)} is not a plain variable")
            yield from _variable(node, at, quoted=quoted)
        case "command_substitution":
            at.inner(node)
            yield Part("", quoted=quoted, open=True)
        case "arithmetic_expansion":
            _descend(node, at)
            if not SAFE_SUM.fullmatch(raw(node, at.source)):
                raise Unclear("arithmetic may evaluate variables as code")
            yield Part("", quoted=quoted, open=True)
        case "process_substitution":
            at.inner(node)
            yield Part("/dev/fd/63", quoted=True)
        case _:
            _descend(node, at)
            raise Unclear(f"{node.type} in a word is not supported")


def _descend(node: Node, at: Reading) -> None:
    """Look for what runs inside something that is not understood itself."""
    waiting = node.children[::-1]
    while waiting:
        child = waiting.pop()
        if child.type in ("command_substitution", "process_substitution"):
            at.inner(child)
        else:
            waiting += reversed(child.children)


def _variable(node: Node, at: Reading, *, quoted: bool) -> Iterator[Part]:
    name = raw(node.children[1], at.source)
    if raw(node, at.source) not in (f"${name}", f"${{{name}}}"):
        raise Unclear("a dollar sign is not followed by a name")
    if name in COUNTED:  # `$!` is empty before the first job, and then no word at all
        yield Part("", quoted=quoted or name != "!", open=True)
        return
    if not name.isidentifier() or not name.isascii():
        raise Unclear(f"${name} is not a known variable")
    word = at.variables.get(name)
    if word is None or word.kind == "open":
        yield Part(word.text if word and quoted else "", quoted=quoted)
        yield Part("", quoted=quoted, open=True)
        return
    if not quoted and not word.text:
        return
    # In a pattern, a backslash out of a variable quotes what comes after it: `${x}a/*`.
    if not quoted and (word.kind == "glob" or re.search(r"[\s\\]", word.text)):
        yield Part("", open=True)
        return
    special = word.kind == "glob" or (not quoted and bool(GLOB.intersection(word.text)))
    yield Part(word.text, quoted=True, glob=special)


def expand(found: list[Part], home: str) -> tuple[Word, ...]:
    """Expand word parts: braces, the home folder, and patterns where they are not quoted."""
    if not found:
        return ()
    bare = "".join("\0" if part.quoted or part.open else part.text for part in found)
    if _has_braces(bare):
        return _braced(found, bare, home)
    if any(part.text == SERIES and part.open for part in found) and _is_spelled(found):
        return (OPEN,)  # as in `_braced`: `$x{1..3}` is `$x1`, `$x2` and `$x3`
    if "~" in bare:
        found = _homed(found, bare, home)
    return (_word(found),)


def _is_spelled(found: list[Part]) -> bool:
    """Return whether a quoted part stands before the first unknown part."""
    known = list(takewhile(lambda part: not part.open, found))
    return any(part.quoted for part in known)


def _has_braces(bare: str) -> bool:
    """Return whether braces in a word may stand for several."""
    inner = bare[max(bare.find("{"), 0) : bare.rfind("}") + 1]
    return inner.startswith("{") and ("," in inner or ".." in inner)


def _braced(found: list[Part], bare: str, home: str) -> tuple[Word, ...]:
    if len(bare) > LONGEST_BRACED:
        return (OPEN,)
    pieces = BRACES.split(bare)
    nested = any("{" in piece or "}" in piece for piece in pieces[::2])
    if nested or "\0" in bare or RANGE.search(bare) or len(pieces) > 5:
        return (OPEN,)  # braces come before variables: `$x{a,b}` is `$xa` and `$xb`
    choices = [piece.split(",") if at % 2 else [piece] for at, piece in enumerate(pieces)]
    made = ("".join(choice) for choice in product(*choices))
    return tuple(word for text in made if text for word in expand([Part(text)], home))


def _homed(found: list[Part], bare: str, home: str) -> list[Part]:
    tilde = bare.partition("/")[0]
    if tilde == "~" and home and bare.count("~") == 1 and found[0].text[:1] == "~":
        rest = Part(found[0].text[1:])
        return [Part(home, quoted=True), rest, *found[1:]]
    if bare.startswith("~") or re.search(r"[=:]~", bare):
        return [Part(_prefix(found, stop="~"), quoted=True), Part("", open=True)]
    return found


def _prefix(found: list[Part], *, stop: str) -> str:
    text = ""
    for part in found:
        if part.open:
            break
        if not part.quoted and stop in part.text:
            return text + part.text.partition(stop)[0]
        text += part.text
    return text


def _word(found: list[Part]) -> Word:
    special = any(part.glob or (not part.quoted and GLOB.intersection(part.text)) for part in found)
    if any(part.open for part in found):
        single = not special and all(part.quoted or not part.open for part in found)
        return Word("" if special else _prefix(found, stop="\0"), "open", single=single)
    text = "".join(part.text for part in found)
    return Word(text, "glob" if special else "plain", single=not special)


def _escapes(text: str) -> str:
    value = ESCAPE.sub(_escape, text).partition("\0")[0]
    if any(char < " " and char not in "\n\t" for char in value):
        raise Unclear("a string contains control characters")
    return value


def _escape(found: re.Match[str]) -> str:
    octal, byte, short, long, control, letter = found.groups()
    if octal:
        return _ascii(int(octal, 8) & 0xFF)
    if byte:
        return _ascii(int(byte, 16))
    if short or long:
        return _ascii(int(short or long, 16))
    if control:
        raise Unclear("a string contains control characters")
    return LETTERS.get(letter, f"\\{letter}")


def _ascii(code: int) -> str:
    if code > 126:
        raise Unclear("a string spells characters by number")
    return chr(code)


BLANK = re.compile(rb"[ \t]*")
CONTINUED = re.compile(rb"(?=.*[ \t])[ \t]*(?:\\\n[ \t]*)+", re.DOTALL)
"""Lines may be continued between two words, but not inside one."""
LINES = re.compile(rb"[ \t\n]*")
ASCII = bytes(byte if byte < 128 else ord("%") for byte in range(256))
"""The grammar's scanner looks characters up in tables that end at 255 and crashes beyond them.

To the shell all of them are plain parts of words, as the percent sign is.
"""
APART = WORDS | {"command_name", "variable_assignment"}


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse(source: bytes) -> Node:
    """Return the root of the tree; what is no valid text is in it too, marked as such."""
    return _parser().parse(source.translate(ASCII)).root_node


def tiled(node: Node, source: bytes, *, lines: bool = False) -> list[Node]:
    """Return the children of a node, which leave nothing between them unread."""
    children = node.children
    end = node.start_byte
    for child in children:
        gap = source[end : child.start_byte]
        if gap and not _empty(gap, lines=lines):
            raise Unclear(f"{gap.decode(errors='replace')!r} could not be parsed")
        end = child.end_byte
    rest = source[end : node.end_byte]
    if rest and not _empty(rest, lines=True):
        raise Unclear(f"{rest.decode(errors='replace')!r} could not be parsed")
    return children


def parted(node: Node, source: bytes) -> list[Node]:
    """Return the children of a node that is made of words, none of which touches the next."""
    children = tiled(node, source)
    check_parted(children)
    return children


def check_parted(nodes: list[Node]) -> None:
    """Raise if two of these that should be words of their own touch."""
    for one, other in pairwise(nodes):
        if one.end_byte == other.start_byte and one.type in APART and other.type in APART:
            raise Unclear("two words are not separated")


def _empty(gap: bytes, *, lines: bool) -> bool:
    blank = LINES if lines else BLANK
    return bool(blank.fullmatch(gap) or CONTINUED.fullmatch(gap))


# Tests between brackets: their words, and which of them evaluate what they are given.


NUMBERED = split_names("-eq -ne -lt -le -gt -ge -v -R")
"""Operators that evaluate their operands between double brackets."""


def words(node: Node, at: Reading) -> Iterator[Word]:
    """Yield the words and operators of a test."""
    for child in tiled(node, at.source, lines=node.type != "test_command"):
        if child.type in WORDS:
            yield from read(child, at)
        elif child.type in ("regex", "test_operator") or not child.children:
            yield Word(raw(child, at.source))
        else:
            yield from words(child, at)


def check(found: tuple[Word, ...]) -> None:
    """Raise if a test between double brackets would evaluate text."""
    if any(word.text in NUMBERED for word in found):
        raise Unclear("a test evaluates text as arithmetic")


# Here-documents: text between two lines, handed over as it stands.


OPERATOR = re.compile(r"<<[ \t]*(['\"]?)([A-Za-z0-9_.-]+)\1")
"""A possible start of a here-document; the parser decides whether it is one."""
PLACEHOLDER = "x\n"
MAX_SHORTENED = 50
MAX_TRIED = 2_000
DELIMITER = re.compile(r"(['\"]?)([A-Za-z0-9_.-]+)\1")
EXPANDED = re.compile(r"[$`\\]")


class Shortened(msgspec.Struct, frozen=True):
    """A text without the bodies of here-documents, and the operators that they belong to."""

    text: str
    operators: frozenset[int]
    """Their positions, in bytes."""


def shortened(command: str) -> Shortened:
    """Leave out what seems to be the plain text of here-documents."""
    parts: list[str] = []
    operators: list[int] = []
    done = length = 0
    while (found := _operator(command, done)) and len(operators) < MAX_SHORTENED:
        line_end = command.find("\n", found.end()) + 1
        end = _closing(command, found[2], line_end) if line_end else -1
        if end < 0:
            break
        before, line = command[done : found.start()], command[found.start() : line_end]
        body = command[line_end:end]
        expands = not found[1] and EXPANDED.search(body)
        operators.append(length + _size(before))
        parts += (before, line, body if expands else PLACEHOLDER)
        length = sum(map(_size, parts[-3:]), length)
        done = end
    return Shortened("".join((*parts, command[done:])), frozenset(operators))


def _operator(command: str, at: int) -> re.Match[str] | None:
    """Return the next `<<` that is no part of `<<<` and names a delimiter, if it is found soon."""
    for _ in range(MAX_TRIED):
        at = command.find("<<", at)
        if at < 0:
            return None
        found = OPERATOR.match(command, at) if command[at - 1 : at] != "<" else None
        if found:
            return found
        at += 1
    return None


def _closing(command: str, delimiter: str, at: int) -> int:
    """Return where the line with only the delimiter begins, from this line on; -1 if none."""
    end = f"{delimiter}\n"
    if command.startswith(end, at) or command[at:] == delimiter:
        return at
    found = command.find(f"\n{end}", at - 1)
    if found >= 0:
        return found + 1
    return len(command) - len(delimiter) if command.endswith(f"\n{delimiter}") else -1


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def beside(node: Node, source: bytes) -> list[Node]:
    """Return the nodes after a here-document operator on its line; the text must be plain."""
    children = node.children
    if children[0].type == "file_descriptor" and raw(children[0], source) == "0":
        children = children[1:]
    kinds = [child.type for child in children]
    if kinds[:2] != ["<<", "heredoc_start"] or kinds[-2:] != ["heredoc_body", "heredoc_end"]:
        raise Unclear("this kind of here-document is not supported")
    start = DELIMITER.fullmatch(raw(children[1], source))
    if start is None or start[2] != raw(children[-1], source):
        raise Unclear("the delimiter of a here-document is not plain text")
    between = children[2:-2]
    _check_lines([children[0], children[1], *between], source, body=children[-2], end=children[-1])
    text = raw(children[-2], source)
    if start[2] in text.split("\n") or (not start[1] and EXPANDED.search(text)):
        raise Unclear("a here-document is not plain text")
    if any(child.type not in ("pipeline", "file_redirect") for child in between):
        raise Unclear("another command follows a here-document on its line")
    return between


def _check_lines(head: list[Node], source: bytes, *, body: Node, end: Node) -> None:
    """Raise if the lines of a here-document do not follow each other without a gap."""
    for one, next_ in pairwise(head):
        if source[one.end_byte : next_.start_byte].strip(b" \t"):
            raise Unclear("a here-document could not be parsed")
    gap = source[head[-1].end_byte : body.start_byte]
    after = source[end.end_byte : end.end_byte + 1]
    if gap.strip(b" \t") != b"\n" or body.end_byte != end.start_byte or after not in (b"", b"\n"):
        raise Unclear("a here-document is not on lines of its own")
