"""BashInput: typing into a program that Bash has started with a terminal."""

from __future__ import annotations

from posixpath import basename
from typing import Annotated

import msgspec
from msgspec.structs import replace

from travois.permissions.access import Access
from travois.ports.tool import Here, Outcome, Refusal, Tool
from travois.ports.world import Env, Job
from travois.tools.shell.job_output import (
    HIDDEN,
    QUIET,
    LineWatch,
    find_job,
    matching_lines,
    show_job,
    wait_for_job,
)

LONGEST = 600_000
MOST = 64 * 1024
CONTROL = frozenset("\x03\x04\x1c")
"""Ctrl-C, Ctrl-D and Ctrl-\\: what stops a program and tells it nothing."""
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "busybox", "su", "sudo"))


class InputArgs(msgspec.Struct, frozen=True):
    """Which program, what to type, and how long to wait for what it says."""

    id: str
    text: Annotated[
        str, msgspec.Meta(description="typed as it is: \\n is Enter, \\u0003 Ctrl-C, \\u0004 EOF")
    ] = ""
    until: Annotated[str, msgspec.Meta(description="regex: wait for a line, e.g. a prompt")] = ""
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST)] = 10_000
    max_output_tokens: Annotated[int, HIDDEN] = 0


async def _input(args: InputArgs, env: Env, call: str) -> Outcome:
    job = find_job(env, args.id)
    if args.until:
        await matching_lines(b"", env, pattern=args.until, name="until")
    if job.over:
        return show_job(job, env, call, most=args.max_output_tokens)
    with job.followed() as following:
        watch = LineWatch(job, env, pattern=args.until, name="until") if args.until else None
        if watch is not None:
            watch.following = following
        await _type(job, args.text)
        why = await wait_for_job(
            job,
            env,
            seconds=args.wait_ms / 1000,
            quiet=QUIET if args.text and watch is None else 0.0,
            found=watch.found if watch is not None else None,
        )
    return show_job(job, env, call, most=args.max_output_tokens, why=why, until=args.until)


async def _type(job: Job, text: str) -> None:
    if not text:
        return
    if not job.tty and set(text) <= {"\x03"}:
        job.interrupt()
        return
    if not job.tty:
        raise Refusal(f"{job.id} has no terminal to type into. Start it with Bash and tty: true.")
    data = text.replace("\r\n", "\n").replace("\n", "\r").encode(errors="replace")  # as Enter does
    if len(data) > MOST:
        raise Refusal(f"text is longer than {MOST:,} bytes. Put it into a file.")
    try:
        await job.send(data)
    except OSError as error:
        raise Refusal(f"{error.strerror}.") from None


def _access(args: InputArgs, here: Here) -> tuple[Access, ...]:
    """What typing amounts to: the command that runs the program, with the text as its input.

    What can change and reach nothing takes any input, and stopping a program needs no leave.
    """
    name = f"bash_{args.id}" if args.id.isdigit() else args.id
    job = here.jobs.get(name)
    looks = job is not None and job.cage is not None and job.cage.profile == "look"
    if job is None or not job.tty or looks or set(args.text) <= CONTROL:
        return ()
    return tuple(one for access in job.accesses for one in _typed(access, args.text))


def _typed(access: Access, text: str) -> tuple[Access, ...]:
    if access.kind != "exec":
        return (access,)
    end = "INPUT"
    while end in text:
        end += "_"
    given = replace(access, target=f"{{ {access.target}\n}} <<'{end}'\n{text}\n{end}")
    words = {basename(word) for word in access.target.replace(";", " ").split()}
    # What a shell is told is a command line like any other, for rules that deny some.
    return (given, Access("exec", text)) if words & SHELLS else (given,)


def _summary(args: InputArgs) -> str:
    return f"Type into {args.id}: {args.text!r}" if args.text else f"Wait for {args.id}"


BASH_INPUT = Tool(
    name="BashInput",
    description=(
        "Type into a program that Bash started with tty, and show what it says: until it is quiet, "
        "a line matches, or wait_ms is over. Without text, wait for its end."
    ),
    args=InputArgs,
    access=_access,
    run=_input,
    bounded=True,
    summary=_summary,
    polls=True,
    deferred=True,
    judged_as="Bash",
)
