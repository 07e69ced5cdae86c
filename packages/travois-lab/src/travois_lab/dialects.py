"""The servers that speak chat completions, each with its own accent."""

from __future__ import annotations

from typing import Literal

import msgspec

from travois.core.errors import UserError


class Dialect(msgspec.Struct, frozen=True):
    """Where one server departs from OpenAI's chat completions."""

    name: str
    reasoning: tuple[str, ...] = ("reasoning_content",)
    """The fields in which it sends its thinking."""
    usage: Literal["asked", "always", "never", "choice", "x_groq"] = "asked"
    args: Literal["text", "object"] = "text"
    ids: Literal["call", "nine", "none"] = "call"
    finish: Literal["tool_calls", "stop"] = "tool_calls"
    index: Literal["counted", "zero"] = "counted"
    comment: str = ""
    echo_reasoning: bool = False
    text_parts: bool = False
    """Content must be a plain string."""
    no_user_after_tool: bool = False
    forbid_extra: bool = False
    plain_choice: bool = False
    """No object as tool_choice."""
    cache_fields: Literal["details", "deepseek", "none", "timings"] = "details"
    signatures: bool = False
    """Tool calls carry a thought signature that must come back."""
    calls_as_text: bool = False
    overflow_status: int = 400
    overflow_code: str = "context_length_exceeded"
    overflow: str = (
        "This model's maximum context length is {limit} tokens. However, your messages resulted in "
        "{tokens} tokens."
    )
    known_models_only: bool = False


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("compatible"),
        Dialect("openai", reasoning=(), known_models_only=True),
        Dialect(
            "ollama",
            reasoning=("reasoning",),
            usage="asked",
            finish="stop",
            cache_fields="none",
            overflow="",
        ),
        Dialect(
            "llamacpp",
            usage="always",
            cache_fields="timings",
            overflow_code="exceed_context_size_error",
            overflow="the request exceeds the available context size, try increasing it",
        ),
        Dialect(
            "vllm",
            reasoning=("reasoning", "reasoning_content"),
            text_parts=True,
            cache_fields="none",
            overflow="This model's maximum context length is {limit} tokens. However, you "
            "requested {tokens} tokens. Please reduce the length of the messages or completion.",
        ),
        Dialect(
            "lmstudio",
            calls_as_text=True,
            overflow="The number of tokens to keep from the initial prompt is greater than the "
            "context length",
        ),
        Dialect(
            "openrouter",
            reasoning=("reasoning", "reasoning_details"),
            usage="always",
            comment=": OPENROUTER PROCESSING\n\n",
            overflow="This endpoint's maximum context length is {limit} tokens. However, you "
            "requested about {tokens} tokens.",
        ),
        Dialect(
            "deepseek",
            usage="always",
            echo_reasoning=True,
            text_parts=True,
            cache_fields="deepseek",
        ),
        Dialect(
            "groq",
            reasoning=("reasoning",),
            usage="x_groq",
            overflow="Please reduce the length of the messages or completion.",
        ),
        Dialect(
            "mistral",
            reasoning=(),
            usage="always",
            ids="nine",
            no_user_after_tool=True,
            forbid_extra=True,
            plain_choice=True,
            cache_fields="none",
            overflow="Prompt contains {tokens} tokens, too large for model with {limit} maximum "
            "context length",
        ),
        Dialect(
            "gemini",
            reasoning=(),
            index="zero",
            signatures=True,
            overflow="The input token count ({tokens}) exceeds the maximum number of tokens "
            "allowed ({limit}).",
        ),
        Dialect(
            "xai",
            overflow="This model's maximum prompt length is {limit} but the request contains "
            "{tokens} tokens.",
        ),
        Dialect(
            "kimi",
            usage="choice",
            echo_reasoning=True,
            overflow="Invalid request: Your request exceeded model token limit: {limit}",
        ),
        Dialect("glm", usage="always", overflow=""),
        Dialect("cerebras", overflow_status=413, overflow=" "),
        Dialect("qwen", overflow="Range of input length should be [1, {limit}]"),
        Dialect("copilot", overflow="prompt token count of {tokens} exceeds the limit of {limit}"),
    )
}


def dialect(name: str) -> Dialect:
    """The dialect of that name."""
    if name not in DIALECTS:
        raise UserError(f"lab: no dialect {name!r}", fix=f"known: {', '.join(DIALECTS)}")
    return DIALECTS[name]
