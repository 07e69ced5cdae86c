"""Globs as ripgrep reads them: as regular expressions over relative paths, and as ignore rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from travois.core.patterns import compile_lazily

GLOB_TOKEN = compile_lazily(r"\*\*/|\*+|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)
SAME_FOLDER = compile_lazily(r"/(?:\.?/)+")
PATTERN_SEPARATOR = compile_lazily(r"[,\s]")
PLAIN_PUNCTUATION = "._-+@=~"
MAX_ALTERNATIVES = 200


GLOB_LITERAL = compile_lazily(r"[^*?\[\]{}\\]*")


class PathFilter(msgspec.Struct, frozen=True):
    """The paths that some globs match, and ignore rules that keep ripgrep from other folders."""

    wanted: tuple[re.Pattern[str], ...] = ()
    barred: tuple[re.Pattern[str], ...] = ()
    rules: str = ""
    """Lines of an ignore file that leaves out nothing that is wanted; empty if all may be."""

    def matches(self, path: str) -> bool:
        """Return whether one of the patterns matches the path, and none of those with a `!`."""
        if self.wanted and not any(pattern.fullmatch(path) for pattern in self.wanted):
            return False
        return not any(pattern.fullmatch(path) for pattern in self.barred)


def parse_path_filter(patterns: str) -> PathFilter:
    """Parse the glob patterns of a search, separated by commas or spaces; raises re.error.

    A name may contain commas and spaces itself, so the whole text also counts as a pattern.
    """
    parts = split_patterns(patterns)
    wanted = [part for part in parts if part[0] != "!"]
    if len(parts) > 1 and parts[0][0] != "!":
        wanted.append(patterns)
    return PathFilter(
        tuple(compile_glob(part) for part in wanted),
        tuple(compile_glob(part[1:]) for part in parts if part[0] == "!"),
        _ignore_rules(wanted),
    )


def split_patterns(patterns: str) -> list[str]:
    """Split the glob patterns of a search at commas or spaces outside braces."""
    tokens = GLOB_TOKEN.findall(patterns)
    braces, depth, parts = _has_balanced_braces(tokens), 0, [""]
    for token in tokens:
        depth += ((token == "{") - (token == "}")) * braces
        if not depth and PATTERN_SEPARATOR.fullmatch(token):
            parts.append("")
        else:
            parts[-1] += token
    return [part for part in parts if part]


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob for full matches; a pattern without a slash matches in every folder."""
    tokens = GLOB_TOKEN.findall(_anchor_glob(pattern))
    braces, depth, parts = _has_balanced_braces(tokens), 0, list[str]()
    for token in tokens:
        if braces and token in "{}":
            depth += 1 if token == "{" else -1
            parts.append("(?:" if token == "{" else ")")
        elif depth and token == ",":
            parts.append("|")
        else:
            parts.append(_translate_token(token))
    return re.compile("".join(parts), re.DOTALL)


def split_fixed_head(pattern: str) -> tuple[str, str]:
    """Split a glob at the last slash before its first wildcard."""
    found = GLOB_LITERAL.match(pattern)
    literal = found[0] if found else ""
    cut = len(pattern) if literal == pattern else len(literal)
    head, slash, _ = pattern[:cut].rpartition("/")
    return head + slash, pattern[len(head + slash) :]


def expand_braces(pattern: str) -> list[tuple[str, ...]] | None:
    """Expand a glob's braces into tokens for each alternative; None if there are too many."""
    tokens = GLOB_TOKEN.findall(_anchor_glob(pattern))
    if not _has_balanced_braces(tokens):
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


def _anchor_glob(pattern: str) -> str:
    """Normalize a glob so that a pattern without a slash matches in every folder."""
    if "/" not in pattern:
        return f"**/{pattern}"
    pattern = SAME_FOLDER.sub("/", pattern).removeprefix("./").lstrip("/")
    return re.sub(r"(\*\*/)+", "**/", pattern)


def _translate_token(token: str) -> str:
    """Translate one token of a glob into a regular expression."""
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


def _has_balanced_braces(tokens: Sequence[str]) -> bool:
    """Return whether a glob's braces are balanced."""
    depth = 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth < 0:
            return False
    return depth == 0


def _ignore_rules(patterns: Sequence[str]) -> str:
    """Build ripgrep ignore rules for all but the patterns and the folders that lead to them."""
    lines = dict.fromkeys(["*"] if patterns else [])
    for pattern in patterns:
        found = expand_braces(pattern)
        if found is None:
            return ""
        for tokens in found:
            lines |= dict.fromkeys(_ignore_exceptions(tokens))
    return "".join(f"{line}\n" for line in lines)


def _ignore_exceptions(tokens: Sequence[str]) -> Iterator[str]:
    """Yield the ignore-file exceptions that one pattern without braces needs."""
    parts = _split_path_tokens(tokens)
    crossing = [any(token.startswith("**") for token in part) for part in parts]
    deep = any(crossing)
    head = [_loosen_glob(part) for part in parts[: crossing.index(True) if deep else -1]]
    for count in range(1, len(head) + 1):
        yield f"!/{'/'.join(head[:count])}/"
    base = "".join(f"/{part}" for part in head)
    if not deep:
        yield f"!{base}/{_loosen_glob(parts[-1])}"
        return
    yield f"!{base}/**/*/"
    name = parts[-1]
    # `a**/b` and `a**b` can match from within one name into another: only the end is sure.
    if any(crosses and part != ["**"] for crosses, part in zip(crossing, parts, strict=True)):
        starred = [at for at, token in enumerate(name) if token.startswith("**")]
        name = ["*", *name[starred[-1] if starred else 0 :]]
    yield f"!{base}/**/{_loosen_glob(name)}"


def _split_path_tokens(tokens: Sequence[str]) -> list[list[str]]:
    """Split a glob's tokens into those of each path component."""
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


def _loosen_glob(part: Sequence[str]) -> str:
    """Return a ripgrep pattern that matches at least what a glob matches, in common syntax.

    Ripgrep's `?` is one byte, so it is used only for what is one.
    """
    signs = ((token[1:] if token[0] == "\\" and len(token) == 2 else token) for token in part)
    text = "".join(map(_loosen_token, part, signs)) or "*"
    return re.sub(r"\*[*?]*", "*", text)


def _loosen_token(token: str, char: str) -> str:
    """Return a token for an ignore rule that matches at least what a glob's token does."""
    if len(char) > 1 or token in ("*", "?"):
        return "*"
    if char.isalnum() or char in PLAIN_PUNCTUATION:
        return char
    return "?" if char.isascii() else "*"
