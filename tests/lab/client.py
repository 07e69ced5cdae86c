"""A client that talks to the lab without a network, and the words its requests are made of."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import msgspec

from travois.core.models import Usage
from travois_lab.exchange import Exchange
from travois_lab.http import Request
from travois_lab.routes import answer
from travois_lab.talk import Reply
from travois_lab.world import Options, World

Json = dict[str, Any]
OPUS = "claude-opus-5-5"
CC = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
HUNDRED = Reply(({"type": "text", "text": "ok"},), usage={"output_tokens": 100})


def block(tokens: int, cc: Json | None = None, say: str = "") -> Json:
    """A text block of so many tokens; `say` tells it apart from others of its size."""
    rest = tokens - -(-len(say) // 4)
    made: Json = {"type": "text", "text": f"{say}{{{{tok:{rest}}}}}"}
    return {**made, "cache_control": cc} if cc else made


def told(words: str) -> Json:
    return {"type": "text", "text": words}


def user(*content: Json) -> Json:
    return {"role": "user", "content": list(content)}


def assistant(*content: Json) -> Json:
    return {"role": "assistant", "content": list(content)}


def use(id: str, name: str = "Read", **args: object) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def result(id: str, tokens: int, cc: Json | None = None) -> Json:
    made: Json = {"type": "tool_result", "tool_use_id": id, "content": f"{{{{tok:{tokens}}}}}"}
    return {**made, "cache_control": cc} if cc else made


def counts(usage: Usage) -> tuple[int, int, int, int]:
    """Input, read, written for five minutes, written for an hour."""
    return (usage.input, usage.read, usage.write, usage.write_1h)


class Client:
    """One lab in memory: posts bodies, and remembers what the lab made of them."""

    def __init__(self, model: object = None, **options: Any) -> None:
        speak = (lambda prompt, state: HUNDRED) if model is None else model
        self.world = World(speak, msgspec.convert(options, Options))

    def post(self, path: str, body: Json, **headers: str) -> tuple[int, Json]:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        sent = {"x-api-key": "k", "anthropic-version": "2026-10-21", **named}
        raw = msgspec.json.encode(body)
        path, _, query = path.partition("?")
        response = answer(self.world, Request("POST", path, dict(parse_qsl(query)), sent, raw))
        said = b"".join(step for step in response.steps if isinstance(step, bytes))
        self.headers = dict(response.headers)
        self.raw = said
        whole = self.headers.get("content-type") == "application/json"
        decoded = msgspec.json.decode(said) if whole and said else {}
        return response.status, decoded

    def ask(self, messages: list[Json] | None = None, **fields: Any) -> Exchange:
        """Send a Messages request; whatever comes of it is in the exchange."""
        headers = fields.pop("headers", {})
        body = {"model": OPUS, "max_tokens": 1000, "messages": messages or [], **fields}
        self.status, self.body = self.post("/v1/messages", body, **headers)
        return self.world.ledger[-1]

    def error(self) -> str:
        return self.body["error"]["message"]
