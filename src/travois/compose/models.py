"""Models of a session: which one answers, its fallbacks, and how each is reached."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from travois.compose.open_session import Workspace
from travois.context.layers import MCP_TOOLS, ContextLayers
from travois.core.errors import UserError
from travois.core.models import Effort, Price
from travois.core.models import ModelCard as Card
from travois.engine.agent import (
    ActivityNaming,
    AgentContext,
    AgentModels,
    RetryPolicy,
    SharedSummaries,
    SmallModel,
)
from travois.hooks.config import parse_hooks
from travois.lazy_imports import lazy_imports
from travois.permissions.secrets import collect_secrets
from travois.ports.world import ModelClient
from travois.providers import catalog
from travois.providers.catalog import Catalog, ModelPolicy
from travois.providers.client import HttpModel
from travois.providers.http.client import DirectTransport, Timeouts
from travois.providers.http.transport import create_transport
from travois.providers.rate_limits import RateLimiter
from travois.providers.request import EFFORT_LEVELS
from travois.sessions import home
from travois.sessions.session import Session
from travois.settings.schema import LoadedSettings, ModelSettings

if TYPE_CHECKING:
    from travois.local_model.llamacpp import LlamaServer

with lazy_imports():
    from travois.context.compaction import shared_summaries
    from travois.extensions import package_parts
    from travois.local_model import llamacpp, router
    from travois.local_model import model as embedded_model
    from travois.providers import discovery
    from travois.search import embedder


# Models that this machine runs itself, as a session has them.


LOCAL_PROVIDER = "local"
EMBEDDED_MODEL = "smollm2"
LOCAL_SERVER_LABEL = "this machine, in a separate process"
LOCAL_TIMEOUTS = Timeouts(first_byte=600.0, idle=600.0)
"""A long prompt takes minutes to read here."""
SMOLLM_NOTICE = "a very small local model answers (SmolLM2 135M)"
RULES_NOTICE = "local examples and rules answer"
NO_KEY_NOTICE = (
    "no API key is set: {}, enough to try everything offline, not to write code; "
    "to add a real model, export ANTHROPIC_API_KEY=…, or run ollama "
    "(`travois demo` shows what that is like)"
)


class LocalModels:
    """Local models: one server process per file of weights, started on demand."""

    def __init__(self, loaded: LoadedSettings, stack: AsyncExitStack) -> None:
        self._loaded = loaded
        self._engines: dict[tuple[Path, int], LlamaServer] = {}
        self._travel = DirectTransport(LOCAL_TIMEOUTS)
        stack.push_async_callback(self.aclose)

    def model_for(self, card: Card) -> ModelClient:
        """Return a client for a local model."""
        if card.id != EMBEDDED_MODEL:
            return llamacpp.LlamaModel(
                card, self._engine_for(Path(card.id), card.window), self._travel
            )
        return embedded_model.SmolLmModel(load_nearest_examples, self._embedded_mind(card.window))

    async def aclose(self) -> None:
        """Close connections and stop the server processes."""
        await self._travel.aclose()
        for engine in self._engines.values():
            await engine.aclose()

    def _embedded_mind(self, window: int) -> embedded_model.SmolLm | None:
        weights = find_smollm2()
        if isinstance(weights, str):
            return None
        return embedded_model.SmolLm(self._engine_for(weights, window), self._travel)

    def _engine_for(self, path: Path, window: int) -> llamacpp.LlamaServer:
        if (path, window) not in self._engines:
            threads = max(1, self._loaded.settings.local.threads)
            self._engines[path, window] = llamacpp.LlamaServer(path, window=window, threads=threads)
        return self._engines[path, window]


def find_smollm2() -> Path | str:
    """Return the embedded model's weights file, or why the model cannot run here."""
    return llamacpp.llamacpp_missing_reason() or embedded_model.find_smollm_weights(
        _stamp_path("smollm2.json")
    )


def embedded_model_notice() -> str:
    """Describe the embedded default model in one line."""
    weights = find_smollm2()
    return NO_KEY_NOTICE.format(SMOLLM_NOTICE if isinstance(weights, Path) else RULES_NOTICE)


def load_nearest_examples() -> router.ExampleIndex:
    """Load the model's nearest examples with static embeddings: MiniLM takes 2 s to start."""
    return router.ExampleIndex(embedder.StaticEmbedder())


def _stamp_path(name: str) -> Path:
    return home.locate_home(os.environ).path / "memory" / name


SCRIPTED_CARD = Card("scripted", "scripted", "anthropic")


