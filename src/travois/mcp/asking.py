"""What a server wants to know from the person: shown as its question, answered by them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from travois.core.display_text import visible
from travois.core.json import rows, string, table
from travois.hooks.events import Elicitation, ElicitationResult
from travois.hooks.output import Heard
from travois.ports.person import Choice, Option
from travois.ports.world import Env, Unanswered

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

    Value = str | int | float | bool | list[str] | None

DECLINE, DONE, AGREE = "Decline", "Done", "Agree"
LONGEST = 1_000
MOST = 4
"""How many questions are put to a person at once."""
WARNING = "This is a question of a server, not of Travois: give it no keys or passwords."


async def asked(server: str, params: ElicitRequestParams, env: Env) -> ElicitResult:
    """The answer to what a server asks: a hook's, else the person's, which hooks may change."""
    schema, url, id = None, "", ""
    if params.mode == "url":
        url, id = params.url, params.elicitation_id or ""
    else:
        schema = params.requested_schema
    mode = params.mode or "form"
    heard = await env.hear(Elicitation(server, params.message, mode, schema, url, id))
    if answer := _answered(heard):
        return answer
    given = await _by_person(server, params, env)
    told = ElicitationResult(server, given.action, mode, given.content, id)
    return _answered(await env.hear(told)) or given


def _answered(heard: Heard) -> ElicitResult | None:
    """The answer that hooks give in the person's place, if they give one."""
    from mcp_types import ElicitResult

    if heard.block:
        return ElicitResult(action="decline")
    content = msgspec.json.decode(heard.content) if heard.content else None
    return ElicitResult(action=heard.action, content=content) if heard.action else None


async def _by_person(server: str, params: ElicitRequestParams, env: Env) -> ElicitResult:
    """The person's answer; nobody's answer is none."""
    from mcp_types import ElicitResult

    fields = {} if params.mode == "url" else table(table(params.requested_schema).get("properties"))
    head = f"{server} asks: {_clean(params.message)}\n{WARNING}"
    if params.mode == "url":
        choices = [Choice(f"{head}\nOpen {_clean(params.url)}", (Option(DONE), Option(DECLINE)))]
    elif not fields:
        choices = [Choice(head, (Option(AGREE), Option(DECLINE)))]
    else:
        choices = [_choice(head, name, table(shape)) for name, shape in fields.items()]
    try:
        answers: list[str] = []
        for start in range(0, len(choices), MOST):
            answers += await env.choose(tuple(choices[start : start + MOST]))
    except Unanswered:
        return ElicitResult(action="cancel")
    if DECLINE in answers:
        return ElicitResult(action="decline")
    pairs = zip(fields.items(), answers, strict=False)
    values = {name: _value(table(shape), answer) for (name, shape), answer in pairs}
    return ElicitResult(action="accept", content=values if params.mode != "url" else None)


def _choice(head: str, name: str, shape: dict[str, object]) -> Choice:
    """One field of a form, with the answers that its schema names."""
    label = _clean(string(shape.get("title")) or name)
    about = _clean(string(shape.get("description")))
    named = [str(one) for one in rows(shape.get("enum"))]
    named = named or (["yes", "no"] if shape.get("type") == "boolean" else [])
    options = (*(Option(_clean(one)) for one in named), Option(DECLINE))
    return Choice(f"{head}\n{label}: {about}", options, header=label[:20])


def _value(shape: dict[str, object], answer: str) -> Value:
    match shape.get("type"):
        case "boolean":
            return answer.strip().lower() in ("yes", "true", "y", "1")
        case "integer" | "number" if _number(answer) is not None:
            return _number(answer)
        case "array":
            return [part.strip() for part in answer.split(",")]
        case _:
            return answer


def _number(text: str) -> int | float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _clean(text: str) -> str:
    return visible(" ".join(text.split()))[:LONGEST]
