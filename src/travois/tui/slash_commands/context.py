"""Slash commands about the context window and its cost."""

from __future__ import annotations

import re
import time

from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import User
from travois.lazy_imports import lazy_imports
from travois.tui.slash import CommandHost, SlashCommand

with lazy_imports():
    from travois.commands import context, cost
    from travois.context.compaction import compact


# Context and cost: /compact, /context, /notes and /cost.

MAX_MESSAGES_OFFERED = 100
FROM_MESSAGE, UP_TO_MESSAGE, PICK_MESSAGE = "from", "up-to", "pick"
COMPACT_PARTS = (
    ("everything but the newest messages", "as automatic compaction does"),
    ("from a message on", "messages before it stay, and so does the cache"),
    ("up to a message", "messages after it stay"),
)
COMPACT_SIDE_PATTERN = re.compile(r"(from|up-to)(?:\s+(\d+)(?:\s+(.*))?)?", re.DOTALL)


async def _run_compact_command(host: CommandHost, typed: str) -> str:
    """Run /compact: compact everything, or one side of a named or picked message."""
    if typed == PICK_MESSAGE:
        part = await host.pick_option("Compact what?", COMPACT_PARTS)
        if part is None:
            return ""
        typed = ("", FROM_MESSAGE, UP_TO_MESSAGE)[part]
    chosen = COMPACT_SIDE_PATTERN.fullmatch(typed)
    if chosen is None:
        return compact.describe_compaction(await host.session.compact(typed))
    entry = int(chosen[2]) if chosen[2] else await _pick_message(host, chosen[1])
    if entry is None:
        return ""
    first, last = (entry, 0) if chosen[1] == FROM_MESSAGE else (0, entry)
    return compact.describe_compaction(
        await host.session.compact(chosen[3] or "", first=first, last=last)
    )


async def _pick_message(host: CommandHost, side: str) -> int | None:
    """Let the user pick one of their messages for /compact, newest first."""
    items = host.session.runtime.agent.session.view.items
    said = [
        (item.seq, " ".join(extract_text(item.fact.content).split())[:200])
        for item in items
        if isinstance(item.fact, User) and item.fact.origin == "human"
    ][::-1][:MAX_MESSAGES_OFFERED]
    if not said:
        raise UserError(
            "There is no message to choose", why="none of yours is in the context window"
        )
    title = (
        "Compact from which message on?" if side == FROM_MESSAGE else "Compact up to which message?"
    )
    picked = await host.pick_option(title, [(text, "") for _, text in said])
    return None if picked is None else said[picked][0]


async def _run_context_command(host: CommandHost, _: str) -> str:
    """Run /context: show what fills the context window."""
    agent = host.session.runtime.agent
    return context.render_window_table(agent.session, agent.context.layers)


async def _run_notes_command(host: CommandHost, _: str) -> str:
    """Run /notes: show the model's notes on the session."""
    return context.render_latest_notes(
        context.list_notes_versions(host.session.runtime.agent.session.all_entries())
    )


async def _run_cost_command(host: CommandHost, _: str) -> str:
    """Run /cost: show the cost and the prompt cache misses."""
    spent = cost.compute_session_cost(host.session.runtime.agent.session.all_entries())
    return cost.render_session_cost(spent, time.time())


WINDOW_COMMANDS = {
    "compact": SlashCommand(
        "/compact [FOCUS | from [N] | up-to [N] | pick]",
        "compact older messages, or all on one side of a message",
        _run_compact_command,
        lambda desk: (FROM_MESSAGE, UP_TO_MESSAGE, PICK_MESSAGE),
        when="long",
    ),
    "context": SlashCommand(
        "/context", "show what fills the context window", _run_context_command, when="ever"
    ),
    "notes": SlashCommand(
        "/notes", "show the model's notes on the session", _run_notes_command, when="ever"
    ),
    "cost": SlashCommand(
        "/cost", "show the cost and prompt cache misses", _run_cost_command, when="ever"
    ),
}
