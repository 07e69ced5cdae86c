"""The effects shown in a permission question, and the narrowest rules it can offer."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname
from urllib.parse import urlsplit

from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.permissions.access import Access
from travois.permissions.decide import Guard, judge
from travois.permissions.rules import Use, parse
from travois.permissions.sandbox_profile import Cage
from travois.permissions.shell.families import downloads, reads_program, runs_anything
from travois.permissions.shell.plan import Plan, Step

INTERPRETERS = split_names(
    "sh bash dash zsh python python3 node deno bun ruby perl php lua source ."
)
GROUPING = split_names("gh glab aws gcloud az doctl kubectl helm docker podman firebase supabase")
"""Programs whose second word only names a group of subcommands."""
GROUPS = split_names("run run-script pip tool mod compose remote worktree stash submodule config")
"""Second words that only name a group, or what a project defines, whatever the program."""
MOST = 5
"""The maximum number of rules that one answer may add."""


def always(
    guard: Guard, use: Use, cage: Cage | None = None, *, folders: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the narrowest rules that would have allowed this call; none if there are none.

    `folders` are those outside the workspace that may be offered for commands to read.

    A script may say something else tomorrow: without walls around it, it is asked about each time.
    What a program reads as its input may be anything, so no rule is offered for one that runs it.
    """
    if any(reads_program(step.argv) for plan in use.plans for step in plan.steps):
        return ()
    reading = (f"Read(/{folder}/**)" for folder in folders if use.plans)
    rules = tuple(dict.fromkeys((*_wanted(use), *reading)))
    if not rules or len(rules) > MOST or (cage is None and any(map(_scripted, use.plans))):
        return ()
    kept = (*guard.rules, *(parse(text, "allow") for text in rules))
    return rules if judge(replace(guard, rules=kept), use).effect == "allow" else ()


def effects(use: Use, cage: Cage | None) -> tuple[str, ...]:
    """Return the effects of a call and its sandbox limits, one text each."""
    touched = (f"{VERBS[access.kind]} {_named(access)}{_purpose(access)}" for access in use.touched)
    return (*_warnings(use), *dict.fromkeys(touched), *_unknown(use), *_walls(use, cage))


def _warnings(use: Use) -> Iterator[str]:
    """Yield warnings about code that nobody has reviewed."""
    for plan in use.plans:
        if not any(reads_program(step.argv) for step in plan.steps):
            continue
        if any(downloads(step) for step in plan.steps):
            yield "DANGER: runs code that a server sends"
        else:
            yield "DANGER: runs code from its input"


def _named(access: Access) -> str:
    if access.tmp != "private":
        return access.target
    return f"{access.spelt} (/tmp is private to this session; on disk: {access.target})"


def _purpose(access: Access) -> str:
    return f" to {access.spelt}" if access.kind == "net" and access.spelt else ""


VERBS = {
    "read": "reads",
    "write": "changes",
    "net": "connects to",
    "spawn": "starts",
    "tell": "sends a message to",
    "exec": "runs",
    "leave": "runs outside",
    "call": "calls a tool of",
}


def _unknown(use: Use) -> Iterator[str]:
    for plan in use.plans:
        if plan.unclear:
            yield f"could not be fully analyzed: {plan.unclear}"
        for step in plan.steps:
            if step.needs != "nothing":
                yield f"runs {step.name} (effects unknown)"


def _walls(use: Use, cage: Cage | None) -> Iterator[str]:
    if not use.plans:
        return
    if cage is None:
        yield "no sandbox: full access to your files and the network"
        return
    reach = {"off": "no network", "listed": "listed hosts only", "on": "network access"}
    beyond = f" and {', '.join(cage.writable)}" if cage.writable else ""
    yield f"sandbox: can change only the workspace{beyond}; {reach[cage.network]}"
    if cage.backend == "partial":
        yield "limited sandbox: changes to protected files (.git/hooks) are undone, not blocked"


def _wanted(use: Use) -> Iterator[str]:
    for plan in use.plans:
        yield from _commands(plan)
    if not use.plans:
        yield from (rule for access in use.accesses for rule in _touching(use, access))


def _commands(plan: Plan) -> Iterator[str]:
    if plan.unclear:
        yield from _exactly(plan.text.strip())
        return
    for step in plan.steps:
        if step.needs == "rule" and not runs_anything(step.argv) and (family := _family(step)):
            yield f"Bash({family}:*)"
        elif step.needs != "nothing" or step.edits:
            yield from _exactly(step.texts[0] if step.texts else "")


def _scripted(plan: Plan) -> bool:
    """Return whether a line runs a script by its path, or hands one to an interpreter."""
    heads = [[word.text for word in step.argv[:2]] for step in plan.steps]
    named = any("/" in head[0].removeprefix("/") for head in heads if head[:1])
    return named or any(len(head) > 1 and head[0] in INTERPRETERS for head in heads)


def _exactly(text: str) -> Iterator[str]:
    """Yield the text itself, where it can be written as a rule that means only this."""
    if text and "*" not in text and text.isprintable():
        yield f"Bash({text})"


def _family(step: Step) -> str:
    """Return the program with its subcommand; empty if that would be too wide."""
    words = [word.text for word in step.argv[:3] if word.kind == "plain"]
    grouped = bool(GROUPING.intersection(words[:1]) or GROUPS.intersection(words[1:2]))
    named = words[: 3 if grouped else 2]
    fits = len(named) == (3 if grouped else 2) and all(map(_is_subcommand, named[1:]))
    return " ".join(named) if fits else ""


def _is_subcommand(word: str) -> bool:
    return not word.startswith("-") and word.replace("-", "").replace(":", "").isalnum()


def _touching(use: Use, access: Access) -> Iterator[str]:
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
