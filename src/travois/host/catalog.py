"""Which model a name means, and where it is served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

import msgspec

from travois.kernel.faults import Fault
from travois.kernel.models import Model, Price, Protocol, Quirk

UNKNOWN_WINDOW = 200_000
MAX_OUTPUT = 32_000
"""The longest reply unless settings say otherwise: models allow more, few replies need it."""
DATED = re.compile(r"(.+?)(?:[-@]\d{8}|-latest)")
"""One edition of a model of the catalogue: `claude-haiku-4-5-20251001`."""
LOCAL = re.compile(r"(.+\.)?localhost|127(\.\d+){3}|0\.0\.0\.0|::1", re.IGNORECASE)
ENDINGS = {"anthropic": ("/v1/messages", "/v1"), "chat": ("/chat/completions",)}
"""What people paste behind a base URL, and requests bring along themselves."""

Tables = dict[str, dict[str, dict[str, object]]]
"""The catalogue as it is written: `providers` and `models`, each by name."""


class Provider(msgspec.Struct, frozen=True):
    """Somebody who serves models: protocol, address, and where the key is found."""

    protocol: Protocol
    url: str
    url_env: str = ""
    key_env: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    """How the ids of its models begin, so that nobody need write the provider before them."""
    aliases: dict[str, str] = {}
    quirks: tuple[Quirk, ...] = ()
    betas: tuple[str, ...] = ()
    """What its models may be asked for beyond the plain protocol, until they refuse."""
    default: str = ""


class Known(msgspec.Struct, frozen=True):
    """What the catalogue says of a model."""

    window: int
    output: int = MAX_OUTPUT
    price: Price = Price()
    cache_min: int = 1024
    images: bool = True


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
    return msgspec.convert(_shipped(), Catalog)


def merged(extra: Mapping[str, object]) -> Catalog:
    """The catalogue with `providers` and `models` of the user's own laid over it, field by field.

    They have the shape of `catalog.toml`. A provider says where keys are sent, so they must never
    come from settings that a workspace brings along.
    """
    try:
        theirs = msgspec.convert(extra, Tables)
        return msgspec.convert({name: _laid(name, theirs) for name in _shipped()}, Catalog)
    except msgspec.ValidationError as error:
        raise Fault(
            "The settings describe a provider or model that makes no sense",
            why=str(error),
            fix="See catalog.toml for the fields; numbers are tokens, prices dollars per million.",
        ) from None


def resolve(name: str, env: Mapping[str, str], *, among: Catalog | None = None) -> Model:
    """The model of that name: `provider/id`, an id of the catalogue, or empty for the default."""
    known = among or catalog()
    bare, window = _suffix(name)
    provider, id = _named(bare, env, known) if bare else _default(env, known)
    served = known.providers[provider]
    about = _about(known, f"{provider}/{id}")
    window = window or about.window
    return Model(
        provider=provider,
        id=id,
        protocol=served.protocol,
        window=window,
        output=min(about.output, MAX_OUTPUT, max(1, window // 4)),
        price=about.price,
        quirks=_quirks(provider, served, env),
        betas=served.betas,
        images=about.images,
    )


def endpoint(model: Model, env: Mapping[str, str], *, among: Catalog | None = None) -> Endpoint:
    """Where and with which key this model is reached; raises `Fault` when there is no key."""
    served = (among or catalog()).providers[model.provider]
    url = _address(served, env)
    for name in served.key_env:
        if key := env.get(name, "").strip():
            return Endpoint(url, _auth(served, name, key), name)
    if served.key_env and not is_local(url):
        names = " or ".join(served.key_env)
        empty = any(name in env for name in served.key_env)
        raise Fault(
            f"No API key for {model.name}",
            why=f"{names} is {'empty' if empty else 'not set'}",
            fix=f"Set {names} in your environment, or choose another model with --model.",
        )
    return Endpoint(url, (), "none")


def is_local(url: str) -> bool:
    """Whether this URL leads to the same machine."""
    from urllib.parse import urlsplit

    return bool(LOCAL.fullmatch(urlsplit(url).hostname or ""))


@cache
def _shipped() -> Tables:
    text = Path(__file__).with_name("catalog.toml").read_bytes()
    return msgspec.toml.decode(text, type=Tables)


def _laid(name: str, over: Tables) -> dict[str, dict[str, object]]:
    ours, theirs = _shipped()[name], over.get(name, {})
    return {**ours, **{key: {**ours.get(key, {}), **theirs[key]} for key in theirs}}


def _about(known: Catalog, name: str) -> Known:
    dated = DATED.fullmatch(name)
    found = known.models.get(name) or (known.models.get(dated[1]) if dated else None)
    return found or Known(window=UNKNOWN_WINDOW)


def _address(served: Provider, env: Mapping[str, str]) -> str:
    """The base URL: what a request's path is put behind.

    Of a chat server's address that is only a host, `/v1` is meant: all servers listen there, few
    at the root. Any other path is taken at its word.
    """
    from urllib.parse import urlsplit

    given = env.get(served.url_env, "").strip() if served.url_env else ""
    url = (given or served.url).rstrip("/")
    for ending in ENDINGS[served.protocol]:
        url = url.removesuffix(ending).rstrip("/")
    _check(url, served.url_env)
    if served.protocol == "chat" and not urlsplit(url).path:
        return f"{url}/v1"
    return url


def _check(url: str, source: str) -> None:
    from urllib.parse import urlsplit

    scheme = "http" if is_local(f"//{url}") else "https"
    bare = "://" not in url and not url.endswith(":")
    fix = f"Write it like {scheme}://{url}." if bare else "Mend the address."
    what = f"{source or 'The address of the provider'} is not a web address"
    if not re.fullmatch(r"https?://[!-~]+", url) or re.search(r"[?#\\@]", url):
        raise Fault(what, why=repr(url), fix=fix)
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise Fault(what, why=f"{url!r}: {error}", fix=fix) from None
    if not named:
        raise Fault(what, why=repr(url), fix=fix)


def _auth(served: Provider, name: str, key: str) -> tuple[tuple[str, str], ...]:
    if not re.fullmatch(r"[!-~]+", key):
        raise Fault(f"{name} holds characters that no key has", fix="Copy the key anew.")
    if served.protocol == "anthropic" and not name.endswith("_TOKEN"):
        return (("x-api-key", key),)
    return (("authorization", f"Bearer {key}"),)


def _suffix(name: str) -> tuple[str, int]:
    """A window may stand behind the name: `claude-opus-4-5[1m]`, `qwen3[32k]`."""
    bare, bracket, window = name.strip().partition("[")
    found = re.fullmatch(r"([1-9]\d*)([km])\]", window, re.IGNORECASE)
    if found and bare:
        return bare.strip(), int(found[1]) * (1_000 if found[2] in "kK" else 1_000_000)
    if bracket:
        fix = "Write the window behind the name in thousands or millions of tokens: [32k] or [1m]."
        raise Fault(f"Unknown model {name.strip()!r}", fix=fix)
    return bare.strip(), 0


def _named(name: str, env: Mapping[str, str], known: Catalog) -> tuple[str, str]:
    head, slash, rest = name.partition("/")
    if slash and head in known.providers:
        served = known.providers[head]
        return (head, served.aliases.get(rest, rest)) if rest else _unknown(name, known)
    for provider, served in known.providers.items():
        id = served.aliases.get(name, name)
        if f"{provider}/{id}" in known.models or id.startswith(served.prefixes or ("\0",)):
            return provider, id
    for provider, served in known.providers.items():  # a server of one's own may call it anything
        if served.url_env and env.get(served.url_env, "").strip():
            return provider, name
    return _unknown(name, known)


def _unknown(name: str, known: Catalog) -> NoReturn:
    raise Fault(
        f"Unknown model {name!r}",
        why=_nearest(name, known),
        fix="Write --model provider/id for a model that is not in the catalogue, for example "
        "openai/my-model with OPENAI_BASE_URL set to its server.",
    )


def _nearest(name: str, known: Catalog) -> str:
    from difflib import get_close_matches

    head, slash, rest = name.partition("/")
    if slash:
        close = get_close_matches(head, known.providers, n=1)
        meant = f"did you mean {close[0]}/{rest}?" if close else ", ".join(known.providers)
        return f"no provider is called {head!r}; {'' if close else 'there are '}{meant}"
    close = get_close_matches(name, [model.partition("/")[2] for model in known.models], cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else "no provider serves that name"


def _default(env: Mapping[str, str], known: Catalog) -> tuple[str, str]:
    for names in ("key_env", "url_env"):
        for provider, served in known.providers.items():
            given = served.key_env if names == "key_env" else (served.url_env,)
            if served.default and any(env.get(name, "").strip() for name in given):
                return provider, served.default
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
