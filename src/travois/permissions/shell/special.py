"""Analysis of git, find, sed, awk, jq and yq calls that are read-only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from travois.core.display_text import split_names
from travois.permissions.access import Access
from travois.permissions.shell.options import Given, Refused, Spec, sort, spec, table
from travois.permissions.shell.place import Place, reading, writing
from travois.permissions.shell.plan import Step, Word
from travois.permissions.shell.tables import (
    DIFF,
    GIT_LISTS,
    GIT_LOOKS,
    GIT_MOVES,
    LISTING_WORDS,
    REVISIONS,
)

QUIETLY = ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects")
LISTING = frozenset(("-l", "--list", "--show-current", "-a", "--all", "-r", "--remotes"))
FILTERS = ("--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
"""Options with which a name is a pattern; without them, git makes a branch or tag of that name."""
EXPIRING = frozenset(("expire", "delete", "drop", "write"))
SIGNED = re.compile(r"%G|%\(signature")
"""Placeholders of a format for which git runs a program that checks signatures."""


def git(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Return the files that a call reads, if it only looks; raises `Refused` if it may do more."""
    while words and words[0].value in QUIETLY:
        words = words[1:]
    name = words[0].value if words else None
    if name == "--version" and len(words) == 1:
        return ()
    wanted = _looks().get(name or "") or table(GIT_LISTS).get(name or "")
    if name is None or wanted is None:
        raise Refused(f"git {name or ''} is not a known read-only command".replace("  ", " "))
    if place.moved or place.start.foreign:
        raise Refused("git applies the configuration of the folder it runs in")
    given = sort(wanted, words[1:])
    _check(given, wanted)
    if name in table(GIT_LISTS):
        _listing(name, given)
    if name == "reflog" and given.operands and given.operands[0].text in EXPIRING:
        raise Refused("it deletes reflog entries")
    if any(word.kind != "plain" for word in given.operands):
        _bounded(given)
    return (*reading(Word("."), place), *_named(given, place), *_files(given, wanted, place))


