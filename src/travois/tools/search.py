"""Grep and Glob: finding text and files with ripgrep.

Both respect ignore files, look into hidden folders but not into .git, and name files relative to
the shell's folder. Grep sorts by path. Glob sorts by modification time, newest first, unless so
many files match that reading each time would take long: then by path, and it says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import anyio
import msgspec

from travois.core.display_text import escape_path
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Command, Env, FileStat, ProcessResult
from travois.tools.globs import (
    GLOB_LITERAL,
    PathFilter,
    expand_braces,
    parse_path_filter,
    split_fixed_head,
)
from travois.tools.paths import absolute_path, read_access

# Asking ripgrep: where to look, which of what it says may be shown, and when it is enough.


RIPGREP = (
    *("rg", "--no-config", "--no-ignore-messages", "--color=never"),
    *("--hidden", "--glob=!.git", "--no-require-git"),
)
SEARCH_TIMEOUT_SECONDS = 30.0
MAX_UNORDERED_BYTES = 16 * 1024 * 1024
"""Bytes read of an unordered answer before an ordered one is requested."""
HIDDEN_FILES_NOTE = "\n(files denied by a permission rule are left out)"
BINARY_MATCH = re.compile(
    rb"(.*?): ((?:WARNING: stopped|binary file matches).* byte around offset \d+\))"
)
UNREADABLE_ERROR = re.compile(
    rb"(?m)^rg: (.+?): (?:IO error for operation on \1: )?"
    rb"([^:\n]+(?= \(os error)|PCRE2: .*)(?: \(os error (\d+)\))?$"
)
FILE_GONE_ERRNO = b"2"
"""The number of the error that a file is not there: it went while we looked."""


class SearchRow(msgspec.Struct, frozen=True):
    """One row of a search result, and its file."""

    path: str
    text: str = ""


class RipgrepQuery(msgspec.Struct, frozen=True):
    """A query for ripgrep, and the folder to run it in."""

    folder: str
    """The folder to run in: an absolute path."""
    target: str
    """The search target: that folder, or a file by its relative path."""
    base: str
    """The prefix that makes its paths relative to the shell's folder."""
    options: tuple[str, ...]
    is_lines: bool = False
    """True to search for lines, False to list files."""
    filter: PathFilter = PathFilter()

    def matches(self, path: str) -> bool:
        """Return whether the patterns match this file; a named file may match by its base name."""
        if self.target == "./" or not self.filter.wanted:
            return self.filter.matches(path)
        return any(map(self.filter.matches, (path.lstrip("/"), os.path.basename(path))))


class RowWindow(msgspec.Struct, frozen=True):
    """The range of rows to keep; reading ends with the first row beyond it."""

    first: int
    count: int
    size: int


class SearchAnswer(msgspec.Struct, frozen=True):
    """The rows that ripgrep found, as far as they were read."""

    rows: tuple[SearchRow, ...]
    first: int
    """The number of rows before these."""
    known: int
    """The minimum number of rows, including those not kept."""
    is_whole: bool
    """True if that number is exact."""
    timed_out: bool
    has_hidden: bool
    unreadable: str

    @property
    def total(self) -> str:
        """The number of rows, in words: "at least" or "more than" where it is not exact."""
        if self.is_whole:
            return str(self.known)
        return f"at least {self.known}" if self.timed_out else f"more than {self.known - 1}"

    def remarks(self) -> str:
        """Return notes on what is missing from the rows; empty if nothing is."""
        late = (
            f"\n(stopped after {SEARCH_TIMEOUT_SECONDS:g} s, results are incomplete; "
            "narrow path or pattern)"
        )
        return (
            (late if self.timed_out else "")
            + self.unreadable
            + (HIDDEN_FILES_NOTE if self.has_hidden else "")
        )


async def locate_search_path(env: Env, path: str) -> tuple[str, FileStat]:
    """Return a search path as ripgrep and the model see it, short inside the working folder.

    Ripgrep follows no links except one given by name, so it gets the link's target.
    """
    full = absolute_path(path, env.cwd)
    stat = await env.files.stat(full)
    if stat is None:
        raise ToolError(f"{full} does not exist; paths are relative to {env.cwd}.")
    full = stat.link or full
    inside = full == env.cwd or full.startswith(env.cwd.rstrip("/") + "/")
    return (os.path.relpath(full, env.cwd) if inside else full), stat


