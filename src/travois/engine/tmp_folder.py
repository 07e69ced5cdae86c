"""The private /tmp that a session's calls see, and what the sandbox denied them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from travois.engine.agent import Agent
from travois.permissions.access import Access
from travois.permissions.paths import is_inside
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE, SandboxProfile
from travois.permissions.shell.plan import CommandPlan
from travois.ports.tool import CallLocation
from travois.sandbox.denial import find_denial
from travois.sandbox.disk_facts import LocalDisk
from travois.sandbox.policy import SandboxPolicy, is_covered_path

if TYPE_CHECKING:
    from travois.sandbox.denial import Denial

REMOVED_WITH_SESSION = "; it is removed when this session ends"


def locate_calls(agent: Agent) -> CallLocation:
    """Return the location of an agent's calls, with the private /tmp they see."""
    bounds, guard = agent.permissions.sandbox, agent.permissions.guard
    root = agent.world.root
    cwd = agent.session.state.get("cwd", root)
    jobs = agent.world.processes.jobs()
    if bounds is None:
        return CallLocation(root, cwd, "", (*guard.folders, *guard.readable), jobs)
    temp = bounds.temp if bounds.backend == "full" else ""
    return CallLocation(root, cwd, temp, (*guard.folders, *guard.readable, *bounds.programs), jobs)


def hidden_cwd_access(agent: Agent, here: CallLocation, tool: str) -> tuple[Access, ...]:
    """Return the read access to a command's folder if the sandbox hides it; else empty."""
    if agent.permissions.sandbox is None or tool != "Bash":
        return ()
    hides = is_covered_path(agent.permissions.sandbox, agent.permissions.guard, here.cwd)
    return (Access("read", here.cwd),) if hides else ()


def find_sandbox_denial(
    agent: Agent, plans: Iterable[CommandPlan], profile: SandboxProfile | None, failure: str
) -> Denial | None:
    """Find what the sandbox denied a failed command, if a person could allow it."""
    if profile is None:
        return None
    line, cwd = " ".join(plan.text for plan in plans), locate_calls(agent).cwd
    denial = find_denial(failure, profile, cwd=cwd, disk=LocalDisk(), line=line)
    if denial is None or denial.kind == "rights":
        return None
    return None if denial.kind == "read" and _is_always_hidden(agent, denial.target) else denial


def _is_always_hidden(agent: Agent, path: str) -> bool:
    """Return whether the sandbox always hides a path, whatever a command may read."""
    assert agent.permissions.sandbox is not None, "there is a sandbox"
    return path == "/" or any(
        is_inside(path, one) or is_inside(one, path) for one in agent.permissions.sandbox.hidden
    )


def describe_tmp_paths(bounds: SandboxPolicy | None, accesses: Iterable[Access]) -> tuple[str, ...]:
    """Describe where on disk the /tmp paths of a file tool are."""
    if bounds is None:
        return ()
    return tuple(dict.fromkeys(filter(None, (_describe_tmp_path(bounds, one) for one in accesses))))


def _describe_tmp_path(bounds: SandboxPolicy, access: Access) -> str:
    """Describe where on disk a /tmp path of a tool call is; empty if just there."""
    fate = "" if bounds.temp_lasts else REMOVED_WITH_SESSION
    match access.tmp:
        case "private" if access.kind == "write":
            return f"{PRIVATE_TMP_NOTICE}; on disk, {access.spelt} is {access.target}{fate}."
        case "private" if os.path.isdir(access.target):
            own = "The machine's own /tmp was not searched."
            return f"{PRIVATE_TMP_NOTICE}; on disk, {access.spelt} is {access.target}. {own}"
        case "machine":
            return f"{access.spelt} is the machine's own; commands in the sandbox cannot see it."
        case _:
            return ""
