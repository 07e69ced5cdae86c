"""`travois search`: find a session by what was said in it, and go on with it."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Callable
from shlex import quote
from textwrap import wrap

from travois.cli.sessions import here
from travois.compat.sessions import AGENTS
from travois.compat.sessions.own import NAME as OWN
from travois.core.errors import Fault
from travois.search.document import Document
from travois.search.words import words
from travois.sessions.home import Home
from travois.sessions.project import Project, repository
from travois.sessions.search import Known, Match, Progress, SessionIndex
from travois.settings.load import load
from travois.terminal.tables import Commands, clean, command, say, say_json, say_list, styled, warn

MORE = """\
examples:
  travois search "why did we drop redis"        all sessions of this machine, the best first
  travois search flaky upload test --here       only those of this project
  travois search migration --agent codex        only those of one agent

Sessions of Claude Code, Codex, opencode, Gemini CLI and pi are found where those agents keep
them, and are only read. The setting search.agents: false leaves them out. Agents can call this
command, too.
"""
AT_ONCE = 0.5
"""How many seconds may be spent on reading sessions before the answer is given."""
EXCERPT = 220
WIDTH = 80
WHO = {"user": "you", "model": "agent", "tool": "error"}
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "search", what="find sessions by what was said in them", more=MORE)
    add = top.add_argument
    add("text", nargs="*", metavar="TEXT", help="words, or a question")
    add("--here", action="store_true", help="only sessions of this project")
    add("--agent", choices=tuple(AGENTS), help="only sessions of one agent")
    add("--limit", type=int, default=5, metavar="N", help="how many sessions (default: 5)")
    add("--json", action="store_true", help="as JSON: one array")
    add("--wait", action="store_true", help="read all sessions before answering")
    add("--rebuild", action="store_true", help="read all sessions again")
    add("--catch-up", action="store_true", help=SUPPRESS)
    top.set_defaults(run=run_search)


def run_search(args: Namespace) -> int:
    """Find sessions; exit code 1 if there are none."""
    text = " ".join(args.text).strip()
    if not text and not (args.rebuild or args.catch_up):
        raise Fault(
            "Say what to look for", fix='For example: travois search "why redis was dropped"'
        )
    home, project = here()
    cwd = os.path.realpath(os.getcwd())
    settings = load(home, project.root, cwd=cwd, environ=os.environ).settings
    agents = tuple(AGENTS) if settings.search.agents else (OWN,)
    index = SessionIndex(home, os.environ, agents=agents)
    try:
        narrow = args.here or args.agent
        wanted = _wanted(args, home, project) if narrow else None
        return _search(index, text, args=args, wanted=wanted)
    finally:
        index.close()


def _search(
    index: SessionIndex, text: str, *, args: Namespace, wanted: Callable[[Known], bool] | None
) -> int:
    if args.rebuild:
        index.forget()
    patient = args.wait or args.catch_up or not text
    progress = (
        index.refresh(_told, turn="ask" if args.catch_up else "wait")
        if patient
        else index.refresh(_until(time.monotonic() + AT_ONCE))
    )
    if index.trouble:
        warn(index.trouble)
    if not text:
        if not args.catch_up:
            told = f"{progress.ready} sessions can be searched."
            say_json({"sessions": progress.ready}) if args.json else say(told)
        return 0
    found = index.search(text, limit=max(1, args.limit), now=time.time(), wanted=wanted)
    if args.json:
        say_list(map(_json, found))
    elif found:
        say("\n\n".join(_shown(match, text) for match in found))
    if not found and not args.json:
        so_far = " of those read so far" if progress.left else ""
        say(f"No session{so_far} has anything to do with that.")
    if progress.left:
        warn(f"{progress.ready:,} of {progress.ready + progress.left:,} sessions were searched")
        if not index.trouble:
            _go_on()
    return 0 if found else 1


def _until(end: float) -> Callable[[Progress], bool]:
    return lambda _: time.monotonic() < end


def _told(progress: Progress) -> bool:
    """Show how far it is, on a terminal."""
    if sys.stderr.isatty() and (progress.read % 20 == 0 or progress.left == 1):
        words = f"reading sessions … {progress.left:,} left" if progress.left > 1 else ""
        sys.stderr.write(f"\r{words}\x1b[K")
    return True


def _go_on() -> None:
    """Let a process of its own read the rest; if one is at it already, this one ends at once."""
    import subprocess

    warn("the rest is being read in the background; --wait waits for it")
    subprocess.Popen(
        (sys.executable, "-m", "travois", "search", "--catch-up"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wanted(args: Namespace, home: Home, project: Project) -> Callable[[Known], bool]:
    ours = repository(project.root)[1]
    same: dict[str, bool] = {}

    def inside(cwd: str) -> bool:
        """In this project's folder, or in another checkout of its repository."""
        near = (cwd + "/").startswith(project.root + "/")
        return near or bool(cwd and ours and repository(cwd)[1] == ours)

    def wanted(known: Known) -> bool:
        if args.agent and known.agent != args.agent:
            return False
        if not args.here:
            return True
        if known.agent == OWN:
            return known.path.startswith(tuple(f"{home.sessions / key}/" for key in project.keys))
        if known.cwd not in same:
            same[known.cwd] = inside(known.cwd)
        return same[known.cwd]

    return wanted


