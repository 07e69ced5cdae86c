"""Path patterns of permission rules, matched by whole components and in every spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from posixpath import dirname, normpath
from unicodedata import normalize

from travois.core.patterns import compile_lazily
from travois.permissions.shell.rough import flatten_command

BELOW_PATTERN = "(?:/.*)?"
ANY_FOLDERS_PATTERN = "(?:[^/]*/)*?"
GLOB_TOKENS = compile_lazily(r"(\*|\?|\[[!^]?\]?[^\]/]*\])")
BRACE_CHOICES = compile_lazily(r"\{([^{}]*,[^{}]*)\}")
MAX_BRACE_CHOICES = 200
MAX_WHOLE_FOLDED_CHARS = 1_000
"""Longer texts are folded character by character: normalising takes microseconds for some."""
MAX_LIGATURE_CHARS = 6
MAX_REPLACED_CHARS = 30
MAX_PATH_CHARS = 4_096
"""No system opens a longer path."""
MAX_CANDIDATES = 4_000
"""The maximum number of words compared with a rule; with more, the rule counts as matched."""
LOOKALIKE_LETTERS = str.maketrans({"ı": "i", "ſ": "s", "İ": "i"})
"""Letters that some disks or eyes take for others, which folding leaves apart."""
FORMAT_CHARACTERS = (
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b-\u200f"
    "\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    "\U000e0020-\U000e007f]"
)
"""Format characters (category Cf), as a set that a pattern looks up at once."""


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it; false for relative paths and `..`."""
    if len(path) > MAX_PATH_CHARS or len(folder) > MAX_PATH_CHARS:
        return _is_inside_uncached(path, folder)
    return _is_inside_cached(path, folder)


def _is_inside_uncached(path: str, folder: str) -> bool:
    """Compare an absolute path with a folder after normalizing both, without the cache."""
    if not path.startswith("/") or not folder.startswith("/") or _has_parent_steps(path):
        return False
    return f"{normalize_path(path)}/".startswith(normalize_path(folder).rstrip("/") + "/")


# Each command compares the same few hundred places with the same few folders.
_is_inside_cached = lru_cache(maxsize=8_192)(_is_inside_uncached)


def normalize_path(path: str) -> str:
    """Return an absolute path without empty components, `.` and `..`, to match it with rules."""
    return "/" + normpath(path).lstrip("/")


def fold_name(name: str) -> str:
    """Fold case, width and invisible characters of a file name, as a lenient disk compares it."""
    if name.isascii():
        return name.casefold()
    return _fold_unicode(name) if len(name) <= MAX_WHOLE_FOLDED_CHARS else _fold_text(name)


def _fold_text(text: str) -> str:
    """Fold case, width and look-alike characters of a long text before a path rule searches it."""
    changed = {char: new for char in set(text) if (new := _fold_char(char)) != char}
    if len(changed) > MAX_REPLACED_CHARS:
        return text.translate(str.maketrans(changed))
    for char, new in changed.items():
        text = text.replace(char, new)
    return text


def _fold_unicode(name: str) -> str:
    """Fold a file name to lower case, without look-alike letters or invisible characters."""
    return (
        re.sub(FORMAT_CHARACTERS, "", normalize("NFKC", name))
        .translate(LOOKALIKE_LETTERS)
        .casefold()
    )


@lru_cache(maxsize=16_384)
def _fold_char(char: str) -> str:
    """Fold one character of a long text; a ligature that stands for whole words stays."""
    found = char.casefold() if char.isascii() else _fold_unicode(char)
    return found if len(found) <= MAX_LIGATURE_CHARS else char


def pattern_allows_path(pattern: str, path: str, *, root: str, home: str) -> bool:
    """Return whether an allow rule's pattern names exactly this path or a folder above it."""
    if _has_parent_steps(path) or (pattern.startswith("~") and not home):
        return False
    base, wanted = _anchor_pattern(pattern, root=root, home=home)
    if "/" not in wanted and not pattern.startswith(("/", "./", "~")):
        wanted = f"**/{wanted}"
    exact = "*" in wanted.rpartition("/")[2] and not wanted.endswith("**")
    return bool(
        _compile_path_pattern(base, wanted, below="" if exact else BELOW_PATTERN).fullmatch(
            normalize_path(path)
        )
    )


