"""BashOutput, KillShell, Monitor, TaskOutput, TaskStop and BashInput: background jobs."""

from __future__ import annotations

from posixpath import basename
from typing import Annotated

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.content import Text
from travois.core.facts import Changed
from travois.core.json import encode_json
from travois.engine.background_jobs import describe_status
from travois.lazy_imports import lazy_imports
from travois.permissions.access import Access
from travois.ports.agents import Subagents
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import BackgroundJob, Env
from travois.tools.shell.bash import (
    HIDDEN_ARGUMENT,
    MAIL_POLL_SECONDS,
    QUIET_SECONDS,
    CommandResult,
    LineWatch,
    exit_code,
    find_job,
    find_matching_lines,
    join_result_parts,
    show_job,
    show_output,
    status_change,
    wait_for_job,
)

with lazy_imports():
    from travois.tools import output as tool_output


MAX_WAIT_MS = 3_600_000
DEFAULT_BLOCK_MS = 30_000
"""Default milliseconds that TaskOutput waits."""
DEFAULT_MONITOR_MS = 300_000
WAIT_INTERRUPTED = "The wait ended early: you have a new message."


class OutputArgs(msgspec.Struct, frozen=True):
    """A background job, and a filter for its output."""

    bash_id: str
    filter: Annotated[str, msgspec.Meta(description="regex: only lines that match")] = ""
    max_output_tokens: Annotated[int, HIDDEN_ARGUMENT] = 0


class KillArgs(msgspec.Struct, frozen=True):
    """A background job to kill."""

    shell_id: str


class MonitorArgs(msgspec.Struct, frozen=True):
    """A background command, and a line to wait for."""

    task_id: str
    pattern: Annotated[str, msgspec.Meta(description="regex for a line; empty: until it ends")] = ""
    timeout: Annotated[int, msgspec.Meta(description="ms", gt=0, le=MAX_WAIT_MS)] = (
        DEFAULT_MONITOR_MS
    )


class TaskOutputArgs(msgspec.Struct, frozen=True):
    """A background command or agent, and whether to wait until it ends."""

    task_id: str
    block: bool = True
    timeout: Annotated[int, msgspec.Meta(description="ms to wait", ge=0, le=MAX_WAIT_MS)] = (
        DEFAULT_BLOCK_MS
    )


class TaskStopArgs(msgspec.Struct, frozen=True):
    """A background command or agent to stop."""

    task_id: str


async def _run_bash_output(args: OutputArgs, env: Env, call: str) -> ToolOutcome:
    """Run the BashOutput tool: show new output of a background job, filtered if asked."""
    job = find_job(env, args.bash_id)
    if args.filter:  # before anything is taken: a bad pattern loses no output
        await find_matching_lines(b"", env, pattern=args.filter, name="filter")
    return await _show_new_output(job, env, call, pattern=args.filter, most=args.max_output_tokens)


async def _show_new_output(
    job: BackgroundJob,
    env: Env,
    call: str,
    *,
    headline: str = "",
    pattern: str = "",
    remarks: tuple[str, ...] = (),
    most: int = 0,
) -> ToolOutcome:
    """Show a background job's unread output and its status."""
    status, output = job.status, job.take_output()
    if pattern and output.total:
        text = tool_output.strip_terminal_codes(
            output.head_and_tail().decode(errors="replace")
        ).encode(errors="replace")
        output = await find_matching_lines(text, env, pattern=pattern, name="filter")
    body = show_output(output, env, call, most=most)
    told = [*body.remarks, *remarks, *env.processes.take_notices()]
    state = f"{headline}\n{describe_status(status)}" if headline else describe_status(status)
    ran = CommandResult(None if status is None else exit_code(status), status is None, output.total)
    return ToolOutcome(
        (Text(join_result_parts(state, body.text or "(no new output)", told)),),
        detail=encode_json(ran).decode(),
        changes=status_change(env, job.id, status),
        lines=output.line_count,
    )


async def _run_kill_shell(args: KillArgs, env: Env, call: str) -> ToolOutcome:
    return await _stop_job(find_job(env, args.shell_id), env)


async def _stop_job(job: BackgroundJob, env: Env) -> ToolOutcome:
    """Kill a background job for KillShell or TaskStop, or say how it had already ended."""
    before = job.status
    await job.kill()
    if before is None:
        text = f"Killed {job.id} and all processes it had started."
        text = join_result_parts(text, "", [*env.processes.take_notices()])
        return text_outcome(text, changes=(Changed(f"job:{job.id}", "killed"),))
    text = f"{job.id} had already ended ({describe_status(before)})."
    return text_outcome(text, changes=status_change(env, job.id, before))


