"""Sandbox auto-allow: running commands in the sandbox without asking, and offering that."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec.structs import replace

from travois.core.patterns import compile_lazily
from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.permissions.access import Access
from travois.permissions.decide import PermissionDecision, Permissions, decide_permission
from travois.permissions.paths import is_inside
from travois.permissions.protected_paths import protected_names
from travois.permissions.resolve_paths import home_folder
from travois.permissions.rules import (
    PermissionRule,
    ToolUse,
    anchor_folder,
    rule_covers_step,
    rule_permits_path,
)
from travois.permissions.sandbox_profile import SandboxProfile, UnapprovedChanges
from travois.permissions.shell.plan import CommandStep
from travois.sandbox.policy import (
    SandboxPolicy,
    find_shown_reads,
    get_bounding_path,
    is_contained,
    is_transparent_step,
    runs_outside_sandbox,
)
from travois.snapshots.uncovered import find_unrecoverable

with lazy_imports():
    from travois.permissions import resolve_paths
    from travois.permissions.shell import families, program_analyzers


ASKING_MODES = ("default", "accept-edits")
TOP_FOLDER_PATTERN = compile_lazily(r"/[\w-][\w.-]*(?=/|$)")
"""The first folder of an absolute path, where its name has no sign that a shell would expand."""
UNASKED_REASON = "the sandbox contains it: no network, and the workspace can be restored"


def judge_unasked(agent: Agent, use: ToolUse) -> PermissionDecision:
    """Decide on a call without asking: the sandbox settles doubts where the user allows that."""
    guard = (
        _unasked_permissions(agent, use)
        if _can_run_unasked(agent, use)
        else agent.permissions.guard
    )
    return _judge_in_sandbox(agent, guard, use)


def find_free_modes(agent: Agent, use: ToolUse) -> tuple[str, ...]:
    """Return the permission modes in which this call would not be asked about."""
    guard = agent.permissions.guard
    if guard.mode not in ASKING_MODES or judge_unasked(agent, use).effect != "ask":
        return ()
    shut_in = agent.permissions.sandbox is not None and use.tool == "Bash"
    guards = {
        "accept-edits": replace(guard, mode="accept-edits"),
        "auto": _unasked_permissions(agent, use) if shut_in else replace(guard, mode="auto"),
    }
    return tuple(
        mode
        for mode, judged in guards.items()
        if mode not in (guard.mode, *guard.barred)
        and _judge_in_sandbox(agent, judged, use).effect == "allow"
    )


def should_offer_sandbox(agent: Agent, use: ToolUse) -> bool:
    """Return whether a permission question should offer sandbox auto-allow.

    True if the offer would have answered this very question, and may be made.
    """
    asks = agent.permissions.guard.mode in ASKING_MODES and use.tool == "Bash"
    if (
        not asks
        or _find_offer_blocker(agent)
        or (agent.permissions.sandbox is not None and agent.permissions.sandbox.free)
    ):
        return False
    return _judge_in_sandbox(agent, _unasked_permissions(agent, use), use).effect == "allow"


def accept_sandbox(agent: Agent) -> None:
    """Turn on sandbox auto-allow for commands; raise ValueError where it is impossible."""
    if why := _find_offer_blocker(agent):
        raise ValueError(why)
    assert agent.permissions.sandbox is not None, "without a sandbox it is not offered"
    agent.permissions.sandbox = replace(agent.permissions.sandbox, free=True)


def _find_offer_blocker(agent: Agent) -> str:
    """Return why sandbox auto-allow cannot be offered; empty if it can."""
    if agent.permissions.sandbox is None or agent.permissions.sandbox.backend != "full":
        return "commands run without asking only in a full sandbox, and there is none"
    if not agent.permissions.sandbox.offered or "auto" in agent.permissions.guard.barred:
        return "the settings do not let commands run without asking"
    if agent.permissions.sandbox.network == "on":
        return "the settings give sandboxed commands network access"
    return (
        ""
        if agent.world.snapshots is not None
        else "no snapshots are taken, so nothing could be restored"
    )


def folders_to_offer(agent: Agent, use: ToolUse) -> tuple[str, ...]:
    """Return folders outside the workspace that a command reads and a saved rule may allow.

    None if the sandbox hides one of the paths whatever is allowed: secrets, and our own state.
    """
    reads = _outside_reads(agent.permissions.guard, use)
    if not reads:
        return ()
    hidden = agent.permissions.sandbox.hidden if agent.permissions.sandbox is not None else ()
    paths = [get_bounding_path(one) for one in reads]
    found = [resolve_paths.folder_to_offer(path, home=home_folder()) for path in paths]
    closed = any(is_inside(path, one) or is_inside(one, path) for path in paths for one in hidden)
    return () if closed or not all(found) else tuple(dict.fromkeys(found))


def _can_run_unasked(agent: Agent, use: ToolUse) -> bool:
    """Return whether the mode or settings let the sandbox run this command without asking."""
    if agent.permissions.sandbox is None or use.tool != "Bash":
        return False
    return agent.permissions.guard.mode == "auto" or (
        agent.permissions.sandbox.free and agent.permissions.guard.mode in ASKING_MODES
    )


def _unasked_permissions(agent: Agent, use: ToolUse) -> Permissions:
    """Return the permissions of auto-allowed commands: auto mode, and public reads."""
    guard, bounds = replace(agent.permissions.guard, mode="auto"), agent.permissions.sandbox
    if bounds is None or bounds.backend != "full" or runs_outside_sandbox(bounds, use):
        return guard
    outside = _outside_reads(guard, use)
    if "read" not in guard.blocked:
        bounds = _show_siblings(agent, bounds, outside)
    free = (*find_shown_reads(bounds, use), *find_ruled_reads(agent.permissions.guard, use))
    free = (*free, *_find_missing_paths(bounds, outside))
    return replace(guard, readable=(*guard.readable, *_exclude_asked_folders(free, outside)))


def _exclude_asked_folders(free: tuple[str, ...], outside: list[Access]) -> Iterator[str]:
    """Leave out folders to offer in which the same command reads something that asks.

    What may be read counts with all that is in it: `ls /etc; cat /etc/shadow`.
    """
    asked = {get_bounding_path(one) for one in outside}.difference(free)
    return (path for path in free if not any(is_inside(one, path) for one in asked))


def _find_missing_paths(bounds: SandboxPolicy, outside: list[Access]) -> Iterator[str]:
    plain = (one.target for one in outside if one.scope == "one")
    return (path for path in plain if not is_inside(path, bounds.temp) and _has_missing_top(path))


def _has_missing_top(path: str) -> bool:
    """Return whether a path's top folder does not exist, so that no read need be offered.

    So there is nothing to read: many such words are no paths at all (`send worker "/merge"`).
    """
    found = TOP_FOLDER_PATTERN.match(path)
    return found is not None and ".." not in path and not os.path.lexists(found[0])


def hide_covered_folders(
    agent: Agent, use: ToolUse, profile: SandboxProfile | None
) -> SandboxProfile | None:
    """Hide secrets in a folder that an auto-allowed command reads because the sandbox shows it.

    A call that was allowed to read a folder sees all of it. `grep -r x /etc` was not: it needed no
    question, because what every command sees of it has no credentials.
    """
    if profile is None or agent.permissions.sandbox is None or not _can_run_unasked(agent, use):
        return profile
    covered, free = (
        agent.permissions.sandbox.covered,
        find_shown_reads(agent.permissions.sandbox, use),
    )
    inner = (one for one in covered if any(one != path and is_inside(one, path) for path in free))
    return replace(profile, hidden=tuple(dict.fromkeys((*profile.hidden, *inner))))


def check_protected_files(
    agent: Agent, use: ToolUse, profile: SandboxProfile | None
) -> SandboxProfile | None:
    """Mark a command that ran unapproved for a check of the project's protected files.

    Not after a line of steps that are all known to write nothing but what they show, which was
    judged, or what git takes out of commits. Mode bypass may write such files.
    """
    if profile is None or profile.profile != "work" or agent.permissions.guard.mode == "bypass":
        return profile
    steps = [step for plan in use.plans for step in plan.steps]
    if not any(plan.unclear for plan in use.plans) and all(map(_shows_all_writes, steps)):
        return profile
    allowing = [
        rule for rule in agent.permissions.guard.rules if rule.effect == "allow" and rule.what
    ]
    patterns = tuple(
        (rule.what, anchor_folder(rule, use), use.home)
        for rule in allowing
        if rule.tool == "Edit" and protected_names(rule.what)
    )
    named = {
        name
        for rule in allowing
        if any(rule_covers_step(rule, step) for step in steps)
        for name in _protected_names(rule)
    }
    return replace(profile, unasked=UnapprovedChanges(patterns, tuple(sorted(named))))


def _protected_names(rule: PermissionRule) -> Iterator[str]:
    """Return the protected names in permission rules that auto-allow commands."""
    return (name for word in rule.what.removesuffix(":*").split() for name in protected_names(word))


def _shows_all_writes(step: CommandStep) -> bool:
    """Return whether an auto-allowed step shows all that it writes, or only edits git history."""
    return is_transparent_step(step) or program_analyzers.moves_only_git_history(step)


def find_ruled_reads(permissions: Permissions, use: ToolUse) -> tuple[str, ...]:
    """Return a call's reads outside the workspace in folders that rules allow as a whole."""
    rules = [rule for rule in permissions.rules if rule.what.endswith("/**")]
    reads = _outside_reads(permissions, use) if rules else []
    bounds = (replace(one, target=get_bounding_path(one), scope="one") for one in reads)
    return tuple(
        one.target for one in bounds if any(rule_permits_path(rule, one, use) for rule in rules)
    )


