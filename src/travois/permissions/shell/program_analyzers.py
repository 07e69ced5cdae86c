"""Analysis of git, find, sed, awk, jq and yq calls that only read, and of what cp and mv write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.permissions.access import Access
from travois.permissions.shell.options import (
    GIT_DIFF_OPTIONS,
    GIT_HISTORY_MOVES,
    GIT_LISTING_WORDS,
    GIT_PARTLY_READ_ONLY,
    GIT_READ_ONLY,
    GIT_REVISION_OPTIONS,
    OptionSpec,
    ParsedOptions,
    UnsafeArguments,
    parse_option_spec,
    parse_options,
    parse_spec_table,
)
from travois.permissions.shell.plan import CommandStep, ShellWord
from travois.permissions.shell.state import ProgramPlace, read_accesses, write_accesses

HARMLESS_GIT_OPTIONS = (
    "--no-pager",
    "-P",
    "--no-optional-locks",
    "--literal-pathspecs",
    "--no-replace-objects",
)
GIT_LISTING_OPTIONS = frozenset(
    ("-l", "--list", "--show-current", "-a", "--all", "-r", "--remotes")
)
GIT_FILTER_OPTIONS = ("--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
"""Options with which a name is a pattern; without them, git makes a branch or tag of that name."""
REFLOG_CHANGING_WORDS = frozenset(("expire", "delete", "drop", "write"))
SIGNATURE_PLACEHOLDER = compile_lazily(r"%G|%\(signature")
"""Placeholders of a format for which git runs a program that checks signatures."""


def analyze_git(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Return the files that a read-only git call reads; raise `UnsafeArguments` for any other."""
    while words and words[0].value in HARMLESS_GIT_OPTIONS:
        words = words[1:]
    name = words[0].value if words else None
    if name == "--version" and len(words) == 1:
        return ()
    wanted = _git_read_only_table().get(name or "") or parse_spec_table(GIT_PARTLY_READ_ONLY).get(
        name or ""
    )
    if name is None or wanted is None:
        raise UnsafeArguments(
            f"git {name or ''} is not a known read-only command".replace("  ", " ")
        )
    if place.has_moved or place.start.foreign:
        raise UnsafeArguments("git applies the configuration of the folder it runs in")
    given = parse_options(wanted, words[1:])
    _check_git_operands(given, wanted)
    if name in parse_spec_table(GIT_PARTLY_READ_ONLY):
        _check_git_listing(name, given)
    if name == "reflog" and given.operands and given.operands[0].text in REFLOG_CHANGING_WORDS:
        raise UnsafeArguments("it deletes reflog entries")
    if any(word.kind != "plain" for word in given.operands):
        _check_known_operands(given)
    return (
        *read_accesses(ShellWord("."), place),
        *_git_operand_paths(given, place),
        *_git_option_files(given, wanted, place),
    )


def moves_only_git_history(step: CommandStep) -> bool:
    """Return whether a git command writes only files whose content comes from commits.

    `git rebase --exec` runs a command, and `git apply` writes what a patch says: neither counts.
    """
    words = step.argv[1:]
    while words and words[0].value in HARMLESS_GIT_OPTIONS:
        words = words[1:]
    wanted = parse_spec_table(GIT_HISTORY_MOVES).get((words[0].value if words else None) or "")
    if step.name != "git" or wanted is None:
        return False
    try:
        given = parse_options(wanted, words[1:])
    except UnsafeArguments:
        return False
    return all(word.kind == "plain" for word in given.operands)


@cache
def _git_read_only_table() -> dict[str, OptionSpec]:
    """Build the table of read-only git subcommands with their permitted options."""
    return parse_spec_table(
        GIT_READ_ONLY.replace("@diff", _join_options(GIT_DIFF_OPTIONS)).replace(
            "@revisions", _join_options(GIT_REVISION_OPTIONS)
        )
    )


def _join_options(options: str) -> str:
    return " ".join(options.split())


def _check_known_operands(options: ParsedOptions) -> None:
    if any(word.kind == "open" for word in options.operands):
        raise UnsafeArguments("an argument is only known at run time")


