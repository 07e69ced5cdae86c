"""Hooks that are no programs: a question to a model, an agent that looks, a tool of a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from travois.context.window import model
from travois.core.content import Call, Text, words
from travois.core.errors import Fault
from travois.core.facts import Entry, Epoch, User
from travois.core.json import table
from travois.core.view import project
from travois.engine.agent import Agent, Small
from travois.engine.budget import Exhausted
from travois.engine.fork import beside
from travois.engine.tool_calls import Unfit, carry_out, understand
from travois.hooks.config import Hook
from travois.hooks.output import Said
from travois.ports.agents import HOOK, Order
from travois.ports.tool import Refusal
from travois.providers.replies import Problem

VERDICT = Path(__file__).with_name("verdict.md")
EVENT = "$ARGUMENTS"
TURNS = 50
"""How many an agent may take that a hook starts."""
PART = re.compile(r"\$\{([\w.-]+)\}")
UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
ENDING = ("PostToolUse", "PostToolUseFailure")
"""Events at which what is not well ends the turn, unless the hook says that it goes on."""
LAST = ("Stop", "SubagentStop")
FRAIL = "was not asked: this model is too small to judge anything"


class Verdict(msgspec.Struct, frozen=True):
    """What a model says of what it was to check."""

    ok: bool
    reason: str = ""
    impossible: bool = False


async def answered(agent: Agent, hook: Hook, event: bytes) -> Said:
    """What a hook says of an event, which is JSON; whatever goes wrong is why it says nothing."""
    try:
        if hook.type == "mcp_tool":
            return await _called(agent, hook, event)
        asked = _filled(hook.prompt, event.decode())
        judge = _looked if hook.type == "agent" else _thought
        return _said(hook, await judge(agent, hook, asked))
    except (Problem, Exhausted, Refusal, Fault) as error:
        return Said(failure=f"could not be answered: {error}")


def _filled(prompt: str, event: str) -> str:
    return prompt.replace(EVENT, event) if EVENT in prompt else f"{prompt}\n\n{event}"


def _said(hook: Hook, text: str) -> Said:
    """A model's verdict, as a program would print it."""
    try:
        verdict = msgspec.json.decode(text[text.find("{") : text.rfind("}") + 1], type=Verdict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Said(failure=f"gave no verdict: {text[:200] or 'nothing was said'}")
    why = verdict.reason or "a check of the user's did not pass"
    output: dict[str, Any] = {"decision": "block", "reason": why}
    if verdict.ok:
        output = {}
    elif hook.event == "PermissionRequest":
        output = {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": why}}}
    elif hook.event in ENDING and not hook.continue_on_block:
        output = {"continue": False, "stopReason": why}
    elif verdict.impossible and hook.event in LAST:
        output = {"systemMessage": why}
    return Said(msgspec.json.encode(output).decode())


async def _thought(agent: Agent, hook: Hook, asked: str) -> str:
    """What a model says to it: the one that the hook names, else a small one, else ours."""
    other = (
        agent.models.named(hook.model)
        if hook.model and agent.models.named is not None
        else agent.models.small()
    )
    judge = other or Small(model(agent), agent.model)
    if judge.card.frail:
        raise Refusal(FRAIL)
    at, head = agent.runtime.clock(), Epoch(judge.card, VERDICT.read_text("utf-8").strip())
    view = project([Entry(1, at, head), Entry(2, at, User((Text(asked),)))])
    reply = await beside(replace(agent, model=judge.model), view, what=HOOK)
    return words(reply.content)


async def _looked(agent: Agent, hook: Hook, asked: str) -> str:
    """What an agent says to it that may look at everything and change nothing."""
    if agent.team.children is None:
        raise Refusal("no agent can be started here")
    if model(agent).frail and not hook.model:
        raise Refusal(FRAIL)
    small = agent.models.small()
    name = hook.model or (small.card.name if small else "")
    told = f"{VERDICT.read_text('utf-8').strip()}\n\n{asked}"
    order = Order(told, HOOK, "explore", call=HOOK, model=name, turns=TURNS)
    return (await agent.team.children.start(order)).text


async def _called(agent: Agent, hook: Hook, event: bytes) -> Said:
    """What a server's tool says, as if a program had printed it."""
    name = f"mcp__{UNSAFE.sub('_', hook.server)}__{UNSAFE.sub('_', hook.tool)}"
    ready = understand(agent, Call(HOOK, name, _given(hook, event)))
    if isinstance(ready, Unfit):
        return Said(failure=f"could not be called: {ready.why.partition('. The tools')[0]}")
    outcome = await carry_out(agent, ready, None)
    text = words(outcome.content)
    return Said(failure=f"failed: {text[:200]}") if outcome.error else Said(text)


def _given(hook: Hook, event: bytes) -> str:
    """The arguments with parts of the event in place of `${their.path}`."""
    happened = table(msgspec.json.decode(event))

    def part(found: re.Match[str]) -> str:
        value: object = happened
        for name in found[1].split("."):
            value = table(value).get(name)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return msgspec.json.encode(text).decode()[1:-1]

    return PART.sub(part, msgspec.json.encode(hook.input).decode())
