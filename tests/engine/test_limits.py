"""No request leaves that a limit does not cover, in whatever tree of agents."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.fakes import MemoryBlobs, Place, agent, begun, facts, log, play, prompt, small
from travois.context.layers import ContextLayers
from travois.core.content import Text, extract_text
from travois.core.facts import Ended, Finished, Result, Sent, User
from travois.core.models import Price, Usage
from travois.core.spending import Amount, Budget, Limits
from travois.core.view import project_view
from travois.engine.agent import Agent
from travois.engine.budget import MIN_REPLY_TOKENS, NEAR_LIMIT_NOTE
from travois.engine.fork import ask_in_fork
from travois.engine.loop import STOPPED_RESULT, run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.encoder import RequestEncoder
from travois.providers.replies import ApiError, Reply, StreamDelta
from travois.providers.request import Request, limit_reply_tokens
from travois.sessions.session import Session
from travois.testing import Scripted, call, say

LOOK = small("Look")
PRICE = Price(input=10.0, output=50.0)


class Dear:
    """A model that reads what it was sent, says something long, and calls a tool a few times."""

    def __init__(self, session: Session, chance: random.Random, *, calls: int) -> None:
        self._session, self._chance = session, chance
        self.left, self.sent = calls, 0

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        self.sent += 1
        most = json.loads(request.body)["max_tokens"]
        sent = self._session.view.sent
        assert sent is not None

        async def told() -> AsyncGenerator[StreamDelta | Reply]:
            for _ in range(self._chance.randint(1, 5)):
                await anyio.lowlevel.checkpoint()
            self.left -= 1
            usage = Usage(input=sent.tokens, output=self._chance.randint(1, most))
            line = call("Look", path=str(self.left)) if self.left > 0 else say("done")
            yield Reply(line.content, line.stop, usage)

        stream = told()
        yield stream
        await stream.aclose()


def asked(one: Agent) -> list[int]:
    """How long a reply each request asked for."""
    assert isinstance(one.model, Scripted)
    return [json.loads(request.body)["max_tokens"] for request in one.model.requests]


def dear(folder: Path, *lines: Reply, budget: Budget, output: int = 8_000) -> Agent:
    session = begun([LOOK], price=PRICE, output=output)
    return agent(folder, *lines, tools=[LOOK], session=session, budget=budget)


def spending(number: int, **usage: int) -> Reply:
    line = call("Look", path=str(number))
    return Reply(line.content, line.stop, Usage(**usage))


def test_what_cannot_be_paid_is_not_asked_and_money_stays_spent_after_a_resume(
    tmp_path: Path,
) -> None:
    lines = [spending(number, input=20_000) for number in range(9)]
    one = dear(tmp_path, *lines, budget=Budget(Limits(dollars=0.9)))
    assert play(one) == "budget"
    assert len(facts(one, Sent)) == 3
    assert one.session.dollars == pytest.approx(0.6)
    why = facts(one, Ended)[-1].detail
    assert why.startswith("$0.3000 left, and the next request may need $0.30")
    spent = Amount(tokens=one.session.usage.context, dollars=one.session.dollars)
    one.budget = Budget(Limits(dollars=0.9), spent=spent)
    assert play(one, "please") == "budget"
    assert len(facts(one, Sent)) == 3


def test_a_reply_is_only_as_long_as_can_be_paid_and_the_record_says_so(tmp_path: Path) -> None:
    lines = [spending(n, input=1_000, output=2_000) for n in range(9)]
    one = dear(tmp_path, *lines, budget=Budget(Limits(dollars=0.6)))
    assert play(one) == "budget"
    lengths = asked(one)
    assert lengths[0] == 8_000 > lengths[-1] >= MIN_REPLY_TOKENS
    assert [sent.output for sent in facts(one, Sent)] == [0 if n == 8_000 else n for n in lengths]
    assert one.session.dollars <= 0.6
    entries = log(one).entries
    last = max(n for n, entry in enumerate(entries) if isinstance(entry.fact, Sent))
    plain = RequestEncoder(MemoryBlobs().get).build_request(project_view(entries[:last]))
    again, sent = limit_reply_tokens(plain, lengths[-1]), entries[last].fact
    assert isinstance(sent, Sent)
    assert (sent.chain, sent.digest, sent.size) == (plain.chain, again.digest, len(again.body))


def test_what_the_cache_holds_counts_at_its_own_price(tmp_path: Path) -> None:
    cached = Usage(read=90_000, write=1_000, output=10)
    lines = [Reply(call("Look", path=str(n)).content, "calls", cached) for n in range(3)]
    price = Price(input=10.0, output=10.0, read=0.1, write=12.5)
    session = begun([LOOK], price=price, output=1_000)
    one = agent(
        tmp_path,
        *lines,
        say("done", usage=cached),
        tools=[LOOK],
        session=session,
        layers=ContextLayers(compact=False, clear=False),
        budget=Budget(Limits(dollars=0.5)),
        clock=lambda: session.cache.used + 1,
    )
    assert play(one) == "end"
    one.runtime.clock = lambda: session.cache.used + 1_000
    assert play(one, "more") == "budget"
    assert len(facts(one, Sent)) == 4


def test_tokens_are_capped_for_prompts_and_replies_together(tmp_path: Path) -> None:
    lines = [spending(n, input=1_000, output=1_000) for n in range(9)]
    one = dear(tmp_path, *lines, budget=Budget(Limits(tokens=10_000)))
    assert play(one) == "budget"
    assert one.session.usage.context == one.budget.spent.tokens <= 10_000
    assert "tokens left, and the next request may need" in facts(one, Ended)[-1].detail


def test_near_a_limit_the_model_is_asked_once_for_its_findings(tmp_path: Path) -> None:
    lines = [call("Look", path=str(number)) for number in range(9)]
    one = agent(tmp_path, *lines, tools=[LOOK], budget=Budget(Limits(turns=5)))
    assert play(one) == "turns"
    notes = [extract_text(fact.content) for fact in facts(one, User) if fact.origin == "note"]
    assert notes == [NEAR_LIMIT_NOTE.format(limit="the session's limit of 5 turns")]
    kinds = [type(entry.fact) for entry in log(one).entries]
    assert kinds.index(User, kinds.index(Result)) > kinds.index(Sent)
    assert kinds[-8:].count(Sent) == 1


def test_when_the_time_is_up_the_turn_ends_with_what_there_is(tmp_path: Path) -> None:
    async def forever(args: Place, env: Env, call: str) -> ToolOutcome:
        await anyio.sleep_forever()
        return text_outcome("never")

    tools = [small("Wait", forever)]
    one = agent(tmp_path, call("Wait", path="a"), tools=tools, budget=Budget(Limits(seconds=0.25)))
    assert play(one) == "budget"
    why = "reached the session's limit of 0.25 seconds"
    assert facts(one, Ended) == [Ended("budget", why, "seconds")]
    assert [extract_text(fact.content) for fact in facts(one, Result)] == [STOPPED_RESULT]
    assert len(facts(one, Sent)) == 1


def test_nothing_is_sent_after_the_cap_also_not_beside_the_conversation(tmp_path: Path) -> None:
    one = dear(tmp_path, say("hello"), budget=Budget(Limits(tokens=5)))
    one.session.append(User((Text("go"),)))

    async def main() -> str:
        return await ask_in_fork(one, "Sum up.", what="summary")

    assert anyio.run(main) == ""
    assert asked(one) == []
    [ended] = facts(one, Finished)
    assert ended.outcome.startswith("5 tokens left")


def test_what_is_asked_beside_the_conversation_is_paid_from_the_same_purse(tmp_path: Path) -> None:
    usage = Usage(input=1_000, output=500)
    one = dear(tmp_path, say("short", usage=usage), budget=Budget(Limits(dollars=9.0)))
    one.session.append(User((Text("go"),)))
    anyio.run(lambda: ask_in_fork(one, "Sum up.", what="summary"))
    assert one.budget.spent == Amount(0, 1_500, pytest.approx(0.035))
    assert one.budget.held.tokens == 0


def test_a_request_is_not_tried_again_once_others_have_spent_what_was_left(tmp_path: Path) -> None:
    top = Budget(Limits(dollars=1.0))
    one = dear(tmp_path, say("hello"), budget=top.create_child(Limits()))
    busy = ApiError("overloaded", "try later", status=529)
    one.model = Scripted(busy, say("hello"))

    async def meanwhile(seconds: float) -> None:
        top.spend(Usage(), 1.0)

    one.runtime.sleep = meanwhile
    assert play(one) == "budget"
    assert len(asked(one)) == 1
    assert facts(one, Ended)[-1].detail == "reached the session's limit of $1.0000"


def test_agents_side_by_side_wait_for_what_others_may_not_need(tmp_path: Path) -> None:
    top = Budget(Limits(tokens=7_000))
    crew = [
        dear(
            tmp_path, say("hi", usage=Usage(input=50, output=10)), budget=top.create_child(Limits())
        )
        for _ in range(8)
    ]
    assert run_all(crew) == ["end"] * 8
    assert top.spent.tokens == 8 * 60


def run_all(crew: list[Agent]) -> list[str]:
    """A turn of all agents at the same time."""
    ends = [""] * len(crew)

    async def run(number: int) -> None:
        ends[number] = await run_turn(prompt(crew[number]))

    async def main() -> None:
        with anyio.fail_after(300):
            async with anyio.create_task_group() as group:
                for number in range(len(crew)):
                    group.start_soon(run, number)

    anyio.run(main)
    return ends


limits = st.builds(
    Limits,
    turns=st.integers(0, 15),
    tokens=st.sampled_from((0, 3_000, 20_000, 100_000)),
    dollars=st.sampled_from((0.0, 0.05, 0.2, 1.0, 3.0)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), limits), min_size=1, max_size=6), st.integers())
def test_no_limit_is_passed_in_any_tree_of_agents(
    tmp_path_factory: pytest.TempPathFactory, tree: list[tuple[int, Limits]], seed: int
) -> None:
    chance, folder = random.Random(seed), tmp_path_factory.getbasetemp()
    purses = [Budget(tree[0][1])]
    for above, own in tree[1:]:
        purses.append(purses[above % len(purses)].create_child(own))
    crew = [dear(folder, budget=budget, output=4_000) for budget in purses]
    models = [Dear(one.session, chance, calls=chance.randint(1, 6)) for one in crew]
    for one, model in zip(crew, models, strict=True):
        one.model = model
        one.budget.begin_run(one.runtime.clock())
    ends = run_all(crew)
    for one, model, end in zip(crew, models, ends, strict=True):
        below = [other for other in crew if within(other.budget, one.budget)]
        used = Amount(
            sum(len(facts(other, Sent)) for other in below),
            sum(other.session.usage.context for other in below),
            sum(other.session.dollars for other in below),
        )
        most = one.budget.limits
        assert used.tokens <= (most.tokens or used.tokens)
        assert used.dollars <= (most.dollars or used.dollars) + 1e-9
        assert used.turns <= (most.turns or used.turns)
        assert one.budget.held == Amount(0, 0, pytest.approx(0.0))
        assert (end == "end") == (model.left == 0)
        assert end in ("end", "turns", "budget")


def within(budget: Budget | None, top: Budget) -> bool:
    return budget is not None and (budget is top or within(budget.parent, top))