def build_query(env: Env, place: str, stat: FileStat, *options: str) -> RipgrepQuery:
    """Build the ripgrep query for a place that `locate_search_path` found."""
    if stat.kind != "folder":
        return RipgrepQuery(env.cwd, place, "", options)
    folder = os.path.normpath(os.path.join(env.cwd, place))
    # From there, the rules of a filter mean what they say, and names are as short as can be.
    return RipgrepQuery(folder, "./", "" if place == "." else place.rstrip("/") + "/", options)


async def search_rows(
    env: Env, query: RipgrepQuery, *, page: RowWindow, count: int, unordered: Sequence[str] = ()
) -> SearchAnswer:
    """Return all rows that ripgrep finds if at most `count`, else one page, sorted by path.

    Ripgrep first runs without sorting, which would limit it to one thread.
    """
    begun = anyio.current_time()
    unsorted = msgspec.structs.replace(query, options=(*query.options, *unordered))
    whole = RipgrepReader(env, unsorted, RowWindow(0, count, MAX_UNORDERED_BYTES))
    done = await _run_ripgrep(env, whole, timeout=SEARCH_TIMEOUT_SECONDS)
    every = whole.answer(done)
    if done.cut:
        left = max(SEARCH_TIMEOUT_SECONDS - (anyio.current_time() - begun), 0.1)
        ordered = msgspec.structs.replace(query, options=(*query.options, "--sort=path"))
        part = RipgrepReader(env, ordered, page)
        done = await _run_ripgrep(env, part, timeout=left)
        if not done.timed_out:
            return part.answer(done, least=every.known)
        every = msgspec.structs.replace(every, timed_out=True)
    rows = sorted(every.rows, key=lambda row: os.fsencode(row.path).split(b"/"))
    return msgspec.structs.replace(every, rows=tuple(rows))


async def list_files(env: Env, query: RipgrepQuery, *, count: int) -> SearchAnswer:
    """Find files with ripgrep in no order, but no more than `count`."""
    reader = RipgrepReader(env, query, RowWindow(0, count, MAX_UNORDERED_BYTES))
    return reader.answer(await _run_ripgrep(env, reader, timeout=SEARCH_TIMEOUT_SECONDS))


