"""Programs that run the program in their words: taken off, so that it is judged itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from travois.permissions.shell.names import passable
from travois.permissions.shell.options import Refused, ahead, spec
from travois.permissions.shell.plan import Word
from travois.permissions.shell.tables import RESERVED

DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
SHELLS = ("bash", "sh", "dash")
STATEFUL = frozenset(
    ("cd", "read", "exec", "eval", "source", ".", "set", "export", "trap", "alias")
)
"""What changes the shell itself must stand by itself."""
NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./+-]*|/[A-Za-z0-9_./+-]+|:|\[")
TIMEOUT = spec("-v -k_ -s_ --foreground --preserve-status --verbose --signal= --kill-after= ;")
NICE = spec("-n_ --adjustment= ;")
STDBUF = spec("-i_ -o_ -e_ --input= --output= --error= ;")
XARGS = spec("-0rtx -n_ -L_ -P_ -d_ -s_ --null --no-run-if-empty --max-args= --max-lines= ;")
TIME = spec("-p ;")
NONE = spec(";")

Words = tuple[Word, ...]


def _program(words: Words) -> Words:
    if not words or words[0].value is None:
        raise Refused("which program it runs only shows when it does")
    if words[0].text in STATEFUL:
        raise Refused(f"{words[0].text} changes the shell")
    if not NAME.fullmatch(words[0].text) or words[0].text in RESERVED:
        raise Refused(f"{words[0].text} is not the name of a program")
    return words


def _timeout(words: Words) -> Words:
    rest = ahead(TIMEOUT, words)
    if not rest or not DURATION.fullmatch(rest[0].value or ""):
        raise Refused("how long it may take is not plain")
    return _program(rest[1:])


def _nice(words: Words) -> Words:
    if words and re.fullmatch(r"--?\d+", words[0].value or ""):
        return _program(words[1:])
    return _program(ahead(NICE, words))


def _env(words: Words) -> Words:
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if not equals or word.kind != "plain" or word.text.startswith("-"):
            return _program(words[at:])
        if not passable(name, Word(value), program="env"):
            raise Refused(f"it runs with {name} set")
    return (Word("printenv"),)


def _xargs(words: Words) -> Words:
    rest = ahead(XARGS, words) or (Word("echo"),)
    return (*_program(rest), Word("", "open", single=False))


def _command(words: Words) -> Words | None:
    """`command -v` asks where a program is; the rest of its options choose which one runs."""
    if words and words[0].value in ("-v", "-V"):
        return (Word("which"), *words[1:])
    return _program(ahead(NONE, words))


WRAPPERS: dict[str, Callable[[Words], Words | None]] = {
    "timeout": _timeout,
    "nice": _nice,
    "nohup": lambda words: _program(ahead(NONE, words)),
    "time": lambda words: _program(ahead(TIME, words)),
    "stdbuf": lambda words: _program(ahead(STDBUF, words)),
    "env": _env,
    "xargs": _xargs,
    "command": _command,
    "builtin": lambda words: _program(ahead(NONE, words)),
}
"""Each takes itself off; what it cannot take off it refuses."""
