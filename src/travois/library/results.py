"""The result of a run: what the model answered, what it cost, and why it ended.

There is one class of errors for each way in which a run can end without an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self

import msgspec

from travois.compose.turn_tally import PASSING_ERRORS, TurnTally
from travois.core import models
from travois.core.facts import Ended

if TYPE_CHECKING:  # with the default, `Result` alone is a type; Python has it from 3.13 on
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")


class RunError(Exception):
    """A run that ended without an answer; `result` has what there is of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.result: Result[Any] | None = None


class ApiError(RunError):
    """The model's API failed or refused the request, after all retries."""

    def __init__(
        self, message: str, *, kind: str = "", status: int = 0, is_retryable: bool = False
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """What went wrong: `rate`, `auth`, `overloaded`, `quota`, `invalid` and others."""
        self.status = status
        """The HTTP status; 0 if there was none."""
        self.is_retryable = is_retryable
        """True if the same run may succeed later."""


class RefusalError(RunError):
    """The model declined to answer."""


class LimitError(RunError):
    """The run reached a limit.

    `limit` is `turns`, `tokens`, `dollars` or `seconds`; `context` if the window is full, and
    `repetition` if the model kept repeating the same calls.
    """

    def __init__(self, message: str, *, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


class BudgetError(LimitError):
    """The run spent its budget of dollars or tokens."""


class ToolFailedError(RunError):
    """A function tool with `on_error="stop_turn"` raised; `__cause__` is its exception."""

    def __init__(self, message: str, *, tool: str = "") -> None:
        super().__init__(message)
        self.tool = tool


class OutputError(RunError):
    """The model gave no output that fits the requested type, in all its attempts."""


class HookStoppedError(RunError):
    """A hook or a permission callback ended the turn."""


class InterruptedRunError(RunError):
    """The turn was stopped before its end."""


WhyEnded = Literal[
    "finished",  # the model has said its last word
    "api_error",  # its API failed or refused
    "refused",  # it declined
    "limit",  # turns, seconds, a full window, or repetition
    "budget",  # dollars or tokens
    "tool_failed",  # a tool with on_error="stop_turn" raised
    "invalid_output",  # no output of the requested type
    "hook",  # a hook or a callback ended it
    "interrupted",
]


class Usage(msgspec.Struct, frozen=True):
    """The tokens of a run, of its subagents too."""

    input_tokens: int = 0
    """Prompt tokens at the full price."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """Tokens of replies, thinking among them."""

    @property
    def total_tokens(self) -> int:
        """All tokens together."""
        prompt = self.input_tokens + self.cache_read_tokens + self.cache_write_tokens
        return prompt + self.output_tokens


class Denial(msgspec.Struct, frozen=True):
    """A tool call that was not permitted."""

    tool: str
    reason: str


class ToolFailure(msgspec.Struct, frozen=True):
    """An exception of a function tool. The model was told of it."""

    tool: str
    exception: Exception


class Result(msgspec.Struct, Generic[OutputT], frozen=True):
    """The result of a run."""

    text: str
    """The model's last words."""
    output: OutputT
    """The structured output; None if none was asked for, or none came."""
    why: WhyEnded
    session_id: str
    error: RunError | None = None
    """The reason why there is no answer; None if there is one."""
    usage: Usage = Usage()
    cost: float = 0.0
    """US dollars, where the prices of the model are known; of subagents too."""
    turns: int = 0
    """The replies of the model."""
    denials: tuple[Denial, ...] = ()
    tool_failures: tuple[ToolFailure, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the model finished, with the requested output."""
        return self.error is None

    def raise_for_error(self) -> Self:
        """Return this result; raises its error if there is one."""
        if self.error is not None:
            raise self.error
        return self


class RunFailures(msgspec.Struct):
    """What went wrong in a run that the log does not tell: exceptions, and a missing output."""

    tools: list[ToolFailure] = []
    fatal: ToolFailure | None = None
    """The failure that ended the turn."""
    is_output_missing: bool = False


def build_run_result(
    tally: TurnTally,
    failures: RunFailures,
    *,
    session_id: str,
    output: Any = None,
) -> Result[Any]:
    """Build the result of a run from what its turns came to."""
    error = find_error(tally, failures)
    result = Result[Any](
        text=tally.text,
        output=output,
        why="finished" if error is None else WHY_BY_ERROR[type(error)],
        session_id=session_id,
        error=error,
        usage=sum_public_usage(used for _, used, _ in tally.by_model.values()),
        cost=tally.dollars,
        turns=tally.turns,
        denials=tuple(Denial(tool, because) for tool, because in tally.denied),
        tool_failures=tuple(failures.tools),
    )
    if error is not None:
        error.result = result
    return result


WHY_BY_ERROR: Mapping[type[RunError], WhyEnded] = {
    ApiError: "api_error",
    RefusalError: "refused",
    LimitError: "limit",
    BudgetError: "budget",
    ToolFailedError: "tool_failed",
    OutputError: "invalid_output",
    HookStoppedError: "hook",
    InterruptedRunError: "interrupted",
}
ERROR_BY_WHY = {why: kind for kind, why in WHY_BY_ERROR.items()}
SPENDING_LIMITS = ("dollars", "tokens")
FULL_WINDOW_FAILURES = ("compaction", "overflow")
"""Failures of a request for which there is no room."""


def find_error(tally: TurnTally, failures: RunFailures) -> RunError | None:
    """Return the error that a run ended with; None if the model has answered."""
    repeats = tally.ended.why == "failed" and tally.failure is None
    if fatal := failures.fatal:
        failed = ToolFailedError(f"{fatal.tool} failed: {fatal.exception}", tool=fatal.tool)
        failed.__cause__ = fatal.exception
        return failed
    if failures.is_output_missing and (repeats or tally.ended.why in ("end", "hook")):
        return OutputError("the model gave no output of the requested type")
    why = tally.failure_text
    match tally.ended:
        case Ended(why="end"):
            return None
        case Ended(why="refusal"):
            return RefusalError(tally.text or "the model declined to answer")
        case Ended(why="turns" | "budget", limit=limit):
            kind = BudgetError if limit in SPENDING_LIMITS else LimitError
            return kind(why, limit=limit)
        case Ended(why="hook"):
            return HookStoppedError(why)
        case Ended(why="failed"):
            return _find_request_error(tally, why)
        case _:
            return InterruptedRunError(why)


def _find_request_error(tally: TurnTally, why: str) -> RunError:
    """Return the error of a turn whose last request failed, or was not sent at all."""
    failure = tally.failure
    if failure is None:
        return LimitError(why, limit="repetition")
    if failure.kind in FULL_WINDOW_FAILURES:
        return LimitError(why, limit="context")
    passing = tally.api_error_name in PASSING_ERRORS
    return ApiError(why, kind=failure.kind, status=failure.status, is_retryable=passing)


def sum_public_usage(usages: Iterable[models.Usage]) -> Usage:
    """Add up the tokens of a run's models."""
    whole = models.Usage()
    for used in usages:
        whole += used
    return Usage(whole.input, whole.read, whole.write + whole.write_1h, whole.output)
