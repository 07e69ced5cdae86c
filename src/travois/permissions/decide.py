"""Permission decisions: pure functions from rules, mode and tool call to allow, ask or deny."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.lazy_imports import lazy_imports
from travois.permissions import paths
from travois.permissions.access import Access
from travois.permissions.catastrophic import describe_catastrophe, is_device
from travois.permissions.paths import is_inside, normalize_path
from travois.permissions.protected_paths import (
    has_unseen_characters,
    makes_repository,
    personal_names,
    protected_names,
)
from travois.permissions.rules import (
    TOOL_TWINS,
    PermissionRule,
    RuleEffect,
    ToolUse,
    anchor_folder,
    covering_rules,
    is_excepted,
    permitting_rules,
    rule_covers_step,
    rule_matches,
    rule_permits_path,
)
from travois.permissions.sandbox_profile import TMP_FOLDERS
from travois.permissions.shell.judge import plan_command as plan_command
from travois.permissions.shell.plan import CommandPlan, CommandStep

with lazy_imports():
    from travois.permissions import git_config
    from travois.permissions.shell import families


PermissionMode = Literal["default", "plan", "accept-edits", "auto", "dont-ask", "bypass"]
PERMISSION_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
MODE_ALIASES: dict[str, PermissionMode] = {
    "manual": "default",
    "acceptEdits": "accept-edits",
    "bypassPermissions": "bypass",
    "dontAsk": "dont-ask",
    "yolo": "bypass",
}
OUTSIDE_SANDBOX_REASON = "runs outside the sandbox, with access to everything you can access"
INTERACTIVE_TOOL_REASON = "uses a tool that needs approval for every call"
EDITING_MODES: tuple[PermissionMode, ...] = ("accept-edits", "auto")
WRITING_PROGRAMS = split_names(
    "ln link install rsync dd truncate patch ed ex shred split unlink scp"
)
"""Programs whose operands are files that they make or change."""
ALWAYS_ASKED_REASON = "which needs approval in every mode"
ADD_FOLDER_HINT = "--add-dir adds its folder to the workspace"
SCRATCH_REASON = "the session's own temporary files need no approval"
PLAN_MODE_REASON = "plan mode: no changes until the user approves the plan"


class PermissionDecision(msgspec.Struct, frozen=True):
    """A permission decision, its reason, and what made it."""

    effect: RuleEffect
    because: str
    by: Literal["rule", "mode", "hook", "sandbox"] = "mode"
    doubt: bool = False
    """True if it asks only because the effects of a command are not fully known."""


class Permissions(msgspec.Struct, frozen=True):
    """The permissions of a session: its mode, its rules, and its workspace folders."""

    mode: PermissionMode = "default"
    rules: tuple[PermissionRule, ...] = ()
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    """Folders that may be read but not written: where large outputs are kept."""
    scratch: str = ""
    """A private folder for whatever is not to last: free to read and write."""
    scratch_writes: Literal["free", "ask"] = "free"
    """`ask` where a program decides on calls: it is asked about what they name in `/tmp`, too."""
    blocked: tuple[Literal["read", "write"], ...] = ()
    """Access that is denied outside those folders, whatever allows it."""
    silent: bool = False
    """True if questions are denied, as in mode dont-ask."""
    barred: tuple[PermissionMode, ...] = ()
    """Modes that are switched off."""
    pinned: tuple[str, ...] = ()
    """Files that trusted hooks run: to change one is to change the hook."""
    writable: tuple[str, ...] = ()
    """Folders outside the workspace that the settings let mode bypass write to."""
    no_sandbox: bool = False
    """True if the user turned the sandbox off, and with it the write limit of mode bypass."""
    own: tuple[str, ...] = ()
    """Our own folders: tools may write only settings and memory in them."""


def decide_permission(permissions: Permissions, use: ToolUse) -> PermissionDecision:
    """Decide whether permissions allow a tool call, ask about it or deny it."""
    use = plan_commands(use)
    # Deny rules come first, so that nothing lifts them. Catastrophes come before allow rules and
    # mode bypass: a rule such as Bash(rm:*) must not cover `rm -rf /`.
    if rule := _first_matching_rule(permissions, use, "deny"):
        return PermissionDecision("deny", f"rule: {rule}", "rule")
    if fatal := _deny_unconditionally(permissions, use):
        return fatal
    if permissions.mode == "plan" and _changes_something(permissions, use):
        return PermissionDecision("deny", PLAN_MODE_REASON)
    if rule := _first_matching_rule(permissions, use, "ask"):
        return _deny_if_silent(permissions, PermissionDecision("ask", f"rule: {rule}", "rule"))
    if ruin := _find_catastrophe(permissions, use):
        return _deny_if_silent(permissions, PermissionDecision("ask", ruin))
    if any(access.kind == "leave" for access in use.accesses):
        return _deny_if_silent(permissions, PermissionDecision("ask", OUTSIDE_SANDBOX_REASON))
    if any(access.asks for access in use.accesses):
        return _deny_if_silent(permissions, PermissionDecision("ask", INTERACTIVE_TOOL_REASON))
    if rule := _find_allow_rule(permissions, use):
        return PermissionDecision("allow", f"rule: {rule}", "rule")
    if permissions.mode == "bypass":
        return _deny_if_silent(permissions, _decide_in_bypass(permissions, use))
    return _deny_if_silent(permissions, _strictest_decision(permissions, use))


def plan_commands(use: ToolUse) -> ToolUse:
    """Return the tool use with a plan for each command line, for the permission decision."""
    lines = [access.target for access in use.accesses if access.kind == "exec"]
    if len(use.plans) == len(lines):
        return use
    plans = tuple(plan_command(line, cwd=use.root or "/", home=use.home) for line in lines)
    return replace(use, plans=plans)


def _first_matching_rule(
    permissions: Permissions, use: ToolUse, effect: RuleEffect
) -> PermissionRule | None:
    """Return the first permission rule of this effect that matches a tool call; else None."""
    rules = (
        rule for rule in permissions.rules if rule.effect == effect and rule_matches(rule, use)
    )
    return next((rule for rule in rules if not is_excepted(rule, use)), None)


def _deny_unconditionally(permissions: Permissions, use: ToolUse) -> PermissionDecision | None:
    """Deny what no approval can allow: writing to devices or to the harness's own state."""
    for access in use.touched:
        if access.kind in permissions.blocked and _is_outside_workspace(permissions, access):
            return PermissionDecision(
                "deny", f"access outside the workspace is blocked: {access.target}"
            )
        if access.kind != "write":
            continue
        if is_device(access.target):
            return PermissionDecision("deny", f"{access.target} is a device or a kernel setting")
        is_own = not _is_scratch(permissions, access) and any(
            _is_harness_state(folder, access.target) for folder in permissions.own
        )
        if is_own:
            return PermissionDecision("deny", f"{access.target} is part of Travois' own state")
    return None


