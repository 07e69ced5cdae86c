"""Asking ripgrep: where to look, which of what it says may be shown, and when it is enough.

It respects ignore files, looks into hidden folders but not into .git, and files are named relative
to the shell's folder. Its output is read as it comes; it is ended once there is enough of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import anyio
import msgspec

from travois.ports.tool import Refusal
from travois.ports.world import Command, Completed, Env, Stat
from travois.tools.globs import PathFilter
from travois.tools.paths import absolute, plain

RG = (
    *("rg", "--no-config", "--no-ignore-messages", "--color=never"),
    *("--hidden", "--glob=!.git", "--no-require-git"),
)
SECONDS = 30.0
MAX_BYTES = 16 * 1024 * 1024
"""How much of an unordered answer is read before it is asked for in order."""
KEPT_BACK = "\n(files that a rule keeps from being read are left out)"
BINARY = re.compile(
    rb"(.*?): ((?:WARNING: stopped|binary file matches).* byte around offset \d+\))"
)
UNREADABLE = re.compile(
    rb"(?m)^rg: (.+?): (?:IO error for operation on \1: )?"
    rb"([^:\n]+(?= \(os error)|PCRE2: .*)(?: \(os error (\d+)\))?$"
)
GONE = b"2"
"""The number of the error that a file is not there: it went while we looked."""


class Row(msgspec.Struct, frozen=True):
    """One line of an answer, and the file that it is about."""

    path: str
    text: str = ""


class Query(msgspec.Struct, frozen=True):
    """What ripgrep is asked, and where."""

    folder: str
    """Where it runs: an absolute path."""
    target: str
    """What it searches: that folder, or a file by its path from there."""
    base: str
    """What goes before its paths, so that they lead there from the shell's folder."""
    options: tuple[str, ...]
    is_lines: bool = False
    """Whether it is asked for lines of files, and not for files."""
    filter: PathFilter = PathFilter()

    def fits(self, path: str) -> bool:
        """Whether the patterns mean this file; one that was named may be meant by its name."""
        if self.target == "./" or not self.filter.wanted:
            return self.filter.fits(path)
        return any(map(self.filter.fits, (path.lstrip("/"), os.path.basename(path))))


class Window(msgspec.Struct, frozen=True):
    """Which rows of an answer are kept; reading ends with the first one beyond them."""

    first: int
    count: int
    size: int


class Answer(msgspec.Struct, frozen=True):
    """What ripgrep found, as far as it was read."""

    rows: tuple[Row, ...]
    first: int
    """How many rows come before these."""
    known: int
    """How many there are at least, with those that were not kept."""
    is_whole: bool
    """Whether that is how many there are."""
    timed_out: bool
    has_hidden: bool
    unreadable: str

    @property
    def total(self) -> str:
        """How many rows there are, in words that are true."""
        if self.is_whole:
            return str(self.known)
        return f"at least {self.known}" if self.timed_out else f"more than {self.known - 1}"

    def remarks(self) -> str:
        """What the model should know of what is not here; empty if all is."""
        late = f"\n(stopped after {SECONDS:g} s, so this is not all; narrow path or pattern)"
        return (
            (late if self.timed_out else "")
            + self.unreadable
            + (KEPT_BACK if self.has_hidden else "")
        )


async def spot(env: Env, path: str) -> tuple[str, Stat]:
    """A path as ripgrep and the model should see it (short inside the working folder).

    Ripgrep follows no links but one that it is given by name, so it is given where that led.
    """
    full = absolute(path, env.cwd)
    stat = await env.files.stat(full)
    if stat is None:
        raise Refusal(f"{full} does not exist; paths are relative to {env.cwd}.")
    full = stat.link or full
    inside = full == env.cwd or full.startswith(env.cwd.rstrip("/") + "/")
    return (os.path.relpath(full, env.cwd) if inside else full), stat


def query_at(env: Env, place: str, stat: Stat, *options: str) -> Query:
    """A question about a place that `spot` found."""
    if stat.kind != "folder":
        return Query(env.cwd, place, "", options)
    folder = os.path.normpath(os.path.join(env.cwd, place))
    # From there, the rules of a filter mean what they say, and names are as short as can be.
    return Query(folder, "./", "" if place == "." else place.rstrip("/") + "/", options)


async def search(
    env: Env, query: Query, *, page: Window, count: int, unordered: Sequence[str] = ()
) -> Answer:
    """Find all rows if there are at most `count`, else those of one page, in order of path.

    Ripgrep is asked without an order first, because an order makes it use one thread only.
    """
    begun = anyio.current_time()
    unsorted = msgspec.structs.replace(query, options=(*query.options, *unordered))
    whole = Reader(env, unsorted, Window(0, count, MAX_BYTES))
    done = await _run(env, whole, timeout=SECONDS)
    every = whole.answer(done)
    if done.cut:
        left = max(SECONDS - (anyio.current_time() - begun), 0.1)
        ordered = msgspec.structs.replace(query, options=(*query.options, "--sort=path"))
        part = Reader(env, ordered, page)
        done = await _run(env, part, timeout=left)
        if not done.timed_out:
            return part.answer(done, least=every.known)
        every = msgspec.structs.replace(every, timed_out=True)
    rows = sorted(every.rows, key=lambda row: os.fsencode(row.path).split(b"/"))
    return msgspec.structs.replace(every, rows=tuple(rows))


