"""Which calls of git only look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from travois.permissions.access import Access
from travois.permissions.shell.gitlines import (
    DIFF,
    GIT_LISTS,
    GIT_LOOKS,
    GIT_MOVES,
    LISTING_WORDS,
    REVISIONS,
)
from travois.permissions.shell.options import Given, Refused, Spec, sort, table
from travois.permissions.shell.place import Place, reading
from travois.permissions.shell.plan import Step, Word

QUIETLY = ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects")
LISTING = frozenset(("-l", "--list", "--show-current", "-a", "--all", "-r", "--remotes"))
FILTERS = ("--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
"""Options with which a name is a pattern; without them, git makes a branch or tag of that name."""
EXPIRING = frozenset(("expire", "delete", "drop", "write"))
SIGNED = re.compile(r"%G|%\(signature")
"""Placeholders of a format for which git runs a program that checks signatures."""


def git(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """The files that a call reads, if it only looks; raises `Refused` if it may do more."""
    while words and words[0].value in QUIETLY:
        words = words[1:]
    name = words[0].value if words else None
    if name == "--version" and len(words) == 1:
        return ()
    wanted = _looks().get(name or "") or table(GIT_LISTS).get(name or "")
    if name is None or wanted is None:
        raise Refused(f"git {name or ''} is not known to only look".replace("  ", " "))
    if place.moved or place.start.foreign:
        raise Refused("git obeys the configuration of the folder that it is run in")
    given = sort(wanted, words[1:])
    _check(given, wanted)
    if name in table(GIT_LISTS):
        _listing(name, given)
    if name == "reflog" and given.operands and given.operands[0].text in EXPIRING:
        raise Refused("it throws history away")
    if any(word.kind != "plain" for word in given.operands):
        _bounded(given)
    return (*reading(Word("."), place), *_named(given, place), *_files(given, wanted, place))


def moves_only_history(step: Step) -> bool:
    """Return whether a call of git writes no file but with what commits hold.

    `git rebase --exec` runs a command, and `git apply` writes what a patch says: neither counts.
    """
    words = step.argv[1:]
    while words and words[0].value in QUIETLY:
        words = words[1:]
    wanted = table(GIT_MOVES).get((words[0].value if words else None) or "")
    if step.name != "git" or wanted is None:
        return False
    try:
        given = sort(wanted, words[1:])
    except Refused:
        return False
    return all(word.kind == "plain" for word in given.operands)


@cache
def _looks() -> dict[str, Spec]:
    return table(GIT_LOOKS.replace("@diff", _line(DIFF)).replace("@revisions", _line(REVISIONS)))


def _line(options: str) -> str:
    return " ".join(options.split())


def _bounded(given: Given) -> None:
    if any(word.kind == "open" for word in given.operands):
        raise Refused("an argument only shows when it runs")


def _listing(name: str, given: Given) -> None:
    first = given.operands[0].text if given.operands else ""
    if name in LISTING_WORDS and first not in LISTING_WORDS[name]:
        raise Refused(f"git {name} {first} is not known to only look")
    if name == "config":
        _config(given)
    if name in ("branch", "tag") and given.operands and not _lists(given):
        raise Refused(f"git {name} makes one with this name")


def _lists(given: Given) -> bool:
    return any(option in LISTING or option.startswith(FILTERS) for option, _ in given.options)


def reads_config(words: tuple[Word, ...]) -> bool:
    """Return whether the words from `config` on only read settings, wherever git is run."""
    try:
        _config(sort(table(GIT_LISTS)["config"], words[1:]))
    except Refused:
        return False
    return True


def _config(given: Given) -> None:
    """Reading a value is an option or, lately, a word; a name alone is read, a second one set."""
    asked = {"-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch"}
    first = given.operands[0].text if given.operands else ""
    if any(option in asked for option, _ in given.options) or first in ("list", "get"):
        return
    if len(given.operands) == 1 and "." in first and given.operands[0].kind == "plain":
        return
    raise Refused("git config sets a value")


def _check(given: Given, wanted: Spec) -> None:
    """Raise for more operands than only looking takes, and for formats that run a program."""
    endless = any(kind.endswith("*") for kind in wanted.operands)
    if len(given.operands) > len(wanted.operands) and not endless:
        raise Refused(f"what git does with {given.operands[-1].text!r} is not known")
    if any(value is not None and SIGNED.search(value.text) for _, value in given.options):
        raise Refused("git would run a program to check signatures")


def _files(given: Given, wanted: Spec, place: Place) -> Iterator[Access]:
    """What options read."""
    for name, value in given.options:
        kind = wanted.long.get(name) or wanted.short.get(name[1:])
        if kind == "file" and value is not None:
            yield from reading(value, place)


def _named(given: Given, place: Place) -> Iterator[Access]:
    """Paths among the operands, also behind a revision."""
    for word in given.operands:
        path = word.text.rpartition(":")[2]
        if path and ("/" in path or "." in path or word.kind == "glob"):
            yield from reading(Word(path, word.kind), place)
