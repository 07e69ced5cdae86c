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
from travois.local_model.llamacpp import Engine, missing
from travois.local_model.model import HELP, Asked, Guided, Mind
from travois.local_model.router import Nearest, Routed
from travois.providers.http.client import Direct
from travois.search.embedder import Absent, Static, find
from travois.tools.catalog import TOOLS

SETS = ("tuned", "held_out", "beyond")
SCHEMAS = {spec.name: json.loads(spec.schema) for spec in build_tool_specs(TOOLS)}
Answering = Callable[[Asked], Awaitable[Routed | None]]


async def measured(what: str, answer: Answering) -> None:
    """One line of figures."""
    figures: list[str] = []
    began, count = perf_counter(), 0
    for name in SETS:
        asked = requests(name)
        found = [judged(one, await answer(Asked(one.text, SCHEMAS, ()))) for one in asked]
        sums = counted(found)
        figures.append(f"{name} {sums['right']}/{len(asked)} right, {sums['wrong']} wrong")
        count += len(asked)
    each = (perf_counter() - began) * 1000 / count
    print(f"  {what:32}{'; '.join(figures)}; {each:.0f} ms each", flush=True)


async def whole(guided: Guided, asked: Asked) -> Routed | None:
    """What comes of a request."""
    said = await guided.answer(asked)
    if isinstance(said, Text):
        return None if said.text.startswith(HELP) else Routed("", {}, 1.0, said.text)
    return Routed(said.name, json.loads(said.args), 1.0)


async def _main() -> None:
    folder = Path(mkdtemp())
    minilm, file = find(folder / "minilm"), missing() or model.find(folder / "smollm2")
    table = Nearest(Static())
    await measured("tier 0: examples, small table", partial(whole, Guided(lambda: table, None)))
    if not isinstance(minilm, Absent):
        near = Nearest(minilm)
        await measured("the same by MiniLM (tier 1)", partial(whole, Guided(lambda: near, None)))
    if not isinstance(file, Path):
        print(f"  no tier 2: {file}")
        return
    async with AsyncExitStack() as stack:
        engine = Engine(file, window=8_192)
        stack.push_async_callback(engine.aclose)
        mind = Mind(engine, Direct())
        guided = Guided(lambda: table, mind)
        await measured("tier 2 alone: SmolLM2", lambda asked: guided._thought(asked, mind))
        await measured("tiers 0 and 2 together", partial(whole, guided))


def main() -> None:
    anyio.run(_main)