async def list_files(env: Env, query: Query, *, count: int) -> Answer:
    """Find files in no order, but no more than `count`."""
    reader = Reader(env, query, Window(0, count, MAX_BYTES))
    return reader.answer(await _run(env, reader, timeout=SECONDS))


class Reader:
    """Takes ripgrep's output as it comes, and keeps the rows of one window that may be shown."""

    def __init__(self, env: Env, query: Query, window: Window) -> None:
        self.query = query
        self.window = window
        self.rows: list[Row] = []
        self.known = 0
        """How many rows were seen that may be shown."""
        self.has_hidden = False
        self._env = env
        self._size = 0
        self._rest = b""
        self._shown: dict[bytes, str | None] = {}

    def take(self, chunk: bytes) -> bool:
        """Take the next part of the output; false once there is enough."""
        mark = b"\n" if self.query.is_lines else b"\0"
        *records, self._rest = (self._rest + chunk).split(mark)
        return all(map(self._add, self._records(records)))

    def answer(self, done: Completed, *, least: int = 0) -> Answer:
        """What was found."""
        return Answer(
            rows=tuple(self.rows),
            first=self.window.first,
            known=max(self.known, least),
            is_whole=not done.cut and not done.timed_out,
            timed_out=done.timed_out,
            has_hidden=self.has_hidden,
            unreadable=_unreadable(self._env, self.query, done.errors.joined()),
        )

    def _records(self, records: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Each path and what is said of it; a path may hold the end of a line."""
        if not self.query.is_lines:
            yield from ((path, b"") for path in records)
            return
        begun = b""
        for line in records:
            path, found, text = (begun + line).partition(b"\0")
            if found:
                yield path, text.removesuffix(b"\r")
                begun = b""
            elif binary := BINARY.fullmatch(line):
                yield binary[1], binary[2]
            else:
                begun += line + b"\n"
        self._rest = begun + self._rest

    def _add(self, record: tuple[bytes, bytes]) -> bool:
        path = self._shown_path(record[0])
        if path is None:
            return True
        self.known += 1
        if self.known <= self.window.first:
            return True
        if len(self.rows) == self.window.count or self._size > self.window.size:
            return False
        self.rows.append(Row(path, record[1].decode(errors="backslashreplace")))
        self._size += len(record[1] or record[0]) + 1
        return True

    def _shown_path(self, path: bytes) -> str | None:
        """The path as it is shown; none for a file that is not meant or that a rule hides."""
        if path not in self._shown:
            self._shown = {path: self._judged(os.fsdecode(path.removeprefix(b"./")))}
        return self._shown[path]

    def _judged(self, name: str) -> str | None:
        if not self.query.fits(name):
            return None
        if self._env.hidden(os.path.join(self.query.folder, name)):
            self.has_hidden = True
            return None
        return self.query.base + name


async def _run(env: Env, reader: Reader, *, timeout: float) -> Completed:
    """Run it where its question says; what it complains about is refused."""
    query = reader.query
    rules = ("--ignore-file=/dev/stdin",) if query.filter.rules else ()
    argv = (*RG, *rules, *query.options, "--", query.target)
    if any("\0" in word for word in argv):
        raise Refusal("The arguments hold a NUL character; leave it out.")
    stdin = query.filter.rules.encode()
    command = Command(argv, cwd=query.folder, stdin=stdin, stderr="apart")
    try:
        done = await env.processes.run(command, timeout=timeout, reader=reader.take)
    except PermissionError:
        if os.access(query.folder, os.X_OK):
            raise
        raise Refusal(f"{plain(query.folder)} cannot be searched: permission denied.") from None
    errors = done.errors.head
    if done.status == 2 and errors and not errors.startswith(f"rg: {query.target}".encode()):
        raise Refusal(_complaint(errors.decode(errors="replace")))
    return done


def _complaint(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(("error:", "PCRE2:"))]
    return "ripgrep: " + ("; ".join(lines) or text.strip().partition("\n")[0].removeprefix("rg: "))


def _unreadable(env: Env, query: Query, errors: bytes) -> str:
    """Words on what could not be read; nothing is said of what a rule hides."""
    found = list[str]()
    for path, why, number in UNREADABLE.findall(errors):
        name = os.fsdecode(path.removeprefix(b"./"))
        if number != GONE and not env.hidden(os.path.join(query.folder, name)):
            found.append(f"{shown(query.base + name)}: {why.decode(errors='replace')}")
    if not found:
        return ""
    if len(found) == 1:
        return f"\n(could not read {found[0]})"
    return f"\n(could not read {len(found)} files or folders, such as {found[0]})"


def shown(path: str) -> str:
    """A path as the model sees it, bytes that are no text as escapes."""
    return plain(os.fsencode(path).decode(errors="backslashreplace"))


def where(path: str) -> str:
    """Words that say where, if a place was named."""
    return f" in {plain(path)}" if path else ""
