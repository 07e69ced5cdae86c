"""Permission questions and hooks that are answered by the client or by an MCP tool."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from travois.compat.claude_json import Json, JsonObject
from travois.core.content import Call, extract_text
from travois.core.errors import UserError
from travois.engine.agent import Agent
from travois.engine.tool_calls import InvalidCall, execute_call, parse_call
from travois.headless.control.messages import HostConnection, HostDeclined, HostHookMatcher
from travois.hooks.config import CALLBACK_TIMEOUT_SECONDS, Listener
from travois.hooks.events import HOOK_EVENT_NAMES
from travois.hooks.fire import decode_call_args
from travois.hooks.output import UNSET_JSON, HookPermissionDecision
from travois.permissions.rules import parse_permission_rule
from travois.permissions.updates import ALLOW_SANDBOXED_UPDATE, PermissionUpdate, suggest_updates
from travois.ports.world import Choice, ChoiceRequest, PermissionQuestion, PersonAnswer

PERMISSION_REQUEST = "can_use_tool"


class QuestionAnswers(msgspec.Struct):
    """Answers to questions, returned as the input of a call."""

    answers: dict[str, str | tuple[str, ...]] = {}


class HostUser:
    """The user as seen through the client: each question goes to `ask`."""

    def __init__(self, ask: Callable[[JsonObject], Awaitable[msgspec.Raw]]) -> None:
        self._ask = ask

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Ask whether a call may run."""
        given = decode_call_args(Call(question.call, question.tool, question.args))
        rules = (parse_permission_rule(rule, "allow") for rule in question.always)
        offer = (ALLOW_SANDBOXED_UPDATE,) if question.offers_sandbox else ()
        body: JsonObject = {
            "tool_name": question.tool,
            "display_name": question.tool,
            "input": msgspec.to_builtins(given),
            "tool_use_id": question.call,
            "permission_suggestions": msgspec.to_builtins((*suggest_updates(rules), *offer)),
            "decision_reason": question.because,
            "title": question.summary,
            "description": "; ".join(question.effects),
        }
        try:
            decision = await self._request_decision(body)
        except HostDeclined as declined:
            return PersonAnswer(allow=False, reason=str(declined))
        if decision.behavior == "deny":
            why = decision.message or "the client denied it"
            return PersonAnswer(allow=False, reason=why, stop=why if decision.interrupt else "")
        return PersonAnswer(
            allow=True,
            digest=question.digest,
            input=_input_if_changed(decision.updated_input, given),
            updates=decision.updated_permissions,
        )

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Ask questions, or show a plan, as a call that needs permission."""
        try:
            if inquiry.plan:
                return await self._ask_about_plan(inquiry)
            questions: JsonObject = {"questions": [_question_json(one) for one in inquiry.choices]}
            decision = await self._ask_as_call("AskUserQuestion", inquiry, questions)
        except HostDeclined:
            return None
        if decision.behavior == "deny":
            return (decision.message,) * len(inquiry.choices) if decision.message else None
        found = msgspec.json.decode(decision.updated_input or b"{}", type=QuestionAnswers).answers
        told = tuple(found.get(one.question, "") for one in inquiry.choices)
        words = tuple(one if isinstance(one, str) else ", ".join(one) for one in told)
        return words if all(words) else None

    async def _ask_about_plan(self, inquiry: ChoiceRequest) -> tuple[str, ...]:
        yes, edits, no = (option.label for option in inquiry.choices[0].options)
        decision = await self._ask_as_call("ExitPlanMode", inquiry, {"plan": inquiry.plan})
        if decision.behavior == "deny":
            return (decision.message or no,)
        updates = (
            msgspec.json.decode(raw, type=PermissionUpdate) for raw in decision.updated_permissions
        )
        return (edits if any(one.mode == "acceptEdits" for one in updates) else yes,)

    async def _ask_as_call(
        self, tool: str, inquiry: ChoiceRequest, given: JsonObject
    ) -> HookPermissionDecision:
        return await self._request_decision(
            {"tool_name": tool, "tool_use_id": inquiry.call, "input": given}
        )

    async def _request_decision(self, body: JsonObject) -> HookPermissionDecision:
        answer = await self._ask(body)
        try:
            return msgspec.json.decode(answer, type=HookPermissionDecision)
        except msgspec.DecodeError as error:
            raise HostDeclined(f"the answer to {PERMISSION_REQUEST} is invalid: {error}") from None


def _input_if_changed(updated: msgspec.Raw, given: object) -> str:
    """Return the tool input that the client's answer changed; empty if unchanged."""
    if updated in (UNSET_JSON, b"null") or msgspec.json.decode(updated) == given:
        return ""
    return bytes(updated).decode()


