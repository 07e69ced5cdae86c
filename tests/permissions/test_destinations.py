"""A rule that names one place on the network does not allow a second one."""

from __future__ import annotations

import pytest

from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse, parse_permission_rule

RULES = {
    "curl https://a.example": "Bash(curl https://a.example:*)",
    "curl -s https://a.example": "Bash(curl -s https://a.example *)",
    "wget https://a.example": "Bash(wget https://a.example:*)",
    "git clone https://a.example/x": "Bash(git clone https://a.example/x:*)",
    "git push git@a.example:x": "Bash(git push git@a.example:x:*)",
    "git fetch https://a.example/x": "Bash(git fetch https://a.example/x:*)",
    "npm install https://a.example/x.tgz": "Bash(npm install https://a.example/x.tgz:*)",
    "pip install https://a.example/x.whl": "Bash(pip install https://a.example/x.whl:*)",
    "rsync -a src a.example:dst": "Bash(rsync -a src a.example:dst:*)",
}
SECOND = (
    *("https://b.example", "http://b.example/$(id)", "ftp://b.example/x", "git@b.example:y"),
    *("--index-url=https://b.example", "--url=https://b.example", "b.example/path"),
)


def effect(command: str, rule: str) -> str:
    use = ToolUse("Bash", (Access("exec", command),), "/w", "/home/u")
    return decide_permission(
        Permissions(rules=(parse_permission_rule(rule, "allow"),), folders=("/w",)), use
    ).effect


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("command", RULES)
def test_a_second_place_is_asked_about(command: str, second: str) -> None:
    assert effect(f"{command} {second}", RULES[command]) == "ask"


@pytest.mark.parametrize(
    "rule", ["Bash(curl https://a.example/*)", "Bash(curl * https://a.example:*)"]
)
@pytest.mark.parametrize(
    "second", ["https://b.example", "b", "https://b.example/https://a.example"]
)
def test_a_star_in_a_url_does_not_reach_beyond_it(rule: str, second: str) -> None:
    assert effect(f"curl -s https://a.example/x {second}", rule) == "ask"


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("curl https://a.example -s", "Bash(curl https://a.example:*)"),
        ("curl https://a.example -H 'X: https://b.example'", "Bash(curl https://a.example:*)"),
        ("curl -s https://a.example/x", "Bash(curl -s https://a.example/*)"),
        ("curl https://a.example https://b.example", "Bash(curl:*)"),
        ("git clone https://a.example/x y", "Bash(git clone https://a.example/x:*)"),
        ("git push origin main", "Bash(git push:*)"),
        ("git push origin main", "Bash(git push origin:*)"),
        ("npm install left-pad", "Bash(npm install:*)"),
    ],
)
def test_what_a_rule_means_it_still_allows(command: str, rule: str) -> None:
    assert effect(command, rule) == "allow"