def _is_outside_workspace(permissions: Permissions, access: Access) -> bool:
    free = (*permissions.folders, *(permissions.readable if access.kind == "read" else ()))
    return not _is_inside_any(free, _bounding_path(access)) and not _is_scratch(permissions, access)


def _is_harness_state(folder: str, path: str) -> bool:
    """Return whether a path is the harness's state, which no permission may let anyone write."""
    if not is_inside(path, folder):
        return False
    local = normalize_path(path)[len(normalize_path(folder)) :].strip("/")
    kept = "/memory/" in f"/{local}" or local.startswith("agent-memory/")
    return local != "settings.json" and not kept


def _find_catastrophe(permissions: Permissions, use: ToolUse) -> str:
    found = (
        describe_catastrophe(plan, folders=permissions.folders, home=use.home) for plan in use.plans
    )
    return next((why for why in found if why), "")


def _find_allow_rule(permissions: Permissions, use: ToolUse) -> PermissionRule | None:
    """Return the first allow rule that covers the whole tool use and names each protected path."""
    written = [access for access in use.touched if access.kind == "write"]
    found = {name for access in written for name in _protected_names_in(permissions, access)}
    rules = (
        rule for rule in permissions.rules if rule.effect == "allow" and rule_matches(rule, use)
    )
    return next((rule for rule in rules if found <= protected_names(rule.what)), None)


def _changes_something(permissions: Permissions, use: ToolUse) -> bool:
    """Return whether a tool call certainly changes something, which plan mode must not run."""
    if any(access.kind in ("tell", "leave") for access in use.accesses):
        return True
    written = (access for access in use.touched if access.kind == "write")
    if ("sandbox", "write") in use.params or any(not _is_scratch(permissions, a) for a in written):
        return True
    steps = (step for plan in use.plans for step in plan.steps)
    return any(map(families.changes_repository, steps)) or bool(_find_catastrophe(permissions, use))


