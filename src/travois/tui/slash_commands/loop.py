"""/loop: send a prompt again and again, and list or stop what starts turns by itself."""

from __future__ import annotations

import re

from travois.core.errors import UserError
from travois.engine.wake_ups import MAX_WAKE_UPS, WakeUp, list_wake_ups, make_wake_up_id
from travois.terminal import escape_controls, format_table
from travois.tools.wake_up import describe_wake_up
from travois.tui.slash import CommandHost, SlashCommand

INTERVAL_PATTERN = re.compile(r"(\d{1,6})(s|m|h|d)")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MIN_SECONDS = 10
MAX_SECONDS = 31 * 86_400
LOOP_FIX = "For example: /loop 10m check whether the build is green"


async def _run_loop_command(host: CommandHost, typed: str) -> str:
    """Run /loop: list, start or stop."""
    word, _, rest = typed.strip().partition(" ")
    match word:
        case "" | "list":
            return _list_waiting(host)
        case "stop":
            return _stop_loops(host, rest.split())
        case _:
            return _start_loop(host, word, rest.strip())


def _list_waiting(host: CommandHost) -> str:
    rows = [
        (wake.id, describe_wake_up(wake), escape_controls(wake.prompt, lines="show"))
        for wake in list_wake_ups(host.session.runtime.agent.session)
    ]
    return format_table([("ID", "WHEN", "PROMPT"), *rows]) if rows else f"No loops. {LOOP_FIX}"


def _start_loop(host: CommandHost, interval: str, prompt: str) -> str:
    agent = host.session.runtime.agent
    found = INTERVAL_PATTERN.fullmatch(interval)
    seconds = int(found[1]) * UNIT_SECONDS[found[2]] if found else 0
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        why = "an interval is from 10s to 31d, such as 30s, 10m or 2h"
        raise UserError(f"{interval!r} is not an interval", why=why, fix=LOOP_FIX)
    if not prompt or prompt.startswith(("/", "!", "#")):
        raise UserError("/loop needs a prompt; commands cannot be repeated", fix=LOOP_FIX)
    if not agent.runtime.stays_open:
        raise UserError("Nothing starts turns here", why="this run ends after its prompts")
    if len(list_wake_ups(agent.session)) >= MAX_WAKE_UPS:
        raise UserError(f"{MAX_WAKE_UPS} wake-ups are set already", fix="/loop stop ID")
    now = agent.runtime.clock()
    wake = WakeUp(make_wake_up_id(f"{now}{prompt}"), prompt, due=now, every=float(seconds))
    agent.session.append(wake.change)
    return f"Loop {wake.id}: now and every {interval}. `/loop stop {wake.id}` ends it."


def _stop_loops(host: CommandHost, ids: list[str]) -> str:
    """Stop the loops and wake-ups with these ids; all of them if none is named."""
    session = host.session.runtime.agent.session
    known = {wake.id: wake for wake in list_wake_ups(session)}
    if unknown := [id for id in ids if id not in known]:
        raise UserError(f"No loop {unknown[0]!r}", fix=", ".join(known) or "There is none.")
    chosen = ids or list(known)
    for id in chosen:
        session.append(known[id].cancellation)
    return f"Stopped: {', '.join(chosen)}" if chosen else "There is none."


LOOP_COMMAND = SlashCommand(
    "/loop [10m PROMPT]",
    "send a prompt again and again; list, stop [ID]",
    _run_loop_command,
    lambda desk: ("list", "stop"),
    when="ever",
)
