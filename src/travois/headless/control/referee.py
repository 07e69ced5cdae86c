"""A tool of a server that decides about calls in the place of a person."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from travois.core.content import Call, words
from travois.engine.tool_calls import Unfit, carry_out, understand
from travois.headless.control.messages import Declined
from travois.headless.json_shapes import Object
from travois.ports.agent import Agent


class Referee:
    """Puts every question to one tool and takes what it says as the answer."""

    def __init__(self, tool: str, agent: Callable[[], Agent]) -> None:
        self._tool = tool
        self._agent = agent

    async def ask(self, body: Object) -> msgspec.Raw:
        """The tool's answer; raises `Declined`."""
        told: Object = {name: body[name] for name in ("tool_name", "input", "tool_use_id")}
        call = Call(f"{body['tool_use_id']}_leave", self._tool, msgspec.json.encode(told).decode())
        ready = understand(self._agent(), call)
        if isinstance(ready, Unfit):
            why = ready.why.partition(". The tools")[0]
            raise Declined(f"{self._tool}, which is to decide, cannot be asked: {why}")
        outcome = await carry_out(self._agent(), ready, None)
        if outcome.error:
            raise Declined(f"{self._tool}, which is to decide, failed: {words(outcome.content)}")
        return msgspec.Raw(words(outcome.content).encode())
