"""Permission rules: `Tool` or `Tool(what)`, as other agents write them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from travois.policy import paths, shell, sites
from travois.policy.access import Access

Effect = Literal["allow", "ask", "deny"]
EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
TOUCHING = {"Read": "read", "Edit": "write"}
"""A path that may not be read or edited may not be so by any tool."""


class Rule(msgspec.Struct, frozen=True):
    """One rule: which tool, which use of it (empty means any), what follows, and who said so."""

    tool: str
    what: str
    effect: Effect
    origin: str = ""

    def __str__(self) -> str:
        text = f"{self.tool}({self.what})" if self.what else self.tool
        return f"{self.effect} {text}" + (f" ({self.origin})" if self.origin else "")


def parse(text: str, effect: Effect, *, origin: str = "") -> Rule:
    """Read one rule; raises ValueError with what is wrong."""
    tool, opening, rest = text.strip().partition("(")
    if not tool or not all(c.isalnum() or c in "_-*" for c in tool):
        raise ValueError(f"{text!r} does not begin with the name of a tool")
    if not opening:
        return Rule(tool, "", effect, origin)
    if not rest.endswith(")"):
        raise ValueError(f"{text!r} has no closing parenthesis")
    what = rest[:-1].strip()
    if not what:
        raise ValueError(
            f"{text!r} has nothing between its parentheses; leave them out for any use"
        )
    return Rule(tool, "" if what in ("*", "**") else what, effect, origin)


def split(text: str) -> list[str]:
    """Several rules in one word, parted by commas or spaces outside parentheses."""
    rules, depth, current = [""], 0, 0
    for char in text:
        depth = max(0, depth + (char == "(") - (char == ")"))
        if depth == 0 and (char == "," or char.isspace()):
            rules.append("")
            current += 1
        else:
            rules[current] += char
    return [rule for rule in rules if rule]


class Use(msgspec.Struct, frozen=True):
    """A call as the rules see it; paths are resolved, `root` is the workspace."""

    tool: str
    accesses: tuple[Access, ...]
    root: str
    home: str = ""
    """What `~` stands for; without it such a rule allows nothing."""


def matches(rule: Rule, use: Use) -> bool:
    """Whether the rule speaks of this use. A deny or ask matches generously, an allow exactly."""
    if rule.effect == "allow":
        return _names(rule.tool, use.tool) and _allows(rule, use)
    if _names(rule.tool, use.tool):
        return not rule.what or any(_mentions(rule.what, access, use) for access in use.accesses)
    kind = TOUCHING.get(rule.tool)
    touched = (access for access in use.accesses if access.kind == kind)
    return bool(rule.what) and any(_mentions(rule.what, access, use) for access in touched)


def _names(rule: str, tool: str) -> bool:
    if rule == "Edit" and tool in EDITS:
        return True
    return fnmatchcase(tool, rule)


def _allows(rule: Rule, use: Use) -> bool:
    if not rule.what:
        return True
    return bool(use.accesses) and all(_covers(rule.what, access, use) for access in use.accesses)


def _covers(what: str, access: Access, use: Use) -> bool:
    match access.kind:
        case "exec":
            return shell.allows(what, access.target)
        case "net":
            return sites.allows(what, access.target)
        case "spawn":
            return fnmatchcase(access.target, what)
        case "read" | "write":
            return paths.allows(what, access.target, root=use.root, home=use.home)


def _mentions(what: str, access: Access, use: Use) -> bool:
    match access.kind:
        case "exec":
            return shell.mentions(what, access.target)
        case "net":
            return sites.mentions(what, access.target)
        case "spawn":
            return fnmatchcase(access.target.casefold(), what.casefold())
        case "read" | "write":
            return paths.mentions(what, access.target, root=use.root, home=use.home)
