"""`find`: where it starts, what it tests, and what it does with what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from travois.core.display_text import listed
from travois.permissions.access import Access
from travois.permissions.shell.options import Refused
from travois.permissions.shell.place import Place, reading
from travois.permissions.shell.plan import Step, Word

ALONE = listed(
    """
    ! ( ) , -a -and -daystart -depth -empty -executable -false -ls -mount -nogroup -noleaf -not
    -nouser -nowarn -o -or -print -print0 -prune -quit -readable -true -warn -writable -xdev
    """
)
"""Tests and actions that take nothing."""
WITH_TEXT = listed(
    """
    -amin -atime -cmin -context -ctime -fstype -gid -group -ilname -iname -inum -ipath -iregex
    -iwholename -links -lname -maxdepth -mindepth -mmin -mtime -name -newerat -newerct -newermt
    -path -perm -printf -regex -regextype -size -type -uid -used -user -wholename -xtype
    """
)
"""Tests and actions that take one word."""
WITH_FILE = frozenset(("-newer", "-anewer", "-cnewer", "-samefile"))
RUNS = ("-exec",)
LEADING = ("-H", "-P", "-O1", "-O2", "-O3")
FOUND = "{}"

Study = Callable[[tuple[Word, ...], Place], Step]


def find(words: tuple[Word, ...], place: Place, study: Study) -> tuple[Access, ...]:
    """The folders that it walks and the files that it hands on; raises `Refused` for the rest."""
    while words and words[0].value in LEADING:
        words = words[1:]
    starts = list(_starts(words))
    rest = words[len(starts) :]
    walked = starts or [Word(".")]
    accesses = [access for word in walked for access in reading(word, place, deep=True)]
    return (*accesses, *_expression(rest, place, walked=walked, study=study))


def _starts(words: tuple[Word, ...]) -> Iterator[Word]:
    for word in words:
        if word.text.startswith("-") or word.value in ("!", "(", ")", ","):
            return
        if word.kind == "open" or (word.kind == "glob" and word.text[0] in "*?["):
            raise Refused("an action may come out of an expansion")
        yield word


def _expression(
    words: tuple[Word, ...], place: Place, *, walked: list[Word], study: Study
) -> Iterator[Access]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.kind != "plain":
            raise Refused("an action may come out of an expansion")
        if word.text in RUNS:
            yield from _run(rest, place, walked=walked, study=study)
        elif word.text in WITH_FILE and rest:
            yield from reading(rest.pop(0), place)
        elif word.text in WITH_TEXT and rest:
            if not rest.pop(0).single:
                raise Refused("how many words an expansion gives only shows when it runs")
        elif word.text not in ALONE:
            raise Refused(f"{word.text} of find is not known to only look")


def _run(rest: list[Word], place: Place, *, walked: list[Word], study: Study) -> Iterator[Access]:
    """A program that is run with what was found must itself be one that only looks."""
    inner: list[Word] = []
    while rest and rest[0].value not in (";", "+"):
        inner.append(rest.pop(0))
    if not rest or not inner or rest.pop(0).kind != "plain":
        raise Refused("the end of what find runs is not plain")
    if any(FOUND in word.text and word.value != FOUND for word in inner) or inner[0].value == FOUND:
        raise Refused("what find runs depends on what it finds")
    for start in walked:
        found = Word(f"{start.text.rstrip('/')}/*", "glob")
        step = study(tuple(found if word.value == FOUND else word for word in inner), place)
        if step.needs != "nothing" or any(access.kind != "read" for access in step.accesses):
            raise Refused(f"find runs {inner[0].text}")
        yield from (access for access in step.accesses if "*" not in access.target)
