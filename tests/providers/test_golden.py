"""The bytes of each protocol for the canonical stories: a golden file for each kind of server.

A file begins with all of the request for "hello", and goes on with the messages of each story, each
in a line as it is sent. Write them again with `TRAVOIS_GOLDEN=write pytest FILE`, and read the
difference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.providers import canon
from tests.providers.golden import readable
from tests.providers.stories import MODELS, Story, fetch
from travois.core.facts import Epoch, Failed
from travois.core.models import ModelCard
from travois.providers.encoder import RequestEncoder
from travois.providers.request import Request

FILES = Path(__file__).parent / "bodies"
MESSAGES = re.compile(r'"(?:messages|input|contents)":\[')
OPUS = ModelCard("anthropic", "claude-opus-5-5", "anthropic", output=8000)
ALL = tuple(canon.STORIES)
ONE_CALL = "one call and its result"
MEDIA = "media are shown where they can be"
REASONED = "reasoning goes back where it is asked for, and there always"
DIALECTS: dict[str, tuple[ModelCard, tuple[str, ...]]] = {
    "anthropic": (OPUS, ALL),
    "chat": (ModelCard("openai", "gpt", "chat", output=8000), ALL),
    "responses": (ModelCard("openai", "gpt-6", "responses", output=8000), ALL),
    "gemini": (ModelCard("google", "gemini-3 pro", "gemini", output=8000), ALL),
    "ollama": (ModelCard("ollama", "qwen3", "ollama", window=32_000, output=8000), ALL),
    "everything-optional": (
        ModelCard(
            "anthropic",
            "claude-haiku-4-5",
            "anthropic",
            betas=("one", "two"),
            params='"thinking":{"type":"adaptive"}',
            cache_ttl="1h",
        ),
        (),
    ),
    "no-markers": (ModelCard("ollama", "m", "anthropic", quirks=("no-cache-markers",)), ()),
    "no-eyes": (ModelCard("ollama", "m", "anthropic", images=False), (MEDIA,)),
    "mistral": (MODELS[4], (ONE_CALL, MEDIA)),
    "deepseek": (MODELS[5], (REASONED, MEDIA)),
    "openrouter": (
        ModelCard("openrouter", "x/y", "chat", quirks=("usage-include",), params='"top_p":1'),
        (REASONED,),
    ),
}
SYSTEM = {"everything-optional": " ", "openrouter": ""}


def whole(request: Request) -> Iterator[str]:
    """All of a request, its body in lines that a person can compare."""
    yield f"POST {request.path} in {request.pieces} pieces"
    yield from (f"{name}: {value}" for name, value in request.headers)
    yield from readable(request.body)


def messages(request: Request) -> Iterator[str]:
    """What was said, each message as it is sent."""
    body = request.body.decode()
    found = MESSAGES.search(body)
    assert found
    at, decoder = found.end(), json.JSONDecoder()
    while body[at] != "]":
        _, end = decoder.raw_decode(body, at)
        yield body[at:end]
        at = end + (body[end] == ",")


def golden(model: ModelCard, titles: Iterable[str], *, system: str) -> Iterator[str]:
    yield "# hello"
    yield from whole(canon.tell(model, (canon.HELLO,), system=system))
    for title in titles:
        yield f"\n# {title}"
        yield from messages(canon.tell(model, canon.STORIES[title], system=system))


@pytest.mark.parametrize("name", DIALECTS)
def test_every_body_is_what_its_golden_file_says(name: str) -> None:
    model, titles = DIALECTS[name]
    system = SYSTEM.get(name, "Be brief.")
    told = "\n".join(golden(model, titles, system=system)) + "\n"
    file = FILES / f"{name}.txt"
    if os.environ.get("TRAVOIS_GOLDEN") == "write":
        file.write_text(told, "utf-8")
    assert told.split("\n") == file.read_text("utf-8").split("\n")


def test_the_second_request_also_marks_where_the_first_ended():
    story, encoder = Story().append(Epoch(OPUS, "Be brief."), canon.HELLO), RequestEncoder(fetch)
    story.sent(encoder.build_request(story.view)).append(canon.ASKED, canon.GIVEN)
    assert readable(encoder.build_request(story.view).body) == snapshot(
        [
            '{"model":"claude-opus-5-5","max_tokens":8000,',
            '"system":[',
            '{"type":"text","text":"Be brief.",',
            '"cache_control":{"type":"ephemeral"}}],',
            '"messages":[',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"text","text":"I look."},',
            '{"type":"tool_use","id":"toolu_1","name":"Read",',
            '"input":{"path": "a.py"}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"toolu_1",',
            '"content":"1 def f():",',
            '"cache_control":{"type":"ephemeral"}}]}],',
            '"stream":true}',
        ]
    )


def test_a_request_that_failed_is_sent_again_byte_for_byte():
    story, encoder = (
        Story().append(Epoch(OPUS, "Be brief."), *canon.ONE_CALL),
        RequestEncoder(fetch),
    )
    first = encoder.build_request(story.view)
    story.sent(first).append(Failed("server", "no"))
    assert encoder.build_request(story.view) == first
