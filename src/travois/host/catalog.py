"""Which model a name means, and where it is served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.kernel.faults import Fault
from travois.kernel.models import Model, Price, Protocol, Quirk

LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
UNKNOWN_WINDOW = 200_000
MAX_OUTPUT = 32_000
"""The longest reply unless settings say otherwise: models allow more, few replies need it."""


class Provider(msgspec.Struct, frozen=True):
    """Somebody who serves models: protocol, address, and where the key is found."""

    protocol: Protocol
    url: str
    url_env: str = ""
    key_env: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    quirks: tuple[Quirk, ...] = ()
    default: str = ""


class Known(msgspec.Struct, frozen=True):
    """What the catalogue says of a model."""

    window: int
    output: int
    price: Price = Price()
    cache_min: int = 1024


class Catalog(msgspec.Struct, frozen=True):
    """All providers and models by name."""

    providers: dict[str, Provider]
    models: dict[str, Known]


class Endpoint(msgspec.Struct, frozen=True):
    """Where a model is reached, and with what; never written to a log."""

    url: str
    headers: tuple[tuple[str, str], ...]
    key_source: str


@cache
def catalog() -> Catalog:
    """The catalogue that ships with Travois."""
    text = Path(__file__).with_name("catalog.toml").read_bytes()
    return msgspec.toml.decode(text, type=Catalog)


def resolve(name: str, env: Mapping[str, str]) -> Model:
    """The model of that name: `provider/id`, an id of the catalogue, or empty for the default."""
    bare, window = _suffix(name)
    provider, id = _named(bare, env) if bare else _default(env)
    served = catalog().providers[provider]
    known = catalog().models.get(f"{provider}/{id}")
    model = Model(
        provider=provider,
        id=id,
        protocol=served.protocol,
        window=known.window if known else UNKNOWN_WINDOW,
        output=min(known.output, MAX_OUTPUT) if known else MAX_OUTPUT,
        price=known.price if known else Price(),
        quirks=_quirks(provider, served, env),
    )
    return replace(model, window=window) if window else model


def endpoint(model: Model, env: Mapping[str, str]) -> Endpoint:
    """Where and with which key this model is reached; raises `Fault` when there is no key."""
    served = catalog().providers[model.provider]
    url = (env.get(served.url_env) or served.url).rstrip("/")
    if not re.match(r"https?://[^/]", url):
        raise Fault(
            f"{served.url_env} is not a web address",
            why=repr(url),
            fix="It must begin with http:// or https://.",
        )
    for name in served.key_env:
        if key := env.get(name, "").strip():
            return Endpoint(url, _auth(name, key), name)
    if served.key_env and not _local(url):
        names = " or ".join(served.key_env)
        raise Fault(
            f"No API key for {model.name}",
            why=f"{names} is not set",
            fix=f"Set {names} in your environment, or choose another model with --model.",
        )
    return Endpoint(url, (), "none")


def _auth(name: str, key: str) -> tuple[tuple[str, str], ...]:
    if not key.isascii() or not key.isprintable():
        raise Fault(f"{name} holds characters that no key has", fix="Copy the key anew.")
    if name == "ANTHROPIC_API_KEY":
        return (("x-api-key", key),)
    return (("authorization", f"Bearer {key}"),)


def _suffix(name: str) -> tuple[str, int]:
    """A window may stand behind the name: `claude-opus-4-5[1m]`, `qwen3[32k]`."""
    found = re.fullmatch(r"(.+)\[(\d+)([kKmM])\]", name.strip())
    if not found:
        return name.strip(), 0
    unit = 1_000 if found[3] in "kK" else 1_000_000
    return found[1], int(found[2]) * unit


def _named(name: str, env: Mapping[str, str]) -> tuple[str, str]:
    providers = catalog().providers
    head, slash, rest = name.partition("/")
    if slash and head in providers and rest:
        return head, rest
    for provider, served in providers.items():
        if f"{provider}/{name}" in catalog().models or name.startswith(served.prefixes or ("\0",)):
            return provider, name
    for provider, served in providers.items():  # a server of the user's own may call it anything
        if served.url_env and env.get(served.url_env):
            return provider, name
    raise Fault(f"Unknown model {name!r}", why=_nearest(name), fix=UNKNOWN_FIX)


UNKNOWN_FIX = (
    "Write --model provider/id for a model that is not in the catalogue, for example "
    "openai/my-model with OPENAI_BASE_URL set to its server."
)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    names = [model.partition("/")[2] for model in catalog().models]
    close = get_close_matches(name.rpartition("/")[2], names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else "no provider serves that name"


def _default(env: Mapping[str, str]) -> tuple[str, str]:
    providers = catalog().providers
    for name, served in providers.items():
        if served.default and any(env.get(key) for key in served.key_env):
            return name, served.default
    for name, served in providers.items():
        if served.default and served.url_env and env.get(served.url_env):
            return name, served.default
    raise Fault(
        "No model to talk to",
        why="neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set, and no --model was given",
        fix="export ANTHROPIC_API_KEY=…, or OPENAI_BASE_URL=http://localhost:11434/v1 "
        "with --model openai/NAME for a server of your own.",
    )


def _quirks(provider: str, served: Provider, env: Mapping[str, str]) -> tuple[Quirk, ...]:
    """A server of the user's own behind OPENAI_BASE_URL gets the plainest dialect."""
    url = env.get(served.url_env, "") if served.url_env else ""
    if provider == "openai" and url and "api.openai.com" not in url:
        return ("max-tokens", "system-role")
    return served.quirks


def _local(url: str) -> bool:
    from urllib.parse import urlsplit

    return (urlsplit(url).hostname or "") in LOOPBACK
