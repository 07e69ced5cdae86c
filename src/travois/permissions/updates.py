"""Permission updates that come with an answer, in Claude Code's format."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.permissions.decide import ALIASES, MODES, Guard
from travois.permissions.rules import Effect, Rule, parse

ORIGIN = "a hook"
ANSWERED = (ORIGIN, "your answer")
"""Prefixes of the origins of rules that an answer added."""
KEPT = ("userSettings", "projectSettings", "localSettings")
"""Destinations of updates that hold for later sessions too."""


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule in two parts."""

    tool_name: str
    rule_content: str | None = None

    @property
    def text(self) -> str:
        """As settings write it."""
        return f"{self.tool_name}({self.rule_content})" if self.rule_content else self.tool_name


class Update(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One change of what a session may do."""

    type: Literal[
        "addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"
    ]
    rules: tuple[Spec, ...] = ()
    behavior: Effect = "ask"
    mode: str = ""
    directories: tuple[str, ...] = ()
    destination: str = "session"


SANDBOX_MODE = "sandboxed"
"""The mode value that lets commands run in the sandbox without approval."""
SANDBOXED = Update("setMode", mode=SANDBOX_MODE, destination="localSettings")
"""The change that the offer of a question stands for."""


def suggested(rules: Iterable[Rule]) -> tuple[Update, ...]:
    """Return the update that would answer this question for good."""
    specs = tuple(Spec(rule.tool, rule.what or None) for rule in rules)
    if not specs:
        return ()
    return (Update("addRules", specs, behavior="allow", destination="localSettings"),)


def amend(guard: Guard, update: Update) -> Guard:
    """Return the permissions after the update; raise ValueError if it is invalid."""
    match update.type:
        case "addRules" | "replaceRules" | "removeRules":
            return replace(guard, rules=_ruled(guard, update))
        case "setMode":
            mode = ALIASES.get(update.mode, update.mode)
            barred = (*guard.barred, "bypass")
            found = next((known for known in MODES if known == mode and mode not in barred), None)
            if found is None:
                raise ValueError(f"a hook cannot set the mode {update.mode!r}")
            return replace(guard, mode=found)
        case "addDirectories":
            added = tuple(os.path.realpath(folder) for folder in update.directories)
            return replace(guard, folders=(*guard.folders, *added))
        case "removeDirectories":
            gone = {os.path.realpath(folder) for folder in update.directories}
            left = tuple(folder for folder in guard.folders[1:] if folder not in gone)
            return replace(guard, folders=(*guard.folders[:1], *left))


def _ruled(guard: Guard, update: Update) -> tuple[Rule, ...]:
    """Return the rules after the update, which takes away only what such updates have brought."""
    made = tuple(parse(spec.text, update.behavior, origin=ORIGIN) for spec in update.rules)
    if update.type == "addRules":
        return (*guard.rules, *made)

    def gone(rule: Rule) -> bool:
        meant = update.type == "replaceRules" or rule.text in (other.text for other in made)
        return meant and rule.effect == update.behavior and rule.origin.startswith(ANSWERED)

    kept = tuple(rule for rule in guard.rules if not gone(rule))
    return (*kept, *made) if update.type == "replaceRules" else kept
