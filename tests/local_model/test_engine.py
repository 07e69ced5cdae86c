"""llama.cpp in a process of its own: what it does, and that nothing it does harms us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from jsonschema import Draft202012Validator

from tests import processes
from tests.local_model.small import HERE, needs_engine, torn, without_layers
from tests.local_model.test_grammar import SCHEMAS, TEXT
from tests.local_model.test_guided import EXAMPLES, UNSURE
from travois.core.content import Call, Text
from travois.local_model.grammar import build_call_grammar
from travois.local_model.llamacpp import LlamaServer
from travois.local_model.model import LocalRequest, SmolLm, SmolLmModel
from travois.local_model.router import ExampleIndex
from travois.providers.catalog import ModelEndpoint
from travois.providers.http.client import DirectTransport
from travois.providers.replies import ApiError
from travois.search.embedder import StaticEmbedder

pytestmark = needs_engine


@asynccontextmanager
async def engine(path: Path = HERE, *, window: int = 1_024) -> AsyncGenerator[LlamaServer]:
    running = LlamaServer(path, window=window)
    try:
        yield running
    finally:
        await running.aclose()


async def posted(
    running: LlamaServer, path: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    where = await running.start_endpoint()
    url = where.url.removesuffix("/v1") + path
    async with DirectTransport().post(
        url, headers=where.headers, body=json.dumps(body).encode()
    ) as got:
        return got.status, json.loads(b"".join([chunk async for chunk in got.chunks]))


def children() -> set[int]:
    """Processes that serve and were started by this one."""
    started = processes.children(os.getpid())
    return {one.pid for one in started if "travois.local_model.serve" in one.command}


@pytest.mark.parametrize(
    ("spoilt", "why"), [(without_layers, "GGML_ASSERT"), (torn, "corrupted or incomplete")]
)
def test_a_bad_file_is_a_problem_in_words_and_we_live(
    tmp_path: Path, spoilt: Any, why: str
) -> None:
    path = spoilt(tmp_path / "bad.gguf")

    async def main() -> str:
        async with engine(path) as running:
            with pytest.raises(ApiError) as caught:
                await running.start_endpoint()
            assert not caught.value.retry
            return str(caught.value)

    words = anyio.run(main)
    assert words.startswith(f"Cannot run {path}: ")
    assert why in words
    assert words.endswith("Choose another file with --model local/PATH, or another model.")
    assert not children()


def test_nobody_without_the_key_is_served_and_one_that_died_is_started_again() -> None:
    async def main() -> None:
        async with engine() as running:
            where = await running.start_endpoint()
            url = f"{where.url}/chat/completions"
            async with DirectTransport().post(url, headers=(), body=b"{}") as refused:
                assert refused.status == 401
            able = (await anyio.to_thread.run_sync(told, where, "/props"))["chat_template_caps"]
            assert able["supports_tools"] and able["supports_tool_calls"], "by our own template"
            (pid,) = children()
            assert await running.start_endpoint() == where
            os.kill(pid, signal.SIGKILL)
            while await running.start_endpoint() == where:  # until the kernel has told us
                await anyio.lowlevel.checkpoint()
            asked = {"prompt": "Hello", "n_predict": 2}
            assert (await posted(running, "/completion", asked))[0] == 200
        assert not children()

    anyio.run(main)


def told(where: ModelEndpoint, path: str) -> Any:
    """What a server says of itself."""
    url = where.url.removesuffix("/v1") + path
    with urlopen(UrlRequest(url, headers=dict(where.headers))) as got:
        return json.load(got)


def slot(where: ModelEndpoint) -> dict[str, Any]:
    """What the one slot of a server is doing."""
    return told(where, "/slots")[0]


def test_whoever_stops_listening_stops_the_generation() -> None:
    asked = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}

    async def main() -> int:
        async with engine() as running:
            where = await running.start_endpoint()
            url = where.url.removesuffix("/v1") + "/completion"
            body = json.dumps(asked).encode()
            async with DirectTransport().post(url, headers=where.headers, body=body) as response:
                await anext(response.chunks)
            seen = await anyio.to_thread.run_sync(slot, where)
            while seen["is_processing"]:
                seen = await anyio.to_thread.run_sync(slot, where)
            return seen["next_token"][0]["n_decoded"]

    assert anyio.run(main) < 900


def test_under_the_grammar_it_says_calls_that_tools_take_with_words_of_the_request() -> None:
    async def main() -> tuple[str, Text | Call]:
        async with engine(window=2_048) as running:
            mind = SmolLm(running, DirectTransport())
            guided = SmolLmModel(lambda: ExampleIndex(StaticEmbedder(), EXAMPLES), mind)
            any_tool = await mind.choose_call(TEXT, [], build_call_grammar(SCHEMAS, TEXT))
            return any_tool, await guided.answer(LocalRequest(UNSURE, SCHEMAS, ()))

    said, made = anyio.run(main)
    tool, _, args = said.partition(" ")
    assert Draft202012Validator(SCHEMAS[tool]).is_valid(json.loads(args)), args
    assert isinstance(made, Call)
    assert (made.name, json.loads(made.args)["file_path"] in UNSURE) == ("Read", True)


def test_it_ends_with_whoever_wanted_it_and_says_nothing_but_where_it_is() -> None:
    order = json.dumps({"path": str(HERE), "window": 512, "key": "k"})
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "travois.local_model.serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin and child.stdout
    child.stdin.write(f"{order}\n".encode())
    child.stdin.flush()
    assert json.loads(child.stdout.readline())["url"].startswith("http://127.0.0.1:")
    child.stdin.close()
    assert child.wait(300) == 0
    assert child.stdout.read() == b""
    child.stdout.close()
