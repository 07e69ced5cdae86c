"""`travois try`: run a command on a copy, review the changes, keep or drop them."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from contextlib import AsyncExitStack
from difflib import SequenceMatcher
from shlex import join

import anyio
import msgspec
from msgspec.structs import replace

from travois.compose import permissions
from travois.compose.explain import context_of_call
from travois.compose.options import Options
from travois.compose.sandbox import compose_sandbox
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.ports.tool import CallLocation
from travois.ports.world import (
    CapturedOutput,
    Command,
    StaleFile,
    WorkspaceAttempt,
    WorkspaceChange,
)
from travois.process.local_processes import LocalProcesses
from travois.sandbox.policy import build_sandbox_profile
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_size,
    format_table,
    print_line,
    print_warning,
)

TRY_HELP = """\
examples:
  travois try -- make format          show the changes, then ask
  travois try --drop 'rm -r build'    only show the changes
  travois try --keep -- npm install   keep the changes if the command succeeds

The command runs in the sandbox from your settings. Its changes to this folder are kept as a whole
or dropped; protected paths that affect what runs later (.git, .vscode, ...) are kept only if named
with --also. The exit code is that of the command.
"""
MAX_TRY_DIFF_BYTES = 1 << 20
"""Files over this many bytes are not compared line by line."""


def register_try(commands: CommandParsers) -> None:
    """Add the `travois try` command."""
    top = add_command(
        commands,
        "try",
        what="run a command on a copy, review the changes, keep or drop them",
        more=TRY_HELP,
    )
    top.add_argument(
        "words", nargs="+", metavar="COMMAND", help="a program with arguments, or one line of bash"
    )
    only = top.add_mutually_exclusive_group()
    only.add_argument(
        "--keep", action="store_true", help="keep the changes if the command succeeds"
    )
    only.add_argument("--drop", action="store_true", help="drop the changes")
    top.add_argument(
        "--also", action="append", default=[], metavar="PATH", help="also keep this protected path"
    )
    top.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS")
    top.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    top.add_argument("--json", action="store_true", help="as JSON, without asking")
    top.set_defaults(run=run_try)


def run_try(args: Namespace) -> int:
    """Try a command on a copy of the workspace; return its exit code."""
    return anyio.run(_try_command, args)


async def _try_command(args: Namespace) -> int:
    """Run a command on a copy, show its changes and keep them if wanted."""
    async with AsyncExitStack() as stack:
        attempt = await _attempt_command(args, stack)
        stack.push_async_callback(attempt.drop)
        if not args.json:
            await _show_attempt(attempt)
        keep = bool(attempt.changes) and _should_keep(args, attempt)
        left = await _keep_changes(attempt, args.also) if keep else ()
        if args.json:
            _report_attempt_json(attempt, keep=keep, left=left)
        elif attempt.changes:
            _report_kept_changes(keep=keep, left=left)
        status = attempt.completed.status
        return 128 - status if status < 0 else status


async def _attempt_command(args: Namespace, stack: AsyncExitStack) -> WorkspaceAttempt:
    """Try a command on a copy of the workspace, in the sandbox."""
    place, loaded = load_workspace(Options(settings=args.settings))
    sandbox_setup = compose_sandbox(loaded, place, stack, attended=True)
    if sandbox_setup.bounds is None:
        raise UserError("`travois try` needs a sandbox", why=sandbox_setup.line)
    line = args.words[0] if len(args.words) == 1 else join(args.words)
    text = msgspec.json.encode({"command": line}).decode()
    guard = permissions.compose_permissions(loaded, place.cwd, own=place.home.folders)
    use = context_of_call("Bash", text, here=CallLocation(place.cwd, place.cwd))
    sandbox = build_sandbox_profile(sandbox_setup.bounds, guard, use, profile="try")
    settings = loaded.settings
    processes = LocalProcesses(
        passed=settings.env_passthrough, extra=settings.env, support=sandbox_setup.support
    )
    stack.push_async_callback(processes.aclose)
    try:
        run = Command(("/bin/bash", "-c", line), place.cwd, sandbox=sandbox)
        return await processes.run_attempt(run, timeout=args.timeout)
    except OSError as error:
        raise UserError("Cannot try this command", why=str(error)) from error


async def _show_attempt(attempt: WorkspaceAttempt) -> None:
    """Show a tried command's output, blocked connections, and changes."""
    done = attempt.completed
    sys.stdout.write(_decode_output(done.output))
    for words in done.refused:
        print_warning(escape_controls(words))
    if done.timed_out:
        print_warning("the command timed out and was stopped")
    elif done.status:
        print_warning(f"the command failed with exit code {done.status}")
    if not attempt.changes:
        print_line("The command changed nothing.")
        return
    rows = [await _change_row(attempt, change) for change in attempt.changes]
    print_line(format_table([("WHAT", "BYTES", "LINES", "PATH"), *rows], right=(1, 2)))


