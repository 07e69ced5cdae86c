"""Threads: conversations that the server keeps for a few minutes, so that only news is sent."""

from __future__ import annotations

import msgspec

from travois_lab.objects import Json, inner, listed
from travois_lab.refusal import Refusal, coded

LIFE = 300.0
FIXED = (
    "model",
    "tool_choice",
    "thinking",
    "mcp_servers",
    "context_management",
    "output_config",
    "cache_control",
)
UNSUPPORTED = ("compaction", "system", "tools")


class Thread(msgspec.Struct):
    """One conversation under the id of its last message."""

    body: Json
    betas: tuple[str, ...]
    expires: float
    continued: bool = False


class Threads:
    """All conversations that can still be continued."""

    def __init__(self) -> None:
        self.open: dict[str, Thread] = {}

    def resolve(self, body: Json, betas: tuple[str, ...], now: float) -> Json:
        """The whole request behind one that continues a thread."""
        thread = inner(body, "thread")
        if thread.get("type") != "continue":
            return body
        unsupported = [field for field in UNSUPPORTED if field in body]
        if unsupported:
            said = f"thread: not supported together with {', '.join(unsupported)}"
            raise coded(said, "thread_unsupported_request", unsupported=unsupported)
        found = self.open.get(str(thread.get("previous_message_id")))
        if found is None or now >= found.expires:
            details = {"error_code": "thread_not_found"}
            raise Refusal("thread: no such thread", status=404, details=details)
        if found.continued:
            raise coded("thread: it was already continued", "thread_already_continued")
        changed = [field for field in FIXED if body.get(field) != found.body.get(field)]
        if changed or set(betas) != set(found.betas):
            said = f"thread: {', '.join(changed) or 'betas'} differ from its first request"
            raise coded(said, "thread_fingerprint_mismatch")
        found.continued = True
        messages = [*listed(found.body, "messages"), *listed(body, "messages")]
        return {**found.body, **body, "messages": messages}

    def keep(
        self, id: str, body: Json, *, reply: list[Json], betas: tuple[str, ...], now: float
    ) -> None:
        """Remember a conversation together with the reply that was just given."""
        messages = [*listed(body, "messages"), {"role": "assistant", "content": reply}]
        self.open[id] = Thread({**body, "messages": messages}, betas, now + LIFE)
