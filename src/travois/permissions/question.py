"""Permission questions: the effects they show, and the narrowest rules they offer."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname
from urllib.parse import urlsplit

from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.permissions.access import Access
from travois.permissions.danger import DANGER_PREFIX, find_dangers
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse, parse_permission_rule
from travois.permissions.sandbox_profile import SandboxProfile
from travois.permissions.shell.families import runs_arbitrary_code, runs_its_input
from travois.permissions.shell.plan import CommandPlan, CommandStep

SCRIPT_INTERPRETERS = split_names(
    "sh bash dash zsh python python3 node deno bun ruby perl php lua source ."
)
GROUPING_PROGRAMS = split_names(
    "gh glab aws gcloud az doctl kubectl helm docker podman firebase supabase"
)
"""Programs whose second word only names a group of subcommands."""
GROUPING_WORDS = split_names(
    "run run-script pip tool mod compose remote worktree stash submodule config"
)
"""Second words that only name a group, or what a project defines, whatever the program."""
MAX_OFFERED_RULES = 5
"""The maximum number of rules that one answer may add."""


def narrowest_rules(
    permissions: Permissions,
    use: ToolUse,
    profile: SandboxProfile | None = None,
    *,
    folders: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the narrowest rules that a permission question can offer; empty if none would do.

    `folders` are those outside the workspace that may be offered for commands to read.

    A script may contain something else tomorrow: without a sandbox, each run of it is asked about.
    A program's input may be anything, so no rule is offered for one that runs it.
    """
    if any(runs_its_input(step.argv) for plan in use.plans for step in plan.steps):
        return ()
    reading = (f"Read(/{folder}/**)" for folder in folders if use.plans)
    rules = tuple(dict.fromkeys((*_wanted_rules(use), *reading)))
    if (
        not rules
        or len(rules) > MAX_OFFERED_RULES
        or (profile is None and any(map(_runs_script, use.plans)))
    ):
        return ()
    kept = (*permissions.rules, *(parse_permission_rule(text, "allow") for text in rules))
    return (
        rules if decide_permission(replace(permissions, rules=kept), use).effect == "allow" else ()
    )


def describe_effects(use: ToolUse, profile: SandboxProfile | None) -> tuple[str, ...]:
    """Return the lines of a permission question: a call's effects and its sandbox limits."""
    changed = {access.target for access in use.touched if access.kind == "write"}
    touched = (
        f"{ACCESS_VERBS[access.kind]} {_describe_target(access, use)}{_describe_purpose(access)}"
        for access in use.touched
        if access.kind != "read" or access.target not in changed
    )
    told = (
        *(f"{DANGER_PREFIX}{why}" for why in find_dangers(use)),
        *touched,
        *_unknown_effects(use),
        *_describe_sandbox(use, profile),
    )
    return tuple(dict.fromkeys(told))


def _describe_target(access: Access, use: ToolUse) -> str:
    """Describe the target of an access in a permission question, marking the private /tmp."""
    if access.tmp == "private":
        return f"{access.spelt} (/tmp is private to this session; on disk: {access.target})"
    root = use.root.rstrip("/") + "/"
    is_path = access.kind in ("read", "write")
    return access.target.removeprefix(root) or "./" if is_path else access.target


def _describe_purpose(access: Access) -> str:
    return f" to {access.spelt}" if access.kind == "net" and access.spelt else ""


ACCESS_VERBS = {
    "read": "reads",
    "write": "changes",
    "net": "connects to",
    "spawn": "starts",
    "tell": "sends a message to",
    "exec": "runs",
    "leave": "runs outside",
    "call": "calls a tool of",
}


def _unknown_effects(use: ToolUse) -> Iterator[str]:
    """Yield the lines of a permission question about commands whose effects are unknown."""
    for plan in use.plans:
        if plan.unclear:
            yield f"could not be fully analyzed: {plan.unclear}"
    steps = (step for plan in use.plans for step in plan.steps if step.needs != "nothing")
    if names := tuple(dict.fromkeys(_program_with_subcommand(step) or step.name for step in steps)):
        yield f"runs {', '.join(names)} (effects unknown)"


