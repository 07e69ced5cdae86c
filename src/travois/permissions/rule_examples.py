"""Examples of what a rule matches, checked when the rules are loaded.

`Bash(npm test:*) matches npm test -- --watch`, `Read(.env) does not match .envrc`.
"""

from __future__ import annotations

import re

from travois.permissions.access import Access
from travois.permissions.decide import Guard, judge
from travois.permissions.rules import EDITS, READS, Rule, Use, matches, parse

FORM = re.compile(r"(.+?\)|[\w*-]+)\s+(matches|does not match)\s+(.+)", re.DOTALL)
ROOT = "/workspace"
HOME = "/home/user"


def wrong(example: str, rules: tuple[Rule, ...]) -> str:
    """Describe the problem with an example; empty if the rule behaves as it says."""
    found = FORM.fullmatch(example.strip())
    if found is None:
        return f"{example!r} is not of the form `RULE matches TEXT` or `RULE does not match TEXT`"
    try:
        named = parse(found[1], "allow")
    except ValueError as error:
        return str(error)
    meant = [rule for rule in rules if (rule.tool, rule.what) == (named.tool, named.what)]
    if not meant:
        return f"{example!r} names a rule that does not exist"
    expected = found[2] == "matches"
    if all(speaks(rule, found[3]) is expected for rule in meant):
        return ""
    return f"{example!r} does not hold: the rule {'does not match' if expected else 'matches'} it"


def speaks(rule: Rule, text: str) -> bool:
    """Return whether a rule alone decides about this command, path, site or name."""
    use = Use(_tool(rule), (_access(rule, text),), ROOT, HOME)
    if rule.tool == "Bash" and rule.effect == "allow":
        verdict = judge(Guard("default", (rule,), (ROOT,)), use)
        return verdict.effect == "allow" and verdict.by == "rule"
    if rule.effect != "allow":
        return judge(Guard("bypass", (rule,), (ROOT,)), use).by == "rule"
    return matches(rule, use)


def _tool(rule: Rule) -> str:
    return rule.tool.replace("*", "x")


def _access(rule: Rule, text: str) -> Access:
    if rule.tool == "Bash":
        return Access("exec", text)
    if rule.tool in ("WebFetch", "Browser"):
        return Access("net", text if "://" in text else f"https://{text}/")
    if rule.tool in (*READS, *EDITS):
        path = f"{HOME}{text[1:]}" if text.startswith("~") else text
        full = path if path.startswith("/") else f"{ROOT}/{path.removeprefix('./')}"
        return Access("write" if rule.tool in EDITS else "read", full)
    return Access("spawn", text)
