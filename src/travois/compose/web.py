"""Web search and browser of a session, as the settings say."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec

from travois.compose import models
from travois.compose.options import Options
from travois.context.window import current_model
from travois.core.errors import UserError
from travois.core.models import ModelCard as Card
from travois.engine.agent import Agent, SmallModel, World
from travois.lazy_imports import lazy_imports
from travois.ports.tool import AnyTool
from travois.ports.world import ModelClient, SearchQuery, SearchResults
from travois.providers.catalog import Catalog
from travois.sessions.session import Session
from travois.settings.schema import LoadedSettings
from travois.tools.web.search import WebSearchModel, search_with_model

with lazy_imports():
    from travois.providers import search_endpoint
    from travois.tools.web import browser, chromium


SearchWeb = Callable[[Agent, SearchQuery], Awaitable[SearchResults]]


def is_search_offered(loaded: LoadedSettings, card: Card) -> bool:
    """Return whether the model gets a web search tool."""
    use = loaded.settings.web_search.use
    known = models.model_catalog(loaded).providers.get(card.provider)
    return use == "endpoint" or (use == "provider" and known is not None and bool(known.search))


def compose_web_search(
    loaded: LoadedSettings, *, serve: Callable[[Card], ModelClient]
) -> SearchWeb | None:
    """Compose the web search; None if it is off. Raises `UserError` for invalid settings."""
    asked = loaded.settings.web_search
    if asked.use == "endpoint":
        desk = search_endpoint.EndpointSearch(
            search_endpoint.resolve_search_endpoint(asked.kind, msgspec.structs.asdict(asked)),
            os.environ,
        )
        return lambda agent, wanted: desk.search(wanted)
    if asked.use == "provider":
        among = models.model_catalog(loaded)
        return lambda agent, wanted: _search_with_provider(agent, wanted, serve, among)
    return None


def search_notices(loaded: LoadedSettings, card: Card) -> tuple[str, ...]:
    """Return a notice if the provider should search the web and cannot."""
    if loaded.settings.web_search.use != "provider" or is_search_offered(loaded, card):
        return ()
    return (f"webSearch.use is provider, but the provider of {card.name} has no web search",)


async def _search_with_provider(
    agent: Agent, query: SearchQuery, serve: Callable[[Card], ModelClient], among: Catalog
) -> SearchResults:
    """Search the web through the current model's provider, with its cheapest model."""
    card = current_model(agent)
    known = among.providers.get(card.provider)
    if known is None or not known.search:
        raise OSError(f"the provider of {card.name} has no web search")
    small = models.find_small_model(card, serve, among=among) or SmallModel(card, agent.model)
    return await search_with_model(
        agent, query, WebSearchModel(small, known.search, known.search_price)
    )


# The browser of a session, where the user wants one.


def compose_browser(
    loaded: LoadedSettings,
    options: Options,
    stack: AsyncExitStack,
    *,
    session: Session,
    world: World,
) -> tuple[tuple[AnyTool, ...], tuple[str, ...]]:
    """Compose the browser tool, and notices; the browser starts on first use."""
    asked = loaded.settings.browser
    if not asked.enabled or (options.tools is not None and "Browser" not in options.tools):
        return (), ()
    try:
        path = chromium.find_browser(asked.path)
        window = chromium.Chromium(
            path, visible=asked.visible, session=world.processes.session_socket
        )
    except UserError as fault:
        return (), (f"{fault.what}. {fault.fix}",)
    stack.push_async_callback(window.aclose)
    tool = browser.create_browser_tool(window, images=lambda: _accepts_images(session))
    return (tool,), (chromium.ROOT_WARNING,) if os.geteuid() == 0 else ()


def _accepts_images(session: Session) -> bool:
    epoch = session.view.epoch
    return epoch is None or epoch.model.images
