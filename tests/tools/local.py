"""A world in which programs run on this machine, for tools that ask them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio

from tests.tools.world import World
from travois.core.content import Text
from travois.ports.tool import AnyTool, ToolError, ToolOutcome
from travois.process.local_processes import LocalProcesses

T = TypeVar("T")


class Local(World):
    """A world with processes that live as long as one call, or one row of calls."""

    def run(self, tool: AnyTool, call_id: str = "t1", **args: Any) -> ToolOutcome:
        return anyio.run(self._within, partial(self.call, tool, call_id, **args))

    def say(self, tool: AnyTool, **args: Any) -> str:
        """What the model would be told."""
        return told(self.run(tool, **args))

    def each(self, *calls: tuple[AnyTool, dict[str, Any]]) -> list[ToolOutcome | ToolError]:
        """What comes of these calls, one after the other."""

        async def main() -> list[ToolOutcome | ToolError]:
            return [await self._tried(tool, args) for tool, args in calls]

        return anyio.run(self._within, main)

    async def _tried(self, tool: AnyTool, args: dict[str, Any]) -> ToolOutcome | ToolError:
        try:
            return await self.call(tool, **args)
        except ToolError as refusal:
            return refusal

    async def _within(self, work: Callable[[], Awaitable[T]]) -> T:
        self.processes = LocalProcesses()
        try:
            return await work()
        finally:
            await self.processes.aclose()


def told(outcome: ToolOutcome) -> str:
    (block,) = outcome.content
    assert isinstance(block, Text)
    return block.text
