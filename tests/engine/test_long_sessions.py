"""What a turn costs in a session that was compacted many times: what its window costs, no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
from msgspec.structs import replace

from tests.engine.against import Disk
from tests.engine.fakes import OPENED, Place, agent, epoch, prompt, small
from travois.context.compaction.record import SessionRecord
from travois.context.compaction.restore import FileHistories
from travois.context.layers import ContextLayers
from travois.core.facts import Changed, Compacted, Entry
from travois.core.models import Usage
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.replies import Reply
from travois.providers.request import Request
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session
from travois.testing import calls, say

CALLS = 900
PART = CALLS // 3


class CountingLog(SessionLog):
    """A log on disk that counts the entries that are read back from it."""

    entries_read = 0

    def read_blocks(self) -> Iterator[list[Entry]]:
        for block in super().read_blocks():
            self.entries_read += len(block)
            yield block

    def read_since(self, seq: int) -> list[Entry]:
        found = super().read_since(seq)
        self.entries_read += len(found)
        return found


def weighed(reply: Reply) -> Callable[[Request], Reply]:
    """The same reply with an honest count: three bytes of the request are a token."""
    return lambda request: replace(reply, usage=Usage(input=len(request.body) // 3, output=5))


def working(folder: Path, *, layers: ContextLayers) -> tuple[Agent, CountingLog, list[int]]:
    """An agent with a small window that looks at files; and what was read back after each call."""
    read: list[int] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        read.append(held.entries_read)
        one.session.append(Changed(f"seen:/w/{int(args.path) % 40}.py", "0"))
        return text_outcome(f"def name_{int(args.path) % 90}(): ...\n" * 90)

    tool = small("Read", run)
    created = CountingLog.create(folder / "log", OPENED)
    assert isinstance(created, CountingLog)
    held = created
    session = Session(held)
    session.append(epoch(tools=(tool,), window=30_000, output=3_000))
    replies = [weighed(calls(("Read", {"path": str(number)}))) for number in range(CALLS)]
    one = agent(
        folder, *replies, weighed(say("done")), tools=(tool,), session=session, layers=layers
    )
    one.world = replace(one.world, spill=Disk().spill)
    return one, held, read


def test_the_entries_read_back_in_a_turn_do_not_grow_with_the_session(tmp_path: Path) -> None:
    one, held, read = working(tmp_path, layers=ContextLayers(draft=False))
    with held:
        assert anyio.run(run_turn, prompt(one)) == "end"
        entries = list(held.read())
    compactions = sum(isinstance(entry.fact, Compacted) for entry in entries)
    assert compactions >= 6
    early, late = read[2 * PART - 1] - read[PART], read[-1] - read[2 * PART]
    assert late < 1.3 * early


def test_what_the_session_holds_depends_on_what_it_saw_and_not_on_how_often(
    tmp_path: Path,
) -> None:
    one, held, _ = working(tmp_path, layers=ContextLayers(draft=False))
    with held:
        anyio.run(run_turn, prompt(one))
        files = one.session.fold(FileHistories).by_path()
        record = one.session.fold(SessionRecord)
    assert len(files) == 40
    assert sum(len(work.seen) for work in files.values()) < 60  # those in the window
    assert sum(len(work.asked) for work in files.values()) == 40
    assert len(record.code.found) <= 90
    assert len(one.session.view.items) < 300  # of 1,800
