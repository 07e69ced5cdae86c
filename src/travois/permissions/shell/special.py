"""Small languages inside an argument: sed, awk and jq, as far as they only look."""

from __future__ import annotations

import re
from collections.abc import Iterator

from travois.permissions.access import Access
from travois.permissions.shell.options import Given, Refused, sort, spec
from travois.permissions.shell.place import Place, reading, writing
from travois.permissions.shell.plan import Word

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
"""Longer scripts are not judged: some of these patterns take quadratic time."""


def sed(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """The files that sed reads, or edits in place, if its script does nothing else."""
    given = sort(SED, words)
    scripts = [value for name, value in given.options if name in ("-e", "--expression")]
    operands = given.operands
    if not scripts:
        if not operands:
            raise Refused("sed has no script")
        scripts, operands = [operands[0]], operands[1:]
    for script in scripts:
        _sed_script(_script(script, "script of sed"))
    in_place = given.has("-i", "--in-place")
    touch = writing if in_place else reading
    return tuple(access for word in operands for access in touch(word, place))


def _first(given: Given) -> Word | None:
    return given.operands[0] if given.operands else None


def _script(word: Word | None, what: str) -> str:
    """The text of a script, if all of it is known."""
    if word is None or word.value is None:
        raise Refused(f"the {what} only shows when it runs")
    if len(word.text) > LONGEST_SCRIPT:
        raise Refused(f"the {what} is too long to judge")
    return word.text


def _sed_script(script: str) -> None:
    """Every command of the script must be one that neither writes, reads nor runs anything else."""
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
            raise Refused("the script of sed does more than print and replace")
        at = _ended(script, found.end())


def _ended(script: str, at: int) -> int:
    end = _skip(SED_END, script, at)
    if end == at and at < len(script):
        raise Refused("the script of sed is not plain")
    return end


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def awk(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """The files that awk reads, if its program neither writes nor runs anything."""
    given = sort(AWK, words)
    bare = _awk_code(_script(_first(given), "program of awk"))
    if AWK_RISKY.search(bare):
        raise Refused("the program of awk does more than print")
    if re.search(r"\bprintf?\b[^;}\n]*>", bare) or re.search(r"[^=!<>]>>", bare):
        raise Refused("the program of awk writes a file")
    return tuple(_awk_files(given, place))


def _awk_code(program: str) -> str:
    """The program without its strings, patterns and comments."""
    code, at = "", 0
    while at < len(program):
        char = program[at]
        if char == "#":
            at = program.find("\n", at) if "\n" in program[at:] else len(program)
            continue
        before = code[-200:].rstrip(" \t") if char == "/" else ""
        if char == "/" and EITHER.search(before):
            raise Refused("whether a slash divides only a parser of awk can tell")
        pattern = char == "/" and bool(BEFORE_REGEX.search(before))
        if char != '"' and not pattern:
            code, at = code + char, at + 1
            continue
        found = (AWK_REGEX if pattern else AWK_STRING).match(program, at)
        if found is None:
            raise Refused("the program of awk is not plain")
        code, at = code + ' "" ', found.end()
    return AWK_CONTINUED.sub(r"\1 ", code)


def _awk_files(given: Given, place: Place) -> Iterator[Access]:
    for name, value in given.options:
        if name in ("-v", "--assign") and (value is None or value.value is None):
            raise Refused("a variable of awk only shows when it runs")
    for word in given.operands[1:]:
        if "=" in word.text and word.text.partition("=")[0].isidentifier():
            continue
        yield from reading(word, place)


def jq(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """The files that jq reads, if its filter looks at nothing else."""
    words = tuple(_without_arguments(words))
    given = sort(JQ, words)
    if JQ_RISKY.search(_script(_first(given), "filter of jq")):
        raise Refused("the filter of jq looks at more than its input")
    return tuple(access for word in given.operands[1:] for access in reading(word, place))


def yq(words: tuple[Word, ...], place: Place) -> tuple[Access, ...]:
    """The files that yq reads, if its filter looks at nothing else."""
    given = sort(YQ, words)
    text = _script(_first(given), "filter of yq")
    if YQ_RISKY.search(text) or JQ_RISKY.search(text):
        raise Refused("the filter of yq looks at more than its input")
    return tuple(access for word in given.operands[1:] for access in reading(word, place))


def _without_arguments(words: tuple[Word, ...]) -> Iterator[Word]:
    rest = iter(words)
    for word in rest:
        if word.value in ("--arg", "--argjson"):
            if any(not value.single for value in (next(rest, word), next(rest, word))):
                raise Refused("an argument of jq only shows when it runs")
            continue
        yield word