def model_catalog(loaded: LoadedSettings) -> Catalog:
    """Return the model catalogue, with the user's additions."""
    settings = loaded.settings
    brought: dict[str, object] = {
        point.name: {"protocol": "anthropic", "url": f"package://{package.name}"}
        for package in loaded.packages
        for point in package.select_points("providers")
    }
    extra = {"providers": brought | settings.providers, "models": settings.models}
    found = (
        catalog.merge_catalog(extra, where=loaded.origin)
        if any(extra.values())
        else catalog.load_catalog()
    )
    prices = settings.model_pricing
    terms = ModelPolicy(
        settings.available_models,
        settings.denied_models,
        renamed=settings.model_overrides,
        prices={id: _parse_price(each) for id, each in prices.overrides.items()},
        multiplier=prices.multiplier,
        helper=settings.api_key_helper,
    )
    return replace(found, terms=terms)


def _parse_price(each: dict[str, float]) -> Price:
    known = {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0} | each
    return Price(known["input"], known["output"], known["cacheRead"], known["cacheWrite"])


async def choose_model(
    loaded: LoadedSettings, session: Session, *, scripted: bool
) -> tuple[Card, str]:
    """Choose the model: the requested one, else the session's, else the default.

    With it comes a notice for the user, if the model was not chosen.
    """
    epoch = session.view.epoch
    if scripted:
        return epoch.model if epoch else SCRIPTED_CARD, ""
    chosen = loaded.settings.model
    asked = loaded.origin("effortLevel") == "command line"
    effort = epoch.model.effort if epoch and not asked else None
    if epoch and (not chosen or loaded.origin("model") != "command line"):
        terms = model_catalog(loaded).terms
        if not terms.allows(epoch.model.name) and epoch.model.id not in terms.renamed.values():
            raise terms.denial_error(epoch.model.name)
        wanted = _starting_effort(loaded, epoch.model.id) if effort is None else effort
        return replace(epoch.model, effort=wanted), _hint_at_other_models(epoch.model)
    model, line = await find_model(chosen, loaded)
    longest = loaded.settings.max_output_tokens
    life = loaded.settings.context.cache_ttl or model.cache_ttl
    effort = _starting_effort(loaded, model.id) if effort is None else effort
    return replace(model, output=longest or model.output, effort=effort, cache_ttl=life), line


def _starting_effort(loaded: LoadedSettings, id: str) -> Effort:
    """Return the reasoning effort that a session's model starts with, within the maximum."""
    settings, own = loaded.settings, loaded.settings.model_settings.get(id, ModelSettings())
    named = loaded.origin("effortLevel") == "command line"
    wanted = settings.effort_level if named else own.effort_level or settings.effort_level
    said = (wanted, own.max_effort_level, settings.max_effort_level)
    levels: list[Effort] = [level for level in said if level]
    return min(levels, key=EFFORT_LEVELS.index) if levels else ""


def context_layers(loaded: LoadedSettings, session: Session) -> ContextLayers:
    """Return the context layers' limits, with the configured window of a model."""
    settings = loaded.settings
    id = session.view.epoch.model.id if session.view.epoch else ""
    own = settings.model_settings.get(id, ModelSettings()).auto_compact_window
    usual = settings.context.layers
    caps = {MCP_TOOLS: settings.max_mcp_output_tokens, **usual.caps}
    usual = replace(usual, caps=caps, off_by=_compaction_off_source(loaded))
    return replace(usual, window=own) if own else usual


def _compaction_off_source(loaded: LoadedSettings) -> str:
    """Return the variable or setting that disabled auto-compaction; empty if none."""
    context = loaded.settings.context
    if context.compact and context.auto_compact:
        return ""
    key = "context.autoCompact" if context.compact else "context.compact"
    place = loaded.origin(key)
    return place if place.startswith("DISABLE_") else f"{key} in {place}"


def _hint_at_other_models(card: Card) -> str:
    """Suggest other models to try once an API key is set."""
    if not card.is_frail or not catalog.has_default_model(os.environ):
        return ""
    return f"this session uses {card.name} although an API key is set; --model NAME switches"


def _can_use_embedded_model(loaded: LoadedSettings) -> bool:
    """Return whether the embedded model may answer: only where somebody reads the notice."""
    unread = os.environ.get("CI", "").strip() and not sys.stdin.isatty()
    return loaded.settings.local.fallback and not unread


