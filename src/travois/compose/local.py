"""Models that this machine runs itself, as a session has them."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from travois.core.models import Model as Card
from travois.ports.world import Model
from travois.providers.http.client import Direct, Timeouts
from travois.sessions import home as homes
from travois.settings.schema import Loaded

if TYPE_CHECKING:
    from travois.local_model.examples import Nearest
    from travois.local_model.llamacpp import Engine
    from travois.local_model.mind import Mind

PROVIDER, EMBEDDED = "local", "smollm2"
HERE = "this machine, in a process of its own"
PATIENCE = Timeouts(first_byte=600.0, idle=600.0)
"""A long prompt takes minutes to read here."""
SMALL = "a very small model on this machine answers (SmolLM2 135M)"
RULES = "examples and rules on this machine answer"
SAID = (
    "no key is set: {}: enough to see everything work offline, not a coder; "
    "add a real model: export ANTHROPIC_API_KEY=…, or run ollama "
    "(`travois demo` shows what that is like)"
)


class Local:
    """One process for each file of weights, started when first asked, ended with the session."""

    def __init__(self, loaded: Loaded, stack: AsyncExitStack) -> None:
        self._loaded = loaded
        self._engines: dict[tuple[Path, int], Engine] = {}
        self._travel = Direct(PATIENCE)
        stack.push_async_callback(self.aclose)

    def serve(self, card: Card) -> Model:
        """Whoever answers for a model of this machine."""
        from travois.local_model.llamacpp import LocalModel
        from travois.local_model.model import Guided

        if card.id != EMBEDDED:
            return LocalModel(card, self._engine(Path(card.id), card.window), self._travel)
        return Guided(near, self._mind(card.window))

    async def aclose(self) -> None:
        """Hang up, and end what was started."""
        await self._travel.aclose()
        for engine in self._engines.values():
            await engine.aclose()

    def _mind(self, window: int) -> Mind | None:
        from travois.local_model.mind import Mind

        weights = smollm2()
        if isinstance(weights, str):
            return None
        return Mind(self._engine(weights, window), self._travel)

    def _engine(self, path: Path, window: int) -> Engine:
        from travois.local_model.llamacpp import Engine

        if (path, window) not in self._engines:
            threads = max(1, self._loaded.settings.local.threads)
            self._engines[path, window] = Engine(path, window=window, threads=threads)
        return self._engines[path, window]


def smollm2() -> Path | str:
    """The weights of the embedded model, or why it cannot think here."""
    from travois.local_model.llamacpp import missing
    from travois.local_model.weights import find

    return missing() or find(_stamp("smollm2.json"))


def notice() -> str:
    """What the embedded default is, in one line."""
    weights = smollm2()
    return SAID.format(SMALL if isinstance(weights, Path) else RULES)


def near() -> Nearest:
    """The examples, by the table of meanings that comes with Travois: MiniLM takes 2 s to begin."""
    from travois.local_model.examples import Nearest
    from travois.search.static import Static

    return Nearest(Static())


def _stamp(name: str) -> Path:
    return homes.locate(os.environ).path / "memory" / name
