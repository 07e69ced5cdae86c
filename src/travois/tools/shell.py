"""Bash, BashOutput and KillShell: commands in the foreground and in the background.

A shell lives for one call. Its working folder outlives it: the shell tells us aside where it
stands when it ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import msgspec
from msgspec.structs import replace

from travois.engine.hooks import exported
from travois.engine.ports import Captured, Command, Completed, Env, Job
from travois.engine.tool import Here, Outcome, Refusal, Tool
from travois.kernel.blocks import Text
from travois.kernel.facts import Changed
from travois.policy.access import Access
from travois.policy.cage import PRIVATE_TMP
from travois.wire.jsontext import encoded

if TYPE_CHECKING:
    from travois.tools.output import Readable

DEFAULT = 120_000
LONGEST = 600_000
KEEP = 4 * 1024 * 1024
KEEP_JOB = 512 * 1024
GLIMPSE = 2_000
GLIMPSES = 0.1
REMARKS = 100
"""The tokens kept for what is said beside an output."""
ARGUMENT = 30_000
"""How many characters fit one argument, whatever they are: the kernel's limit is 128 KiB."""
SHELLS = (
    "/bin/bash",
    "/usr/bin/bash",
    "/usr/local/bin/bash",
    "/opt/homebrew/bin/bash",
    "/run/current-system/sw/bin/bash",
)
ASIDE = "TRAVOIS_ASIDE"
TELL = "{ command pwd -P; printf '\\\\0'; } >/dev/fd/$_travois_aside 2>/dev/null"
SCRIPT = (
    f"_travois_aside=${ASIDE} _travois_text=@TEXT@; unset {ASIDE}; shift $#; "
    f"""trap "{TELL}" EXIT; eval "$_travois_text"; """
    f"""{{ _travois_status=$?; eval "{TELL}"; set +x; }} 2>/dev/null; exit $_travois_status"""
)
"""Runs the text as it stands, without parameters, and tells where the shell stood at the end.

The trap tells it also after `exit` or `set -e`; the last line also where the text has set a trap
of its own. All on one line, so that the shell's messages count lines as the text does.
"""


class BashArgs(msgspec.Struct, frozen=True):
    """A command line and how to run it."""

    command: str
    timeout: Annotated[int, msgspec.Meta(description="ms", gt=0, le=LONGEST)] = DEFAULT
    description: str = ""
    run_in_background: bool = False
    sandbox: Annotated[
        Literal["on", "write", "network", "off"],
        msgspec.Meta(description="what a command failed for the lack of; the user is asked"),
    ] = "on"


class OutputArgs(msgspec.Struct, frozen=True):
    """Which background job, and which lines of its output."""

    bash_id: str
    filter: Annotated[str, msgspec.Meta(description="regex: only lines that match")] = ""


class KillArgs(msgspec.Struct, frozen=True):
    """Which background job to end."""

    shell_id: str


class Ran(msgspec.Struct, frozen=True, rename="camel"):
    """How a command ended, for programs."""

    exit_code: int | None
    interrupted: bool
    bytes: int
    cwd: str = ""


class Place(msgspec.Struct, frozen=True):
    """Where the shell stands from here on, and what the model should know of that."""

    cwd: str
    remark: str = ""


async def _bash(args: BashArgs, env: Env, call: str) -> Outcome:
    from travois.tools.sandbox_remarks import list_tmp, tell_denial, tell_new_entries

    if args.run_in_background:
        return await _background(args, env)
    entries = list_tmp(env.cage)
    done, start = await _run(args, env, call)
    place = _place(done, env, start=start)
    body = _shown(done.output, env, call)
    remarks = [*body.remarks, *_endings(done, args)]
    remarks += [remark for remark in (start.remark, place.remark) if remark]
    remarks += tell_denial(done, body.text, env.cage, cwd=start.cwd, line=args.command)
    remarks += tell_new_entries(env.cage, entries)
    remarks += env.processes.notices()
    ran = Ran(_code(done.status), done.timed_out, done.output.total, place.cwd)
    return Outcome(
        (Text(_joined(_headline(done), body.text, remarks)),),
        error=done.status != 0 or done.timed_out,
        detail=encoded(ran).decode(),
        changes=() if place.cwd == env.cwd else (Changed("cwd", place.cwd),),
        lines=body.lines,
    )


