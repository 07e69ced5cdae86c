"""Bash: commands in the foreground, in the background, and in a terminal.

A shell lives for one call. Its working folder outlives it: the shell reports the folder separately
when it ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.content import Text
from travois.core.facts import Changed
from travois.core.json import encode_json
from travois.engine.background_jobs import JOB_RUNNING, describe_status
from travois.hooks.fire import parse_exported_variables
from travois.lazy_imports import lazy_imports
from travois.permissions.access import Access
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome
from travois.ports.world import (
    BackgroundJob,
    CapturedOutput,
    Command,
    Env,
    OutputReader,
    ProcessResult,
)

if TYPE_CHECKING:
    from travois.tools.output import ReadableOutput

with lazy_imports():
    from travois.tools import output as tool_output
    from travois.tools.shell import denied_command


# What Bash and the tools for background commands share: output, status, and waiting.


REMARK_TOKENS = 100
"""The tokens kept for what is said beside an output."""
JOB_OUTPUT_BYTES = 512 * 1024
MAIL_POLL_SECONDS = 0.25
"""Seconds between checks for new messages during a long wait."""
OUTPUT_BATCH_SECONDS = 0.05
"""Seconds that output is collected before it is examined."""
QUIET_SECONDS = 0.5
"""Seconds without output after which a program counts as waiting for input."""
MAX_PARTIAL_LINE_BYTES = 64 * 1024
"""Bytes kept of an unfinished line for the next look."""
HIDDEN_ARGUMENT = msgspec.Meta(extra_json_schema={"x-hidden": True})
"""An argument that is accepted and not told: some models send it, others need not know."""

WaitEnd = Literal["ended", "matched", "quiet", "timeout", "mail"]
"""Why a wait is over."""


class CommandResult(msgspec.Struct, frozen=True, rename="camel"):
    """The structured result of a Bash command."""

    exit_code: int | None
    interrupted: bool
    bytes: int
    cwd: str = ""


class DetachedCommand(CommandResult, frozen=True, rename="camel"):
    """The structured result of a command that continues in the background."""

    background_task_id: str = ""


def show_output(output: CapturedOutput, env: Env, call: str, *, most: int = 0) -> ReadableOutput:
    """Render a Bash command's output as far as it fits, and save all of it if cut."""
    room = env.room.tokens - REMARK_TOKENS
    tokens = min(room, most) if most > 0 else room
    return tool_output.make_readable(output, tokens=tokens, keep=partial(env.spill, call))


def join_result_parts(headline: str, body: str, remarks: list[str]) -> str:
    """Join a Bash result's headline, body and bracketed remarks."""
    parts = (headline, body.strip("\n"), *(f"[{remark}]" for remark in remarks))
    return "\n".join(part for part in parts if part) or "(no output)"


def exit_code(status: int) -> int:
    """Return a command's exit code as a shell would report it."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    """Return the name of the signal that killed a command."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def status_change(env: Env, id: str, status: int | None) -> tuple[Changed, ...]:
    """Return the fact that a background job's status changed; empty if the log has it."""
    change = Changed(f"job:{id}", describe_status(status))
    return () if env.state.get(change.what) == change.value else (change,)


def find_job(env: Env, id: str) -> BackgroundJob:
    """Return the background job with an ID or its bare number. Raises `ToolError`."""
    jobs = env.processes.jobs()
    name = f"bash_{id}" if id.isdigit() else id
    if name in jobs:
        return jobs[name]
    if f"job:{name}" in env.state:
        raise ToolError(f"{name} ended with an earlier Travois process. Start it again.")
    raise ToolError(f"There is no job {id!r}. Jobs: {', '.join(jobs) or 'none'}.")


async def find_matching_lines(data: bytes, env: Env, *, pattern: str, name: str) -> CapturedOutput:
    """Return the matching lines of a job's output. Ripgrep searches: no pattern can make it hang.

    Raises `ToolError` for an invalid pattern, even if there is nothing to search.
    """
    argv = ("rg", "--no-config", "--text", "--no-line-number", "--regexp", pattern, "--", "-")
    command = Command(argv, env.root, stdin=data or b"\n", keep=JOB_OUTPUT_BYTES, stderr="apart")
    done = await env.processes.run(command, timeout=10)
    if done.status > 1:
        why = done.errors.head_and_tail().decode(errors="replace").strip().removeprefix("rg: ")
        raise ToolError(f"{name} is not a valid regular expression: {why}")
    return done.output if data else CapturedOutput(b"", b"", 0)


