"""`travois search --code`: find files of the repository by topic."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from functools import partial
from math import inf

import msgspec

from travois.commands.indexing import start_indexing
from travois.permissions.decide import Permissions
from travois.permissions.resolve_paths import hidden_path_filter
from travois.progress_line import ProgressLine
from travois.sessions.home import TravoisHome, find_repository
from travois.settings.load import load_settings
from travois.terminal import (
    escape_controls,
    print_json,
    print_json_list,
    print_line,
    print_warning,
    style_text,
)
from travois.tools.code_index import CodeIndex, CodeProgress, index_place
from travois.tools.codebase_search import CodeMatch

CODE_INDEX_SECONDS = 10.0
"""The number of seconds to spend on indexing before answering."""
MAX_SHOWN_CODE_LINES = 3
MAX_CODE_LINE_CHARS = 100


def run_code_search(text: str, *, args: Namespace, home: TravoisHome) -> int:
    """Search the files of the repository; exit code 1 if none matches."""
    cwd = os.path.realpath(os.getcwd())
    root = find_repository(cwd)[0] or cwd
    rules = load_settings(home, root, cwd=cwd, environ=os.environ).rules
    hidden = hidden_path_filter(Permissions(rules=rules), "Read", root=root)
    index = CodeIndex(index_place(home.cache / "index", root), root)
    try:
        if args.rebuild:
            index.delete()
        patient = args.wait or args.catch_up or not text
        end = time.monotonic() + CODE_INDEX_SECONDS
        with ProgressLine() as line:
            progress = index.refresh(partial(_show_progress, line, inf if patient else end))
        if index.trouble:
            print_warning(index.trouble)
        if not text:
            return _tell_code_progress(progress, args)
        found = index.search(
            text, limit=max(1, args.limit), is_hidden=lambda path: hidden(os.path.join(root, path))
        )
    finally:
        index.close()
    _print_code_matches(found, args)
    if progress.left:
        whole = progress.ready + progress.left
        print_warning(f"{progress.ready:,} of {whole:,} files were searched")
        if not index.trouble:
            start_indexing("--code")
    return 0 if found else 1


def _show_progress(line: ProgressLine, end: float, progress: CodeProgress) -> bool:
    """Show the progress of indexing; return whether there is time for more."""
    whole = progress.ready + progress.left
    line.show(f"Indexing the code: {progress.ready:,} of {whole:,} files")
    return time.monotonic() < end


def _tell_code_progress(progress: CodeProgress, args: Namespace) -> int:
    """Report how many files `travois search --code` can search."""
    if args.json:
        print_json({"files": progress.ready})
    elif not args.catch_up:
        print_line(f"{progress.ready:,} files can be searched.")
    return 0


def _print_code_matches(found: list[CodeMatch], args: Namespace) -> None:
    if args.json:
        print_json_list(map(msgspec.structs.asdict, found))
    elif found:
        print_line("\n".join(map(_render_code_match, found)))
    else:
        print_line("No matching files.")


def _render_code_match(match: CodeMatch) -> str:
    """Render a file that code search found, with the first lines of its best part."""
    place = escape_controls(f"{match.path}:{match.line}" if match.line else match.path)
    shown = (
        escape_controls(line)[:MAX_CODE_LINE_CHARS] for line in match.lines[:MAX_SHOWN_CODE_LINES]
    )
    return "\n".join((style_text(place, "bold"), *(f"    {line}" for line in shown)))
