"""Glob patterns as ripgrep reads them, as regular expressions over relative paths.

The regular expressions decide. Ripgrep cannot: its own `--glob` overrides .gitignore. But it is
told which folders and names a pattern can reach, in a list that comes after every ignore file, so
that it walks and names little else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

TOKEN = re.compile(r"\*\*/|\*+|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)
LITERAL = re.compile(r"[^*?\[\]{}\\]*")
SAME_FOLDER = re.compile(r"/(?:\.?/)+")
PARTED = re.compile(r"[,\s]")
PLAIN = "._-+@=~"
MAX_ALTERNATIVES = 200


class PathFilter(msgspec.Struct, frozen=True):
    """Which paths some patterns mean, and what ripgrep is told so that it looks at few others."""

    wanted: tuple[re.Pattern[str], ...] = ()
    barred: tuple[re.Pattern[str], ...] = ()
    rules: str = ""
    """Lines of an ignore file that leaves out nothing that is wanted; empty if all may be."""

    def fits(self, path: str) -> bool:
        """Whether one of the patterns matches the path, and none of those with a `!`."""
        if self.wanted and not any(pattern.fullmatch(path) for pattern in self.wanted):
            return False
        return not any(pattern.fullmatch(path) for pattern in self.barred)


def path_filter(patterns: str) -> PathFilter:
    """Read patterns parted by commas or blanks; raises re.error.

    A name may hold commas and blanks itself, so the whole text counts as a pattern besides.
    """
    parts = split(patterns)
    wanted = [part for part in parts if part[0] != "!"]
    if len(parts) > 1 and parts[0][0] != "!":
        wanted.append(patterns)
    return PathFilter(
        tuple(compiled(part) for part in wanted),
        tuple(compiled(part[1:]) for part in parts if part[0] == "!"),
        _rules(wanted),
    )


def split(patterns: str) -> list[str]:
    """Several patterns in one word, parted by commas or blanks outside braces."""
    tokens = TOKEN.findall(patterns)
    braces, depth, parts = _balanced(tokens), 0, [""]
    for token in tokens:
        depth += ((token == "{") - (token == "}")) * braces
        if not depth and PARTED.fullmatch(token):
            parts.append("")
        else:
            parts[-1] += token
    return [part for part in parts if part]


def compiled(pattern: str) -> re.Pattern[str]:
    """What a path must match in full; a pattern without a slash matches in every folder."""
    tokens = TOKEN.findall(_anchored(pattern))
    braces, depth, parts = _balanced(tokens), 0, list[str]()
    for token in tokens:
        if braces and token in "{}":
            depth += 1 if token == "{" else -1
            parts.append("(?:" if token == "{" else ")")
        elif depth and token == ",":
            parts.append("|")
        else:
            parts.append(_translated(token))
    return re.compile("".join(parts), re.DOTALL)


def fixed_head(pattern: str) -> tuple[str, str]:
    """Part a pattern at the last slash before anything that is not literal."""
    found = LITERAL.match(pattern)
    literal = found[0] if found else ""
    cut = len(pattern) if literal == pattern else len(literal)
    head, slash, _ = pattern[:cut].rpartition("/")
    return head + slash, pattern[len(head + slash) :]


def alternatives(pattern: str) -> list[tuple[str, ...]] | None:
    """The tokens of each pattern that the braces of one stand for; none if these are too many."""
    tokens = TOKEN.findall(_anchored(pattern))
    if not _balanced(tokens):
        return [tuple(tokens)]
    outer: list[tuple[list[tuple[str, ...]], list[tuple[str, ...]]]] = []
    done: list[tuple[str, ...]] = []
    current: list[tuple[str, ...]] = [()]
    for token in tokens:
        if token == "{":
            outer.append((done, current))
            done, current = [], [()]
        elif token == "}":
            inside = [*done, *current]
            done, current = outer.pop()
            current = [before + after for before in current for after in inside]
        elif token == "," and outer:
            done, current = [*done, *current], [()]
        else:
            current = [(*before, token) for before in current]
        if len(done) + len(current) > MAX_ALTERNATIVES:
            return None
    return current


def _anchored(pattern: str) -> str:
    if "/" not in pattern:
        return f"**/{pattern}"
    pattern = SAME_FOLDER.sub("/", pattern).removeprefix("./").lstrip("/")
    return re.sub(r"(\*\*/)+", "**/", pattern)


def _translated(token: str) -> str:
    if token == "**/":
        return "(?:[^/]+/)*"
    if token.startswith("*"):
        return ".*" if len(token) > 1 else "[^/]*"
    if token == "?":
        return "[^/]"
    if token[0] == "[" and len(token) > 2:
        negated = token[1] in "!^"
        inside = re.sub(r"([\\\[\]^&|~])", r"\\\1", token[1 + negated : -1])
        return f"[^/{inside}]" if negated else f"[{inside}]"
    return re.escape(token[1:] if token[0] == "\\" and len(token) == 2 else token)


def _balanced(tokens: Sequence[str]) -> bool:
    depth = 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth < 0:
            return False
    return depth == 0


# --- what ripgrep is told -------------------------------------------------------------------------


def _rules(patterns: Sequence[str]) -> str:
    """Ignore everything but the folders on the way to what the patterns name, and that."""
    lines = dict.fromkeys(["*"] if patterns else [])
    for pattern in patterns:
        found = alternatives(pattern)
        if found is None:
            return ""
        for tokens in found:
            lines |= dict.fromkeys(_exceptions(tokens))
    return "".join(f"{line}\n" for line in lines)


def _exceptions(tokens: Sequence[str]) -> Iterator[str]:
    """What must not be ignored for the sake of one pattern without braces."""
    parts = _parts(tokens)
    crossing = [any(token.startswith("**") for token in part) for part in parts]
    deep = any(crossing)
    head = [_loosened(part) for part in parts[: crossing.index(True) if deep else -1]]
    for count in range(1, len(head) + 1):
        yield f"!/{'/'.join(head[:count])}/"
    base = "".join(f"/{part}" for part in head)
    if not deep:
        yield f"!{base}/{_loosened(parts[-1])}"
        return
    yield f"!{base}/**/*/"
    name = parts[-1]
    # `a**/b` and `a**b` can match from within one name into another: only the end is sure.
    if any(crosses and part != ["**"] for crosses, part in zip(crossing, parts, strict=True)):
        starred = [at for at, token in enumerate(name) if token.startswith("**")]
        name = ["*", *name[starred[-1] if starred else 0 :]]
    yield f"!{base}/**/{_loosened(name)}"


def _parts(tokens: Sequence[str]) -> list[list[str]]:
    """The tokens of each part of the path."""
    parts: list[list[str]] = [[]]
    for token in tokens:
        if token in ("/", "\\/"):
            parts.append([])
        elif token == "**/":
            parts[-1].append("**")
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _loosened(part: Sequence[str]) -> str:
    """A pattern that matches at least as much, in the few signs that every dialect has.

    Ripgrep's `?` is one byte, so it stands only for what is one.
    """
    signs = ((token[1:] if token[0] == "\\" and len(token) == 2 else token) for token in part)
    text = "".join(map(_sign, part, signs)) or "*"
    return re.sub(r"\*[*?]*", "*", text)


def _sign(token: str, char: str) -> str:
    if len(char) > 1 or token in ("*", "?"):
        return "*"
    if char.isalnum() or char in PLAIN:
        return char
    return "?" if char.isascii() else "*"
