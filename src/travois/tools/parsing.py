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

from travois.lazy_imports import lazy_imports
from travois.tools import syntax

with lazy_imports():
    import faulthandler


SOURCE_TIMEOUT_SECONDS = 3.0
"""Seconds that one source may take."""
NAME_SEPARATOR = re.compile(r"\.|::|#|->")


class SymbolQuery(msgspec.Struct, frozen=True):
    """A name as it was asked for; loose, it is part of the name in whichever case."""

    name: str
    loose: bool = False

    @property
    def last_part(self) -> str:
        """Return the name without the names around it."""
        return NAME_SEPARATOR.split(self.name)[-1].lstrip("$@")

    @property
    def expression(self) -> str:
        """Return the name as a regular expression, for ripgrep and for syntax trees."""
        text = r"\w*".join(re.escape(part) for part in self.last_part.split("*"))
        return rf"\w*{text}\w*" if self.loose else text

    @property
    def full_pattern(self) -> re.Pattern[str]:
        """Return the pattern that finds the name among qualified names."""
        outer = "".join(rf"{re.escape(part)}\." for part in NAME_SEPARATOR.split(self.name)[:-1])
        return re.compile(rf"(?:.*\.)?{outer}{self.expression}", re.IGNORECASE if self.loose else 0)

    def may_define(self, data: bytes, language: str) -> bool:
        """Return whether some line looks like a definition of the name in this language."""
        flags = re.IGNORECASE if self.loose else 0
        line = syntax.load_grammars()[language].near.replace("NAME", f"(?:{self.expression})")
        defines, text = re.compile(line, flags), data.decode(errors="replace")
        core = re.escape(max(self.last_part.split("*"), key=len))
        for match in re.finditer(core, text, flags):
            first, last = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            if defines.search(text[first : last if last >= 0 else len(text)]):
                return True
        return False


class SourceText(msgspec.Struct, frozen=True):
    """A text and its language."""

    data: bytes
    language: str


class ParseTask(msgspec.Struct, frozen=True):
    """A parse job: list definitions, find definitions of a name, or find its uses."""

    what: Literal["outline", "definitions", "uses"]
    wanted: SymbolQuery
    kinds: tuple[str, ...]
    sources: tuple[SourceText, ...] = ()

    def find_lines(self, source: SourceText) -> Iterable[str]:
        """Return the result lines for one source; any line with the word if it has no grammar."""
        known = syntax.is_grammar_installed(source.language)
        if self.what == "uses" or (self.what == "definitions" and not known):
            return (
                _format_mention(one)
                for one in syntax.find_mentions(*self._source_args(source), self.wanted.last_part)
            )
        if self.what == "definitions" and not self.wanted.may_define(*self._source_args(source)):
            return ()
        found = syntax.find_symbols(*self._source_args(source)) if known else ()
        whole = self.wanted.full_pattern if self.what == "definitions" else re.compile(".*")
        return (
            _format_symbol(one)
            for one in found
            if one.kind in self.kinds and whole.fullmatch(one.name)
        )

    def _source_args(self, source: SourceText) -> tuple[bytes, str]:
        return source.data, source.language


def _format_mention(one: syntax.Mention) -> str:
    return f"{one.line} in {one.within}: {one.text}" if one.within else f"{one.line}: {one.text}"


def _format_symbol(one: syntax.Symbol) -> str:
    return f"{one.line} {one.kind} {one.name} {one.text}"


def parse_source(task: ParseTask, source: SourceText) -> list[str] | None:
    """Return the result lines for one source; None if it cannot be parsed."""
    try:
        return list(task.find_lines(source))
    except syntax.ParseTimeout:
        return None


def main() -> None:
    """Run the task from standard input; write a line of JSON for each source when it is done."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ParseTask)
    for source in task.sources:
        faulthandler.dump_traceback_later(SOURCE_TIMEOUT_SECONDS, exit=True)
        line = msgspec.json.encode(parse_source(task, source))
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
