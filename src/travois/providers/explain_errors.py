"""Explaining errors of models that only the user can solve: a missing key, model or server."""

from __future__ import annotations

from travois.core.models import ModelCard
from travois.providers.catalog import (
    MAX_SUGGESTIONS,
    Catalog,
    ModelEndpoint,
    Provider,
    find_close_names,
    load_catalog,
)
from travois.providers.discovery import (
    MODEL_LISTERS,
    list_installed_models,
)
from travois.providers.http.tls import parse_target
from travois.providers.replies import ApiError


async def explain_api_error(
    problem: ApiError, model: ModelCard, there: ModelEndpoint, *, catalog: Catalog | None = None
) -> None:
    """Add advice to a model error that only the user can solve, such as a missing server."""
    among = catalog or load_catalog()
    served = among.providers.get(model.provider)
    match problem.kind:
        case "auth" if problem.status:  # else no key was sent: a command that prints it failed
            problem.message = _explain_auth_error(problem, model, there, served=served)
        case "missing" if problem.field != "url":
            problem.message = await _explain_missing_model(problem, model, there, catalog=among)
        case "network" if problem.refused:
            problem.message = _explain_missing_server(problem, served)
        case _:
            pass


def _explain_auth_error(
    problem: ApiError, model: ModelCard, there: ModelEndpoint, *, served: Provider | None
) -> str:
    """Explain a missing or rejected API key and how to correct it."""
    who = f"{model.provider} ({parse_target(there.url).host})"
    match there.key_source:
        case "none":
            what = f"{who} requires an API key ({problem.status}), but none was sent"
            names = " or ".join(served.key_env if served else ())
            fix = f"Set {names or f'keyEnv of providers.{model.provider} in your settings'}."
        case "apiKeyHelper":
            what = f"{who} rejected the API key printed by apiKeyHelper ({problem.status})"
            fix = "Run that command yourself and check what it prints, or set ANTHROPIC_API_KEY."
        case source:
            what = f"{who} rejected the API key in {source} ({problem.status})"
            valid = f"Check that {source} holds a valid key for this provider"
            fix = f"{valid}, or choose another model with --model."
    return f"{what}: {_end_sentence(problem.message)} {fix}"


async def _explain_missing_model(
    problem: ApiError, model: ModelCard, there: ModelEndpoint, *, catalog: Catalog
) -> str:
    """Explain that a provider lacks a model, and suggest similar ones."""
    is_own = model.provider in MODEL_LISTERS
    if is_own:
        ids = await list_installed_models(model.provider, there.url)
    else:
        names = (name.split("/", 1) for name in catalog.models)
        ids = [id for provider, id in names if provider == model.provider]
    near = find_close_names(model.id, [id for id in ids if id != model.id])
    if near:
        fix = f"Did you mean {' or '.join(near)}?"
    elif is_own and ids:
        fix = f"It has {', '.join(ids[:MAX_SUGGESTIONS])}."
    else:
        fix = "`travois models` lists the models of the catalogue."
    return f"{model.provider} has no model {model.id!r}: {_end_sentence(problem.message)} {fix}"


def _explain_missing_server(problem: ApiError, served: Provider | None) -> str:
    """Explain how to start a local model server that does not answer."""
    start = f"Start it with `{served.start}`" if served and served.start else "Start it"
    moved = f", or set {served.url_env} to its address" if served and served.url_env else ""
    return f"{problem.message}. {start}{moved}."


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
