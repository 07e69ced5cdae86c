"""Sharing of summaries between sessions: the same question on the same conversation.

A fork of a session, a resumed copy or a sibling may come to the same point as another one. The
model's text is stored by the digest of everything it was asked about, so it holds for any session
that finds it. Only the text is shared: everything else of a compaction is built again. Agents that
come to the same point at the same time wait for the first of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b

import anyio
import msgspec

from travois.context.window import scaled_layers
from travois.core.content import Text, extract_text
from travois.core.facts import Result, User
from travois.core.models import Usage
from travois.core.tokens import fact_tokens
from travois.core.view import View, ViewItem
from travois.engine.agent import Agent, SharedSummaries
from travois.providers.replies import Reply

SHARED_PURPOSES = frozenset(("summary", "draft"))
"""The kinds of requests whose answer another session can use."""
MAX_NEWER_SHARE = 0.5
"""The share of what stays word for word that may have come after what was summarised."""

MAX_SIBLING_WAIT_SECONDS = 120.0
"""The longest wait, in seconds, for another agent that asks the same."""


@asynccontextmanager
async def ask_summary_once(agent: Agent, view: View, *, what: str) -> AsyncGenerator[Reply | None]:
    """Yield the known summary; if there is none, let others wait until the block is left.

    An agent that asks the same in this process is waited for. If that brings nothing, the next one
    asks.
    """
    if agent.context.open_summaries is None or what not in SHARED_PURPOSES:
        yield None
        return
    known, key = agent.context.open_summaries(), next(_summary_keys(view, most=0))
    await _wait_for_others(known, key)
    if reply := find_shared_summary(agent, view, what=what):
        yield reply
        return
    over = anyio.Event()
    mine = known.pending.setdefault(key, over) is over  # not if we no longer wait for another
    try:
        yield None
    finally:
        over.set()
        if mine:
            del known.pending[key]


async def _wait_for_others(known: SharedSummaries, key: str) -> None:
    """Wait a limited time while another session asks for the same summary."""
    with anyio.move_on_after(MAX_SIBLING_WAIT_SECONDS):
        while (asked := known.pending.get(key)) is not None:
            await asked.wait()


def find_shared_summary(agent: Agent, view: View, *, what: str) -> Reply | None:
    """Return the stored summary of this conversation, or of nearly all of it."""
    if agent.context.open_summaries is None or what not in SHARED_PURPOSES:
        return None
    known = agent.context.open_summaries()
    most = scaled_layers(agent).tail * MAX_NEWER_SHARE
    for key in _summary_keys(view, most=most):
        if text := known.get(key):
            return Reply((Text(text),), stop="end", usage=Usage())
    return None


def store_shared_summary(agent: Agent, view: View, reply: Reply, *, what: str) -> None:
    """Store a complete summary for sessions that come to the same point."""
    text = extract_text(reply.content).strip()
    if (
        agent.context.open_summaries is None
        or what not in SHARED_PURPOSES
        or reply.stop != "end"
        or not text
    ):
        return
    key = next(_summary_keys(view, most=0))
    agent.context.open_summaries().put(key, agent.session.secrets.redact(text))


def _summary_keys(view: View, *, most: float) -> Iterator[str]:
    """Yield the digests of a question on the whole conversation, then on slightly shorter ones."""
    *items, asked = view.items
    links = _digest_prefixes(view, items)
    question = _encode_item(asked)
    newer, index = 0, len(items)
    yield blake2b(links[index] + question, digest_size=20).hexdigest()
    while index > 1:
        index -= 1
        newer += fact_tokens(items[index].fact)
        if newer > most:
            return
        yield blake2b(links[index] + question, digest_size=20).hexdigest()


def _digest_prefixes(view: View, items: Sequence[ViewItem]) -> list[bytes]:
    """Return, for each number of items, the digest of the head and of those items."""
    assert view.epoch is not None
    head = (view.epoch.model.name, view.epoch.system, view.epoch.tools)
    links = [blake2b(msgspec.json.encode(head), digest_size=20).digest()]
    for item in items:
        links.append(blake2b(links[-1] + _encode_item(item), digest_size=20).digest())
    return links


def _encode_item(item: ViewItem) -> bytes:
    """Encode the content and the sender of an item, without its cost or time."""
    fact = item.fact
    who = fact.origin if isinstance(fact, User) else type(fact).__name__
    call = (fact.call, fact.error) if isinstance(fact, Result) else ()
    return msgspec.json.encode((who, call, fact.content))
