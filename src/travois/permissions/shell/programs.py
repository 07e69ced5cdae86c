"""Analysis of one program in a command line: its accesses, and the permission rule it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from posixpath import normpath

from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.permissions.access import Access
from travois.permissions.shell.families import is_shell_program, runs_its_input
from travois.permissions.shell.options import (
    EDITING_PROGRAMS,
    EXACT_RULE_PROGRAMS,
    HAZARDOUS_OPTIONS,
    HAZARDOUS_SHORT_OPTIONS,
    READ_ONLY_PROGRAMS,
    RULE_COVERED_PROGRAMS,
    SHELL_KEYWORDS,
    OptionSpec,
    ParsedOptions,
    UnsafeArguments,
    parse_option_spec,
    parse_options,
    parse_spec_table,
    strip_leading_options,
)
from travois.permissions.shell.plan import (
    CommandStep,
    ShellWord,
    is_assignable,
    is_harmless_variable,
)
from travois.permissions.shell.program_analyzers import (
    analyze_awk,
    analyze_find,
    analyze_git,
    analyze_jq,
    analyze_sed,
    analyze_yq,
    copy_accesses,
    move_accesses,
)
from travois.permissions.shell.state import ProgramPlace, join_folder, read_accesses, write_accesses

# Programs that run the program in their words: taken off, so that it is judged itself.


DURATION_ARGUMENT = compile_lazily(r"\d+(?:\.\d+)?[smhd]?")
POSIX_SHELLS = ("bash", "sh", "dash")
STATEFUL_BUILTINS = frozenset(
    ("cd", "read", "exec", "eval", "source", ".", "set", "export", "trap", "alias")
)
"""Builtins that change the shell itself: they are not unwrapped."""
PROGRAM_NAME = compile_lazily(r"[A-Za-z0-9_.][A-Za-z0-9_./+-]*|/[A-Za-z0-9_./+-]+|:|\[")
TIMEOUT_OPTIONS = parse_option_spec(
    "-v -k_ -s_ --foreground --preserve-status --verbose --signal= --kill-after= ;"
)
NICE_OPTIONS = parse_option_spec("-n_ --adjustment= ;")
STDBUF_OPTIONS = parse_option_spec("-i_ -o_ -e_ --input= --output= --error= ;")
XARGS_OPTIONS = parse_option_spec(
    "-0rtx -n_ -L_ -P_ -d_ -s_ --null --no-run-if-empty --max-args= --max-lines= ;"
)
TIME_OPTIONS = parse_option_spec("-p ;")
NO_OPTIONS = parse_option_spec(";")

ShellWords = tuple[ShellWord, ...]


def _check_program_name(words: ShellWords) -> ShellWords:
    """Return the words that a wrapper such as `env` runs; raise if the program is uncertain."""
    if not words or words[0].value is None:
        raise UnsafeArguments("the program it runs is only known at run time")
    if words[0].text in STATEFUL_BUILTINS:
        raise UnsafeArguments(f"{words[0].text} changes the state of the shell")
    if not PROGRAM_NAME.fullmatch(words[0].text) or words[0].text in SHELL_KEYWORDS:
        raise UnsafeArguments(f"{words[0].text} is not a program name")
    return words


def _unwrap_timeout(words: ShellWords) -> ShellWords:
    """Return the command that `timeout` runs; raise if its time limit or options are unknown."""
    rest = strip_leading_options(TIMEOUT_OPTIONS, words)
    if not rest or not DURATION_ARGUMENT.fullmatch(rest[0].value or ""):
        raise UnsafeArguments("the time limit is not a plain number")
    return _check_program_name(rest[1:])


def _unwrap_nice(words: ShellWords) -> ShellWords:
    """Return the command that `nice` runs; raise if its options are unknown."""
    if words and re.fullmatch(r"--?\d+", words[0].value or ""):
        return _check_program_name(words[1:])
    return _check_program_name(strip_leading_options(NICE_OPTIONS, words))


def _unwrap_env(words: ShellWords) -> ShellWords:
    """Return the command that `env` runs; raise if it sets a variable that is not harmless."""
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if not equals or word.kind != "plain" or word.text.startswith("-"):
            return _check_program_name(words[at:])
        if not is_harmless_variable(name, ShellWord(value), program="env"):
            raise UnsafeArguments(f"it runs with {name} set")
    return (ShellWord("printenv"),)


def _unwrap_xargs(words: ShellWords) -> ShellWords:
    rest = strip_leading_options(XARGS_OPTIONS, words) or (ShellWord("echo"),)
    return (*_check_program_name(rest), ShellWord("", "open", single=False))


def _unwrap_command(words: ShellWords) -> ShellWords | None:
    """Unwrap `command`; `command -v` only shows where a program is."""
    if words and words[0].value in ("-v", "-V"):
        return (ShellWord("which"), *words[1:])
    return _check_program_name(strip_leading_options(NO_OPTIONS, words))


WRAPPER_PROGRAMS: dict[str, Callable[[ShellWords], ShellWords | None]] = {
    "timeout": _unwrap_timeout,
    "nice": _unwrap_nice,
    "nohup": lambda words: _check_program_name(strip_leading_options(NO_OPTIONS, words)),
    "time": lambda words: _check_program_name(strip_leading_options(TIME_OPTIONS, words)),
    "stdbuf": lambda words: _check_program_name(strip_leading_options(STDBUF_OPTIONS, words)),
    "env": _unwrap_env,
    "xargs": _unwrap_xargs,
    "command": _unwrap_command,
    "builtin": lambda words: _check_program_name(strip_leading_options(NO_OPTIONS, words)),
}
"""Each takes itself off; what it cannot take off it refuses."""


# Builtins of the shell that need more than a list of options to be understood.


VARIABLE_NAME = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*")
READ_OPTIONS = parse_option_spec("-rs -p_ -d_ -n_ -N_ -t_ ; text*")
UNARY_TESTS = split_names(
    """
    -a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n ! ( )
    """
)
BINARY_TESTS = split_names(
    """
    = == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef
    """
)


def _analyze_cd(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Return the folders that `cd` leads to, one for each that it may start from."""
    given = parse_options(parse_option_spec("; text*"), words)
    if len(given.operands) > 1:
        raise UnsafeArguments("cd has more than one argument")
    word = given.operands[0] if given.operands else ShellWord(place.start.home)
    if word.kind != "plain" or not word.text or word.text == "-" or word.text.startswith("-"):
        raise UnsafeArguments("the target of cd is only known at run time")
    return tuple(Access("read", normpath(join_folder(word.text, cwd))) for cwd in place.cwds)


