"""Recall: finding again what was set aside when the window grew too small."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from travois.permissions.access import Access
from travois.ports.tool import Here, Outcome, Refusal, Tool, said
from travois.ports.world import Env

MOST = 20
"""How many lines are shown at most."""
WIDE = 300
MANY = 5_000
LARGE = 1 << 20


class RecallArgs(msgspec.Struct, frozen=True):
    """What to look for in the parts of this conversation that were set aside."""

    query: Annotated[str, msgspec.Meta(description="words or names, as they were written")]


class Hit(msgspec.Struct, frozen=True):
    """A line that holds some of the words."""

    words: int
    path: str
    number: int
    text: str


async def _recall(args: RecallArgs, env: Env, call: str) -> Outcome:
    wanted = {word for word in re.findall(r"[\w./#-]+", args.query.casefold()) if len(word) > 1}
    if not wanted:
        raise Refusal("The query holds no words. Give names or words as they were written.")
    if not env.kept or await env.files.stat(env.kept) is None:
        return said("Nothing was set aside in this session: all of it is in front of you.")
    hits = [hit for path in await _files(env) for hit in await _hits(path, wanted, env)]
    if not hits:
        return said(f"Nothing that was set aside holds {args.query!r}.")
    best = sorted(hits, key=lambda hit: -hit.words)[:MOST]
    more = f"\n({len(hits) - MOST} more lines hold some of it.)" if len(hits) > MOST else ""
    return said(
        "\n".join(_shown(best)) + more + "\nRead a file at that line for what is around it."
    )


async def _files(env: Env) -> list[str]:
    """What was set aside, the newest first."""
    names = await env.files.names(env.kept, limit=MANY)
    paths = [os.path.join(env.kept, name) for name in names if not name.endswith("/")]
    stats = [(await env.files.stat(path), path) for path in paths]
    return [p for s, p in sorted(stats, key=lambda one: -(one[0].modified if one[0] else 0)) if s]


async def _hits(path: str, wanted: set[str], env: Env) -> Iterable[Hit]:
    text = (await env.files.read(path, limit=LARGE)).decode(errors="replace")
    lines = enumerate(text.split("\n"), 1)
    counted = ((sum(w in line.casefold() for w in wanted), n, line) for n, line in lines)
    return [Hit(count, path, number, line) for count, number, line in counted if count]


def _shown(hits: Iterable[Hit]) -> Iterable[str]:
    for hit in hits:
        cut = hit.text if len(hit.text) <= WIDE else f"{hit.text[:WIDE]} …"
        yield f"{hit.path}:{hit.number}: {cut}"


def _nothing(args: RecallArgs, here: Here) -> tuple[Access, ...]:
    return ()


RECALL = Tool(
    name="Recall",
    description="Search parts of this conversation that were set aside (old messages, results).",
    args=RecallArgs,
    access=_nothing,
    run=_recall,
    summary=lambda args: f"Recall {args.query}",
)
