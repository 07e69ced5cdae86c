"""Permission decisions: pure functions from rules, mode and tool call to allow, ask or deny."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.permissions import paths
from travois.permissions.access import Access
from travois.permissions.catastrophic import device, ruinous
from travois.permissions.paths import inside, plain
from travois.permissions.protected_paths import makes_repository, personal, protected, strange
from travois.permissions.rules import (
    TWINS,
    Effect,
    Rule,
    Use,
    anchor,
    covering,
    covers,
    excepted,
    matches,
    permits,
    permitting,
)
from travois.permissions.sandbox_profile import TMP
from travois.permissions.shell.judge import plan as plan_command
from travois.permissions.shell.plan import Plan, Step

Mode = Literal["default", "plan", "accept-edits", "auto", "dont-ask", "bypass"]
MODES: tuple[Mode, ...] = get_args(Mode)
ALIASES: dict[str, Mode] = {
    "manual": "default",
    "acceptEdits": "accept-edits",
    "bypassPermissions": "bypass",
    "dontAsk": "dont-ask",
    "yolo": "bypass",
}
LEAVING = "runs outside the sandbox, with access to everything you can access"
MEETING = "uses a tool that needs approval for every call"
EDITING: tuple[Mode, ...] = ("accept-edits", "auto")
WRITERS = split_names("ln link install rsync dd truncate patch ed ex shred split unlink scp")
"""Programs whose operands are files that they make or change."""
ALWAYS = "which needs approval in every mode"
ADDING = "--add-dir adds its folder to the workspace"
SCRATCH = "the session's own temporary files need no approval"
PLANNING = "plan mode: no changes until the user approves the plan"


class Verdict(msgspec.Struct, frozen=True):
    """A permission decision, its reason, and what made it."""

    effect: Effect
    because: str
    by: Literal["rule", "mode", "hook", "sandbox"] = "mode"
    doubt: bool = False
    """True if it asks only because the effects of a command are not fully known."""


class Guard(msgspec.Struct, frozen=True):
    """The permissions of a session: its mode, its rules, and its workspace folders."""

    mode: Mode = "default"
    rules: tuple[Rule, ...] = ()
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    """Folders that may be read but not written: where large outputs are kept."""
    scratch: str = ""
    """A private folder for whatever is not to last: free to read and write."""
    blocked: tuple[Literal["read", "write"], ...] = ()
    """Access that is denied outside those folders, whatever allows it."""
    silent: bool = False
    """True if questions are denied, as in mode dont-ask."""
    barred: tuple[Mode, ...] = ()
    """Modes that are switched off."""
    pinned: tuple[str, ...] = ()
    """Files that trusted hooks run: to change one is to change the hook."""
    writable: tuple[str, ...] = ()
    """Folders outside the workspace that the settings let mode bypass write to."""
    no_sandbox: bool = False
    """True if the user turned the sandbox off, and with it the write limit of mode bypass."""
    own: str = ""
    """Our own state folder: tools may write only settings and memory in it."""


def judge(guard: Guard, use: Use) -> Verdict:
    """Decide whether a tool call is allowed, asked about or denied."""
    use = understood(use)
    # Deny rules come first, so that nothing lifts them. Catastrophes come before allow rules and
    # mode bypass: a rule such as Bash(rm:*) must not cover `rm -rf /`.
    if rule := _first(guard, use, "deny"):
        return Verdict("deny", f"rule: {rule}", "rule")
    if fatal := _fatal(guard, use):
        return fatal
    if guard.mode == "plan" and _changes(guard, use):
        return Verdict("deny", PLANNING)
    if rule := _first(guard, use, "ask"):
        return _settle(guard, Verdict("ask", f"rule: {rule}", "rule"))
    if ruin := _ruin(guard, use):
        return _settle(guard, Verdict("ask", ruin))
    if any(access.kind == "leave" for access in use.accesses):
        return _settle(guard, Verdict("ask", LEAVING))
    if any(access.asks for access in use.accesses):
        return _settle(guard, Verdict("ask", MEETING))
    if rule := _allowing(guard, use):
        return Verdict("allow", f"rule: {rule}", "rule")
    if guard.mode == "bypass":
        return _settle(guard, _bypass(guard, use))
    return _settle(guard, _worst(guard, use))


def understood(use: Use) -> Use:
    """Return the same use with a plan for each of its command lines."""
    lines = [access.target for access in use.accesses if access.kind == "exec"]
    if len(use.plans) == len(lines):
        return use
    plans = tuple(plan_command(line, cwd=use.root or "/", home=use.home) for line in lines)
    return replace(use, plans=plans)


def _first(guard: Guard, use: Use, effect: Effect) -> Rule | None:
    rules = (rule for rule in guard.rules if rule.effect == effect and matches(rule, use))
    return next((rule for rule in rules if not excepted(rule, use)), None)


def _fatal(guard: Guard, use: Use) -> Verdict | None:
    """Deny what no approval can allow: writing to devices and to our own state."""
    for access in use.touched:
        if access.kind in guard.blocked and _beyond(guard, access):
            return Verdict("deny", f"access outside the workspace is blocked: {access.target}")
        if access.kind != "write":
            continue
        if device(access.target):
            return Verdict("deny", f"{access.target} is a device or a kernel setting")
        own = guard.own and inside(access.target, guard.own) and not _scratched(guard, access)
        if own and _private(guard, access.target):
            return Verdict("deny", f"{access.target} is part of Travois' own state")
    return None


def _beyond(guard: Guard, access: Access) -> bool:
    free = (*guard.folders, *(guard.readable if access.kind == "read" else ()))
    return not _inside(free, _bound(access)) and not _scratched(guard, access)


def _private(guard: Guard, path: str) -> bool:
    local = plain(path)[len(plain(guard.own)) :].strip("/")
    kept = "/memory/" in f"/{local}" or local.startswith("agent-memory/")
    return local != "settings.json" and not kept


def _ruin(guard: Guard, use: Use) -> str:
    found = (ruinous(plan, folders=guard.folders, home=use.home) for plan in use.plans)
    return next((why for why in found if why), "")


def _allowing(guard: Guard, use: Use) -> Rule | None:
    """Return the first allow rule that covers the whole use, and names each protected path."""
    written = [access for access in use.touched if access.kind == "write"]
    found = {name for access in written for name in _guarded(guard, access)}
    rules = (rule for rule in guard.rules if rule.effect == "allow" and matches(rule, use))
    return next((rule for rule in rules if found <= protected(rule.what)), None)


def _changes(guard: Guard, use: Use) -> bool:
    """Return whether a use is known to change something; what may only do so is held read-only."""
    from travois.permissions.shell.families import changes_repository

    if any(access.kind in ("tell", "leave") for access in use.accesses):
        return True
    written = (access for access in use.touched if access.kind == "write")
    if ("sandbox", "write") in use.params or any(not _scratched(guard, a) for a in written):
        return True
    steps = (step for plan in use.plans for step in plan.steps)
    return any(map(changes_repository, steps)) or bool(_ruin(guard, use))


def _bypass(guard: Guard, use: Use) -> Verdict:
    """Decide in mode bypass: ask for personal settings and for writes outside the workspace."""
    for access in use.touched:
        if access.kind != "write" or _scratched(guard, access) or _permitted(guard, use, access):
            continue
        if _needs_person(guard, access):
            return Verdict("ask", f"writes a protected path, {ALWAYS}: {access.target}")
        free = (*guard.folders, *guard.writable, *TMP)
        within = guard.no_sandbox or _inside(free, _bound(access))
        if not within:
            return Verdict("ask", f"writes outside the workspace: {access.target}; {ADDING}")
    for step in (step for plan in use.plans for step in plan.steps):
        if (path := _copied_to(guard, step)) and personal(path):
            return Verdict("ask", f"may write a protected path, {ALWAYS}: {path}")
        if (key := _program_key(step)) and not _names_config(_covering(guard, use, step)):
            return Verdict("ask", f"sets {key} in the git configuration, {ALWAYS}")
    return Verdict("allow", "mode bypass allows everything that no rule denies")


def _program_key(step: Step) -> str:
    """Return the key of git's configuration that a call sets and that may start a program."""
    if step.name != "git":
        return ""
    from travois.permissions.git_config import sets_program

    return sets_program(step)


