"""What a command line runs, roughly: enough to remember it by, never enough to permit it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

LONGEST = 20_000
HEREDOC = re.compile(
    r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]{0,400})\n.*?(?:\n[ \t]*\2[ \t]*(?=\n|\)|$)|\Z)", re.DOTALL
)
TOKEN = re.compile(
    r"(?P<into>(?:\d|&)?>{1,2}(?:&\d|[ \t]*[^\s;|&<>()]+))"
    r"""|(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\;|&<>()]|(?<=\$)\()+)"""
    r"|(?P<end>&&|\|\||[;\n&()])|(?P<pipe>\|)|.",
    re.DOTALL,
)
PREFIX = re.compile(
    r"^(?:(?:[A-Za-z_]\w*=\S*|time|nice|sudo|env|command|exec|then|do|timeout(?: -\S+)* \S+)\s+)+"
)


class Part(msgspec.Struct, frozen=True, gc=False):
    """One simple command of a line, without its redirections, variables and the pipe after it."""

    text: str
    writes: tuple[str, ...] = ()
    piped: bool = False


def parts(command: str) -> Iterator[Part]:
    """The simple commands of a line that stand first in their pipes."""
    words: list[str] = []
    writes: list[str] = []
    piped = False
    for token in TOKEN.finditer(HEREDOC.sub(r"\3\n", command[:LONGEST])):
        match token.lastgroup:
            case "word" if not piped:
                words.append(token[0])
            case "into":
                writes.append(token[0].lstrip("&0123456789> \t").strip("'\""))
            case "pipe":
                piped = True
            case "end":
                yield from _part(words, writes, piped=piped)
                words, writes, piped = [], [], False
            case _:
                pass
    yield from _part(words, writes, piped=piped)


def _part(words: list[str], writes: list[str], *, piped: bool) -> Iterator[Part]:
    if words or writes:
        files = tuple(name for name in writes if name and not name.startswith("/dev/"))
        yield Part(PREFIX.sub("", " ".join(words)), files, piped)
