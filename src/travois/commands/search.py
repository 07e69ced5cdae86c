"""`travois search`: sessions that match a query, with excerpts and the command to resume them."""

from __future__ import annotations

import os
import re
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Sequence
from math import inf
from shlex import quote
from textwrap import wrap

from travois.commands.indexing import start_indexing
from travois.commands.sessions import locate_home_and_project
from travois.compat.sessions import SESSION_SOURCES
from travois.compat.sessions.own import TRAVOIS_AGENT as OWN
from travois.compat.sessions.search import (
    IndexedSession,
    IndexProgress,
    SessionIndex,
    SessionMatch,
    TurnMatch,
)
from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.progress_line import ProgressLine
from travois.search import database
from travois.search.embedder import NoEmbedder, find_embedder
from travois.search.lexical import split_index_terms
from travois.sessions.home import Project, TravoisHome, find_repository, locate_home
from travois.settings.load import load_settings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    print_json,
    print_json_list,
    print_line,
    print_warning,
    style_text,
)

with lazy_imports():
    from travois.commands import search_code


SEARCH_HELP = """\
examples:
  travois search "why did we drop redis"        search all sessions on this machine
  travois search flaky upload test --here       only sessions of this project
  travois search migration --agent codex        only sessions of one agent
  travois search --code "where are retries counted"   files of this repository
  travois search --turns "what did I say last about the port"   the messages themselves

Also reads the sessions of Claude Code, Codex, opencode, Gemini CLI and pi, where those agents store
them (search.agents: false turns this off). Agents can run this command, too.
"""
INDEX_SECONDS = 0.5
"""The number of seconds to spend on indexing before answering."""
MAX_EXCERPT_CHARS = 220
RESULT_COLUMNS = 80
PASSAGE_LABELS = {"user": "you", "model": "agent", "tool": "error"}
WORD_PATTERN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def register_search(commands: CommandParsers) -> None:
    """Add the `travois search` command."""
    top = add_command(
        commands,
        "search",
        what="search all sessions, including those of other agents",
        more=SEARCH_HELP,
    )
    add = top.add_argument
    add("text", nargs="*", metavar="TEXT", help="keywords or a question")
    add("--here", action="store_true", help="only sessions of this project")
    add("--agent", choices=tuple(SESSION_SOURCES), help="only sessions of one agent")
    add("--limit", type=int, default=5, metavar="N", help="maximum number of sessions (default: 5)")
    add("--code", action="store_true", help="search the files of this repository instead")
    add("--turns", action="store_true", help="list single messages, not sessions")
    add("--json", action="store_true", help="print a JSON array")
    add("--wait", action="store_true", help="index all sessions first")
    add("--rebuild", action="store_true", help="rebuild the index")
    add("--catch-up", action="store_true", help=SUPPRESS)
    top.set_defaults(run=run_search)


def run_search(args: Namespace) -> int:
    """Search sessions; exit code 1 if none matches."""
    text = " ".join(args.text).strip()
    if not text and not (args.rebuild or args.catch_up):
        raise UserError(
            "Give a search text", fix='For example: travois search "why redis was dropped"'
        )
    if args.code:
        return search_code.run_code_search(text, args=args, home=locate_home(os.environ))
    home, project = locate_home_and_project()
    cwd = os.path.realpath(os.getcwd())
    settings = load_settings(home, project.root, cwd=cwd, environ=os.environ).settings
    agents = tuple(SESSION_SOURCES) if settings.search.agents else (OWN,)
    embedder = find_embedder(home.cache / "index" / "embedder.json")
    index = SessionIndex(
        *(home, os.environ),
        agents=agents,
        embedder=None if isinstance(embedder, NoEmbedder) else embedder,
    )
    try:
        narrow = args.here or args.agent
        wanted = _build_session_filter(args, home, project) if narrow else None
        return _search_sessions(index, text, args=args, wanted=wanted)
    finally:
        index.close()


def _search_sessions(
    index: SessionIndex,
    text: str,
    *,
    args: Namespace,
    wanted: Callable[[IndexedSession], bool] | None,
) -> int:
    """Update the search index of sessions, search it and print the matches."""
    if args.rebuild:
        index.delete()
    patient = args.wait or args.catch_up or not text
    with ProgressLine() as line:
        end = inf if patient else time.monotonic() + INDEX_SECONDS
        turn = "wait" if patient and not args.catch_up else "ask"
        progress = index.refresh(_show_progress_until(end, line), turn=turn)
        if patient:
            line.show("Embedding the messages")
            index.embed_rest()
    if index.trouble:
        print_warning(index.trouble)
    if not text:
        if not args.catch_up:
            told = f"{progress.ready} sessions can be searched."
            print_json({"sessions": progress.ready}) if args.json else print_line(told)
        return 0
    search = index.search_turns if args.turns else index.search
    found = search(text, limit=max(1, args.limit), now=time.time(), wanted=wanted)
    _print_matches(found, text, args=args, so_far=" so far" if progress.left else "")
    if progress.left:
        print_warning(
            f"{progress.ready:,} of {progress.ready + progress.left:,} sessions were searched"
        )
    if (progress.left or index.count_waiting()) and not index.trouble:
        start_indexing(quietly=not progress.left)
    return 0 if found else 1