def _needs_person(guard: Guard, access: Access) -> bool:
    """Return whether no mode lets this path be written without a person's yes."""
    spellings = {access.target, access.spelt or access.target}
    pinned = any(inside(access.target, path) for path in guard.pinned)
    return pinned or access.bare or any(personal(_local(guard, path)[0]) for path in spellings)


def _permitted(guard: Guard, use: Use, access: Access) -> bool:
    """Return whether a rule that names this path lets a command write it."""
    names = _guarded(guard, access)
    rules = (rule for rule in guard.rules if use.plans and permits(rule, access, use))
    return any(names <= protected(rule.what) for rule in rules)


def _settle(guard: Guard, verdict: Verdict) -> Verdict:
    if verdict.effect == "ask" and (guard.silent or guard.mode == "dont-ask"):
        why = "mode dont-ask" if guard.mode == "dont-ask" else "questions are turned off"
        return Verdict("deny", f"{why}: {verdict.because}")
    return verdict


def _worst(guard: Guard, use: Use) -> Verdict:
    """Return the strictest decision on a use; a certain question comes before a doubt."""
    plain_ones = [access for access in use.accesses if access.kind != "exec"]
    verdicts = [_plan(guard, use, plan) for plan in use.plans]
    verdicts += [_touch(guard, use, access) for access in plain_ones]
    asks = [verdict for verdict in verdicts if verdict.effect == "ask"]
    if asks:
        return _certain_first(asks)
    return verdicts[0] if verdicts else Verdict("allow", "accesses nothing outside the session")


