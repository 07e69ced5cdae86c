"""Names of models, addresses and keys, as people really write them."""

from __future__ import annotations

import msgspec
import pytest
from bench.catalog import HOST, made

from travois.core.cost import compute_cost
from travois.core.errors import UserError
from travois.core.models import ModelCard, Price, Usage
from travois.providers.catalog import (
    ModelEndpoint,
    find_small_model,
    is_local_url,
    load_catalog,
    merge_catalog,
    resolve_endpoint,
    resolve_model,
)
from travois.providers.discovery import runs_on_this_machine
from travois.providers.sigv4 import AwsCredentials

KEY = {"ANTHROPIC_API_KEY": "sk-ant"}
OPENAI = {"OPENAI_API_KEY": "sk-oai"}
OWN = {"OPENAI_BASE_URL": "http://localhost:8000/v1"}


def test_what_is_read_is_what_people_wrote() -> None:
    assert (HOST / "catalog.json").read_bytes() == made()


NAMES: list[tuple[str, dict[str, str], str]] = [
    ("claude-opus-5-5", {}, "anthropic/claude-opus-5-5"),
    ("  claude-opus-5-5\n", {}, "anthropic/claude-opus-5-5"),
    ("anthropic/claude-opus-5-5", {}, "anthropic/claude-opus-5-5"),
    ("claude-of-the-future", {}, "anthropic/claude-of-the-future"),
    ("anthropic/anything", {}, "anthropic/anything"),
    ("opus", {}, "anthropic/claude-opus-5-5"),
    ("anthropic/haiku", {}, "anthropic/claude-haiku-5-5"),
    ("gpt-6.1-sol", {}, "openai/gpt-6.1-sol"),
    ("gpt-9", {}, "openai/gpt-9"),
    ("o3-mini", {}, "openai/o3-mini"),
    ("deepseek-chat", {}, "deepseek/deepseek-chat"),
    ("devstral-small", {}, "mistral/devstral-small"),
    ("openrouter/anthropic/claude-opus-5", {}, "openrouter/anthropic/claude-opus-5"),
    ("ollama/qwen3:32b", {}, "ollama/qwen3:32b"),
    ("qwen3", OWN, "openai/qwen3"),
    ("meta-llama/Llama-4", OWN, "openai/meta-llama/Llama-4"),
    ("qwen3", {"ANTHROPIC_BASE_URL": "http://localhost:1"}, "anthropic/qwen3"),
    ("qwen3[32k]", OWN, "openai/qwen3"),
    ("", KEY, "anthropic/claude-opus-5-5"),
    (" ", OPENAI, "openai/gpt-6.1-sol"),
    ("", {**OPENAI, **KEY}, "anthropic/claude-opus-5-5"),
    ("", {"ANTHROPIC_API_KEY": " ", **OPENAI}, "openai/gpt-6.1-sol"),
    ("", {"ANTHROPIC_AUTH_TOKEN": "t"}, "anthropic/claude-opus-5-5"),
    ("", {"ANTHROPIC_BASE_URL": "http://localhost:1"}, "anthropic/claude-opus-5-5"),
]


@pytest.mark.parametrize(("name", "env", "meant"), NAMES)
def test_a_name_means_one_model(name: str, env: dict[str, str], meant: str) -> None:
    assert resolve_model(name, env).name == meant


UNKNOWN = [
    ("claude/opus", "Unknown model 'claude/opus': there is no provider 'claude'"),
    ("antropic/claude-opus-5-5", "did you mean anthropic/claude-opus-5-5?"),
    ("calude-opus-5-5", "did you mean claude-opus-5-5 or "),
    ("zzz", "Unknown model 'zzz': the catalogue has nothing similar"),
    ("anthropic/", "Unknown model 'anthropic/'"),
    ("/opus", "Unknown model '/opus'"),
    ("opus[big]", "Write the window after the name"),
    ("opus[0k]", "Write the window after the name"),
    ("opus[1m", "Write the window after the name"),
    ("[1m]", "Write the window after the name"),
    ("", "No model is configured"),
]


