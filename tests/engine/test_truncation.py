"""Servers that cut prompts without a word are noticed by their counts; no other ever is."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.engine.fakes import Place, agent, begun, facts, log, small, with_parts
from travois.core.content import AnyBlock, Call, Media, Opaque, Text
from travois.core.facts import Changed, Compacted, Epoch, User
from travois.core.models import Usage
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.engine.overflow import CUTS_STATE, TRUNCATES_STATE, restore_window
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env, UserWarned
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.sessions.session import Session

BYTES = 4
ASKED = "This is the harness"
"""How a request for a summary begins."""
CAP = 12_000
PROSE = "some words to read in a line of text\n" * 60
CONTENTS = {
    "prose": PROSE,
    "dots": "." * 40_000,
    "dashes": ("-" * 79 + "\n") * 200,
    "blank lines": "\n" * 20_000,
    "spaces": " " * 40_000,
    "rules": "+----+----+\n" * 2_000,
    "progress": f"{'.' * 60} [ 42%]\n" * 400,
    "letters": "x" * 15_000,
    "base64": "QUJDREVGR0hJSktMTU5PUFFS" * 500,
    "chinese": "这是一个用于测试的中文句子。" * 300,
    "numbers": "0 1 0 1 1 0\n" * 400,
}
Count = Callable[[list[int], dict[str, Any]], int]
"""What a server counts for messages of these sizes, the head first, in this body."""


def count_all(sizes: list[int], body: dict[str, Any]) -> int:
    return sum(sizes)


def count_in_runs(sizes: list[int], body: dict[str, Any]) -> int:
    """As tokenizers do: sixty-four equal signs are one token."""
    text = json.dumps(body, ensure_ascii=False)
    for sign in (*".-= ", "\\n", "x"):
        text = text.replace(sign * 64, "T")
    return len(text) // BYTES


class CountNew:
    """Counts what it had not read before, as some versions of Ollama do."""

    def __init__(self) -> None:
        self.before = 0

    def __call__(self, sizes: list[int], body: dict[str, Any]) -> int:
        new, self.before = sum(sizes) - self.before, sum(sizes)
        return new


def count_tools_after_prompts(sizes: list[int], body: dict[str, Any]) -> int:
    """Templates of some models show tools only while the last message is the user's."""
    last = body["messages"][-1]["content"]
    results = any(block["type"] == "tool_result" for block in last)
    return sum(sizes) - (len(json.dumps(body["tools"])) // BYTES if results else 0)


def count_without_thoughts(sizes: list[int], body: dict[str, Any]) -> int:
    """Templates leave out the thoughts of earlier turns."""
    messages = body["messages"]
    last = max(i for i, m in enumerate(messages) if m["content"][0]["type"] == "text")
    old = (block for message in messages[:last] for block in message["content"])
    gone = [block for block in old if block["type"] == "thinking"]
    return sum(sizes) - sum(len(json.dumps(block)) // BYTES for block in gone)


def cut_at_the_window(sizes: list[int], body: dict[str, Any]) -> int:
    return min(sum(sizes), CAP)


def cut_to_the_half(sizes: list[int], body: dict[str, Any]) -> int:
    """What Ollama's runner does."""
    return sum(sizes) if sum(sizes) <= CAP else CAP // 2 + 2


def drop_old_messages(sizes: list[int], body: dict[str, Any]) -> int:
    """What Ollama's server does."""
    kept = sizes[0]
    for size in reversed(sizes[1:]):
        if kept + size > CAP:
            break
        kept += size
    return kept


HONEST: dict[str, Callable[[], Count]] = {
    "all": lambda: count_all,
    "runs": lambda: count_in_runs,
    "only what is new": CountNew,
    "tools after prompts": lambda: count_tools_after_prompts,
    "no old thoughts": lambda: count_without_thoughts,
    "always the same": lambda: lambda sizes, body: 512,
    "nothing": lambda: lambda sizes, body: 0,
}
CUTTING: dict[str, Count] = {
    "at the window": cut_at_the_window,
    "to the half": cut_to_the_half,
    "old messages": drop_old_messages,
}


class Server:
    """Asks for one result after the other, and counts in its own way."""

    def __init__(self, count: Count, *, calls: int, thoughts: bool = False) -> None:
        self.calls, self.asked = calls, 0
        self.counts: list[int] = []
        self._count, self._thoughts = count, thoughts

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        yield _once(self._reply(json.loads(request.body)))

    def _reply(self, body: dict[str, Any]) -> Reply:
        head = len(json.dumps([body.get("tools"), body["system"]])) // BYTES
        sizes = [len(json.dumps(message)) // BYTES for message in body["messages"]]
        usage = Usage(input=self._count([head, *sizes], body), output=20)
        if "tools" not in body or ASKED in json.dumps(body["messages"][-1]):
            return Reply((Text("All is well so far."),), stop="end", usage=usage)
        self.counts.append(usage.prompt)
        self.asked += 1
        content: list[AnyBlock] = []
        if self._thoughts:
            raw = json.dumps({"type": "thinking", "thinking": "I think. " * 200, "signature": "s"})
            content.append(Opaque("anthropic", "thinking", raw))
        if self.asked % (self.calls + 1):
            args = json.dumps({"path": f"part-{self.asked}"})
            return Reply((*content, Call("", "Look", args)), stop="calls", usage=usage)
        return Reply((*content, Text("done")), stop="end", usage=usage)


async def _once(reply: Reply) -> AsyncGenerator[StreamDelta | Reply]:
    await anyio.lowlevel.checkpoint()
    yield reply


def work(
    folder: Path,
    count: Count,
    *,
    content: str = PROSE,
    local: bool = True,
    prompts: tuple[str, ...] = ("Look around.", "Go on.", "And on."),
    calls: int = 8,
    thoughts: bool = False,
) -> tuple[Agent, list[str]]:
    """Some turns with this server; the agent, and what the user was warned of."""

    async def look(args: Place, env: Env, call: str) -> ToolOutcome:
        return text_outcome(f"{args.path}\n{content}")

    tool = small("Look", look)
    tool = replace(tool, description="Looks at a part. " * 250)
    session = begun((tool,), window=200_000)
    server = Server(count, calls=calls, thoughts=thoughts)
    one = agent(folder, tools=(tool,), session=session, model=server)
    with_parts(one, is_local=lambda card: local)
    one.runtime.clock = lambda: log(one).entries[-1].at + 1
    told: list[str] = []

    async def main() -> None:
        with session.watch() as events:
            for text in prompts:
                one.turn.inbox.append(User((Text(text),)))
                assert await run_turn(one) == "end"
            while events.statistics().current_buffer_used:
                event = events.receive_nowait()
                if isinstance(event, UserWarned) and "Compacted" not in event.text:
                    told.append(event.text)

    anyio.run(main)
    return one, told


def window(one: Agent) -> int:
    assert one.session.view.epoch is not None
    return one.session.view.epoch.model.window


@pytest.mark.parametrize(
    ("server", "content"),
    [
        *((server, content) for server in ("all", "runs") for content in CONTENTS),
        *((server, content) for server in HONEST for content in ("prose", "dots")),
    ],
)
def test_no_content_makes_a_server_suspect_that_reads_all_of_it(
    tmp_path: Path, server: str, content: str
) -> None:
    count, shown = HONEST[server](), CONTENTS[content]
    one, told = work(tmp_path, count, content=shown, thoughts=True, calls=4)
    assert (window(one), told) == (200_000, [])
    assert facts(one, Compacted) == []


@pytest.mark.parametrize("sign", [".", "-", "\n", " "])
def test_a_megabyte_of_one_sign_costs_neither_the_window_nor_the_conversation(
    tmp_path: Path, sign: str
) -> None:
    one, told = work(tmp_path, count_in_runs, content=sign * 1_000_000, calls=4)
    assert (window(one), told) == (200_000, [])
    assert facts(one, Compacted) == []


@pytest.mark.parametrize("server", CUTTING)
@pytest.mark.parametrize("thoughts", [False, True])
def test_a_server_that_cuts_is_noticed_by_its_counts(
    tmp_path: Path, server: str, thoughts: bool
) -> None:
    one, told = work(tmp_path, CUTTING[server], thoughts=thoughts, calls=30)
    assert 0.4 * CAP <= window(one) <= CAP
    assert len(told) == 1
    assert told[0] == (
        f"lab/echo-1 truncates long prompts: it counts at most {window(one):,} tokens; "
        "the conversation stays within that from now on. To use more, "
        "start the server with a larger context and pass it, as in --model lab/echo-1[64k]"
    )
    assert one.session.state[f"{TRUNCATES_STATE}lab/echo-1"] == f"{window(one)}/200000"


@pytest.mark.parametrize("server", CUTTING)
def test_who_hosts_models_is_never_suspected(tmp_path: Path, server: str) -> None:
    one, told = work(tmp_path, CUTTING[server], local=False, calls=30)
    assert (window(one), told) == (200_000, [])


def test_one_prompt_with_twice_as_many_words_as_the_count_is_enough(tmp_path: Path) -> None:
    one, told = work(tmp_path, cut_at_the_window, prompts=("word " * (2 * CAP + 10),), calls=0)
    assert (window(one), len(told)) == (CAP, 1)


def test_one_prompt_with_fewer_words_is_not(tmp_path: Path) -> None:
    one, told = work(tmp_path, cut_at_the_window, prompts=("word " * (2 * CAP - 10),), calls=0)
    assert (window(one), told) == (200_000, [])


def test_one_count_that_falls_is_not_enough(tmp_path: Path) -> None:
    falls = iter([5_000, 6_000, 7_000, 5_500, 8_000, 9_000, 10_000, 11_000, 12_000])
    one, told = work(tmp_path, lambda sizes, body: next(falls), prompts=("Go.",))
    assert (window(one), told) == (200_000, [])


def test_counts_are_compared_only_while_the_prompt_grows(tmp_path: Path) -> None:
    """After a change of the head or a compaction, a lower count is what one expects."""
    one, _ = work(tmp_path, count_all, prompts=("Look around.",))
    server = one.model
    assert isinstance(server, Server)
    assert one.session.view.epoch is not None
    one.session.append(replace(one.session.view.epoch, system="Be briefer."))
    server._count = lambda sizes, body: sum(sizes) - 3_000

    async def again() -> None:
        one.turn.inbox.append(User((Text("Go on."),)))
        assert await run_turn(one) == "end"

    anyio.run(again)
    assert window(one) == 200_000


def test_pictures_that_a_server_forgets_are_no_cut(tmp_path: Path) -> None:
    tool = small("Look")
    session = begun((tool,), window=200_000)
    counts = iter([9_000, 9_100, 9_200, 3_000, 3_100, 3_200])
    server = Server(lambda sizes, body: next(counts), calls=5)
    one = agent(tmp_path, tools=(tool,), session=session, model=server)
    with_parts(one, is_local=lambda card: True)
    one.world.blobs.put(b"png")
    one.turn.inbox.append(User((Text("See."), Media("image", "image/png", "blob-0", 3))))
    assert anyio.run(run_turn, one) == "end"
    assert window(one) == 200_000


def narrowed(folder: Path, *, local: bool) -> Agent:
    """A session that an earlier version took for one with a provider that cuts prompts."""
    session = begun((), window=200_000)
    old = session.view.epoch
    assert old is not None
    session.append(Changed(f"{CUTS_STATE}lab/echo-1", "33420"))
    why = "the server counts 33,420 tokens at most: it seems to cut what it is sent"
    card = replace(old.model, window=33_420, output=8_355)
    session.append(replace(old, model=card, why=why))
    one = agent(folder, session=session)
    with_parts(one, is_local=lambda card: local)
    return one


def test_a_window_that_an_earlier_version_took_from_a_hosted_model_is_given_back(
    tmp_path: Path,
) -> None:
    one = narrowed(tmp_path, local=False)
    told = restore_window(one)
    assert told.startswith("lab/echo-1 has its window of 200,000 tokens again: ")
    first, _, last = facts(one, Epoch)
    assert last.model == first.model
    assert restore_window(one) == ""
    again = Session(one.session._log)
    assert again.view.epoch == last


def test_a_window_that_was_learned_on_this_machine_stays(tmp_path: Path) -> None:
    one = narrowed(tmp_path, local=True)
    assert (restore_window(one), window(one)) == ("", 33_420)


def test_a_window_that_was_chosen_since_then_stays(tmp_path: Path) -> None:
    one = narrowed(tmp_path, local=False)
    epoch = one.session.view.epoch
    assert epoch is not None
    one.session.append(replace(epoch, model=replace(epoch.model, window=64_000), why="asked for"))
    assert (restore_window(one), window(one)) == ("", 64_000)
