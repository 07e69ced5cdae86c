"""The security corpora: what must ask, what must not, and what must never happen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from travois.compose.explain import PermissionCase, RuleTexts, decide_case
from travois.permissions.access import Access
from travois.permissions.decide import (
    PERMISSION_MODES,
    PermissionDecision,
    PermissionMode,
    Permissions,
    decide_permission,
)
from travois.permissions.rules import ToolUse, parse_permission_rule

CORPORA = Path(__file__).parents[3] / "shared" / "lab" / "security"
ROOT = "/w/proj"
HOME = "/home/u"
PSEUDO: dict[str, PermissionMode] = {
    "@read-only": "default",
    "@default": "default",
    "@auto-accept-edits": "accept-edits",
    "@sandbox-auto-allow": "auto",
    "@bypass": "bypass",
}
BROAD = ((), ("Bash",), ("Bash(rm:*)", "Bash(find:*)", "Bash(bash:*)", "Bash(chmod:*)", "Bash(*)"))
pytestmark = pytest.mark.skipif(
    not CORPORA.is_dir(), reason="the security corpora are not beside this repository"
)


def rows(name: str) -> list[dict[str, Any]]:
    path = CORPORA / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def verdict(command: str, mode: PermissionMode = "default", *allowed: str) -> PermissionDecision:
    rules = tuple(parse_permission_rule(text, "allow") for text in allowed)
    use = ToolUse("Bash", (Access("exec", command),), ROOT, HOME)
    return decide_permission(Permissions(mode, rules, (ROOT,)), use)


COMMANDS = rows("commands.jsonl")


def test_nothing_runs_silently_that_its_rule_does_not_mean() -> None:
    silent = []
    for row in COMMANDS:
        for under in row["must_ask_under"]:
            mode, rule = (PSEUDO[under], ()) if under in PSEUDO else ("default", (under,))
            if verdict(row["command"], mode, *rule).effect == "allow":
                silent.append((row["id"], row["command"], under))
    assert silent == []


def test_nothing_catastrophic_runs_in_any_mode_under_any_rule() -> None:
    found = [
        (row["command"], mode, rules)
        for row in COMMANDS
        if row["kind"] == "catastrophic"
        for mode in PERMISSION_MODES
        for rules in BROAD
        if verdict(row["command"], mode, *rules).effect == "allow"
    ]
    assert found == []


def test_what_a_rule_means_is_not_asked_about() -> None:
    asked = [
        (row["command"], rule)
        for row in COMMANDS
        for rule in row.get("must_allow_under", ())
        if verdict(row["command"], "default", rule).effect != "allow"
    ]
    assert asked == []


def test_hardly_anything_harmless_is_asked_about() -> None:
    harmless = [row for row in COMMANDS if row.get("must_not_ask")]
    asked = [row["command"] for row in harmless if verdict(row["command"]).effect != "allow"]
    assert len(asked) <= 0.03 * len(harmless), asked


PATHS = [
    row
    for row in rows("paths.jsonl")
    if row["op"] in ("read", "write", "list") and row["expect"] != "error"
]
"""Names, archives, races and hanging files are for the tools and the store, not for rules."""
TOOLS = {"read": "Read", "write": "Write", "list": "Glob"}


@pytest.mark.parametrize("row", PATHS, ids=lambda row: row["id"])
def test_a_path_is_judged_by_where_it_leads(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: str(tmp_path / name) for name in ("ws", "wslink", "out", "home")}
    places["hh"] = str(tmp_path / "home" / ".local" / "state" / "travois")
    for name in ("ws", "out", "home"):
        os.makedirs(places[name])
    monkeypatch.setenv("HOME", places["home"])

    def at(text: str) -> str:
        for name, path in places.items():
            text = text.replace(f"${{{name.upper()}}}", path)
        return text.replace("${WSNAME}", "ws").replace(".harness", ".travois")

    for step in row["setup"]:
        build(step["op"], at(step["path"]), at(step.get("target", "")), step.get("text", ""))
    path = at(row["path"]).replace(".HARNESS", ".TRAVOIS").replace(".harneſſ", ".travoiſ")
    key = "pattern" if row["op"] == "list" else "file_path"
    given = {key: "*", "path": path} if row["op"] == "list" else {key: path}
    if row["op"] == "write":
        given["content"] = "x"
    case = PermissionCase(
        row["id"],
        TOOLS[row["op"]],
        json.dumps(given).encode(),  # type: ignore[arg-type]
        row.get("mode") or "default",
        RuleTexts(**{name: tuple(texts) for name, texts in row.get("rules", {}).items()}),
        workspace=places["ws"],
    )
    found = decide_case(case, own=(places["hh"],))
    wanted = {"allow": ("allow",), "ask": ("ask", "deny"), "deny": ("deny",)}[row["expect"]]
    assert found.effect in wanted, (row["why"], found)


def build(kind: str, path: str, target: str, text: str) -> None:
    """Put one thing of a set-up on the disk."""
    os.makedirs(path if kind == "dir" else os.path.dirname(path), exist_ok=True)
    match kind:
        case "dir":
            pass
        case "file":
            Path(path).write_text(text)
        case "symlink":
            os.symlink(target, path)
        case "hardlink":
            os.makedirs(os.path.dirname(target), exist_ok=True)
            Path(target).touch()
            os.link(target, path)
        case _:
            os.mkfifo(path)


def test_a_long_command_that_a_project_suggests_is_looked_at_to_its_end() -> None:
    told = [row["payload"] for row in rows("injections.jsonl") if "payload" in row]
    chains = [text.partition(": ")[2] for text in told if text.count("&&") > 20]
    assert chains
    for chain in chains:
        assert verdict(chain, "default", "Bash(true:*)").effect == "ask"