def _analyze_read(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Analyze `read`, which may set only plain names."""
    for word in parse_options(READ_OPTIONS, words).operands:
        if not VARIABLE_NAME.fullmatch(word.value or "") or not is_assignable(word.text):
            raise UnsafeArguments("the variable that read sets is not a plain name")
    return ()


def _analyze_printf(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Analyze `printf`, which needs a known format; `-v` would evaluate a name."""
    if words and words[0].value == "--":
        words = words[1:]
    if not words or words[0].kind != "plain" or words[0].text.startswith("-"):
        raise UnsafeArguments("the format of printf is only known at run time")
    if re.search(r"%[^%A-Za-z]*n", words[0].text.replace("%%", "")):
        raise UnsafeArguments("%n sets a variable")
    return ()


def _analyze_test(words: tuple[ShellWord, ...], place: ProgramPlace) -> tuple[Access, ...]:
    """Analyze `test` and `[`; `-v` and `-R` evaluate their operands."""
    for at, word in enumerate(words):
        before = words[at - 1].value if at else None
        after = words[at + 1].value if at + 1 < len(words) else None
        if word.kind == "open" and not word.single:
            raise UnsafeArguments("the number of words from an expansion is only known at run time")
        if word.kind == "open" and not (
            before in UNARY_TESTS | BINARY_TESTS or after in BINARY_TESTS
        ):
            raise UnsafeArguments("the tested value is only known at run time")
        if word.value in ("-v", "-R"):
            raise UnsafeArguments("it evaluates the name of a variable")
    return ()


SHELL_BUILTINS: dict[str, Callable[[tuple[ShellWord, ...], ProgramPlace], tuple[Access, ...]]] = {
    "cd": _analyze_cd,
    "read": _analyze_read,
    "printf": _analyze_printf,
    "test": _analyze_test,
    "[": _analyze_test,
}


SYSTEM_FOLDERS = ("/bin/", "/usr/bin/")
PATH_LIKE = compile_lazily(r"[/~]|\.\.?(?:/|$)|.*/")
LOCAL_SCHEMES = compile_lazily(
    r"(?:file|dict|gopher|ldap|scp|sftp|smb|telnet|tftp):", re.IGNORECASE
)
PLAIN_WORD = compile_lazily(r"[A-Za-z0-9_-]+")
NO_HOST_NAME = compile_lazily(
    r"[\d.:/*\[\]=<>!()&|-]+|:[\w,-]+|[46]?(?:tcp|udp)?(?::[\w,-]*)?|(?:tcp|udp):\w+|sport|dport"
    r"|state|all|connected|established|listening|listen|or|and|not|eq|ne|[lg][te]|[\w-]+-wait",
    re.IGNORECASE,
)
"""Addresses, ports and words of a filter: whatever holds no name of a host."""
FILE_VALUE = compile_lazily(r"@|.*%output\{", re.DOTALL)
"""Values for which curl reads or writes a file."""
PROGRAM_OPTION_NAME = compile_lazily(r"exec|command|program|askpass|preload|plugin|wrapper|hook")
HAZARDOUS_OPTION_REASON = "the option {} may name another program, folder or file"
MAX_WRAPPERS = 6
BASH_ONLY_SYNTAX = compile_lazily(
    r"\{[^}\s]*(?:,|\.\.)[^}\s]*\}|\$['\"]|\[\[|[<>]\(|<<<|&>|>&(?!\s*[\d-])|\|&|;;?&|\$\["
    r"|[@!?+*]\(|\(\(|\b(?:function|time|coproc|select|source|declare|let|read)\b"
)
"""Syntax that other shells read differently: braces, `$'`, and words of bash."""
QUOTED_CHARACTERS = compile_lazily(r"[^A-Za-z0-9_./:,@%+=^~-]")

AnalyzeArguments = Callable[[tuple[ShellWord, ...], ProgramPlace], tuple[Access, ...]]
PROGRAM_ANALYZERS: dict[str, AnalyzeArguments] = {
    "git": analyze_git,
    "sed": analyze_sed,
    "awk": analyze_awk,
    "gawk": analyze_awk,
    "mawk": analyze_awk,
    "find": lambda words, place: analyze_find(words, place, analyze_program),
    "jq": analyze_jq,
    "yq": analyze_yq,
    **SHELL_BUILTINS,
}
"""Programs whose words need more than a list of options to be understood."""


def analyze_program(
    argv: tuple[ShellWord, ...], place: ProgramPlace, *, depth: int = 0
) -> CommandStep:
    """Analyze a program in a command line: its accesses and the permission rule it needs."""
    if not argv or argv[0].value is None or not argv[0].text:
        return CommandStep(argv, "exact", "the program is only known at run time")
    if depth > MAX_WRAPPERS:
        return CommandStep(argv, "exact", "too many programs start one another")
    step = _analyze_wrapper(argv, place, depth=depth) or _analyze_unwrapped(argv, place)
    return replace(step, texts=(*step.texts, quote_words(argv)))


def _analyze_wrapper(
    argv: tuple[ShellWord, ...], place: ProgramPlace, *, depth: int
) -> CommandStep | None:
    """Return the step for a program that only runs another one; None for others."""
    name = argv[0].text
    words = [word.value for word in argv]
    if name in POSIX_SHELLS and len(words) == 3 and words[1] == "-c" and words[2] is not None:
        place.script(words[2])
        why = "a shell runs after the folder may have changed" if place.has_moved else ""
        if name != "bash" and BASH_ONLY_SYNTAX.search(words[2]):
            why = f"{name} may parse this differently from bash"
        return CommandStep(argv, "exact" if why else "nothing", why, known=True)
    if name == "eval" and None not in words:
        place.script(" ".join(word or "" for word in words[1:]))
    unwrap = WRAPPER_PROGRAMS.get(name)
    if unwrap is None:
        return None
    try:
        inner = unwrap(argv[1:])
    except UnsafeArguments as refused:
        return CommandStep(argv, "exact", str(refused), tuple(_likely_accesses(argv[1:], place)))
    return None if inner is None else analyze_program(inner, place, depth=depth + 1)


def _analyze_unwrapped(argv: tuple[ShellWord, ...], place: ProgramPlace) -> CommandStep:
    """Analyze a call of one program as read-only, as an edit, or as one that needs a rule."""
    name = argv[0].text
    for folder in SYSTEM_FOLDERS:
        name = name.removeprefix(folder)
    wanted = parse_spec_table(READ_ONLY_PROGRAMS).get(name) or parse_spec_table(
        EDITING_PROGRAMS
    ).get(name)
    try:
        if name in PROGRAM_ANALYZERS:
            accesses = PROGRAM_ANALYZERS[name](argv[1:], place)
            edits = name == "sed" and quote_words(argv[1:2]).startswith("-i")
            return CommandStep(argv, "nothing", accesses=accesses, known=True, edits=edits)
        if wanted is not None:
            return _analyze_listed_program(argv, wanted, place)
    except UnsafeArguments as refused:
        if wanted is None or "asked" not in wanted.marks:
            return _analyze_ruled_program(argv, place, why=str(refused))
    return _analyze_ruled_program(argv, place, why=f"{name} is not a known read-only command")


def _analyze_listed_program(
    argv: tuple[ShellWord, ...], option: OptionSpec, place: ProgramPlace
) -> CommandStep:
    """Analyze a call of a program in the tables of read-only and editing programs."""
    try:
        given = parse_options(option, argv[1:])
        accesses = tuple(_listed_accesses(given, option, place))
    except UnsafeArguments as refused:
        if "tame" not in option.marks:
            raise
        found = tuple(_accesses_of_unknown_program(argv[1:], place))
        return CommandStep(argv, "rule", str(refused), found, known=True)
    if argv[0].text == "cp":
        accesses = (*accesses, *copy_accesses(given, place))
    if argv[0].text == "mv":
        accesses = (*accesses, *move_accesses(given, place))
    edits = argv[0].text in parse_spec_table(EDITING_PROGRAMS)
    return CommandStep(argv, "nothing", accesses=accesses, known=True, edits=edits)


def _listed_accesses(
    options: ParsedOptions, option: OptionSpec, place: ProgramPlace
) -> Iterator[Access]:
    """Yield the files that a listed program reads and writes, from its options and operands."""
    _check_values(options, option)
    for name, value in options.options:
        kind = option.long.get(name) or option.short.get(name[1:])
        if value is not None and kind == "file":
            yield from read_accesses(value, place)
    kinds = list(option.operands)
    given_pattern = options.has("-e", "-f", "--regexp", "--file", "--files", "--type-list")
    if "pattern" in option.marks and given_pattern:
        kinds = kinds[1:]
    deep = "deep" in option.marks
    files = 0
    for kind, word in _classify_operands(kinds, options.operands, option):
        files += kind == "file"
        if kind == "file":
            yield from read_accesses(word, place, deep=deep)
        elif kind == "write":
            yield from write_accesses(word, place)
    recursive = "cwd" in option.marks or (deep and options.has("-r", "-R", "--recursive"))
    if not files and recursive:
        yield from read_accesses(ShellWord("."), place, deep=deep)


def _check_values(options: ParsedOptions, option: OptionSpec) -> None:
    """Raise for an argument that makes a listed program read or reach something else."""
    if "response" in option.marks and any(_may_begin_with(word, "@") for word in options.operands):
        raise UnsafeArguments("an @file argument may add more arguments")
    if "local" in option.marks:
        files = "file*" in option.operands
        values = [value for name, value in options.options if value is not None and name == "-i"]
        filters = () if files else options.operands
        if not all(NO_HOST_NAME.fullmatch(word.value or "?") for word in (*values, *filters)):
            raise UnsafeArguments("it may look up a host name")
        if any(_may_begin_with(word, "+") for word in options.operands):
            raise UnsafeArguments("an argument with a plus sign is an option")


def _may_begin_with(word: ShellWord, char: str) -> bool:
    """Return whether the program may see a word that begins with this character."""
    return word.kind == "open" or word.text[:1] in (char, "*", "?", "[")


def _classify_operands(
    kinds: list[str], operands: tuple[ShellWord, ...], option: OptionSpec
) -> Iterator[tuple[str, ShellWord]]:
    """Yield each operand of a listed program with its kind; raise if there are too many."""
    rest = list(kinds)
    for word in operands:
        if "plus" in option.marks and word.text.startswith("+"):
            continue
        if "number-text" in option.marks and word.text.isdigit():
            continue
        if not rest:
            raise UnsafeArguments(f"the argument {word.text!r} is not known to be read-only")
        kind = rest[0]
        if not kind.endswith("*"):
            rest.pop(0)
            if not word.single:
                raise UnsafeArguments(
                    "the number of words from an expansion is only known at run time"
                )
        yield kind.rstrip("*"), word


def _analyze_ruled_program(
    argv: tuple[ShellWord, ...], place: ProgramPlace, *, why: str
) -> CommandStep:
    """Analyze a program that a wildcard permission rule may allow."""
    words = [word.value or "" for word in argv[:3]]
    prefixes = (" ".join(words[:count]) for count in (3, 2, 1))
    found = next(
        (prefix for prefix in prefixes if prefix in parse_spec_table(RULE_COVERED_PROGRAMS)), None
    )
    try:
        if argv[0].text in EXACT_RULE_PROGRAMS | SHELL_KEYWORDS:
            raise UnsafeArguments(f"{argv[0].text} runs what its arguments say")
        # A rule such as `python3:*` means any Python; one for a shell means its own words.
        if is_shell_program(argv) and runs_its_input(argv):
            raise UnsafeArguments("it runs code from its input")
        if found is not None:
            wanted = parse_spec_table(RULE_COVERED_PROGRAMS)[found]
            accesses = tuple(_ordinary_call_accesses(argv[found.count(" ") + 1 :], wanted, place))
            known, edits = "runs" not in wanted.marks, "edits" in wanted.marks
            return CommandStep(argv, "rule", why, accesses, known=known, edits=edits)
        looks = parse_spec_table(READ_ONLY_PROGRAMS).get(argv[0].text)
        if argv[0].text in PROGRAM_ANALYZERS or (looks and "asked" not in looks.marks):
            raise UnsafeArguments(why)
        accesses = tuple(_accesses_of_unknown_program(argv[1:], place, careful=True))
        if named := tuple(_hazardous_options(argv[1:])):
            return CommandStep(
                argv, "exact", HAZARDOUS_OPTION_REASON.format(named[0]), accesses, named=named
            )
    except UnsafeArguments as refused:
        return CommandStep(argv, "exact", str(refused), tuple(_likely_accesses(argv[1:], place)))
    return CommandStep(argv, "rule", why, accesses)


def _ordinary_call_accesses(
    words: tuple[ShellWord, ...], option: OptionSpec, place: ProgramPlace
) -> Iterator[Access]:
    """Yield the accesses of a program called with ordinary options only."""
    values = [word.value for word in words]
    if "passes" in option.marks and "--" in values:
        at = values.index("--")
        for name in _hazardous_options(words[at + 1 :]):
            raise UnsafeArguments(HAZARDOUS_OPTION_REASON.format(name))
        yield from _accesses_of_unknown_program(words[at + 1 :], place, careful=True)
        words = words[:at]
    if "dashed" in option.marks and not (words and words[0].text.startswith("-")):
        raise UnsafeArguments("its options have no dash")
    given = parse_options(option, words)
    for word in given.operands:
        if word.kind == "open" or (word.kind == "glob" and word.text[0] in "*?["):
            raise UnsafeArguments("an argument is only known at run time")
    yield from _operand_accesses(given, option, place)
    for name, value in given.options:
        kind = option.long.get(name) or option.short.get(name[1:])
        _check_ordinary_value(name, value, option)
        if kind == "file" and value is not None:
            yield from read_accesses(value, place)
        if kind == "name" and (value is None or not PLAIN_WORD.fullmatch(value.text)):
            raise UnsafeArguments(f"the value of {name} may be a file")


def _check_ordinary_value(name: str, value: ShellWord | None, option: OptionSpec) -> None:
    """Raise if an option's value is a file or names something on another machine."""
    if value is None:
        return
    if "values" in option.marks and FILE_VALUE.match(value.text):
        raise UnsafeArguments(f"the value of {name} may name a file")
    if "archive" in option.marks and ":" in value.text and name in ("-f", "--file"):
        raise UnsafeArguments(f"the value of {name} may name another machine")


def _operand_accesses(
    options: ParsedOptions, option: OptionSpec, place: ProgramPlace
) -> Iterator[Access]:
    """Yield accesses for the operands of an ordinary call that are paths."""
    if "targets" in option.marks:
        if any("=" in word.text for word in options.operands):
            raise UnsafeArguments("it sets a makefile variable")
        return
    if "ip" in option.marks:
        if len(options.operands) > 1 and options.operands[1].text not in ("show", "list", "ls"):
            raise UnsafeArguments("it changes the network")
        return
    for kind, word in _classify_operands(list(option.operands), options.operands, option):
        if LOCAL_SCHEMES.match(word.text) or ("remote" in option.marks and "::" in word.text):
            raise UnsafeArguments(f"{word.text} is not a plain file name")
        if kind == "file" and word.text[:1] in ("+", "@"):
            raise UnsafeArguments(f"{word.text} may be more than a file name")
        if kind == "write":
            yield from write_accesses(word, place)
        elif kind == "file" or (PATH_LIKE.match(word.text) and "://" not in word.text):
            yield from read_accesses(word, place)


def _accesses_of_unknown_program(
    words: tuple[ShellWord, ...], place: ProgramPlace, *, careful: bool = False
) -> Iterator[Access]:
    """Yield the paths among the arguments of an unknown program."""
    for word in words:
        if word.kind == "open":
            raise UnsafeArguments("an argument is only known at run time")
        name, _, value = word.text.partition("=")
        dashed = name.startswith("-")
        if careful and word.kind == "glob" and word.text[0] in "*?[":
            raise UnsafeArguments("a file name that begins with a dash would be an option")
        path = ShellWord(value, word.kind) if dashed or value else word
        if LOCAL_SCHEMES.match(path.text):
            raise UnsafeArguments(f"{path.text} is not a plain file name")
        if path.text and PATH_LIKE.match(path.text) and "://" not in path.text:
            yield from read_accesses(path, place)


def _likely_accesses(words: tuple[ShellWord, ...], place: ProgramPlace) -> Iterator[Access]:
    """Yield accesses for a program's words that are likely paths, without raising."""
    for word in words:
        path = ShellWord(word.text.partition("=")[2] or word.text, word.kind)
        known = path.kind != "open" and not path.text.startswith("-") and "\n" not in path.text
        if known and PATH_LIKE.match(path.text):
            yield from read_accesses(path, place)


def _hazardous_options(words: tuple[ShellWord, ...]) -> Iterator[str]:
    """Yield a program's options that may name another program, folder or file."""
    names = (word.text.partition("=")[0] for word in words)
    yield from (name for name in names if name.startswith("-") and _is_hazardous_option(name))


def _is_hazardous_option(name: str) -> bool:
    """Return whether an option may name another program, folder or file to use."""
    if name.startswith("--"):
        if PROGRAM_OPTION_NAME.search(name):
            return True
        return name[2:].removeprefix("no-").casefold() in HAZARDOUS_OPTIONS
    letters = name[1:4] if len(name) <= 4 else name[1:2]
    return (
        bool(HAZARDOUS_SHORT_OPTIONS.intersection(letters))
        or name[1:].casefold() in HAZARDOUS_OPTIONS
    )


def quote_words(argv: tuple[ShellWord, ...]) -> str:
    """Render shell words for a permission rule; unknown ones become an ellipsis."""
    return " ".join(_quote_word(word) for word in argv)


def _quote_word(word: ShellWord) -> str:
    """Render a shell word for a rule, quoted if needed, with an ellipsis for an unknown part."""
    if word.kind == "open":
        return f"{word.text}…"
    if word.kind == "glob" or (word.text and not QUOTED_CHARACTERS.search(word.text)):
        return word.text
    return "'" + word.text.replace("'", "'\\''") + "'"