def _certain_first(asks: list[Verdict]) -> Verdict:
    """Return the first certain reason to ask, or else the first doubt.

    The sandbox may settle a doubt without a person, so a doubt must never hide a reason that only a
    person may settle.
    """
    return next((verdict for verdict in asks if not verdict.doubt), asks[0])


def _plan(guard: Guard, use: Use, plan: Plan) -> Verdict:
    """Return whether every step of a command line is harmless or covered by a rule."""
    rules = [_needed_rule(guard, use, step) for step in plan.steps]
    asks = list(_asks(guard, use, plan, rules))
    if asks:
        return _certain_first(asks)
    if covering := next(filter(None, rules), None):
        return Verdict("allow", f"rule: {covering}", "rule")
    if not plan.looks and guard.mode in EDITING:
        return Verdict("allow", f"mode {guard.mode}: edits inside the workspace are allowed")
    if not plan.looks:
        return Verdict("allow", SCRATCH)
    return Verdict("allow", "reads only inside the workspace")


def _asks(guard: Guard, use: Use, plan: Plan, rules: list[Rule | None]) -> Iterator[Verdict]:
    """Yield every reason to ask about a command line: all of its steps are looked at."""
    if plan.unclear:
        why = f"runs a command that could not be fully analyzed: {plan.unclear}"
        yield Verdict("ask", why, doubt=True)
    if names := sorted(use.exported.intersection(plan.assigned)):
        why = f"sets {', '.join(names)} for the programs it runs"
        yield Verdict("ask", why, doubt=True)
    for step, rule in zip(plan.steps, rules, strict=True):
        if step.needs != "nothing" and rule is None:
            what = step.texts[0] if step.texts else step.name
            yield Verdict("ask", f"runs {what}: {step.why}", doubt=True)
        if path := _copied_to(guard, step):
            yield Verdict("ask", f"may write a protected path: {path}")
        if (key := _program_key(step)) and not _names_config(rule):
            yield Verdict("ask", f"sets {key} in the git configuration, which may run programs")
        yield from _step(guard, use, step, trusted=rule is not None and step.edits)


def _copied_to(guard: Guard, step: Step) -> str:
    """Return the protected path among the arguments of a program that writes files; or empty."""
    if step.needs == "nothing" or step.name not in WRITERS:
        return ""
    for word in step.argv[1:]:
        path = word.text.rpartition("=")[2] if word.text.startswith(("-", "of=")) else word.text
        if path and protected(_local(guard, path)[0] if path.startswith("/") else path):
            return path
    return ""


def _names_config(rule: Rule | None) -> bool:
    """Return whether a rule speaks of git's configuration, and not of git as a whole."""
    return rule is not None and "config" in rule.what.replace(":*", " ").split()


def _needed_rule(guard: Guard, use: Use, step: Step) -> Rule | None:
    """Return the rule that covers a step which needs one."""
    return _covering(guard, use, step) if step.needs != "nothing" or step.edits else None


def _covering(guard: Guard, use: Use, step: Step) -> Rule | None:
    return next((rule for rule in covering(guard.rules, use) if covers(rule, step)), None)


def _step(guard: Guard, use: Use, step: Step, *, trusted: bool) -> list[Verdict]:
    """Return the decisions on a step's accesses that are not allowed."""
    free = replace(guard, mode="accept-edits") if trusted else guard
    verdicts = (_touch(free, use, access) for access in step.accesses)
    return [verdict for verdict in verdicts if verdict.effect != "allow"]


