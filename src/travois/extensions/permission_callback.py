"""Permission questions, and the model's own questions, answered by functions of a program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from travois.core.json import as_object
from travois.core.tool_names import decode_arguments
from travois.extensions.function_tools import call_function
from travois.ports.world import ChoiceRequest, PermissionQuestion, PersonAnswer


class PermissionRequest(msgspec.Struct, frozen=True):
    """A tool call that needs permission."""

    tool: str
    input: Mapping[str, Any]
    """The arguments of the call."""
    summary: str
    """The call in one line."""
    reason: str
    """The reason why it needs permission."""
    effects: tuple[str, ...] = ()
    """In plain words, what it does and what holds it back."""


class PermissionAnswer(msgspec.Struct, frozen=True):
    """An answer to a permission request."""

    allow: bool
    reason: str = ""
    """For the model, of a denial."""
    input: Mapping[str, Any] | None = None
    """The arguments that the call should have instead."""
    stop: bool = False
    """True to end the turn as well."""


class Question(msgspec.Struct, frozen=True):
    """A question that the model asks, with the answers that it offers."""

    text: str
    options: tuple[str, ...]
    several: bool = False
    """True if more than one answer may be given, joined by commas."""


PermissionCallback = Callable[
    [PermissionRequest], bool | PermissionAnswer | Awaitable[bool | PermissionAnswer]
]
QuestionCallback = Callable[[Question], str | Awaitable[str | None] | None]
DENIED = "the program that runs this session did not allow it"


class CallbackPerson:
    """Functions in the place of the person who answers."""

    def __init__(
        self, on_permission: PermissionCallback | None, on_question: QuestionCallback | None
    ) -> None:
        self._on_permission = on_permission
        self._on_question = on_question

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Ask the permission callback; without one, the answer is no."""
        if self._on_permission is None:
            return PersonAnswer(allow=False, reason=f"{question.because}, and {DENIED}")
        request = PermissionRequest(
            question.tool,
            as_object(decode_arguments(question.args)),
            question.summary,
            question.because,
            question.effects,
        )
        answer = await call_function(partial(self._on_permission, request))
        if not isinstance(answer, bool | PermissionAnswer):
            told = f"on_permission returns True, False or PermissionAnswer, not {answer!r}"
            raise TypeError(told)
        if isinstance(answer, bool):
            answer = PermissionAnswer(answer)
        return PersonAnswer(
            allow=answer.allow,
            reason=answer.reason or ("" if answer.allow else DENIED),
            digest=question.digest,
            input="" if answer.input is None else msgspec.json.encode(answer.input).decode(),
            stop=(answer.reason or DENIED) if answer.stop else "",
        )

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Ask the question callback; None if there is none, or if it has no answer."""
        answers: list[str] = []
        for choice in inquiry.choices if self._on_question else ():
            labels = tuple(option.label for option in choice.options)
            assert self._on_question is not None
            asked = partial(self._on_question, Question(choice.question, labels, choice.several))
            answer = await call_function(asked)
            if not isinstance(answer, str):
                return None
            answers.append(answer)
        return tuple(answers) or None
