"""Sharing compaction summaries between sessions: the same question on the same conversation.

A fork of a session, a resumed copy or a sibling may come to the same point as another one. The
model's text is stored by the digest of everything it was asked about, so it holds for any session
that finds it. Only the text is shared: everything else of a compaction is built again. Agents that
come to the same point at the same time wait for the first of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path

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
from travois.sessions import blobs

SHARED_PURPOSES = frozenset(("summary", "draft"))
"""The kinds of requests whose answer another session can use."""
MAX_NEWER_SHARE = 0.5
"""The share of what stays word for word that may have come after what was summarised."""

MAX_SIBLING_WAIT_SECONDS = 120.0
"""The longest wait, in seconds, for another agent that asks the same."""


@asynccontextmanager
async def ask_summary_once(agent: Agent, view: View, *, what: str) -> AsyncGenerator[Reply | None]:
    """Yield a shared summary if there is one; if not, let others wait until the block is left.

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
    """Return the shared summary of this conversation, or of nearly all of it; None if none."""
    if agent.context.open_summaries is None or what not in SHARED_PURPOSES:
        return None
    known = agent.context.open_summaries()
    most = scaled_layers(agent).tail * MAX_NEWER_SHARE
    for key in _summary_keys(view, most=most):
        if text := known.get(key):
            return Reply((Text(text),), stop="end", usage=Usage())
    return None


def store_shared_summary(agent: Agent, view: View, reply: Reply, *, what: str) -> None:
    """Store a compaction summary for other sessions that come to the same point."""
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
    """Yield shared summary keys: digests of the whole conversation, then of shorter ones."""
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
    """Return a digest of the conversation after each item, as keys of shared summaries."""
    assert view.epoch is not None
    head = (view.epoch.model.name, view.epoch.system, view.epoch.tools)
    links = [blake2b(msgspec.json.encode(head), digest_size=20).digest()]
    for item in items:
        links.append(blake2b(links[-1] + _encode_item(item), digest_size=20).digest())
    return links


def _encode_item(item: ViewItem) -> bytes:
    """Encode an item's content and sender for a shared summary's key, without cost or time."""
    fact = item.fact
    who = fact.origin if isinstance(fact, User) else type(fact).__name__
    call = (fact.call, fact.error) if isinstance(fact, Result) else ()
    return msgspec.json.encode((who, call, fact.content))


MAX_STORED_SUMMARIES = 200
"""The most summaries that are kept; the oldest go first."""
MAX_SUMMARY_BYTES = 200_000
"""A file of more bytes is none of ours."""


class SummaryFolder:
    """A folder with one file for each summary, named by the digest of what it covers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._under_way: dict[str, anyio.Event] = {}

    @property
    def pending(self) -> dict[str, anyio.Event]:
        """The keys that a model is being asked for in this process, each set when that is over."""
        return self._under_way

    def get(self, key: str) -> str:
        """Return the summary of this key; empty if there is none."""
        path = self._folder / f"{key}.md"
        try:
            if path.is_symlink() or path.stat().st_size > MAX_SUMMARY_BYTES:
                return ""
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def put(self, key: str, text: str) -> None:
        """Store a summary; if that fails, it will be asked for again."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = text.encode(errors="replace")
            blobs.replace_file(self._folder / f"{key}.md", data, sync="whenever")
            kept = sorted(self._folder.glob("*.md"), key=lambda path: path.stat().st_mtime)
            for path in kept[:-MAX_STORED_SUMMARIES]:
                path.unlink(missing_ok=True)
