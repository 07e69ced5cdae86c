"""AskUserQuestion: what only the person can decide."""

from __future__ import annotations

from typing import Annotated

import msgspec

from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Choice, Env, Option, Unanswered

ALONE = "Nobody answered. Decide it yourself, and say in your reply what you took for granted."


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer to pick."""

    label: str
    description: str = ""


class Asking(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One question with its answers."""

    question: str
    options: Annotated[tuple[Offer, ...], msgspec.Meta(min_length=2, max_length=6)]
    header: str = ""
    multi_select: bool = False


class AskArgs(msgspec.Struct, frozen=True):
    """The questions, which are put together."""

    questions: Annotated[tuple[Asking, ...], msgspec.Meta(min_length=1, max_length=4)]


async def _ask(args: AskArgs, env: Env, call: str) -> Outcome:
    choices = tuple(_choice(one) for one in args.questions)
    try:
        answers = await env.choose(choices)
    except Unanswered:
        raise Refusal(ALONE) from None
    found = dict(zip((one.question for one in choices), answers, strict=True))
    told = "\n".join(f"{question}\n  {answer}" for question, answer in found.items())
    return said(f"The user answered:\n{told}", detail=_detail(found))


def _choice(asked: Asking) -> Choice:
    options = tuple(Option(one.label, one.description) for one in asked.options)
    return Choice(asked.question, options, header=asked.header, several=asked.multi_select)


def _detail(answers: dict[str, str]) -> str:
    return msgspec.json.encode({"answers": answers}).decode()


ASK = Tool(
    name="AskUserQuestion",
    description=(
        "Ask the user to choose what only they can decide; the option that you would take first. "
        "They may also answer in their own words."
    ),
    args=AskArgs,
    access=lambda args, here: (),
    run=_ask,
    summary=lambda args: args.questions[0].question,
)