def pattern_mentions_path(pattern: str, path: str, *, root: str, home: str) -> bool:
    """Return whether a deny or ask rule's pattern may mean this path, however it is spelled."""
    if len(path) > MAX_PATH_CHARS:
        return any(
            run in fold_name(path)
            for run in (_literal_outside_folder(one, "") for one in _expand_braces(pattern))
        )
    found = _fold_path(path)
    return any(
        _compile_generous_pattern(one, root, home).fullmatch(found)
        for one in _expand_braces(pattern)
    )


@lru_cache(maxsize=2048)
def _fold_path(path: str) -> str:
    return fold_name(normalize_path(path))


def text_names_path(pattern: str, text: str, *, root: str, cwd: str, home: str) -> bool:
    """Return whether a word of a text may be a path that a rule's pattern means."""
    for one in _expand_braces(pattern):
        for number, word in enumerate(_words_containing(_literal_outside_folder(one, cwd), text)):
            if number == MAX_CANDIDATES:
                return True
            if len(word) > MAX_PATH_CHARS:
                continue
            place = home if word.startswith("~/") else cwd
            path = word if word.startswith("/") else f"{place}/{word.removeprefix('~/')}"
            if _compile_generous_pattern(one, root, home).fullmatch(normalize_path(path)):
                return True
    return False


def longest_path_literal(pattern: str) -> str:
    """Return a literal part of every path that a rule's pattern matches; empty if unknown."""
    return "" if "{" in pattern or ".." in pattern else _literal_outside_folder(pattern, "")


@lru_cache(maxsize=2048)
def _literal_outside_folder(pattern: str, cwd: str) -> str:
    """Return a literal of every path that a pattern matches, absent from the folder."""
    runs = re.split(r"[*?/\\{}~]|\[.*", fold_name(pattern))
    kept = (run for run in runs if run not in (".", "..") and run not in fold_name(cwd))
    return max(kept, key=len, default="")


def _words_containing(run: str, text: str) -> Iterator[str]:
    """Yield each distinct word of a text that contains a path rule's literal."""
    words = _fold_words(text)
    if not run:
        yield from dict.fromkeys(words.split(" "))
        return
    end, seen = 0, set[str]()
    while (at := words.find(run, end)) >= 0:
        start, end = words.rfind(" ", 0, at) + 1, words.find(" ", at + len(run))
        end = len(words) if end < 0 else end
        if (word := words[start:end]) not in seen:
            seen.add(word)
            yield word


@lru_cache(maxsize=64)
def _fold_words(text: str) -> str:
    words = flatten_command(text)
    return words if words.isascii() else fold_name(words)


@lru_cache(maxsize=2048)
def _expand_braces(pattern: str) -> tuple[str, ...]:
    """Return a path pattern and its expansions by shell braces."""
    done, waiting = [pattern], [pattern]
    while waiting and len(done) < MAX_BRACE_CHOICES:
        one = waiting.pop()
        if found := BRACE_CHOICES.search(one):
            made = [f"{one[: found.start()]}{c}{one[found.end() :]}" for c in found[1].split(",")]
            done, waiting = [*done, *made], [*waiting, *made]
    return tuple(done)


@lru_cache(maxsize=2048)
def _compile_generous_pattern(pattern: str, root: str, home: str) -> re.Pattern[str]:
    """Compile the path pattern of a deny or ask rule, to match at any depth and in any spelling."""
    base, wanted = _anchor_pattern(fold_name(pattern), root=fold_name(root), home=fold_name(home))
    wanted = wanted.removesuffix("/**")
    if not pattern.startswith(("/", "./", "~")):
        wanted = f"**/{wanted}"
    return _compile_path_pattern(base, wanted)


