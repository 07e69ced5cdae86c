"""What a session may do, put together from settings."""

from __future__ import annotations

import os

from travois.kernel.faults import Fault
from travois.policy.judge import Guard
from travois.policy.rules import EFFECTS, Effect, Rule, idle, parse
from travois.store.settings import Loaded


def guard(loaded: Loaded, cwd: str, *, own: str, readable: tuple[str, ...] = ()) -> Guard:
    """The mode, rules and folders that these settings give a session in this folder."""
    rights = loaded.settings.permissions
    folders = [cwd]
    for folder in rights.additional_directories:
        path = os.path.realpath(os.path.expanduser(folder))
        if not os.path.isdir(path):
            raise Fault(f"{folder} is not a folder", fix="--add-dir takes folders that exist.")
        folders.append(path)
    return Guard(rights.mode, rules(loaded), tuple(folders), readable=readable, own=own)


def rules(loaded: Loaded) -> tuple[Rule, ...]:
    """All rules, each with the place that it came from."""
    rights = loaded.settings.permissions
    texts: dict[Effect, tuple[str, ...]] = {
        "deny": rights.deny,
        "ask": rights.ask,
        "allow": rights.allow,
    }
    return tuple(
        parse(text, effect, origin=loaded.origin(f"permissions.{effect}", text))
        for effect in EFFECTS
        for text in texts[effect]
    )


def remarks(loaded: Loaded) -> tuple[str, ...]:
    """What the user should know of rules that can never match."""
    found = ((rule, idle(rule)) for rule in rules(loaded))
    return tuple(f"{rule.origin}: {rule.tool} is ignored: {why}" for rule, why in found if why)
