"""Changes of permissions that come with an answer, as other agents write them."""

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
"""How the origins of rules begin that an answer brought, in this session or before."""
KEPT = ("userSettings", "projectSettings", "localSettings")
"""Where a change goes that holds for later sessions too."""


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
"""What a change of mode names to let commands run in the sandbox without a question."""
SANDBOXED = Update("setMode", mode=SANDBOX_MODE, destination="localSettings")
"""The change that the offer of a question stands for."""


def suggested(rules: Iterable[Rule]) -> tuple[Update, ...]:
    """The update that would answer this question for good."""
    specs = tuple(Spec(rule.tool, rule.what or None) for rule in rules)
    if not specs:
        return ()
    return (Update("addRules", specs, behavior="allow", destination="localSettings"),)


def amend(guard: Guard, update: Update) -> Guard:
    """What may be done after the update; raises ValueError with what is wrong with it."""
    match update.type:
        case "addRules" | "replaceRules" | "removeRules":
            return replace(guard, rules=_ruled(guard, update))
        case "setMode":
            mode = ALIASES.get(update.mode, update.mode)
            barred = (*guard.barred, "bypass")
            found = next((known for known in MODES if known == mode and mode not in barred), None)
            if found is None:
                raise ValueError(f"a hook cannot choose the mode {update.mode!r}")
            return replace(guard, mode=found)
        case "addDirectories":
            added = tuple(os.path.realpath(folder) for folder in update.directories)
            return replace(guard, folders=(*guard.folders, *added))
        case "removeDirectories":
            gone = {os.path.realpath(folder) for folder in update.directories}
            left = tuple(folder for folder in guard.folders[1:] if folder not in gone)
            return replace(guard, folders=(*guard.folders[:1], *left))


def _ruled(guard: Guard, update: Update) -> tuple[Rule, ...]:
    """The rules after the update, which takes away only what such updates have brought."""
    made = tuple(parse(spec.text, update.behavior, origin=ORIGIN) for spec in update.rules)
    if update.type == "addRules":
        return (*guard.rules, *made)

    def gone(rule: Rule) -> bool:
        meant = update.type == "replaceRules" or rule.text in (other.text for other in made)
        return meant and rule.effect == update.behavior and rule.origin.startswith(ANSWERED)

    kept = tuple(rule for rule in guard.rules if not gone(rule))
    return (*kept, *made) if update.type == "replaceRules" else kept
