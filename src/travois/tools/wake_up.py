"""ScheduleWakeup: the session sleeps until a time, a change of a file, or the end of a command."""

from __future__ import annotations

from datetime import datetime, timedelta
from time import time
from typing import Annotated

import msgspec

from travois.engine.wake_ups import MAX_WAKE_UPS, WakeUp, make_wake_up_id, stamp_file
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.sessions.session import WAKE_UP_PREFIX
from travois.tools.paths import absolute_path, read_access
from travois.tools.shell.bash import find_job

MAX_MINUTES = 60 * 24 * 31
NOBODY_WAITS = (
    "Nothing can wake this conversation: it ends with its last reply. Wait within the turn, with "
    "Monitor or sleep, or say in your answer what is to be done later."
)


class WakeUpArgs(msgspec.Struct, frozen=True):
    """A message to yourself, and what brings it: the first of these."""

    prompt: Annotated[str, msgspec.Meta(min_length=1, description="what to do then")]
    minutes: Annotated[float, msgspec.Meta(ge=0, le=MAX_MINUTES)] = 0.0
    at: Annotated[str, msgspec.Meta(description="HH:MM or YYYY-MM-DDTHH:MM, local time")] = ""
    file: Annotated[str, msgspec.Meta(description="when this file changes or appears")] = ""
    task_id: Annotated[str, msgspec.Meta(description="when this background command ends")] = ""


async def _run_schedule_wake_up(args: WakeUpArgs, env: Env, call: str) -> ToolOutcome:
    """Run the ScheduleWakeup tool: record the wake-up; the session waits between turns."""
    if not env.stays_open:
        raise ToolError(NOBODY_WAITS)
    waiting = sum(1 for what, v in env.state.items() if v and what.startswith(WAKE_UP_PREFIX))
    if waiting >= MAX_WAKE_UPS:
        raise ToolError(f"{MAX_WAKE_UPS} wake-ups are set; the user can stop some: /loop")
    now, path = time(), absolute_path(args.file, env.cwd) if args.file else ""
    if not (args.minutes or args.at or path or args.task_id):
        raise ToolError("Say when: minutes, at, file or task_id.")
    if args.minutes and args.at:
        raise ToolError("Give minutes or at, not both.")
    due = parse_wake_time(args.at, now) if args.at else now + args.minutes * 60
    stat = await env.files.stat(path) if path else None
    wake = WakeUp(
        id=make_wake_up_id(call),
        prompt=args.prompt,
        due=due if args.at or args.minutes else 0.0,
        file=path,
        stamp=stamp_file(stat.modified, stat.size) if stat else "",
        job=find_job(env, args.task_id).id if args.task_id else "",
    )
    text = (
        f"Wake-up {wake.id} is set: {describe_wake_up(wake)}. End your turn; it starts a new one."
    )
    return text_outcome(text, changes=(wake.change,))


def parse_wake_time(text: str, now: float) -> float:
    """Return the next such time of day, or the time of a date; raises `ToolError`."""
    start = datetime.fromtimestamp(now)  # noqa: DTZ006 - the local time is meant
    try:
        if "T" in text or "-" in text:
            found = datetime.fromisoformat(text)
        else:
            clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007
            found = start.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
            found += timedelta(days=found <= start)
    except ValueError:
        raise ToolError(f"{text!r} is not a time: use HH:MM or YYYY-MM-DDTHH:MM.") from None
    if not now < found.timestamp() <= now + MAX_MINUTES * 60:
        raise ToolError(f"{text} is not within the next 31 days; it is {start:%Y-%m-%dT%H:%M} now.")
    return found.timestamp()


def describe_wake_up(wake: WakeUp) -> str:
    """Describe when a wake-up comes."""
    at = datetime.fromtimestamp(wake.due)  # noqa: DTZ006 - the local time is meant
    conditions = (
        f"at {at:%Y-%m-%d %H:%M:%S}" if wake.due else "",
        f"then every {timedelta(seconds=wake.every)}" if wake.every else "",
        f"when {wake.file} changes" if wake.file else "",
        f"when {wake.job} ends" if wake.job else "",
    )
    return (", " if wake.every else " or ").join(one for one in conditions if one)


def _find_access(args: WakeUpArgs, here: CallLocation) -> tuple[Access, ...]:
    return read_access(args.file, here) if args.file else ()


SCHEDULE_WAKE_UP = Tool(
    name="ScheduleWakeup",
    description=(
        "Sleep: after your turn ends, a message from yourself starts a new one after some minutes, "
        "at a time, when a file changes or when a background command ends."
    ),
    args=WakeUpArgs,
    access=_find_access,
    run=_run_schedule_wake_up,
    summary=lambda args: f"Wake up later: {args.prompt}",
    deferred=True,
)