def _decide_in_bypass(permissions: Permissions, use: ToolUse) -> PermissionDecision:
    """Decide in bypass mode: ask only about personal settings and writes outside the workspace."""
    for access in use.touched:
        if (
            access.kind != "write"
            or _is_scratch(permissions, access)
            or _is_permitted_write(permissions, use, access)
        ):
            continue
        if _needs_user_approval(permissions, access):
            return PermissionDecision(
                "ask", f"writes a protected path, {ALWAYS_ASKED_REASON}: {access.target}"
            )
        free = (*permissions.folders, *permissions.writable, *TMP_FOLDERS)
        within = permissions.no_sandbox or _is_inside_any(free, _bounding_path(access))
        if not within:
            return PermissionDecision(
                "ask", f"writes outside the workspace: {access.target}; {ADD_FOLDER_HINT}"
            )
    for step in (step for plan in use.plans for step in plan.steps):
        if (path := _find_protected_target(permissions, step)) and personal_names(path):
            return PermissionDecision(
                "ask", f"may write a protected path, {ALWAYS_ASKED_REASON}: {path}"
            )
        if (key := _git_key_that_runs_programs(step)) and not _names_git_config(
            _find_covering_rule(permissions, use, step)
        ):
            return PermissionDecision(
                "ask", f"sets {key} in the git configuration, {ALWAYS_ASKED_REASON}"
            )
    return PermissionDecision("allow", "mode bypass allows everything that no rule denies")


def _git_key_that_runs_programs(step: CommandStep) -> str:
    """Return the git setting of a tool call that may start a program; empty if none."""
    if step.name != "git":
        return ""
    return git_config.find_program_key(step)


def _needs_user_approval(permissions: Permissions, access: Access) -> bool:
    """Return whether writing a path needs approval in every permission mode."""
    spellings = {access.target, access.spelt or access.target}
    pinned = any(is_inside(access.target, path) for path in permissions.pinned)
    return (
        pinned
        or access.bare
        or any(personal_names(_path_from_workspace(permissions, path)[0]) for path in spellings)
    )


def _is_permitted_write(permissions: Permissions, use: ToolUse, access: Access) -> bool:
    """Return whether a permission rule that names this path lets a command write it."""
    names = _protected_names_in(permissions, access)
    rules = (
        rule for rule in permissions.rules if use.plans and rule_permits_path(rule, access, use)
    )
    return any(names <= protected_names(rule.what) for rule in rules)


def _deny_if_silent(permissions: Permissions, verdict: PermissionDecision) -> PermissionDecision:
    """Turn a permission question into a denial where there is nobody to ask."""
    if verdict.effect == "ask" and (permissions.silent or permissions.mode == "dont-ask"):
        why = "mode dont-ask" if permissions.mode == "dont-ask" else "questions are turned off"
        return PermissionDecision("deny", f"{why}: {verdict.because}")
    return verdict


def _strictest_decision(permissions: Permissions, use: ToolUse) -> PermissionDecision:
    """Return the strictest permission decision on a call; certain questions before doubts."""
    plain_ones = [access for access in use.accesses if access.kind != "exec"]
    verdicts = [_decide_plan(permissions, use, plan) for plan in use.plans]
    verdicts += [_decide_access(permissions, use, access) for access in plain_ones]
    asks = [verdict for verdict in verdicts if verdict.effect == "ask"]
    if asks:
        return _first_certain_ask(asks)
    return (
        verdicts[0]
        if verdicts
        else PermissionDecision("allow", "accesses nothing outside the session")
    )


def _first_certain_ask(asks: list[PermissionDecision]) -> PermissionDecision:
    """Return the first certain reason to ask for permission, or else the first doubt.

    The sandbox may settle a doubt without a person, so a doubt must never hide a reason that only a
    person may settle.
    """
    return next((verdict for verdict in asks if not verdict.doubt), asks[0])


def _decide_plan(permissions: Permissions, use: ToolUse, plan: CommandPlan) -> PermissionDecision:
    """Decide permission for a command plan: each step must be harmless or allowed by a rule."""
    rules = [_find_needed_rule(permissions, use, step) for step in plan.steps]
    asks = list(_reasons_to_ask(permissions, use, plan, rules))
    if asks:
        return _first_certain_ask(asks)
    if covering := next(filter(None, rules), None):
        return PermissionDecision("allow", f"rule: {covering}", "rule")
    if not plan.is_read_only and permissions.mode in EDITING_MODES:
        return PermissionDecision(
            "allow", f"mode {permissions.mode}: edits inside the workspace are allowed"
        )
    if not plan.is_read_only:
        return PermissionDecision("allow", SCRATCH_REASON)
    return PermissionDecision("allow", "reads only inside the workspace")