def _check_git_listing(name: str, options: ParsedOptions) -> None:
    """Raise if a git command that can list, such as `git branch`, would change something."""
    first = options.operands[0].text if options.operands else ""
    if name in GIT_LISTING_WORDS and first not in GIT_LISTING_WORDS[name]:
        raise UnsafeArguments(f"git {name} {first} is not a known read-only command")
    if name == "config":
        _check_git_config_read(options)
    if name in ("branch", "tag") and options.operands and not _has_listing_option(options):
        raise UnsafeArguments(f"git {name} creates one with this name")


def _has_listing_option(options: ParsedOptions) -> bool:
    """Return whether `git branch` or `git tag` has an option that makes it only list."""
    return any(
        option in GIT_LISTING_OPTIONS or option.startswith(GIT_FILTER_OPTIONS)
        for option, _ in options.options
    )


def reads_git_config(words: tuple[ShellWord, ...]) -> bool:
    """Return whether a `git config` call only reads settings."""
    try:
        _check_git_config_read(
            parse_options(parse_spec_table(GIT_PARTLY_READ_ONLY)["config"], words[1:])
        )
    except UnsafeArguments:
        return False
    return True


def _check_git_config_read(options: ParsedOptions) -> None:
    """Raise unless the call reads settings: a name alone reads, a second word sets."""
    asked = {"-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch"}
    first = options.operands[0].text if options.operands else ""
    if any(option in asked for option, _ in options.options) or first in ("list", "get"):
        return
    if len(options.operands) == 1 and "." in first and options.operands[0].kind == "plain":
        return
    raise UnsafeArguments("git config sets a value")


def _check_git_operands(options: ParsedOptions, option: OptionSpec) -> None:
    """Raise if git operands do more than read, or a format option runs a program."""
    endless = any(kind.endswith("*") for kind in option.operands)
    if len(options.operands) > len(option.operands) and not endless:
        raise UnsafeArguments(
            f"the git argument {options.operands[-1].text!r} is not known to be read-only"
        )
    if any(
        value is not None and SIGNATURE_PLACEHOLDER.search(value.text)
        for _, value in options.options
    ):
        raise UnsafeArguments("git would run a program to check signatures")


def _git_option_files(
    options: ParsedOptions, option: OptionSpec, place: ProgramPlace
) -> Iterator[Access]:
    """Yield the files that a read-only git call's options read."""
    for name, value in options.options:
        kind = option.long.get(name) or option.short.get(name[1:])
        if kind == "file" and value is not None:
            yield from read_accesses(value, place)


def _git_operand_paths(options: ParsedOptions, place: ProgramPlace) -> Iterator[Access]:
    """Yield the paths among a read-only git call's operands, also after a revision."""
    for word in options.operands:
        path = word.text.rpartition(":")[2]
        if path and ("/" in path or "." in path or word.kind == "glob"):
            yield from read_accesses(ShellWord(path, word.kind), place)


# `find`: where it starts, what it tests, and what it does with what it finds.


FIND_TESTS_ALONE = split_names(
    """
    ! ( ) , -a -and -daystart -depth -empty -executable -false -ls -mount -nogroup -noleaf -not
    -nouser -nowarn -o -or -print -print0 -prune -quit -readable -true -warn -writable -xdev
    """
)
"""Tests and actions that take nothing."""
FIND_TESTS_WITH_TEXT = split_names(
    """
    -amin -atime -cmin -context -ctime -fstype -gid -group -ilname -iname -inum -ipath -iregex
    -iwholename -links -lname -maxdepth -mindepth -mmin -mtime -name -newerat -newerct -newermt
    -path -perm -printf -regex -regextype -size -type -uid -used -user -wholename -xtype
    """
)
"""Tests and actions that take one word."""
FIND_TESTS_WITH_FILE = frozenset(("-newer", "-anewer", "-cnewer", "-samefile"))
FIND_RUN_ACTIONS = ("-exec",)
FIND_LEADING_OPTIONS = ("-H", "-P", "-O1", "-O2", "-O3")
FOUND_PLACEHOLDER = "{}"

AnalyzeProgram = Callable[[tuple[ShellWord, ...], ProgramPlace], CommandStep]


def analyze_find(
    words: tuple[ShellWord, ...], place: ProgramPlace, study: AnalyzeProgram
) -> tuple[Access, ...]:
    """Return the folders that find walks and the files it passes on; raise for the rest."""
    while words and words[0].value in FIND_LEADING_OPTIONS:
        words = words[1:]
    starts = list(_find_start_folders(words))
    rest = words[len(starts) :]
    walked = starts or [ShellWord(".")]
    accesses = [access for word in walked for access in read_accesses(word, place, deep=True)]
    return (*accesses, *_find_expression_accesses(rest, place, walked=walked, study=study))