@pytest.mark.parametrize(("name", "words"), UNKNOWN)
def test_a_name_that_means_nothing_is_a_fault_that_helps(name: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_model(name, {})
    assert words in str(caught.value)
    assert caught.value.fix


def test_a_model_comes_with_what_is_known_of_it() -> None:
    assert resolve_model("opus", {}) == ModelCard(
        provider="anthropic",
        id="claude-opus-5-5",
        protocol="anthropic",
        window=1_000_000,
        output=32_000,
        quirks=("thinking-summaries",),
        price=Price(input=4, output=20, read=0.20, write=5, write_1h=8),
        betas=("context-management-2025-06-27", "compact-2026-09-04"),
    )


def test_an_edition_of_a_known_model_is_as_known() -> None:
    dated = resolve_model("claude-haiku-4-5-20251001", {})
    assert dated == msgspec.structs.replace(resolve_model("claude-haiku-4-5", {}), id=dated.id)
    assert resolve_model("claude-opus-5-9", {}).price == Price()


SIZES = [
    ("opus[200k]", 200_000, 32_000),
    ("opus[2M]", 2_000_000, 32_000),
    ("ollama/qwen3[32k]", 32_000, 8_000),
    ("ollama/qwen3[8K]", 8_000, 2_000),
    ("ollama/qwen3", 32_768, 8_192),
    ("llamacpp/qwen3", 200_000, 32_000),
]


@pytest.mark.parametrize(("name", "window", "output"), SIZES)
def test_a_window_may_stand_behind_the_name_and_leaves_room_for_the_prompt(
    name: str, window: int, output: int
) -> None:
    model = resolve_model(name, {})
    assert (model.window, model.output) == (window, output)


def test_a_server_of_ones_own_gets_the_plainest_dialect() -> None:
    assert resolve_model("openai/x", {}).quirks == ()
    assert resolve_model("openai/x", {"OPENAI_BASE_URL": "https://api.openai.com/v1"}).quirks == ()
    assert resolve_model("openai/x", OWN).quirks == ("max-tokens", "system-role")


ADDRESSES: list[tuple[str, str, str]] = [
    ("anthropic/x", "https://gateway.test", "https://gateway.test"),
    ("anthropic/x", " https://gateway.test/ ", "https://gateway.test"),
    ("anthropic/x", "https://gateway.test/v1", "https://gateway.test"),
    ("anthropic/x", "https://gateway.test/v1/", "https://gateway.test"),
    ("anthropic/x", "https://gateway.test/v1/messages", "https://gateway.test"),
    ("anthropic/x", "https://gateway.test/anthropic", "https://gateway.test/anthropic"),
    ("anthropic/x", "https://gateway.test/anthropic/v1//", "https://gateway.test/anthropic"),
    ("anthropic/x", "", "https://api.anthropic.com"),
    ("openai/x", "http://localhost:8000/v1", "http://localhost:8000/v1"),
    ("openai/x", "http://localhost:8000/v1/", "http://localhost:8000/v1"),
    ("openai/x", "http://localhost:8000", "http://localhost:8000/v1"),
    ("openai/x", "http://localhost:8000/", "http://localhost:8000/v1"),
    ("openai/x", "http://[::1]:8000", "http://[::1]:8000/v1"),
    ("openai/x", "https://host.test/v1/chat/completions", "https://host.test/v1"),
    (
        "openai/x",
        "https://host.test/openai/deployments/d",
        "https://host.test/openai/deployments/d",
    ),
    ("openai/x", "", "https://api.openai.com/v1"),
    ("openai/x", "  ", "https://api.openai.com/v1"),
]


@pytest.mark.parametrize(("name", "given", "url"), ADDRESSES)
def test_an_address_is_taken_as_people_paste_it(name: str, given: str, url: str) -> None:
    model = resolve_model(name, {})
    variable = f"{model.provider.upper()}_BASE_URL"
    assert resolve_endpoint(model, {**KEY, **OPENAI, variable: given}).url == url


NO_ADDRESS = [
    ("localhost:8000/v1", "Write it as http://localhost:8000/v1."),
    ("api.example.test", "Write it as https://api.example.test."),
    ("ftp://host.test", "Correct the URL."),
    ("http://", "Correct the URL."),
    ("http:///v1", "Correct the URL."),
    ("http://host:port/v1", "Correct the URL."),
    ("http://host:99999/v1", "Correct the URL."),
    ("http://ho st/v1", "Correct the URL."),
    ("http://höst/v1", "Correct the URL."),
    ("http://host/v1?key=1", "Correct the URL."),
    ("http://[::1/v1", "Correct the URL."),
]


@pytest.mark.parametrize(("given", "fix"), NO_ADDRESS)
def test_what_is_no_address_is_a_fault_that_names_the_variable(given: str, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_endpoint(resolve_model("openai/x", {}), {**OPENAI, "OPENAI_BASE_URL": given})
    assert caught.value.what == "OPENAI_BASE_URL is not a valid URL"
    assert caught.value.fix == fix


KEYS: list[tuple[str, dict[str, str], tuple[tuple[str, str], ...], str]] = [
    ("anthropic/x", KEY, (("x-api-key", "sk-ant"),), "ANTHROPIC_API_KEY"),
    (
        "anthropic/x",
        {"ANTHROPIC_API_KEY": " sk-ant\n"},
        (("x-api-key", "sk-ant"),),
        "ANTHROPIC_API_KEY",
    ),
    (
        "anthropic/x",
        {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": "t"},
        (("authorization", "Bearer t"),),
        "ANTHROPIC_AUTH_TOKEN",
    ),
    (
        "anthropic/x",
        {**KEY, "ANTHROPIC_AUTH_TOKEN": "t"},
        (("x-api-key", "sk-ant"),),
        "ANTHROPIC_API_KEY",
    ),
    ("openai/x", OPENAI, (("authorization", "Bearer sk-oai"),), "OPENAI_API_KEY"),
    ("openai/x", OWN, (), "none"),
    ("openai/x", {**OWN, **OPENAI}, (("authorization", "Bearer sk-oai"),), "OPENAI_API_KEY"),
    ("ollama/x", {}, (), "none"),
    ("ollama/x", {"OLLAMA_BASE_URL": "http://gpu.lan:11434/v1"}, (), "none"),
]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://localhost:11434"),
        ("gpu.lan", "http://gpu.lan:11434"),
        ("gpu.lan:80", "http://gpu.lan:80"),
        (":8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:8080", "http://127.0.0.1:8080"),
        ("[::1]", "http://[::1]:11434"),
        ("https://models.example/ollama/", "https://models.example/ollama"),
        ("'http://gpu.lan:1'", "http://gpu.lan:1"),
    ],
)
def test_ollama_is_found_where_its_own_variable_says(host: str, url: str) -> None:
    env = {"OLLAMA_HOST": host}
    assert resolve_endpoint(resolve_model("ollama/x", env), env).url == url
    env["OLLAMA_BASE_URL"] = "http://other.lan:2"
    assert resolve_endpoint(resolve_model("ollama/x", env), env).url == "http://other.lan:2"


@pytest.mark.parametrize(("name", "env", "headers", "source"), KEYS)
def test_a_key_is_found_and_sent_in_one_header(
    name: str, env: dict[str, str], headers: tuple[tuple[str, str], ...], source: str
) -> None:
    found = resolve_endpoint(resolve_model(name, env), env)
    assert (found.headers, found.key_source) == (headers, source)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN is not set"),
        ({"ANTHROPIC_API_KEY": " "}, "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN is empty"),
        (OPENAI, "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN is not set"),
        (
            {"ANTHROPIC_BASE_URL": "https://gateway.test"},
            "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN is not set",
        ),
    ],
)
def test_no_key_is_a_fault_that_says_which(env: dict[str, str], why: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_endpoint(resolve_model("opus", {}), env)
    assert (caught.value.what, caught.value.why) == (
        "No API key for anthropic/claude-opus-5-5",
        why,
    )


@pytest.mark.parametrize("key", ["sk-ant\nX-Evil: 1", "sk ant", "sk-änt", "“sk-ant”", "sk\0ant"])
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_endpoint(resolve_model("opus", {}), {"ANTHROPIC_API_KEY": key})
    assert caught.value.what == "ANTHROPIC_API_KEY contains characters that no API key has"
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1", True),
        ("http://LOCALHOST", True),
        ("http://lab.localhost/v1", True),
        ("http://127.0.0.1", True),
        ("http://127.8.9.10:1", True),
        ("http://[::1]:1", True),
        ("http://0.0.0.0:11434", True),
        ("http://localhost.example.test", False),
        ("http://127.0.0.1.example.test", False),
        ("http://192.168.0.1", False),
        ("http://notlocalhost", False),
    ],
)
def test_only_this_machine_is_local(url: str, local: bool) -> None:
    assert is_local_url(url) is local


