"""Glob patterns: what ripgrep is told never leaves out what a pattern means."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tools.local import Local, told
from travois.ports.tool import ToolOutcome
from travois.process.spawn import find_program
from travois.tools import globs
from travois.tools.search import GLOB, GREP

# --- the old way: every file is listed, and matched one by one ------------------------------------

OLD_SPLIT = re.compile(r"[,\s]+(?![^{}]*\})")
OLD_TOKEN = re.compile(r"\*\*/|\*+|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)


def old_compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.removeprefix("./").lstrip("/") if "/" in pattern else f"**/{pattern}"
    pattern = re.sub(r"(\*\*/)+", "**/", pattern)
    depth, parts = 0, list[str]()
    for token in OLD_TOKEN.findall(pattern):
        if token in "{}":
            depth += 1 if token == "{" else -1
            parts.append("(?:" if token == "{" else ")")
        elif depth and token == ",":
            parts.append("|")
        else:
            parts.append(old_translated(token))
    return re.compile("".join(parts), re.DOTALL)


def old_translated(token: str) -> str:
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


def old_matches(patterns: str, paths: list[str]) -> set[str]:
    parts = [part for part in OLD_SPLIT.split(patterns) if part]
    wanted = [old_compiled(part) for part in parts if part[0] != "!"]
    barred = [old_compiled(part[1:]) for part in parts if part[0] == "!"]
    return {
        path
        for path in paths
        if (not wanted or any(p.fullmatch(path) for p in wanted))
        and not any(p.fullmatch(path) for p in barred)
    }


# --- trees and patterns ---------------------------------------------------------------------------

NAMES = [
    *("a", "b", "ab", "A", ".h", "a.py", "b.py", ".py", "ü.py", "#c", "!n", "-d", "[z]", "~"),
    *("a+", "x:y", "a'b", "b\\", "build"),
]
PIECES = [
    *("*", "**", "?", "a", "b", "ab", "A", "a*", "*b", "?b", "*.py", "?.py", ".*", ".h", "build"),
    *("[ab]", "[!a]", "[^b]*", "{a,b}", "{a,b*}.py", "{a{b,},c}", "{a,b/*}", "{,a}b", "**.py"),
    *("a**", "ü*", "[ü].py", r"\[z\]", "#c", r"\!n", "-d", "a+", "x:y", "a'b"),
]
IGNORED = ["b", "/a", "*.py", "!a.py", "build/", "!build/", "ü*", "*", "!*/", "a/**", "!a/b"]

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
patterns = st.tuples(
    st.sampled_from(["", "", "", "./", "/"]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("/".join),
).map("".join)


def grow(root: Path, tree: list[str], ignored: list[str]) -> list[str]:
    """Make the files that can be made, and list what ripgrep sees of them."""
    root.joinpath(".gitignore").write_text("\n".join(ignored))
    for path in tree:
        try:
            root.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
            root.joinpath(path).write_text("needle\n")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
    options = ("--no-config", "--files", "--hidden", "--glob=!.git", "--no-require-git", "--null")
    listed = subprocess.run([find_program("rg"), *options], cwd=root, capture_output=True).stdout
    return os.fsdecode(listed).split("\0")[:-1]


def named(outcome: object) -> set[str]:
    assert isinstance(outcome, ToolOutcome), outcome
    text = told(outcome)
    return set() if text.startswith("No ") else set(text.split("\n"))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(paths, min_size=1, max_size=30),
    st.lists(st.sampled_from(IGNORED), max_size=3),
    st.lists(patterns, min_size=4, max_size=4),
)
@example(["a/b/a.py"], ["/a", "!a/b"], ["a/**", "a/b/*", "**/*.py", "a/{b,c}/a.py"])
@example(["ab/x", "ax/b", "a/y/b"], [], ["a**/b", "a**", "**b", "./a**/b"])
@example(["build/a.py"], ["build/"], ["build/*.py", "build/a.py", "**", "*"])
def test_the_same_files_are_found_as_by_matching_every_file(
    tree: list[str], ignored: list[str], patterns: list[str]
):
    with TemporaryDirectory() as scratch:
        world = Local(Path(scratch))
        listed = grow(world.folder, tree, ignored)
        # Here a leading slash would mean the root of the disk.
        globbed = [pattern.lstrip("/") for pattern in patterns]
        found = world.each(
            *((GLOB, {"pattern": pattern}) for pattern in globbed),
            *((GREP, {"pattern": "needle", "glob": pattern}) for pattern in patterns),
        )
        sought = [path for path in listed if path != ".gitignore"]
        expected = [old_matches(pattern, listed) for pattern in globbed]
        expected += [old_matches(pattern, sought) for pattern in patterns]
        assert [named(one) for one in found] == expected


ANYTHING = st.text(
    st.one_of(st.sampled_from("ab.*?[]{},!^/\\ \t\n#~-"), st.characters(exclude_categories=["Cs"])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANYTHING, min_size=5, max_size=5), st.lists(ANYTHING, min_size=1, max_size=10))
def test_no_text_at_all_makes_ripgrep_leave_out_a_file_that_it_means(
    texts: list[str], tree: list[str]
):
    """Of any text as a pattern, and any names: what matches alone is among what ripgrep names."""
    with TemporaryDirectory() as scratch:
        root = Path(scratch)
        for path in tree:
            clean = "/".join(part for part in path.split("/") if part not in ("", ".", ".."))
            file = root / (clean.replace("\0", "") or "x")
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
        files = [os.path.relpath(path, root) for path in root.rglob("*") if path.is_file()]
        for text in (*texts, *files):
            try:
                made = globs.parse_path_filter(text)
            except re.error:
                continue
            argv = [find_program("rg"), "--no-config", "--files", "--hidden", "--null", "./"]
            argv[1:1] = ["--ignore-file=/dev/stdin", "--no-ignore-vcs", "--no-ignore-dot"]
            ran = subprocess.run(argv, cwd=root, input=made.rules.encode(), capture_output=True)
            seen = {path.removeprefix("./") for path in os.fsdecode(ran.stdout).split("\0")[:-1]}
            assert {path for path in files if made.matches(path)} <= seen, (text, made.rules)


@pytest.mark.parametrize(
    ("pattern", "rules"),
    [
        ("*.py", ["*", "!/**/*/", "!/**/*.py"]),
        ("./*.md", ["*", "!/*.md"]),
        ("src/travois/**/*.py", [
            *("*", "!/src/", "!/src/travois/", "!/src/travois/**/*/"),
            "!/src/travois/**/*.py",
        ]),
        ("a/b.c", ["*", "!/a/", "!/a/b.c"]),
        ("{a,b}/*/c", ["*", "!/a/", "!/a/*/", "!/a/*/c", "!/b/", "!/b/*/", "!/b/*/c"]),
        ("!*.py", []),
        ("{a,b}" * 8, []),
    ],
)  # fmt: skip
def test_ripgrep_is_told_where_a_pattern_leads(pattern: str, rules: list[str]):
    assert globs.parse_path_filter(pattern).rules.split("\n")[:-1] == rules