async def _run_monitor(args: MonitorArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Monitor tool: wait for a line in a job's unread output, or for its end."""
    job, seconds = find_job(env, args.task_id), args.timeout / 1000
    if not args.pattern:
        why, line = await wait_for_job(job, env, seconds=seconds), ""
    else:
        await find_matching_lines(b"", env, pattern=args.pattern, name="pattern")
        with job.follow() as following:
            watch = LineWatch(job, env, pattern=args.pattern, name="pattern")
            watch.following = following
            why = await wait_for_job(job, env, seconds=seconds, found=watch.has_matched)
            line = watch.line
    match why:
        case "matched":
            headline, remarks = f"{job.id} printed: {line[:500]}", ()
        case "ended":
            missed = f" No line matched {args.pattern!r}." if args.pattern else ""
            headline, remarks = f"{job.id} ended.{missed}", ()
        case "mail":
            headline, remarks = "", (WAIT_INTERRUPTED,)
        case "timeout" | "quiet":
            what = f"no line matched {args.pattern!r}" if args.pattern else "it has not ended"
            headline, remarks = f"Waited {seconds:g} s for {job.id}: {what}.", ()
    return await _show_new_output(job, env, call, headline=headline, remarks=remarks)


async def _run_task_output(args: TaskOutputArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TaskOutput tool: wait for a job or subagent and show its output."""
    seconds = args.timeout / 1000 if args.block else 0.0
    if env.agents is not None and args.task_id in env.agents.reports():
        return await _wait_for_report(args.task_id, env.agents, env, seconds=seconds)
    job = _find_background_task(env, args.task_id)
    why = await wait_for_job(job, env, seconds=seconds)
    headline = f"Waited {seconds:g} s for {job.id}." if why == "timeout" and args.block else ""
    remarks = (WAIT_INTERRUPTED,) if why == "mail" and seconds else ()
    return await _show_new_output(job, env, call, headline=headline, remarks=remarks)


async def _wait_for_report(id: str, agents: Subagents, env: Env, *, seconds: float) -> ToolOutcome:
    """Wait up to a time limit for a background agent's report and return it."""
    until, before = anyio.current_time() + seconds, agents.reports()[id].state
    while agents.reports()[id].state == "running" and not env.has_mail:
        if (left := until - anyio.current_time()) <= 0:
            break
        await anyio.sleep(min(MAIL_POLL_SECONDS, left))
    report = agents.reports()[id]
    if report.state == "running":
        early = f" [{WAIT_INTERRUPTED}]" if env.has_mail else ""
        return text_outcome(
            f"Agent {id} is still running; its report arrives automatically.{early}"
        )
    if before == "running":  # what it came to is on its way as a message of its own
        return text_outcome(f"[agent {id}: {report.state}] Its report follows.")
    return text_outcome(f"[agent {id}: {report.state}]\n{report.text}")


async def _run_task_stop(args: TaskStopArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TaskStop tool: stop a background job or subagent."""
    agents, id = env.agents, args.task_id
    if agents is None or id not in agents.reports():
        return await _stop_job(_find_background_task(env, id), env)
    before = agents.reports()[id].state
    if before != "running":
        return text_outcome(f"Agent {id} had already ended ({before}).")
    await agents.stop(id)
    return text_outcome(f"Stopped agent {id}. Its partial report will follow.")


def _find_background_task(env: Env, id: str) -> BackgroundJob:
    """Return the background command with an ID; raises `ToolError` with the known ones."""
    try:
        return find_job(env, id)
    except ToolError:
        if f"job:{id}" in env.state:
            raise
    agents = tuple(env.agents.reports()) if env.agents is not None else ()
    known = ", ".join((*env.processes.jobs(), *agents)) or "none"
    raise ToolError(f"There is no background task {id!r}. Tasks: {known}.")


def _background_access(args: msgspec.Struct, here: CallLocation) -> tuple[Access, ...]:
    return ()


BASH_OUTPUT = Tool(
    name="BashOutput",
    description="New output and status of a background Bash job.",
    args=OutputArgs,
    access=_background_access,
    run=_run_bash_output,
    bounded=True,
    summary=lambda args: f"Output of {args.bash_id}",
    polls=True,
)
KILL_SHELL = Tool(
    name="KillShell",
    description="Kill a background Bash job and all it started.",
    args=KillArgs,
    access=_background_access,
    run=_run_kill_shell,
    summary=lambda args: f"Kill {args.shell_id}",
    deferred=True,
)
MONITOR_JOB = Tool(
    name="Monitor",
    description=(
        "Wait until a background command prints a line that matches a regex, or ends. Checks "
        "unread output and all that follows; shows the new output."
    ),
    args=MonitorArgs,
    access=_background_access,
    run=_run_monitor,
    bounded=True,
    summary=lambda args: f"Wait for {args.task_id}{f': {args.pattern}' if args.pattern else ''}",
    polls=True,
    deferred=True,
)
TASK_OUTPUT = Tool(
    name="TaskOutput",
    description="Output of a background command or agent; waits for its end unless block is false.",
    args=TaskOutputArgs,
    access=_background_access,
    run=_run_task_output,
    bounded=True,
    summary=lambda args: f"Output of {args.task_id}",
    polls=True,
    deferred=True,
)
TASK_STOP = Tool(
    name="TaskStop",
    description="Stop a background command or agent.",
    args=TaskStopArgs,
    access=_background_access,
    run=_run_task_stop,
    summary=lambda args: f"Stop {args.task_id}",
    deferred=True,
)


# BashInput: typing into a program that Bash has started with a terminal.


MAX_INPUT_WAIT_MS = 600_000
MAX_TYPED_BYTES = 64 * 1024
INTERRUPT_KEYS = frozenset("\x03\x04\x1c")
"""Ctrl-C, Ctrl-D and Ctrl-\\: what stops a program and tells it nothing."""
SHELL_NAMES = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "busybox", "su", "sudo")
)


class InputArgs(msgspec.Struct, frozen=True):
    """A program, the text to type, and how long to wait for output."""

    id: str
    text: Annotated[
        str, msgspec.Meta(description="typed as it is: \\n is Enter, \\u0003 Ctrl-C, \\u0004 EOF")
    ] = ""
    until: Annotated[str, msgspec.Meta(description="regex: wait for a line, e.g. a prompt")] = ""
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_INPUT_WAIT_MS)] = 10_000
    max_output_tokens: Annotated[int, HIDDEN_ARGUMENT] = 0


async def _run_bash_input(args: InputArgs, env: Env, call: str) -> ToolOutcome:
    """Run the BashInput tool: type text into a job and wait for its output."""
    job = find_job(env, args.id)
    if args.until:
        await find_matching_lines(b"", env, pattern=args.until, name="until")
    if job.is_over:
        return show_job(job, env, call, most=args.max_output_tokens)
    with job.follow() as following:
        watch = LineWatch(job, env, pattern=args.until, name="until") if args.until else None
        if watch is not None:
            watch.following = following
        await _type_text(job, args.text)
        why = await wait_for_job(
            job,
            env,
            seconds=args.wait_ms / 1000,
            quiet=QUIET_SECONDS if args.text and watch is None else 0.0,
            found=watch.has_matched if watch is not None else None,
        )
    return show_job(job, env, call, most=args.max_output_tokens, why=why, until=args.until)


async def _type_text(job: BackgroundJob, text: str) -> None:
    """Type text into the terminal of a background job; Ctrl-C alone interrupts any job."""
    if not text:
        return
    if not job.tty and set(text) <= {"\x03"}:
        job.interrupt()
        return
    if not job.tty:
        raise ToolError(f"{job.id} has no terminal to type into. Start it with Bash and tty: true.")
    data = text.replace("\r\n", "\n").replace("\n", "\r").encode(errors="replace")  # as Enter does
    if len(data) > MAX_TYPED_BYTES:
        raise ToolError(f"text is longer than {MAX_TYPED_BYTES:,} bytes. Write it to a file.")
    try:
        await job.send(data)
    except OSError as error:
        raise ToolError(f"{error.strerror}.") from None


def _bash_input_access(args: InputArgs, here: CallLocation) -> tuple[Access, ...]:
    """Return the accesses of a BashInput call: the command, with the typed text as its input.

    A program that can change and reach nothing takes any input, and stopping one needs no
    permission.
    """
    name = f"bash_{args.id}" if args.id.isdigit() else args.id
    job = here.jobs.get(name)
    looks = job is not None and job.sandbox is not None and job.sandbox.profile == "look"
    if job is None or not job.tty or looks or set(args.text) <= INTERRUPT_KEYS:
        return ()
    return tuple(one for access in job.accesses for one in _input_accesses(access, args.text))


def _input_accesses(access: Access, text: str) -> tuple[Access, ...]:
    """List what a BashInput call accesses: its command line with the typed text as input."""
    if access.kind != "exec":
        return (access,)
    end = "INPUT"
    while end in text:
        end += "_"
    given = replace(access, target=f"{{ {access.target}\n}} <<'{end}'\n{text}\n{end}")
    words = {basename(word) for word in access.target.replace(";", " ").split()}
    # What a shell is told is a command line like any other, for rules that deny some.
    return (given, Access("exec", text)) if words & SHELL_NAMES else (given,)


def _summarize_bash_input(args: InputArgs) -> str:
    return f"Type into {args.id}: {args.text!r}" if args.text else f"Wait for {args.id}"


BASH_INPUT = Tool(
    name="BashInput",
    description=(
        "Type into a program that Bash started with tty, and show its output until it is quiet, "
        "a line matches, or wait_ms is over. Without text, wait until it ends."
    ),
    args=InputArgs,
    access=_bash_input_access,
    run=_run_bash_input,
    bounded=True,
    summary=_summarize_bash_input,
    polls=True,
    deferred=True,
    judged_as="Bash",
)