async def find_model(chosen: str, loaded: LoadedSettings) -> tuple[Card, str]:
    """Find the named model; without a name or a key, one that a local server offers.

    A server on this machine is asked for its models. Also returns a line that describes the model.
    """
    among = model_catalog(loaded)
    if not chosen.strip() and not catalog.has_default_model(os.environ, among=among):
        if (model := await discovery.discover_local_model(os.environ, among=among)) is not None:
            where = catalog.resolve_endpoint(model, os.environ, among=among).url
            size = f"with a window of {model.window:,} tokens"
            return model, f"no API key is set: {model.name} answers, found at {where} {size}"
        if _can_use_embedded_model(loaded):
            return catalog.resolve_model(
                f"{LOCAL_PROVIDER}/{EMBEDDED_MODEL}", {}, among=among
            ), embedded_model_notice()
    model = resolve_model(chosen, among)
    if model.name not in among.models and "[" not in chosen:
        model = await discovery.with_server_window(model, os.environ, among=among)
    return model, ""


def resolve_model(name: str, among: Catalog | None) -> Card:
    """Resolve a model name; a local weights file determines the window."""
    model = catalog.resolve_model(name, os.environ, among=among)
    if model.provider != LOCAL_PROVIDER or model.id == EMBEDDED_MODEL:
        return model
    return llamacpp.fit_model_to_file(model)


def resolve_for_agent(name: str, usual: Card, among: Catalog | None) -> Card:
    """Resolve the model for a subagent; `usual` is the session's. Raises `UserError`.

    A short name such as `haiku` means a model of the session's provider, if there is one.
    """
    known, word = among or catalog.load_catalog(), name.strip().casefold()
    served, own = known.providers.get(usual.provider), f"{usual.provider}/"
    if "/" in word or served is None:
        return resolve_model(name, among)
    if word in served.aliases:
        return resolve_model(own + word, among)
    if word in _split_words(usual.id):
        return usual
    ids = (model.removeprefix(own) for model in known.models if model.startswith(own))
    fitting = (id for id in ids if known.terms.allows(own + id) and word in (id, *_split_words(id)))
    return resolve_model(own + found if (found := next(fitting, "")) else name, among)