# --- the user's own -------------------------------------------------------------------------------

EXTRA = {
    "providers": {
        "house": {
            "protocol": "anthropic",
            "url": "https://models.house.test/v1",
            "key_env": ["HOUSE_KEY"],
            "prefixes": ["house-"],
        },
        "anthropic": {"default": "claude-sonnet-5-5"},
    },
    "models": {
        "house/house-1": {"window": 64_000, "images": False},
        "anthropic/claude-opus-5-5": {"price": {"input": 1}},
    },
}


def test_providers_and_models_of_ones_own_lie_over_ours_field_by_field() -> None:
    among = merge_catalog(EXTRA)
    house = resolve_model("house-1", {}, among=among)
    assert house == ModelCard(
        provider="house",
        id="house-1",
        protocol="anthropic",
        window=64_000,
        output=16_000,
        images=False,
    )
    assert resolve_endpoint(house, {"HOUSE_KEY": "k"}, among=among) == ModelEndpoint(
        "https://models.house.test", (("x-api-key", "k"),), "HOUSE_KEY"
    )
    assert resolve_model("", KEY, among=among).id == "claude-sonnet-5-5"
    opus = resolve_model("opus", {}, among=among)
    assert (opus.price, opus.window) == (Price(input=1), 1_000_000)
    assert load_catalog() == merge_catalog({})