def _decode_output(output: CapturedOutput) -> str:
    gap = f"\n[{output.missing_bytes} bytes omitted]\n".encode() if output.missing_bytes else b""
    return escape_controls((output.head + gap + output.tail).decode(errors="replace"))


async def _change_row(
    attempt: WorkspaceAttempt, change: WorkspaceChange
) -> tuple[str, str, str, str]:
    """Format a changed path of a tried command as a table row."""
    path = escape_controls(os.path.relpath(change.path), lines="show")
    if change.was:
        return (
            "renamed",
            "",
            "",
            f"{escape_controls(os.path.relpath(change.was), lines='show')} -> {path}",
        )
    old = _existing_file_size(change.path) if change.kind != "added" else 0
    grown = f"+{format_size(change.size)}" + (f" -{format_size(old)}" if old else "")
    return (change.kind, grown, await _count_line_changes(attempt, change, old=old), path)


def _existing_file_size(path: str) -> int:
    return 0 if os.path.islink(path) or not os.path.isfile(path) else os.path.getsize(path)


async def _count_line_changes(
    attempt: WorkspaceAttempt, change: WorkspaceChange, *, old: int
) -> str:
    """Format how many lines a tried command added to and removed from a file."""
    if max(change.size, old) > MAX_TRY_DIFF_BYTES:
        return ""
    before = _read_file_bytes(change.path) if old else b""
    after = await attempt.read(change.path) if change.size else b""
    if b"\0" in before + after:
        return "binary"
    one, two = before.splitlines(), after.splitlines()
    same = sum(block.size for block in SequenceMatcher(None, one, two).get_matching_blocks())
    return f"+{len(two) - same} -{len(one) - same}"


def _read_file_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _should_keep(args: Namespace, attempt: WorkspaceAttempt) -> bool:
    """Return whether to keep a tried command's changes, by the flags or by asking the user."""
    if args.keep:
        return attempt.completed.status == 0
    if args.drop or args.json or not sys.stdin.isatty():
        return False
    sys.stdout.write("Keep these changes? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _keep_changes(attempt: WorkspaceAttempt, also: list[str]) -> tuple[WorkspaceChange, ...]:
    """Apply the changes of a tried command to the real files; return those left out."""
    try:
        return await attempt.keep(named=[os.path.realpath(path) for path in also])
    except StaleFile as error:
        raise UserError("The changes were not kept", why=str(error), fix="Run it again.") from error
    except OSError as error:
        raise UserError("Some changes could not be kept", why=str(error)) from error


def _report_kept_changes(*, keep: bool, left: tuple[WorkspaceChange, ...]) -> None:
    """Print whether the changes of a tried command were kept, and which were not."""
    if not keep:
        print_line("Dropped; nothing was changed.")
        return
    print_line("Kept.")
    for change in left:
        path = escape_controls(os.path.relpath(change.path), lines="show")
        print_warning(
            f"not kept, because it affects what runs later: {path} (--also {path} keeps it)"
        )


def _report_attempt_json(
    attempt: WorkspaceAttempt, *, keep: bool, left: tuple[WorkspaceChange, ...]
) -> None:
    """Print the JSON report of a tried command."""
    done = attempt.completed
    told = {
        "status": done.status,
        "timed_out": done.timed_out,
        "output": (done.output.head + done.output.tail).decode(errors="replace"),
        "missing": done.output.missing_bytes,
        "refused": done.refused,
        "changes": [
            replace(c, path=_path_to_text(c.path), was=_path_to_text(c.was))
            for c in attempt.changes
        ],
        "kept": keep,
        "left": [_path_to_text(change.path) for change in left],
    }
    print_line(msgspec.json.encode(told).decode())


def _path_to_text(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
