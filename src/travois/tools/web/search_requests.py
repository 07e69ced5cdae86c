"""Web search through a model provider.

The provider searches in a request of its own, beside the conversation. So the conversation's head
stays as it is, every call is judged like any other, and what was found is shown as a result.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.core.content import Opaque, Text
from travois.core.facts import AnyFact, Assistant, Entry, Epoch, User
from travois.core.view import project_view
from travois.engine.agent import Agent, SmallModel
from travois.engine.budget import BudgetExhausted
from travois.engine.fork import send_side_request
from travois.ports.web_search import SearchQuery, SearchResults
from travois.providers.replies import ApiError, Reply
from travois.providers.web_search import SearchHit, encode_web_search_tool, merge_hits

SEARCH_PROMPT_FILE = Path(__file__).parent / "prompts" / "search.md"
MAX_SEARCH_PAUSES = 5
"""Maximum pauses of a provider before its answer."""


class WebSearchModel(msgspec.Struct, frozen=True):
    """A model that can be asked to search, by what its provider calls the tool for it."""

    small: SmallModel
    tool: str
    price: float = 0.0
    """US dollars for a thousand searches."""


async def search_with_model(agent: Agent, wanted: SearchQuery, by: WebSearchModel) -> SearchResults:
    """Search the web through the model's provider; the request is logged apart."""
    card = by.small.card
    params = encode_web_search_tool(card.protocol, by.tool, only=wanted.only, never=wanted.never)
    price = replace(card.price, search=by.price)
    head = Epoch(
        replace(card, params=params, price=price, effort=""),
        SEARCH_PROMPT_FILE.read_text("utf-8").strip(),
    )
    facts: list[AnyFact] = [head, User((Text(_query_with_limits(wanted)),))]
    said, hits = "", tuple[SearchHit, ...]()
    for _ in range(MAX_SEARCH_PAUSES):
        view = project_view(
            [Entry(n, agent.runtime.clock(), fact) for n, fact in enumerate(facts, 1)]
        )
        try:
            reply = await send_side_request(
                replace(agent, model=by.small.model), view, what="search"
            )
        except (ApiError, BudgetExhausted) as problem:
            raise OSError(f"{card.name} could not search the web: {problem}") from None
        said, hits = f"{said}\n{_reply_words(reply)}".strip(), merge_hits((*hits, *reply.hits))
        if reply.stop != "pause" or not reply.content:
            return SearchResults(hits, said)
        facts.append(Assistant(reply.content, reply.stop))
    raise OSError(f"{card.name} kept pausing its web search")


def _query_with_limits(wanted: SearchQuery) -> str:
    """Add the allowed and blocked sites to a web search query, in words for the model."""
    only = f"\nOnly pages of: {', '.join(wanted.only)}" if wanted.only else ""
    never = f"\nNo pages of: {', '.join(wanted.never)}" if wanted.never else ""
    return f"{wanted.query}{only}{never}"


def _reply_words(reply: Reply) -> str:
    """Return all text of a web search reply, including cited text in the provider's blocks."""
    return "".join(
        block.text
        for block in reply.content
        if isinstance(block, Text) or (isinstance(block, Opaque) and block.kind == "text")
    )
