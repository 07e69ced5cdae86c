"""Callbacks of the host, as hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from travois.core.errors import Fault
from travois.headless.control.lines import Matcher
from travois.headless.control.messages import Desk
from travois.hooks.config import CALLED, Listener
from travois.hooks.events import EVENTS


def listeners(desk: Desk, hooks: Mapping[str, tuple[Matcher, ...]]) -> Iterator[Listener]:
    """Those of the host's hooks for which there is an event here."""
    for event, matchers in hooks.items():
        for matcher in matchers if event in EVENTS else ():
            for id in matcher.hook_callback_ids:
                yield Listener(
                    event,
                    partial(_call, desk, id),
                    matcher=_valid(matcher.matcher or ""),
                    timeout=matcher.timeout or CALLED,
                    on_failure="continue" if matcher.on_failure in (None, "continue") else "block",
                )


def unheard(hooks: Mapping[str, tuple[Matcher, ...]]) -> tuple[str, ...]:
    """What the user should know of hooks that will never be called."""
    strange = [event for event in hooks if event not in EVENTS]
    return tuple(f"hooks of {event} are ignored: there is no such event here" for event in strange)


def _valid(matcher: str) -> str:
    try:
        re.compile("" if matcher == "*" else matcher)
    except re.error as error:
        raise Fault(f"The matcher {matcher!r} is no regular expression", why=str(error)) from None
    return matcher


async def _call(desk: Desk, id: str, told: dict[str, Any]) -> object:
    body = {"callback_id": id, "input": told, "tool_use_id": told.get("tool_use_id")}
    return msgspec.json.decode(await desk.ask("hook_callback", body))
