"""Symbols: definitions and references of a name, and outlines of files, by syntax.

There is no index to maintain: ripgrep finds the files in which a name can be, and only these are
parsed. It cannot tell which of two things of the same name is meant.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.display_text import escape_path
from travois.lazy_imports import lazy_imports
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Command, Env, FileStat
from travois.tools import syntax
from travois.tools.paths import absolute_path, read_access
from travois.tools.search import (
    HIDDEN_FILES_NOTE,
    SearchRow,
    build_query,
    describe_place,
    list_files,
    locate_search_path,
    show_path,
)
from travois.tools.syntax import ParseTask, SourceText, SymbolQuery

with lazy_imports():
    from travois.files import installation

SYMBOLS_TIMEOUT_SECONDS = 15.0
MAX_SOURCE_BYTES = 1_000_000
MAX_SOURCE_LINE_BYTES = 10_000
"""A source with a longer line was not written by hand."""
BINARY_SAMPLE_BYTES = 8_000
"""Bytes examined to tell text from binary."""
MAX_SYMBOL_LINES = 250
MAX_SYMBOL_BYTES = 20_000
GENERATED_MARK = re.compile(rb"(?i)@generated\b|\bdo not edit\b")
MAX_SOURCE_FILES = 50_000
PARSE_BATCH_FILES = 200
PARSER_OUTPUT_BYTES = 32 * 1024 * 1024
PARSER_COMMAND = (sys.executable, "-I", "-m", "travois.tools.syntax")


class SymbolsArgs(msgspec.Struct, frozen=True):
    """A name, where to search, and whether to find definitions or references."""

    name: str = ""
    path: str = ""
    kind: str = ""
    references: bool = False
    offset: int = 0


class SymbolSearch(msgspec.Struct):
    """The files of a search, the rows found, and how far it got."""

    place: str
    """The kind of place: a folder, or the file that was asked about."""
    files: list[str]
    unfinished: str = ""
    rows: list[SearchRow] = []
    done: int = 0
    passed: int = 0

    def remarks(self) -> Iterator[str]:
        """Yield notes on what the result leaves out."""
        languages = {syntax.language_of_path(path) for path in self.files}
        lacking = [name for name in sorted(languages) if not syntax.is_grammar_installed(name)]
        yield self.unfinished
        if self.passed:
            yield f"\n({self.passed} generated, binary, large or unreadable files were left out)"
        if self.done < len(self.files):
            searched = f"{self.done} of {len(self.files)} files"
            yield f"\n(only {searched} in {SYMBOLS_TIMEOUT_SECONDS:g} s; narrow path)"
        if lacking:
            missing = _missing_grammar_text(lacking)
            yield f"\n({missing}; for these, any line with the word is shown)"


async def _run_symbols(args: SymbolsArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Symbols tool: find definitions or uses of a name, or outline files."""
    place, stat = await locate_search_path(env, args.path)
    kinds, wanted = _symbol_kinds(args.kind), SymbolQuery(args.name)
    _check_symbol_args(wanted, args, place, stat=stat)
    if not args.name:
        if stat.kind == "folder" and not args.kind:
            kinds = tuple(kind for kind in kinds if kind != "field")
        looked = await _list_source_files(env, place, stat, "--files")
        return _render_symbols(
            args, await _search_sources(env, looked, ParseTask("outline", wanted, kinds))
        )
    looked = await _list_source_files(env, place, stat, *_word_options(wanted))
    if args.references:
        return _render_symbols(
            args, await _search_sources(env, looked, ParseTask("uses", wanted, kinds))
        )
    looked = await _search_sources(env, looked, ParseTask("definitions", wanted, kinds))
    if looked.rows or "*" in args.name:
        return _render_symbols(args, looked)
    loose = SymbolQuery(args.name, loose=True)
    looked = await _list_source_files(env, place, stat, *_word_options(loose))
    looked = await _search_sources(env, looked, ParseTask("definitions", loose, kinds))
    return _render_symbols(args, looked, note=f"No symbol is named {args.name!r}; similar names:\n")


