"""Where our questions to the host are paired with its answers."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from travois.headless.control.lines import Response
from travois.headless.json_shapes import Json, Object
from travois.ports.tool import Refusal

GONE = "the program that drives this session is gone"


class Declined(Refusal):
    """The host did not do what it was asked; the words say why."""


class Waiting:
    """A question that is not answered yet."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.answer: msgspec.Raw | None = None
        self.why = GONE


class Desk:
    """Asks the host. A question that is given up is taken back; one to nobody is declined."""

    def __init__(self, say: Callable[[Object], None]) -> None:
        self._say = say
        self._waiting: dict[str, Waiting] = {}
        self._count = 0
        self._open = True

    async def ask(self, subtype: str, body: Object) -> msgspec.Raw:
        """The host's answer; raises `Declined`."""
        if not self._open:
            raise Declined(GONE)
        id = self._next()
        waiting = self._waiting[id] = Waiting()
        try:
            self._send(id, subtype, body)
            await waiting.over.wait()
        except anyio.get_cancelled_exc_class():
            self._say({"type": "control_cancel_request", "request_id": id})
            raise
        finally:
            del self._waiting[id]
        if waiting.answer is None:
            raise Declined(waiting.why)
        return waiting.answer

    def tell(self, subtype: str, body: Object) -> None:
        """Send a request whose answer nobody waits for."""
        self._send(self._next(), subtype, body)

    def _next(self) -> str:
        self._count += 1
        return f"travois_{self._count}"

    def _send(self, id: str, subtype: str, body: Object) -> None:
        request: dict[str, Json] = {"subtype": subtype, **body}
        self._say({"type": "control_request", "request_id": id, "request": request})

    def answered(self, response: Response) -> None:
        """Hand an answer to whoever waits for it; an answer to nothing is ignored."""
        waiting = self._waiting.get(response.request_id)
        if waiting is None:
            return
        if response.subtype == "error":
            waiting.why = response.error or "the program that drives this session failed"
        else:
            waiting.answer = response.response
        waiting.over.set()

    def close(self) -> None:
        """Nobody will answer any more."""
        self._open = False
        for waiting in self._waiting.values():
            waiting.over.set()