class LineWatch:
    """Searches a job's output for a line, batch by batch."""

    def __init__(self, job: BackgroundJob, env: Env, *, pattern: str, name: str) -> None:
        self._env = env
        self._pattern = pattern
        self._name = name
        self._fresh = job.peek_output().head_and_tail()
        self._rest = b""
        self.following: OutputReader | None = None
        self.line = ""
        """The first line that matched."""

    async def has_matched(self) -> bool:
        """Return whether a line has matched by now."""
        if self.following is not None:
            self._fresh += self.following.take()
        if not self._fresh:
            return False
        data, self._fresh = self._rest + self._fresh, b""
        self._rest = data.rpartition(b"\n")[2][-MAX_PARTIAL_LINE_BYTES:]
        text = tool_output.strip_terminal_codes(data.decode(errors="replace"))
        search = partial(find_matching_lines, pattern=self._pattern, name=self._name)
        hits = await search(text.encode(errors="replace"), self._env)
        self.line = hits.head_and_tail().decode(errors="replace").partition("\n")[0]
        return bool(hits.total)


async def wait_for_job(
    job: BackgroundJob,
    env: Env,
    *,
    seconds: float,
    quiet: float = 0.0,
    found: Callable[[], Awaitable[bool]] | None = None,
) -> WaitEnd:
    """Wait until a background job ends, prints the awaited line, or has been quiet long enough.

    Ends early if there is a message for the model.
    """
    until, heard = anyio.current_time() + seconds, 0.0
    while True:
        if found is not None and await found():
            return "matched"
        if job.is_over:
            return "ended"
        now = anyio.current_time()
        if quiet and heard and now - heard >= quiet:
            return "quiet"
        if env.has_mail:
            return "mail"
        if now >= until:
            return "timeout"
        pause = min(until - now, MAIL_POLL_SECONDS, quiet or MAIL_POLL_SECONDS)
        with anyio.move_on_after(pause) as waited:
            await job.wait_for_change()
        if not waited.cancelled_caught:
            heard = anyio.current_time()
            await anyio.sleep(min(OUTPUT_BATCH_SECONDS, max(0.0, until - heard)))


def show_job(
    job: BackgroundJob, env: Env, call: str, *, most: int, why: WaitEnd = "ended", until: str = ""
) -> ToolOutcome:
    """Render a background job's unread output, and its exit status if it has ended."""
    status = job.status if job.is_over else None
    output = job.take_output()
    body = show_output(output, env, call, most=most)
    remarks = [*body.remarks, *env.processes.take_notices()]
    if why == "timeout" and until:
        remarks.append(f"No line matched {until!r}.")
    if status is None and why == "timeout":
        remarks.append(f"{job.id} is still running.")
    ran = CommandResult(
        None if status is None else exit_code(status), interrupted=False, bytes=output.total
    )
    headline = "" if status is None else describe_status(status)
    return ToolOutcome(
        (Text(join_result_parts(headline, body.text or "(no new output)", remarks)),),
        detail=encode_json(ran).decode(),
        changes=status_change(env, job.id, status) if status is not None else (),
        lines=body.lines,
    )