async def _run(args: BashArgs, env: Env, call: str) -> tuple[Completed, Place]:
    """Run the command where the shell stands, or in the workspace if that folder is gone."""
    glimpse = _glimpse(env)
    for place in (Place(env.cwd), Place(env.root, f"{env.cwd} is gone; this ran in {env.root}.")):
        command = replace(_command(args.command, place.cwd, env=env), whole=_whole(env, call))
        try:
            done = await env.processes.run(command, timeout=args.timeout / 1000, on_output=glimpse)
        except OSError as error:
            if place.cwd == env.root or await env.files.stat(place.cwd) is not None:
                raise Refusal(f"{error.strerror or error}.") from None
            continue
        return done, place
    raise AssertionError("the last place returns or raises")


def _whole(env: Env, call: str) -> str:
    """The file for an output that is too large to be held; empty where none can be kept."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in call)
    return os.path.join(env.kept, f"{name}.txt") if env.kept else ""


def _command(text: str, cwd: str, *, env: Env, keep: int = KEEP) -> Command:
    """The shell that runs this text. A long one is handed over in pieces and put together there."""
    pieces = [text[at : at + ARGUMENT] for at in range(0, len(text), ARGUMENT)] or [""]
    names = "".join(f"${{{number}}}" for number in range(1, len(pieces) + 1))
    shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "/bin/sh")
    argv = (shell, "-c", SCRIPT.replace("@TEXT@", names), os.path.basename(shell), *pieces)
    variables = exported(env.state.get("env", "")) | {"PWD": cwd}
    return Command(argv, cwd, env=variables, keep=keep, aside=ASIDE, cage=env.cage)


def _glimpse(env: Env) -> Callable[[bytes], None]:
    """Shows the newest output to the eye, a few times a second at most."""
    shown = -GLIMPSES

    def show(chunk: bytes) -> None:
        nonlocal shown
        if anyio.current_time() - shown >= GLIMPSES:
            shown = anyio.current_time()
            env.progress(chunk[-GLIMPSE:].decode(errors="replace"))

    return show


def _place(done: Completed, env: Env, *, start: Place) -> Place:
    """Where the shell said it stood last. It says nothing when it was killed or replaced."""
    told = done.aside.split(b"\0")[:-1]
    if not told:
        return Place(start.cwd)
    try:
        cwd = told[-1].removesuffix(b"\n").decode()
    except UnicodeDecodeError:
        return Place(start.cwd, f"The folder's name is not UTF-8; still in {start.cwd}.")
    if not cwd:
        return Place(env.root, f"The working folder is gone; back in {env.root}.")
    if cwd == os.path.realpath(start.cwd) or not os.path.isabs(cwd):
        return Place(start.cwd)
    return Place(cwd, f"Working folder: {cwd}")


def _headline(done: Completed) -> str:
    if done.timed_out:
        return ""  # how it took our signal says nothing of the command
    if done.status < 0:
        return f"Ended by signal {-done.status} ({_signal(-done.status)})"
    return "" if done.status <= 0 else f"Exit code {done.status}"


def _endings(done: Completed, args: BashArgs) -> Iterator[str]:
    if done.timed_out:
        yield (
            f"Timed out after {args.timeout / 1000:g} s and was ended with all it had started. "
            "Use a longer timeout or run_in_background."
        )
    if done.left_running:
        pids = ", ".join(map(str, done.left_running))
        yield f"Still running, until the session ends: process {pids}"


def _shown(output: Captured, env: Env, call: str) -> Readable:
    """As much of an output as there is room for; all of it is kept if that is not all."""
    from travois.tools.output import readable

    return readable(output, tokens=env.room.tokens - REMARKS, keep=partial(env.spill, call))


def _joined(headline: str, body: str, remarks: list[str]) -> str:
    parts = (headline, body.strip("\n"), *(f"[{remark}]" for remark in remarks))
    return "\n".join(part for part in parts if part) or "(no output)"


def _code(status: int) -> int:
    """The exit code that a shell would show."""
    return status if status >= 0 else 128 - status


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


async def _background(args: BashArgs, env: Env) -> Outcome:
    id = _next_id(env)
    try:
        command = _command(args.command, env.cwd, env=env, keep=KEEP_JOB)
        await env.processes.start(command, id=id)
    except OSError as error:
        raise Refusal(f"{error.strerror or error}.") from None
    said = f"Running in the background as {id}. BashOutput shows its output, KillShell ends it."
    if env.cage is not None and env.cage.backend == "full":
        said += f"\n[{PRIVATE_TMP}; on disk, what it leaves there is in {env.cage.temp}.]"
    return Outcome((Text(said),), changes=(Changed(f"job:{id}", "running"),))


def _next_id(env: Env) -> str:
    """A name that no job of this session has had, also before it was resumed."""
    taken = {*env.processes.jobs(), *(name.removeprefix("job:") for name in env.state)}
    number = 1
    while f"bash_{number}" in taken:
        number += 1
    return f"bash_{number}"


async def _output(args: OutputArgs, env: Env, call: str) -> Outcome:
    job = _job(env, args.bash_id)
    status = job.status
    output = job.fresh()
    if args.filter and output.total:
        output = await _matching(output, env, pattern=args.filter)
    body = _shown(output, env, call)
    remarks = [*body.remarks, *env.processes.notices()]
    text = _joined(_state(status), body.text or "(no new output)", remarks)
    ran = Ran(None if status is None else _code(status), status is None, output.total)
    return Outcome(
        (Text(text),),
        detail=encoded(ran).decode(),
        changes=_ended(env, job.id, status),
        lines=output.lines,
    )


async def _matching(output: Captured, env: Env, *, pattern: str) -> Captured:
    """The lines that match. Ripgrep looks for them: no pattern can make it hang."""
    argv = ("rg", "--no-config", "--text", "--no-line-number", "--regexp", pattern, "--", "-")
    command = Command(argv, env.root, stdin=output.joined(), keep=KEEP_JOB, stderr="apart")
    done = await env.processes.run(command, timeout=10)
    if done.status > 1:
        raise Refusal(f"filter: {done.errors.joined().decode(errors='replace').strip()}")
    return done.output


async def _kill(args: KillArgs, env: Env, call: str) -> Outcome:
    job = _job(env, args.shell_id)
    before = job.status
    await job.kill()
    if before is None:
        said = _joined(
            f"{job.id} was ended with all it had started.", "", [*env.processes.notices()]
        )
        return Outcome((Text(said),), changes=(Changed(f"job:{job.id}", "killed"),))
    said = f"{job.id} had ended before ({_state(before)})."
    return Outcome((Text(said),), changes=_ended(env, job.id, before))


def _job(env: Env, id: str) -> Job:
    jobs = env.processes.jobs()
    if id in jobs:
        return jobs[id]
    if f"job:{id}" in env.state:
        raise Refusal(f"{id} ended with the process that had started it. Start it again.")
    raise Refusal(f"There is no job {id!r}. Jobs: {', '.join(jobs) or 'none'}.")


def _state(status: int | None) -> str:
    if status is None:
        return "running"
    return f"exit code {status}" if status >= 0 else f"ended by {_signal(-status)}"


def _ended(env: Env, id: str, status: int | None) -> tuple[Changed, ...]:
    change = Changed(f"job:{id}", _state(status))
    return () if env.state.get(change.what) == change.value else (change,)


def _executes(args: BashArgs, here: Here) -> tuple[Access, ...]:
    line = Access("exec", args.command)
    match args.sandbox:
        case "on" | "write":
            return (line,)
        case "network":
            return (line, Access("net", "any host"))
        case "off":
            return (line, Access("leave", args.command))


def _nothing(args: msgspec.Struct, here: Here) -> tuple[Access, ...]:
    return ()


def _summary(args: BashArgs) -> str:
    return args.description or args.command.strip().partition("\n")[0]


BASH = Tool(
    name="Bash",
    description=(
        "Run a bash command. The working folder persists between calls, nothing else does. "
        "No terminal and no stdin. Long output is cut and kept in a file. "
        "run_in_background for servers and watchers. "
        "Prefer Read, Edit, Grep, Glob over cat, sed, grep, find."
    ),
    args=BashArgs,
    access=_executes,
    run=_bash,
    bounded=True,
    summary=_summary,
)
BASH_OUTPUT = Tool(
    name="BashOutput",
    description="New output and status of a background Bash job.",
    args=OutputArgs,
    access=_nothing,
    run=_output,
    bounded=True,
    summary=lambda args: f"Output of {args.bash_id}",
    polls=True,
)
KILL_SHELL = Tool(
    name="KillShell",
    description="End a background Bash job and all it started.",
    args=KillArgs,
    access=_nothing,
    run=_kill,
    summary=lambda args: f"End {args.shell_id}",
)