def _reasons_to_ask(
    permissions: Permissions, use: ToolUse, plan: CommandPlan, rules: list[PermissionRule | None]
) -> Iterator[PermissionDecision]:
    """Yield every reason to ask permission for a command line, from all of its steps."""
    if plan.unclear:
        why = f"runs a command that could not be fully analyzed: {plan.unclear}"
        yield PermissionDecision("ask", why, doubt=True)
    if names := sorted(use.exported.intersection(plan.assigned)):
        why = f"sets {', '.join(names)} for the programs it runs"
        yield PermissionDecision("ask", why, doubt=True)
    for step, rule in zip(plan.steps, rules, strict=True):
        if step.needs != "nothing" and rule is None:
            what = step.texts[0] if step.texts else step.name
            yield PermissionDecision("ask", f"runs {what}: {step.why}", doubt=True)
        if path := _find_protected_target(permissions, step):
            yield PermissionDecision("ask", f"may write a protected path: {path}")
        if (key := _git_key_that_runs_programs(step)) and not _names_git_config(rule):
            yield PermissionDecision(
                "ask", f"sets {key} in the git configuration, which may run programs"
            )
        yield from _decide_step_accesses(
            permissions, use, step, trusted=rule is not None and step.edits
        )


def _find_protected_target(permissions: Permissions, step: CommandStep) -> str:
    """Return the protected path that a program's arguments would write; empty if none."""
    if step.needs == "nothing" or step.name not in WRITING_PROGRAMS:
        return ""
    for word in step.argv[1:]:
        path = word.text.rpartition("=")[2] if word.text.startswith(("-", "of=")) else word.text
        if path and protected_names(
            _path_from_workspace(permissions, path)[0] if path.startswith("/") else path
        ):
            return path
    return ""


def _names_git_config(rule: PermissionRule | None) -> bool:
    """Return whether a permission rule names `git config`, not git as a whole."""
    return rule is not None and "config" in rule.what.replace(":*", " ").split()


def _find_needed_rule(
    permissions: Permissions, use: ToolUse, step: CommandStep
) -> PermissionRule | None:
    """Return the permission rule that allows a step which needs one; None if there is none."""
    return (
        _find_covering_rule(permissions, use, step)
        if step.needs != "nothing" or step.edits
        else None
    )


def _find_covering_rule(
    permissions: Permissions, use: ToolUse, step: CommandStep
) -> PermissionRule | None:
    """Find the permission rule that allows one step of a command line; None if there is none."""
    return next(
        (rule for rule in covering_rules(permissions.rules, use) if rule_covers_step(rule, step)),
        None,
    )


def _decide_step_accesses(
    permissions: Permissions, use: ToolUse, step: CommandStep, *, trusted: bool
) -> list[PermissionDecision]:
    """Return the permission decisions on a step's accesses that are not allowed."""
    free = replace(permissions, mode="accept-edits") if trusted else permissions
    verdicts = (_decide_access(free, use, access) for access in step.accesses)
    return [verdict for verdict in verdicts if verdict.effect != "allow"]


def _decide_access(permissions: Permissions, use: ToolUse, access: Access) -> PermissionDecision:
    """Decide permission for one access; a rule may let a command read or write the path."""
    verdict = _decide_access_by_kind(permissions, use, access)
    if verdict.effect == "allow" or access.kind not in ("read", "write"):
        return verdict
    names = _protected_names_in(permissions, access) if access.kind == "write" else frozenset[str]()
    for rule in permitting_rules(permissions.rules, use):
        if (
            use.plans
            and rule_permits_path(rule, access, use)
            and names <= protected_names(rule.what)
        ):
            return PermissionDecision("allow", f"rule: {rule}", "rule")
    return verdict


def _decide_access_by_kind(
    permissions: Permissions, use: ToolUse, access: Access
) -> PermissionDecision:
    """Decide permission for one access by its kind: file, network, subagent, MCP server."""
    match access.kind:
        case "read":
            return _decide_read(permissions, use, access)
        case "write":
            return _decide_write(permissions, access)
        case "exec":
            return PermissionDecision("ask", "runs a command")
        case "net":
            return PermissionDecision("ask", f"uses the network: {access.target}")
        case "spawn" if use.tool in (*TOOL_TWINS, "Skill"):
            what = "a skill" if use.tool == "Skill" else "a subagent"
            return PermissionDecision(
                "allow", f"starting {what} is allowed; each of its tool calls is checked"
            )
        case "spawn":
            return PermissionDecision("ask", f"starts {access.target}")
        case "tell":
            return PermissionDecision("ask", f"sends a message to another session: {access.target}")
        case "leave":
            return PermissionDecision("ask", OUTSIDE_SANDBOX_REASON)
        case "call":
            return PermissionDecision("ask", _describe_called_tool(use.tool, access.target))