def moves_only_history(step: Step) -> bool:
    """Return whether a git call writes only files whose content comes from commits.

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
        raise Refused("an argument is only known at run time")


def _listing(name: str, given: Given) -> None:
    first = given.operands[0].text if given.operands else ""
    if name in LISTING_WORDS and first not in LISTING_WORDS[name]:
        raise Refused(f"git {name} {first} is not a known read-only command")
    if name == "config":
        _config(given)
    if name in ("branch", "tag") and given.operands and not _lists(given):
        raise Refused(f"git {name} creates one with this name")


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
    """Raise unless the call reads settings: a name alone reads, a second word sets."""
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
        raise Refused(f"the git argument {given.operands[-1].text!r} is not known to be read-only")
    if any(value is not None and SIGNED.search(value.text) for _, value in given.options):
        raise Refused("git would run a program to check signatures")


def _files(given: Given, wanted: Spec, place: Place) -> Iterator[Access]:
    """Yield the files that options read."""
    for name, value in given.options:
        kind = wanted.long.get(name) or wanted.short.get(name[1:])
        if kind == "file" and value is not None:
            yield from reading(value, place)


def _named(given: Given, place: Place) -> Iterator[Access]:
    """Yield the paths among the operands, also after a revision."""
    for word in given.operands:
        path = word.text.rpartition(":")[2]
        if path and ("/" in path or "." in path or word.kind == "glob"):
            yield from reading(Word(path, word.kind), place)


# `find`: where it starts, what it tests, and what it does with what it finds.


ALONE = split_names(
    """
    ! ( ) , -a -and -daystart -depth -empty -executable -false -ls -mount -nogroup -noleaf -not
    -nouser -nowarn -o -or -print -print0 -prune -quit -readable -true -warn -writable -xdev
    """
)
"""Tests and actions that take nothing."""
WITH_TEXT = split_names(
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
    """Return the folders that find walks and the files it passes on; raise for the rest."""
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
            raise Refused("an expansion may produce an action")
        yield word


def _expression(
    words: tuple[Word, ...], place: Place, *, walked: list[Word], study: Study
) -> Iterator[Access]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.kind != "plain":
            raise Refused("an expansion may produce an action")
        if word.text in RUNS:
            yield from _run(rest, place, walked=walked, study=study)
        elif word.text in WITH_FILE and rest:
            yield from reading(rest.pop(0), place)
        elif word.text in WITH_TEXT and rest:
            if not rest.pop(0).single:
                raise Refused("the number of words from an expansion is only known at run time")
        elif word.text not in ALONE:
            raise Refused(f"find {word.text} is not a known read-only action")


def _run(rest: list[Word], place: Place, *, walked: list[Word], study: Study) -> Iterator[Access]:
    """Yield a program that is run with what was found must itself be one that only looks."""
    inner: list[Word] = []
    while rest and rest[0].value not in (";", "+"):
        inner.append(rest.pop(0))
    if not rest or not inner or rest.pop(0).kind != "plain":
        raise Refused("the end of the command that find runs is unclear")
    if any(FOUND in word.text and word.value != FOUND for word in inner) or inner[0].value == FOUND:
        raise Refused("the command that find runs depends on the files it finds")
    for start in walked:
        found = Word(f"{start.text.rstrip('/')}/*", "glob")
        step = study(tuple(found if word.value == FOUND else word for word in inner), place)
        if step.needs != "nothing" or any(access.kind != "read" for access in step.accesses):
            raise Refused(f"find runs {inner[0].text}")
        yield from (access for access in step.accesses if "*" not in access.target)


# Small languages inside an argument: sed, awk and jq, as far as they only look.


SED = spec(
    "-nErsuz -e_ -l_ --quiet --silent --expression= --regexp-extended --null-data --separate"
    " --unbuffered --line-length= --posix --sandbox --debug -i --in-place ; text*"
)
AWK = spec("-F_ -v_ --field-separator= --assign= ; text*")
JQ = spec(
    "-rRncCMSsejaA --raw-output --raw-input --null-input --compact-output --color-output"
    " --monochrome-output --sort-keys --slurp --exit-status --tab --indent= --join-output"
    " --ascii-output --unbuffered --stream --seq ; text*"
)
YQ = spec(
    "-rPCMejN0 -o_ -p_ -I_ --raw-output --prettyPrint --output-format= --input-format="
    " --no-colors --colors --exit-status --indent= --no-doc ; text*"
)
YQ_RISKY = re.compile(r"\b(?:load\w*|env\w*|strenv|system|eval|input_filename|filename|e|ea)\b")
ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
SED_ADDRESS = re.compile(rf"\s*(?:{ADDRESS}(?:\s*,\s*[+~]?{ADDRESS})?)?\s*!*\s*")
SED_PLAIN = re.compile(r"[pdqQnNgGhHxPD=lzF]\s*\d*")
SED_LABEL = re.compile(r"[btT:]\s*[A-Za-z0-9_]*")
SED_TEXT = re.compile(r"[aic]\\?[^\n]*")
SED_SUBSTITUTE = re.compile(
    r"s([/|,#@:!%_+=~])((?:(?!\1)[^\\\n]|\\.)*)\1((?:(?!\1)[^\\\n]|\\.)*)\1([gpiIm\d]*)"
)
SED_TRANSLATE = re.compile(r"y/((?:[^/\\\n]|\\.)*)/((?:[^/\\\n]|\\.)*)/")
SED_END = re.compile(r"\s*(?:[;}\n]\s*)*")
SED_FORMS = (SED_SUBSTITUTE, SED_TRANSLATE, SED_PLAIN, SED_LABEL)
AWK_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
AWK_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n]*\])+/")
BEFORE_REGEX = re.compile(r"(?:^|[(,!~&|;{}\n?:=<>*%^]|\b(?:print|printf|return|in|case|else|do))$")
"""After one of these, a slash begins a pattern and does not divide."""
EITHER = re.compile(r"[+-]$|\b(?:if|while|for)\b[^;{}\n]*\)$")
"""After one of these, only a parser can tell."""
AWK_CONTINUED = re.compile(r"(,|&&|\|\||\?|:|\bdo\b|\belse\b)[ \t]*(?:\n[ \t]*)+")
"""A line that goes on: the statement does not end here."""
AWK_RISKY = re.compile(
    r"\bsystem\b|\bgetline\b|\bclose\b|\bfflush\b|@|\bprintf?\b[^;}\n]*>|\|(?!\|)(?<!\|\|)|\bENVIRON\b"
    r"|\bARGV\b|\bARGC\b|\bPROCINFO\b|\binclude\b|\bload\b|\bextension\b|`|\\\n"
)
JQ_RISKY = re.compile(
    r"\binput_filename\b|\$ENV|\benv\b|\binclude\b|\bimport\b|\bmodulemeta\b|\bget_search_list\b"
)


LONGEST_SCRIPT = 4_000
"""Longer scripts are not analyzed: some of these patterns take quadratic time."""


def sed(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Return the files that sed reads, or edits in place, if its script does nothing else."""
    given = sort(SED, words)
    scripts = [value for name, value in given.options if name in ("-e", "--expression")]
    operands = given.operands
    if not scripts:
        if not operands:
            raise Refused("sed has no script")
        scripts, operands = [operands[0]], operands[1:]
    for script in scripts:
        _sed_script(_script(script, "sed script"))
    in_place = given.has("-i", "--in-place")
    touch = writing if in_place else reading
    return tuple(access for word in operands for access in touch(word, place))


