"""Instruction files as text: rendering, imports, comments and path patterns.

Model sees: each file with its path and its text as it is on disk, never shortened by a compaction.
Tokens: at most 40,000 and a fifth of the window; of files beyond that their beginning and path.
Cache: never moves the prefix; they stand in notes, and after a compaction in its summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Literal

import msgspec

from travois.core.content import Text
from travois.core.facts import User
from travois.core.patterns import compile_lazily
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem
from travois.files import front_matter
from travois.prompt.environment import escape_line

InstructionKind = Literal["Managed", "User", "Project", "Local"]
"""The origin of a file, by the names that hooks know."""
LoadReason = Literal["session_start", "nested_traversal", "path_glob_match", "include", "compact"]
INSTRUCTIONS_TAG = "<instructions>"
INSTRUCTIONS_INTRO = (
    "How the user and the project want you to work, file by file as they are on disk. Follow them "
    "where they differ from your habits; where two files disagree, the later one takes precedence."
)
MAX_INSTRUCTION_TOKENS = 40_000
INSTRUCTION_WINDOW_DIVISOR = 5
"""They may take this part of the window."""
MIN_HEAD_TOKENS = 60
"""A beginning of fewer tokens than this is one line."""
MAX_HEAD_LINE_CHARS = 200
MAX_BRACE_EXPANSIONS = 1_000
"""Patterns that the braces of one pattern may expand to."""
MAX_PATTERN_CHARS = 1_000
SCOPE_KEYS = ("paths", "globs", "applyTo")
"""Keys under which agents write the path patterns of a rule."""

CODE_FENCE = compile_lazily(r" {0,3}(`{3,}|~{3,})")
COMMENT_START = compile_lazily(r" {0,3}<!--")
CODE_SPAN = compile_lazily(r"``[^\n]*?``|`[^`\n]*`")
IMPORT_REFERENCE = compile_lazily(r"(?<!\S)@((?:[^\s\\`]|\\ )+)")
BRACE_GROUP = compile_lazily(r"\{([^{}]*)\}")


class InstructionFile(msgspec.Struct, frozen=True):
    """One instruction file as the model sees it."""

    path: str
    text: str
    kind: InstructionKind
    reason: LoadReason = "session_start"
    by: str = ""
    """The path of the file that brought it: itself, or the one that imports it."""

    @property
    def digest(self) -> str:
        """Return a digest of the text, which the text itself cannot contain."""
        return sha256(self.text.encode(errors="replace")).hexdigest()[:16]

    @property
    def header_start(self) -> str:
        """Return the beginning of the header line, the same for every version of the text."""
        path = escape_line(self.path).replace('"', "\\x22")
        return f'<file path="{path}" from="{self.kind.lower()}" '

    @property
    def header(self) -> str:
        """Return the header line; a conversation that contains it shows this version."""
        return f'{self.header_start}sha256="{self.digest}">'


class InstructionSet(msgspec.Struct, frozen=True):
    """Instruction files in order of precedence, and notices about others."""

    files: tuple[InstructionFile, ...] = ()
    notices: tuple[str, ...] = ()


class RenderedInstructions(msgspec.Struct, frozen=True):
    """Instruction files as one text, and the paths of the shortened ones."""

    text: str = ""
    cut: tuple[str, ...] = ()


def compute_instruction_budget(window: int) -> int:
    """Return the token limit of all instruction files."""
    return min(MAX_INSTRUCTION_TOKENS, window // INSTRUCTION_WINDOW_DIVISOR)


def render_instructions(files: Sequence[InstructionFile], *, budget: int) -> RenderedInstructions:
    """Render the instruction files in order; beyond the budget, the longest are shortened."""
    if not files:
        return RenderedInstructions()
    heads = _allot_head_tokens(files, budget)
    parts = [_render_instruction(file, heads.get(file.path)) for file in files]
    return RenderedInstructions(
        "\n".join((INSTRUCTIONS_TAG, INSTRUCTIONS_INTRO, *parts, "</instructions>")), tuple(heads)
    )


def filter_unshown_files(
    files: Iterable[InstructionFile], items: Iterable[ViewItem]
) -> tuple[InstructionFile, ...]:
    """Return the instruction files whose current version the conversation does not show."""
    notes = [
        block.text
        for item in items
        if isinstance(item.fact, User) and item.fact.origin == "note"
        for block in item.fact.content
        if isinstance(block, Text) and block.text.startswith(INSTRUCTIONS_TAG)
    ]
    return tuple(
        file for file in files if file.header not in _find_last_note(notes, file.header_start)
    )


def count_fitting_lines(lines: Sequence[str], tokens: int) -> int:
    """Return how many lines of an instruction file fit."""
    for count, line in enumerate(lines):
        tokens -= estimate_tokens(line)
        if tokens < 0:
            return count
    return len(lines)


def _find_last_note(notes: list[str], start: str) -> str:
    """Return the last note that contains an instruction file with this header."""
    return next((note for note in reversed(notes) if start in note), "")


def _allot_head_tokens(files: Sequence[InstructionFile], budget: int) -> dict[str, int]:
    """Return the token limit of each instruction file that is shortened."""
    sizes = {file.path: estimate_tokens(file.text) for file in files}
    cut: list[str] = []
    for file in sorted(files, key=lambda file: (file.kind != "Managed", sizes[file.path])):
        if sizes[file.path] <= budget:
            budget -= sizes[file.path]
        else:
            cut.append(file.path)
    return {path: budget // len(cut) for path in cut}


def _render_instruction(file: InstructionFile, tokens: int | None) -> str:
    """Render an instruction file for the model, cut to a token budget if one is given."""
    body = file.text
    if tokens is not None:
        lines = body.splitlines(keepends=True)
        count = count_fitting_lines(lines, tokens) if tokens >= MIN_HEAD_TOKENS else 0
        head = "".join(lines[:count]) or f"{lines[0].rstrip()[:MAX_HEAD_LINE_CHARS]}\n"
        path = escape_line(file.path)
        body = f"{head}[{count or 1} of {len(lines)} lines. Read {path} for the rest.]"
    return f"{file.header}\n{body}\n</file {file.digest}>"


# --- what a file says -----------------------------------------------------------------------------


def strip_html_comments(text: str) -> str:
    """Return an instruction text without HTML comments at line starts, except in code."""
    return "".join(line for line, _ in _classify_lines(text)) if "<!--" in text else text


def find_imports(text: str) -> tuple[str, ...]:
    """Return the paths that an instruction text imports as `@path`, except in code."""
    prose = "".join(line for line, code in _classify_lines(text) if not code) if "@" in text else ""
    found = (
        name.replace("\\ ", " ") for name in IMPORT_REFERENCE.findall(CODE_SPAN.sub("", prose))
    )
    return tuple(dict.fromkeys(found))


def has_only_imports(text: str) -> bool:
    """Return whether an instruction text consists of imports only."""
    return all(IMPORT_REFERENCE.fullmatch(word) for word in text.split())


def parse_scope_patterns(text: str) -> tuple[str, ...]:
    """Return the path patterns in an instruction rule's front matter; empty if none."""
    values = front_matter.parse_front_matter(text).values
    paths = next((values[key] for key in SCOPE_KEYS if key in values), ())
    listed = front_matter.split_on_commas(paths) if isinstance(paths, str) else paths
    return tuple(glob for word in listed if (glob := word.strip("'\"")))