def _describe_sandbox(use: ToolUse, profile: SandboxProfile | None) -> Iterator[str]:
    """Yield the lines of a permission question about the sandbox that limits the command."""
    if not use.plans:
        return
    if profile is None:
        yield "no sandbox: full access to your files and the network"
        return
    reach = {"off": "no network", "listed": "listed hosts only", "on": "network access"}
    beyond = f" and {', '.join(profile.writable)}" if profile.writable else ""
    yield f"sandbox: can change only the workspace{beyond}; {reach[profile.network]}"
    if profile.backend == "partial":
        yield "limited sandbox: changes to protected files (.git/hooks) are undone, not blocked"


def _wanted_rules(use: ToolUse) -> Iterator[str]:
    """Yield the narrowest permission rules that would allow such a tool call from now on."""
    exact = bool(find_dangers(use))
    for plan in use.plans:
        yield from _rules_for_plan(plan, exact=exact)
    if not use.plans:
        yield from (rule for access in use.accesses for rule in _rules_for_access(use, access))


def _rules_for_plan(plan: CommandPlan, *, exact: bool) -> Iterator[str]:
    """Yield the narrowest Bash rules that would allow each step of a command line.

    `exact` offers no rule for similar commands, as for a line with something dangerous.
    """
    if plan.unclear:
        yield from _exact_rule(plan.text.strip())
        return
    for step in plan.steps:
        if (
            step.needs == "rule"
            and not exact
            and not runs_arbitrary_code(step.argv)
            and (family := _program_with_subcommand(step))
        ):
            yield f"Bash({family}:*)"
        elif step.needs != "nothing" or step.edits:
            yield from _exact_rule(step.texts[0] if step.texts else "")


def _runs_script(plan: CommandPlan) -> bool:
    """Return whether a command runs a script, so that a question must not offer a rule for it."""
    heads = [[word.text for word in step.argv[:2]] for step in plan.steps]
    named = any("/" in head[0].removeprefix("/") for head in heads if head[:1])
    return named or any(len(head) > 1 and head[0] in SCRIPT_INTERPRETERS for head in heads)


def _exact_rule(text: str) -> Iterator[str]:
    """Yield the rule to offer for exactly this text, if it can be written as one."""
    if text and "*" not in text and text.isprintable():
        yield f"Bash({text})"


def _program_with_subcommand(step: CommandStep) -> str:
    """Return program and subcommand for an offered `Bash(git log:*)` rule; empty if too wide."""
    words = [word.text for word in step.argv[:3] if word.kind == "plain"]
    grouped = bool(
        GROUPING_PROGRAMS.intersection(words[:1]) or GROUPING_WORDS.intersection(words[1:2])
    )
    named = words[: 3 if grouped else 2]
    fits = len(named) == (3 if grouped else 2) and all(map(_is_subcommand, named[1:]))
    return " ".join(named) if fits else ""


def _is_subcommand(word: str) -> bool:
    return not word.startswith("-") and word.replace("-", "").replace(":", "").isalnum()


def _rules_for_access(use: ToolUse, access: Access) -> Iterator[str]:
    """Yield the narrowest permission rule that would allow a read, write, fetch or tool use."""
    match access.kind:
        case "read":
            yield f"Read(/{dirname(access.target)}/**)"
        case "write":
            yield f"Edit(/{access.target})"
        case "net" if use.tool == "WebSearch":
            yield use.tool
        case "net":
            yield f"{use.tool}(domain:{urlsplit(access.target).hostname or ''})"
        case "spawn" | "call":
            yield use.tool
        case "tell":
            yield f"{use.tool}({access.target})"
        case "exec" | "leave":
            pass
