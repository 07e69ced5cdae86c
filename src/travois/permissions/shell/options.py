"""Option specifications: the arguments that a program may have, and their meaning.

What programs may be given without a question is in programs.txt and git_subcommands.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.permissions.shell.plan import ShellWord

NUMBER_OPTION = compile_lazily(r"-\d+")
OPTION_VALUE_KINDS = {
    "_": "text",
    "<": "file",
    ">": "write",
    "": "flag",
    "=": "text",
    "?": "maybe",
    "~": "name",
}


class OptionSpec(msgspec.Struct, frozen=True):
    """The permitted options and operands of a program.

    An option is a flag, or takes a text, or a file to read (`file`) or to write; `maybe` takes
    its text only after an equals sign.
    """

    short: dict[str, str]
    long: dict[str, str]
    operands: tuple[str, ...]
    marks: frozenset[str]


class ParsedOptions(msgspec.Struct, frozen=True):
    """The words of a call, sorted: options with their values, and operands."""

    options: tuple[tuple[str, ShellWord | None], ...]
    operands: tuple[ShellWord, ...]

    def has(self, *names: str) -> bool:
        """Return whether one of these options was given."""
        return any(name in names for name, _ in self.options)


class UnsafeArguments(Exception):
    """An argument that a program may not get without asking."""


@cache
def parse_spec_table(text: str) -> dict[str, OptionSpec]:
    """Parse a table of program options: `name, name: specification` on indented lines."""
    lines = text.strip().replace("\n    ", " ").splitlines()
    found: dict[str, OptionSpec] = {}
    for line in lines:
        names, _, rest = line.partition(": ")
        found.update(dict.fromkeys(names.split(", "), parse_option_spec(rest)))
    return found


@cache
def parse_option_spec(line: str) -> OptionSpec:
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
            long[name] = OPTION_VALUE_KINDS[kind]
        elif kind:
            assert len(name) == 2, token
            short[name[1]] = OPTION_VALUE_KINDS[kind]
        else:
            short.update(dict.fromkeys(name[1:], "flag"))
    words = rest.split()
    operands = tuple(
        word for word in words if word.rstrip("*") in ("text", "file", "write", "folder")
    )
    return OptionSpec(short, long, operands, frozenset(words) - set(operands))


def parse_options(option: OptionSpec, words: tuple[ShellWord, ...]) -> ParsedOptions:
    """Parse a call into options and operands; raise `UnsafeArguments` for an unknown option."""
    if "asked" in option.marks and not words:
        raise UnsafeArguments("without arguments it is not read-only")
    options: list[tuple[str, ShellWord | None]] = []
    operands: list[ShellWord] = []
    rest = iter(() if "words" in option.marks else words)
    operands += words if "words" in option.marks else ()
    for word in rest:
        if word.value == "--":
            operands += rest
        elif not _is_option(word, option):
            operands.append(word)
        elif word.text.startswith("--"):
            options.append(_parse_long_option(word, option, rest))
        else:
            options += _parse_short_options(word, option, rest)
    return ParsedOptions(tuple(options), tuple(operands))


def strip_leading_options(
    option: OptionSpec, words: tuple[ShellWord, ...]
) -> tuple[ShellWord, ...]:
    """Return the words after a wrapper's own options, which are the command it runs."""
    rest = iter(words)
    for word in rest:
        if word.value == "--":
            return tuple(rest)
        if word.kind != "plain":
            raise UnsafeArguments("an expansion may produce an option")
        if len(word.text) < 2 or word.text[0] != "-":
            return (word, *rest)
        if word.text.startswith("--"):
            _parse_long_option(word, option, rest)
        else:
            list(_parse_short_options(word, option, rest))
    return ()


def _is_option(word: ShellWord, option: OptionSpec) -> bool:
    """Return whether a word is a permitted option; raises if it might be an unknown one."""
    if word.kind == "plain":
        return len(word.text) > 1 and word.text[0] == "-"
    if word.kind == "glob" and word.text[0] != "-":
        if word.text[0] in "*?[" and "tame" not in option.marks:
            raise UnsafeArguments("a file name that begins with a dash would be an option")
        return False
    if word.text and word.text[0] != "-":
        return False
    if word.kind == "glob" and re.match(r"--[a-z-]+=", word.text):
        return True
    if word.kind == "open" and option.operands == ("text*",) and "tame" in option.marks:
        return False
    raise UnsafeArguments("an expansion may produce an option")


