"""How many simple requests the embedded default does right: each tier alone, and all together.

A request is right if the call is one of those that the corpus names, argument by argument; one that
is beyond it is right if nothing is called.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter
from typing import Any

import anyio

from travois.app.opening import specs
from travois.host.embedder.minilm import Absent, find
from travois.host.embedder.static import Static
from travois.host.http import Direct
from travois.host.local import weights
from travois.host.local.engine import Engine, missing
from travois.host.local.examples import Encoder, Nearest
from travois.host.local.guided import Asked, Guided
from travois.host.local.mind import Mind
from travois.host.local.router import Routed
from travois.kernel.blocks import Call, Text
from travois.tools.catalogue import TOOLS

CORPUS = Path(__file__).parent.parent / "tests" / "corpus" / "simple_requests"
SETS = ("tuned", "held_out", "beyond")
SCHEMAS = {spec.name: json.loads(spec.schema) for spec in specs(TOOLS)}
Row = dict[str, Any]
Answering = Callable[[Asked], Awaitable[Text | Call]]


def requests(name: str) -> list[Row]:
    """One part of the corpus."""
    return [json.loads(line) for line in (CORPUS / f"{name}.jsonl").read_text().splitlines()]


def right(row: Row, said: Text | Call) -> bool:
    """Whether this answer is one of those that are right."""
    if isinstance(said, Text):
        return "calls" not in row
    return {"tool": said.name, "input": json.loads(said.args)} in row.get("calls", [])


async def measured(what: str, answer: Answering, *, show: bool = False) -> None:
    """One line of figures."""
    figures, began, count = [], perf_counter(), 0
    for name in SETS:
        rows, good = requests(name), 0
        for row in rows:
            said = await answer(Asked(row["text"], SCHEMAS, ()))
            good += right(row, said)
            if show and not right(row, said):
                print(f"    {row['text']!r}: {said}")
        figures.append(f"{name} {good}/{len(rows)}")
        count += len(rows)
    each = (perf_counter() - began) * 1000 / count
    print(f"  {what:34}{', '.join(figures)}; {each:.0f} ms each", flush=True)


async def _alone(guided: Guided, mind: Mind, asked: Asked) -> Text | Call:
    found: Routed | None = await guided._thought(asked, mind)
    if found is None or not found.tool:
        return Text("")
    return Call("", found.tool, json.dumps(found.input))


async def _main() -> None:
    folder = Path(mkdtemp())
    minilm, file = find(folder / "minilm"), missing() or weights.find(folder / "smollm2")
    encoders: list[tuple[str, Encoder]] = [("0", Static())]
    if not isinstance(minilm, Absent):
        encoders.append(("0 + 1", minilm))
    async with AsyncExitStack() as stack:
        mind = None
        if isinstance(file, Path):
            engine = Engine(file, window=8_192)
            stack.push_async_callback(engine.aclose)
            mind = Mind(engine, Direct())
        for tiers, encoder in encoders:
            near = Nearest(encoder)
            near.find("", count=1)
            await measured(f"tier {tiers} (router)", Guided(lambda near=near: near, None).answer)
            if mind is None:
                continue
            guided = Guided(lambda near=near: near, mind)
            await measured(
                f"tier 2, examples by {tiers[-1]}", lambda asked, g=guided: _alone(g, mind, asked)
            )
            await measured(f"tier {tiers} + 2 (all)", guided.answer, show="+" in tiers)


def main() -> None:
    anyio.run(_main)