def _question_json(choice: Choice) -> Json:
    """Build the JSON of a question for the client of a headless session."""
    return {
        "question": choice.question,
        "header": choice.header,
        "options": [{"label": o.label, "description": o.description} for o in choice.options],
        "multiSelect": choice.several,
    }


# Hook callbacks of the client.


def build_host_listeners(
    connection: HostConnection, hooks: Mapping[str, tuple[HostHookMatcher, ...]]
) -> Iterator[Listener]:
    """Yield a listener for each of the client's hooks whose event exists here."""
    for event, matchers in hooks.items():
        for matcher in matchers if event in HOOK_EVENT_NAMES else ():
            for id in matcher.hook_callback_ids:
                yield Listener(
                    event,
                    partial(_call_host_hook, connection, id),
                    matcher=_check_matcher(matcher.matcher or ""),
                    timeout=matcher.timeout or CALLBACK_TIMEOUT_SECONDS,
                    on_failure="continue" if matcher.on_failure in (None, "continue") else "block",
                )


def describe_unknown_events(hooks: Mapping[str, tuple[HostHookMatcher, ...]]) -> tuple[str, ...]:
    """Return notices about the client's hooks for unknown events."""
    strange = [event for event in hooks if event not in HOOK_EVENT_NAMES]
    return tuple(f"hooks for {event} are ignored: unknown event" for event in strange)


def _check_matcher(matcher: str) -> str:
    """Return the matcher of a client's hook; raise `UserError` for an invalid pattern."""
    try:
        re.compile("" if matcher == "*" else matcher)
    except re.error as error:
        raise UserError(
            f"Invalid regular expression in matcher {matcher!r}", why=str(error)
        ) from None
    return matcher


async def _call_host_hook(connection: HostConnection, id: str, told: dict[str, Any]) -> object:
    body = {"callback_id": id, "input": told, "tool_use_id": told.get("tool_use_id")}
    return msgspec.json.decode(await connection.request("hook_callback", body))


# The permission prompt tool.


class PermissionPromptTool:
    """An MCP tool that decides permission questions (`--permission-prompt-tool`)."""

    def __init__(self, tool: str, agent: Callable[[], Agent]) -> None:
        self._tool = tool
        self._agent = agent

    async def ask(self, body: JsonObject) -> msgspec.Raw:
        """Call the tool and return its answer; raise `HostDeclined`."""
        told: JsonObject = {name: body[name] for name in ("tool_name", "input", "tool_use_id")}
        call = Call(f"{body['tool_use_id']}_leave", self._tool, msgspec.json.encode(told).decode())
        ready = parse_call(self._agent(), call)
        if isinstance(ready, InvalidCall):
            why = ready.why.partition(". The tools")[0]
            raise HostDeclined(f"The permission prompt tool {self._tool} cannot be called: {why}")
        outcome = await execute_call(self._agent(), ready, None)
        if outcome.error:
            failure = extract_text(outcome.content)
            raise HostDeclined(f"The permission prompt tool {self._tool} failed: {failure}")
        return msgspec.Raw(extract_text(outcome.content).encode())
