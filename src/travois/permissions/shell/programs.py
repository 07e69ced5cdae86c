"""Analysis of one program call: its accesses, and the rule it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from posixpath import normpath

from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.permissions.access import Access
from travois.permissions.shell.families import is_shell, reads_program
from travois.permissions.shell.options import Given, Refused, Spec, ahead, sort, spec, table
from travois.permissions.shell.place import Place, reading, writing
from travois.permissions.shell.plan import Step, Word, assignable, passable
from travois.permissions.shell.special import awk, find, git, jq, sed, yq
from travois.permissions.shell.state import located
from travois.permissions.shell.tables import (
    ALWAYS,
    EDITS,
    HAZARDS,
    LOOKS,
    RESERVED,
    RULED,
    SHORT_HAZARDS,
)

# Programs that run the program in their words: taken off, so that it is judged itself.


DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
SHELLS = ("bash", "sh", "dash")
STATEFUL = frozenset(
    ("cd", "read", "exec", "eval", "source", ".", "set", "export", "trap", "alias")
)
"""Builtins that change the shell itself: they are not unwrapped."""
PROGRAM_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./+-]*|/[A-Za-z0-9_./+-]+|:|\[")
TIMEOUT = spec("-v -k_ -s_ --foreground --preserve-status --verbose --signal= --kill-after= ;")
NICE = spec("-n_ --adjustment= ;")
STDBUF = spec("-i_ -o_ -e_ --input= --output= --error= ;")
XARGS = spec("-0rtx -n_ -L_ -P_ -d_ -s_ --null --no-run-if-empty --max-args= --max-lines= ;")
TIME = spec("-p ;")
NONE = spec(";")

Words = tuple[Word, ...]


def _program(words: Words) -> Words:
    if not words or words[0].value is None:
        raise Refused("the program it runs is only known at run time")
    if words[0].text in STATEFUL:
        raise Refused(f"{words[0].text} changes the state of the shell")
    if not PROGRAM_NAME.fullmatch(words[0].text) or words[0].text in RESERVED:
        raise Refused(f"{words[0].text} is not a program name")
    return words


def _timeout(words: Words) -> Words:
    rest = ahead(TIMEOUT, words)
    if not rest or not DURATION.fullmatch(rest[0].value or ""):
        raise Refused("the time limit is not a plain number")
    return _program(rest[1:])


def _nice(words: Words) -> Words:
    if words and re.fullmatch(r"--?\d+", words[0].value or ""):
        return _program(words[1:])
    return _program(ahead(NICE, words))


def _env(words: Words) -> Words:
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if not equals or word.kind != "plain" or word.text.startswith("-"):
            return _program(words[at:])
        if not passable(name, Word(value), program="env"):
            raise Refused(f"it runs with {name} set")
    return (Word("printenv"),)


def _xargs(words: Words) -> Words:
    rest = ahead(XARGS, words) or (Word("echo"),)
    return (*_program(rest), Word("", "open", single=False))


def _command(words: Words) -> Words | None:
    """Unwrap `command`; `command -v` only shows where a program is."""
    if words and words[0].value in ("-v", "-V"):
        return (Word("which"), *words[1:])
    return _program(ahead(NONE, words))


WRAPPERS: dict[str, Callable[[Words], Words | None]] = {
    "timeout": _timeout,
    "nice": _nice,
    "nohup": lambda words: _program(ahead(NONE, words)),
    "time": lambda words: _program(ahead(TIME, words)),
    "stdbuf": lambda words: _program(ahead(STDBUF, words)),
    "env": _env,
    "xargs": _xargs,
    "command": _command,
    "builtin": lambda words: _program(ahead(NONE, words)),
}
"""Each takes itself off; what it cannot take off it refuses."""


# Builtins of the shell that need more than a list of options to be understood.


VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
READ = spec("-rs -p_ -d_ -n_ -N_ -t_ ; text*")
UNARY = split_names(
    """
    -a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n ! ( )
    """
)
BINARY = split_names(
    """
    = == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef
    """
)


def _cd(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Return where `cd` leads, once for each folder that it may start from."""
    given = sort(spec("; text*"), words)
    if len(given.operands) > 1:
        raise Refused("cd has more than one argument")
    word = given.operands[0] if given.operands else Word(place.start.home)
    if word.kind != "plain" or not word.text or word.text == "-" or word.text.startswith("-"):
        raise Refused("the target of cd is only known at run time")
    return tuple(Access("read", normpath(located(word.text, cwd))) for cwd in place.cwds)


