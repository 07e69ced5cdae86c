"""What a reply costs, from the counts as each provider gives them; worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from travois.core.cost import compute_cost
from travois.providers.catalog import resolve_model
from travois.providers.stream_reader import create_reply_reader


def anthropic(**usage: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "x"}]
    head = {"type": "message", "id": "m", "model": "c", "role": "assistant"}
    return {**head, "content": content, "stop_reason": "end_turn", "usage": usage}


def chat(**usage: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}
    return {"id": "c", "choices": [choice], "usage": usage}


def responses(**usage: Any) -> dict[str, Any]:
    return {"id": "r", "status": "completed", "output": [], "usage": usage}


def gemini(**usage: Any) -> dict[str, Any]:
    candidate = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage}


BILLS = [
    (  # 1000×4 + 20000×0.20 + 300×5 + 70×8 + 500×20
        "claude-opus-5-5",
        anthropic(
            input_tokens=1_000,
            cache_read_input_tokens=20_000,
            cache_creation_input_tokens=370,
            cache_creation={"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 70},
            output_tokens=500,
        ),
        0.004 + 0.004 + 0.0015 + 0.00056 + 0.01,
    ),
    (  # 4000 uncached ×2 + 15000 ×0.10 + 1000 ×2.5 + 500 ×10: reasoning is part of the output
        "gpt-6.1-sol",
        responses(
            input_tokens=20_000,
            input_tokens_details={"cached_tokens": 15_000, "cache_write_tokens": 1_000},
            output_tokens=500,
            output_tokens_details={"reasoning_tokens": 400},
        ),
        0.008 + 0.0015 + 0.0025 + 0.005,
    ),
    (  # above 272,000 all of it is dearer: 300000×4 + 1000×15
        "gpt-6.1-sol",
        responses(input_tokens=300_000, output_tokens=1_000),
        1.2 + 0.015,
    ),
    (  # writes are free before GPT-5.6: 5000×5 + 5000×0.50 + 100×30
        "gpt-5.5",
        responses(
            input_tokens=10_000, input_tokens_details={"cached_tokens": 5_000}, output_tokens=100
        ),
        0.025 + 0.0025 + 0.003,
    ),
    (  # 40000 plain ×2 + 60000 cached ×0.20 + (300 said + 700 thought) ×12
        "gemini-3.1-pro-preview",
        gemini(
            promptTokenCount=100_000,
            cachedContentTokenCount=60_000,
            candidatesTokenCount=300,
            thoughtsTokenCount=700,
        ),
        0.08 + 0.012 + 0.012,
    ),
    (  # above 200,000: 250000×4 + 100×18
        "gemini-3.1-pro-preview",
        gemini(promptTokenCount=250_000, candidatesTokenCount=100),
        1.0 + 0.0018,
    ),
    (  # DeepSeek counts hits and misses: 1000×1.32 + 9000×0.044 + 200×3.96
        "deepseek-v4-pro",
        chat(
            prompt_tokens=10_000,
            prompt_cache_hit_tokens=9_000,
            prompt_cache_miss_tokens=1_000,
            completion_tokens=200,
        ),
        0.00132 + 0.000396 + 0.000792,
    ),
    (  # 2000×0.4 + 100×2
        "devstral-medium-latest",
        chat(prompt_tokens=2_000, completion_tokens=100),
        0.0008 + 0.0002,
    ),
    (  # xAI leaves reasoning out of the completion: 1000×2 + (100 + 50)×6
        "grok-4.7",
        chat(
            prompt_tokens=1_000,
            completion_tokens=100,
            completion_tokens_details={"reasoning_tokens": 50},
            total_tokens=1_150,
        ),
        0.002 + 0.0009,
    ),
    (  # 400×3 + 600×0.3 + 10×15
        "kimi-k3",
        chat(prompt_tokens=1_000, cached_tokens=600, completion_tokens=10),
        0.0012 + 0.00018 + 0.00015,
    ),
    ("ollama/qwen3", {"message": {"content": "x"}, "done": True, "prompt_eval_count": 9}, 0.0),
]


@pytest.mark.parametrize(("name", "body", "dollars"), BILLS)
def test_a_reply_costs_what_the_price_list_says(
    name: str, body: dict[str, Any], dollars: float
) -> None:
    model = resolve_model(name, {})
    reading = create_reply_reader(model)
    reading.feed(json.dumps(body).encode())
    reply = reading.finish()
    assert not reply.usage.estimated
    assert compute_cost(reply.usage, model.price) == pytest.approx(dollars)


def test_a_model_of_anthropics_at_amazon_costs_what_it_costs_there() -> None:
    model = resolve_model("bedrock/anthropic.claude-opus-5-5-v1:0", {})
    assert model.price == resolve_model("opus", {}).price