def _parse_long_option(
    word: ShellWord, option: OptionSpec, rest: Iterator[ShellWord]
) -> tuple[str, ShellWord | None]:
    """Parse a `--name` or `--name=value` of a read-only program; raise if it is not permitted."""
    name, equals, value = word.text.partition("=")
    kind = option.long.get(name)
    if kind is None:
        raise UnsafeArguments(f"{name} is not a known read-only option")
    if equals:
        if kind == "flag":
            raise UnsafeArguments(f"the option {name} takes no value")
        return name, ShellWord(value)
    return name, _take_option_value(name, rest) if kind not in ("flag", "maybe") else None


def _parse_short_options(
    word: ShellWord, option: OptionSpec, rest: Iterator[ShellWord]
) -> Iterator[tuple[str, ShellWord | None]]:
    """Parse a word of short options such as `-abn5`; raise if one of them is not permitted."""
    text = word.text
    name, equals, value = text.partition("=")
    if name in option.long:
        yield name, ShellWord(value) if equals else None
        return
    if NUMBER_OPTION.fullmatch(text) and "number" in option.marks:
        return
    for at, letter in enumerate(text[1:], 2):
        kind = option.short.get(letter)
        if kind is None:
            raise UnsafeArguments(f"-{letter} is not a known read-only option")
        if kind == "maybe":
            yield f"-{letter}", None
            return
        if kind != "flag":
            yield (
                f"-{letter}",
                ShellWord(text[at:]) if text[at:] else _take_option_value(f"-{letter}", rest),
            )
            return
        yield f"-{letter}", None


def _take_option_value(name: str, rest: Iterator[ShellWord]) -> ShellWord:
    """Take the next word as the value of an option; raise if it is missing or unknown."""
    word = next(rest, None)
    if word is None:
        raise UnsafeArguments(f"the option {name} has no value")
    if not word.single or (word.kind == "glob"):
        raise UnsafeArguments(f"the value of {name} is only known at run time")
    return word


def _read_sections(name: str) -> dict[str, str]:
    """Read the sections of programs.txt or git_subcommands.txt, without comments."""
    text = re.sub(r"(?m)^#.*\n", "", Path(__file__).with_name(name).read_text(encoding="utf-8"))
    parts = re.split(r"(?m)^\[(.+)\]\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


_PROGRAMS = _read_sections("programs.txt")
_GIT = _read_sections("git_subcommands.txt")

READ_ONLY_PROGRAMS = _PROGRAMS["read-only"]
"""Read-only programs, and the arguments that keep them so."""
EDITING_PROGRAMS = _PROGRAMS["editing"]
"""Programs that change exactly the files they name, and what they may be given."""
RULE_COVERED_PROGRAMS = _PROGRAMS["covered by a wildcard rule"]
"""What a rule with a wildcard may cover, by the first words of the call."""
EXACT_RULE_PROGRAMS = split_names(_PROGRAMS["named whole by a rule"])
"""Programs that run or write whatever their words say: a rule must name the whole call."""
HAZARDOUS_OPTIONS = split_names(_PROGRAMS["hazardous options"])
"""Options of any program that name another configuration, folder, program or target."""
HAZARDOUS_SHORT_OPTIONS = frozenset("cCeEoOxXirRpPwF")

GIT_DIFF_OPTIONS = _GIT["diff options"]
GIT_REVISION_OPTIONS = _GIT["revision options"]
GIT_READ_ONLY = _GIT["read-only"]
"""Each subcommand and what it may be given; `@diff` and `@revisions` stand for the above."""
GIT_PARTLY_READ_ONLY = _GIT["partly read-only"]
"""Subcommands that are read-only in some forms; the analysis of git calls decides which."""
GIT_HISTORY_MOVES = _GIT["moves history"]
"""Subcommands whose files come out of commits, and what is run beside them."""

GIT_LISTING_WORDS = {
    "remote": ("", "get-url"),
    "notes": ("", "list", "show"),
    "stash": ("list",),
    "worktree": ("list",),
    "submodule": ("", "status", "summary"),
    "bisect": ("log",),
    "sparse-checkout": ("list",),
    "lfs": ("ls-files", "status", "env"),
}
"""The first words that keep a subcommand read-only."""

SHELL_KEYWORDS = split_names(
    "if then else elif fi for while until do done case esac in select function time coproc"
    " { } ! [[ ]]"
)
"""Words of the shell's own grammar."""
