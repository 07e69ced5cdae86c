"""`travois fleet command`: a task's `setup` or `check` in the sandbox of a session.

It has the limits that the user's settings give any session, but with the network, unless they say
otherwise, and with the home of the task, since such commands install packages.
"""

from __future__ import annotations

import math
import os
import sys
from contextlib import AsyncExitStack

import anyio
from msgspec.structs import replace

from travois.compose.options import Options
from travois.compose.permissions import compose_permissions
from travois.compose.sandbox import compose_sandbox
from travois.compose.session import load_workspace
from travois.fleet.task_command import SHELL
from travois.permissions.resolve_paths import home_folder
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.policy import build_program_profile
from travois.sandbox.probe import SandboxSupport


def run_in_sandbox(line: str) -> int:
    """Run a fleet task's command line in the sandbox, if there is one; return the exit code."""
    return anyio.run(_run_in_sandbox, line)


async def _run_in_sandbox(line: str) -> int:
    async with AsyncExitStack() as stack:
        support, profile = _build_command_profile(stack)
        processes = LocalProcesses(support=support)
        stack.push_async_callback(processes.aclose)
        command = Command((*SHELL, line), os.getcwd(), sandbox=profile)
        done = await processes.run(command, timeout=math.inf, on_output=_print_output)
        return done.status if done.status >= 0 else 128 - done.status


def _build_command_profile(
    stack: AsyncExitStack,
) -> tuple[SandboxSupport | None, SandboxProfile | None]:
    """Build the sandbox profile of a fleet task's command; None where there is no sandbox.

    The agent may have written the project's settings: only those of the user count. Protected files
    of the clone can be written, as by `npm ci` that installs hooks: the worker obeys none of them.
    """
    place, loaded = load_workspace(Options(sources="user"))
    setup = compose_sandbox(loaded, place, stack, attended=False)
    if setup.bounds is None:
        return None, None
    network = setup.bounds.network or ("listed" if setup.bounds.hosts else "on")
    writable = (*setup.bounds.writable, home_folder())
    bounds = replace(setup.bounds, network=network, writable=writable)
    rights = compose_permissions(loaded, place.cwd, own=place.home.folders)
    profile = build_program_profile(bounds, rights)
    return setup.support, replace(profile, pinned=bounds.pinned, git_written=())


def _print_output(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
