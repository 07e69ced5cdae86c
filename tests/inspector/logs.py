"""Logs to look into: each request stands in them as the engine would have sent it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from tests.core.told import EPOCH, reply, result, user
from travois.context.compaction.cut import SUMMARY_OPENING
from travois.core.content import Text
from travois.core.facts import (
    AnyFact,
    Asked,
    Assistant,
    Compacted,
    Decided,
    Ended,
    Hooked,
    Opened,
    Restored,
    Rewound,
    Sent,
)
from travois.core.models import Price, Usage
from travois.core.view import View, project_view
from travois.providers.encoder import RequestEncoder
from travois.sessions.log_file import SessionLog

PRICE = Price(input=1.0, output=5.0, read=0.1, write=1.25)
HEAD = replace(EPOCH, model=replace(EPOCH.model, price=PRICE))
RULES = "<instructions>\nAlways run the tests."


def turn(number: int, *, words: int = 300, cold: bool = False) -> Iterator[AnyFact]:
    """One turn with one call, whose first reply may have found nothing in the cache."""
    call = f"call-{number}"
    yield user(f"question {number}")
    usage = Usage(read=0 if cold else 900 * number, write=9_000 if cold else 1_000, output=40)
    yield reply("let me look", call, usage=usage)
    yield Asked(call, "May it read a?")
    yield Decided(call, "allow", "you said so", by="person")
    yield Hooked("PreToolUse", "check.sh", "ok", call=call)
    yield result(call, f"needle{number} " * words)
    usage = Usage(read=900 * number + 1_000, write=800, output=30)
    yield reply(f"answer {number}", usage=usage)
    yield Ended("end")


def write(log: SessionLog, facts: Iterable[AnyFact], *, view: View) -> View:
    """Append the facts, and before each reply the request for it."""
    encoder = RequestEncoder(lambda name: b"")
    for fact in facts:
        if isinstance(fact, Assistant):
            asked = encoder.build_request(view)
            size = len(asked.body)
            view.add(log.append(Sent(asked.pieces, asked.chain, asked.digest, size, tokens=500)))
        entry = log.append(fact)
        if isinstance(fact, Rewound | Restored):
            view = project_view(log.read())
        else:
            view.add(entry)
    return view


def make(folder: Path, *facts: AnyFact) -> None:
    """A session on disk that begins with the usual head and some rules."""
    ticks = count(1_700_000_000)
    opened = Opened(folder.name, "/work", folder.parent.name, "0")
    with SessionLog.create(folder, opened, clock=lambda: float(next(ticks))) as log:
        view = write(log, (HEAD, user(RULES, origin="note")), view=View())
        write(log, facts, view=view)


def compacted(first: int, last: int, *files: str) -> Compacted:
    summary = (Text(f"{SUMMARY_OPENING}\nThe user asked question 0."),)
    titles = tuple(f"part {n}" for n, _ in enumerate(files))
    return Compacted(
        first, last, summary, "notes", "auto", 9_000, 700, files=files, titles=titles, limit=8_000
    )


def talk(turns: int) -> list[AnyFact]:
    return [fact for number in range(turns) for fact in turn(number)]