DEFAULT_TIMEOUT_MS = 120_000
MAX_TIMEOUT_MS = 600_000
COMMAND_OUTPUT_BYTES = 4 * 1024 * 1024
BACKGROUND_HELP = (
    "You are told when it ends. Monitor (task_id, pattern, timeout) waits for a line or the end, "
    "BashOutput shows new output, KillShell kills it."
)
TERMINAL_START_SECONDS = 10.0
"""Default seconds that a program in a terminal has for its first output."""
TERMINAL_ENVIRONMENT = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "NO_COLOR": "1"}
"""Plain lines are what a model can read: no cursor, no colours, no pager."""
PREVIEW_BYTES = 2_000
PREVIEW_INTERVAL_SECONDS = 0.1
MAX_SHELL_ARGUMENT_CHARS = 30_000
"""Characters that always fit into one argument: the kernel's limit is 128 KiB."""
SHELL_PATHS = (
    "/bin/bash",
    "/usr/bin/bash",
    "/usr/local/bin/bash",
    "/opt/homebrew/bin/bash",
    "/run/current-system/sw/bin/bash",
)
CWD_FD_VARIABLE = "TRAVOIS_ASIDE"
REPORT_CWD_SCRIPT = "{ command pwd -P; printf '\\\\0'; } >/dev/fd/$_travois_aside 2>/dev/null"
WRAPPER_SCRIPT = (
    f"_travois_aside=${CWD_FD_VARIABLE} _travois_text=@TEXT@; unset {CWD_FD_VARIABLE}; shift $#; "
    f"""trap "{REPORT_CWD_SCRIPT}" EXIT; eval "$_travois_text"; """
    f"""{{ _travois_status=$?; eval "{REPORT_CWD_SCRIPT}"; set +x; }} 2>/dev/null; """
    "exit $_travois_status"
)
"""Runs the text as it stands, without parameters, and tells where the shell stood at the end.

The trap tells it also after `exit` or `set -e`; the last line also where the text has set a trap
of its own. All on one line, so that the shell's messages count lines as the text does.
"""


class BashArgs(msgspec.Struct, frozen=True):
    """A command line and how to run it."""

    command: str
    timeout: Annotated[int, msgspec.Meta(description="ms", gt=0, le=MAX_TIMEOUT_MS)] = (
        DEFAULT_TIMEOUT_MS
    )
    description: str = ""
    run_in_background: bool = False
    on_timeout: Literal["background", "stop"] = "background"
    tty: Annotated[bool, msgspec.Meta(description="use a terminal; type with BashInput")] = False
    sandbox: Annotated[
        Literal["on", "write", "network", "off"],
        msgspec.Meta(description="grant what the sandbox denied; needs approval"),
    ] = "on"
    max_output_tokens: Annotated[int, HIDDEN_ARGUMENT] = 0


class ShellFolder(msgspec.Struct, frozen=True):
    """The shell's working folder after a command, with a remark for the model."""

    cwd: str
    remark: str = ""


