"""What runs beside the conversation, and how it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from travois.context.ledger.extractors import Act
from travois.core.content import words
from travois.core.facts import Changed, Entry, Finished, Spawned, User

STARTED = re.compile(r"(?i)background (?:as|with id:?|\(id:?)\s*([\w\-]+)")

DETACHED = re.compile(r"goes on in the background as ([\w\-]+)\. You are told")
ENDED = re.compile(r"\[[\w\-]+: ([^\]\n]+)\]")
"""How the report of the end of a job begins."""


class Job(msgspec.Struct, frozen=True):
    """A background command or a child agent."""

    id: str
    what: str = ""
    state: str = "running"


def jobs(entries: Iterable[Entry], acts: Iterable[Act]) -> tuple[Job, ...]:
    """All of them, newest first."""
    states: dict[str, str] = {}
    names: dict[str, str] = {}
    for entry in entries:
        match entry.fact:
            case Changed(what=what, value=value) if what.startswith("job:"):
                states[what.removeprefix("job:")] = value
            case Spawned(id=id, what=what, kind=kind) if kind != "fork":
                states[id], names[id] = "running", what
            case User(mail=letter, content=content) if letter.startswith("job:"):
                told = ENDED.match(words(content))
                states[letter.removeprefix("job:")] = told[1] if told else "ended"
            case Finished(id=id, outcome=outcome) if id in states:
                states[id] = outcome
            case _:
                pass
    for act in acts:
        asked = act.args.get("run_in_background")
        started = STARTED.search(act.text[:500]) if asked else DETACHED.search(act.text[-500:])
        if started:
            names[started[1]] = act.command or act.arg("description")
            states.setdefault(started[1], "started, end not seen")
    return tuple(Job(id, names.get(id, ""), state) for id, state in reversed(states.items()))