def _symbol_kinds(kind: str) -> tuple[str, ...]:
    """Return the kinds that Symbols searches for; "function" and "class" cover all languages."""
    wide = {"function": syntax.FUNCTION_KINDS, "class": syntax.CLASS_KINDS, "": syntax.SYMBOL_KINDS}
    if kind not in (*wide, *syntax.SYMBOL_KINDS):
        raise ToolError(f"There is no kind {kind!r}. Kinds: {', '.join(syntax.SYMBOL_KINDS)}.")
    return wide.get(kind, (kind,))


def _check_symbol_args(
    query: SymbolQuery, args: SymbolsArgs, place: str, *, stat: FileStat
) -> None:
    """Refuse arguments of a Symbols call that cannot find anything."""
    if args.name and not re.search(r"\w", query.last_part):
        raise ToolError("Give at least part of a name, or no name for the outline of path.")
    if args.references and (not args.name or "*" in args.name):
        raise ToolError("references needs one complete name.")
    if re.search(r"\s", args.name):
        raise ToolError("A name has no spaces; use Grep for any other text.")
    if stat.kind == "folder":
        return
    language = syntax.language_of_path(place)
    if not language:
        raise ToolError(f"{escape_path(place)} is not in a supported language; use Grep or Read.")
    if not args.name and not syntax.is_grammar_installed(language):
        raise ToolError(f"{_missing_grammar_text((language,))}; use Grep or Read.")


def _word_options(query: SymbolQuery) -> tuple[str, ...]:
    """Return the ripgrep options that list each file with the name that Symbols looks for."""
    case = ("--ignore-case",) if query.loose else ()
    word = rf"\b{{start-half}}(?:{query.expression})\b{{end-half}}"
    return (*case, "--files-with-matches", "--regexp", word)


async def _list_source_files(env: Env, place: str, stat: FileStat, *options: str) -> SymbolSearch:
    """List the source files that ripgrep finds for Symbols, without denied ones."""
    if stat.kind != "folder":
        hidden = env.hidden(absolute_path(place, env.cwd))
        return SymbolSearch(
            stat.kind, [] if hidden else [place], HIDDEN_FILES_NOTE if hidden else ""
        )
    types = (f"--type-add=source:*.{ending}" for ending in syntax.languages_by_extension())
    query = build_query(env, place, stat, "--null", *types, "--type=source", *options)
    answer = await list_files(env, query, count=MAX_SOURCE_FILES)
    more = answer.remarks()
    if not answer.is_whole and not answer.timed_out:
        more = f"\n(more than {len(answer.rows)} files; narrow path){more}"
    return SymbolSearch(stat.kind, sorted(row.path for row in answer.rows), more)


async def _search_sources(env: Env, looked: SymbolSearch, task: ParseTask) -> SymbolSearch:
    """Run a Symbols search on each file within the time limit; unreadable files are skipped."""
    with anyio.move_on_after(SYMBOLS_TIMEOUT_SECONDS):
        while looked.done < len(looked.files):
            batch = await _read_source_batch(env, looked)
            sources = tuple(source for _, source in batch if source is not None)
            lines = iter(await _parse_in_subprocess(env, replace(task, sources=sources)))
            for path, source in batch:
                found = next(lines) if source is not None else None
                looked.rows += (SearchRow(path, line) for line in found or ())
                looked.passed += found is None
            looked.done += len(batch)
            env.progress(f"{looked.done} of {len(looked.files)} files")
    return looked


async def _read_source_batch(env: Env, looked: SymbolSearch) -> list[tuple[str, SourceText | None]]:
    """Read the next batch of source files for a search for symbols."""
    batch, size = list[tuple[str, SourceText | None]](), 0
    for path in looked.files[looked.done : looked.done + PARSE_BATCH_FILES]:
        data = await _read_source_file(env, path, looked.place)
        size += len(data or b"")
        batch.append(
            (path, None if data is None else SourceText(data, syntax.language_of_path(path)))
        )
        if size > MAX_SOURCE_BYTES * 4:
            break
    return batch