def _touch(guard: Guard, use: Use, access: Access) -> Verdict:
    verdict = _access(guard, use, access)
    if verdict.effect == "allow" or access.kind not in ("read", "write"):
        return verdict
    names = _guarded(guard, access) if access.kind == "write" else frozenset[str]()
    for rule in permitting(guard.rules, use):
        if use.plans and permits(rule, access, use) and names <= protected(rule.what):
            return Verdict("allow", f"rule: {rule}", "rule")
    return verdict


def _access(guard: Guard, use: Use, access: Access) -> Verdict:
    match access.kind:
        case "read":
            return _read(guard, use, access)
        case "write":
            return _write(guard, access)
        case "exec":
            return Verdict("ask", "runs a command")
        case "net":
            return Verdict("ask", f"uses the network: {access.target}")
        case "spawn" if use.tool in (*TWINS, "Skill"):
            what = "a skill" if use.tool == "Skill" else "a subagent"
            return Verdict(
                "allow", f"starting {what} is allowed; each of its tool calls is checked"
            )
        case "spawn":
            return Verdict("ask", f"starts {access.target}")
        case "tell":
            return Verdict("ask", f"sends a message to another session: {access.target}")
        case "leave":
            return Verdict("ask", LEAVING)
        case "call":
            return Verdict("ask", f"uses a tool of the MCP server {access.target}")


def _read(guard: Guard, use: Use, access: Access) -> Verdict:
    if _scratched(guard, access):
        return Verdict("allow", SCRATCH)
    if not _inside((*guard.folders, *guard.readable), _bound(access)):
        return Verdict("ask", f"reads outside the workspace: {access.target}")
    if access.scope == "one":
        return Verdict("allow", "reads inside the workspace are allowed")
    for rule in guard.rules:
        if rule.effect != "allow" and rule.tool == "Read" and rule.what:
            folder = _bound(access)
            if paths.reaches(rule.what, folder, root=anchor(rule, use), home=use.home):
                why = f"may read a path that a rule covers: {rule}"
                return Verdict("ask", why, "rule", doubt=rule.effect == "deny")
    return Verdict("allow", "reads inside the workspace are allowed")


def _write(guard: Guard, access: Access) -> Verdict:
    path = access.target
    if _scratched(guard, access):
        return Verdict("allow", SCRATCH)
    if not _inside(guard.folders, _bound(access)):
        return Verdict("ask", f"writes outside the workspace: {path}")
    if _guarded(guard, access):
        return Verdict("ask", f"writes a protected path: {path}")
    if strange(path):
        return Verdict("ask", f"writes a path with invisible characters: {path!r}")
    if access.names > 1:
        return Verdict("ask", f"writes a file that has other hard links: {path}")
    if guard.mode in EDITING:
        return Verdict("allow", f"mode {guard.mode}: edits inside the workspace are allowed")
    return Verdict("ask", f"writes {path}")


def _scratched(guard: Guard, access: Access) -> bool:
    return bool(guard.scratch) and inside(_bound(access), guard.scratch)


def _bound(access: Access) -> str:
    """Return a path that holds all that is touched; a pattern stays below its fixed part."""
    return paths.stem(access.target) if access.scope == "many" else access.target


def _guarded(guard: Guard, access: Access) -> frozenset[str]:
    """Return the protected names in a path below its workspace, as written and resolved."""
    found: frozenset[str] = frozenset()
    for path in {access.target, access.spelt or access.target}:
        local, within = _local(guard, path)
        found |= protected(local)
        if within and makes_repository(within):
            found |= {within.partition("/")[0]}
    if access.bare or any(inside(access.target, path) for path in guard.pinned):
        found |= {basename(access.target)}
    local, within = _local(guard, access.target)
    hidden = access.scope == "many" and "/." in (f"/{within}" if within else local)
    return found | {"."} if hidden else found


def _local(guard: Guard, path: str) -> tuple[str, str]:
    """Return the path from its workspace folder on, with the folder's own name and without.

    What stands above the folder was chosen by the user.
    """
    holding = [plain(folder) for folder in guard.folders if inside(path, folder)]
    if not holding:
        return plain(path), ""
    folder = max(holding, key=len)
    return plain(path)[len(dirname(folder)) :], plain(path)[len(folder) :].strip("/")


def _inside(folders: tuple[str, ...], path: str) -> bool:
    return any(inside(path, folder) for folder in folders)
