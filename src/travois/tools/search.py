"""Grep and Glob: finding text and files with ripgrep.

Both respect ignore files, look into hidden folders but not into .git, and name files relative to
the shell's folder. Grep orders by path, Glob by time of change, newest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from travois.engine.ports import Env
from travois.engine.tool import Outcome, Refusal, Tool, said
from travois.tools import globs
from travois.tools.place import plain, reads
from travois.tools.ripgrep import (
    KEPT_BACK,
    RG,
    Row,
    answer,
    ask,
    paths,
    seen,
    spot,
    unfinished,
    where,
)

WIDTH = 500
BYTES = 20_000
LINES = 250
FILES = 100
BINARY = re.compile(r"(.*?): (?:WARNING: stopped|binary file matches).* byte around offset \d+\)")


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
    place, _ = await spot(env, args.path)
    argv = (*RG, *_options(args), "--regexp", args.pattern, "--", place)
    done = await ask(env, argv)
    found = _narrowed(_rows(args, answer(done)), args.glob, place)
    rows = seen(found, env)
    rows.sort(key=lambda row: row.path)
    remark = KEPT_BACK if len(rows) < len(found) else ""
    if not rows and not done.timed_out:
        return said(f"No match for {args.pattern!r}{where(args.path)}.{remark}")
    return said(_page(args, rows) + unfinished(done) + remark)


async def _glob(args: GlobArgs, env: Env, call: str) -> Outcome:
    folder, pattern = _rooted(args)
    place, stat = await spot(env, folder)
    if stat.kind != "folder":
        raise Refusal(f"{folder} is not a folder; leave path out to search the working folder.")
    done = await ask(env, (*RG, "--files", "--null", "--sortr=modified", "--", place))
    every = _narrowed([Row(path) for path in paths(answer(done))], pattern, place)
    found = seen(every, env)
    remark = KEPT_BACK if len(found) < len(every) else ""
    if not found and not done.timed_out:
        return said(f"No file matches {args.pattern!r}{where(args.path)}.{remark}")
    lines = [plain(row.path) for row in found[:FILES]]
    if len(found) > FILES:
        lines.append(f"({FILES} of {len(found)}, newest first; narrow the pattern or path)")
    return said("\n".join(lines) + unfinished(done) + remark)


def _options(args: GrepArgs) -> Iterable[str]:
    yield from ("--null", "--color=never", "--no-heading", "--with-filename", "--crlf")
    yield "--engine=auto"
    if args.ignore_case:
        yield "--ignore-case"
    if args.multiline:
        yield from ("--multiline", "--multiline-dotall")
    elif "\\n" in args.pattern:
        yield "--multiline"
    yield from _kinds(args)
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


def _kinds(args: GrepArgs) -> Iterable[str]:
    """Which files ripgrep opens: at least all that `glob` wants, `_narrowed` does the rest.

    A file type is the one filter of ripgrep that leaves ignore files in force.
    """
    if args.type:
        yield f"--type={args.type}"
        return
    names = [globs.basename(p) for p in globs.split(args.glob) if p[0] != "!"]
    if names and all(name and ":" not in name for name in names):
        yield from (f"--type-add=wanted:{name}" for name in names)
        yield "--type=wanted"


def _rooted(args: GlobArgs) -> tuple[str, str]:
    """Folder and pattern; an absolute pattern brings its own folder."""
    if not args.pattern.startswith("/"):
        return args.path, args.pattern
    head = re.split(r"[*?\[{]", args.pattern, maxsplit=1)[0].rpartition("/")[0]
    return head or "/", args.pattern[len(head) + 1 :]


def _rows(args: GrepArgs, text: str) -> list[Row]:
    if args.output_mode == "files_with_matches":
        return [Row(path) for path in paths(text)]
    rows, name = list[Row](), ""
    for line in text.split("\n")[:-1]:
        path, found, rest = (name + line).partition("\0")
        if found:
            rows.append(Row(path.removeprefix("./"), rest.removesuffix("\r")))
            name = ""
        elif binary := BINARY.fullmatch(line):
            rows.append(Row(binary[1].removeprefix("./"), line.removeprefix(binary[1] + ": ")))
        else:
            name += line + "\n"
    return rows


def _narrowed(rows: list[Row], patterns: str, place: str) -> list[Row]:
    """The rows of files that one of the patterns matches, and none of those with a `!`."""
    try:
        wanted = [globs.compiled(p) for p in globs.split(patterns) if p[0] != "!"]
        barred = [globs.compiled(p[1:]) for p in globs.split(patterns) if p[0] == "!"]
    except re.error as error:
        raise Refusal(f"The glob {patterns!r} is malformed: {error}.") from None
    if not wanted and not barred:
        return rows
    base = "" if place == "." else place.rstrip("/") + "/"

    def fits(path: str) -> bool:
        inner = path.removeprefix(base) or path
        return (not wanted or any(p.fullmatch(inner) for p in wanted)) and not any(
            p.fullmatch(inner) for p in barred
        )

    return [row for row in rows if fits(row.path)]


def _page(args: GrepArgs, rows: list[Row]) -> str:
    """As many rows from `offset` on as may be shown, and how to see the others."""
    first = max(args.offset, 0)
    if first >= len(rows):
        return f"There are only {len(rows)} results; offset {first} is past the last."
    limit = args.head_limit if args.head_limit > 0 else len(rows)
    lines = _fitting(args, rows[first : first + limit])
    last = first + len(lines)
    if last < len(rows):
        rest = f"offset={last} shows more; or narrow path, glob or type"
        lines.append(f"({first + 1}-{last} of {len(rows)}; {rest})")
    elif args.output_mode == "count":
        lines.append(f"({sum(int(row.text) for row in rows)} in {len(rows)} files)")
    return "\n".join(lines)


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
    name = plain(row.path)
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