class RipgrepReader:
    """Reads ripgrep's output as it arrives, and keeps the rows of one window that may be shown."""

    def __init__(self, env: Env, query: RipgrepQuery, window: RowWindow) -> None:
        self.query = query
        self.window = window
        self.rows: list[SearchRow] = []
        self.known = 0
        """The number of rows seen that may be shown."""
        self.has_hidden = False
        self._env = env
        self._size = 0
        self._rest = b""
        self._shown: dict[bytes, str | None] = {}

    def take(self, chunk: bytes) -> bool:
        """Take the next part of the output; false once there is enough."""
        mark = b"\n" if self.query.is_lines else b"\0"
        *records, self._rest = (self._rest + chunk).split(mark)
        return all(map(self._add_record, self._parse_records(records)))

    def answer(self, result: ProcessResult, *, least: int = 0) -> SearchAnswer:
        """Build the answer from the rows read so far."""
        return SearchAnswer(
            rows=tuple(self.rows),
            first=self.window.first,
            known=max(self.known, least),
            is_whole=not result.cut and not result.timed_out,
            timed_out=result.timed_out,
            has_hidden=self.has_hidden,
            unreadable=_describe_unreadable(self._env, self.query, result.errors.head_and_tail()),
        )

    def _parse_records(self, records: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Return each path with its record; a path may contain a newline."""
        if not self.query.is_lines:
            yield from ((path, b"") for path in records)
            return
        begun = b""
        for line in records:
            path, found, text = (begun + line).partition(b"\0")
            if found:
                yield path, text.removesuffix(b"\r")
                begun = b""
            elif binary := BINARY_MATCH.fullmatch(line):
                yield binary[1], binary[2]
            else:
                begun += line + b"\n"
        self._rest = begun + self._rest

    def _add_record(self, record: tuple[bytes, bytes]) -> bool:
        path = self._display_path(record[0])
        if path is None:
            return True
        self.known += 1
        if self.known <= self.window.first:
            return True
        if len(self.rows) == self.window.count or self._size > self.window.size:
            return False
        self.rows.append(SearchRow(path, record[1].decode(errors="backslashreplace")))
        self._size += len(record[1] or record[0]) + 1
        return True

    def _display_path(self, path: bytes) -> str | None:
        """Return the path to show; None for a file that is excluded or denied."""
        if path not in self._shown:
            self._shown = {path: self._filter_path(os.fsdecode(path.removeprefix(b"./")))}
        return self._shown[path]

    def _filter_path(self, name: str) -> str | None:
        if not self.query.matches(name):
            return None
        if self._env.hidden(os.path.join(self.query.folder, name)):
            self.has_hidden = True
            return None
        return self.query.base + name


async def _run_ripgrep(env: Env, reader: RipgrepReader, *, timeout: float) -> ProcessResult:
    """Run ripgrep in the folder of its query; its error messages become a refusal."""
    query = reader.query
    rules = ("--ignore-file=/dev/stdin",) if query.filter.rules else ()
    argv = (*RIPGREP, *rules, *query.options, "--", query.target)
    if any("\0" in word for word in argv):
        raise ToolError("The arguments contain a NUL character; remove it.")
    stdin = query.filter.rules.encode()
    command = Command(argv, cwd=query.folder, stdin=stdin, stderr="apart")
    try:
        done = await env.processes.run(command, timeout=timeout, reader=reader.take)
    except PermissionError:
        if os.access(query.folder, os.X_OK):
            raise
        raise ToolError(
            f"{escape_path(query.folder)} cannot be searched: permission denied."
        ) from None
    errors = done.errors.head
    if done.status == 2 and errors and not errors.startswith(f"rg: {query.target}".encode()):
        raise ToolError(_ripgrep_error(errors.decode(errors="replace")))
    return done


def _ripgrep_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(("error:", "PCRE2:"))]
    return "ripgrep: " + ("; ".join(lines) or text.strip().partition("\n")[0].removeprefix("rg: "))


def _describe_unreadable(env: Env, query: RipgrepQuery, errors: bytes) -> str:
    """Describe what a search could not read, without naming what a rule hides."""
    found = list[str]()
    for path, why, number in UNREADABLE_ERROR.findall(errors):
        name = os.fsdecode(path.removeprefix(b"./"))
        if number != FILE_GONE_ERRNO and not env.hidden(os.path.join(query.folder, name)):
            found.append(f"{show_path(query.base + name)}: {why.decode(errors='replace')}")
    if not found:
        return ""
    if len(found) == 1:
        return f"\n(could not read {found[0]})"
    return f"\n(could not read {len(found)} files or folders, such as {found[0]})"


def show_path(path: str) -> str:
    """Return a found path as the model sees it, with bytes that are no text escaped."""
    return escape_path(os.fsencode(path).decode(errors="backslashreplace"))


def describe_place(path: str) -> str:
    """Return " in PATH" for the summary of a search, if a path was given."""
    return f" in {escape_path(path)}" if path else ""


MAX_MATCH_CHARS = 500
MAX_GREP_BYTES = 20_000
MAX_GREP_LINES = 250
MAX_GLOB_FILES = 100
IGNORED_FILES_NOTE = "(ignored files and .git are left out)"
MAX_ROWS = 10_000
"""Maximum rows found and counted in full; beyond that, only one page is."""
MAX_SORTED = 20_000
"""Maximum files whose change time is looked up, which takes about 0.1 s."""


class GrepArgs(msgspec.Struct, frozen=True):
    """A pattern, where to search, and what to show."""

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
    head_limit: int = MAX_GREP_LINES
    offset: int = 0


class GlobArgs(msgspec.Struct, frozen=True):
    """The files to list."""

    pattern: str
    path: str = ""


async def _run_grep(args: GrepArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Grep tool: search file contents by a regular expression with ripgrep."""
    place, stat = await locate_search_path(env, args.path)
    query = msgspec.structs.replace(
        build_query(env, place, stat, *_grep_options(args), "--regexp", args.pattern),
        is_lines=args.output_mode != "files_with_matches",
        filter=_parse_glob_filter(args.glob),
    )
    # One file can fill the answer: no more of it is needed to know that there is too much.
    enough = f"--max-count={MAX_ROWS + 1}"
    answer = await search_rows(
        env,
        query,
        page=RowWindow(max(args.offset, 0), _row_limit(args), MAX_GREP_BYTES),
        count=MAX_ROWS,
        unordered=(enough,) if args.output_mode == "content" else (),
    )
    if not answer.known:
        none = "No match so far" if answer.timed_out else "No match"
        return text_outcome(
            f"{none} for {args.pattern!r}{describe_place(args.path)}.{answer.remarks()}"
        )
    return text_outcome(_render_grep_page(args, answer) + answer.remarks())


async def _run_glob(args: GlobArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Glob tool: list the files whose paths match a glob."""
    folder, pattern = _split_glob_root(args)
    place, stat = await locate_search_path(env, folder)
    if stat.kind != "folder":
        raise ToolError(f"{folder} is not a folder; omit path to search the working folder.")
    _check_glob(pattern)
    query = msgspec.structs.replace(
        build_query(env, place, stat, "--files", "--null"), filter=_parse_glob_filter(pattern)
    )
    answer = await search_rows(
        env, query, page=RowWindow(0, MAX_GLOB_FILES, MAX_UNORDERED_BYTES), count=MAX_SORTED
    )
    if not answer.known:
        none = "No file so far" if answer.timed_out else "No file"
        words = f"{none} matches {args.pattern!r}{describe_place(args.path)} {IGNORED_FILES_NOTE}."
        return text_outcome(words + await _glob_hint(env, query, pattern) + answer.remarks())
    return text_outcome("\n".join(await _render_file_list(env, answer)) + answer.remarks())


async def _render_file_list(env: Env, answer: SearchAnswer) -> list[str]:
    """Render the files found by Glob, with the total if not all are listed."""
    paths, order = [row.path for row in answer.rows], "by path"
    if answer.is_whole or answer.timed_out:
        times = await env.files.modified_times([os.path.join(env.cwd, path) for path in paths])
        age = {path: -time for path, time in zip(paths, times, strict=True)}
        paths, order = sorted(paths, key=age.__getitem__), "newest first"
    lines = [show_path(path) for path in paths[:MAX_GLOB_FILES]]
    if answer.known > len(lines):
        lines.append(f"({len(lines)} of {answer.total}, {order}; narrow the pattern or path)")
    return lines


async def _glob_hint(env: Env, query: RipgrepQuery, pattern: str) -> str:
    """Suggest why a glob matched nothing: it names a folder, or a link is in the way."""
    literal = GLOB_LITERAL.fullmatch(pattern)
    name = (pattern if literal else split_fixed_head(pattern)[0]).strip("/")
    stat = await env.files.stat(absolute_path(os.path.join(".", name), query.folder))
    if stat is None or stat.kind != "folder":
        return ""
    name = show_path(os.path.join(query.base, name).rstrip("/") or query.folder)
    if stat.link and not env.hidden(stat.link):
        return f" {name} is a symbolic link, and links are not followed: set path to it."
    return f" {name} is a folder: {name}/** lists its files." if literal else ""


def _grep_options(args: GrepArgs) -> Iterable[str]:
    """List the ripgrep options for a Grep call."""
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
            yield from _grep_layout_options(args)


def _grep_layout_options(args: GrepArgs) -> Iterable[str]:
    """List the ripgrep options for line numbers, context and long lines of Grep."""
    yield from (
        f"--max-columns={MAX_MATCH_CHARS}",
        "--max-columns-preview",
        "--no-context-separator",
    )
    yield "--line-number" if args.numbers else "--no-line-number"
    yield f"--before-context={max(args.before, args.around, 0)}"
    yield f"--after-context={max(args.after, args.around, 0)}"


def _parse_glob_filter(patterns: str) -> PathFilter:
    """Parse the globs of a Grep or Glob call, or explain that one is malformed."""
    try:
        return parse_path_filter(patterns)
    except re.error as error:
        raise ToolError(f"The glob {patterns!r} is malformed: {error}.") from None


def _split_glob_root(args: GlobArgs) -> tuple[str, str]:
    """Split a glob into folder and pattern; absolute ones and those with `..` bring a folder."""
    pattern = os.path.expanduser(args.pattern)
    head, rest = split_fixed_head(pattern)
    if pattern.startswith("/"):
        return head.rstrip("/") or "/", f"/{rest}" if GLOB_LITERAL.fullmatch(rest) else rest
    if ".." in head.split("/"):
        return os.path.join(args.path, head), f"/{rest}"
    return args.path, pattern


def _check_glob(pattern: str) -> None:
    """Refuse a glob that no path can match, so that the result does not mislead."""
    found = expand_braces(pattern) or ()
    if any(".." in "".join(tokens).split("/") for tokens in found):
        raise ToolError(f"{pattern!r} has .. after a wildcard; set path to that folder instead.")
    if any(tokens[:1] == ("/",) for tokens in found):
        raise ToolError(f"{pattern!r} contains several absolute patterns; call Glob once for each.")


def _row_limit(args: GrepArgs) -> int:
    return args.head_limit if args.head_limit > 0 else MAX_ROWS


def _render_grep_page(args: GrepArgs, answer: SearchAnswer) -> str:
    """Render a page of Grep results from `offset` on, and how to see the others."""
    first = max(args.offset, 0)
    rows = answer.rows[first - answer.first :][: _row_limit(args)]
    if not rows:
        return _describe_past_end(answer, first)
    lines = _fit_grep_rows(args, rows)
    last = first + len(lines)
    if last < answer.known:
        rest = f"offset={last} shows more; or narrow path, glob or type"
        lines.append(f"({first + 1}-{last} of {answer.total}; {rest})")
    elif args.output_mode == "count" and not answer.first:
        least = "" if answer.is_whole else "at least "
        matches = sum(int(row.text) for row in answer.rows)
        lines.append(f"({least}{matches} in {answer.known} files)")
    return "\n".join(lines)


def _describe_past_end(answer: SearchAnswer, first: int) -> str:
    """Explain that the offset of a Grep or Glob call is past the last result."""
    if answer.is_whole:
        return f"There are only {answer.known} results; offset {first} is past the last."
    return f"Only {answer.known} results were found in time; offset {first} is past the last."


def _fit_grep_rows(args: GrepArgs, rows: Sequence[SearchRow]) -> list[str]:
    """Format the rows of a Grep result up to its size limit."""
    lines, size = list[str](), 0
    for row, before in zip(rows, (None, *rows), strict=False):
        line = _format_grep_row(args, row, before)
        size += len(line.encode()) + 1
        if size > MAX_GREP_BYTES and lines:
            break
        lines.append(line)
    return lines


def _format_grep_row(args: GrepArgs, row: SearchRow, before: SearchRow | None) -> str:
    """Format one row of a Grep result for its output mode, grouped by file."""
    name = show_path(row.path)
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
        "Search file contents with a ripgrep regex. Default output: matching files sorted by "
        "path; output_mode content shows lines, grouped by file. Ignored files are skipped. "
        "multiline lets . match newlines."
    ),
    args=GrepArgs,
    access=lambda args, here: read_access(args.path, here),
    run=_run_grep,
    summary=lambda args: f"Search for {args.pattern!r}{describe_place(args.path)}",
)

GLOB = Tool(
    name="Glob",
    description="List files whose path matches a glob such as src/**/*.{ts,tsx}, newest first.",
    args=GlobArgs,
    access=lambda args, here: read_access(_split_glob_root(args)[0], here),
    run=_run_glob,
    summary=lambda args: f"List {escape_path(args.pattern)}{describe_place(args.path)}",
)
