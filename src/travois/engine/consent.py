"""The gate before a call runs: rules, mode, and the person."""

from __future__ import annotations

import os

import msgspec

from travois.engine.agent import Agent
from travois.engine.ground import home, plain_arguments
from travois.engine.ports import Question
from travois.engine.tool import AnyTool
from travois.kernel.blocks import Call
from travois.kernel.facts import Asked, Decided
from travois.policy.access import Access
from travois.policy.judge import judge
from travois.policy.plan import Plan
from travois.policy.rules import Use


class Ready(msgspec.Struct, frozen=True):
    """A call that is understood: its tool, its arguments, and what it will touch."""

    call: Call
    tool: AnyTool
    args: msgspec.Struct
    accesses: tuple[Access, ...]
    plans: tuple[Plan, ...] = ()
    """What its command lines come to."""

    @property
    def touching(self) -> tuple[Access, ...]:
        """What it touches, as far as others that run beside it are concerned."""
        if not self.plans or not all(plan.looks for plan in self.plans):
            return self.accesses
        plain = tuple(access for access in self.accesses if access.kind != "exec")
        return (*plain, *(access for plan in self.plans for access in plan.accesses))


async def decide(agent: Agent, ready: Ready) -> Decided:
    """Whether a call may run, and why."""
    verdict = judge(agent.guard, use(agent, ready))
    call = ready.call
    if verdict.effect != "ask":
        return Decided(call.id, verdict.effect, verdict.because, by=verdict.by)
    question = Question(
        call=call.id,
        tool=call.name,
        args=call.args,
        summary=ready.tool.summary(ready.args),
        because=verdict.because,
    )
    agent.session.append(Asked(call.id, question.summary))
    answer = await agent.person.decide(question)
    because = answer.reason or verdict.because
    return Decided(call.id, "allow" if answer.allow else "deny", because, by="person")


def use(agent: Agent, ready: Ready) -> Use:
    """The call as the rules see it."""
    return Use(
        ready.call.name,
        ready.accesses,
        agent.world.root,
        home(),
        plans=ready.plans,
        params=plain_arguments(ready.call.args),
        exported=frozenset(os.environ),
    )