def _outside_reads(permissions: Permissions, use: ToolUse) -> list[Access]:
    """Return what an auto-allowed call reads outside the agent's readable folders."""
    kept = (*permissions.folders, *permissions.readable, permissions.scratch)
    reads = (access for access in use.touched if access.kind == "read")
    return [one for one in reads if not any(f and is_inside(one.target, f) for f in kept)]


def _show_siblings(agent: Agent, bounds: SandboxPolicy, outside: list[Access]) -> SandboxPolicy:
    """Let auto-allowed commands see other checkouts of the repository that they name.

    Not where rules deny files: those were looked for in the workspace alone.
    """
    denied = any(
        rule.effect == "deny" and rule.tool == "Read" for rule in agent.permissions.guard.rules
    )
    if not outside or denied:
        return bounds
    siblings = (
        resolve_paths.find_sibling_checkout(
            get_bounding_path(one), agent.world.root, home=home_folder()
        )
        for one in outside
    )
    found = tuple(dict.fromkeys(one for one in siblings if one and one not in bounds.shown))
    if found:
        bounds = agent.permissions.sandbox = replace(bounds, shown=(*bounds.shown, *found))
    return bounds


def _with_reason(use: ToolUse, verdict: PermissionDecision) -> PermissionDecision:
    """Add the network as the reason to ask, if the sandbox blocks it."""
    steps = (step for plan in use.plans for step in plan.steps)
    found = next(filter(families.needs_network, steps), None) if verdict.doubt else None
    if found is None:
        return verdict
    return replace(verdict, because=f"needs the network: {found.texts[0]}")


