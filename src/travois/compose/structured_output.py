"""Structured output: a tool that takes the final answer, and hooks that demand it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from travois.compat.claude_json import Json
from travois.core.content import Call, extract_calls
from travois.core.errors import UserError
from travois.core.facts import Assistant, Entry, Result
from travois.core.json import as_object
from travois.hooks.config import Listener
from travois.ports.tool import AnyTool, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.json_schema import find_schema_flaws

STRUCTURED_OUTPUT_TOOL = "StructuredOutput"
MAX_ANSWER_ATTEMPTS = 5
"""Attempts before the turn fails."""
ANSWER_MISSING = f"The answer is still missing. Call {STRUCTURED_OUTPUT_TOOL} once to deliver it."
NO_VALID_ANSWER = f"no valid answer came after {MAX_ANSWER_ATTEMPTS} attempts"


def _accept(value: Json) -> str:
    return ""


class StructuredAnswer:
    """The required answer of each turn, and the answer so far."""

    def __init__(self, schema: dict[str, Any], *, check: Callable[[Json], str] = _accept) -> None:
        """Require an answer that fits the schema and for which `check` returns no complaint."""
        self._schema = schema
        self._check = check
        self._wrapped = self._schema.get("type", "object") != "object"
        self._tries = 0
        self.value: Json = None
        self.given = False

    def begin_turn(self) -> None:
        """Start another turn without an answer."""
        self._tries, self.value, self.given = 0, None, False

    def recall_answer(self, entries: Iterable[Entry]) -> None:
        """Take the answer that was given in these entries of a log."""
        calls: dict[str, Call] = {}
        for fact in (entry.fact for entry in entries):
            if isinstance(fact, Assistant):
                calls |= {one.id: one for one in extract_calls(fact.content)}
            elif isinstance(fact, Result) and not fact.error and fact.call in calls:
                call = calls[fact.call]
                if call.name == STRUCTURED_OUTPUT_TOOL:
                    args = as_object(msgspec.json.decode(call.args))
                    self.value, self.given = args.get("value") if self._wrapped else args, True

    @property
    def is_exhausted(self) -> bool:
        """True if the model has used up its attempts."""
        return not self.given and self._tries > MAX_ANSWER_ATTEMPTS

    @property
    def tool(self) -> AnyTool:
        """The tool that takes the answer."""
        wrapped = {"type": "object", "properties": {"value": self._schema}, "required": ["value"]}
        return Tool[Any](
            name=STRUCTURED_OUTPUT_TOOL,
            description="Deliver the final answer in this form, once, when the task is done.",
            args=dict[str, Any],
            access=lambda args, here: (),
            run=self._take_answer,
            summary=lambda args: "The answer",
            schema=msgspec.json.encode(wrapped if self._wrapped else self._schema).decode(),
        )

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Hooks that send the model back until it has answered."""
        return (
            Listener("Stop", self._demand_answer),
            Listener("PostToolUseFailure", self._on_tool_failure, matcher=STRUCTURED_OUTPUT_TOOL),
        )

    async def _take_answer(self, args: dict[str, Any], env: Env, call: str) -> ToolOutcome:
        value: Any = args.get("value") if self._wrapped else args
        wrong = "; ".join(find_schema_flaws(value, self._schema)) or self._check(value)
        if wrong:
            raise ToolError(
                f"The answer does not match the schema: {wrong}. Fix it and call again."
            )
        self.value, self.given = value, True
        return text_outcome("Accepted. Say in a few words that you are done.")

    async def _demand_answer(self, told: dict[str, Any]) -> object:
        return None if self.given else self._send_back("block")

    async def _on_tool_failure(self, told: dict[str, Any]) -> object:
        return self._send_back(None)

    def count_miss(self) -> None:
        """Count an attempt that brought no valid answer."""
        self._tries += 1

    def _send_back(self, decision: str | None) -> object:
        self.count_miss()
        if self.is_exhausted:
            return {"continue": False, "stopReason": NO_VALID_ANSWER}
        return {"decision": decision, "reason": ANSWER_MISSING} if decision else None


def parse_answer_schema(text: str) -> dict[str, Any]:
    """Parse the schema of `--json-schema`; raise `UserError` if it is invalid."""
    try:
        schema: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UserError("--json-schema is not JSON", why=str(error)) from None
    if not as_object(schema):
        raise UserError(
            "--json-schema is not a JSON schema", fix='For example: {"type": "object", …}'
        )
    return as_object(schema)
