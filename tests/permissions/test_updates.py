"""Changes of permissions that come with an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from travois.permissions.decide import Permissions
from travois.permissions.rules import parse_permission_rule
from travois.permissions.updates import PermissionUpdate, apply_permission_update

SETTINGS = parse_permission_rule("Read", "deny", origin="settings.json")
GUARD = Permissions(rules=(SETTINGS,), folders=("/work",))
BASH: dict[str, Any] = {"toolName": "Bash", "ruleContent": None}
EDIT: dict[str, Any] = {"toolName": "Edit", "ruleContent": "src/**"}


def after(guard: Permissions, **update: Any) -> Permissions:
    return apply_permission_update(guard, msgspec.convert(update, PermissionUpdate))


def texts(guard: Permissions) -> list[str]:
    return [f"{rule.effect} {rule.text}" for rule in guard.rules]


def test_rules_are_added_replaced_and_removed() -> None:
    added = after(GUARD, type="addRules", rules=[BASH, EDIT], behavior="allow")
    assert texts(added) == ["deny Read", "allow Bash", "allow Edit(src/**)"]
    replaced = after(added, type="replaceRules", rules=[BASH], behavior="allow")
    assert texts(replaced) == ["deny Read", "allow Bash"]
    assert after(added, type="removeRules", rules=[BASH, EDIT], behavior="allow") == GUARD


def test_what_settings_say_is_never_taken_away() -> None:
    read = {"toolName": "Read"}
    assert after(GUARD, type="removeRules", rules=[read], behavior="deny") == GUARD
    assert after(GUARD, type="replaceRules", rules=[], behavior="deny") == GUARD


def test_folders_come_and_go_but_for_the_workspace(tmp_path: Path) -> None:
    more = after(GUARD, type="addDirectories", directories=[str(tmp_path)])
    assert more.folders == ("/work", str(tmp_path))
    gone = after(more, type="removeDirectories", directories=[str(tmp_path), "/work"])
    assert gone.folders == ("/work",)


def test_no_answer_lifts_all_questions() -> None:
    assert after(GUARD, type="setMode", mode="acceptEdits").mode == "accept-edits"
    with pytest.raises(ValueError, match="bypass"):
        after(GUARD, type="setMode", mode="bypassPermissions")
