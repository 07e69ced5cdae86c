"""`travois notes`: the notes that the model keeps on a session while it works."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable

import msgspec

from travois.cli.context import picked
from travois.context.session_memory.keep import decode_notes
from travois.core.facts import Changed, Entry, Noted
from travois.core.tokens import estimate
from travois.core.view import living
from travois.sessions.log_file import history
from travois.terminal.tables import Commands, ago, clean, command, say, say_json

MORE = """\
  travois notes            of the last session of this folder
  travois notes 3f2a       of another one: id, beginning of an id, or name
  travois notes --history  when they were updated, and up to which entry of the log they reach

A compaction takes the notes as the model's part of the summary, so that no call is needed for it.
Settings: context.notes (auto, true, false), context.notesTemplate, context.notesPrompt.
"""
NONE = "No notes are kept on this session yet."


class Version(msgspec.Struct, frozen=True):
    """The notes as one update left them."""

    entry: int
    at: float
    covers: int
    tokens: int
    text: str


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "notes", what="the notes that the model keeps on a session", more=MORE)
    about = "id, beginning of an id, or name; default: the last one of this folder"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument("--history", action="store_true", help="every update, without its text")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_notes)


def run_notes(args: Namespace) -> int:
    """Print the notes of a session."""
    home, summary = picked(args.session)
    found = versions(history(home.session(summary.project, summary.id), []))
    if args.json:
        say_json(found if args.history else found[-1:])
    elif args.history:
        say("\n".join(map(_line, found)) or NONE)
    else:
        say(told(found))
    return 0


def versions(entries: Iterable[Entry]) -> list[Version]:
    """Every update of the notes that no rewind took back, the oldest first."""
    found: list[Version] = []
    for entry in living(list(entries)):
        match entry.fact:
            case Noted(what="notes", text=text):
                held = decode_notes(text)
                size = estimate(held.text)
                found.append(Version(entry.seq, entry.at, held.covers, size, held.text))
            case Changed(what="fork"):  # what was noted before was on the task of its original
                found = []
            case _:
                pass
    return found


def told(found: list[Version]) -> str:
    """The newest notes for people."""
    if not found:
        return NONE
    return f"{clean(found[-1].text, lines='keep').strip()}\n\n{_line(found[-1])}"


def _line(one: Version) -> str:
    when = ago(time.time() - one.at)
    return f"{when}: {one.tokens:,} tokens, up to entry {one.covers} of the log"
