"""A subprocess that parses source files, so that a hanging parser stops nothing else.

Grammars are programs of others, and some never end on what is no valid source. Nothing but the end
of their process stops them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Literal

import msgspec

from travois.tools import syntax

PATIENCE = 3.0
"""Seconds that one source may take."""
PARTED = re.compile(r"\.|::|#|->")


class Wanted(msgspec.Struct, frozen=True):
    """A name as it was asked for; loose, it is part of the name in whichever case."""

    name: str
    loose: bool = False

    @property
    def last(self) -> str:
        """The name without those around it."""
        return PARTED.split(self.name)[-1].lstrip("$@")

    @property
    def expression(self) -> str:
        """The name as a regular expression, for ripgrep and for us."""
        text = r"\w*".join(re.escape(part) for part in self.last.split("*"))
        return rf"\w*{text}\w*" if self.loose else text

    @property
    def whole(self) -> re.Pattern[str]:
        """Finds it among names that have those around them before them."""
        outer = "".join(rf"{re.escape(part)}\." for part in PARTED.split(self.name)[:-1])
        return re.compile(rf"(?:.*\.)?{outer}{self.expression}", re.IGNORECASE if self.loose else 0)

    def near(self, data: bytes, language: str) -> bool:
        """Return whether there is a line that may define it, as far as the language shows that."""
        flags = re.IGNORECASE if self.loose else 0
        line = syntax.grammars()[language].near.replace("NAME", f"(?:{self.expression})")
        defines, text = re.compile(line, flags), data.decode(errors="replace")
        core = re.escape(max(self.last.split("*"), key=len))
        for match in re.finditer(core, text, flags):
            first, last = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            if defines.search(text[first : last if last >= 0 else len(text)]):
                return True
        return False


class Source(msgspec.Struct, frozen=True):
    """A text and its language."""

    data: bytes
    language: str


class Task(msgspec.Struct, frozen=True):
    """A parse job: list definitions, find definitions of a name, or find its uses."""

    what: Literal["outline", "definitions", "uses"]
    wanted: Wanted
    kinds: tuple[str, ...]
    sources: tuple[Source, ...] = ()

    def lines(self, source: Source) -> Iterable[str]:
        """Return the result lines for one source; any line with the word if it has no grammar."""
        known = syntax.installed(source.language)
        if self.what == "uses" or (self.what == "definitions" and not known):
            return (_use(one) for one in syntax.mentions(*self._about(source), self.wanted.last))
        if self.what == "definitions" and not self.wanted.near(*self._about(source)):
            return ()
        found = syntax.symbols(*self._about(source)) if known else ()
        whole = self.wanted.whole if self.what == "definitions" else re.compile(".*")
        return (_row(one) for one in found if one.kind in self.kinds and whole.fullmatch(one.name))

    def _about(self, source: Source) -> tuple[bytes, str]:
        return source.data, source.language


def _use(one: syntax.Mention) -> str:
    return f"{one.line} in {one.within}: {one.text}" if one.within else f"{one.line}: {one.text}"


def _row(one: syntax.Symbol) -> str:
    return f"{one.line} {one.kind} {one.name} {one.text}"


def told(task: Task, source: Source) -> list[str] | None:
    """Return the result lines for one source; None if it cannot be parsed."""
    try:
        return list(task.lines(source))
    except syntax.Unparsed:
        return None


def main() -> None:
    """Run the task from standard input; write a line of JSON for each source when it is done."""
    import faulthandler

    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    for source in task.sources:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        line = msgspec.json.encode(told(task, source))
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
