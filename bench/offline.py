"""How many simple requests the embedded default does right: each tier alone, and all together.

`python -m bench offline`. A request is right if the call is one of those that the corpus names, one
that is beyond it if nothing is called (`tests/corpus/asked.py`). SmolLM2 takes some minutes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

import anyio
from tests.corpus.asked import counted, judged, requests

from travois.core.content import Text
from travois.engine.tool_definitions import build_tool_specs
from travois.local_model import model
from travois.local_model.llamacpp import LlamaServer, llamacpp_missing_reason
from travois.local_model.model import HELP_TEXT, LocalRequest, SmolLm, SmolLmModel
from travois.local_model.router import ExampleIndex, RoutedCall
from travois.providers.http.client import DirectTransport
from travois.search.embedder import NoEmbedder, StaticEmbedder, find_embedder
from travois.tools.catalog import TOOLS

SETS = ("tuned", "held_out", "beyond")
SCHEMAS = {spec.name: json.loads(spec.schema) for spec in build_tool_specs(TOOLS)}
Answering = Callable[[LocalRequest], Awaitable[RoutedCall | None]]


async def measured(what: str, answer: Answering) -> None:
    """One line of figures."""
    figures: list[str] = []
    began, count = perf_counter(), 0
    for name in SETS:
        asked = requests(name)
        found = [judged(one, await answer(LocalRequest(one.text, SCHEMAS, ()))) for one in asked]
        sums = counted(found)
        figures.append(f"{name} {sums['right']}/{len(asked)} right, {sums['wrong']} wrong")
        count += len(asked)
    each = (perf_counter() - began) * 1000 / count
    print(f"  {what:32}{'; '.join(figures)}; {each:.0f} ms each", flush=True)


async def whole(guided: SmolLmModel, asked: LocalRequest) -> RoutedCall | None:
    """What comes of a request."""
    said = await guided.answer(asked)
    if isinstance(said, Text):
        return None if said.text.startswith(HELP_TEXT) else RoutedCall("", {}, 1.0, said.text)
    return RoutedCall(said.name, json.loads(said.args), 1.0)


async def _main() -> None:
    folder = Path(mkdtemp())
    minilm, file = (
        find_embedder(folder / "minilm"),
        llamacpp_missing_reason() or model.find_smollm_weights(folder / "smollm2"),
    )
    table = ExampleIndex(StaticEmbedder())
    await measured(
        "tier 0: examples, small table", partial(whole, SmolLmModel(lambda: table, None))
    )
    if not isinstance(minilm, NoEmbedder):
        near = ExampleIndex(minilm)
        await measured(
            "the same by MiniLM (tier 1)", partial(whole, SmolLmModel(lambda: near, None))
        )
    if not isinstance(file, Path):
        print(f"  no tier 2: {file}")
        return
    async with AsyncExitStack() as stack:
        engine = LlamaServer(file, window=8_192)
        stack.push_async_callback(engine.aclose)
        mind = SmolLm(engine, DirectTransport())
        guided = SmolLmModel(lambda: table, mind)
        await measured("tier 2 alone: SmolLM2", lambda asked: guided._ask_smollm(asked, mind))
        await measured("tiers 0 and 2 together", partial(whole, guided))


def main() -> None:
    anyio.run(_main)
