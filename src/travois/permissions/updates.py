"""Permission updates that come with an answer, in Claude Code's format."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.permissions.decide import MODE_ALIASES, PERMISSION_MODES, Permissions
from travois.permissions.rules import PermissionRule, RuleEffect, parse_permission_rule

HOOK_ORIGIN = "a hook"
ANSWER_ORIGINS = (HOOK_ORIGIN, "your answer")
"""Prefixes of the origins of rules that an answer added."""
SAVED_DESTINATIONS = ("userSettings", "projectSettings", "localSettings")
"""Destinations of updates that hold for later sessions too."""


class RuleSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A permission rule in two parts, tool and pattern."""

    tool_name: str
    rule_content: str | None = None

    @property
    def text(self) -> str:
        """The rule as settings files write it."""
        return f"{self.tool_name}({self.rule_content})" if self.rule_content else self.tool_name


class PermissionUpdate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One change to a session's permissions."""

    type: Literal[
        "addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"
    ]
    rules: tuple[RuleSpec, ...] = ()
    behavior: RuleEffect = "ask"
    mode: str = ""
    directories: tuple[str, ...] = ()
    destination: str = "session"


SANDBOX_MODE = "sandboxed"
"""The mode value that lets commands run in the sandbox without approval."""
ALLOW_SANDBOXED_UPDATE = PermissionUpdate("setMode", mode=SANDBOX_MODE, destination="localSettings")
"""The change that the offer of a question stands for."""


def suggest_updates(rules: Iterable[PermissionRule]) -> tuple[PermissionUpdate, ...]:
    """Return the permission updates that would answer this question for good."""
    specs = tuple(RuleSpec(rule.tool, rule.what or None) for rule in rules)
    if not specs:
        return ()
    return (PermissionUpdate("addRules", specs, behavior="allow", destination="localSettings"),)


def apply_permission_update(permissions: Permissions, update: PermissionUpdate) -> Permissions:
    """Return the permissions after an update; raise ValueError if it is invalid."""
    match update.type:
        case "addRules" | "replaceRules" | "removeRules":
            return replace(permissions, rules=_update_rules(permissions, update))
        case "setMode":
            mode = MODE_ALIASES.get(update.mode, update.mode)
            barred = (*permissions.barred, "bypass")
            found = next(
                (known for known in PERMISSION_MODES if known == mode and mode not in barred), None
            )
            if found is None:
                raise ValueError(f"a hook cannot set the mode {update.mode!r}")
            return replace(permissions, mode=found)
        case "addDirectories":
            added = tuple(os.path.realpath(folder) for folder in update.directories)
            return replace(permissions, folders=(*permissions.folders, *added))
        case "removeDirectories":
            gone = {os.path.realpath(folder) for folder in update.directories}
            left = tuple(folder for folder in permissions.folders[1:] if folder not in gone)
            return replace(permissions, folders=(*permissions.folders[:1], *left))


def _update_rules(permissions: Permissions, update: PermissionUpdate) -> tuple[PermissionRule, ...]:
    """Return the permission rules after an update, which removes only rules added by updates."""
    made = tuple(
        parse_permission_rule(spec.text, update.behavior, origin=HOOK_ORIGIN)
        for spec in update.rules
    )
    if update.type == "addRules":
        return (*permissions.rules, *made)

    def is_removed(rule: PermissionRule) -> bool:
        meant = update.type == "replaceRules" or rule.text in (other.text for other in made)
        return meant and rule.effect == update.behavior and rule.origin.startswith(ANSWER_ORIGINS)

    kept = tuple(rule for rule in permissions.rules if not is_removed(rule))
    return (*kept, *made) if update.type == "replaceRules" else kept