def _split_words(id: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", id.casefold())


class ModelFactory:
    """A factory of model clients, which are closed with the session.

    A client that a caller brings serves every model.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        stack: AsyncExitStack,
        *,
        session: Session,
        given: ModelClient | None,
    ) -> None:
        self._loaded, self._session, self._given = loaded, session, given
        self._opened = AsyncExitStack()
        stack.push_async_callback(self._opened.aclose)
        self._local = LocalModels(loaded, self._opened)
        self._limiters: dict[tuple[str, str], RateLimiter] = {}

    def __call__(self, card: Card) -> ModelClient:
        return self.connect(card)[0]

    def connect(self, card: Card) -> tuple[ModelClient, str]:
        """Return a client for this model, and where its key comes from."""
        if self._given is not None:
            return self._given, "none"
        if card.provider == LOCAL_PROVIDER:
            return self._local.model_for(card), "none"
        if brought := self._load_package_model(card):
            return brought, "none"
        among = model_catalog(self._loaded)
        where = catalog.resolve_endpoint(card, os.environ, among=among)
        self._hide_key(where.headers)
        travel = create_transport(where.url, os.environ, _request_timeouts(self._loaded, card))
        self._opened.push_async_callback(travel.aclose)
        limiter = self._limiters.setdefault((where.url, card.id), RateLimiter(where.url, card.id))
        client = HttpModel(
            card, where, travel, heard=self._hide_key, catalog=among, limiter=limiter
        )
        return client, where.key_source

    def _load_package_model(self, card: Card) -> ModelClient | None:
        """Load a model that an installed package brings; None if none does."""
        packages = self._loaded.packages
        return package_parts.load_package_model(packages, card.name) if packages else None

    def _hide_key(self, headers: tuple[tuple[str, str], ...]) -> None:
        """Keep a key out of the log."""
        known = (*headers, *self._loaded.settings.env.items(), *os.environ.items())
        self._session.secrets = collect_secrets(known, listed=list_hook_variables(self._loaded))


def list_hook_variables(loaded: LoadedSettings) -> tuple[tuple[str, str], ...]:
    """Return the environment variables that the user's own hooks mention."""
    named = [
        hook.env
        for origin, tree in loaded.hooks
        if origin in loaded.own_hooks and "env" in str(tree)
        for hook in parse_hooks(tree, origin=origin).hooks
    ]
    names = dict.fromkeys(name for each in named for name in each)
    return tuple((name, os.environ[name]) for name in names if name in os.environ)


def compose_models(
    loaded: LoadedSettings,
    session: Session,
    *,
    serve: Callable[[Card], ModelClient],
    chain: tuple[str, ...],
) -> tuple[AgentModels, tuple[tuple[str, UserError], ...]]:
    """Compose the models besides the main one; and notices about unreachable fallbacks."""
    asked = loaded.settings
    among, reached = model_catalog(loaded), dict[str, SmallModel]()
    fallbacks, unreachable = list[str](), list[tuple[str, UserError]]()

    def reach_model(model: str | Card) -> SmallModel:
        name = model if isinstance(model, str) else model.name
        if name not in reached or (isinstance(model, Card) and reached[name].card != model):
            found = resolve_model(name, among) if isinstance(model, str) else model
            reached[name] = SmallModel(found, serve(found))
        return reached[name]

    def is_local(card: Card) -> bool:
        return discovery.runs_on_this_machine(card, os.environ, among=among)

    for name in chain or asked.fallback_models:
        try:
            fallbacks.append(reach_model(name) and name)
        except UserError as fault:
            unreachable.append((name, fault))
    chooses = asked.memory.enabled and asked.memory.choose
    models = AgentModels(
        small=partial(_small_model_of_session, session, serve, among) if chooses else _no_model,
        fallbacks=tuple(fallbacks),
        named=reach_model,
        is_local=is_local,
        retry=RetryPolicy(asked.retry.attempts, longest=asked.retry.max_wait),
    )
    return models, tuple(unreachable)


def fallback_notices(
    session: Session, unreachable: tuple[tuple[str, UserError], ...]
) -> tuple[str, ...]:
    """Return notices about fallback models that cannot be used."""
    name = epoch.model.name if (epoch := session.view.epoch) else "the model"
    return tuple(f"{one} is no fallback for {name}: {fault.what}" for one, fault in unreachable)


def _no_model() -> SmallModel | None:
    return None


def _small_model_of_session(
    session: Session, serve: Callable[[Card], ModelClient], among: Catalog
) -> SmallModel | None:
    """Return a cheaper model of the session's current provider; None if there is none."""
    epoch = session.view.epoch
    assert epoch is not None
    return find_small_model(epoch.model, serve, among=among)


def missing_price_notices(loaded: LoadedSettings, card: Card) -> tuple[str, ...]:
    """Return a notice if a model has no price, so that its cost is unknown."""
    if not loaded.settings.max_budget_usd or card.price != Price():
        return ()
    return (f"the price of {card.name} is unknown, so maxBudgetUsd has no effect; use maxTokens",)


def find_small_model(
    served: Card, serve: Callable[[Card], ModelClient], *, among: Catalog
) -> SmallModel | None:
    """Return a cheaper model of the same provider for side requests; None if there is none."""
    name = catalog.find_small_model(served, among=among)
    try:
        found = catalog.resolve_model(name, os.environ, among=among) if name else None
        return SmallModel(found, serve(found)) if found else None
    except UserError:
        return None


def compose_naming(
    session: Session, loaded: LoadedSettings, *, serve: Callable[[Card], ModelClient]
) -> ActivityNaming | None:
    """Compose the model that names subagents' activities; None if the user disabled it."""
    seconds = loaded.settings.agent_progress_seconds
    if not seconds:
        return None
    return ActivityNaming(
        seconds, partial(_small_model_of_session, session, serve, model_catalog(loaded))
    )


def _request_timeouts(loaded: LoadedSettings, card: Card) -> Timeouts:
    """Return the timeouts of a model's requests; Anthropic servers send keep-alives."""
    waits = loaded.settings.timeouts
    local = waits.first_byte if card.protocol == "anthropic" else waits.local
    return Timeouts(
        connect=waits.connect,
        first_byte=waits.first_byte,
        idle=waits.idle,
        is_idle_chosen=loaded.origin("timeouts.idle") != "default",
        local=local,
    )


def compose_context(
    workspace: Workspace, loaded: LoadedSettings, session: Session, *, persist: bool
) -> AgentContext:
    """Compose the context settings of a session's model; saved sessions share summaries."""
    if not persist or workspace.home.passing:
        return AgentContext(context_layers(loaded, session))
    shared = workspace.home.summaries / workspace.project.key / loaded.trust
    return AgentContext(
        context_layers(loaded, session), open_summaries=cache(partial(open_summaries, shared))
    )


def open_summaries(folder: Path) -> SharedSummaries:
    """Open the compaction summaries that a project's sessions share."""
    return shared_summaries.SummaryFolder(folder)
