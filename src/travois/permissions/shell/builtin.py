"""Builtins of the shell that need more than a list of options to be understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from posixpath import normpath

from travois.core.display_text import listed
from travois.permissions.access import Access
from travois.permissions.shell.options import Refused, sort, spec
from travois.permissions.shell.place import Place
from travois.permissions.shell.plan import Word
from travois.permissions.shell.redirect import located

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
READ = spec("-rs -p_ -d_ -n_ -N_ -t_ ; text*")
UNARY = listed(
    """
    -a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n ! ( )
    """
)
BINARY = listed(
    """
    = == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef
    """
)


def _cd(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Where `cd` leads, once for each folder that it may start from."""
    given = sort(spec("; text*"), words)
    if len(given.operands) > 1:
        raise Refused("where it goes is not plain")
    word = given.operands[0] if given.operands else Word(place.start.home)
    if word.kind != "plain" or not word.text or word.text == "-" or word.text.startswith("-"):
        raise Refused("where it goes only shows when it runs")
    return tuple(Access("read", normpath(located(word.text, cwd))) for cwd in place.cwds)


def _read(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """`read` into plain names; anything else may be evaluated."""
    from travois.permissions.shell.names import assignable

    for word in sort(READ, words).operands:
        if not NAME.fullmatch(word.value or "") or not assignable(word.text):
            raise Refused("what it reads into is not a plain name")
    return ()


def _printf(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """`printf` with a known format; `-v` would evaluate a name."""
    if words and words[0].value == "--":
        words = words[1:]
    if not words or words[0].kind != "plain" or words[0].text.startswith("-"):
        raise Refused("what printf does with its first word only shows when it runs")
    if re.search(r"%[^%A-Za-z]*n", words[0].text.replace("%%", "")):
        raise Refused("%n sets a variable")
    return ()


def _test(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """`test` and `[`; `-v` and its like evaluate their operands."""
    for at, word in enumerate(words):
        before = words[at - 1].value if at else None
        after = words[at + 1].value if at + 1 < len(words) else None
        if word.kind == "open" and not word.single:
            raise Refused("how many words an expansion gives only shows when it runs")
        if word.kind == "open" and not (before in UNARY | BINARY or after in BINARY):
            raise Refused("what is tested only shows when it runs")
        if word.value in ("-v", "-R"):
            raise Refused("it evaluates the name of a variable")
    return ()


BUILTINS: dict[str, Callable[[tuple[Word, ...], Place], tuple[Access, ...]]] = {
    "cd": _cd,
    "read": _read,
    "printf": _printf,
    "test": _test,
    "[": _test,
}
