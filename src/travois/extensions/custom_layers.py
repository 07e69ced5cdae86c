"""Context layers that a program or package brings: they say which old results to clear.

Model sees: the layer's text in place of each cleared result.
Tokens: fewer by the cleared results.
Cache: moves the prefix with each clearing, so the next request reads the rest anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import msgspec

from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Cleared, Result
from travois.core.tokens import context_tokens, estimate_tokens
from travois.core.tool_names import canonical_call
from travois.core.view import View


class ShownResult(msgspec.Struct, frozen=True):
    """A tool result that the model still sees."""

    call_id: str
    tool: str
    text: str
    tokens: int
    age: int
    """The number of replies of the model since."""


class WindowState(msgspec.Struct, frozen=True):
    """The context window before a request."""

    tokens: int
    """The tokens in use."""
    limit: int
    """The size of the model's window."""
    results: tuple[ShownResult, ...]
    """The tool results that are shown, the oldest first."""


class ClearResult(msgspec.Struct, frozen=True):
    """A result to clear, and the text that stands in its place."""

    call_id: str
    text: str = "[This result was cleared to save room. Call the tool again if you need it.]"


@runtime_checkable
class ContextLayer(Protocol):
    """A context layer of a program's own, asked before each request."""

    def plan(self, window: WindowState) -> Iterable[ClearResult]:
        """Return the results to clear; nothing if the window is fine as it is."""
        ...


def plan_custom_clearing(layers: Iterable[ContextLayer], view: View) -> Iterator[Cleared]:
    """Yield the facts that a program's layers propose, each call in one of them at most."""
    state = describe_shown_results(view)
    shown = {one.call_id: one.text for one in state.results}
    for layer in layers:
        for clearing in layer.plan(state):
            if shown.pop(clearing.call_id, clearing.text) != clearing.text:
                yield Cleared((clearing.call_id,), clearing.text)


def describe_shown_results(view: View) -> WindowState:
    """Describe the window for a program's layers."""
    calls, replies = dict[str, Call](), 0
    found: list[tuple[Result, int]] = []
    for item in view.items:
        if isinstance(item.fact, Assistant):
            replies += 1
            calls |= {one.id: one for one in extract_calls(item.fact.content)}
        elif isinstance(item.fact, Result):
            found.append((item.fact, replies))
    return WindowState(
        context_tokens(view),
        view.epoch.model.window if view.epoch else 0,
        tuple(
            ShownResult(
                result.call,
                canonical_call(calls[result.call]).name if result.call in calls else "",
                text := extract_text(result.content),
                estimate_tokens(text),
                replies - at,
            )
            for result, at in found
        ),
    )
