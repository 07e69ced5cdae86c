"""The model catalogue: resolves model names, providers, base URLs, API keys and prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn, TypeVar, cast
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.core.models import ApiProtocol, ModelCard, ModelQuirk, Price
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.providers.clouds import CloudPlatform
from travois.providers.http.tls import LOOPBACK_HOST
from travois.providers.sigv4 import AwsCredentials, read_aws_credentials

with lazy_imports():
    import difflib


# On which terms models may be used, as the user or the machine's administrator says.


class ModelPolicy(msgspec.Struct, frozen=True):
    """The user's rules for models: allow and deny lists, aliases, prices, key helper."""

    available: tuple[str, ...] = ()
    """The only ones that may; all if there are none."""
    denied: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    """The provider's names for models, by id."""
    prices: dict[str, Price] = {}
    """By id."""
    multiplier: float = 1.0
    """For all other prices."""
    helper: str = ""
    """A command that prints the key for Anthropic's API."""

    def allows(self, model: str) -> bool:
        """Return whether a model, as `provider/id`, is allowed."""
        listed = not self.available or any(
            _matches_model_word(word, model) for word in self.available
        )
        return listed and not any(_matches_model_word(word, model) for word in self.denied)

    def denial_error(self, model: str) -> UserError:
        """Return the error that explains why a model is not allowed."""
        listed = ", ".join(self.available)
        barred = any(_matches_model_word(word, model) for word in self.denied)
        why = "deniedModels lists it" if barred else f"availableModels lists only {listed}"
        return UserError(
            f"{model} is not allowed", why=why, fix="Choose another model with --model."
        )

    def price_of(self, id: str, price: Price) -> Price:
        """Return a model's price: its own if set, else the price times the multiplier."""
        return self.prices.get(id) or _multiply_price(price, self.multiplier)

    def key_helper_for(self, provider: str) -> str:
        """Return the command that prints the key for a provider; empty if there is none."""
        return self.helper if provider == "anthropic" else ""


