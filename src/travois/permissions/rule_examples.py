"""Examples in permission rules of what they match, checked when the rules are loaded.

`Bash(npm test:*) matches npm test -- --watch`, `Read(.env) does not match .envrc`.
"""

from __future__ import annotations

import re

from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import (
    EDIT_TOOLS,
    READ_TOOLS,
    PermissionRule,
    ToolUse,
    parse_permission_rule,
    rule_matches,
)

EXAMPLE_FORM = re.compile(r"(.+?\)|[\w*-]+)\s+(matches|does not match)\s+(.+)", re.DOTALL)
EXAMPLE_WORKSPACE = "/workspace"
EXAMPLE_HOME = "/home/user"


def check_example(example: str, rules: tuple[PermissionRule, ...]) -> str:
    """Describe how a permission rule contradicts its example; empty if it does not."""
    found = EXAMPLE_FORM.fullmatch(example.strip())
    if found is None:
        return f"{example!r} is not of the form `RULE matches TEXT` or `RULE does not match TEXT`"
    try:
        named = parse_permission_rule(found[1], "allow")
    except ValueError as error:
        return str(error)
    meant = [rule for rule in rules if (rule.tool, rule.what) == (named.tool, named.what)]
    if not meant:
        return f"{example!r} names a rule that does not exist"
    expected = found[2] == "matches"
    if all(rule_decides(rule, found[3]) is expected for rule in meant):
        return ""
    return f"{example!r} does not hold: the rule {'does not match' if expected else 'matches'} it"


def rule_decides(rule: PermissionRule, text: str) -> bool:
    """Return whether a permission rule alone matches an example's command, path, URL or name."""
    use = ToolUse(
        rule.tool.replace("*", "x"), (_example_access(rule, text),), EXAMPLE_WORKSPACE, EXAMPLE_HOME
    )
    if rule.tool == "Bash" and rule.effect == "allow":
        verdict = decide_permission(Permissions("default", (rule,), (EXAMPLE_WORKSPACE,)), use)
        return verdict.effect == "allow" and verdict.by == "rule"
    if rule.effect != "allow":
        return (
            decide_permission(Permissions("bypass", (rule,), (EXAMPLE_WORKSPACE,)), use).by
            == "rule"
        )
    return rule_matches(rule, use)


def _example_access(rule: PermissionRule, text: str) -> Access:
    """Build the access that an example of a permission rule stands for: command, URL or path."""
    if rule.tool == "Bash":
        return Access("exec", text)
    if rule.tool in ("WebFetch", "Browser"):
        return Access("net", text if "://" in text else f"https://{text}/")
    if rule.tool in (*READ_TOOLS, *EDIT_TOOLS):
        path = f"{EXAMPLE_HOME}{text[1:]}" if text.startswith("~") else text
        full = path if path.startswith("/") else f"{EXAMPLE_WORKSPACE}/{path.removeprefix('./')}"
        return Access("write" if rule.tool in EDIT_TOOLS else "read", full)
    return Access("spawn", text)
