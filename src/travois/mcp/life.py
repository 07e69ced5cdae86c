"""The life of one server: started, lost, started again after a pause, left alone, and wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from travois.mcp.lenders import Server, State
from travois.mcp.oauth import Tokens
from travois.mcp.sdk import loaded

if TYPE_CHECKING:
    from mcp import Client

ATTEMPTS = 5
"""How often a server is started that does not stay; then it is left alone."""
STEADY = 60.0
"""After how many seconds a server counts as one that stays."""
PAUSE = 0.5
LOOK = 2.0
"""How often, in seconds, it is seen whether a person has logged in elsewhere."""
LOGIN = "travois mcp login"


class Life(ABC):
    """Whether a server can be asked, and what is done so that it can."""

    def __init__(self, server: Server, tokens: Tokens, *, mode: str) -> None:
        self.server = server
        self.on = True
        """Whether it may be used; the program that drives a session can switch it off."""
        self._tokens = tokens
        self._state: State = "starting"
        self._why = ""
        self._client: Client | None = None
        self._mode = mode
        """How it was spoken to when that worked."""
        self._resting = False
        """Whether it is left alone until somebody wants it."""
        self._wanted = anyio.Event()
        self._news = anyio.Event()
        self._ended = anyio.Event()
        self._complained = False

    @abstractmethod
    async def _attempt(self, mode: str) -> str:
        """Start it and stay with it until it ends; says why it did."""

    @abstractmethod
    def _complain(self, why: str) -> None:
        """Let the person know that it cannot be used."""

    @property
    def state(self) -> State:
        """Whether it can be asked."""
        return self._state if self.on else "failed"

    @property
    def why(self) -> str:
        """What went wrong last."""
        return self._why if self.on else "it is switched off"

    async def keep(self) -> None:
        """Keep it for a session: one that was left alone is tried again when it is wanted."""
        attempts = ATTEMPTS
        while True:
            await self.run(attempts)
            await self._wish()
            attempts = 1

    async def run(self, attempts: int = ATTEMPTS) -> None:
        """Keep it running; one that does not stay is left alone."""
        if why := await anyio.to_thread.run_sync(loaded):
            self._rest(why)
            return
        failures = ATTEMPTS - attempts
        while True:
            began = anyio.current_time()
            why = await self._attempt(self._mode or ("legacy" if failures % 2 else "auto"))
            lasted = self._client is not None and anyio.current_time() - began > STEADY
            self._client = None
            failures = 1 if lasted else failures + 1
            if _hopeless(why) or failures >= ATTEMPTS:
                self._rest(why)
                return
            self._become("failed", why)
            with anyio.move_on_after(PAUSE * 2**failures):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            self._become("starting", why)

    async def settled(self) -> None:
        """Wait until it has started, or has failed to."""
        while self._state == "starting":
            await self._news.wait()

    async def again(self) -> None:
        """Connect anew, whatever it does at the moment; afterwards `state` says how that went."""
        with anyio.move_on_after(self.server.start):
            if self._client is not None:
                self._ended.set()
                await self._news.wait()
            await self._up()

    def _become(self, state: State, why: str) -> None:
        self._state, self._why = state, why
        if state == "failed" and not self._complained:
            self._complain(why)
        self._complained = state == "failed" or (self._complained and state == "starting")
        news, self._news = self._news, anyio.Event()
        news.set()

    def _rest(self, why: str) -> None:
        self._resting = True
        self._become("failed", why)

    async def _wish(self) -> None:
        """Wait until somebody wants it, or a person has logged in."""
        granted = self._tokens.stamp
        while not self._wanted.is_set() and granted == self._tokens.stamp:
            with anyio.move_on_after(LOOK if LOGIN in self.why else float("inf")):
                await self._wanted.wait()
        self._resting, self._wanted = False, anyio.Event()
        self._become("starting", self.why)

    async def _up(self) -> None:
        """Wait until it can be asked, or is left alone; one that is left alone is tried again."""
        if self._client is None:
            self._resting = False
            self._wanted.set()
        while self._client is None and not self._resting:
            await self._news.wait()


def _hopeless(why: str) -> bool:
    """Whether to try again cannot help: nothing is there to be started, or a person must act."""
    return LOGIN in why or "no such program" in why
