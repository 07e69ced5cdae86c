"""The folders a program may run in, and the files its arguments mean there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from travois.permissions.access import Access
from travois.permissions.shell.options import UnsafeArguments
from travois.permissions.shell.plan import ShellWord
from travois.permissions.shell.state import STANDARD_DEVICES, join_folder

DESCRIPTOR_PATH = re.compile(r"/dev/fd/\d+")
FollowScript = Callable[[str], None]


class StartFolder(msgspec.Struct, frozen=True):
    """The start of a line: its folder, the home, and whether the repository is foreign."""

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
    """Yield the files behind a word that a program reads."""
    if word.kind == "open":
        raise UnsafeArguments("the file it reads is only known at run time")
    if word.text in ("-", "", *STANDARD_DEVICES) or DESCRIPTOR_PATH.fullmatch(word.text):
        return
    scope = "many" if word.kind == "glob" else "deep" if deep else "one"
    for cwd in place.cwds:
        yield Access("read", join_folder(word.text, cwd), scope=scope)


def write_accesses(word: ShellWord, place: ProgramPlace) -> Iterator[Access]:
    """Yield the files behind a word that a program writes."""
    if word.kind == "open":
        raise UnsafeArguments("the file it writes is only known at run time")
    if word.text in ("-", *STANDARD_DEVICES):
        return
    scope = "many" if word.kind == "glob" else "one"
    for cwd in place.cwds:
        yield Access("write", join_folder(word.text, cwd), scope=scope)
