"""How each protocol is asked to think more or less: one of five words, as far as it knows it."""

from __future__ import annotations

from typing import assert_never

from travois.core.json import utf8
from travois.core.models import Effort, Model

LEVELS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
BUDGETS: tuple[tuple[int, Effort], ...] = ((8_000, "low"), (16_000, "medium"), (32_000, "high"))
"""Below how many tokens of thinking, where somebody counts in these, which effort is meant."""
NAMES = ("effort", "outputconfig", "reasoning", "think", "thinkingconfig", "thinkinglevel")
"""What servers call it when they refuse it."""


def refused(field: str) -> bool:
    """Whether a server that does not know this field does not know the effort."""
    bare = field.rpartition(".")[2].lower().replace("_", "").replace(" ", "")
    return bare.removeprefix("reasoning") in ("", *NAMES) and bool(bare)


def worth(tokens: int) -> Effort:
    """The effort that comes nearest to so much thinking."""
    for most, level in BUDGETS:
        if tokens < most:
            return level
    return "max"


def further(model: Model) -> bytes:
    """What stands at the end of a body: the effort, and further members that the model wants."""
    return effort(model) + (b"," + utf8(model.params) if model.params else b"")


def effort(model: Model) -> bytes:
    """The member that asks for the effort, with a comma before it; nothing if none was chosen."""
    if not model.effort:
        return b""
    most = "high" if model.effort in ("xhigh", "max") else model.effort
    match model.protocol:
        case "anthropic":
            return b',"output_config":{"effort":"%s"}' % model.effort.encode()
        case "responses":
            level = "xhigh" if model.effort == "max" else model.effort
            return b',"reasoning":{"effort":"%s"}' % level.encode()
        case "chat":
            return b',"reasoning_effort":"%s"' % most.encode()
        case "gemini":
            return b',"thinkingConfig":{"thinkingLevel":"%s"}' % most.encode()
        case "ollama":
            return b',"think":"%s"' % most.encode()
        case _:
            assert_never(model.protocol)
