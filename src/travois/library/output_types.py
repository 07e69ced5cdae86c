"""Structured output: the type that a run is to return, and the tool that takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from travois.compat.claude_json import Json
from travois.compose.structured_output import StructuredAnswer
from travois.context.switch_model import switch_to_model
from travois.core.errors import UserError
from travois.engine.agent import Agent
from travois.engine.tool_definitions import build_tool_specs
from travois.extensions.function_schema import convert_value, describe_type, is_self_describing
from travois.ports.tool import AnyTool, ToolError, ToolOutcome
from travois.ports.world import Env


class RequiredOutput:
    """The output that one run must bring, and what came of it."""

    def __init__(self, wanted: object, *, on_exhausted: Callable[[], None]) -> None:
        """Require a type, or what a JSON schema says; `on_exhausted` ends the turn."""
        self._shape = wanted
        self._on_exhausted = on_exhausted
        is_schema = isinstance(wanted, Mapping)
        if is_schema and not wanted:
            raise UserError("An empty mapping is not a JSON schema", fix="Name a type or a schema.")
        schema = dict(cast("Mapping[str, Any]", wanted)) if is_schema else describe_type(wanted)
        self._is_schema = is_schema
        self.answer = StructuredAnswer(schema, check=self._find_mismatch)

    @property
    def value(self) -> Any:
        """The output as the requested type; None if none came."""
        return self._convert_answer(self.answer.value) if self.answer.given else None

    @property
    def is_missing(self) -> bool:
        """True if no valid output has come."""
        return not self.answer.given

    def count_missing_output(self) -> bool:
        """Count a turn that ended without output; return whether there is another attempt."""
        self.answer.count_miss()
        return not self.answer.is_exhausted

    def install_tool(self, agent: Agent) -> None:
        """Add the tool that takes the output to an agent; its request head changes if it must."""
        own = replace(self.answer.tool, run=self._take_typed_output)
        agent.use_tools(replace(agent.tools, by_name={**agent.tools.by_name, own.name: own}))
        head = agent.session.view.epoch
        assert head is not None
        others = (spec for spec in head.tools if spec.name != own.name)
        tools = tuple(sorted((*others, *build_tool_specs((own,))), key=lambda spec: spec.name))
        if tools != head.tools:
            switch_to_model(agent, replace(head, tools=tools, why="asked for", unbind=False))

    async def _take_typed_output(self, args: dict[str, Any], env: Env, call: str) -> ToolOutcome:
        try:
            return await self._own_tool.run(args, env, call)
        except ToolError:
            if not self.count_missing_output():
                self._on_exhausted()
            raise

    @property
    def _own_tool(self) -> AnyTool:
        return self.answer.tool

    def _convert_answer(self, value: Json) -> Any:
        if self._is_schema:
            return value
        if is_self_describing(self._shape):
            return cast("Any", self._shape).model_validate(value)
        return convert_value(value, self._shape)

    def _find_mismatch(self, value: Json) -> str:
        """Return why a value is not of the requested type; empty if it is."""
        try:
            self._convert_answer(value)
        except (ValueError, RecursionError) as error:
            return str(error)
        return ""