async def _run_bash(args: BashArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Bash tool: a command in the foreground, the background or a terminal."""
    if args.tty:
        return await _start_terminal(args, env, call)
    if args.run_in_background:
        return await _start_background(args, env)
    entries = denied_command.list_private_tmp(env.sandbox)
    done, start = await _run_command(args, env, call)
    if done.job:
        return _show_detached(args, env, call, result=done)
    place = _find_shell_folder(done, env, start=start)
    body = show_output(done.output, env, call, most=args.max_output_tokens)
    remarks = [*body.remarks, *_ending_remarks(done, args)]
    remarks += [remark for remark in (start.remark, place.remark) if remark]
    remarks += denied_command.explain_denial(
        done, body.text, env.sandbox, cwd=start.cwd, line=args.command
    )
    remarks += denied_command.report_new_tmp_entries(env.sandbox, entries)
    remarks += env.processes.take_notices()
    ran = CommandResult(exit_code(done.status), done.timed_out, done.output.total, place.cwd)
    return ToolOutcome(
        (Text(join_result_parts(_result_headline(done), body.text, remarks)),),
        error=done.status != 0 or done.timed_out,
        detail=encode_json(ran).decode(),
        changes=() if place.cwd == env.cwd else (Changed("cwd", place.cwd),),
        lines=body.lines,
    )


async def _run_command(args: BashArgs, env: Env, call: str) -> tuple[ProcessResult, ShellFolder]:
    """Run a Bash command in the shell's folder, or in the workspace if that folder is gone."""
    glimpse = _preview_output(env)
    detach_as = partial(_next_job_id, env) if args.on_timeout == "background" else None
    for place in (
        ShellFolder(env.cwd),
        ShellFolder(env.root, f"{env.cwd} is gone; ran in {env.root}."),
    ):
        command = replace(_build_command(args, place.cwd, env=env), whole=_output_file(env, call))
        try:
            done = await env.processes.run(
                command, timeout=args.timeout / 1000, on_output=glimpse, detach_as=detach_as
            )
        except OSError as error:
            if place.cwd == env.root or await env.files.stat(place.cwd) is not None:
                raise ToolError(f"{error.strerror or error}.") from None
            continue
        return done, place
    raise AssertionError("the last place returns or raises")


def _output_file(env: Env, call: str) -> str:
    """Return the file for Bash output too large for memory; empty if none can be kept."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in call)
    return os.path.join(env.kept, f"{name}.txt") if env.kept else ""


def _build_command(
    args: BashArgs, cwd: str, *, env: Env, keep: int = COMMAND_OUTPUT_BYTES
) -> Command:
    """Build a Bash command's arguments; a long text is passed in pieces and joined in the shell."""
    text = args.command
    pieces = [
        text[at : at + MAX_SHELL_ARGUMENT_CHARS]
        for at in range(0, len(text), MAX_SHELL_ARGUMENT_CHARS)
    ] or [""]
    names = "".join(f"${{{number}}}" for number in range(1, len(pieces) + 1))
    shell = next((path for path in SHELL_PATHS if os.access(path, os.X_OK)), "/bin/sh")
    argv = (shell, "-c", WRAPPER_SCRIPT.replace("@TEXT@", names), os.path.basename(shell), *pieces)
    variables = parse_exported_variables(env.state.get("env", "")) | {"PWD": cwd}
    return Command(
        argv,
        cwd,
        env=variables,
        keep=keep,
        aside=CWD_FD_VARIABLE,
        sandbox=env.sandbox,
        label=text,
        accesses=_command_accesses(args),
    )


def _preview_output(env: Env) -> Callable[[bytes], None]:
    """Show the newest output of a running command to the user, a few times a second."""
    shown = -PREVIEW_INTERVAL_SECONDS

    def show(chunk: bytes) -> None:
        nonlocal shown
        if anyio.current_time() - shown >= PREVIEW_INTERVAL_SECONDS:
            shown = anyio.current_time()
            env.progress(chunk[-PREVIEW_BYTES:].decode(errors="replace"))

    return show


def _find_shell_folder(result: ProcessResult, env: Env, *, start: ShellFolder) -> ShellFolder:
    """Return the shell's working folder after a command; a killed shell reports none."""
    told = result.aside.split(b"\0")[:-1]
    if not told:
        return ShellFolder(start.cwd)
    try:
        cwd = told[-1].removesuffix(b"\n").decode()
    except UnicodeDecodeError:
        return ShellFolder(
            start.cwd,
            f"The folder's name is not UTF-8; still in {start.cwd}.",
        )
    if not cwd:
        return ShellFolder(env.root, f"The working folder no longer exists; now in {env.root}.")
    if cwd == os.path.realpath(start.cwd) or not os.path.isabs(cwd):
        return ShellFolder(start.cwd)
    return ShellFolder(cwd, f"Working folder: {cwd}")


def _result_headline(result: ProcessResult) -> str:
    """Name a failed command's exit code or signal for the Bash result."""
    if result.timed_out:
        return ""  # how it took our signal says nothing of the command
    if result.status < 0:
        return f"Ended by signal {-result.status} ({signal_name(-result.status)})"
    return "" if result.status <= 0 else f"Exit code {result.status}"


def _ending_remarks(result: ProcessResult, args: BashArgs) -> Iterator[str]:
    """List remarks on a Bash timeout, too much output and processes left running."""
    if result.timed_out:
        yield (
            f"Timed out after {args.timeout / 1000:g} s; all its processes were killed. "
            "Use a longer timeout, or on_timeout: background."
        )
    if result.cut:
        yield (
            f"Killed after {result.output.total:,} bytes of output. "
            "Redirect the output to a file, or pipe it through head, tail or grep."
        )
    if result.left_running:
        pids = ", ".join(map(str, result.left_running))
        yield f"Still running until the session ends: process {pids}"


async def _start_background(args: BashArgs, env: Env) -> ToolOutcome:
    """Start a Bash command as a background job and return its ID."""
    id = _next_job_id(env)
    try:
        command = _build_command(args, env.cwd, env=env, keep=JOB_OUTPUT_BYTES)
        await env.processes.start(command, id=id)
    except OSError as error:
        raise ToolError(f"{error.strerror or error}.") from None
    said = f"Running in the background as {id}. {BACKGROUND_HELP}"
    if args.timeout != DEFAULT_TIMEOUT_MS:
        said += "\n[Background commands have no time limit: timeout was ignored.]"
    if env.sandbox is not None and env.sandbox.backend == "full":
        said += f"\n[{PRIVATE_TMP_NOTICE}; on disk it is {env.sandbox.temp}.]"
    return ToolOutcome((Text(said),), changes=(Changed(f"job:{id}", JOB_RUNNING),))


def _show_detached(args: BashArgs, env: Env, call: str, *, result: ProcessResult) -> ToolOutcome:
    """Describe a Bash command that was moved to the background."""
    body = show_output(result.output, env, call, most=args.max_output_tokens)
    limit = f"Still running after {args.timeout / 1000:g} s, so it was not stopped but goes on"
    remarks = [*body.remarks, f"{limit} in the background as {result.job}. {BACKGROUND_HELP}"]
    ran = DetachedCommand(
        None, interrupted=False, bytes=result.output.total, background_task_id=result.job
    )
    return ToolOutcome(
        (Text(join_result_parts("", body.text or "(no output so far)", remarks)),),
        detail=encode_json(ran).decode(),
        changes=(Changed(f"job:{result.job}", JOB_RUNNING),),
        lines=body.lines,
    )


async def _start_terminal(args: BashArgs, env: Env, call: str) -> ToolOutcome:
    """Start a program with a terminal and return its first output."""
    command = _build_command(args, env.cwd, env=env, keep=JOB_OUTPUT_BYTES)
    command = replace(command, tty=True, env={**command.env, **TERMINAL_ENVIRONMENT})
    seconds = TERMINAL_START_SECONDS if args.timeout == DEFAULT_TIMEOUT_MS else args.timeout / 1000
    try:
        job = await env.processes.start(command, id=_next_job_id(env))
    except OSError as error:
        raise ToolError(f"{error.strerror or error}.") from None
    try:
        await wait_for_job(job, env, seconds=seconds, quiet=QUIET_SECONDS)
    except BaseException:  # whoever stops the call does not want what it started
        with anyio.CancelScope(shield=True):
            await job.kill()
        raise
    outcome = show_job(job, env, call, most=args.max_output_tokens)
    if job.is_over:
        return replace(outcome, changes=(), error=job.status != 0)
    how = (
        f"BashInput (id: {job.id}, text) types into it, KillShell kills it. You are told if it ends"
    )
    told = Text(f"[Running as {job.id} in a terminal. {how}.]")
    change = Changed(f"job:{job.id}", JOB_RUNNING)
    return replace(outcome, content=(*outcome.content, told), changes=(change,))


def _next_job_id(env: Env) -> str:
    """Return a background job ID that is new to the session, even after a resume."""
    taken = {*env.processes.jobs(), *(name.removeprefix("job:") for name in env.state)}
    number = 1
    while f"bash_{number}" in taken:
        number += 1
    return f"bash_{number}"


def _bash_access(args: BashArgs, here: CallLocation) -> tuple[Access, ...]:
    return _command_accesses(args)


def _command_accesses(args: BashArgs) -> tuple[Access, ...]:
    """Return the accesses of a Bash call: its command, and network or no sandbox if asked."""
    line = Access("exec", args.command)
    match args.sandbox:
        case "on" | "write":
            return (line,)
        case "network":
            return (line, Access("net", "any host"))
        case "off":
            return (line, Access("leave", args.command))


def _summarize_bash(args: BashArgs) -> str:
    return args.description or args.command.strip().partition("\n")[0]


BASH = Tool(
    name="Bash",
    description=(
        "Run a bash command. Only the working folder persists between calls. "
        "No stdin, and no terminal without tty. Long output is cut and saved to a file. "
        "run_in_background for servers and watchers: you are told when they end."
    ),
    args=BashArgs,
    access=_bash_access,
    run=_run_bash,
    bounded=True,
    summary=_summarize_bash,
)