def _read(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Analyze `read`, which may set only plain names."""
    for word in sort(READ, words).operands:
        if not VARIABLE_NAME.fullmatch(word.value or "") or not assignable(word.text):
            raise Refused("the variable that read sets is not a plain name")
    return ()


def _printf(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Analyze `printf`, which needs a known format; `-v` would evaluate a name."""
    if words and words[0].value == "--":
        words = words[1:]
    if not words or words[0].kind != "plain" or words[0].text.startswith("-"):
        raise Refused("the format of printf is only known at run time")
    if re.search(r"%[^%A-Za-z]*n", words[0].text.replace("%%", "")):
        raise Refused("%n sets a variable")
    return ()


def _test(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """Analyze `test` and `[`; `-v` and `-R` evaluate their operands."""
    for at, word in enumerate(words):
        before = words[at - 1].value if at else None
        after = words[at + 1].value if at + 1 < len(words) else None
        if word.kind == "open" and not word.single:
            raise Refused("the number of words from an expansion is only known at run time")
        if word.kind == "open" and not (before in UNARY | BINARY or after in BINARY):
            raise Refused("the tested value is only known at run time")
        if word.value in ("-v", "-R"):
            raise Refused("it evaluates the name of a variable")
    return ()


BUILTINS: dict[str, Callable[[tuple[Word, ...], Place], tuple[Access, ...]]] = {
    "cd": _cd,
    "read": _read,
    "printf": _printf,
    "test": _test,
    "[": _test,
}


SYSTEM = ("/bin/", "/usr/bin/")
PATHLIKE = re.compile(r"[/~]|\.\.?(?:/|$)|.*/")
LOCAL = re.compile(r"(?:file|dict|gopher|ldap|scp|sftp|smb|telnet|tftp):", re.IGNORECASE)
PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]+")
LOCAL_NAME = re.compile(
    r"[\d.:/*\[\]=<>!()&|-]+|:[\w,-]+|[46]?(?:tcp|udp)?(?::[\w,-]*)?|(?:tcp|udp):\w+|sport|dport"
    r"|state|all|connected|established|listening|listen|or|and|not|eq|ne|[lg][te]|[\w-]+-wait",
    re.IGNORECASE,
)
"""Addresses, ports and words of a filter: whatever holds no name of a host."""
FILED = re.compile(r"@|.*%output\{", re.DOTALL)
"""Values for which curl reads or writes a file."""
RUNNING = re.compile(r"exec|command|program|askpass|preload|plugin|wrapper|hook")
HAZARD = "the option {} may name another program, folder or file"
MAX_WRAPPERS = 6
BASH_ONLY = re.compile(
    r"\{[^}\s]*(?:,|\.\.)[^}\s]*\}|\$['\"]|\[\[|[<>]\(|<<<|&>|>&(?!\s*[\d-])|\|&|;;?&|\$\["
    r"|[@!?+*]\(|\(\(|\b(?:function|time|coproc|select|source|declare|let|read)\b"
)
"""Syntax that other shells read differently: braces, `$'`, and words of bash."""
NEEDS_QUOTES = re.compile(r"[^A-Za-z0-9_./:,@%+=^~-]")

Study = Callable[[tuple[Word, ...], Place], tuple[Access, ...]]
STUDIES: dict[str, Study] = {
    "git": git,
    "sed": sed,
    "awk": awk,
    "gawk": awk,
    "mawk": awk,
    "find": lambda words, place: find(words, place, study),
    "jq": jq,
    "yq": yq,
    **BUILTINS,
}
"""Programs whose words need more than a list of options to be understood."""


def study(argv: tuple[Word, ...], place: Place, *, depth: int = 0) -> Step:
    """Return the step for a program call: its accesses and the rule it needs."""
    if not argv or argv[0].value is None or not argv[0].text:
        return Step(argv, "exact", "the program is only known at run time")
    if depth > MAX_WRAPPERS:
        return Step(argv, "exact", "too many programs start one another")
    step = _wrapped(argv, place, depth=depth) or _studied(argv, place)
    return replace(step, texts=(*step.texts, text(argv)))


def _wrapped(argv: tuple[Word, ...], place: Place, *, depth: int) -> Step | None:
    """Return the step for a program that only runs another one; None for others."""
    name = argv[0].text
    words = [word.value for word in argv]
    if name in SHELLS and len(words) == 3 and words[1] == "-c" and words[2] is not None:
        place.script(words[2])
        why = "a shell runs after the folder may have changed" if place.moved else ""
        if name != "bash" and BASH_ONLY.search(words[2]):
            why = f"{name} may parse this differently from bash"
        return Step(argv, "exact" if why else "nothing", why, known=True)
    if name == "eval" and None not in words:
        place.script(" ".join(word or "" for word in words[1:]))
    unwrap = WRAPPERS.get(name)
    if unwrap is None:
        return None
    try:
        inner = unwrap(argv[1:])
    except Refused as refused:
        return Step(argv, "exact", str(refused), tuple(_noticed(argv[1:], place)))
    return None if inner is None else study(inner, place, depth=depth + 1)


def _studied(argv: tuple[Word, ...], place: Place) -> Step:
    name = argv[0].text
    for folder in SYSTEM:
        name = name.removeprefix(folder)
    wanted = table(LOOKS).get(name) or table(EDITS).get(name)
    try:
        if name in STUDIES:
            accesses = STUDIES[name](argv[1:], place)
            edits = name == "sed" and text(argv[1:2]).startswith("-i")
            return Step(argv, "nothing", accesses=accesses, known=True, edits=edits)
        if wanted is not None:
            return _listed(argv, wanted, place)
    except Refused as refused:
        if wanted is None or "asked" not in wanted.marks:
            return _ruled(argv, place, why=str(refused))
    return _ruled(argv, place, why=f"{name} is not a known read-only command")


def _listed(argv: tuple[Word, ...], wanted: Spec, place: Place) -> Step:
    try:
        given = sort(wanted, argv[1:])
        accesses = tuple(_touched(given, wanted, place))
    except Refused as refused:
        if "tame" not in wanted.marks:
            raise
        found = tuple(_mentioned(argv[1:], place))
        return Step(argv, "rule", str(refused), found, known=True)
    if argv[0].text == "cp":
        accesses = (*accesses, *_copied(given, place))
    if argv[0].text == "mv":
        accesses = (*accesses, *_moved(given, place))
    edits = argv[0].text in table(EDITS)
    return Step(argv, "nothing", accesses=accesses, known=True, edits=edits)


def _touched(given: Given, wanted: Spec, place: Place) -> Iterator[Access]:
    _check_values(given, wanted)
    for name, value in given.options:
        kind = wanted.long.get(name) or wanted.short.get(name[1:])
        if value is not None and kind == "file":
            yield from reading(value, place)
    kinds = list(wanted.operands)
    given_pattern = given.has("-e", "-f", "--regexp", "--file", "--files", "--type-list")
    if "pattern" in wanted.marks and given_pattern:
        kinds = kinds[1:]
    deep = "deep" in wanted.marks
    files = 0
    for kind, word in _matched(kinds, given.operands, wanted):
        files += kind == "file"
        if kind == "file":
            yield from reading(word, place, deep=deep)
        elif kind == "write":
            yield from writing(word, place)
    recursive = "cwd" in wanted.marks or (deep and given.has("-r", "-R", "--recursive"))
    if not files and recursive:
        yield from reading(Word("."), place, deep=deep)


def _check_values(given: Given, wanted: Spec) -> None:
    """Raise for a value or operand that makes the program read or reach something else."""
    if "response" in wanted.marks and any(_begins(word, "@") for word in given.operands):
        raise Refused("an @file argument may add more arguments")
    if "local" in wanted.marks:
        files = "file*" in wanted.operands
        values = [value for name, value in given.options if value is not None and name == "-i"]
        filters = () if files else given.operands
        if not all(LOCAL_NAME.fullmatch(word.value or "?") for word in (*values, *filters)):
            raise Refused("it may look up a host name")
        if any(_begins(word, "+") for word in given.operands):
            raise Refused("an argument with a plus sign is an option")


def _begins(word: Word, char: str) -> bool:
    """Return whether a word may begin with this character when the program sees it."""
    return word.kind == "open" or word.text[:1] in (char, "*", "?", "[")


def _matched(
    kinds: list[str], operands: tuple[Word, ...], wanted: Spec
) -> Iterator[tuple[str, Word]]:
    """Yield each operand with its kind; raise for more than the program may have."""
    rest = list(kinds)
    for word in operands:
        if "plus" in wanted.marks and word.text.startswith("+"):
            continue
        if "number-text" in wanted.marks and word.text.isdigit():
            continue
        if not rest:
            raise Refused(f"the argument {word.text!r} is not known to be read-only")
        kind = rest[0]
        if not kind.endswith("*"):
            rest.pop(0)
            if not word.single:
                raise Refused("the number of words from an expansion is only known at run time")
        yield kind.rstrip("*"), word


def _copied(given: Given, place: Place) -> Iterator[Access]:
    if len(given.operands) < 2:
        raise Refused("cp has no target")
    *sources, last = given.operands
    yield from writing(last, place)
    yield from _arrived(sources, last, place)


def _moved(given: Given, place: Place) -> Iterator[Access]:
    if len(given.operands) < 2:
        raise Refused("mv has no target")
    *sources, last = given.operands
    yield from _arrived(sources, last, place)


def _arrived(sources: list[Word], last: Word, place: Place) -> Iterator[Access]:
    """Yield writes to the names that files get in a target folder."""
    for word in sources:
        name = word.text.rstrip("/").rpartition("/")[2]
        if name in ("", ".", "..") or last.kind != "plain":
            raise Refused("the names it writes are only known at run time")
        arrived = Word(f"{last.text.rstrip('/') or '/.'}/{name}", word.kind)
        yield from writing(arrived, place)


def _ruled(argv: tuple[Word, ...], place: Place, *, why: str) -> Step:
    """Return the step for a call that a wildcard rule may cover."""
    words = [word.value or "" for word in argv[:3]]
    prefixes = (" ".join(words[:count]) for count in (3, 2, 1))
    found = next((prefix for prefix in prefixes if prefix in table(RULED)), None)
    try:
        if argv[0].text in ALWAYS | RESERVED:
            raise Refused(f"{argv[0].text} runs what its arguments say")
        # A rule such as `python3:*` means any Python; one for a shell means its own words.
        if is_shell(argv) and reads_program(argv):
            raise Refused("it runs code from its input")
        if found is not None:
            wanted = table(RULED)[found]
            accesses = tuple(_ordinary(argv[found.count(" ") + 1 :], wanted, place))
            known, edits = "runs" not in wanted.marks, "edits" in wanted.marks
            return Step(argv, "rule", why, accesses, known=known, edits=edits)
        looks = table(LOOKS).get(argv[0].text)
        if argv[0].text in STUDIES or (looks and "asked" not in looks.marks):
            raise Refused(why)
        accesses = tuple(_mentioned(argv[1:], place, careful=True))
        if named := tuple(_hazards(argv[1:])):
            return Step(argv, "exact", HAZARD.format(named[0]), accesses, named=named)
    except Refused as refused:
        return Step(argv, "exact", str(refused), tuple(_noticed(argv[1:], place)))
    return Step(argv, "rule", why, accesses)


def _ordinary(words: tuple[Word, ...], wanted: Spec, place: Place) -> Iterator[Access]:
    """Yield the accesses of a call with ordinary options only."""
    values = [word.value for word in words]
    if "passes" in wanted.marks and "--" in values:
        at = values.index("--")
        for name in _hazards(words[at + 1 :]):
            raise Refused(HAZARD.format(name))
        yield from _mentioned(words[at + 1 :], place, careful=True)
        words = words[:at]
    if "dashed" in wanted.marks and not (words and words[0].text.startswith("-")):
        raise Refused("its options have no dash")
    given = sort(wanted, words)
    for word in given.operands:
        if word.kind == "open" or (word.kind == "glob" and word.text[0] in "*?["):
            raise Refused("an argument is only known at run time")
    yield from _named(given, wanted, place)
    for name, value in given.options:
        kind = wanted.long.get(name) or wanted.short.get(name[1:])
        _check_ordinary(name, value, wanted)
        if kind == "file" and value is not None:
            yield from reading(value, place)
        if kind == "name" and (value is None or not PLAIN_WORD.fullmatch(value.text)):
            raise Refused(f"the value of {name} may be a file")


def _check_ordinary(name: str, value: Word | None, wanted: Spec) -> None:
    """Raise for a value that stands for a file or for something on another machine."""
    if value is None:
        return
    if "values" in wanted.marks and FILED.match(value.text):
        raise Refused(f"the value of {name} may name a file")
    if "archive" in wanted.marks and ":" in value.text and name in ("-f", "--file"):
        raise Refused(f"the value of {name} may name another machine")


def _named(given: Given, wanted: Spec, place: Place) -> Iterator[Access]:
    """Yield the operands of an ordinary call that are paths."""
    if "targets" in wanted.marks:
        if any("=" in word.text for word in given.operands):
            raise Refused("it sets a makefile variable")
        return
    if "ip" in wanted.marks:
        if len(given.operands) > 1 and given.operands[1].text not in ("show", "list", "ls"):
            raise Refused("it changes the network")
        return
    for kind, word in _matched(list(wanted.operands), given.operands, wanted):
        if LOCAL.match(word.text) or ("remote" in wanted.marks and "::" in word.text):
            raise Refused(f"{word.text} is not a plain file name")
        if kind == "file" and word.text[:1] in ("+", "@"):
            raise Refused(f"{word.text} may be more than a file name")
        if kind == "write":
            yield from writing(word, place)
        elif kind == "file" or (PATHLIKE.match(word.text) and "://" not in word.text):
            yield from reading(word, place)


def _mentioned(words: tuple[Word, ...], place: Place, *, careful: bool = False) -> Iterator[Access]:
    """Yield the paths among the arguments of an unknown program."""
    for word in words:
        if word.kind == "open":
            raise Refused("an argument is only known at run time")
        name, _, value = word.text.partition("=")
        dashed = name.startswith("-")
        if careful and word.kind == "glob" and word.text[0] in "*?[":
            raise Refused("a file name that begins with a dash would be an option")
        path = Word(value, word.kind) if dashed or value else word
        if LOCAL.match(path.text):
            raise Refused(f"{path.text} is not a plain file name")
        if path.text and PATHLIKE.match(path.text) and "://" not in path.text:
            yield from reading(path, place)


def _noticed(words: tuple[Word, ...], place: Place) -> Iterator[Access]:
    """Yield the likely paths among the words, without raising."""
    for word in words:
        path = Word(word.text.partition("=")[2] or word.text, word.kind)
        known = path.kind != "open" and not path.text.startswith("-") and "\n" not in path.text
        if known and PATHLIKE.match(path.text):
            yield from reading(path, place)


def _hazards(words: tuple[Word, ...]) -> Iterator[str]:
    """Yield the options among words that may name another program, folder or file."""
    names = (word.text.partition("=")[0] for word in words)
    yield from (name for name in names if name.startswith("-") and _hazard(name))


def _hazard(name: str) -> bool:
    if name.startswith("--"):
        if RUNNING.search(name):
            return True
        return name[2:].removeprefix("no-").casefold() in HAZARDS
    letters = name[1:4] if len(name) <= 4 else name[1:2]
    return bool(SHORT_HAZARDS.intersection(letters)) or name[1:].casefold() in HAZARDS


def text(argv: tuple[Word, ...]) -> str:
    """Return the words as one would write them; what is not known is an ellipsis."""
    return " ".join(_written(word) for word in argv)


def _written(word: Word) -> str:
    if word.kind == "open":
        return f"{word.text}…"
    if word.kind == "glob" or (word.text and not NEEDS_QUOTES.search(word.text)):
        return word.text
    return "'" + word.text.replace("'", "'\\''") + "'"