def _reachable_hosts(bounds: SandboxPolicy) -> tuple[str, ...]:
    """Return the hosts that sandboxed commands reach without asking."""
    return bounds.hosts if bounds.backend == "full" and bounds.network in ("", "listed") else ()


def _judge_in_sandbox(agent: Agent, permissions: Permissions, use: ToolUse) -> PermissionDecision:
    """Decide on a call; in auto mode, the sandbox settles doubts about commands."""
    verdict = decide_permission(permissions, use)
    if agent.permissions.sandbox is None or permissions.mode != "auto" or use.tool != "Bash":
        return verdict
    hosts = _reachable_hosts(agent.permissions.sandbox)
    if verdict.effect == "ask" and not (
        verdict.doubt and is_contained(permissions, use, hosts=hosts)
    ):
        return _with_reason(use, verdict)
    if runs_outside_sandbox(agent.permissions.sandbox, use):
        return verdict
    if verdict.effect == "deny" or verdict.by == "rule":
        return verdict
    if lost := find_unrecoverable(agent, use.plans):
        return PermissionDecision(
            "ask", f"destroys what a rewind cannot restore: {', '.join(lost)}"
        )
    return (
        PermissionDecision("allow", UNASKED_REASON, "sandbox")
        if verdict.effect == "ask"
        else verdict
    )