def _first(given: Given) -> Word | None:
    return given.operands[0] if given.operands else None


def _script(word: Word | None, what: str) -> str:
    """Return the text of a script, if all of it is known."""
    if word is None or word.value is None:
        raise Refused(f"the {what} is only known at run time")
    if len(word.text) > LONGEST_SCRIPT:
        raise Refused(f"the {what} is too long to analyze")
    return word.text


def _sed_script(script: str) -> None:
    """Raise if a command of the script writes, reads or runs anything else."""
    at, depth = 0, 0
    while at < len(script):
        at = _skip(SED_ADDRESS, script, at)
        if at >= len(script):
            return
        if script[at] in "{};\n":
            depth += 1
            at += 1
            continue
        found = next((f for form in SED_FORMS if (f := form.match(script, at))), None)
        if found is None:
            raise Refused("the sed script does more than print and replace")
        at = _ended(script, found.end())


def _ended(script: str, at: int) -> int:
    end = _skip(SED_END, script, at)
    if end == at and at < len(script):
        raise Refused("the sed script could not be parsed")
    return end


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def awk(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Return the files that awk reads, if its program neither writes nor runs anything."""
    given = sort(AWK, words)
    bare = _awk_code(_script(_first(given), "awk program"))
    if AWK_RISKY.search(bare):
        raise Refused("the awk program does more than print")
    if re.search(r"\bprintf?\b[^;}\n]*>", bare) or re.search(r"[^=!<>]>>", bare):
        raise Refused("the awk program writes a file")
    return tuple(_awk_files(given, place))


def _awk_code(program: str) -> str:
    """Return the program without its strings, patterns and comments."""
    code, at = "", 0
    while at < len(program):
        char = program[at]
        if char == "#":
            at = program.find("\n", at) if "\n" in program[at:] else len(program)
            continue
        before = code[-200:].rstrip(" \t") if char == "/" else ""
        if char == "/" and EITHER.search(before):
            raise Refused("a slash in the awk program is ambiguous")
        pattern = char == "/" and bool(BEFORE_REGEX.search(before))
        if char != '"' and not pattern:
            code, at = code + char, at + 1
            continue
        found = (AWK_REGEX if pattern else AWK_STRING).match(program, at)
        if found is None:
            raise Refused("the awk program could not be parsed")
        code, at = code + ' "" ', found.end()
    return AWK_CONTINUED.sub(r"\1 ", code)


def _awk_files(given: Given, place: Place) -> Iterator[Access]:
    for name, value in given.options:
        if name in ("-v", "--assign") and (value is None or value.value is None):
            raise Refused("an awk variable is only known at run time")
    for word in given.operands[1:]:
        if "=" in word.text and word.text.partition("=")[0].isidentifier():
            continue
        yield from reading(word, place)


def jq(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Return the files that jq reads, if its filter looks at nothing else."""
    words = tuple(_without_arguments(words))
    given = sort(JQ, words)
    if JQ_RISKY.search(_script(_first(given), "jq filter")):
        raise Refused("the jq filter reads more than its input")
    return tuple(access for word in given.operands[1:] for access in reading(word, place))


def yq(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Return the files that yq reads, if its filter looks at nothing else."""
    given = sort(YQ, words)
    text = _script(_first(given), "yq filter")
    if YQ_RISKY.search(text) or JQ_RISKY.search(text):
        raise Refused("the yq filter reads more than its input")
    return tuple(access for word in given.operands[1:] for access in reading(word, place))


def _without_arguments(words: tuple[Word, ...]) -> Iterator[Word]:
    rest = iter(words)
    for word in rest:
        if word.value in ("--arg", "--argjson"):
            if any(not value.single for value in (next(rest, word), next(rest, word))):
                raise Refused("a jq argument is only known at run time")
            continue
        yield word