def resolve_provider_headers(
    headers: Mapping[str, str], env: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return a provider's headers with `$VARIABLE` values resolved, without empty ones."""
    told = ((name, env.get(v[1:], "") if v[:1] == "$" else v) for name, v in headers.items())
    return tuple((name.lower(), value) for name, value in told if value)


def encode_query_suffix(query: Mapping[str, str]) -> str:
    """Encode a provider's extra query parameters for the end of its URL."""
    return f"?{urlencode(query)}" if query else ""


def _matches_model_word(word: str, model: str) -> bool:
    """Return whether a list entry names a model: its name, its ID, or a prefix or part of it."""
    id = model.partition("/")[2]
    return word in (model, id, *id.split("-")) or id.startswith(f"{word}-")


def _multiply_price(price: Price, factor: float) -> Price:
    """Multiply all parts of a model's price by the policy's factor."""
    if factor == 1.0:
        return price
    return replace(
        price,
        input=price.input * factor,
        output=price.output * factor,
        read=price.read * factor,
        write=price.write * factor,
        write_1h=price.write_1h * factor,
        above=price.above and _multiply_price(price.above, factor),
    )


# Where Ollama listens, by the variable that its users set for it.


OLLAMA_HOST_VARIABLE, OLLAMA_PORT = "OLLAMA_HOST", 11434
UNSPECIFIED_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - where a server listens, and nobody can be asked


def ollama_base_url(env: Mapping[str, str]) -> str:
    """Return Ollama's base URL from OLLAMA_HOST (host, port or whole URL); empty if unset."""
    said = env.get(OLLAMA_HOST_VARIABLE, "").strip().strip("\"'")
    if not said:
        return ""
    whole = "://" in said
    parts = urlsplit(said if whole else f"http://{said}")
    place = parts.netloc.rpartition("@")[2]
    name, _, port = place.rpartition(":") if _has_port(place) else (place, "", "")
    name = "127.0.0.1" if name.strip("[]") in UNSPECIFIED_HOSTS else name
    port = port or ("" if whole else str(OLLAMA_PORT))
    return f"{parts.scheme}://{name}" + (f":{port}" if port else "") + parts.path.rstrip("/")


def _has_port(place: str) -> bool:
    """Return whether an OLLAMA_HOST address has a port; colons in brackets do not count."""
    return ":" in place.rpartition("]")[2]


UNKNOWN_WINDOW = 200_000
MAX_OUTPUT_TOKENS = 32_000
"""The longest reply unless settings say otherwise: models allow more, few replies need it."""
DATED_MODEL_ID = r"(.+?)(?:[-@]\d{8}|-latest)"
"""One edition of a model of the catalogue: `claude-haiku-4-5-20251001`."""
CLAUDE_MODEL_ID = r"claude-[a-z]+-\d+(?:-\d)?(?!\d)"
"""A model of Anthropic's, whoever serves it under whatever longer name."""
ENDPOINT_PATHS: dict[ApiProtocol, tuple[str, ...]] = {
    "anthropic": ("/v1/messages", "/v1"),
    "chat": ("/chat/completions",),
    "responses": ("/responses", "/chat/completions"),
    "gemini": ("/models", "/v1beta"),
    "ollama": ("/api/chat", "/api", "/v1"),
}
"""The path endings that people paste behind a base URL, and that requests add themselves."""
URL_VARIABLE = compile_lazily(r"\{([A-Z_|]+)(?:=([a-z0-9-]+))?\}")
"""A variable in a URL, or the first of several that is set; a default may stand behind them."""
PLAIN_CHAT_QUIRKS: tuple[ModelQuirk, ...] = ("max-tokens", "system-role")
"""The quirks that suit any server that imitates OpenAI's."""

MIN_NAME_SIMILARITY = 0.5
"""The similarity from which a model id is suggested for another."""
MAX_SUGGESTIONS = 3
OR_AWS_KEYS = ", or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
EntryT = TypeVar("EntryT")
CatalogTables = dict[str, dict[str, dict[str, object]]]
"""The catalogue as it is written: `providers` and `models`, each by name."""


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model provider: protocol, base URL, and the variables that hold its API key."""

    protocol: ApiProtocol
    url: str
    """May name variables: `https://{REGION|AWS_REGION=us-east-1}.example.com`."""
    surface: CloudPlatform = ""
    """The cloud platform whose request format is used, if any."""
    url_env: str = ""
    start: str = ""
    """The command that starts its server, where that is one of the user's own."""
    key_env: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    """The headers of every request; a value that begins with `$` names a variable."""
    query: dict[str, str] = {}
    """The query parameters of every URL."""
    prefixes: tuple[str, ...] = ()
    """The prefixes of its model ids, so that the provider need not be written before them."""
    aliases: dict[str, str] = {}
    quirks: tuple[ModelQuirk, ...] = ()
    betas: tuple[str, ...] = ()
    """The betas that its models may be asked for, until they refuse."""
    default: str = ""
    small: str = ""
    """Its model for small questions beside a conversation; else the cheapest that is known."""
    search: str = ""
    """Its name for the web search tool; empty if its models cannot search."""
    search_price: float = 0.0
    """US dollars for a thousand searches."""
    window: int = 0
    """The context window of models that are not in the catalogue."""


class ModelInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The catalogue's entry for a model: window, output limit, price, quirks."""

    window: int
    output: int = MAX_OUTPUT_TOKENS
    price: Price = Price()
    cache_min: int = 1024
    images: bool = True
    quirks: tuple[ModelQuirk, ...] = ()
    """Its own, beside those of whoever serves it."""


class Catalog(msgspec.Struct, frozen=True):
    """All providers and models by name, and the user's model policy."""

    providers: dict[str, Provider]
    models: dict[str, ModelInfo]
    terms: ModelPolicy = ModelPolicy()


class ModelEndpoint(msgspec.Struct, frozen=True):
    """The URL and the credentials for a model; never written to a log."""

    url: str
    headers: tuple[tuple[str, str], ...]
    key_source: str
    surface: CloudPlatform = ""
    signer: AwsCredentials | None = None
    """The credentials that sign each request, where there is no API key."""
    helper: str = ""
    """A command that prints the key, where none is set."""


@cache
def load_catalog() -> Catalog:
    """Load the catalogue that ships with Travois."""
    return msgspec.convert(_load_catalog_tables(), Catalog)


def merge_catalog(
    extra: Mapping[str, Mapping[str, object]], *, where: Callable[[str], str] = str
) -> Catalog:
    """Merge the user's `providers` and `models` into the shipped model catalogue, field by field.

    They have the shape of `catalog.toml`. A provider says where keys are sent, so they must never
    come from settings that a workspace brings along. `where` says who wrote an entry.
    """
    if strange := [name for name in extra if name not in ("providers", "models")]:
        raise UserError(
            f"The model catalogue has no {strange[0]!r}", fix="It has providers and models."
        )
    return Catalog(
        _merge_table("providers", extra, Provider, where=where),
        _merge_table("models", extra, ModelInfo, where=where),
    )


def resolve_model(name: str, env: Mapping[str, str], *, among: Catalog | None = None) -> ModelCard:
    """Resolve a model name: `provider/id`, a catalogue ID, or empty for the default."""
    known = among or load_catalog()
    bare, window = _split_window_suffix(name)
    provider, id = _find_model_by_name(bare, env, known) if bare else _default_model(env, known)
    terms = known.terms
    if not terms.allows(f"{provider}/{id}"):
        if not bare and terms.available:
            return resolve_model(terms.available[0], env, among=known)
        raise terms.denial_error(f"{provider}/{id}")
    served = _with_custom_server(known.providers[provider], env)
    about = look_up_model(known, f"{provider}/{id}", window=served.window)
    window = window or about.window
    return ModelCard(
        provider=provider,
        id=terms.renamed.get(id, id),
        protocol=served.protocol,
        window=window,
        output=min(about.output, MAX_OUTPUT_TOKENS, max(1, window // 4)),
        price=terms.price_of(id, about.price),
        quirks=(*served.quirks, *about.quirks),
        betas=served.betas,
        images=about.images,
    )


def resolve_endpoint(
    model: ModelCard, env: Mapping[str, str], *, among: Catalog | None = None
) -> ModelEndpoint:
    """Resolve a model's base URL and API key; raises `UserError` without a key."""
    served = (among or load_catalog()).providers.get(model.provider)
    if served is None:
        raise UserError(
            f"No provider for {model.name}",
            why=f"no provider is called {model.provider!r}",
            fix="Add it to providers in your settings, or choose another model with --model.",
        )
    url = _provider_base_url(served, env, protocol=model.protocol) + encode_query_suffix(
        served.query
    )
    more = resolve_provider_headers(served.headers, env)
    for name in served.key_env:
        if key := env.get(name, "").strip():
            return ModelEndpoint(
                url, (*_auth_headers(served, name, key), *more), name, served.surface
            )
    if among and (helper := among.terms.key_helper_for(model.provider)):
        return ModelEndpoint(url, more, "apiKeyHelper", helper=helper)
    if served.surface == "bedrock" and (signer := read_aws_credentials(env)):
        return ModelEndpoint(url, more, "AWS_ACCESS_KEY_ID", served.surface, signer)
    if served.key_env and not is_local_url(url):
        names = " or ".join(served.key_env)
        empty = any(name in env for name in served.key_env)
        also = OR_AWS_KEYS if served.surface == "bedrock" else ""
        raise UserError(
            f"No API key for {model.name}",
            why=f"{names} is {'empty' if empty else 'not set'}",
            fix=f"Set {names}{also} in your environment, or choose another model with --model.",
        )
    return ModelEndpoint(url, more, "none", served.surface)


def has_default_model(env: Mapping[str, str], *, among: Catalog | None = None) -> bool:
    """Return whether a provider with a default model is configured."""
    return _find_default_model(env, among or load_catalog()) is not None


def find_small_model(model: ModelCard, *, among: Catalog | None = None) -> str:
    """Return a cheaper model of the same provider from the catalogue; empty if none is known."""
    known = among or load_catalog()
    served = known.providers.get(model.provider)
    if served and served.small:
        return "" if served.small == model.id else f"{model.provider}/{served.small}"
    prices = {
        name: about.price.input
        for name, about in known.models.items()
        if name.startswith(f"{model.provider}/") and 0 < about.price.input < model.price.input
    }
    return min(prices, key=lambda name: (prices[name], name), default="")


def is_local_url(url: str) -> bool:
    """Return whether a provider's URL leads to this machine."""
    return bool(re.fullmatch(LOOPBACK_HOST, urlsplit(url).hostname or ""))


@cache
def _load_catalog_tables() -> CatalogTables:
    """Load the model catalogue from `catalog.json`, which parses faster than `catalog.toml`."""
    return msgspec.json.decode(
        Path(__file__).with_name("catalog.json").read_bytes(), type=CatalogTables
    )


def _snake_case_keys(entry: object) -> dict[str, object]:
    """Convert a catalogue entry's field names to snake case: settings may say `keyEnv`."""
    if not isinstance(entry, dict):
        return {"": entry}
    fields = cast("dict[str, object]", entry)
    return {re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name): v for name, v in fields.items()}


def _merge_table(
    name: str,
    extra: Mapping[str, Mapping[str, object]],
    kind: type[EntryT],
    *,
    where: Callable[[str], str],
) -> dict[str, EntryT]:
    """Merge the user's providers or models into the catalogue's shipped table."""
    shipped, theirs = _load_catalog_tables()[name], extra.get(name, {})
    rows = {
        key: {**shipped.get(key, {}), **_snake_case_keys(entry)} for key, entry in theirs.items()
    }
    return {
        **msgspec.convert(shipped, dict[str, kind]),
        **{
            key: _convert_entry(f"{name}.{key}", row, kind, where=where)
            for key, row in rows.items()
        },
    }


def _convert_entry(
    key: str, fields: dict[str, object], kind: type[EntryT], *, where: Callable[[str], str]
) -> EntryT:
    """Convert a catalogue entry to its type; name the file of an invalid one."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        origin = where(key)
        what = f"{key}{place.rstrip('`')} is not valid"
        raise UserError(
            what if origin == key else f"{origin}: {what}",
            why=problem,
            fix="See docs/models.md; sizes are in tokens, prices in dollars per million tokens.",
        ) from None


def look_up_model(catalog: Catalog, name: str, *, window: int) -> ModelInfo:
    """Return a model's catalogue entry; if there is none, one with just this window."""
    dated, claude = re.fullmatch(DATED_MODEL_ID, name), re.search(CLAUDE_MODEL_ID, name)
    found = catalog.models.get(name) or (catalog.models.get(dated[1]) if dated else None)
    if found is None and claude:
        found = catalog.models.get(f"anthropic/{claude[0]}")
    return found or ModelInfo(window=window or UNKNOWN_WINDOW)


def _provider_base_url(served: Provider, env: Mapping[str, str], *, protocol: ApiProtocol) -> str:
    """Return a provider's base URL, to which request paths are appended.

    For a chat server given only as a host, `/v1` is added: all servers listen there, few at the
    root. Any other path is kept as it is.
    """
    given = env.get(served.url_env, "").strip() if served.url_env else ""
    if protocol == "ollama" and not given:
        given = ollama_base_url(env)
    url = (
        given or URL_VARIABLE.sub(lambda found: _fill_url_variable(found, env), served.url)
    ).rstrip("/")
    for ending in ENDPOINT_PATHS[protocol]:
        url = url.removesuffix(ending).rstrip("/")
    _check_base_url(url, served.url_env)
    if protocol in ("chat", "responses") and not urlsplit(url).path:
        return f"{url}/v1"
    return url.replace("//global-", "//")  # how Google calls the place that is everywhere


def _fill_url_variable(found: re.Match[str], env: Mapping[str, str]) -> str:
    """Fill in an environment variable in a provider's base URL."""
    names = found[1].split("|")
    value = next((text for name in names if (text := env.get(name, "").strip())), found[2] or "")
    if not re.fullmatch(r"[A-Za-z0-9.-]+", value):
        what = f"{names[0]} is {'not a valid name' if value else 'not set'}"
        raise UserError(what, why="the provider's base URL needs it", fix=f"Set {names[0]}.")
    return value


def _check_base_url(url: str, source: str) -> None:
    """Check that a provider's base URL is valid; raise `UserError` with a correction."""
    scheme = "http" if is_local_url(f"//{url}") else "https"
    bare = "://" not in url and not url.endswith(":")
    fix = f"Write it as {scheme}://{url}." if bare else "Correct the URL."
    what = f"{source or 'The base URL of the provider'} is not a valid URL"
    if not re.fullmatch(r"https?://[!-~]+", url) or re.search(r"[?#\\@]", url):
        raise UserError(what, why=repr(url), fix=fix)
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UserError(what, why=f"{url!r}: {error}", fix=fix) from None
    if not named:
        raise UserError(what, why=repr(url), fix=fix)


def _auth_headers(served: Provider, name: str, key: str) -> tuple[tuple[str, str], ...]:
    """Return the header with a provider's API key, in the form that it expects."""
    if not re.fullmatch(r"[!-~]+", key):
        raise UserError(
            f"{name} contains characters that no API key has", fix="Copy the key again."
        )
    if served.protocol == "gemini":
        return (("x-goog-api-key", key),)
    if served.protocol == "anthropic" and not served.surface and not name.endswith("_TOKEN"):
        return (("x-api-key", key),)
    return (("authorization", f"Bearer {key}"),)


def _split_window_suffix(name: str) -> tuple[str, int]:
    """Split the context window off a model name: `claude-opus-4-5[1m]`, `qwen3[32k]`."""
    bare, bracket, window = name.strip().partition("[")
    found = re.fullmatch(r"([1-9]\d*)([km])\]", window, re.IGNORECASE)
    if found and bare:
        return bare.strip(), int(found[1]) * (1_000 if found[2] in "kK" else 1_000_000)
    if bracket:
        fix = "Write the window after the name in thousands or millions of tokens: [32k] or [1m]."
        raise UserError(f"Unknown model {name.strip()!r}", fix=fix)
    return bare.strip(), 0


def _find_model_by_name(name: str, env: Mapping[str, str], catalog: Catalog) -> tuple[str, str]:
    """Find the provider and model ID for a model name in the catalogue."""
    head, slash, rest = name.partition("/")
    if slash and head in catalog.providers:
        served = catalog.providers[head]
        return (
            (head, served.aliases.get(rest, rest)) if rest else _raise_unknown_model(name, catalog)
        )
    for provider, served in catalog.providers.items():
        id = served.aliases.get(name, name)
        if f"{provider}/{id}" in catalog.models or id.startswith(served.prefixes or ("\0",)):
            return provider, id
    for provider, served in catalog.providers.items():  # a server of one's own may call it anything
        if served.url_env and env.get(served.url_env, "").strip():
            return provider, name
    return _raise_unknown_model(name, catalog)


def _raise_unknown_model(name: str, catalog: Catalog) -> NoReturn:
    """Raise the error for a model name that the catalogue cannot resolve."""
    raise UserError(
        f"Unknown model {name!r}",
        why=_suggest_names(name, catalog),
        fix="`travois models` lists the catalogue. For any other model write --model provider/id, "
        "for example openai/my-model with OPENAI_BASE_URL set to its server.",
    )


def _suggest_names(name: str, catalog: Catalog) -> str:
    """Suggest similar model or provider names for an unknown one."""
    head, slash, rest = name.partition("/")
    if slash and head not in catalog.providers:
        near = find_close_names(head, list(catalog.providers))
        meant = (
            f"did you mean {near[0]}/{rest}?" if near else f"known: {', '.join(catalog.providers)}"
        )
        return f"there is no provider {head!r}; {meant}"
    if slash:
        own = [model for model in catalog.models if model.startswith(name)][:MAX_SUGGESTIONS]
        return f"the model id is missing, as in {' or '.join(own) or f'{head}/NAME'}"
    ids = [model.partition("/")[2] for model in catalog.models]
    words = [alias for served in catalog.providers.values() for alias in served.aliases]
    if near := find_close_names(name, [*ids, *words]):
        return f"did you mean {' or '.join(near)}?"
    usual = [served.default for served in catalog.providers.values() if served.default]
    return f"the catalogue has nothing similar; it has {', '.join(usual[:MAX_SUGGESTIONS])}"


def find_close_names(word: str, among: list[str]) -> list[str]:
    """Return catalogue names similar to an unknown one, or that contain it."""
    near = difflib.get_close_matches(
        word.lower(), among, n=MAX_SUGGESTIONS, cutoff=MIN_NAME_SIMILARITY
    )
    part = [id for id in among if len(word) > 2 and word.lower() in id.lower()]
    return list(dict.fromkeys((*near, *part)))[:MAX_SUGGESTIONS]


def _default_model(env: Mapping[str, str], catalog: Catalog) -> tuple[str, str]:
    """Return the first configured provider's default model; raise `UserError` if none is."""
    if (found := _find_default_model(env, catalog)) is not None:
        return found
    raise UserError(
        "No model is configured",
        why="neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set, and no --model was given",
        fix="export ANTHROPIC_API_KEY=…, or OPENAI_BASE_URL=http://localhost:11434/v1 "
        "with --model openai/NAME for a server of your own; --model local/smollm2 is a very small "
        "model that needs neither.",
    )


def _find_default_model(env: Mapping[str, str], catalog: Catalog) -> tuple[str, str] | None:
    """Find the first provider with a key or server address, and its default model."""
    for names in ("key_env", "url_env"):
        for provider, served in catalog.providers.items():
            given = served.key_env if names == "key_env" else (served.url_env,)
            keyed = bool(catalog.terms.key_helper_for(provider)) or any(
                env.get(n, "").strip() for n in given
            )
            if served.default and keyed:
                return provider, served.default
    return None


def _with_custom_server(served: Provider, env: Mapping[str, str]) -> Provider:
    """Return the provider with the plain chat protocol if OPENAI_BASE_URL is a custom server."""
    url = env.get(served.url_env, "") if served.url_env else ""
    if served.protocol == "responses" and url and "openai.com" not in url:
        return replace(served, protocol="chat", quirks=PLAIN_CHAT_QUIRKS)
    return served
