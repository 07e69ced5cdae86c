"""Grep and Glob: finding text and files with ripgrep.

Both respect ignore files, look into hidden folders but not into .git, and name files relative to
the shell's folder. Grep orders by path. Glob orders by time of change, newest first, unless so many
files match that it would take long to ask for the time of each: then by path, and it says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Env
from travois.tools import globs
from travois.tools.paths import absolute, plain, reads
from travois.tools.ripgrep import (
    MAX_BYTES,
    Answer,
    Query,
    Row,
    Window,
    query_at,
    search,
    shown,
    spot,
    where,
)

WIDTH = 500
BYTES = 20_000
LINES = 250
FILES = 100
LEFT_OUT = "(ignored files and .git are left out)"
MAX_ROWS = 10_000
"""Up to this many rows are all found and counted; of more, only a page is."""
MAX_SORTED = 20_000
"""Up to this many files are asked when they were changed; that takes about 0.1 s."""


class GrepArgs(msgspec.Struct, frozen=True):
    """What to look for, where, and what to show of it."""

    pattern: str
    path: str = ""
    glob: str = ""
    type: str = ""
    output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches"
    ignore_case: bool = msgspec.field(default=False, name="-i")
    numbers: bool = msgspec.field(default=True, name="-n")
    after: int = msgspec.field(default=0, name="-A")
    before: int = msgspec.field(default=0, name="-B")
    around: int = msgspec.field(default=0, name="-C")
    multiline: bool = False
    head_limit: int = LINES
    offset: int = 0


class GlobArgs(msgspec.Struct, frozen=True):
    """Which files to list."""

    pattern: str
    path: str = ""


async def _grep(args: GrepArgs, env: Env, call: str) -> Outcome:
    place, stat = await spot(env, args.path)
    query = msgspec.structs.replace(
        query_at(env, place, stat, *_options(args), "--regexp", args.pattern),
        is_lines=args.output_mode != "files_with_matches",
        filter=_path_filter(args.glob),
    )
    # One file can fill the answer: no more of it is needed to know that there is too much.
    enough = f"--max-count={MAX_ROWS + 1}"
    answer = await search(
        env,
        query,
        page=Window(max(args.offset, 0), _limit(args), BYTES),
        count=MAX_ROWS,
        unordered=(enough,) if args.output_mode == "content" else (),
    )
    if not answer.known:
        none = "No match so far" if answer.timed_out else "No match"
        return said(f"{none} for {args.pattern!r}{where(args.path)}.{answer.remarks()}")
    return said(_page(args, answer) + answer.remarks())


async def _glob(args: GlobArgs, env: Env, call: str) -> Outcome:
    folder, pattern = _rooted(args)
    place, stat = await spot(env, folder)
    if stat.kind != "folder":
        raise Refusal(f"{folder} is not a folder; leave path out to search the working folder.")
    _check(pattern)
    query = msgspec.structs.replace(
        query_at(env, place, stat, "--files", "--null"), filter=_path_filter(pattern)
    )
    answer = await search(env, query, page=Window(0, FILES, MAX_BYTES), count=MAX_SORTED)
    if not answer.known:
        none = "No file so far" if answer.timed_out else "No file"
        words = f"{none} matches {args.pattern!r}{where(args.path)} {LEFT_OUT}."
        return said(words + await _hint(env, query, pattern) + answer.remarks())
    return said("\n".join(await _listed(env, answer)) + answer.remarks())


async def _listed(env: Env, answer: Answer) -> list[str]:
    """The lines of a listing, and how many files there are if it does not name all."""
    paths, order = [row.path for row in answer.rows], "by path"
    if answer.is_whole or answer.timed_out:
        times = await env.files.modified([os.path.join(env.cwd, path) for path in paths])
        age = {path: -time for path, time in zip(paths, times, strict=True)}
        paths, order = sorted(paths, key=age.__getitem__), "newest first"
    lines = [shown(path) for path in paths[:FILES]]
    if answer.known > len(lines):
        lines.append(f"({len(lines)} of {answer.total}, {order}; narrow the pattern or path)")
    return lines


async def _hint(env: Env, query: Query, pattern: str) -> str:
    """What may be wrong with a pattern that matched nothing: a folder, or a link on its way."""
    literal = globs.LITERAL.fullmatch(pattern)
    name = (pattern if literal else globs.fixed_head(pattern)[0]).strip("/")
    stat = await env.files.stat(absolute(os.path.join(".", name), query.folder))
    if stat is None or stat.kind != "folder":
        return ""
    name = shown(os.path.join(query.base, name).rstrip("/") or query.folder)
    if stat.link and not env.hidden(stat.link):
        return f" {name} is reached through a link, and links are not followed: set path to it."
    return f" {name} is a folder: {name}/** lists its files." if literal else ""


def _options(args: GrepArgs) -> Iterable[str]:
    yield from ("--null", "--no-heading", "--with-filename", "--crlf")
    yield "--engine=auto"
    if args.ignore_case:
        yield "--ignore-case"
    if args.multiline:
        yield from ("--multiline", "--multiline-dotall")
    elif "\\n" in args.pattern:
        yield "--multiline"
    if args.type:
        yield f"--type={args.type}"
    match args.output_mode:
        case "files_with_matches":
            yield "--files-with-matches"
        case "count":
            yield "--count"
        case "content":
            yield from _layout(args)


def _layout(args: GrepArgs) -> Iterable[str]:
    yield from (f"--max-columns={WIDTH}", "--max-columns-preview", "--no-context-separator")
    yield "--line-number" if args.numbers else "--no-line-number"
    yield f"--before-context={max(args.before, args.around, 0)}"
    yield f"--after-context={max(args.after, args.around, 0)}"


def _path_filter(patterns: str) -> globs.PathFilter:
    try:
        return globs.path_filter(patterns)
    except re.error as error:
        raise Refusal(f"The glob {patterns!r} is malformed: {error}.") from None


def _rooted(args: GlobArgs) -> tuple[str, str]:
    """Folder and pattern; one that is absolute or begins with `..` brings its own folder."""
    pattern = os.path.expanduser(args.pattern)
    head, rest = globs.fixed_head(pattern)
    if pattern.startswith("/"):
        return head.rstrip("/") or "/", f"/{rest}" if globs.LITERAL.fullmatch(rest) else rest
    if ".." in head.split("/"):
        return os.path.join(args.path, head), f"/{rest}"
    return args.path, pattern


def _check(pattern: str) -> None:
    """Refuse what no path could match: it would look as if there were no such file."""
    found = globs.alternatives(pattern) or ()
    if any(".." in "".join(tokens).split("/") for tokens in found):
        raise Refusal(f"{pattern!r} has .. after a wildcard; set path to that folder instead.")
    if any(tokens[:1] == ("/",) for tokens in found):
        raise Refusal(f"{pattern!r} holds several absolute patterns; call Glob once for each.")


def _limit(args: GrepArgs) -> int:
    return args.head_limit if args.head_limit > 0 else MAX_ROWS


def _page(args: GrepArgs, answer: Answer) -> str:
    """As many rows from `offset` on as may be shown, and how to see the others."""
    first = max(args.offset, 0)
    rows = answer.rows[first - answer.first :][: _limit(args)]
    if not rows:
        return _past(answer, first)
    lines = _fitting(args, rows)
    last = first + len(lines)
    if last < answer.known:
        rest = f"offset={last} shows more; or narrow path, glob or type"
        lines.append(f"({first + 1}-{last} of {answer.total}; {rest})")
    elif args.output_mode == "count" and not answer.first:
        least = "" if answer.is_whole else "at least "
        matches = sum(int(row.text) for row in answer.rows)
        lines.append(f"({least}{matches} in {answer.known} files)")
    return "\n".join(lines)


def _past(answer: Answer, first: int) -> str:
    if answer.is_whole:
        return f"There are only {answer.known} results; offset {first} is past the last."
    return f"Only {answer.known} results were found in time; offset {first} is past the last."


def _fitting(args: GrepArgs, rows: Sequence[Row]) -> list[str]:
    lines, size = list[str](), 0
    for row, before in zip(rows, (None, *rows), strict=False):
        line = _line(args, row, before)
        size += len(line.encode()) + 1
        if size > BYTES and lines:
            break
        lines.append(line)
    return lines


def _line(args: GrepArgs, row: Row, before: Row | None) -> str:
    name = shown(row.path)
    match args.output_mode:
        case "files_with_matches":
            return name
        case "count":
            return f"{name}:{row.text}"
        case "content":
            if before is not None and before.path == row.path:
                return row.text
            return ("\n" if before else "") + (f"{name}\n{row.text}" if name else row.text)


GREP = Tool(
    name="Grep",
    description=(
        "Search file contents with a ripgrep regex. Default output: paths of matching files, by "
        "path; output_mode content shows lines, grouped by file. Ignored files are skipped. "
        "multiline lets . match newlines."
    ),
    args=GrepArgs,
    access=lambda args, here: reads(args.path, here),
    run=_grep,
    summary=lambda args: f"Search for {args.pattern!r}{where(args.path)}",
)

GLOB = Tool(
    name="Glob",
    description="List files whose path matches a glob such as src/**/*.{ts,tsx}, newest first.",
    args=GlobArgs,
    access=lambda args, here: reads(_rooted(args)[0], here),
    run=_glob,
    summary=lambda args: f"List {plain(args.pattern)}{where(args.path)}",
)
