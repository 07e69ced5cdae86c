"""SmolLM2: which call of a grammar it finds likeliest, or a few words of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from travois.local_model.examples import Example
from travois.local_model.grammar import Rules, render
from travois.local_model.llamacpp import Engine
from travois.providers.http.client import Response, Transport
from travois.providers.replies import Problem

TURN = "<|im_start|>{}\n{}<|im_end|>\n"
ACTING = "You turn a request into one call of a tool. Copy names and paths from the request."
TALKING = "You answer in one or two short, true sentences. If you do not know, say so."
CALL, WORDS = 160, 80
"""The longest call and the longest answer, in tokens."""
LONGEST = 1 << 20


class Completion(msgspec.Struct, frozen=True):
    """What it said."""

    content: str


class Mind:
    """A small language model that runs in an engine."""

    def __init__(self, engine: Engine, travel: Transport) -> None:
        self._engine, self._travel = engine, travel

    async def choose(self, text: str, like: Sequence[Example], rules: Rules) -> str:
        """The call for a request, `Name {…}`, after examples that are like it; raises `Problem`."""
        shown = [TURN.format("user", e.text) + TURN.format("assistant", call(e)) for e in like]
        prompt = "".join((TURN.format("system", ACTING), *shown, asked(text)))
        return await self._complete(prompt, most=CALL, grammar=render(rules))

    async def say(self, text: str) -> str:
        """A few words in answer to a text; raises `Problem`."""
        said = await self._complete(TURN.format("system", TALKING) + asked(text), most=WORDS)
        return said[: said.rfind(".") + 1] or said

    async def _complete(self, prompt: str, *, most: int, grammar: str = "") -> str:
        where = await self._engine.endpoint()
        body = {"prompt": prompt, "n_predict": most, "grammar": grammar, "temperature": 0}
        url, sent = where.url.removesuffix("/v1") + "/completion", msgspec.json.encode(body)
        async with self._travel.post(url, headers=where.headers, body=sent) as response:
            said = await _whole(response)
        try:
            return msgspec.json.decode(said, type=Completion).content.strip()
        except msgspec.DecodeError:
            raise Problem("garbled", said.decode(errors="replace")[:200]) from None


def call(example: Example) -> str:
    """An example as it is to be said."""
    return f"{example.tool} {msgspec.json.encode(example.input).decode()}"


def asked(text: str) -> str:
    """A request, and the beginning of its answer."""
    return TURN.format("user", text.replace("<|", "< |")) + "<|im_start|>assistant\n"


async def _whole(response: Response) -> bytes:
    said = b""
    async for chunk in response.chunks:
        said += chunk
        if len(said) > LONGEST:
            break
    return said
