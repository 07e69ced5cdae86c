"""`travois memory`: see what is remembered and why, and change it."""

from __future__ import annotations

import os
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from travois.cli import memory_change, memory_doctor, memory_told
from travois.cli.sessions import here
from travois.compose.memory import open_here
from travois.memory.store import FolderMemories
from travois.settings.load import load
from travois.terminal.tables import Commands, command, say

MORE = """\
examples:
  travois memory                            everything that counts in this folder
  travois memory show reply-in-german       its text, and the words that it rests on
  travois memory add "deploys happen on Tuesdays" --type project
  travois memory undo                       take the last change back
  travois memory import claude --dry-run    what Claude Code remembers of this project

Memories are plain files (`travois memory where`). Every change is on record and can be undone.
"""
TYPES, SCOPES = ("user", "feedback", "project", "reference"), ("project", "user", "team")
Run = Callable[[FolderMemories, Namespace], int]


def register(commands: Commands) -> None:
    """Add the command and those below it."""
    top = command(commands, "memory", what="see and change what is remembered", more=MORE)
    _listing(top, default=False)
    top.set_defaults(run=partial(_run, run_list))
    below = top.add_subparsers(metavar="command", title="commands")
    _looking(below)
    _changing(below)
    _deciding(below)


def _looking(below: Commands) -> None:
    _listing(_below(below, "list", run_list, what="list memories (the default)"))
    search = _below(below, "search", run_search, what="those that have most to do with a text")
    search.add_argument("text", nargs="+", metavar="TEXT")
    search.add_argument("--limit", type=int, default=10, metavar="N", help="default: 10")
    _json(search)
    show = _below(below, "show", run_show, what="one memory, and the words that it rests on")
    _named(show)
    _json(show)
    history = _below(below, "history", run_history, what="what was changed, when and why")
    history.add_argument("--limit", type=int, default=20, metavar="N", help="default: 20")
    _json(history)
    doctor = _below(below, "doctor", run_doctor, what="find what is wrong, and how to mend it")
    doctor.add_argument("--fix", action="store_true", help="first write the indexes again")
    _json(doctor)
    _json(_below(below, "stats", run_stats, what="what there is, counted"))
    _json(_below(below, "where", run_where, what="the folders, and who may write to them"))


def _changing(below: Commands) -> None:
    add = _below(below, "add", memory_change.run_add, what="remember something")
    add.add_argument("text", nargs="+", metavar="TEXT")
    add.add_argument("--type", choices=TYPES, help="default: as the words sound")
    add.add_argument("--scope", choices=SCOPES, help="whom it is for (default: this project)")
    add.add_argument("--name", default="", help="default: its first words")
    add.add_argument("--pin", action="store_true", help="agents may not change it")
    edit = _below(below, "edit", memory_change.run_edit, what="change one in $EDITOR")
    _named(edit)
    forget = _below(below, "forget", memory_change.run_forget, what="drop memories")
    forget.add_argument("names", nargs="+", metavar="NAME")
    _scoped(forget)
    undo = _below(below, "undo", memory_change.run_undo, what="take a change back")
    undo.add_argument("id", nargs="?", default="", metavar="ID", help="default: the last one")
    take = _below(
        below, "import", memory_change.run_import, what="read another agent's memories in"
    )
    take.add_argument("source", nargs="?", default="claude", metavar="claude|codex|PATH")
    take.add_argument("--scope", choices=SCOPES)
    take.add_argument("--dry-run", action="store_true", help="only list them")
    _below(below, "share", memory_change.run_share, what="make a folder for the team, in git")


def _deciding(below: Commands) -> None:
    inbox = _below(below, "inbox", run_inbox, what="proposals that wait for your word")
    _json(inbox)
    for name, run, what in (
        ("accept", memory_change.run_accept, "make proposed changes"),
        ("reject", memory_change.run_reject, "do not, and never propose them again"),
    ):
        answer = _below(below, name, run, what=what)
        answer.add_argument("ids", nargs="*", metavar="ID")
        answer.add_argument("--all", action="store_true", help="all that wait")


def _below(commands: Commands, name: str, run: Run, *, what: str) -> ArgumentParser:
    parser = command(commands, name, what=what)
    parser.set_defaults(run=partial(_run, run))
    return parser


