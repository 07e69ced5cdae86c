"""Simple requests in a small repository, the calls that are right for each, and who finds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from travois.local_model.router import RoutedCall

FOLDER = Path(__file__).parent / "simple_requests"
FREE = {"output_mode", "replace_all", "-i", "-n", "description"}
"""Arguments that may stand in a call or not."""
Outcome = Literal["right", "wrong", "none"]


class Call(msgspec.Struct, frozen=True):
    tool: str
    input: dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    text: str
    calls: tuple[Call, ...] = ()
    """Those of which each is right; none where no call is."""


def requests(name: str) -> list[Request]:
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    return [msgspec.convert(json.loads(line), Request) for line in lines]


def judged(request: Request, routed: RoutedCall | None) -> Outcome:
    """Whether a request got what it asked for. Words in place of a call do no harm."""
    if routed is None or (request.calls and not routed.tool and request.calls[0].tool):
        return "none" if request.calls else "right"
    if not request.calls:
        return "wrong" if routed.tool else "right"
    return "right" if any(_same(call, routed) for call in request.calls) else "wrong"


def _same(call: Call, routed: RoutedCall) -> bool:
    extra = routed.input.keys() - call.input.keys() - FREE
    kept = {key: routed.input.get(key) for key in call.input}
    return (call.tool, call.input, extra) == (routed.tool, kept, set())


def counted(outcomes: Sequence[Outcome]) -> dict[Outcome, int]:
    return {
        "right": outcomes.count("right"),
        "wrong": outcomes.count("wrong"),
        "none": outcomes.count("none"),
    }
