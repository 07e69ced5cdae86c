"""`travois import`: take along what another agent keeps, after seeing what becomes of it."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from travois.app.commands.plain import Commands, clean, command, say, styled, table, warn
from travois.app.commands.sessions import here
from travois.app.remembering import open_here
from travois.kernel.faults import Fault
from travois.store.home import Home
from travois.store.importing import claude, codex, gemini, opencode, pi
from travois.store.importing.plan import PARTS, THERE, Line, Luggage, Part, carry_out
from travois.store.importing.sessions import Candidate, aside, bring, candidates, recognised
from travois.store.layers import load
from travois.store.memory import foreign
from travois.store.project import Project, identify
from travois.store.recorded import AGENTS
from travois.store.recorded.spoken import Found
from travois.store.trust import root

MORE = """\
examples:
  travois import                        the agents that were found here, and what they keep
  travois import claude --dry-run       what would become of each thing; nothing is written
  travois import claude                 the same, and then one question
  travois import codex --only sessions,mcp --yes
  travois import opencode --here        of the sessions, only those of this project
  travois import talk.jsonl             one recorded session

What the other agent keeps is only read. What is yours stays as it is, secrets are not copied, and a
session that was imported is not imported again. docs/import.md says what carries over.
"""
PLANS: Mapping[str, Callable[[Luggage, Mapping[str, str]], None]] = {
    "claude": claude.plan,
    "codex": codex.plan,
    "opencode": opencode.plan,
    "gemini": gemini.plan,
    "pi": pi.plan,
}
SHOWN = 8
"""How many things of one kind are listed that simply come along."""


class Wish(msgspec.Struct, frozen=True):
    """What an import is about: an agent and the sessions of it, and what of all that is wanted."""

    agent: str
    found: tuple[Found, ...]
    only: tuple[Part, ...]
    project: Project | None = None
    """The one whose sessions are wanted; none for all."""


class Outlook(msgspec.Struct, frozen=True):
    """All that an import would do."""

    wish: Wish
    luggage: Luggage
    lines: tuple[Line, ...]
    sessions: tuple[Candidate, ...]
    memories: int

    @property
    def fresh(self) -> list[Candidate]:
        """The sessions that are not here yet, the oldest first."""
        return sorted((one for one in self.sessions if not one.known), key=lambda one: one.at)

    @property
    def work(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.luggage.copies or self.fresh or self.memories)


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "import", what="take along what another agent keeps", more=MORE)
    add = top.add_argument
    add("sources", nargs="*", metavar="AGENT|FILE", help=", ".join(PLANS))
    add("--dry-run", action="store_true", help="show what would become of each thing")
    add("--only", default="", metavar="LIST", help=f"of {', '.join(PARTS)}")
    add("--session", default="", metavar="ID", help="only this session of theirs")
    add("--here", action="store_true", help="only sessions of this project")
    add("--yes", action="store_true", help="do not ask")
    add("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_import)


def run_import(args: Namespace) -> int:
    """Import, or list what could be; exit code 1 if some session could not be read."""
    home, project = here()
    if not args.sources:
        return _list(home, args)
    failed = 0
    for wish in _wishes(args, project):
        outlook = _look(home, project, wish)
        if args.json:
            say(_json(outlook))
        else:
            _show(outlook, every=args.dry_run)
        if not args.dry_run and outlook.work and _sure(args, outlook):
            done = _carry_out(home.prepare(), project, outlook)
            failed += done.failed
            say(msgspec.json.encode(done).decode()) if args.json else _tell(done)
    return 1 if failed else 0


def _list(home: Home, args: Namespace) -> int:
    """The agents that have anything here."""
    found: list[tuple[str, int, int]] = []
    for agent, plan in PLANS.items():
        luggage, count = Luggage(home), sum(1 for _ in AGENTS[agent].find(os.environ))
        try:
            plan(luggage, os.environ)
        except Fault as fault:
            warn(_plain(str(fault)))
        if count or luggage.lines:
            found.append((agent, count, len(luggage.lines)))
    if args.json:
        told = [{"agent": agent, "sessions": count, "things": more} for agent, count, more in found]
        say(msgspec.json.encode(told).decode())
        return 0
    rows = [(one, f"{count:,}", str(more), f"travois import {one}") for one, count, more in found]
    head = ("AGENT", "SESSIONS", "SETTINGS AND FILES", "NEXT")
    say(table([head, *rows], right=(1, 2)) if rows else "No other agent keeps anything here.")
    return 0


def _wishes(args: Namespace, project: Project) -> Iterator[Wish]:
    strange = [one for one in filter(None, args.only.split(",")) if one.strip() not in PARTS]
    if strange:
        raise Fault(f"There is nothing called {strange[0]}", fix=f"--only: {', '.join(PARTS)}")
    named = ["sessions"] if args.session else [one.strip() for one in args.only.split(",")]
    only: tuple[Part, ...] = tuple(
        part for part in PARTS if part in named or not (args.only or args.session)
    )
    for source in args.sources:
        where = project if args.here else None
        if source in PLANS:
            there = AGENTS[source].find(os.environ) if "sessions" in only else ()
            found = tuple(one for one in there if args.session in one.path.stem)
            yield Wish(source, found, only, where)
        elif os.path.exists(source):
            yield Wish("", (recognised(Path(source)),), ("sessions",))
        else:
            fix = f"Name one of {', '.join(PLANS)}, or the file of a session."
            raise Fault(f"{source} is neither an agent nor a file", fix=fix)


def _look(home: Home, project: Project, wish: Wish) -> Outlook:
    """All that is there, and what would become of it."""
    luggage = Luggage(home, only=wish.only)
    if wish.agent:
        PLANS[wish.agent](luggage, os.environ)
    memories = _memories(home, project, wish) if "memory" in wish.only else []
    spoken = _progressing(candidates(home, wish.found), len(wish.found))
    told = tuple(one for one in spoken if _of(wish.project, one, home))
    lines = (*luggage.lines, *memories, *_talks(spoken, told, silent=len(wish.found) - len(spoken)))
    count = sum(1 for one in memories if one.fate == "kept" and one.why != THERE)
    return Outlook(wish, luggage, lines, told, count)


def _progressing(found: Iterable[Candidate], number: int) -> list[Candidate]:
    listed: list[Candidate] = []
    for one in found:
        _progress(f"reading sessions … {len(listed):,} of {number:,}")
        listed.append(one)
    _progress("")
    return listed


def _of(project: Project | None, one: Candidate, home: Home) -> bool:
    """Whether a session is about a project, if only those are wanted."""
    if project is None:
        return True
    return os.path.isdir(one.cwd) and identify(home, one.cwd).key in project.keys


def _talks(spoken: list[Candidate], told: tuple[Candidate, ...], *, silent: int) -> Iterator[Line]:
    """What becomes of sessions; one in which nothing was said is often an agent's of another."""
    if fresh := sum(1 for one in told if not one.known):
        yield Line("sessions", _many(fresh), "translated", "sessions")
    left = {
        "imported before": len(told) - fresh,
        "of other projects": len(spoken) - len(told),
        "nothing is said in them, they belong to another one, or they cannot be read": silent,
    }
    for why, number in left.items():
        if number:
            yield Line("sessions", _many(number), "left out", why=why)


