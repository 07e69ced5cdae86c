"""What Bash and the tools for background commands share: output, status, and waiting."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from travois.core.content import Text
from travois.core.facts import Changed
from travois.core.json import encoded
from travois.engine.background_jobs import describe_status
from travois.ports.tool import Outcome, Refusal
from travois.ports.world import Captured, Command, Env, Following, Job

if TYPE_CHECKING:
    from travois.tools.output import Readable

REMARKS = 100
"""The tokens kept for what is said beside an output."""
KEEP_JOB = 512 * 1024
TICK = 0.25
"""How often a long wait looks whether somebody has something to say to the model."""
BATCH = 0.05
"""How long output is collected before it is looked at."""
QUIET = 0.5
"""How many seconds without output mean that a program waits to be typed to."""
LONGEST_LINE = 64 * 1024
"""How much of an unfinished line is kept to be looked at once more."""
HIDDEN = msgspec.Meta(extra_json_schema={"x-hidden": True})
"""An argument that is accepted and not told: some models send it, others need not know."""

Why = Literal["ended", "matched", "quiet", "timeout", "mail"]
"""Why a wait is over."""


class Ran(msgspec.Struct, frozen=True, rename="camel"):
    """How a command ended, for programs."""

    exit_code: int | None
    interrupted: bool
    bytes: int
    cwd: str = ""


class Detached(Ran, frozen=True, rename="camel"):
    """How a command stands that goes on in the background, for programs."""

    background_task_id: str = ""


def show_output(output: Captured, env: Env, call: str, *, most: int = 0) -> Readable:
    """As much of an output as there is room for; all of it is kept if that is not all."""
    from travois.tools.output import readable

    room = env.room.tokens - REMARKS
    tokens = min(room, most) if most > 0 else room
    return readable(output, tokens=tokens, keep=partial(env.spill, call))


def join_parts(headline: str, body: str, remarks: list[str]) -> str:
    """A headline, a body, and remarks in brackets, without the empty ones."""
    parts = (headline, body.strip("\n"), *(f"[{remark}]" for remark in remarks))
    return "\n".join(part for part in parts if part) or "(no output)"


def exit_code(status: int) -> int:
    """The exit code that a shell would show."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def status_change(env: Env, id: str, status: int | None) -> tuple[Changed, ...]:
    """The fact that a job has another status than the log says; nothing if it has not."""
    change = Changed(f"job:{id}", describe_status(status))
    return () if env.state.get(change.what) == change.value else (change,)


def find_job(env: Env, id: str) -> Job:
    """The job of that id; a bare number will do. Raises `Refusal`."""
    jobs = env.processes.jobs()
    name = f"bash_{id}" if id.isdigit() else id
    if name in jobs:
        return jobs[name]
    if f"job:{name}" in env.state:
        raise Refusal(f"{name} ended with the process that had started it. Start it again.")
    raise Refusal(f"There is no job {id!r}. Jobs: {', '.join(jobs) or 'none'}.")


async def matching_lines(data: bytes, env: Env, *, pattern: str, name: str) -> Captured:
    """The lines that match. Ripgrep looks for them: no pattern can make it hang.

    Raises `Refusal` for a pattern that is none, also where there is nothing to look at.
    """
    argv = ("rg", "--no-config", "--text", "--no-line-number", "--regexp", pattern, "--", "-")
    command = Command(argv, env.root, stdin=data or b"\n", keep=KEEP_JOB, stderr="apart")
    done = await env.processes.run(command, timeout=10)
    if done.status > 1:
        why = done.errors.joined().decode(errors="replace").strip().removeprefix("rg: ")
        raise Refusal(f"{name} is not a valid regular expression: {why}")
    return done.output if data else Captured(b"", b"", 0)


class LineWatch:
    """Looks for a line in all that a job says, batch by batch."""

    def __init__(self, job: Job, env: Env, *, pattern: str, name: str) -> None:
        self._env = env
        self._pattern = pattern
        self._name = name
        self._fresh = job.waiting().joined()
        self._rest = b""
        self.following: Following | None = None
        self.line = ""
        """The first line that matched."""

    async def found(self) -> bool:
        """Whether a line has matched by now."""
        from travois.tools.output import plain_text

        if self.following is not None:
            self._fresh += self.following.take()
        if not self._fresh:
            return False
        data, self._fresh = self._rest + self._fresh, b""
        self._rest = data.rpartition(b"\n")[2][-LONGEST_LINE:]
        text = plain_text(data.decode(errors="replace"))
        search = partial(matching_lines, pattern=self._pattern, name=self._name)
        hits = await search(text.encode(errors="replace"), self._env)
        self.line = hits.joined().decode(errors="replace").partition("\n")[0]
        return bool(hits.total)


async def wait_for_job(
    job: Job,
    env: Env,
    *,
    seconds: float,
    quiet: float = 0.0,
    found: Callable[[], Awaitable[bool]] | None = None,
) -> Why:
    """Wait for the end of a job, for what is looked for, or until it has been quiet so long.

    Ends early if somebody has something to say to the model.
    """
    until, heard = anyio.current_time() + seconds, 0.0
    while True:
        if found is not None and await found():
            return "matched"
        if job.over:
            return "ended"
        now = anyio.current_time()
        if quiet and heard and now - heard >= quiet:
            return "quiet"
        if env.has_mail:
            return "mail"
        if now >= until:
            return "timeout"
        pause = min(until - now, TICK, quiet or TICK)
        with anyio.move_on_after(pause) as waited:
            await job.changed()
        if not waited.cancelled_caught:
            heard = anyio.current_time()
            await anyio.sleep(min(BATCH, max(0.0, until - heard)))


def show_job(
    job: Job, env: Env, call: str, *, most: int, why: Why = "ended", until: str = ""
) -> Outcome:
    """What a program said since it was last asked, and how it ended if it did."""
    status = job.status if job.over else None
    output = job.fresh()
    body = show_output(output, env, call, most=most)
    remarks = [*body.remarks, *env.processes.notices()]
    if why == "timeout" and until:
        remarks.append(f"No line matched {until!r}.")
    if status is None and why == "timeout":
        remarks.append(f"{job.id} is still running.")
    ran = Ran(None if status is None else exit_code(status), interrupted=False, bytes=output.total)
    headline = "" if status is None else describe_status(status)
    return Outcome(
        (Text(join_parts(headline, body.text or "(no new output)", remarks)),),
        detail=encoded(ran).decode(),
        changes=status_change(env, job.id, status) if status is not None else (),
        lines=body.lines,
    )
