"""What a sub-agent was started for, through many compactions: the real engine, logs on disk."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.agents.test_spawn import agent, options, own, play
from tests.engine.fakes import begun
from travois.agents.child import begin_fork
from travois.compose import models as serving
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.context.compaction.cut import SUMMARY_MARK
from travois.core.content import Text
from travois.core.facts import Compacted, Entry, Noted, Spawned, User
from travois.core.models import Usage
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.testing import Scripted, call, calls, say
from travois_lab.validate import anthropic_faults

__all__ = ["options"]
BYTES = 3
"""This provider counts so many bytes of a request as one token."""
WINDOWS = (16_000, 32_000, 64_000, 128_000, 200_000)
DIRECTIVE = """Find every caller of `frobnicate()` and list it as path:line.

  - Never follow symlinks;  two  spaces  matter.
  - Skip "vendor/" and <generated> files.

## Report
One line for each caller, then the total. Begin with the word HERRING."""
PARENT_PROMPT = "Rewrite the billing module in Rust and deploy it on Friday."
HARNESS = "This is the harness"
STEPS = 400


class Body(msgspec.Struct):
    system: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []


def texts(request: Request) -> list[str]:
    """Every text that a request shows, of messages and of results."""
    found: list[str] = []
    for message in msgspec.json.decode(request.body, type=Body).messages:
        for block in message["content"]:
            if block["type"] == "text":
                found.append(block["text"])
            elif block["type"] == "tool_result":
                held = block["content"]
                parts = [{"text": held}] if isinstance(held, str) else held
                found += [part["text"] for part in parts if "text" in part]
    return found


class Worker:
    """A parent that starts one child, and a child that reads until it was compacted so often.

    Which request is whose is told by what the parent alone can see, never by the task.
    """

    def __init__(self, *asked: tuple[str, dict[str, object]], compactions: int, size: int) -> None:
        self.requests: list[Request] = []
        """Those of the child, also the questions beside its conversation."""
        self.left = compactions
        self._asked = asked
        self._steps = self._length = 0
        self._size = size

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        assert anthropic_faults(request.body) == []
        usage = Usage(input=len(request.body) // BYTES, output=9)
        reply = replace(self.reply(request), usage=usage)
        async with Scripted(reply).stream(request) as stream:
            yield stream

    def reply(self, request: Request) -> Reply:
        said = texts(request)
        if said[-1].startswith(("[agent a1", "Started in the background")):
            return say("All done.")
        if not self._steps:
            self._steps = 1
            return calls(*self._asked)
        self.requests.append(request)
        if said[-1].startswith(HARNESS):
            return say("I was looking for callers.")
        length = len(msgspec.json.decode(request.body, type=Body).messages)
        self.left -= length < self._length
        self._length = length
        self._steps += 1
        if self.left <= 0 or self._steps > STEPS:
            return say("HERRING: none.")
        return call("Read", file_path="big.txt", offset=self._steps * 7 + 1, limit=self._size)


def compactions(entries: list[Entry]) -> list[Compacted]:
    return [entry.fact for entry in entries if isinstance(entry.fact, Compacted)]


def fill(options: Options, window: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make a repository with a long file, and a model of this window; how many lines to read."""
    folder = Path(options.cwd)
    line = "result of {n}: the quick brown fox jumps over the lazy dog and calls nothing\n"
    (folder / "big.txt").write_text("".join(line.format(n=n) for n in range(8_000)))
    for args in ("init -q", "add .", "-c user.name=a -c user.email=b commit -qm c"):
        subprocess.run(["git", "-C", str(folder), *args.split()], check=True)
    monkeypatch.setattr(serving, "SCRIPTED_CARD", replace(serving.SCRIPTED_CARD, window=window))
    return window // 250


def run(options: Options, worker: Worker) -> list[Entry]:
    """Play it; returns the child's own log."""
    logs: list[list[Entry]] = []

    async def main(session: LiveSession) -> None:
        assert await session.ask(PARENT_PROMPT) == "All done."
        assert session.runtime.agent.team.children is not None
        await session.runtime.agent.team.children.wait_for_news()  # of one in the background
        logs.append(own(session, "a1"))

    play(options, worker, main)
    return logs[0]


