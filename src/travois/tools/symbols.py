"""Symbols: definitions and references of a name, and outlines of files, by syntax.

There is no index to keep: ripgrep finds the files in which a name can be, and only these are
parsed. What it cannot say is which of two things of the same name is meant.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

import anyio
import msgspec
from msgspec.structs import replace

from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Command, Env, FileStat
from travois.tools import syntax
from travois.tools.parsing import Source, Task, Wanted
from travois.tools.paths import absolute, plain, reads
from travois.tools.search import KEPT_BACK, Row, list_files, query_at, shown, spot, where

SECONDS = 15.0
LARGEST = 1_000_000
WIDEST = 10_000
"""A source with a longer line was not written by hand."""
SAMPLE = 8_000
"""Bytes examined to tell text from binary."""
LINES = 250
BYTES = 20_000
MADE = re.compile(rb"(?i)@generated\b|\bdo not edit\b")
MAX_FILES = 50_000
BATCH = 200
KEEP = 32 * 1024 * 1024
PARSER = (sys.executable, "-I", "-m", "travois.tools.parsing")


class SymbolsArgs(msgspec.Struct, frozen=True):
    """A name, where to search, and whether to find definitions or references."""

    name: str = ""
    path: str = ""
    kind: str = ""
    references: bool = False
    offset: int = 0


class Looked(msgspec.Struct):
    """The files of a search, the rows found, and how far it got."""

    place: str
    """The kind of place: a folder, or the file that was asked about."""
    files: list[str]
    unfinished: str = ""
    rows: list[Row] = []
    done: int = 0
    passed: int = 0

    def remarks(self) -> Iterator[str]:
        """Yield notes on what the result leaves out."""
        languages = {syntax.language_of(path) for path in self.files}
        lacking = [name for name in sorted(languages) if not syntax.installed(name)]
        yield self.unfinished
        if self.passed:
            yield f"\n({self.passed} generated, binary, large or unreadable files were left out)"
        if self.done < len(self.files):
            yield f"\n(only {self.done} of {len(self.files)} files in {SECONDS:g} s; narrow path)"
        if lacking:
            yield f"\n({_lacking(lacking)}; for these, any line with the word is shown)"


async def _symbols(args: SymbolsArgs, env: Env, call: str) -> ToolOutcome:
    place, stat = await spot(env, args.path)
    kinds, wanted = _kinds(args.kind), Wanted(args.name)
    _check(wanted, args, place, stat=stat)
    if not args.name:
        if stat.kind == "folder" and not args.kind:
            kinds = tuple(kind for kind in kinds if kind != "field")
        looked = await _sources(env, place, stat, "--files")
        return _told(args, await _look(env, looked, Task("outline", wanted, kinds)))
    looked = await _sources(env, place, stat, *_holding(wanted))
    if args.references:
        return _told(args, await _look(env, looked, Task("uses", wanted, kinds)))
    looked = await _look(env, looked, Task("definitions", wanted, kinds))
    if looked.rows or "*" in args.name:
        return _told(args, looked)
    loose = Wanted(args.name, loose=True)
    looked = await _sources(env, place, stat, *_holding(loose))
    looked = await _look(env, looked, Task("definitions", loose, kinds))
    return _told(args, looked, note=f"No symbol is named {args.name!r}; similar names:\n")


def _kinds(kind: str) -> tuple[str, ...]:
    """Return the symbol kinds to search; "function" and "class" cover all languages."""
    wide = {"function": syntax.FUNCTIONS, "class": syntax.CLASSES, "": syntax.KINDS}
    if kind not in (*wide, *syntax.KINDS):
        raise ToolError(f"There is no kind {kind!r}. Kinds: {', '.join(syntax.KINDS)}.")
    return wide.get(kind, (kind,))


def _check(wanted: Wanted, args: SymbolsArgs, place: str, *, stat: FileStat) -> None:
    if args.name and not re.search(r"\w", wanted.last):
        raise ToolError("Give at least part of a name, or no name for the outline of path.")
    if args.references and (not args.name or "*" in args.name):
        raise ToolError("references needs one complete name.")
    if re.search(r"\s", args.name):
        raise ToolError("A name has no spaces; use Grep for any other text.")
    if stat.kind == "folder":
        return
    language = syntax.language_of(place)
    if not language:
        raise ToolError(f"{plain(place)} is not in a supported language; use Grep or Read.")
    if not args.name and not syntax.installed(language):
        raise ToolError(f"{_lacking((language,))}; use Grep or Read.")


def _holding(wanted: Wanted) -> tuple[str, ...]:
    """Return the ripgrep options that list each file with the word."""
    case = ("--ignore-case",) if wanted.loose else ()
    word = rf"\b{{start-half}}(?:{wanted.expression})\b{{end-half}}"
    return (*case, "--files-with-matches", "--regexp", word)


async def _sources(env: Env, place: str, stat: FileStat, *options: str) -> Looked:
    """List the files of known languages that ripgrep names, without denied ones."""
    if stat.kind != "folder":
        hidden = env.hidden(absolute(place, env.cwd))
        return Looked(stat.kind, [] if hidden else [place], KEPT_BACK if hidden else "")
    types = (f"--type-add=source:*.{ending}" for ending in syntax.endings())
    query = query_at(env, place, stat, "--null", *types, "--type=source", *options)
    answer = await list_files(env, query, count=MAX_FILES)
    more = answer.remarks()
    if not answer.is_whole and not answer.timed_out:
        more = f"\n(more than {len(answer.rows)} files; narrow path){more}"
    return Looked(stat.kind, sorted(row.path for row in answer.rows), more)


async def _look(env: Env, looked: Looked, task: Task) -> Looked:
    """Run the task on each file, as far as time allows; unreadable files are skipped."""
    with anyio.move_on_after(SECONDS):
        while looked.done < len(looked.files):
            batch = await _batch(env, looked)
            sources = tuple(source for _, source in batch if source is not None)
            lines = iter(await _parsed(env, replace(task, sources=sources)))
            for path, source in batch:
                found = next(lines) if source is not None else None
                looked.rows += (Row(path, line) for line in found or ())
                looked.passed += found is None
            looked.done += len(batch)
            env.progress(f"{looked.done} of {len(looked.files)} files")
    return looked


async def _batch(env: Env, looked: Looked) -> list[tuple[str, Source | None]]:
    """Return the next files, as many as go well together."""
    batch, size = list[tuple[str, Source | None]](), 0
    for path in looked.files[looked.done : looked.done + BATCH]:
        data = await _source(env, path, looked.place)
        size += len(data or b"")
        batch.append((path, None if data is None else Source(data, syntax.language_of(path))))
        if size > LARGEST * 4:
            break
    return batch


async def _parsed(env: Env, task: Task) -> list[list[str] | None]:
    """Parse sources in a subprocess; skip a source that crashes it."""
    told = list[list[str] | None]()
    while len(told) < len(task.sources):
        rest = msgspec.msgpack.encode(replace(task, sources=task.sources[len(told) :]))
        command = Command(PARSER, cwd=env.root, stdin=rest, keep=KEEP, stderr="apart")
        done = await env.processes.run(command, timeout=SECONDS)
        lines = done.output.head_and_tail().splitlines()
        told += (msgspec.json.decode(line, type=list[str] | None) for line in lines)
        if done.status:
            told.append(None)
    return told


async def _source(env: Env, path: str, place: str) -> bytes | None:
    """Return the text of a file; none if it is not one that people write, or cannot be read."""
    try:
        data = await env.files.read(absolute(path, env.cwd), limit=LARGEST + 1)
    except OSError:
        return None
    if len(data) > LARGEST or b"\0" in data[:SAMPLE]:
        return None
    made = MADE.search(data[:1000]) or max(map(len, data.split(b"\n"))) > WIDEST
    return None if made and place == "folder" else data


def _lacking(languages: Sequence[str]) -> str:
    return f"no grammar for {', '.join(languages)} (pip install 'travois[code]')"


def _told(args: SymbolsArgs, looked: Looked, *, note: str = "") -> ToolOutcome:
    """Return a page of what was found; an outline names each file once."""
    rows, first = looked.rows, max(args.offset, 0)
    remarks = "".join(looked.remarks())
    if not rows:
        of = f" of {args.name!r}" if args.name else ""
        what = "use" if args.references else "definition"
        return text_outcome(f"No {what}{of}{where(args.path)}; Grep searches any file.{remarks}")
    if first >= len(rows):
        return text_outcome(f"There are only {len(rows)} results; offset {first} is past the last.")
    lines = _fitting(rows[first : first + LINES], outline=not args.name)
    last = first + len(lines)
    if last < len(rows):
        lines.append(f"({first + 1}-{last} of {len(rows)}; offset={last} shows more)")
    return text_outcome(note + "\n".join(lines) + remarks)


def _fitting(rows: Sequence[Row], *, outline: bool) -> list[str]:
    lines, size = list[str](), 0
    for row, before in zip(rows, (None, *rows), strict=False):
        name = shown(row.path)
        if not outline:
            line = f"{name}:{row.text}"
        elif before is not None and before.path == row.path:
            line = row.text
        else:
            line = ("\n" if before else "") + f"{name}\n{row.text}"
        size += len(line.encode()) + 1
        if size > BYTES and lines:
            break
        lines.append(line)
    return lines


def _summary(args: SymbolsArgs) -> str:
    if not args.name:
        return f"Outline {plain(args.path) or 'the folder'}"
    what = "uses" if args.references else "definitions"
    return f"Find {what} of {plain(args.name)}{where(args.path)}"


SYMBOLS = Tool(
    name="Symbols",
    description=(
        "Find code by syntax: definitions of a name (also Class.method, part*), its references "
        "(not in strings or comments), or, without a name, the outline of path."
    ),
    args=SymbolsArgs,
    access=lambda args, here: reads(args.path, here),
    run=_symbols,
    summary=_summary,
    room=16_000,  # Grep can stand in for it
)
