"""Discovery of local model servers (Ollama, llama.cpp, LM Studio, vLLM) and their windows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import h11
import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.core.json import as_list, as_object, as_string, read_count
from travois.core.models import ModelCard
from travois.providers.catalog import (
    MAX_SUGGESTIONS,
    Catalog,
    Endpoint,
    Provider,
    catalog,
    close_names,
    endpoint,
    is_local,
    look_up,
    resolve,
)
from travois.providers.http.client import Line, dial
from travois.providers.http.tls import target
from travois.providers.replies import Problem

QUICK = 0.15
"""The time limit for finding all servers together, in seconds."""
PATIENT = 2.0
"""The time limit for a server's answer about its models, in seconds."""
LONGEST = 1 << 22

Listed = dict[str, int]
"""The context windows of a server's models, by id; 0 where it does not say."""


def runs_here(model: ModelCard, env: Mapping[str, str], *, among: Catalog | None = None) -> bool:
    """Return whether a model runs in a server on this machine.

    A model of the catalogue that others host is hosted, also behind a proxy of one's own.
    """
    own, unknown = catalog().providers.get(model.provider), -1
    listed = look_up(catalog(), model.name, window=unknown).window != unknown
    if listed and not (own and is_local(own.url)):
        return False
    try:
        return is_local(endpoint(model, env, among=among).url)
    except UserError:
        return False


async def found(environ: Mapping[str, str], *, among: Catalog | None = None) -> ModelCard | None:
    """Find a model of a server running on this machine, within 150 ms."""
    heard: dict[str, Listed] = {}

    async def ask(provider: str) -> None:
        url = _url(provider, environ, among)
        if url and is_local(url):
            heard[provider] = await _listed(provider, url)

    with anyio.move_on_after(QUICK):
        async with anyio.create_task_group() as group:
            for provider in LISTS:
                group.start_soon(ask, provider)
    for provider in LISTS:
        for id, window in heard.get(provider, {}).items():
            return _sized(resolve(f"{provider}/{id}", environ, among=among), window)
    return None


async def fitted(
    model: ModelCard, environ: Mapping[str, str], *, among: Catalog | None = None
) -> ModelCard:
    """Return the model with the context window that its server reports, if it reports one."""
    url = _url(model.provider, environ, among) if model.provider in LISTS else ""
    listed: Listed = {}
    with anyio.move_on_after(PATIENT):
        if url and model.provider == "ollama":
            listed = {model.id: await _shown(url, model.id)}
        elif url:
            listed = await _listed(model.provider, url)
    return _sized(model, listed.get(model.id, 0))


async def installed(provider: str, url: str) -> list[str]:
    """List the ids of the models that a server on this machine has."""
    base, told = url.partition("?")[0].removesuffix("/v1"), list[str]()
    with anyio.move_on_after(PATIENT):
        if provider == "ollama":
            found = as_list((await _ask(base, "/api/tags")).get("models"))
        else:
            found = as_list((await _ask(base, "/v1/models")).get("data"))
        told = [
            as_string(as_object(row).get("name")) or as_string(as_object(row).get("id"))
            for row in found
        ]
    return [id for id in told if id]