SORTS: dict[str, dict[str, object]] = {
    "sub-agent": {},
    "fork": {"subagent_type": "fork"},
    "background": {"run_in_background": True},
    "worktree": {"isolation": "worktree"},
    "fork in a worktree": {"subagent_type": "fork", "isolation": "worktree"},
    "fork in the background": {"subagent_type": "fork", "run_in_background": True},
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("sort", SORTS)
def test_the_task_stands_word_for_word_in_every_request(
    options: Options, sort: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fill(options, window, monkeypatch)
    worker = Worker(agent(DIRECTIVE, **SORTS[sort]), compactions=3, size=size)
    log = run(options, worker)
    assert len(compactions(log)) >= 3
    assert [n for n, request in enumerate(worker.requests) if not shows(request)] == []
    last = "\n".join(texts(worker.requests[-1]))
    assert SUMMARY_MARK in last
    assert last.count("\n\n## Report\n") == 1, "once is enough"


def shows(request: Request) -> bool:
    return any(DIRECTIVE in text for text in texts(request))


def after_compaction(worker: Worker) -> str:
    """All that the first request after a compaction says."""
    said = ("\n".join(texts(request)) for request in worker.requests)
    return next(text for text in said if SUMMARY_MARK in text)


@pytest.mark.parametrize("window", [16_000, 64_000])
def test_a_fork_does_not_take_the_prompt_of_its_original_for_its_task(
    options: Options, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fill(options, window, monkeypatch)
    worker = Worker(agent(DIRECTIVE, subagent_type="fork"), compactions=2, size=size)
    run(options, worker)
    said = after_compaction(worker)
    before, _, task = said.partition("## Your task, word for word\n")
    task, _, rest = task.partition("\n</task ")
    assert DIRECTIVE in task and PARENT_PROMPT not in before + task
    heading, _, _ = rest.partition(PARENT_PROMPT)
    assert heading.rstrip(" ->\n").endswith("(not your task)")


def test_the_summary_of_a_sub_agent_is_one_to_go_on_with_its_task(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fill(options, 16_000, monkeypatch)
    worker = Worker(agent(DIRECTIVE), compactions=2, size=size)
    run(options, worker)
    asked = [texts(r)[-1] for r in worker.requests if texts(r)[-1].startswith(HARNESS)]
    assert asked
    for heading in ("Task", "State", "Discoveries", "Next steps", "Context to keep"):
        assert f"\n## {heading}\n" in asked[0]
    assert "I was looking for callers." in after_compaction(worker)


def test_what_was_prepared_for_the_original_is_not_used_by_its_fork() -> None:
    session = begun()
    session.append(User((Text("go"),)))
    session.append(Spawned("fork-3", "fork", "draft"))
    session.append(Noted("draft", "I rewrite the billing module."))
    assert (session.draft, session.drafted) != ("", False)
    begin_fork(session)
    assert (session.draft, session.drafted, session.notes) == ("", False, "")


def test_of_a_task_too_large_for_the_window_both_ends_are_shown_and_its_file(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fill(options, 16_000, monkeypatch)
    lines = [f"Rule {n}: the column c{n} is never renamed." for n in range(2_000)]
    task = "\n".join(("Migrate the tables.", *lines, "Report in one word."))
    worker = Worker(agent(task), compactions=3, size=size)
    run(options, worker)
    for request in worker.requests:
        said = "\n".join(texts(request))
        if "<conversation>" in said:  # a summary of what fits; the task is repeated beside it
            continue
        assert "Migrate the tables." in said and "Report in one word." in said
        (path,) = set(re.findall(r"All of it is in (\S+task-\d+\.txt);", said))
        assert Path(path).read_text() == task
    assert max(len(request.body) // BYTES for request in worker.requests) < 16_000


def test_an_agent_that_goes_on_keeps_its_first_task_and_its_next(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fill(options, 16_000, monkeypatch)
    model = Worker(agent("First, count the lines."), compactions=2, size=size)
    second = Worker(agent("Now count the words.", resume="a1"), compactions=2, size=size)

    async def main(session: LiveSession) -> None:
        await session.ask(PARENT_PROMPT)
        model.reply = second.reply
        await session.ask("and the words?")

    play(options, model, main)
    assert second.left <= 0
    said = after_compaction(second)
    assert said.index("First, count the lines.") < said.index("Now count the words.")
