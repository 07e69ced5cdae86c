"""Model cards, prices, token usage and cost, as values that a session can freeze."""

from __future__ import annotations

from typing import Literal

import msgspec

ApiProtocol = Literal["anthropic", "chat", "responses", "gemini", "ollama"]
Effort = Literal["", "low", "medium", "high", "xhigh", "max"]
ModelQuirk = Literal[
    "no-stream-options",  # refuses stream_options
    "max-tokens",  # wants max_tokens, not max_completion_tokens
    "short-ids",  # tool ids must be nine alphanumerics (Mistral)
    "no-user-after-tool",  # an assistant message must stand between tool and user (Mistral)
    "text-parts",  # content must be a plain string
    "echo-reasoning",  # reasoning must come back with each assistant message (DeepSeek, Kimi)
    "text-calls",  # tool calls may arrive as text
    "system-role",  # `system`, not `developer`
    "no-cache-markers",  # refuses cache_control
    "no-cache-key",  # refuses prompt_cache_key
    "no-include",  # refuses include
    "usage-include",  # OpenRouter: ask for cost with usage:{include:true}
    "thinking-summaries",  # hides its thinking unless a summary of it is asked for (Anthropic)
    "no-thinking-summaries",  # ...and is served by one that refuses the question
    "frail",  # too small to summarise, to remember or to choose: rules do that
]


CONTEXT_EDITING_BETA = "context-management-2025-06-27"
"""The beta with which Anthropic leaves out old results at our word."""
COMPACTION_BETA = "compact-2026-09-04"
"""The beta with which it signs a summary, so that thinking after it stays valid."""


class Price(msgspec.Struct, frozen=True, omit_defaults=True):
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    read: float = 0.0
    write: float = 0.0
    write_1h: float = 0.0
    over: int = 0
    above: Price | None = None
    """The prices of a request whose prompt exceeds `over` tokens, where they differ."""
    search: float = 0.0
    """For a thousand searches of the web."""


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model behind one protocol: everything about it that shapes a request.

    Where it is served and with which key is not part of it: that depends on the machine and is
    never stored.
    """

    provider: str
    id: str
    protocol: ApiProtocol
    window: int = 200_000
    output: int = 32_000
    price: Price = Price()
    quirks: tuple[ModelQuirk, ...] = ()
    params: str = ""
    """Further members of the request body, as JSON text without braces."""
    betas: tuple[str, ...] = ()
    cache_ttl: Literal["5m", "1h"] = "5m"
    images: bool = True
    effort: Effort = ""
    """The requested effort; empty leaves it to the model."""

    @property
    def name(self) -> str:
        """The name that users write: `provider/id`."""
        return f"{self.provider}/{self.id}"

    @property
    def is_frail(self) -> bool:
        """True if the model is too small to summarise, remember or choose."""
        return "frail" in self.quirks

    @property
    def has_context_editing(self) -> bool:
        """True if its provider can clear old tool results on request."""
        return self.protocol == "anthropic" and CONTEXT_EDITING_BETA in self.betas

    @property
    def cache_seconds(self) -> float:
        """The seconds for which the provider keeps an unused prompt cached."""
        return 3_600.0 if self.cache_ttl == "1h" else 300.0


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The provider's token counts for one reply; the counts never overlap."""

    input: int = 0
    read: int = 0
    write: int = 0
    write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False
    beside: Usage | None = None
    """Usage on the way to the reply that is not part of its window."""
    searches: int = 0
    """The number of times the provider searched the web."""

    @property
    def prompt(self) -> int:
        """The size of the request: plain, read from cache, and written to it."""
        return self.input + self.read + self.write + self.write_1h

    @property
    def context(self) -> int:
        """The window in use once the reply is part of it."""
        return self.prompt + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            read=self.read + other.read,
            write=self.write + other.write,
            write_1h=self.write_1h + other.write_1h,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            searches=self.searches + other.searches,
            estimated=self.estimated or other.estimated,
            beside=self.beside + other.beside
            if self.beside and other.beside
            else self.beside or other.beside,
        )