def _find_start_folders(words: tuple[ShellWord, ...]) -> Iterator[ShellWord]:
    """Yield the folders that a `find` command starts from, the words before its expression."""
    for word in words:
        if word.text.startswith("-") or word.value in ("!", "(", ")", ","):
            return
        if word.kind == "open" or (word.kind == "glob" and word.text[0] in "*?["):
            raise UnsafeArguments("an expansion may produce an action")
        yield word


def _find_expression_accesses(
    words: tuple[ShellWord, ...],
    place: ProgramPlace,
    *,
    walked: list[ShellWord],
    study: AnalyzeProgram,
) -> Iterator[Access]:
    """Yield the files that the expression of `find` accesses; raise for unknown actions."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.kind != "plain":
            raise UnsafeArguments("an expansion may produce an action")
        if word.text in FIND_RUN_ACTIONS:
            yield from _find_run_accesses(rest, place, walked=walked, study=study)
        elif word.text in FIND_TESTS_WITH_FILE and rest:
            yield from read_accesses(rest.pop(0), place)
        elif word.text in FIND_TESTS_WITH_TEXT and rest:
            if not rest.pop(0).single:
                raise UnsafeArguments(
                    "the number of words from an expansion is only known at run time"
                )
        elif word.text not in FIND_TESTS_ALONE:
            raise UnsafeArguments(f"find {word.text} is not a known read-only action")


def _find_run_accesses(
    rest: list[ShellWord], place: ProgramPlace, *, walked: list[ShellWord], study: AnalyzeProgram
) -> Iterator[Access]:
    """Yield the files that a command run by `find -exec` reads; raise if it does more than read."""
    inner: list[ShellWord] = []
    while rest and rest[0].value not in (";", "+"):
        inner.append(rest.pop(0))
    if not rest or not inner or rest.pop(0).kind != "plain":
        raise UnsafeArguments("the end of the command that find runs is unclear")
    if (
        any(FOUND_PLACEHOLDER in word.text and word.value != FOUND_PLACEHOLDER for word in inner)
        or inner[0].value == FOUND_PLACEHOLDER
    ):
        raise UnsafeArguments("the command that find runs depends on the files it finds")
    for start in walked:
        found = ShellWord(f"{start.text.rstrip('/')}/*", "glob")
        step = study(
            tuple(found if word.value == FOUND_PLACEHOLDER else word for word in inner), place
        )
        if step.needs != "nothing" or any(access.kind != "read" for access in step.accesses):
            raise UnsafeArguments(f"find runs {inner[0].text}")
        yield from (access for access in step.accesses if "*" not in access.target)


# Small languages inside an argument: sed, awk and jq, as far as they only look.


SED_OPTIONS = parse_option_spec(
    "-nErsuz -e_ -l_ --quiet --silent --expression= --regexp-extended --null-data --separate"
    " --unbuffered --line-length= --posix --sandbox --debug -i --in-place ; text*"
)
AWK_OPTIONS = parse_option_spec("-F_ -v_ --field-separator= --assign= ; text*")
JQ_OPTIONS = parse_option_spec(
    "-rRncCMSsejaA --raw-output --raw-input --null-input --compact-output --color-output"
    " --monochrome-output --sort-keys --slurp --exit-status --tab --indent= --join-output"
    " --ascii-output --unbuffered --stream --seq ; text*"
)
YQ_OPTIONS = parse_option_spec(
    "-rPCMejN0 -o_ -p_ -I_ --raw-output --prettyPrint --output-format= --input-format="
    " --no-colors --colors --exit-status --indent= --no-doc ; text*"
)
YQ_RISKY = compile_lazily(r"\b(?:load\w*|env\w*|strenv|system|eval|input_filename|filename|e|ea)\b")
SED_ADDRESS_PART = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
SED_ADDRESS = compile_lazily(
    rf"\s*(?:{SED_ADDRESS_PART}(?:\s*,\s*[+~]?{SED_ADDRESS_PART})?)?\s*!*\s*"
)
SED_PLAIN = compile_lazily(r"[pdqQnNgGhHxPD=lzF]\s*\d*")
SED_LABEL = compile_lazily(r"[btT:]\s*[A-Za-z0-9_]*")
SED_SUBSTITUTE = compile_lazily(
    r"s([/|,#@:!%_+=~])((?:(?!\1)[^\\\n]|\\.)*)\1((?:(?!\1)[^\\\n]|\\.)*)\1([gpiIm\d]*)"
)
SED_TRANSLATE = compile_lazily(r"y/((?:[^/\\\n]|\\.)*)/((?:[^/\\\n]|\\.)*)/")
SED_END = compile_lazily(r"\s*(?:[;}\n]\s*)*")
SED_FORMS = (SED_SUBSTITUTE, SED_TRANSLATE, SED_PLAIN, SED_LABEL)
AWK_STRING = compile_lazily(r'"(?:[^"\\\n]|\\.)*"')
AWK_REGEX = compile_lazily(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n]*\])+/")
BEFORE_REGEX = compile_lazily(
    r"(?:^|[(,!~&|;{}\n?:=<>*%^]|\b(?:print|printf|return|in|case|else|do))$"
)
"""After one of these, a slash begins a pattern and does not divide."""
AMBIGUOUS_SLASH = compile_lazily(r"[+-]$|\b(?:if|while|for)\b[^;{}\n]*\)$")
"""After one of these, only a parser can tell."""
AWK_CONTINUED = compile_lazily(r"(,|&&|\|\||\?|:|\bdo\b|\belse\b)[ \t]*(?:\n[ \t]*)+")
"""A line that goes on: the statement does not end here."""
AWK_RISKY = compile_lazily(
    r"\bsystem\b|\bgetline\b|\bclose\b|\bfflush\b|@|\bprintf?\b[^;}\n]*>|\|(?!\|)(?<!\|\|)|\bENVIRON\b"
    r"|\bARGV\b|\bARGC\b|\bPROCINFO\b|\binclude\b|\bload\b|\bextension\b|`|\\\n"
)
JQ_RISKY = compile_lazily(
    r"\binput_filename\b|\$ENV|\benv\b|\binclude\b|\bimport\b|\bmodulemeta\b|\bget_search_list\b"
)


MAX_SCRIPT_CHARS = 4_000
"""Longer scripts are not analyzed: some of these patterns take quadratic time."""


def analyze_sed(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Return the files that sed reads, or edits in place, if its script does nothing else."""
    given = parse_options(SED_OPTIONS, words)
    scripts = [value for name, value in given.options if name in ("-e", "--expression")]
    operands = given.operands
    if not scripts:
        if not operands:
            raise UnsafeArguments("sed has no script")
        scripts, operands = [operands[0]], operands[1:]
    for script in scripts:
        _check_sed_script(_known_script(script, "sed script"))
    in_place = given.has("-i", "--in-place")
    touch = write_accesses if in_place else read_accesses
    return tuple(access for word in operands for access in touch(word, place))


