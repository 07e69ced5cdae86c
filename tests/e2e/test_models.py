"""`travois models`, and a server that is found by itself."""

from __future__ import annotations

import json

import pytest

import travois_lab as lab
from tests.e2e.program import Program

PONG = [{"tool_use": {"name": "ping", "input": {"word": "pong"}}}]
EMPTY = dict.fromkeys(
    ("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL"),
    "http://127.0.0.1:9",
)
"""Places on this machine where nobody answers."""


def test_the_list_tells_prices_and_keys(program: Program) -> None:
    program.extra = {"OPENAI_API_KEY": "k"}
    settings = {"models": {"ollama/qwen3.8": {"window": 65_536, "images": False}}}
    done = program.run("models", "list", "--settings", json.dumps(settings))
    assert done.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if "/" in line}
    assert rows["openai/gpt-6.1-sol"] == ["922,000", "2", "10", "0.1", "OPENAI_API_KEY"]
    assert rows["anthropic/claude-opus-5-5"] == ["1,000,000", "4", "20", "0.2", "-"]
    assert rows["ollama/qwen3.8"] == ["65,536", "?", "?", "?", "none"]
    told = {row["name"]: row for row in json.loads(program.run("models", "--json").out)}
    assert told["anthropic/claude-haiku-4-5"] == {
        "name": "anthropic/claude-haiku-4-5",
        "protocol": "anthropic",
        "window": 200_000,
        "output": 32_000,
        "price": {"input": 1.0, "output": 5.0, "read": 0.1, "write": 1.25, "write_1h": 2.0},
        "key": "",
    }


def test_every_value_says_where_it_comes_from(program: Program) -> None:
    home = program.home
    home.mkdir()
    house = {"protocol": "chat", "url": "https://house.test/v1", "keyEnv": ["HOUSE_KEY"]}
    settings = {"providers": {"house": house}, "models": {"house/a.1": {"window": 64_000}}}
    (home / "settings.json").write_text(json.dumps(settings))
    done = program.run("models", "show", "house/a.1")
    rows = {line.split("  ")[0].strip(): line for line in done.out.splitlines()}
    where = str(home / "settings.json")
    assert rows["window"].split()[1:] == ["64,000", "tokens", where]
    assert rows["address"].split(maxsplit=1)[1].startswith("unknown")
    assert "HOUSE_KEY is not set" in rows["key"]
    assert rows["protocol"].split()[1:] == ["chat", where]
    assert program.run("models", "show", "housee/a.1").code == 2


@pytest.mark.parametrize("protocol", ["anthropic", "responses", "gemini", "ollama", "chat"])
def test_a_test_says_what_works(program: Program, protocol: str) -> None:
    path = "/v1" if protocol in ("responses", "chat") else ""
    model = {"window": 100_000, "price": {"input": 1, "output": 2}}
    with lab.server([{"say": PONG}]) as api:
        program.extra = {"HOUSE_KEY": "k"}
        served = {"protocol": protocol, "url": api.url + path, "keyEnv": ["HOUSE_KEY"]}
        settings = {"providers": {"house": served}, "models": {"house/claude-opus-5-5": model}}
        done = program.run(
            "models", "test", "house/claude-opus-5-5", "--settings", json.dumps(settings)
        )
        assert (done.code, done.err) == (0, "")
        api.no_invalid()
        usage = api.ledger[0].usage
    first, *lines = done.out.splitlines()
    assert first.startswith("house/claude-opus-5-5 answered in ")
    assert lines == [
        "  stream: yes",
        "  tools: yes",
        "  cache: not for such a small request",
        "  images: not tested; yes according to the catalog",
        f"  tokens: {usage.prompt:,} in, {usage.output:,} out, counted by the server",
        f"  cost: ${(usage.prompt + 2 * usage.output) / 1e6:.6f}",
    ]


def test_a_test_that_fails_says_why(program: Program) -> None:
    with lab.server([], keys=("other",)) as api:
        program.extra = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-wrong"}
        done = program.run("models", "test", "opus")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("travois: anthropic/claude-opus-5-5 does not work: auth: ")


def test_a_server_on_this_machine_is_found_and_said(program: Program) -> None:
    models = {"qwen3": {"family": "openai", "window": 20_000}}
    with lab.server([{"say": "Hi.", "repeat": True}], models=models) as api:
        program.extra = {**EMPTY, "OLLAMA_BASE_URL": api.url}
        done = program.run("-p", "hello")
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
        body = api.bodies[0]
    line = f"no API key is set: ollama/{body['model']} answers, found at {api.url}"
    assert line in done.err


@pytest.mark.parametrize(
    ("extra", "flags"),
    [({"CI": "true"}, ()), ({}, ("--settings", '{"local":{"fallback":false}}'))],
)
def test_where_the_embedded_model_is_not_wanted_there_is_nobody_to_talk_to(
    program: Program, extra: dict[str, str], flags: tuple[str, ...]
) -> None:
    program.extra = EMPTY | extra
    done = program.run("-p", "hello", *flags)
    assert (done.code, done.out) == (2, "")
    assert "No model is configured" in done.err
    assert "--model local/smollm2" in done.err
