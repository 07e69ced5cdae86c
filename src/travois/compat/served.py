"""Who serves models, as Codex and opencode describe it, in the words of our catalogue.

Only the user's own files may say so: it is where prompts and keys are sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from travois.settings.schema import Json
from travois.settings.validate import is_tree

RESERVED = ("openai", "ollama", "lmstudio")
"""Names that Codex itself gives a meaning."""
WIRES = {"": "responses", "responses": "responses", "chat": "chat"}
MORE = {"headers": "http_headers", "variables": "env_http_headers", "query": "query_params"}
PACKAGES = {"@ai-sdk/openai-compatible": "chat", "@ai-sdk/openai": "responses"}
"""How opencode speaks to a provider, and which protocol that is."""
ENV = re.compile(r"\{env:(\w+)\}")


class Described(msgspec.Struct, frozen=True):
    """One provider; without an entry, `why` it has none, and else what of it is missing."""

    name: str
    entry: Json = {}
    why: str = ""


def codex(tree: Json) -> Iterator[Described]:
    """The providers of Codex."""
    for name, told in _tables(tree, "model_providers"):
        url, wire = _text(told, "base_url"), WIRES.get(_text(told, "wire_api"))
        if name in RESERVED or not url or wire is None:
            yield Described(name, why="it has no address, or no protocol that is known here")
            continue
        found, inner = _described(name, wire, url, _text(told, "env_key")), dict(_tables(told, ""))
        kept = {key: _texts(inner.get(word, {})) for key, word in MORE.items()}
        named = {name: f"${variable}" for name, variable in kept.pop("variables").items()}
        kept["headers"] |= named
        yield replace(found, entry=found.entry | {key: each for key, each in kept.items() if each})


def opencode(tree: Json) -> Iterator[Described]:
    """The providers of opencode."""
    for name, told in _tables(tree, "provider"):
        options = dict(_tables(told, "")).get("options", {})
        url, key = _text(options, "baseURL"), _text(options, "apiKey")
        wire = PACKAGES.get(_text(told, "npm"))
        if not url or wire is None:
            yield Described(name, why="it has no address, or no protocol that is known here")
            continue
        found = ENV.fullmatch(key)
        why = "its key is not copied: name its variable as key_env" if key and not found else ""
        yield _described(name, wire, url, found[1] if found else "", why=why)


def _described(name: str, protocol: str, url: str, key: str, *, why: str = "") -> Described:
    entry: Json = {"protocol": protocol, "url": url}
    return Described(name, entry | ({"key_env": [key]} if key else {}), why)


def _tables(tree: Json, key: str) -> Iterator[tuple[str, Json]]:
    """The tables inside one, or inside one of its own."""
    outer = tree.get(key) if key else tree
    for name, inner in outer.items() if is_tree(outer) else ():
        if is_tree(inner):
            yield name, inner


def _texts(tree: Json) -> dict[str, str]:
    return {key: str(value) for key, value in tree.items()}


def _text(tree: Json, key: str) -> str:
    found = tree.get(key)
    return found if isinstance(found, str) else ""