def _many(number: int) -> str:
    return f"{number:,} session{'' if number == 1 else 's'}"


def _memories(home: Home, project: Project, wish: Wish) -> list[Line]:
    """What that agent remembers of this project; of others it is imported there."""
    place, lines = None, list[Line]()
    if wish.agent == "claude":
        place = foreign.claude(os.environ, root(project.root))
        if others := len(foreign.others(os.environ, place)):
            why = "`travois import claude --only memory` in each of them"
            lines.append(Line("memory", f"{others} other projects", "left out", why=why))
    elif wish.agent == "codex":
        place = foreign.codex(os.environ)
    if place is None or not place.exists():
        return lines
    try:
        found = list(foreign.memories(place, scope="project", label=wish.agent))
    except OSError as error:
        return [*lines, Line("memory", str(place), "left out", why=str(error))]
    loaded = load(home, project.root, cwd=os.getcwd(), environ=os.environ)
    held = {one.body.strip() for one in open_here(home, project, loaded).all()}
    why = {one.name: THERE if one.body.strip() in held else one.description for one in found}
    return [*(Line("memory", name, "kept", "memory", said) for name, said in why.items()), *lines]


def _show(outlook: Outlook, *, every: bool) -> None:
    """The plan as a table; what is translated or left out is always told."""
    rows = [("WHAT", "NAME", "HOW", "WHERE, OR WHY NOT")]
    plain = Counter[Part]()
    for line in sorted(outlook.lines, key=lambda line: PARTS.index(line.part)):
        plain[line.part] += line.fate == "kept"
        if every or line.fate != "kept" or plain[line.part] <= SHOWN:
            told = " - ".join(filter(None, (line.where, line.why)))
            rows.append((line.part, _plain(line.name), line.fate, _plain(told)))
    if not every:
        more = ((part, number - SHOWN) for part, number in plain.items() if number > SHOWN)
        rows += [(part, f"{number} more", "kept", "") for part, number in more]
    say(table(rows) if rows[1:] else "There is nothing to import.")
    if rows[1:]:
        count = Counter(line.fate for line in outlook.lines)
        what = " · ".join(f"{number} {fate}" for fate, number in count.items())
        say(f"\n{what}" + ("" if outlook.work else "; all of it is here already"))