def _json(match: Match) -> dict[str, object]:
    session = match.session
    return {
        "agent": session.agent,
        "id": session.id,
        "cwd": session.cwd,
        "at": session.at,
        "title": session.title,
        "resume": session.resume,
        "path": session.path,
        "passages": [{"who": p.who, "at": p.at, "text": p.text} for p in match.passages],
    }


def _shown(match: Match, text: str) -> str:
    session = match.session
    day = time.strftime("%Y-%m-%d", time.localtime(session.at)) if session.at else "some day"
    title = clean(session.title or "(no title)", lines="show")
    head = f"{day}  {session.agent}  {_short(session.cwd)}"
    lines = [styled(head, "dim"), "  " + styled(_fitted(title, WIDTH - 2), "bold")]
    wanted = frozenset(words(text))
    telling = [one for one in match.passages if one.text != session.title] or match.passages
    for passage in telling:
        lines += _excerpt(passage, wanted)
    cd = f"cd {quote(session.cwd)} && " if session.agent != OWN and session.cwd else ""
    return "\n".join([*lines, "  " + styled(clean(f"{cd}{session.resume}", lines="show"), "cyan")])


def _excerpt(passage: Document, wanted: frozenset[str]) -> list[str]:
    """Some lines around the place with most of the words, those words marked."""
    text = " ".join(clean(passage.text, lines="show").replace("␊", " ").split())
    hits = [found for found in WORD.finditer(text) if wanted & set(words(found[0]))]
    near = max(hits, key=lambda hit: _dense(hits, hit.start()), default=None)
    start = text.rfind(" ", 0, max(0, near.start() - EXCERPT // 4) + 1) + 1 if near else 0
    part = text[start : start + EXCERPT]
    part = ("…" if start else "") + part + ("…" if start + EXCERPT < len(text) else "")
    who = WHO.get(passage.who, passage.who)
    lines = wrap(f"{who}: {part}", WIDTH - 4)
    return [f"    {WORD.sub(lambda m: _marked(m[0], wanted), line)}" for line in lines]


def _dense(hits: list[re.Match[str]], start: int) -> int:
    """How many different words there are from here on, in an excerpt."""
    return len({hit[0].lower() for hit in hits if start <= hit.start() < start + EXCERPT // 2})


def _marked(word: str, wanted: frozenset[str]) -> str:
    return styled(word, "yellow") if wanted & set(words(word)) else word


def _short(cwd: str) -> str:
    person = os.environ.get("HOME", "")
    inside = person and (cwd + "/").startswith(person + "/")
    return clean("~" + cwd[len(person) :] if inside else cwd, lines="show")


def _fitted(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
