"""What a person can do about a model that does not answer."""

from __future__ import annotations

from travois.core.models import Model
from travois.providers.catalog import (
    MAX_SUGGESTIONS,
    Catalog,
    Endpoint,
    Provider,
    catalog,
    close_names,
)
from travois.providers.discovery import LISTS, installed
from travois.providers.http.tls import target
from travois.providers.replies import Problem


async def explain(
    problem: Problem, model: Model, there: Endpoint, *, known: Catalog | None = None
) -> None:
    """Add to a problem that only the user can solve what to do about it."""
    among = known or catalog()
    served = among.providers.get(model.provider)
    match problem.kind:
        case "auth" if problem.status:  # else no key was sent: a command that prints it failed
            problem.message = _explain_key(problem, model, there, served=served)
        case "missing" if problem.field != "url":
            problem.message = await _explain_model(problem, model, there, known=among)
        case "network" if problem.refused:
            problem.message = _explain_server(problem, served)
        case _:
            pass


def _explain_key(
    problem: Problem, model: Model, there: Endpoint, *, served: Provider | None
) -> str:
    who = f"{model.provider} ({target(there.url).host})"
    match there.key_source:
        case "none":
            what = f"{who} wants a key with {problem.status}, and none was sent"
            names = " or ".join(served.key_env if served else ())
            fix = f"Set {names or f'keyEnv of providers.{model.provider} in your settings'}."
        case "apiKeyHelper":
            what = (
                f"{who} refused the key that the apiKeyHelper command printed with {problem.status}"
            )
            fix = "Run that command yourself and check what it prints, or set ANTHROPIC_API_KEY."
        case source:
            what = f"{who} refused the key in {source} with {problem.status}"
            valid = f"Check that {source} holds a valid key for this provider"
            fix = f"{valid}, or choose another --model."
    return f"{what}: {_sentence(problem.message)} {fix}"


async def _explain_model(problem: Problem, model: Model, there: Endpoint, *, known: Catalog) -> str:
    is_own = model.provider in LISTS
    if is_own:
        ids = await installed(model.provider, there.url)
    else:
        names = (name.split("/", 1) for name in known.models)
        ids = [id for provider, id in names if provider == model.provider]
    near = close_names(model.id, [id for id in ids if id != model.id])
    if near:
        fix = f"Did you mean {' or '.join(near)}?"
    elif is_own and ids:
        fix = f"It has {', '.join(ids[:MAX_SUGGESTIONS])}."
    else:
        fix = "`travois models` lists the models of the catalogue."
    return f"{model.provider} has no model {model.id!r}: {_sentence(problem.message)} {fix}"


def _explain_server(problem: Problem, served: Provider | None) -> str:
    start = f"Start it with `{served.start}`" if served and served.start else "Start it"
    moved = f", or set {served.url_env} to its address" if served and served.url_env else ""
    return f"{problem.message}. {start}{moved}."


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
