"""Changes of permissions that come with an answer, as other agents write them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.policy.judge import ALIASES, MODES, Guard
from travois.policy.rules import Effect, Rule, parse


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule in two parts."""

    tool_name: str
    rule_content: str = ""

    @property
    def text(self) -> str:
        """As settings write it."""
        return f"{self.tool_name}({self.rule_content})" if self.rule_content else self.tool_name


class Update(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One change of what a session may do."""

    type: Literal["addRules", "setMode", "addDirectories"]
    rules: tuple[Spec, ...] = ()
    behavior: Effect = "ask"
    mode: str = ""
    directories: tuple[str, ...] = ()
    destination: str = "session"


def suggested(rules: Iterable[Rule]) -> tuple[Update, ...]:
    """The update that would answer this question for good."""
    specs = tuple(Spec(rule.tool, rule.what) for rule in rules)
    if not specs:
        return ()
    return (Update("addRules", specs, behavior="allow", destination="localSettings"),)


def amend(guard: Guard, update: Update) -> Guard:
    """What may be done after the update; raises ValueError with what is wrong with it."""
    match update.type:
        case "addRules":
            made = (parse(spec.text, update.behavior, origin="a hook") for spec in update.rules)
            return replace(guard, rules=(*guard.rules, *made))
        case "setMode":
            mode = ALIASES.get(update.mode, update.mode)
            found = next((known for known in MODES if known == mode and mode != "bypass"), None)
            if found is None:
                raise ValueError(f"a hook cannot choose the mode {update.mode!r}")
            return replace(guard, mode=found)
        case "addDirectories":
            added = tuple(os.path.realpath(folder) for folder in update.directories)
            return replace(guard, folders=(*guard.folders, *added))
