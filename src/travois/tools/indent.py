"""How one block of lines is indented differently from another, all lines alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

INDENT = re.compile(r"[ \t]*")
UNITS = (("", ""), *((a, b) for w in (4, 2, 8, 3) for a, b in (("\t", " " * w), (" " * w, "\t"))))
"""Tabs for spaces and spaces for tabs, the most common widths first."""


class Shift(msgspec.Struct, frozen=True):
    """A change of indentation: one unit for another, then something less or more in front."""

    unit: str = ""
    becomes: str = ""
    less: str = ""
    more: str = ""

    def indent(self, indent: str) -> str | None:
        """The indentation after the shift; None if there is too little of it."""
        if self.unit:
            indent = indent.replace(self.unit, self.becomes)
        if not indent.startswith(self.less):
            return None
        return self.more + indent[len(self.less) :]

    def line(self, line: str) -> str | None:
        """The line after the shift; a blank line stays as it is."""
        if not line.strip():
            return line
        before = indent_of(line)
        after = self.indent(before)
        return None if after is None else after + line[len(before) :]


def indent_of(line: str) -> str:
    """The spaces and tabs that a line begins with."""
    found = INDENT.match(line)
    return found[0] if found else ""


def shift_between(old: Sequence[str], new: Sequence[str]) -> Shift | None:
    """The one shift that turns each indentation of `old` into its partner in `new`."""
    shifts = (_shift(old[0], new[0], unit, becomes) for unit, becomes in UNITS)
    fitting = [shift for shift in shifts if shift is not None and _fits(shift, old, new)]
    return min(fitting, key=lambda shift: len(shift.less) + len(shift.more), default=None)


def _shift(old: str, new: str, unit: str, becomes: str) -> Shift | None:
    turned = old.replace(unit, becomes) if unit else old
    if new.endswith(turned):
        return Shift(unit, becomes, more=new[: len(new) - len(turned)])
    if turned.endswith(new):
        return Shift(unit, becomes, less=turned[: len(turned) - len(new)])
    return None


def _fits(shift: Shift, old: Sequence[str], new: Sequence[str]) -> bool:
    return all(shift.indent(a) == b for a, b in zip(old, new, strict=True))
