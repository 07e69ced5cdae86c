"""Path patterns of rules: matched by whole components, in every spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from posixpath import dirname, normpath
from unicodedata import normalize

from travois.permissions.shell.rough import flat

BELOW = "(?:/.*)?"
ANY_FOLDERS = "(?:[^/]*/)*?"
TOKENS = re.compile(r"(\*|\?|\[[!^]?\]?[^\]/]*\])")
BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
CHOICES = 200
LONG_NAME = 1_000
"""Longer texts are folded character by character: normalising takes microseconds for some."""
LONGEST_LIGATURE = 6
MAX_REPLACED = 30
LONGEST_PATH = 4_096
"""No system opens a longer path."""
MAX_CANDIDATES = 4_000
"""The maximum number of words compared with a rule; with more, the rule counts as matched."""
ALIKE = str.maketrans({"ı": "i", "ſ": "s", "İ": "i"})
"""Letters that some disks or eyes take for others, which folding leaves apart."""
INVISIBLE = (
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b-\u200f"
    "\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    "\U000e0020-\U000e007f]"
)
"""Format characters (category Cf), as a set that a pattern looks up at once."""


def inside(path: str, folder: str) -> bool:
    """Return whether a path is the folder or below it; false for relative paths and `..`."""
    if len(path) > LONGEST_PATH or len(folder) > LONGEST_PATH:
        return _lies_inside(path, folder)
    return _known_inside(path, folder)


def _lies_inside(path: str, folder: str) -> bool:
    if not path.startswith("/") or not folder.startswith("/") or _climbs(path):
        return False
    return f"{plain(path)}/".startswith(plain(folder).rstrip("/") + "/")


# Each command compares the same few hundred places with the same few folders.
_known_inside = lru_cache(maxsize=8_192)(_lies_inside)


def plain(path: str) -> str:
    """Return an absolute path without empty, dotted or climbing components."""
    return "/" + normpath(path).lstrip("/")


def folded(name: str) -> str:
    """Return a name without case, width and invisible characters, as a lenient disk compares it."""
    if name.isascii():
        return name.casefold()
    return _folded(name) if len(name) <= LONG_NAME else _folded_text(name)


def _folded_text(text: str) -> str:
    changed = {char: new for char in set(text) if (new := _folded_char(char)) != char}
    if len(changed) > MAX_REPLACED:
        return text.translate(str.maketrans(changed))
    for char, new in changed.items():
        text = text.replace(char, new)
    return text


def _folded(name: str) -> str:
    return re.sub(INVISIBLE, "", normalize("NFKC", name)).translate(ALIKE).casefold()


@lru_cache(maxsize=16_384)
def _folded_char(char: str) -> str:
    """Return a character of a long text by itself; a ligature of whole words is left as it is."""
    found = char.casefold() if char.isascii() else _folded(char)
    return found if len(found) <= LONGEST_LIGATURE else char


def allows(pattern: str, path: str, *, root: str, home: str) -> bool:
    """Return whether the pattern names exactly this path or a folder above it."""
    if _climbs(path) or (pattern.startswith("~") and not home):
        return False
    base, wanted = _anchor(pattern, root=root, home=home)
    if "/" not in wanted and not pattern.startswith(("/", "./", "~")):
        wanted = f"**/{wanted}"
    exact = "*" in wanted.rpartition("/")[2] and not wanted.endswith("**")
    return bool(_compiled(base, wanted, below="" if exact else BELOW).fullmatch(plain(path)))


def mentions(pattern: str, path: str, *, root: str, home: str) -> bool:
    """Return whether the pattern may mean this path: at any depth, however it is spelt."""
    if len(path) > LONGEST_PATH:
        return any(run in folded(path) for run in (_literal(one, "") for one in _choices(pattern)))
    found = _folded_path(path)
    return any(_meant(one, root, home).fullmatch(found) for one in _choices(pattern))


@lru_cache(maxsize=2048)
def _folded_path(path: str) -> str:
    return folded(plain(path))


def named_in(pattern: str, text: str, *, root: str, cwd: str, home: str) -> bool:
    """Return whether a word of a text may be a path that the pattern means."""
    for one in _choices(pattern):
        for number, word in enumerate(_words_with(_literal(one, cwd), text)):
            if number == MAX_CANDIDATES:
                return True
            if len(word) > LONGEST_PATH:
                continue
            place = home if word.startswith("~/") else cwd
            path = word if word.startswith("/") else f"{place}/{word.removeprefix('~/')}"
            if _meant(one, root, home).fullmatch(plain(path)):
                return True
    return False


def literal(pattern: str) -> str:
    """Return a literal part of every path that the pattern matches; empty if unknown."""
    return "" if "{" in pattern or ".." in pattern else _literal(pattern, "")


@lru_cache(maxsize=2048)
def _literal(pattern: str, cwd: str) -> str:
    """Return a literal part of every path that the pattern matches, not found in the folder."""
    runs = re.split(r"[*?/\\{}~]|\[.*", folded(pattern))
    kept = (run for run in runs if run not in (".", "..") and run not in folded(cwd))
    return max(kept, key=len, default="")


def _words_with(run: str, text: str) -> Iterator[str]:
    """Yield the words of a text that hold a run of characters, each once."""
    words = _folded_words(text)
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
def _folded_words(text: str) -> str:
    words = flat(text)
    return words if words.isascii() else folded(words)


@lru_cache(maxsize=2048)
def _choices(pattern: str) -> tuple[str, ...]:
    """Return a pattern, and what its braces would stand for in a shell."""
    done, waiting = [pattern], [pattern]
    while waiting and len(done) < CHOICES:
        one = waiting.pop()
        if found := BRACES.search(one):
            made = [f"{one[: found.start()]}{c}{one[found.end() :]}" for c in found[1].split(",")]
            done, waiting = [*done, *made], [*waiting, *made]
    return tuple(done)


@lru_cache(maxsize=2048)
def _meant(pattern: str, root: str, home: str) -> re.Pattern[str]:
    base, wanted = _anchor(folded(pattern), root=folded(root), home=folded(home))
    wanted = wanted.removesuffix("/**")
    if not pattern.startswith(("/", "./", "~")):
        wanted = f"**/{wanted}"
    return _compiled(base, wanted)


def reaches(pattern: str, folder: str, *, root: str, home: str) -> bool:
    """Return whether something that the pattern means may lie below this folder."""
    base, wanted = _anchor(folded(pattern), root=folded(root), home=folded(home))
    if not pattern.startswith(("/", "./", "~")):
        return inside(folder, root) or inside(root, folder)
    fixed = re.split(r"[*?\[{]", f"{base}/{wanted}", maxsplit=1)[0]
    below = fixed if fixed == f"{base}/{wanted}" else dirname(fixed)
    found = folded(plain(folder))
    return inside(plain(below), found) or inside(found, plain(below))


def stem(pattern: str) -> str:
    """Return the folder of a shell pattern that is known before it is looked up."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return pattern if fixed == pattern else dirname(fixed)


