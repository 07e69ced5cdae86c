"""Discovery of local model servers (Ollama, llama.cpp, LM Studio, vLLM) and their windows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.core.json import as_list, as_object, as_string, read_count
from travois.core.models import ModelCard
from travois.lazy_imports import lazy_imports
from travois.providers.catalog import (
    Catalog,
    is_local_url,
    load_catalog,
    look_up_model,
    resolve_endpoint,
    resolve_model,
)
from travois.providers.http.client import HttpConnection, RequestHead, open_tcp
from travois.providers.http.tls import parse_target
from travois.providers.replies import ApiError

with lazy_imports():
    import h11


DISCOVERY_TIMEOUT = 0.15
"""The time limit for finding all servers together, in seconds."""
SERVER_ANSWER_TIMEOUT = 2.0
"""The time limit for a server's answer about its models, in seconds."""
MAX_ANSWER_BYTES = 1 << 22

WindowsByModel = dict[str, int]
"""The context windows of a server's models, by id; 0 where it does not say."""


def runs_on_this_machine(
    model: ModelCard, env: Mapping[str, str], *, among: Catalog | None = None
) -> bool:
    """Return whether a model runs in a local model server.

    A catalogue model that others host counts as hosted, even behind the user's own proxy.
    """
    own, unknown = load_catalog().providers.get(model.provider), -1
    listed = look_up_model(load_catalog(), model.name, window=unknown).window != unknown
    if listed and not (own and is_local_url(own.url)):
        return False
    try:
        return is_local_url(resolve_endpoint(model, env, among=among).url)
    except UserError:
        return False


async def discover_local_model(
    environ: Mapping[str, str], *, among: Catalog | None = None
) -> ModelCard | None:
    """Discover a model of a local server within 150 ms; None if nothing answers."""
    heard: dict[str, WindowsByModel] = {}

    async def query_server(provider: str) -> None:
        url = _local_server_url(provider, environ, among)
        if url and is_local_url(url):
            heard[provider] = await _list_server_models(provider, url)

    with anyio.move_on_after(DISCOVERY_TIMEOUT):
        async with anyio.create_task_group() as group:
            for provider in MODEL_LISTERS:
                group.start_soon(query_server, provider)
    for provider in MODEL_LISTERS:
        for id, window in heard.get(provider, {}).items():
            return _with_window(resolve_model(f"{provider}/{id}", environ, among=among), window)
    return None


async def with_server_window(
    model: ModelCard, environ: Mapping[str, str], *, among: Catalog | None = None
) -> ModelCard:
    """Return the model with the context window that its local server reports, if any."""
    url = (
        _local_server_url(model.provider, environ, among) if model.provider in MODEL_LISTERS else ""
    )
    listed: WindowsByModel = {}
    with anyio.move_on_after(SERVER_ANSWER_TIMEOUT):
        if url and model.provider == "ollama":
            listed = {model.id: await _ollama_model_window(url, model.id)}
        elif url:
            listed = await _list_server_models(model.provider, url)
    return _with_window(model, listed.get(model.id, 0))


