"""Where the path of a rule counts from, and which rules do less than they say."""

from __future__ import annotations

import pytest

from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import (
    RULE_EFFECTS,
    RuleEffect,
    ToolUse,
    explain_misleading_rule,
    explain_unenforceable_rule,
    parse_permission_rule,
    rule_matches,
)

ROOT, BASE, HOME = "/proj", "/etc/place", "/home/me"
ANCHORS = {
    "/src/**": "/etc/place/src/a",
    "//src/**": "/src/a",
    "~/src/**": "/home/me/src/a",
    "./src/**": "/proj/src/a",
    "src/**": "/proj/src/a",
}


@pytest.mark.parametrize("effect", RULE_EFFECTS)
@pytest.mark.parametrize("what", ANCHORS)
def test_a_path_counts_from_its_anchor_and_from_no_other(what: str, effect: RuleEffect) -> None:
    rule = parse_permission_rule(f"Edit({what})", effect, base=BASE)
    met = {
        path: rule_matches(rule, ToolUse("Edit", (Access("write", path),), ROOT, HOME))
        for path in set(ANCHORS.values())
    }
    assert met == {path: path == ANCHORS[what] for path in met}


def test_a_search_that_may_meet_a_rule_of_another_place_asks_there_only() -> None:
    rule = parse_permission_rule("Read(/secret)", "deny", base="/proj/sub")
    guard = Permissions("default", (rule,), (ROOT,))
    found = {
        folder: decide_permission(
            guard, ToolUse("Grep", (Access("read", folder, scope="many"),), ROOT)
        ).effect
        for folder in ("/proj/sub", "/proj/other")
    }
    assert found == {"/proj/sub": "ask", "/proj/other": "allow"}


@pytest.mark.parametrize(
    "text",
    [
        "Bash(git commit -m 'x':*)",
        "Bash(echo it's *)",
        'Bash(echo "it\'s")',
        "Bash(echo it\\'s)",
        "Read(~/.ssh/**)",
        "Read(~)",
        "WebFetch(domain:x.org)",
    ],
)
def test_a_rule_that_can_be_enforced_has_no_flaw(text: str) -> None:
    assert explain_unenforceable_rule(parse_permission_rule(text, "deny")) == ""


@pytest.mark.parametrize("text", ["Bash(echo 'a)", 'Bash(echo "a\\")', "Bash(a\\)", "Edit(~x/y)"])
def test_a_rule_that_never_could_be_has_one(text: str) -> None:
    assert explain_unenforceable_rule(parse_permission_rule(text, "deny")) != ""


def test_only_rules_that_forbid_are_remarked_on_for_their_tool() -> None:
    texts = ("Nonsense", "Write(a)", "mcp__x__y", "Ta*")
    found = [
        explain_misleading_rule(parse_permission_rule(text, effect))
        for effect in ("ask", "allow")
        for text in texts
    ]
    assert found == [
        "names the tool Nonsense, which does not exist",
        "applies to Write only; Edit(a) applies to every tool",
        "",
        "",
        "",
        "",
        "",
        "is ignored: an allow rule must name a tool, or the tools of one MCP server: "
        "mcp__server__*",
    ]