async def _parse_in_subprocess(env: Env, task: ParseTask) -> list[list[str] | None]:
    """Parse sources for Symbols in a subprocess; skip a source that crashes it."""
    told = list[list[str] | None]()
    while len(told) < len(task.sources):
        rest = msgspec.msgpack.encode(replace(task, sources=task.sources[len(told) :]))
        command = Command(
            PARSER_COMMAND, cwd=env.root, stdin=rest, keep=PARSER_OUTPUT_BYTES, stderr="apart"
        )
        done = await env.processes.run(command, timeout=SYMBOLS_TIMEOUT_SECONDS)
        lines = done.output.head_and_tail().splitlines()
        told += (msgspec.json.decode(line, type=list[str] | None) for line in lines)
        if done.status:
            told.append(None)
    return told


async def _read_source_file(env: Env, path: str, place: str) -> bytes | None:
    """Read a source file for Symbols; None if generated, binary, too large or unreadable."""
    try:
        data = await env.files.read(absolute_path(path, env.cwd), limit=MAX_SOURCE_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_SOURCE_BYTES or b"\0" in data[:BINARY_SAMPLE_BYTES]:
        return None
    made = (
        GENERATED_MARK.search(data[:1000])
        or max(map(len, data.split(b"\n"))) > MAX_SOURCE_LINE_BYTES
    )
    return None if made and place == "folder" else data


def _missing_grammar_text(languages: Sequence[str]) -> str:
    return f"no grammar for {', '.join(languages)} ({installation.extra_command('code')})"


def _render_symbols(args: SymbolsArgs, looked: SymbolSearch, *, note: str = "") -> ToolOutcome:
    """Render a page of definitions or uses; an outline names each file once."""
    rows, first = looked.rows, max(args.offset, 0)
    remarks = "".join(looked.remarks())
    if not rows:
        of = f" of {args.name!r}" if args.name else ""
        what = "use" if args.references else "definition"
        return text_outcome(
            f"No {what}{of}{describe_place(args.path)}; Grep searches any file.{remarks}"
        )
    if first >= len(rows):
        return text_outcome(f"There are only {len(rows)} results; offset {first} is past the last.")
    lines = _fit_symbol_rows(rows[first : first + MAX_SYMBOL_LINES], outline=not args.name)
    last = first + len(lines)
    if last < len(rows):
        lines.append(f"({first + 1}-{last} of {len(rows)}; offset={last} shows more)")
    return text_outcome(note + "\n".join(lines) + remarks)


def _fit_symbol_rows(rows: Sequence[SearchRow], *, outline: bool) -> list[str]:
    """Format the rows of a Symbols result up to its size limit."""
    lines, size = list[str](), 0
    for row, before in zip(rows, (None, *rows), strict=False):
        name = show_path(row.path)
        if not outline:
            line = f"{name}:{row.text}"
        elif before is not None and before.path == row.path:
            line = row.text
        else:
            line = ("\n" if before else "") + f"{name}\n{row.text}"
        size += len(line.encode()) + 1
        if size > MAX_SYMBOL_BYTES and lines:
            break
        lines.append(line)
    return lines


def _summarize_symbols(args: SymbolsArgs) -> str:
    """Describe a Symbols call in one line."""
    if not args.name:
        return f"Outline {escape_path(args.path) or 'the folder'}"
    what = "uses" if args.references else "definitions"
    return f"Find {what} of {escape_path(args.name)}{describe_place(args.path)}"


SYMBOLS = Tool(
    name="Symbols",
    description=(
        "Find code by syntax: definitions of a name (also Class.method, part*), its references "
        "(not in strings or comments), or, without a name, the outline of path."
    ),
    args=SymbolsArgs,
    access=lambda args, here: read_access(args.path, here),
    run=_run_symbols,
    summary=_summarize_symbols,
    room=16_000,  # Grep can stand in for it
)
