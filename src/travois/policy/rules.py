"""Permission rules: `Tool` or `Tool(what)`, as other agents write them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from travois.policy.access import Access

Effect = Literal["allow", "ask", "deny"]
COMPOUND = frozenset(";&|<>$`()\n\r")
"""A command with one of these may do more than its first words say."""
EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")


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
    return Rule(tool, "" if what in ("*", "**") else what, effect, origin)


def split(text: str) -> list[str]:
    """Several rules in one word, parted by commas or spaces outside parentheses."""
    rules, depth, current = [""], 0, 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth == 0 and char in ", ":
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


def matches(rule: Rule, use: Use) -> bool:
    """Whether the rule speaks of this use. A deny or ask matches generously, an allow exactly."""
    if not _names(rule.tool, use.tool):
        return False
    if not rule.what:
        return True
    hits = [_covers(rule, access, use.root) for access in use.accesses]
    return bool(hits) and (all(hits) if rule.effect == "allow" else any(hits))


def _names(rule: str, tool: str) -> bool:
    if rule == "Edit" and tool in EDITS:
        return True
    return fnmatchcase(tool, rule)


def _covers(rule: Rule, access: Access, root: str) -> bool:
    match access.kind:
        case "exec":
            return _command(rule.what, access.target, exact=rule.effect == "allow")
        case "net":
            return _site(rule.what, access.target)
        case "read" | "write" | "spawn":
            return _path(rule.what, access.target, root)


def _command(what: str, command: str, *, exact: bool) -> bool:
    if exact and COMPOUND.intersection(command):
        return what == command
    command = command.strip()
    if what.endswith(":*"):
        prefix = what[:-2]
        return command == prefix or command.startswith(prefix + " ")
    if "*" not in what:
        return command == what
    if fnmatchcase(command, what):
        return True
    return what.endswith(" *") and command == what[:-2]


def _site(what: str, url: str) -> bool:
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    if not what.startswith("domain:"):
        return url == what
    wanted = what.removeprefix("domain:").lower()
    return host == wanted or (wanted.startswith("*.") and host.endswith(wanted[1:]))


def _path(what: str, path: str, root: str) -> bool:
    if what.startswith("//"):
        pattern = what[1:]
    elif what.startswith(("/", "./")):
        pattern = root + "/" + what.lstrip("./")
    else:
        pattern = what if what.startswith("~") else f"{root}/**/{what}"
        if fnmatchcase(path, f"{root}/{what}"):
            return True
    return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.rstrip("/*") + "/*")