def _first_operand(options: ParsedOptions) -> ShellWord | None:
    return options.operands[0] if options.operands else None


def _known_script(word: ShellWord | None, what: str) -> str:
    """Return the text of a sed or awk script; raise unless all of it is known."""
    if word is None or word.value is None:
        raise UnsafeArguments(f"the {what} is only known at run time")
    if len(word.text) > MAX_SCRIPT_CHARS:
        raise UnsafeArguments(f"the {what} is too long to analyze")
    return word.text


def _check_sed_script(script: str) -> None:
    """Raise if a sed script writes, reads or runs anything else."""
    at, depth = 0, 0
    while at < len(script):
        at = _skip_match(SED_ADDRESS, script, at)
        if at >= len(script):
            return
        if script[at] in "{};\n":
            depth += 1
            at += 1
            continue
        found = next((f for form in SED_FORMS if (f := form.match(script, at))), None)
        if found is None:
            raise UnsafeArguments("the sed script does more than print and replace")
        at = _sed_command_end(script, found.end())


def _sed_command_end(script: str, at: int) -> int:
    """Return the position after one command of a sed script; raise if it cannot be parsed."""
    end = _skip_match(SED_END, script, at)
    if end == at and at < len(script):
        raise UnsafeArguments("the sed script could not be parsed")
    return end