def pattern_reaches_folder(pattern: str, folder: str, *, root: str, home: str) -> bool:
    """Return whether a path pattern may match something below this folder."""
    base, wanted = _anchor_pattern(fold_name(pattern), root=fold_name(root), home=fold_name(home))
    if not pattern.startswith(("/", "./", "~")):
        return is_inside(folder, root) or is_inside(root, folder)
    fixed = re.split(r"[*?\[{]", f"{base}/{wanted}", maxsplit=1)[0]
    below = fixed if fixed == f"{base}/{wanted}" else dirname(fixed)
    found = fold_name(normalize_path(folder))
    return is_inside(normalize_path(below), found) or is_inside(found, normalize_path(below))


def fixed_folder_of(pattern: str) -> str:
    """Return the folder part of a path pattern before its first wildcard."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return pattern if fixed == pattern else dirname(fixed)


def _has_parent_steps(path: str) -> bool:
    return ".." in path.split("/")


def _anchor_pattern(pattern: str, *, root: str, home: str) -> tuple[str, str]:
    """Return the folder that a path rule's pattern starts from, and the rest of the pattern."""
    base, pattern = root, pattern.replace("\\(", "(").replace("\\)", ")")
    if pattern.startswith("//"):
        base, pattern = "", pattern[2:]
    elif pattern.startswith("~"):
        base, pattern = home, pattern[1:]
    wanted = normpath(pattern.lstrip("/")) if pattern.strip("/") else "."
    while wanted == ".." or wanted.startswith("../"):
        base, wanted = dirname(base), wanted[3:] or "."
    return base.rstrip("/"), "" if wanted == "." else wanted


@lru_cache(maxsize=512)
def _compile_path_pattern(base: str, wanted: str, *, below: str = BELOW_PATTERN) -> re.Pattern[str]:
    """Compile a path rule's pattern; one that names a folder covers everything in it."""
    name = f"/{_glob_to_regex(wanted)}" if wanted else ""
    try:
        return re.compile(f"{re.escape(base)}{name}{below}", re.DOTALL)
    except re.error:
        return re.compile(f"{re.escape(base)}/{re.escape(wanted)}{below}", re.DOTALL)


def _glob_to_regex(glob: str) -> str:
    """Return a regular expression for a path rule's glob.

    What stands between two stars is matched as early as possible and for good: an earlier match
    leaves the most room for the rest, so nothing is tried twice and the time stays linear.
    """
    first, *rest = re.split(r"((?:\*\*/)+|\*\*+)", glob)
    made = _components_to_regex(first)
    for at in range(0, len(rest), 2):
        gap, part, after = rest[at], rest[at + 1], "".join(rest[at + 2 : at + 3])
        text = f"{ANY_FOLDERS_PATTERN if gap.endswith('/') else '.*?'}{_components_to_regex(part)}"
        for_good = after and (part.endswith("/") or not after.endswith("/"))
        made += f"(?>{text})" if for_good else text
    return made


def _components_to_regex(glob: str) -> str:
    """Translate the components of a path glob without double stars into a regex."""
    return "/".join(_component_to_regex(part) for part in glob.split("/"))


def _component_to_regex(glob: str) -> str:
    """Translate one component of a path glob into a regex without backtracking."""
    tokens = [token for token in GLOB_TOKENS.split(glob) if token]
    stars = [at for at, token in enumerate(tokens) if token == "*"]
    made, begun = "", 0
    for at, after in pairwise(stars):
        made += "".join(map(_glob_token_to_regex, tokens[begun:at]))
        middle = "".join(map(_glob_token_to_regex, tokens[at + 1 : after]))
        made += f"(?>[^/]*?{middle})"
        begun = after
    return made + "".join(map(_glob_token_to_regex, tokens[begun:]))


def _glob_token_to_regex(token: str) -> str:
    """Translate a star, question mark, character class or literal of a path glob into a regex."""
    if token in ("*", "?"):
        return "[^/]*?" if token == "*" else "[^/]"
    if len(token) > 2 and token[0] == "[" and token[-1] == "]":
        negated = token[1] in "!^"
        inner = re.sub(r"([\\\[\]^&|~])", r"\\\1", token[2:-1] if negated else token[1:-1])
        return f"(?!/)[{'^' if negated else ''}{inner}]"
    return re.escape(token)
