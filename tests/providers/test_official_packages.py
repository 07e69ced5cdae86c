"""The official packages as judges who have never seen our code: their types are the contract."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.providers.stories import MODELS, Author, Story, fetch, sendable
from tests.providers.test_anthropic_reply import REPLY as ANTHROPIC_REPLY
from tests.providers.test_anthropic_reply import WHOLE as ANTHROPIC_STREAM
from tests.providers.test_chat_reply import REPLY as CHAT_REPLY
from tests.providers.test_chat_reply import WHOLE as CHAT_STREAM
from travois.core.content import Call, Text
from travois.core.facts import Epoch
from travois.providers.encoder import RequestEncoder

pydantic = pytest.importorskip("pydantic")


def bodies(protocol: str) -> list[dict[str, Any]]:
    """Requests of random stories in one protocol."""
    made: list[dict[str, Any]] = []
    models = [model for model in MODELS if model.protocol == protocol]
    for seed in range(30):
        author = Author(Random(seed))
        story = Story().append(Epoch(author.chance.choice(models), "Be brief."))
        for _ in range(8):
            story.append(author.user())
            while story.view.open:
                result = author.result(story.view)
                assert result is not None
                story.append(result)
            if sendable(story.view):
                request = RequestEncoder(fetch).build_request(story.view)
                made.append(json.loads(request.body))
                story.append(author.reply())
    return made


def judge(kind: Any, *values: Any) -> None:
    """Validate to the bottom: the packages declare lists as lazy iterables."""
    adapter = pydantic.TypeAdapter(kind)  # must outlive the iterables that it makes
    for value in values:
        _drain(adapter.validate_python(value))


def _drain(value: Any) -> None:
    if isinstance(value, dict):
        for one in value.values():
            _drain(one)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for one in value:
            _drain(one)


def test_the_judge_looks_to_the_bottom():
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    wrong = {"role": "user", "content": [{"type": "text", "text": 7}]}
    body = {"model": "m", "max_tokens": 1, "stream": True, "messages": [wrong]}
    with pytest.raises(pydantic.ValidationError):
        judge(MessageCreateParamsStreaming, body)


def test_every_anthropic_request_is_what_the_official_types_take():
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    judge(MessageCreateParamsStreaming, *bodies("anthropic"))


def test_every_chat_request_is_what_the_official_types_take():
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    judge(CompletionCreateParamsStreaming, *bodies("chat"))


def test_every_response_request_is_what_the_official_types_take():
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    judge(ResponseCreateParamsStreaming, *bodies("responses"))


def serve(stream: bytes) -> Any:
    """A client that gets this stream, whatever it asks."""
    import httpx2

    headers = {"content-type": "text/event-stream"}
    answer = httpx2.Response(200, content=stream, headers=headers)
    return httpx2.Client(transport=httpx2.MockTransport(lambda request: answer))


def test_our_reading_of_an_anthropic_stream_is_that_of_the_official_package():
    import anthropic

    client = anthropic.Anthropic(api_key="k", http_client=serve(ANTHROPIC_STREAM))
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    with client.messages.stream(**asked) as stream:
        said = stream.get_final_message()
    thinking, text, use = said.content
    ours = ANTHROPIC_REPLY.content
    assert json.loads(ours[0].raw) == thinking.model_dump(exclude_none=True)
    assert ours[1] == Text(text.text)
    assert (ours[2].id, ours[2].name, json.loads(ours[2].args)) == (use.id, use.name, use.input)
    usage = ANTHROPIC_REPLY.usage
    assert (usage.input, usage.output) == (said.usage.input_tokens, said.usage.output_tokens)
    assert (ANTHROPIC_REPLY.id, ANTHROPIC_REPLY.model) == (said.id, said.model)


def test_our_reading_of_a_chat_stream_is_that_of_the_official_package():
    import openai

    client = openai.OpenAI(api_key="k", http_client=serve(CHAT_STREAM))
    messages = [{"role": "user", "content": "hello"}]
    with client.chat.completions.stream(model="m", messages=messages) as stream:
        said = stream.get_final_completion()
    message = said.choices[0].message
    _, text, *calls = CHAT_REPLY.content
    assert text == Text(message.content)
    assert calls == [Call(c.id, c.function.name, c.function.arguments) for c in message.tool_calls]
    assert CHAT_REPLY.usage.prompt == said.usage.prompt_tokens
    assert CHAT_REPLY.usage.output == said.usage.completion_tokens