@pytest.mark.parametrize(
    ("extra", "where"),
    [
        ({"models": {"x/y": {"window": "big"}}}, "models.x/y.window is not valid"),
        ({"models": {"x/y": {}}}, "models.x/y is not valid"),
        ({"models": {"x/y": 7}}, "models.x/y is not valid"),
        ({"models": {"x/y": {"window": 1, "size": 2}}}, "models.x/y is not valid"),
        ({"modles": {}}, "The model catalogue has no 'modles'"),
        (
            {"providers": {"x": {"protocol": "smoke", "url": ""}}},
            "providers.x.protocol is not valid",
        ),
        (
            {"providers": {"anthropic": {"quirks": ["odd"]}}},
            "providers.anthropic.quirks[0] is not valid",
        ),
    ],
)
def test_a_table_that_makes_no_sense_is_a_fault_that_says_where(
    extra: dict[str, dict[str, object]], where: str
) -> None:
    with pytest.raises(UserError) as caught:
        merge_catalog(extra)
    assert caught.value.what == where
    assert caught.value.fix


def test_a_fault_names_whoever_wrote_the_entry() -> None:
    with pytest.raises(UserError) as caught:
        merge_catalog({"providers": {"x": {"url": 7}}}, where=lambda key: "my.json")
    assert str(caught.value).startswith("my.json: providers.x.url is not valid: Expected `str`")


def test_fields_may_be_spelled_as_in_settings() -> None:
    among = merge_catalog({"providers": {"x": {"protocol": "chat", "url": "u", "keyEnv": ["K"]}}})
    assert among.providers["x"].key_env == ("K",)