def _plain(text: str) -> str:
    return clean(text, lines="show")


def _sure(args: Namespace, outlook: Outlook) -> bool:
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise Fault("Nobody is there to ask", fix="Say --yes, or see --dry-run first.")
    things = [_many(len(outlook.fresh))] if outlook.fresh else []
    things += [f"{outlook.memories:,} memories"] if outlook.memories else []
    things += [f"{len(outlook.luggage.copies):,} files"] if outlook.luggage.copies else []
    sys.stdout.write(f"\nImport {', '.join(things)}? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class Done(msgspec.Struct, frozen=True):
    """What an import has done."""

    imported: tuple[str, ...] = ()
    """The ids that the sessions have here."""
    failed: int = 0
    """How many sessions could not be read."""
    files: int = 0
    kept: str = ""
    """Where the files are as they were before."""
    undo: str = ""
    """The change by which memories came in."""


def _carry_out(home: Home, project: Project, outlook: Outlook) -> Done:
    """Do all that was shown."""
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{outlook.wish.agent}"
    kept = carry_out(home, outlook.luggage, stamp=stamp)
    undo = ""
    if outlook.memories:
        loaded = load(home, project.root, cwd=os.getcwd(), environ=os.environ)
        undo = open_here(home, project, loaded).import_from(outlook.wish.agent).id
    ids, failed = _bring(home, outlook.fresh)
    return Done(tuple(ids), failed, len(outlook.luggage.copies), str(kept or ""), undo)


def _tell(done: Done) -> None:
    if done.kept:
        say(f"{done.files} files are written; {done.kept} lists them and keeps the old.")
    if done.undo:
        say(f"Memories are read in. Undo: travois memory undo {done.undo}")
    if done.imported:
        go_on = styled(f"travois --resume {done.imported[-1]}", "bold")
        say(f"Imported: {_many(len(done.imported))}. The last one goes on with {go_on}")


def _bring(home: Home, wanted: Iterable[Candidate]) -> tuple[list[str], int]:
    """Import sessions one by one; one that cannot be read does not keep the others from it."""
    ids: list[str] = []
    wanted = list(wanted)
    if not wanted:
        return [], 0
    with aside(home) as folder:
        for number, one in enumerate(wanted):
            _progress(f"importing sessions … {number:,} of {len(wanted):,}")
            try:
                ids.append(bring(home, one.found, folder, environ=os.environ))
            except Fault as fault:
                warn(_plain(str(fault)))
    _progress("")
    return ids, len(wanted) - len(ids)


def _progress(text: str) -> None:
    """How far it is, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")


def _json(outlook: Outlook) -> str:
    told = {
        "agent": outlook.wish.agent,
        "things": outlook.lines,
        "sessions": [
            {
                "id": one.id,
                "path": str(one.found.path),
                "title": one.title,
                "cwd": one.cwd,
                "turns": one.turns,
                "known": one.known,
            }
            for one in outlook.sessions
        ],
    }
    return msgspec.json.encode(told).decode()
