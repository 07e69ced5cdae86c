"""A world in which programs run on this machine, for tools that ask them."""

from __future__ import annotations

from typing import Any

import anyio

from tests.tools.world import World
from travois.engine.tool import AnyTool, Outcome
from travois.host.process import LocalProcesses
from travois.kernel.blocks import Text


class Local(World):
    """A world with processes that live as long as one call."""

    def run(self, tool: AnyTool, call_id: str = "t1", **args: Any) -> Outcome:
        async def main() -> Outcome:
            self.processes = LocalProcesses()
            try:
                return await self.call(tool, call_id, **args)
            finally:
                await self.processes.aclose()

        return anyio.run(main)

    def say(self, tool: AnyTool, **args: Any) -> str:
        """What the model would be told."""
        return told(self.run(tool, **args))


def told(outcome: Outcome) -> str:
    (block,) = outcome.content
    assert isinstance(block, Text)
    return block.text
