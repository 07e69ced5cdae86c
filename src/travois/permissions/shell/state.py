"""The state of the shell between two commands: its folders and variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from travois.permissions.access import Access
from travois.permissions.shell import parse
from travois.permissions.shell.parse import OPEN, PLAIN, WORDS, Reading, Unclear, raw, read
from travois.permissions.shell.plan import Step, Word

if TYPE_CHECKING:
    from tree_sitter import Node


FOLDERS = 6
"""In how many folders a line may possibly stand before it is not followed any more."""


class State(msgspec.Struct, frozen=True):
    """The folders the shell may be in, and its variables."""

    cwds: tuple[str, ...]
    variables: dict[str, Word]


class Ends(msgspec.Struct, frozen=True):
    """The states after a command succeeded and after it failed."""

    ok: State
    fail: State

    @property
    def either(self) -> State:
        """Without knowing which of the two it was."""
        return merged(self.ok, self.fail)


def merged(one: State, other: State) -> State:
    """Return what holds in both states."""
    if one is other:
        return one
    names = one.variables.keys() | other.variables.keys()
    same = {name: _same(one.variables.get(name), other.variables.get(name)) for name in names}
    cwds = tuple(dict.fromkeys((*one.cwds, *other.cwds)))
    if len(cwds) > FOLDERS:
        raise Unclear("it changes folders too often")
    return State(cwds, same)


def _same(one: Word | None, other: Word | None) -> Word:
    return one if one is not None and one == other else OPEN


# Redirections: the files that the shell opens before a program starts.


READS = frozenset(("<",))
WRITES = frozenset((">", ">>", ">|", "&>", "&>>", "<>"))
DUPLICATES = frozenset((">&", "<&"))
CLOSES = frozenset((">&-", "<&-"))
DESCRIPTOR_ENDS = frozenset(b"%d" % digit for digit in range(10)) | {b"}"}
FREE = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
NETWORK = ("/dev/tcp/", "/dev/udp/")


def redirected(node: Node, at: Reading, *, cwds: tuple[str, ...]) -> Iterator[Access]:
    """Yield the files that this redirection opens."""
    children = parse.tiled(node, at.source)
    if node.type == "herestring_redirect" and len(children) == 2:
        read(children[1], at)
        return
    if node.type != "file_redirect":
        raise Unclear(f"{node.type.replace('_', ' ')} is not supported")
    if children[0].type == "file_descriptor":
        if not raw(children[0], at.source).isdigit():
            raise Unclear("it opens a file with a named descriptor")
        children = children[1:]
    elif at.source[node.start_byte - 1 : node.start_byte] in DESCRIPTOR_ENDS:
        raise Unclear("the word before a redirection may be its descriptor")
    operator = children[0].type
    if operator in CLOSES and len(children) == 1:
        return
    if len(children) != 2 or children[1].type not in WORDS:
        raise Unclear("a redirection could not be parsed")
    words = read(children[1], at)
    if len(words) != 1:
        raise Unclear("it redirects to several files")
    yield from opened(operator, words[0], cwds)


def opened(operator: str, word: Word, cwds: tuple[str, ...]) -> Iterator[Access]:
    """Yield the file behind an operator and its word, wherever the shell may stand."""
    if operator in DUPLICATES and word.text.rstrip("-").isdigit() and word.kind == "plain":
        return
    if word.kind != "plain" or not word.text:
        raise Unclear("it redirects to a file that is only known at run time")
    if operator in DUPLICATES and not PLAIN.fullmatch(word.text):
        # Bash expands such a word twice: in `>& '$(x)'` it runs x in spite of the quotes.
        raise Unclear("it redirects to a file name that the shell expands twice")
    if word.text in FREE:
        return
    if word.text.startswith(NETWORK):
        yield Access("net", word.text)
        return
    if operator == "<&" or operator not in READS | WRITES | DUPLICATES:
        raise Unclear(f"the redirection {operator} is not supported")
    kind = "read" if operator in READS else "write"
    for cwd in cwds:
        yield Access(kind, located(word.text, cwd))


def located(path: str, cwd: str) -> str:
    """Return a path as the shell would look for it; dots stay, because links come before them."""
    return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"


def opening(found: list[Access], text: str) -> Step:
    """Return the step that opens these files, as if it were a program that does nothing else."""
    return Step((Word(":"),), "nothing", accesses=tuple(found), texts=(text,), known=True)