def _climbs(path: str) -> bool:
    return ".." in path.split("/")


def _anchor(pattern: str, *, root: str, home: str) -> tuple[str, str]:
    """Return the folder that a pattern starts from, and the rest of the pattern."""
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
def _compiled(base: str, wanted: str, *, below: str = BELOW) -> re.Pattern[str]:
    """Return a pattern for paths; what names a folder covers everything in it."""
    name = f"/{_translated(wanted)}" if wanted else ""
    try:
        return re.compile(f"{re.escape(base)}{name}{below}", re.DOTALL)
    except re.error:
        return re.compile(f"{re.escape(base)}/{re.escape(wanted)}{below}", re.DOTALL)


def _translated(glob: str) -> str:
    """Return a regular expression for a glob.

    What stands between two stars is matched as early as possible and for good: an earlier match
    leaves the most room for the rest, so nothing is tried twice and the time stays linear.
    """
    first, *rest = re.split(r"((?:\*\*/)+|\*\*+)", glob)
    made = _parts(first)
    for at in range(0, len(rest), 2):
        gap, part, after = rest[at], rest[at + 1], "".join(rest[at + 2 : at + 3])
        text = f"{ANY_FOLDERS if gap.endswith('/') else '.*?'}{_parts(part)}"
        for_good = after and (part.endswith("/") or not after.endswith("/"))
        made += f"(?>{text})" if for_good else text
    return made


def _parts(glob: str) -> str:
    """Return the components of a glob without double stars."""
    return "/".join(_component(part) for part in glob.split("/"))


def _component(glob: str) -> str:
    tokens = [token for token in TOKENS.split(glob) if token]
    stars = [at for at, token in enumerate(tokens) if token == "*"]
    made, begun = "", 0
    for at, after in pairwise(stars):
        made += "".join(map(_token, tokens[begun:at]))
        middle = "".join(map(_token, tokens[at + 1 : after]))
        made += f"(?>[^/]*?{middle})"
        begun = after
    return made + "".join(map(_token, tokens[begun:]))


def _token(token: str) -> str:
    if token in ("*", "?"):
        return "[^/]*?" if token == "*" else "[^/]"
    if len(token) > 2 and token[0] == "[" and token[-1] == "]":
        negated = token[1] in "!^"
        inner = re.sub(r"([\\\[\]^&|~])", r"\\\1", token[2:-1] if negated else token[1:-1])
        return f"(?!/)[{'^' if negated else ''}{inner}]"
    return re.escape(token)
