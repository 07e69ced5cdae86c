"""The shell's state between two commands of a line: its folders and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from travois.core.patterns import compile_lazily
from travois.permissions.access import Access
from travois.permissions.shell import parse
from travois.permissions.shell.options import UnsafeArguments
from travois.permissions.shell.parse import (
    OPEN_WORD,
    PLAIN_TEXT,
    WORD_NODE_TYPES,
    UnclearCommand,
    WordReader,
    node_text,
    read_words,
)
from travois.permissions.shell.plan import CommandStep, ShellWord

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_POSSIBLE_FOLDERS = 6
"""In how many folders a line may possibly stand before it is not followed any more."""


class ShellState(msgspec.Struct, frozen=True):
    """The folders the shell may be in, and its variables."""

    cwds: tuple[str, ...]
    variables: dict[str, ShellWord]


class CommandOutcomes(msgspec.Struct, frozen=True):
    """The states after a command succeeded and after it failed."""

    ok: ShellState
    fail: ShellState

    @property
    def either(self) -> ShellState:
        """Return the shell state after a command whose success is unknown."""
        return merge_states(self.ok, self.fail)


def merge_states(one: ShellState, other: ShellState) -> ShellState:
    """Merge two possible shell states: all their folders, and variables as far as they agree."""
    if one is other:
        return one
    names = one.variables.keys() | other.variables.keys()
    same = {
        name: _same_or_open(one.variables.get(name), other.variables.get(name)) for name in names
    }
    cwds = tuple(dict.fromkeys((*one.cwds, *other.cwds)))
    if len(cwds) > MAX_POSSIBLE_FOLDERS:
        raise UnclearCommand("it changes folders too often")
    return ShellState(cwds, same)


def _same_or_open(one: ShellWord | None, other: ShellWord | None) -> ShellWord:
    return one if one is not None and one == other else OPEN_WORD


# Redirections: the files that the shell opens before a program starts.


READ_OPERATORS = frozenset(("<",))
WRITE_OPERATORS = frozenset((">", ">>", ">|", "&>", "&>>", "<>"))
DUPLICATE_OPERATORS = frozenset((">&", "<&"))
CLOSE_OPERATORS = frozenset((">&-", "<&-"))
DESCRIPTOR_ENDS = frozenset(b"%d" % digit for digit in range(10)) | {b"}"}
STANDARD_DEVICES = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
NETWORK_DEVICES = ("/dev/tcp/", "/dev/udp/")


def redirect_accesses(node: Node, at: WordReader, *, cwds: tuple[str, ...]) -> Iterator[Access]:
    """Yield the files that a shell redirection opens."""
    children = parse.children_without_gaps(node, at.source)
    if node.type == "herestring_redirect" and len(children) == 2:
        read_words(children[1], at)
        return
    if node.type != "file_redirect":
        raise UnclearCommand(f"{node.type.replace('_', ' ')} is not supported")
    if children[0].type == "file_descriptor":
        if not node_text(children[0], at.source).isdigit():
            raise UnclearCommand("it opens a file with a named descriptor")
        children = children[1:]
    elif at.source[node.start_byte - 1 : node.start_byte] in DESCRIPTOR_ENDS:
        raise UnclearCommand("the word before a redirection may be its descriptor")
    operator = children[0].type
    if operator in CLOSE_OPERATORS and len(children) == 1:
        return
    if len(children) != 2 or children[1].type not in WORD_NODE_TYPES:
        raise UnclearCommand("a redirection could not be parsed")
    words = read_words(children[1], at)
    if len(words) != 1:
        raise UnclearCommand("it redirects to several files")
    yield from operator_accesses(operator, words[0], cwds)


def operator_accesses(operator: str, word: ShellWord, cwds: tuple[str, ...]) -> Iterator[Access]:
    """Yield the file behind a redirection operator, for each folder the shell may be in."""
    if operator in DUPLICATE_OPERATORS and word.text.rstrip("-").isdigit() and word.kind == "plain":
        return
    if word.kind != "plain" or not word.text:
        raise UnclearCommand("it redirects to a file that is only known at run time")
    if operator in DUPLICATE_OPERATORS and not PLAIN_TEXT.fullmatch(word.text):
        # Bash expands such a word twice: in `>& '$(x)'` it runs x in spite of the quotes.
        raise UnclearCommand("it redirects to a file name that the shell expands twice")
    if word.text in STANDARD_DEVICES:
        return
    if word.text.startswith(NETWORK_DEVICES):
        yield Access("net", word.text)
        return
    if operator == "<&" or operator not in READ_OPERATORS | WRITE_OPERATORS | DUPLICATE_OPERATORS:
        raise UnclearCommand(f"the redirection {operator} is not supported")
    kind = "read" if operator in READ_OPERATORS else "write"
    for cwd in cwds:
        yield Access(kind, join_folder(word.text, cwd))


def join_folder(path: str, cwd: str) -> str:
    """Join a relative path to the shell's folder; `..` stays, as links are resolved first."""
    return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"


def build_redirect_step(found: list[Access], text: str) -> CommandStep:
    """Return the command step for a redirection without a program."""
    return CommandStep(
        (ShellWord(":"),), "nothing", accesses=tuple(found), texts=(text,), known=True
    )


DESCRIPTOR_PATH = compile_lazily(r"/dev/fd/\d+")
FollowScript = Callable[[str], None]


class StartFolder(msgspec.Struct, frozen=True):
    """The folder a command line starts in, the home, and whether the repository is foreign."""

    cwd: str
    home: str = ""
    foreign: bool = False


class ProgramPlace(msgspec.Struct, frozen=True):
    """The folders that a program may run in, and the one where the line began."""

    cwds: tuple[str, ...]
    start: StartFolder
    script: FollowScript
    """Follows the script that a shell inside the line runs."""

    @property
    def has_moved(self) -> bool:
        """True if the folder may have changed before this program."""
        return self.cwds != (self.start.cwd,)


def read_accesses(word: ShellWord, place: ProgramPlace, *, deep: bool = False) -> Iterator[Access]:
    """Yield the files that a word of a command makes its program read."""
    if word.kind == "open":
        raise UnsafeArguments("the file it reads is only known at run time")
    if word.text in ("-", "", *STANDARD_DEVICES) or DESCRIPTOR_PATH.fullmatch(word.text):
        return
    scope = "many" if word.kind == "glob" else "deep" if deep else "one"
    for cwd in place.cwds:
        yield Access("read", join_folder(word.text, cwd), scope=scope)


def write_accesses(word: ShellWord, place: ProgramPlace) -> Iterator[Access]:
    """Yield the files that a word of a command makes its program write."""
    if word.kind == "open":
        raise UnsafeArguments("the file it writes is only known at run time")
    if word.text in ("-", *STANDARD_DEVICES):
        return
    scope = "many" if word.kind == "glob" else "one"
    for cwd in place.cwds:
        yield Access("write", join_folder(word.text, cwd), scope=scope)