def _with_window(model: ModelCard, window: int) -> ModelCard:
    """Return the model with a discovered window, capped by the catalogue if the server obeys us."""
    if not window:
        return model
    window = min(window, model.window) if model.protocol == "ollama" else window
    return replace(model, window=window, output=min(model.output, max(1, window // 4)))


def _local_server_url(provider: str, environ: Mapping[str, str], among: Catalog | None) -> str:
    """Return the URL of a local model server; empty if it cannot be resolved."""
    try:
        return resolve_endpoint(
            resolve_model(f"{provider}/any", environ, among=among), environ, among=among
        ).url
    except UserError:
        return ""


async def _list_server_models(provider: str, url: str) -> WindowsByModel:
    return await MODEL_LISTERS[provider](url.removesuffix("/v1"))


async def _list_ollama_models(url: str) -> WindowsByModel:
    """List the most recently used Ollama model that can call tools."""
    named = [
        as_string(as_object(row).get("name"))
        for row in as_list((await _request_json(url, "/api/tags")).get("models"))
    ]
    for id in filter(None, named):
        if window := await _ollama_model_window(url, id):
            return {id: window}
    return {}


async def _ollama_model_window(url: str, id: str) -> int:
    """Return the window set by an Ollama model or its owner; 0 if it cannot call tools."""
    told = await _request_json(url, "/api/show", {"model": id})
    info = as_object(told.get("model_info"))
    most = max(
        (read_count(info, name) for name in info if name.endswith(".context_length")), default=0
    )
    able = as_list(told.get("capabilities"))
    if able and "tools" not in able:
        return 0
    chosen = re.search(r"^num_ctx\s+(\d+)", as_string(told.get("parameters")), re.MULTILINE)
    return min(most, int(chosen[1])) if chosen and most else most


async def _list_llamacpp_models(url: str) -> WindowsByModel:
    """List the models of a llama.cpp server with its context window."""
    props = await _request_json(url, "/props")
    sizes = as_object(props.get("default_generation_settings"))
    if not sizes:
        return {}
    models = await _request_json(url, "/v1/models")
    window = read_count(sizes, "n_ctx") or read_count(props, "n_ctx")
    return {as_string(as_object(row).get("id")): window for row in as_list(models.get("data"))}


async def _list_lmstudio_models(url: str) -> WindowsByModel:
    """List the models of LM Studio, loaded ones first; only this server has such a list."""
    told = (
        as_object(row) for row in as_list((await _request_json(url, "/api/v0/models")).get("data"))
    )
    models = [row for row in told if row.get("type") in ("llm", "vlm") and as_string(row.get("id"))]
    models.sort(key=lambda row: row.get("state") != "loaded")
    return {
        row["id"]: read_count(row, "loaded_context_length") or read_count(row, "max_context_length")
        for row in models
    }


async def _list_vllm_models(url: str) -> WindowsByModel:
    """List the models of a vLLM server that report a context window."""
    told = (as_object(row) for row in as_list((await _request_json(url, "/v1/models")).get("data")))
    return {
        row["id"]: read_count(row, "max_model_len")
        for row in told
        if read_count(row, "max_model_len")
    }


MODEL_LISTERS: dict[str, Callable[[str], Awaitable[WindowsByModel]]] = {
    "ollama": _list_ollama_models,
    "llamacpp": _list_llamacpp_models,
    "lmstudio": _list_lmstudio_models,
    "vllm": _list_vllm_models,
}
"""How each server is recognised and asked; others on its port answer otherwise or not at all."""


async def _request_json(url: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Request JSON from a local model server; empty if nothing answers or it is no object."""
    to = parse_target(url)
    try:
        line = HttpConnection(await open_tcp(to.host, to.port), None)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        return {}
    try:
        return await _exchange_json(line, to.name, path, body)
    except (ApiError, msgspec.DecodeError, anyio.BrokenResourceError):
        return {}
    finally:
        await line.close_now()


async def _exchange_json(
    line: HttpConnection, host: str, path: str, body: dict[str, str] | None
) -> dict[str, Any]:
    """Send one request to a local model server and decode the JSON answer."""
    data = b"" if body is None else msgspec.json.encode(body)
    headers = (
        ("host", host),
        ("content-length", str(len(data))),
        ("content-type", "application/json"),
    )
    head = RequestHead(path, headers, method="GET" if body is None else "POST")
    await line.stream.send(line.begin_request(head) + data)
    line.parser.send(h11.Data(data=data))
    line.parser.send(h11.EndOfMessage())
    said, status = b"", 0
    while len(said) < MAX_ANSWER_BYTES and (event := await line.next_event(SERVER_ANSWER_TIMEOUT)):
        if isinstance(event, h11.Response):
            status = event.status_code
        said += event.data if isinstance(event, h11.Data) else b""
    return msgspec.json.decode(said, type=dict[str, Any]) if status == 200 else {}


async def list_installed_models(provider: str, url: str) -> list[str]:
    """List the IDs of the models installed on a local model server."""
    base, told = url.partition("?")[0].removesuffix("/v1"), list[str]()
    with anyio.move_on_after(SERVER_ANSWER_TIMEOUT):
        if provider == "ollama":
            found = as_list((await _request_json(base, "/api/tags")).get("models"))
        else:
            found = as_list((await _request_json(base, "/v1/models")).get("data"))
        told = [
            as_string(as_object(row).get("name")) or as_string(as_object(row).get("id"))
            for row in found
        ]
    return [id for id in told if id]
