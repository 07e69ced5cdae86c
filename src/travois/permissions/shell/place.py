"""The folders a program may run in, and the files its arguments mean there."""

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
    """The start of a line: its folder, the home, and whether the repository is foreign."""

    cwd: str
    home: str = ""
    foreign: bool = False


class Place(msgspec.Struct, frozen=True):
    """The folders that a program may run in, and the one where the line began."""

    cwds: tuple[str, ...]
    start: Start
    script: Following
    """Follows the script that a shell inside the line runs."""

    @property
    def moved(self) -> bool:
        """True if the folder may have changed before this program."""
        return self.cwds != (self.start.cwd,)


def reading(word: Word, place: Place, *, deep: bool = False) -> Iterator[Access]:
    """Yield the files behind a word that a program reads."""
    if word.kind == "open":
        raise Refused("the file it reads is only known at run time")
    if word.text in ("-", "", *FREE) or DESCRIPTOR.fullmatch(word.text):
        return
    scope = "many" if word.kind == "glob" else "deep" if deep else "one"
    for cwd in place.cwds:
        yield Access("read", located(word.text, cwd), scope=scope)


def writing(word: Word, place: Place) -> Iterator[Access]:
    """Yield the files behind a word that a program writes."""
    if word.kind == "open":
        raise Refused("the file it writes is only known at run time")
    if word.text in ("-", *FREE):
        return
    scope = "many" if word.kind == "glob" else "one"
    for cwd in place.cwds:
        yield Access("write", located(word.text, cwd), scope=scope)