def _describe_called_tool(tool: str, owner: str) -> str:
    """Describe a tool that does not say what it touches."""
    if tool.startswith("mcp__") or tool == "McpCall":
        return f"uses a tool of the MCP server {owner}"
    return f"runs {tool} of {owner}, which does not say what it touches"


def _decide_read(permissions: Permissions, use: ToolUse, access: Access) -> PermissionDecision:
    """Allow reads in the workspace; ask outside it, or where a deny or ask rule may apply."""
    if _is_scratch(permissions, access):
        return PermissionDecision("allow", SCRATCH_REASON)
    if not _is_inside_any((*permissions.folders, *permissions.readable), _bounding_path(access)):
        return PermissionDecision("ask", f"reads outside the workspace: {access.target}")
    if access.scope == "one":
        return PermissionDecision("allow", "reads inside the workspace are allowed")
    for rule in permissions.rules:
        if rule.effect != "allow" and rule.tool == "Read" and rule.what:
            folder = _bounding_path(access)
            if paths.pattern_reaches_folder(
                rule.what, folder, root=anchor_folder(rule, use), home=use.home
            ):
                why = f"may read a path that a rule covers: {rule}"
                return PermissionDecision("ask", why, "rule", doubt=rule.effect == "deny")
    return PermissionDecision("allow", "reads inside the workspace are allowed")


def _decide_write(permissions: Permissions, access: Access) -> PermissionDecision:
    """Decide whether the permission mode allows writing a file or it must be asked about."""
    path = access.target
    if _is_scratch(permissions, access):
        if permissions.scratch_writes == "ask" and permissions.mode not in EDITING_MODES:
            return PermissionDecision("ask", f"writes {access.spelt or path}")
        return PermissionDecision("allow", SCRATCH_REASON)
    if not _is_inside_any(permissions.folders, _bounding_path(access)):
        return PermissionDecision("ask", f"writes outside the workspace: {path}")
    if _protected_names_in(permissions, access):
        return PermissionDecision("ask", f"writes a protected path: {path}")
    if has_unseen_characters(path):
        return PermissionDecision("ask", f"writes a path with invisible characters: {path!r}")
    if access.names > 1:
        return PermissionDecision("ask", f"writes a file that has other hard links: {path}")
    if permissions.mode in EDITING_MODES:
        return PermissionDecision(
            "allow", f"mode {permissions.mode}: edits inside the workspace are allowed"
        )
    return PermissionDecision("ask", f"writes {path}")


def _is_scratch(permissions: Permissions, access: Access) -> bool:
    return bool(permissions.scratch) and is_inside(_bounding_path(access), permissions.scratch)


def _bounding_path(access: Access) -> str:
    """Return a path that contains everything an access touches; a glob counts as its fixed part."""
    return paths.fixed_folder_of(access.target) if access.scope == "many" else access.target


def _protected_names_in(permissions: Permissions, access: Access) -> frozenset[str]:
    """Return the protected names in a path below its workspace, as written and resolved."""
    found: frozenset[str] = frozenset()
    for path in {access.target, access.spelt or access.target}:
        local, within = _path_from_workspace(permissions, path)
        found |= protected_names(local)
        if within and makes_repository(within):
            found |= {within.partition("/")[0]}
    if access.bare or any(is_inside(access.target, path) for path in permissions.pinned):
        found |= {basename(access.target)}
    local, within = _path_from_workspace(permissions, access.target)
    hidden = access.scope == "many" and "/." in (f"/{within}" if within else local)
    return found | {"."} if hidden else found


def _path_from_workspace(permissions: Permissions, path: str) -> tuple[str, str]:
    """Return the path below its workspace, with and without the workspace's name, to judge it.

    What stands above the folder was chosen by the user.
    """
    holding = [normalize_path(folder) for folder in permissions.folders if is_inside(path, folder)]
    if not holding:
        return normalize_path(path), ""
    folder = max(holding, key=len)
    return normalize_path(path)[len(dirname(folder)) :], normalize_path(path)[len(folder) :].strip(
        "/"
    )


def _is_inside_any(folders: tuple[str, ...], path: str) -> bool:
    return any(is_inside(path, folder) for folder in folders)