def _sized(model: ModelCard, window: int) -> ModelCard:
    """Return the model with this window, capped by the catalogue where the server obeys us."""
    if not window:
        return model
    window = min(window, model.window) if model.protocol == "ollama" else window
    return replace(model, window=window, output=min(model.output, max(1, window // 4)))


def _url(provider: str, environ: Mapping[str, str], among: Catalog | None) -> str:
    try:
        return endpoint(resolve(f"{provider}/any", environ, among=among), environ, among=among).url
    except UserError:
        return ""


async def _listed(provider: str, url: str) -> Listed:
    return await LISTS[provider](url.removesuffix("/v1"))


async def _ollama(url: str) -> Listed:
    """List the first Ollama model that can call tools, the last used first."""
    named = [
        as_string(as_object(row).get("name"))
        for row in as_list((await _ask(url, "/api/tags")).get("models"))
    ]
    for id in filter(None, named):
        if window := await _shown(url, id):
            return {id: window}
    return {}


async def _shown(url: str, id: str) -> int:
    """Return the window set by an Ollama model or its owner; 0 if it cannot call tools."""
    told = await _ask(url, "/api/show", {"model": id})
    info = as_object(told.get("model_info"))
    most = max(
        (read_count(info, name) for name in info if name.endswith(".context_length")), default=0
    )
    able = as_list(told.get("capabilities"))
    if able and "tools" not in able:
        return 0
    chosen = re.search(r"^num_ctx\s+(\d+)", as_string(told.get("parameters")), re.MULTILINE)
    return min(most, int(chosen[1])) if chosen and most else most


async def _llamacpp(url: str) -> Listed:
    props = await _ask(url, "/props")
    sizes = as_object(props.get("default_generation_settings"))
    if not sizes:
        return {}
    models = await _ask(url, "/v1/models")
    window = read_count(sizes, "n_ctx") or read_count(props, "n_ctx")
    return {as_string(as_object(row).get("id")): window for row in as_list(models.get("data"))}


async def _lmstudio(url: str) -> Listed:
    """List the models of LM Studio, loaded ones first; only this server has such a list."""
    told = (as_object(row) for row in as_list((await _ask(url, "/api/v0/models")).get("data")))
    models = [row for row in told if row.get("type") in ("llm", "vlm") and as_string(row.get("id"))]
    models.sort(key=lambda row: row.get("state") != "loaded")
    return {
        row["id"]: read_count(row, "loaded_context_length") or read_count(row, "max_context_length")
        for row in models
    }


async def _vllm(url: str) -> Listed:
    told = (as_object(row) for row in as_list((await _ask(url, "/v1/models")).get("data")))
    return {
        row["id"]: read_count(row, "max_model_len")
        for row in told
        if read_count(row, "max_model_len")
    }


LISTS: dict[str, Callable[[str], Awaitable[Listed]]] = {
    "ollama": _ollama,
    "llamacpp": _llamacpp,
    "lmstudio": _lmstudio,
    "vllm": _vllm,
}
"""How each server is recognised and asked; others on its port answer otherwise or not at all."""


async def _ask(url: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Request JSON from a server; empty if it is not an object, or nothing answers."""
    to = target(url)
    try:
        line = Line(await dial(to.host, to.port), None)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        return {}
    try:
        return await _exchanged(line, to.name, path, body)
    except (Problem, msgspec.DecodeError, anyio.BrokenResourceError):
        return {}
    finally:
        await line.hang_up()


async def _exchanged(
    line: Line, host: str, path: str, body: dict[str, str] | None
) -> dict[str, Any]:
    data = b"" if body is None else msgspec.json.encode(body)
    headers = [
        ("host", host),
        ("content-length", str(len(data))),
        ("content-type", "application/json"),
    ]
    start = h11.Request(method="GET" if body is None else "POST", target=path, headers=headers)
    parts = (start, h11.Data(data=data), h11.EndOfMessage())
    await line.stream.send(b"".join(line.parser.send(part) or b"" for part in parts))
    said, status = b"", 0
    while len(said) < LONGEST and (event := await line.event(PATIENT)):
        if isinstance(event, h11.Response):
            status = event.status_code
        said += event.data if isinstance(event, h11.Data) else b""
    return msgspec.json.decode(said, type=dict[str, Any]) if status == 200 else {}


# What a person can do about a model that does not answer.


async def explain(
    problem: Problem, model: ModelCard, there: Endpoint, *, known: Catalog | None = None
) -> None:
    """Add to an error that only the user can solve what to do about it."""
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
    problem: Problem, model: ModelCard, there: Endpoint, *, served: Provider | None
) -> str:
    who = f"{model.provider} ({target(there.url).host})"
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
    return f"{what}: {_sentence(problem.message)} {fix}"


async def _explain_model(
    problem: Problem, model: ModelCard, there: Endpoint, *, known: Catalog
) -> str:
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