# --- other clouds ---------------------------------------------------------------------------------

BEDROCK = "bedrock/anthropic.claude-opus-5-5-v1:0"
VERTEX = "vertex/claude-sonnet-4-5@20250929"
CLOUDS: list[tuple[str, dict[str, str], ModelEndpoint]] = [
    (
        BEDROCK,
        {"AWS_BEARER_TOKEN_BEDROCK": "b", "AWS_REGION": "eu-west-1"},
        ModelEndpoint(
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
            (("authorization", "Bearer b"),),
            "AWS_BEARER_TOKEN_BEDROCK",
            "bedrock",
        ),
    ),
    (
        BEDROCK,
        {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"},
        ModelEndpoint(
            "https://bedrock-runtime.us-east-1.amazonaws.com",
            (),
            "AWS_ACCESS_KEY_ID",
            "bedrock",
            AwsCredentials("k", "s", "t"),
        ),
    ),
    (
        VERTEX,
        {"CLOUDSDK_AUTH_ACCESS_TOKEN": "t", "GOOGLE_CLOUD_PROJECT": "p-1"},
        ModelEndpoint(
            "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global",
            (("authorization", "Bearer t"),),
            "CLOUDSDK_AUTH_ACCESS_TOKEN",
            "vertex",
        ),
    ),
    (
        VERTEX,
        {
            "VERTEX_ACCESS_TOKEN": "t",
            "ANTHROPIC_VERTEX_PROJECT_ID": "p",
            "CLOUD_ML_REGION": "us-east5",
        },
        ModelEndpoint(
            "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5",
            (("authorization", "Bearer t"),),
            "VERTEX_ACCESS_TOKEN",
            "vertex",
        ),
    ),
    (
        "azure/gpt-6.1-sol",
        {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_RESOURCE": "mine"},
        ModelEndpoint(
            "https://mine.openai.azure.com/openai/v1",
            (("authorization", "Bearer k"),),
            "AZURE_OPENAI_API_KEY",
        ),
    ),
    (
        "foundry/claude-opus-5-5",
        {"ANTHROPIC_FOUNDRY_API_KEY": "k", "ANTHROPIC_FOUNDRY_RESOURCE": "mine"},
        ModelEndpoint(
            "https://mine.services.ai.azure.com/anthropic",
            (("x-api-key", "k"),),
            "ANTHROPIC_FOUNDRY_API_KEY",
        ),
    ),
    (
        "gemini-2.5-pro",
        {"GEMINI_API_KEY": "k"},
        ModelEndpoint(
            "https://generativelanguage.googleapis.com",
            (("x-goog-api-key", "k"),),
            "GEMINI_API_KEY",
        ),
    ),
]


@pytest.mark.parametrize(("name", "env", "there"), CLOUDS)
def test_every_cloud_has_its_own_address_and_proof(
    name: str, env: dict[str, str], there: ModelEndpoint
) -> None:
    assert resolve_endpoint(resolve_model(name, env), env) == there


def test_a_model_of_anthropic_costs_the_same_wherever_it_is_served() -> None:
    opus, sonnet = resolve_model(BEDROCK, {}), resolve_model(VERTEX, {})
    assert (opus.price, opus.window) == (resolve_model("opus", {}).price, 1_000_000)
    assert (sonnet.price, sonnet.window) == (resolve_model("claude-sonnet-4-5", {}).price, 200_000)


@pytest.mark.parametrize(
    ("name", "env", "what"),
    [
        (VERTEX, {"VERTEX_ACCESS_TOKEN": "t"}, "ANTHROPIC_VERTEX_PROJECT_ID is not set"),
        (
            VERTEX,
            {"VERTEX_ACCESS_TOKEN": "t", "ANTHROPIC_VERTEX_PROJECT_ID": "p/../x"},
            "ANTHROPIC_VERTEX_PROJECT_ID is not a valid name",
        ),
        (BEDROCK, {"AWS_ACCESS_KEY_ID": "k"}, f"No API key for {BEDROCK}"),
    ],
)
def test_what_a_cloud_lacks_is_named(name: str, env: dict[str, str], what: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_endpoint(resolve_model(name, env), env)
    assert caught.value.what == what


def test_a_provider_that_is_no_longer_described_is_a_fault() -> None:
    with pytest.raises(UserError, match="No provider for gone/x"):
        resolve_endpoint(ModelCard("gone", "x", "chat"), {})


def test_a_session_of_an_older_protocol_still_finds_its_server() -> None:
    assert resolve_endpoint(ModelCard("ollama", "x", "chat"), {}).url == "http://localhost:11434/v1"


@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("opus", "anthropic/claude-haiku-5-5"),
        ("haiku", ""),
        ("gpt-6.1-sol", "openai/gpt-6-luna"),
        ("gemini-2.5-pro", "gemini/gemini-3.5-flash-lite"),
        ("kimi-k3", "moonshot/kimi-k2.7-code"),
        ("kimi-k2.7-code", ""),
        ("ollama/x", ""),
    ],
)
def test_small_questions_have_a_smaller_model(name: str, smaller: str) -> None:
    assert find_small_model(resolve_model(name, {})) == smaller


def test_openai_is_spoken_to_in_responses_and_its_imitators_in_chat() -> None:
    assert resolve_model("gpt-6.1-sol", {}).protocol == "responses"
    assert resolve_model("gpt-6.1-sol", OWN).protocol == "chat"


# --- what ships -----------------------------------------------------------------------------------


def test_every_model_of_the_catalogue_has_a_provider_a_window_and_a_price() -> None:
    for name, known in load_catalog().models.items():
        provider, _, id = name.partition("/")
        assert resolve_model(name if "/" in id else id, {}).name == name
        assert provider in load_catalog().providers
        assert 0 < known.output < known.window
        free = provider == "local" and known.price == Price()
        assert free or 0 < known.price.read < known.price.input < known.price.output


def test_defaults_and_aliases_are_in_the_catalogue() -> None:
    for provider, served in load_catalog().providers.items():
        for id in (*served.aliases.values(), *((served.default,) if served.default else ())):
            assert f"{provider}/{id}" in load_catalog().models


def test_a_long_prompt_costs_haiku_what_its_list_says() -> None:
    price = resolve_model("haiku", {}).price
    short = Usage(input=50_000, read=30_000, write=10_000, write_1h=10_000, output=1_000)
    assert compute_cost(short, price) == pytest.approx(
        (50_000 * 0.10 + 30_000 * 0.01 + 10_000 * 0.125 + 10_000 * 0.20 + 1_000 * 0.50) / 1e6
    )
    long = msgspec.structs.replace(short, input=50_001)
    assert compute_cost(long, price) == pytest.approx(
        (50_001 * 0.50 + 30_000 * 0.05 + 10_000 * 0.625 + 10_000 * 1.0 + 1_000 * 2.50) / 1e6
    )


@pytest.mark.parametrize(
    ("name", "env", "here"),
    [
        ("ollama/qwen3", {}, True),
        ("ollama/qwen3", {"OLLAMA_HOST": "10.0.0.5"}, False),
        ("llamacpp/any", {}, True),
        ("openai/qwen3", OWN, True),
        ("openai/qwen3", {"OPENAI_BASE_URL": "https://gpu.example.com/v1", **OPENAI}, False),
        ("openai/gpt-6-sol", OPENAI, False),
        ("anthropic/qwen3", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:11434"}, True),
        ("anthropic/claude-haiku-4-5", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:4000"}, False),
        ("claude-haiku-4-5-20251001", {"ANTHROPIC_BASE_URL": "http://localhost:4000"}, False),
        ("anthropic/claude-haiku-4-5", KEY, False),
        ("anthropic/unheard-of", {}, False),
    ],
)
def test_what_runs_here_and_what_is_hosted_also_behind_a_proxy(
    name: str, env: dict[str, str], here: bool
) -> None:
    assert runs_on_this_machine(resolve_model(name, env), env) is here
