"""Small sessions for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from travois.core.content import Call, Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Decided,
    Ended,
    Entry,
    Epoch,
    Opened,
    Result,
    Sent,
    User,
)
from travois.core.models import ModelCard
from travois.core.view import project_view
from travois.providers.encoder import RequestEncoder
from travois.sessions.log_file import SessionLog

EPOCH = Epoch(ModelCard("lab", "echo-1", "chat"), system="Be brief.")


def opened(id: str = "s1", **more: object) -> Opened:
    return Opened(id, **({"cwd": "/w", "project": "dir-1", "version": "0.1"} | more))  # type: ignore[arg-type]


def turns(number: int, *, start: int = 0) -> Iterator[AnyFact]:
    """Turns of five facts, each with one call."""
    for index in range(start, start + number):
        call = f"call-{index}"
        yield User((Text(f"question {index} \u2028 ünï"),))
        yield Assistant((Text("let me look"), Call(call, "Bash", '{"command":"ls"}')), "calls")
        yield Decided(call, "allow", "read-only")
        yield Result(call, (Text(f"line one\nline two {index}"),))
        yield Assistant((Text(f"answer {index}"),), "end")
        yield Ended("end")


def clock() -> Callable[[], float]:
    ticks = count(1_700_000_000)
    return lambda: float(next(ticks))


def facts(number: int = 2) -> list[AnyFact]:
    return [EPOCH, *turns(number), Changed("name", "little one")]


def write(folder: Path, *, first: Opened | None = None, then: list[AnyFact] | None = None) -> None:
    """A whole session on disk."""
    with SessionLog.create(folder, first or opened(folder.name), clock=clock()) as log:
        for fact in facts() if then is None else then:
            log.append(fact)


def recorded(folder: Path, number: int, *, first: Opened | None = None) -> None:
    """A session with a request before each reply, as the engine would have sent it."""
    encoder = RequestEncoder(lambda name: b"")
    with SessionLog.create(folder, first or opened(folder.name), clock=clock()) as log:
        view = project_view(log.read())
        for fact in (EPOCH, *turns(number, start=len(view.ids))):
            if isinstance(fact, Assistant):
                asked = encoder.build_request(view)
                sent = Sent(asked.pieces, asked.chain, asked.digest, len(asked.body))
                view.add(log.append(sent))
            view.add(log.append(fact))


def entries(folder: Path) -> list[Entry]:
    with SessionLog.open(folder) as log:
        return list(log.read())
