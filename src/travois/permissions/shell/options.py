"""Option specifications: the arguments that a program may have, and their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from travois.permissions.shell.plan import Word

NUMBER = re.compile(r"-\d+")
KINDS = {"_": "text", "<": "file", ">": "write", "": "flag", "=": "text", "?": "maybe", "~": "name"}


class Spec(msgspec.Struct, frozen=True):
    """The permitted options and operands of a program.

    An option is a flag, or takes a text, or a file to read (`file`) or to write; `maybe` takes
    its text only after an equals sign.
    """

    short: dict[str, str]
    long: dict[str, str]
    operands: tuple[str, ...]
    marks: frozenset[str]


class Given(msgspec.Struct, frozen=True):
    """The words of a call, sorted: options with their values, and operands."""

    options: tuple[tuple[str, Word | None], ...]
    operands: tuple[Word, ...]

    def has(self, *names: str) -> bool:
        """Return whether one of these options was given."""
        return any(name in names for name, _ in self.options)


class Refused(Exception):
    """A word that the program may not be given without a question."""


@cache
def table(text: str) -> dict[str, Spec]:
    """Parse a table of specifications: `name, name: specification` on indented lines."""
    lines = text.strip().replace("\n    ", " ").splitlines()
    found: dict[str, Spec] = {}
    for line in lines:
        names, _, rest = line.partition(": ")
        found.update(dict.fromkeys(names.split(", "), spec(rest)))
    return found


@cache
def spec(line: str) -> Spec:
    """Parse a specification from one line: options, a semicolon, then operands and marks.

    `-abc` are flags, `-n_` takes a text, `-f<` a file to read; `--all`, `--color?`, `--width=`
    and `--file<` likewise. Operands are `text`, `file`, `write`, each with a star for any number.
    `-f~` takes nothing but a plain name.
    Marks: `tame` (no option does harm), `number` (`-5`), `pattern` (the first operand is a text
    unless `-e` or `-f` gives it), `deep` (walks folders), `cwd` (reads the folder where it stands
    unless told otherwise), `words` (nothing is an option), `asked` (does more when given nothing),
    `passes` (what follows `--` goes to another program), `runs` (its words may be a command line),
    `remote` (names what another machine has), `dashed` (options must have their dash), `response`
    (an operand `@file` holds more words), `local` (a value with a name of a host would look it up),
    `values` (a value may name a file, as in `@file`), `archive` (a file may be on another machine).
    """
    options, _, rest = line.partition(";")
    short: dict[str, str] = {}
    long: dict[str, str] = {}
    for token in options.split():
        name, kind = (token[:-1], token[-1]) if token[-1] in "_<>=?~" else (token, "")
        if name.startswith("--") or (name.startswith("-") and token.endswith("=")):
            long[name] = KINDS[kind]
        elif kind:
            assert len(name) == 2, token
            short[name[1]] = KINDS[kind]
        else:
            short.update(dict.fromkeys(name[1:], "flag"))
    words = rest.split()
    operands = tuple(
        word for word in words if word.rstrip("*") in ("text", "file", "write", "folder")
    )
    return Spec(short, long, operands, frozenset(words) - set(operands))


def sort(wanted: Spec, words: tuple[Word, ...]) -> Given:
    """Sort the words of a call by what they are; raises `Refused` at the first unknown option."""
    if "asked" in wanted.marks and not words:
        raise Refused("without arguments it is not read-only")
    options: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    rest = iter(() if "words" in wanted.marks else words)
    operands += words if "words" in wanted.marks else ()
    for word in rest:
        if word.value == "--":
            operands += rest
        elif not _dashed(word, wanted):
            operands.append(word)
        elif word.text.startswith("--"):
            options.append(_long(word, wanted, rest))
        else:
            options += _short(word, wanted, rest)
    return Given(tuple(options), tuple(operands))


def ahead(wanted: Spec, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words after the leading options, for programs that run the rest."""
    rest = iter(words)
    for word in rest:
        if word.value == "--":
            return tuple(rest)
        if word.kind != "plain":
            raise Refused("an expansion may produce an option")
        if len(word.text) < 2 or word.text[0] != "-":
            return (word, *rest)
        if word.text.startswith("--"):
            _long(word, wanted, rest)
        else:
            list(_short(word, wanted, rest))
    return ()


def _dashed(word: Word, wanted: Spec) -> bool:
    """Return whether the word is an option; raises if it might be one that is not known."""
    if word.kind == "plain":
        return len(word.text) > 1 and word.text[0] == "-"
    if word.kind == "glob" and word.text[0] != "-":
        if word.text[0] in "*?[" and "tame" not in wanted.marks:
            raise Refused("a file name that begins with a dash would be an option")
        return False
    if word.text and word.text[0] != "-":
        return False
    if word.kind == "glob" and re.match(r"--[a-z-]+=", word.text):
        return True
    if word.kind == "open" and wanted.operands == ("text*",) and "tame" in wanted.marks:
        return False
    raise Refused("an expansion may produce an option")


def _long(word: Word, wanted: Spec, rest: Iterator[Word]) -> tuple[str, Word | None]:
    name, equals, value = word.text.partition("=")
    kind = wanted.long.get(name)
    if kind is None:
        raise Refused(f"{name} is not a known read-only option")
    if equals:
        if kind == "flag":
            raise Refused(f"the option {name} takes no value")
        return name, Word(value)
    return name, _next(name, rest) if kind not in ("flag", "maybe") else None


def _short(word: Word, wanted: Spec, rest: Iterator[Word]) -> Iterator[tuple[str, Word | None]]:
    text = word.text
    name, equals, value = text.partition("=")
    if name in wanted.long:
        yield name, Word(value) if equals else None
        return
    if NUMBER.fullmatch(text) and "number" in wanted.marks:
        return
    for at, letter in enumerate(text[1:], 2):
        kind = wanted.short.get(letter)
        if kind is None:
            raise Refused(f"-{letter} is not a known read-only option")
        if kind == "maybe":
            yield f"-{letter}", None
            return
        if kind != "flag":
            yield f"-{letter}", Word(text[at:]) if text[at:] else _next(f"-{letter}", rest)
            return
        yield f"-{letter}", None


def _next(name: str, rest: Iterator[Word]) -> Word:
    word = next(rest, None)
    if word is None:
        raise Refused(f"the option {name} has no value")
    if not word.single or (word.kind == "glob"):
        raise Refused(f"the value of {name} is only known at run time")
    return word
