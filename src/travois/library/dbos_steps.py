"""Durable execution: the runs of one session as steps of a DBOS workflow.

DBOS records what a step returned. A workflow that was cut off starts again from its beginning, and
the steps that had ended give what they gave then. A step that had not ended goes on with its
session: the log has what the model and the tools did until then.
"""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.extensions.function_schema import convert_value, encode_value, is_self_describing
from travois.lazy_imports import lazy_imports
from travois.library.options import Options
from travois.library.results import (
    ERROR_BY_WHY,
    ApiError,
    Denial,
    Result,
    Usage,
    WhyEnded,
)
from travois.library.session import Session

with lazy_imports():
    import dbos

STEP_NAME = "travois_run"
MAX_STEP_ATTEMPTS = 5
STEP_RETRY_SECONDS = 10.0


class RecordedResult(msgspec.Struct, frozen=True):
    """A result as DBOS records it."""

    text: str
    why: WhyEnded
    session_id: str
    error: str
    usage: Usage
    cost: float
    turns: int
    denials: tuple[Denial, ...]
    output: str
    """The output as JSON; empty for none."""


async def run_dbos_step(prompt: str, options: Options, *, output: Any = None) -> Result[Any]:
    """Run one prompt as a step of the DBOS workflow that calls this (extra `fleet`).

    All steps of a workflow are one session. A passing failure of the API is tried again.
    """
    try:
        flow = dbos.DBOS.workflow_id
    except ImportError:
        fix = "Install it: pip install 'travois[fleet]'"
        raise UserError("DBOS is not installed", fix=fix) from None
    if not flow:
        fix = "Call it from a function with @DBOS.workflow()."
        raise UserError("run_dbos_step was called outside a DBOS workflow", fix=fix)
    if not options.persist:
        raise UserError("A durable session needs its log", fix="Leave out persist=False.")
    own = replace(options, resume=str(uuid5(NAMESPACE_URL, f"dbos:{flow}")), create_missing=True)

    async def run_and_record() -> str:
        async with Session(own) as session:
            mark = f"dbos:{flow}:{dbos.DBOS.step_id}"
            result = await session.run_once(prompt, mark=mark, output=output)
        if isinstance(result.error, ApiError) and result.error.is_retryable:
            raise result.error
        return record_result(result)

    recorded = await dbos.DBOS.run_step_async(
        {
            "name": STEP_NAME,
            "retries_allowed": True,
            "max_attempts": MAX_STEP_ATTEMPTS,
            "interval_seconds": STEP_RETRY_SECONDS,
        },
        run_and_record,
    )
    return restore_result(recorded, output)


def record_result(result: Result[Any]) -> str:
    """Write a result as text that survives the process."""
    found = RecordedResult(
        result.text,
        result.why,
        result.session_id,
        result.error.message if result.error else "",
        result.usage,
        result.cost,
        result.turns,
        result.denials,
        "" if result.output is None else encode_json_output(result.output),
    )
    return msgspec.json.encode(found).decode()


def encode_json_output(output: object) -> str:
    """Encode an output as JSON, a text among them."""
    return msgspec.json.encode(output).decode() if isinstance(output, str) else encode_value(output)


def restore_result(text: str, output: Any) -> Result[Any]:
    """Read a recorded result, with its output as the requested type."""
    found = msgspec.json.decode(text, type=RecordedResult)
    value = msgspec.json.decode(found.output) if found.output else None
    if value is not None and isinstance(output, type):
        shape: Any = output
        own = is_self_describing(output)
        value = shape.model_validate(value) if own else convert_value(value, shape)
    kind = ERROR_BY_WHY.get(found.why)
    error = kind(found.error) if kind else None
    result = Result[Any](
        found.text,
        value,
        found.why,
        found.session_id,
        error,
        found.usage,
        found.cost,
        found.turns,
        found.denials,
    )
    if error is not None:
        error.result = result
    return result