def matches_scope_pattern(pattern: str, path: str) -> bool:
    """Return whether an instruction file's pattern with `*`, `**` and braces matches a path."""
    return any(_matches_parts(one.split("/"), path.split("/")) for one in _expand_braces(pattern))


def _classify_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line of an instruction text outside comments, and whether it is code."""
    fence, comment = "", list[str]()
    for line in text.splitlines(keepends=True):
        if comment or (not fence and COMMENT_START.match(line)):
            comment.append(line)
            if "-->" in line:
                rest = "".join(comment).partition("-->")[2]
                comment = []
                yield from [(rest, False)] if rest.strip() else []
            continue
        found = CODE_FENCE.match(line)
        yield line, bool(fence or found)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and line.strip() == found[1]:
            fence = ""
    yield from ((line, False) for line in comment)


def _expand_braces(pattern: str) -> list[str]:
    """Expand the braces in a path pattern of an instruction file, up to a limit."""
    done, waiting = list[str](), [pattern[:MAX_PATTERN_CHARS]]
    while waiting and len(done) < MAX_BRACE_EXPANSIONS:
        one = waiting.pop()
        if found := BRACE_GROUP.search(one):
            before, after = one[: found.start()], one[found.end() :]
            waiting += (before + choice + after for choice in found[1].split(","))
        else:
            done.append(one)
    return done


def _matches_parts(pattern: list[str], path: list[str]) -> bool:
    """Match a path with an instruction pattern in linear time, following all readings at once."""
    at = {0}
    for part in pattern:
        if part == "**":
            at = set(range(min(at), len(path) + 1))
        else:
            at = {i + 1 for i in at if i < len(path) and fnmatchcase(path[i], part)}
        if not at:
            return False
    return len(path) in at
