"""Servers on this machine: recognised by what only they say, asked for their real window."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import anyio
import pytest

from travois.core.models import ModelCard
from travois.providers.catalog import resolve_model
from travois.providers.discovery import discover_local_model, with_server_window

NAMES = ("OLLAMA", "LLAMACPP", "LMSTUDIO", "VLLM")
NOWHERE = {f"{name}_BASE_URL": "http://127.0.0.1:9" for name in NAMES}
SHOWN = {
    "model_info": {"qwen3.context_length": 40_960, "qwen3.block_count": 9},
    "capabilities": ["completion", "tools"],
}
OLLAMA = {
    "/api/tags": {"models": [{"name": "embed"}, {"name": "qwen3:8b"}]},
    "/api/show embed": {"capabilities": ["embedding"]},
    "/api/show qwen3:8b": SHOWN,
}
LLAMACPP = {
    "/props": {"default_generation_settings": {"n_ctx": 8192}},
    "/v1/models": {"data": [{"id": "gemma"}]},
}
LMSTUDIO = {
    "/api/v0/models": {
        "data": [
            {"id": "resting", "type": "llm", "state": "not-loaded", "max_context_length": 9},
            {"id": "embed", "type": "embeddings", "state": "loaded"},
            {"id": "phi", "type": "vlm", "state": "loaded", "loaded_context_length": 16_000},
        ]
    }
}
VLLM = {"/v1/models": {"data": [{"id": "org/llama", "max_model_len": 131_072}]}}
Pages = dict[str, Any]


@contextmanager
def serving(pages: Pages) -> Generator[str]:
    """A server that says these things; bytes are said as they are."""

    class Say(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(self.path)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.say(f"{self.path} {body['model']}")

        def say(self, what: str) -> None:
            page = pages.get(what, pages.get("*"))
            data = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response(200 if page is not None else 404)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - their name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Say)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def look(env: dict[str, str]) -> ModelCard | None:
    return anyio.run(discover_local_model, {**NOWHERE, **env})


FOUND = [
    ("OLLAMA", OLLAMA, "ollama/qwen3:8b", 32_768, "ollama"),
    ("LLAMACPP", LLAMACPP, "llamacpp/gemma", 8_192, "chat"),
    ("LMSTUDIO", LMSTUDIO, "lmstudio/phi", 16_000, "chat"),
    ("VLLM", VLLM, "vllm/org/llama", 131_072, "chat"),
]


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no reason to find nothing."""
    monkeypatch.setattr("travois.providers.discovery.DISCOVERY_TIMEOUT", 10.0)


@pytest.mark.parametrize(("name", "pages", "model", "window", "protocol"), FOUND)
def test_a_server_is_found_with_its_real_window(
    name: str, pages: Pages, model: str, window: int, protocol: str
) -> None:
    with serving(pages) as url:
        card = look({f"{name}_BASE_URL": url})
    assert card is not None
    assert (card.name, card.window, card.protocol) == (model, window, protocol)
    assert card.output <= window // 4


STRANGERS: list[Pages] = [
    {},
    {"*": {"hello": "world"}},
    {"*": {"data": [], "models": []}},
    {"*": [1, 2]},
    {"*": b"<html>a web page</html>"},
    {"*": b""},
    {"/v1/models": {"data": [{"id": "some-gateway"}]}},
]


@pytest.mark.parametrize("pages", STRANGERS)
def test_whoever_else_listens_there_is_not_spoken_to(pages: Pages) -> None:
    with serving(pages) as url:
        assert look({f"{name}_BASE_URL": url for name in NAMES}) is None


def test_a_server_that_says_nothing_does_not_hold_up_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import socket

    monkeypatch.setattr("travois.providers.discovery.DISCOVERY_TIMEOUT", 0.15)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert look({f"{name}_BASE_URL": url for name in NAMES}) is None


def test_nobody_beyond_this_machine_is_asked() -> None:
    assert look({f"{name}_BASE_URL": "http://192.0.2.1:11434" for name in NAMES}) is None


def test_the_first_server_of_several_is_taken() -> None:
    with serving(OLLAMA) as one, serving(VLLM) as other:
        card = look({"OLLAMA_BASE_URL": one, "VLLM_BASE_URL": other})
    assert card is not None
    assert card.provider == "ollama"


def fit(name: str, env: dict[str, str]) -> int:
    return anyio.run(with_server_window, resolve_model(name, env), env).window


def test_the_window_of_a_model_that_was_named_is_asked_for() -> None:
    with serving(LLAMACPP) as url:
        assert fit("llamacpp/gemma", {"LLAMACPP_BASE_URL": url}) == 8_192
        assert fit("llamacpp/other", {"LLAMACPP_BASE_URL": url}) == 200_000
    small = {"/api/show tiny": {**SHOWN, "parameters": "stop x\nnum_ctx    2048\n"}}
    with serving(small) as url:
        assert fit("ollama/tiny", {"OLLAMA_BASE_URL": url}) == 2_048
        assert fit("ollama/unknown", {"OLLAMA_BASE_URL": url}) == 32_768
    assert fit("opus", {}) == 1_000_000
