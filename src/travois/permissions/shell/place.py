"""Where a program runs, and what its words mean there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from travois.permissions.access import Access
from travois.permissions.shell.options import Refused
from travois.permissions.shell.plan import Word
from travois.permissions.shell.state import FREE, located

DESCRIPTOR = re.compile(r"/dev/fd/\d+")
Following = Callable[[str], None]


class Start(msgspec.Struct, frozen=True):
    """Where a line begins, what `~` is there, and whether the folder is of a strange repository."""

    cwd: str
    home: str = ""
    foreign: bool = False


class Place(msgspec.Struct, frozen=True):
    """The folders that a program may run in, and the one where the line began."""

    cwds: tuple[str, ...]
    start: Start
    script: Following
    """Follows the text that a shell inside the line is told to run."""

    @property
    def moved(self) -> bool:
        """Whether the line may have gone elsewhere before this program."""
        return self.cwds != (self.start.cwd,)


def reading(word: Word, place: Place, *, deep: bool = False) -> Iterator[Access]:
    """The files behind a word that a program reads."""
    if word.kind == "open":
        raise Refused("which file it reads only shows when it runs")
    if word.text in ("-", "", *FREE) or DESCRIPTOR.fullmatch(word.text):
        return
    scope = "many" if word.kind == "glob" else "deep" if deep else "one"
    for cwd in place.cwds:
        yield Access("read", located(word.text, cwd), scope=scope)


def writing(word: Word, place: Place) -> Iterator[Access]:
    """The files behind a word that a program writes."""
    if word.kind == "open":
        raise Refused("which file it writes only shows when it runs")
    if word.text in ("-", *FREE):
        return
    scope = "many" if word.kind == "glob" else "one"
    for cwd in place.cwds:
        yield Access("write", located(word.text, cwd), scope=scope)
