"""Questions of MCP servers (elicitations): answered by a hook, else by the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from travois.core.display_text import escape_invisible
from travois.core.json import as_list, as_object, as_string
from travois.hooks.events import Elicitation, ElicitationResult
from travois.hooks.output import HookDecision
from travois.lazy_imports import lazy_imports
from travois.ports.world import Choice, ChoiceOption, Env, UnansweredQuestion

if TYPE_CHECKING:
    ElicitedValue = str | int | float | bool | list[str] | None
    from mcp_types import ElicitRequestParams, ElicitResult


with lazy_imports():
    import mcp_types


DECLINE_LABEL = "Decline"
DONE_LABEL = "Done"
DEFAULT_LABEL = "Default: {}"
AGREE_LABEL = "Agree"
MAX_QUESTION_CHARS = 1_000
MAX_QUESTIONS_AT_ONCE = 4
"""Maximum questions asked at once."""
ELICITATION_WARNING = "This question comes from an MCP server: do not enter keys or passwords."


async def answer_elicitation(server: str, params: ElicitRequestParams, env: Env) -> ElicitResult:
    """Answer an MCP server's question by a hook, else by the user; hooks may change it."""
    schema, url, id = None, "", ""
    if params.mode == "url":
        url, id = params.url, params.elicitation_id or ""
    else:
        schema = params.requested_schema
    mode = params.mode or "form"
    heard = await env.fire_hooks(Elicitation(server, params.message, mode, schema, url, id))
    if answer := _answer_from_hooks(heard):
        return fill_defaults(answer, schema)
    given = fill_defaults(await _ask_person(server, params, env), schema)
    told = ElicitationResult(server, given.action, mode, given.content, id)
    changed = _answer_from_hooks(await env.fire_hooks(told))
    return fill_defaults(changed, schema) if changed else given


def fill_defaults(answer: mcp_types.ElicitResult, schema: object) -> mcp_types.ElicitResult:
    """Fill in the default values of fields that an accepted answer leaves out."""
    if answer.action != "accept" or schema is None:
        return answer
    fields = as_object(as_object(schema).get("properties"))
    given = answer.content or {}
    missing = {
        name: as_object(shape)["default"]
        for name, shape in fields.items()
        if name not in given and "default" in as_object(shape)
    }
    return mcp_types.ElicitResult.model_validate(
        {"action": answer.action, "content": missing | given}
    )


def _answer_from_hooks(decision: HookDecision) -> mcp_types.ElicitResult | None:
    """Return the elicitation answer that hooks give in the user's place, if any."""
    if decision.block:
        return mcp_types.ElicitResult(action="decline")
    content = msgspec.json.decode(decision.content) if decision.content else None
    return (
        mcp_types.ElicitResult(action=decision.action, content=content) if decision.action else None
    )


async def _ask_person(server: str, params: ElicitRequestParams, env: Env) -> mcp_types.ElicitResult:
    """Show an MCP elicitation to the user; without an answer it counts as cancelled."""
    fields = (
        {}
        if params.mode == "url"
        else as_object(as_object(params.requested_schema).get("properties"))
    )
    head = f"{server} asks: {_clean_question_text(params.message)}\n{ELICITATION_WARNING}"
    if params.mode == "url":
        choices = [
            Choice(
                f"{head}\nOpen {_clean_question_text(params.url)}",
                (ChoiceOption(DONE_LABEL), ChoiceOption(DECLINE_LABEL)),
            )
        ]
    elif not fields:
        choices = [Choice(head, (ChoiceOption(AGREE_LABEL), ChoiceOption(DECLINE_LABEL)))]
    else:
        choices = [_field_choice(head, name, as_object(shape)) for name, shape in fields.items()]
    try:
        answers: list[str] = []
        for start in range(0, len(choices), MAX_QUESTIONS_AT_ONCE):
            answers += await env.choose(tuple(choices[start : start + MAX_QUESTIONS_AT_ONCE]))
    except UnansweredQuestion:
        return mcp_types.ElicitResult(action="cancel")
    if DECLINE_LABEL in answers:
        return mcp_types.ElicitResult(action="decline")
    pairs = zip(fields.items(), answers, strict=False)
    values = {
        name: _convert_answer(as_object(shape), answer)
        for (name, shape), answer in pairs
        if answer != DEFAULT_LABEL.format(as_object(shape).get("default"))
    }
    return mcp_types.ElicitResult(action="accept", content=values if params.mode != "url" else None)


def _field_choice(head: str, name: str, shape: dict[str, object]) -> Choice:
    """Build the choice for one field of an elicitation, with the answers its schema lists."""
    label = _clean_question_text(as_string(shape.get("title")) or name)
    about = _clean_question_text(as_string(shape.get("description")))
    named = [str(one) for one in as_list(shape.get("enum"))]
    named = named or (["yes", "no"] if shape.get("type") == "boolean" else [])
    default = DEFAULT_LABEL.format(shape["default"]) if "default" in shape else ""
    options = (
        *((ChoiceOption(_clean_question_text(default)),) if default else ()),
        *(ChoiceOption(_clean_question_text(one)) for one in named),
        ChoiceOption(DECLINE_LABEL),
    )
    return Choice(f"{head}\n{label}: {about}", options, header=label[:20])


def _convert_answer(shape: dict[str, object], answer: str) -> ElicitedValue:
    """Convert the user's answer to the type of an elicitation field."""
    match shape.get("type"):
        case "boolean":
            return answer.strip().lower() in ("yes", "true", "y", "1")
        case "integer" | "number" if _parse_number(answer) is not None:
            return _parse_number(answer)
        case "array":
            return [part.strip() for part in answer.split(",")]
        case _:
            return answer


def _parse_number(text: str) -> int | float | None:
    """Parse a number in the answer to an elicitation; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _clean_question_text(text: str) -> str:
    return escape_invisible(" ".join(text.split()))[:MAX_QUESTION_CHARS]