def _print_matches(
    found: Sequence[SessionMatch | TurnMatch], text: str, *, args: Namespace, so_far: str
) -> None:
    """Print the sessions or turns that were found."""
    if args.json:
        print_json_list(map(_match_json, found))
    elif found:
        print_line("\n\n".join(_render_match(match, text) for match in found))
    else:
        print_line(f"No matching {'messages' if args.turns else 'sessions'}{so_far}.")


def _show_progress_until(end: float, line: ProgressLine) -> Callable[[IndexProgress], bool]:
    def is_in_time(progress: IndexProgress) -> bool:
        whole = progress.ready + progress.left
        line.show(f"Indexing sessions: {progress.ready:,} of {whole:,}")
        return time.monotonic() < end

    return is_in_time


def _build_session_filter(
    args: Namespace, home: TravoisHome, project: Project
) -> Callable[[IndexedSession], bool]:
    """Build the filter for the agent and the project of searched sessions."""
    ours = find_repository(project.root)[1]
    same: dict[str, bool] = {}

    def is_in_project(cwd: str) -> bool:
        """Return whether a folder is in this project, or another checkout of its repository."""
        near = (cwd + "/").startswith(project.root + "/")
        return near or bool(cwd and ours and find_repository(cwd)[1] == ours)

    def is_wanted(indexed: IndexedSession) -> bool:
        if args.agent and indexed.agent != args.agent:
            return False
        if not args.here:
            return True
        if indexed.agent == OWN:
            return indexed.path.startswith(tuple(f"{home.sessions / key}/" for key in project.keys))
        if indexed.cwd not in same:
            same[indexed.cwd] = is_in_project(indexed.cwd)
        return same[indexed.cwd]

    return is_wanted


def _match_json(match: SessionMatch | TurnMatch) -> dict[str, object]:
    """Build the JSON of a session or turn that matches a search."""
    session = match.session
    turn = {"turn": match.turn} if isinstance(match, TurnMatch) else {}
    return {
        "agent": session.agent,
        "id": session.id,
        "cwd": session.cwd,
        "at": session.at,
        "title": session.title,
        "resume": session.resume_command,
        "path": session.path,
        **turn,
        "passages": [{"who": p.who, "at": p.at, "text": p.text} for p in match.passages],
    }


def _render_match(match: SessionMatch | TurnMatch, text: str) -> str:
    """Render a session that matches a search, with excerpts and the command to resume it."""
    session = match.session
    day = time.strftime("%Y-%m-%d", time.localtime(session.at)) if session.at else "no date"
    title = escape_controls(session.title or "(no title)", lines="show")
    head = f"{day}  {session.agent}  {_abbreviate_folder(session.cwd)}"
    lines = [
        style_text(head, "dim"),
        "  " + style_text(_fit_title(title, RESULT_COLUMNS - 2), "bold"),
    ]
    wanted = frozenset(split_index_terms(text))
    telling = [one for one in match.passages if one.text != session.title] or match.passages
    for passage in telling:
        lines += _render_excerpt(passage, wanted)
    cd = f"cd {quote(session.cwd)} && " if session.agent != OWN and session.cwd else ""
    return "\n".join(
        [
            *lines,
            "  "
            + style_text(escape_controls(f"{cd}{session.resume_command}", lines="show"), "cyan"),
        ]
    )


def _render_excerpt(passage: database.SearchDocument, wanted: frozenset[str]) -> list[str]:
    """Render the part of a passage with most of the search words, highlighted."""
    text = " ".join(escape_controls(passage.text, lines="show").replace("␊", " ").split())
    hits = [
        found for found in WORD_PATTERN.finditer(text) if wanted & set(split_index_terms(found[0]))
    ]
    near = max(hits, key=lambda hit: _count_words_after(hits, hit.start()), default=None)
    start = text.rfind(" ", 0, max(0, near.start() - MAX_EXCERPT_CHARS // 4) + 1) + 1 if near else 0
    part = text[start : start + MAX_EXCERPT_CHARS]
    part = ("…" if start else "") + part + ("…" if start + MAX_EXCERPT_CHARS < len(text) else "")
    who = PASSAGE_LABELS.get(passage.who, passage.who)
    lines = wrap(f"{who}: {part}", RESULT_COLUMNS - 4)
    return [f"    {WORD_PATTERN.sub(lambda m: _mark_word(m[0], wanted), line)}" for line in lines]


def _count_words_after(hits: list[re.Match[str]], start: int) -> int:
    """Count the different search words shortly after a position, to place an excerpt."""
    return len(
        {hit[0].lower() for hit in hits if start <= hit.start() < start + MAX_EXCERPT_CHARS // 2}
    )


def _mark_word(word: str, wanted: frozenset[str]) -> str:
    return style_text(word, "yellow") if wanted & set(split_index_terms(word)) else word


def _abbreviate_folder(cwd: str) -> str:
    """Return the folder of a search result with ~ for the home."""
    person = os.environ.get("HOME", "")
    inside = person and (cwd + "/").startswith(person + "/")
    return escape_controls("~" + cwd[len(person) :] if inside else cwd, lines="show")


def _fit_title(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