def _run(run: Run, args: Namespace) -> int:
    """Do something with the memories that count in this folder."""
    home, project = here()
    cwd = os.path.realpath(os.getcwd())
    loaded = load(home, project.root, cwd=cwd, environ=os.environ)
    return run(open_here(home, project, loaded), args)


def _listing(parser: ArgumentParser, *, default: object = SUPPRESS) -> None:
    add = parser.add_argument
    add("--json", action="store_true", default=default, help="as JSON")
    none = None if default is False else SUPPRESS
    add("--scope", choices=SCOPES, default=none, help="only of one scope")
    add("--type", choices=TYPES, default=none, help="only of one type")


def _json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="as JSON")


def _listed(rows: Iterable[str]) -> None:
    """One list, with a value on each line."""
    say("[" + ",\n ".join(rows) + "]")


def _named(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _scoped(parser)


def _scoped(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scope", choices=SCOPES, default=SUPPRESS, help="where names are the same"
    )


# --- what they tell ------------------------------------------------------------------------------


def run_list(memories: FolderMemories, args: Namespace) -> int:
    """List memories."""
    found = [
        one
        for one in memories.all()
        if args.scope in (None, one.scope) and args.type in (None, one.type)
    ]
    found.sort(key=lambda one: (SCOPES.index(one.scope), TYPES.index(one.type), one.name))
    if args.json:
        _listed(memory_told.as_json(memories, one) for one in found)
        return 0
    say(memory_told.listing(memories, found, now=time.time()))
    if waiting := len(memories.inbox()):
        say(f"\n{waiting} {'proposal waits' if waiting == 1 else 'proposals wait'} for your word: ")
        say("  travois memory inbox")
    return 0


def run_search(memories: FolderMemories, args: Namespace) -> int:
    """Find memories; exit code 1 if there are none."""
    found = memories.search(" ".join(args.text), limit=args.limit)
    if args.json:
        _listed(memory_told.as_json(memories, one) for one in found)
    elif found:
        say(memory_told.listing(memories, found, now=time.time()))
    else:
        say("Nothing that is remembered has to do with that.")
    return 0 if found else 1


def run_show(memories: FolderMemories, args: Namespace) -> int:
    """Show one memory with its evidence."""
    memory = memories.get(args.name, args.scope)
    say(
        memory_told.as_json(memories, memory)
        if args.json
        else memory_told.whole(memories, memory, now=time.time())
    )
    return 0


def run_history(memories: FolderMemories, args: Namespace) -> int:
    """List changes."""
    made = memories.history(args.limit)
    if args.json:
        _listed(msgspec.json.encode(one).decode() for one in made)
        return 0
    say(memory_told.changes(made, now=time.time()))
    return 0


def run_inbox(memories: FolderMemories, args: Namespace) -> int:
    """List proposals."""
    waiting = memories.inbox()
    if args.json:
        _listed(msgspec.json.encode(one).decode() for one in waiting)
        return 0
    say(memory_told.proposals(waiting, now=time.time()))
    return 0


def run_doctor(memories: FolderMemories, args: Namespace) -> int:
    """Tell what is wrong; exit code 1 if anything is."""
    if args.fix:
        memories.edited()
    found = memory_doctor.findings(memories, now=time.time())
    if args.json:
        _listed(msgspec.json.encode(one).decode() for one in found)
    else:
        say(memory_doctor.told(found, total=len(memories.all())))
        if waiting := memories.waiting():
            say(f"{waiting} not yet found by meaning: sessions catch up in the background.")
    return 1 if found else 0


def run_stats(memories: FolderMemories, args: Namespace) -> int:
    """Count."""
    counted = memories.stats()
    say(msgspec.json.encode(counted).decode() if args.json else memory_told.counts(counted))
    return 0


def run_where(memories: FolderMemories, args: Namespace) -> int:
    """Name the folders."""
    if args.json:
        told = {
            scope: {"folder": str(path), "consent": memories.consent(scope)}
            for scope, path in memories.folders().items()
        }
        say(msgspec.json.encode(told).decode())
        return 0
    say(memory_told.places(memories))
    return 0