def _skip_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def analyze_awk(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Return the files that awk reads, if its program neither writes nor runs anything."""
    given = parse_options(AWK_OPTIONS, words)
    bare = _strip_awk_literals(_known_script(_first_operand(given), "awk program"))
    if AWK_RISKY.search(bare):
        raise UnsafeArguments("the awk program does more than print")
    if re.search(r"\bprintf?\b[^;}\n]*>", bare) or re.search(r"[^=!<>]>>", bare):
        raise UnsafeArguments("the awk program writes a file")
    return tuple(_awk_accesses(given, place))


def _strip_awk_literals(program: str) -> str:
    """Return an awk program without its strings, patterns and comments."""
    code, at = "", 0
    while at < len(program):
        char = program[at]
        if char == "#":
            at = program.find("\n", at) if "\n" in program[at:] else len(program)
            continue
        before = code[-200:].rstrip(" \t") if char == "/" else ""
        if char == "/" and AMBIGUOUS_SLASH.search(before):
            raise UnsafeArguments("a slash in the awk program is ambiguous")
        pattern = char == "/" and bool(BEFORE_REGEX.search(before))
        if char != '"' and not pattern:
            code, at = code + char, at + 1
            continue
        found = (AWK_REGEX if pattern else AWK_STRING).match(program, at)
        if found is None:
            raise UnsafeArguments("the awk program could not be parsed")
        code, at = code + ' "" ', found.end()
    return AWK_CONTINUED.sub(r"\1 ", code)


def _awk_accesses(options: ParsedOptions, place: ProgramPlace) -> Iterator[Access]:
    """Yield the files that an awk call reads; raise if a variable is only known at run time."""
    for name, value in options.options:
        if name in ("-v", "--assign") and (value is None or value.value is None):
            raise UnsafeArguments("an awk variable is only known at run time")
    for word in options.operands[1:]:
        if "=" in word.text and word.text.partition("=")[0].isidentifier():
            continue
        yield from read_accesses(word, place)


def analyze_jq(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Return the files that jq reads, if its filter reads nothing else."""
    words = tuple(_strip_jq_arguments(words))
    given = parse_options(JQ_OPTIONS, words)
    if JQ_RISKY.search(_known_script(_first_operand(given), "jq filter")):
        raise UnsafeArguments("the jq filter reads more than its input")
    return tuple(access for word in given.operands[1:] for access in read_accesses(word, place))


def analyze_yq(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Return the files that yq reads, if its filter reads nothing else."""
    given = parse_options(YQ_OPTIONS, words)
    text = _known_script(_first_operand(given), "yq filter")
    if YQ_RISKY.search(text) or JQ_RISKY.search(text):
        raise UnsafeArguments("the yq filter reads more than its input")
    return tuple(access for word in given.operands[1:] for access in read_accesses(word, place))


def _strip_jq_arguments(words: tuple[ShellWord, ...]) -> Iterator[ShellWord]:
    """Yield the words of a jq call without `--arg` and `--argjson` and their values."""
    rest = iter(words)
    for word in rest:
        if word.value in ("--arg", "--argjson"):
            if any(not value.single for value in (next(rest, word), next(rest, word))):
                raise UnsafeArguments("a jq argument is only known at run time")
            continue
        yield word


def copy_accesses(options: ParsedOptions, place: ProgramPlace) -> Iterator[Access]:
    """Yield the files that a `cp` command writes."""
    if len(options.operands) < 2:
        raise UnsafeArguments("cp has no target")
    *sources, last = options.operands
    yield from write_accesses(last, place)
    yield from _arriving_accesses(sources, last, place)


def move_accesses(options: ParsedOptions, place: ProgramPlace) -> Iterator[Access]:
    """Yield the files that an `mv` command creates in its target folder."""
    if len(options.operands) < 2:
        raise UnsafeArguments("mv has no target")
    *sources, last = options.operands
    yield from _arriving_accesses(sources, last, place)


def _arriving_accesses(
    sources: list[ShellWord], last: ShellWord, place: ProgramPlace
) -> Iterator[Access]:
    """Yield the writes of `cp` and `mv` to the names that files get in a target folder."""
    for word in sources:
        name = word.text.rstrip("/").rpartition("/")[2]
        if name in ("", ".", "..") or last.kind != "plain":
            raise UnsafeArguments("the names it writes are only known at run time")
        arrived = ShellWord(f"{last.text.rstrip('/') or '/.'}/{name}", word.kind)
        yield from write_accesses(arrived, place)
