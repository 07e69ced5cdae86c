"""May this happen: in every mode, for every call, with no way around a deny."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from travois.permissions.access import Access
from travois.permissions.decide import (
    PERMISSION_MODES,
    PLAN_MODE_REASON,
    PermissionDecision,
    PermissionMode,
    Permissions,
    decide_permission,
    plan_commands,
)
from travois.permissions.protected_paths import PROTECTED_NAMES
from travois.permissions.rules import (
    READ_TOOLS,
    PermissionRule,
    RuleEffect,
    ToolUse,
    parse_permission_rule,
    rule_matches,
)

ROOT = "/w/proj"


def guard(mode: PermissionMode = "default", *rules: PermissionRule) -> Permissions:
    return Permissions(mode, rules, (ROOT,), readable=("/spill",))


def verdict(guarded: Permissions, *accesses: Access, tool: str = "Tool") -> PermissionDecision:
    return decide_permission(guarded, ToolUse(tool, accesses, ROOT, "/home/u"))


def effect(
    mode: PermissionMode, kind: str, target: str, *rules: PermissionRule, tool: str = "Tool"
) -> RuleEffect:
    return verdict(guard(mode, *rules), Access(kind, target), tool=tool).effect  # type: ignore[arg-type]


TABLE = {
    # mode: read inside, read outside, write inside, write outside, exec, net, spawn, nothing
    "default": "allow ask ask ask ask ask ask allow",
    "plan": "allow ask deny deny ask ask ask allow",
    "accept-edits": "allow ask allow ask ask ask ask allow",
    "auto": "allow ask allow ask ask ask ask allow",
    "dont-ask": "allow deny deny deny deny deny deny allow",
    "bypass": "allow allow allow ask allow allow allow allow",
}


@pytest.mark.parametrize("mode", PERMISSION_MODES)
def test_what_each_mode_says_to_each_kind_of_access(mode: PermissionMode) -> None:
    accesses = [
        Access("read", f"{ROOT}/a"),
        Access("read", "/etc/hosts"),
        Access("write", f"{ROOT}/a"),
        Access("write", "/etc/hosts"),
        Access("exec", "make"),
        Access("net", "https://x.org"),
        Access("spawn", "explore"),
    ]
    found = [verdict(guard(mode), access).effect for access in accesses]
    assert " ".join([*found, verdict(guard(mode)).effect]) == TABLE[mode]


@pytest.mark.parametrize(
    "path",
    [
        "/w/proj/src/../../etc",
        "/w/proj/../x",
        "/w/proj-evil/a",
        "/w/PROJ/a",
        "/w",
        "/",
        "",
        "a",
        "proj/a",
        "../w/proj/a",
        "/spilled/a",
    ],
)
def test_what_is_not_below_a_folder_is_outside(path: str) -> None:
    assert effect("accept-edits", "write", path) == "ask"
    assert effect("default", "read", path) == "ask"


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/", f"{ROOT}/a", f"{ROOT}//a/./b", f"/{ROOT}/a"])
def test_what_is_below_a_folder_is_inside(path: str) -> None:
    assert effect("accept-edits", "write", path) == "allow"


def test_an_empty_or_floating_folder_holds_nothing() -> None:
    for folders in ((), ("",), (".",), ("w/proj",)):
        found = decide_permission(
            Permissions("accept-edits", (), folders), ToolUse("T", (Access("write", "/a"),), ROOT)
        )
        assert found.effect == "ask"


def test_a_folder_may_end_with_a_slash_or_be_all_there_is() -> None:
    for folder in ("/w/proj/", "/"):
        use = ToolUse("T", (Access("write", "/w/proj/a"),), ROOT)
        assert decide_permission(Permissions("accept-edits", (), (folder,)), use).effect == "allow"


def test_where_large_outputs_are_kept_may_be_read_but_not_written() -> None:
    assert effect("default", "read", "/spill/call_1") == "allow"
    assert effect("accept-edits", "write", "/spill/call_1") == "ask"


@pytest.mark.parametrize("name", sorted(PROTECTED_NAMES))
def test_what_decides_what_runs_later_is_asked_about_even_when_edits_are_free(name: str) -> None:
    spellings = [name, name.upper(), f"a/{name}/b", f"{name[0]}\u200b{name[1:]}", f"{name}."]
    spellings += [f"．{name[1:]}"] if name.startswith(".") else []
    for path in spellings:
        for mode in ("accept-edits", "auto", "default"):
            assert effect(mode, "write", f"{ROOT}/{path}") == "ask"
        assert effect("dont-ask", "write", f"{ROOT}/{path}") == "deny"


def test_a_rule_for_all_edits_does_not_cover_protected_paths_but_one_that_names_them_does() -> None:
    hook = f"{ROOT}/.git/hooks/x"
    for broad in ("Edit", "Edit(**)", "Edit(/**)", "*"):
        assert (
            effect("default", "write", hook, parse_permission_rule(broad, "allow"), tool="Write")
            == "ask"
        )
    named = parse_permission_rule("Edit(.git/hooks/**)", "allow")
    assert effect("default", "write", hook, named, tool="Write") == "allow"


def test_a_workspace_below_a_protected_name_can_be_worked_in() -> None:
    folder = "/home/u/.claude/worktrees/x"
    guarded = Permissions("accept-edits", (), (folder,))
    assert verdict(guarded, Access("write", f"{folder}/a")).effect == "allow"
    assert verdict(guarded, Access("write", f"{folder}/.claude/a")).effect == "ask"
    inside = Permissions("accept-edits", (), ("/home/u/.claude",))
    assert verdict(inside, Access("write", "/home/u/.claude/settings.json")).effect == "ask"


def test_deny_beats_ask_beats_allow_in_any_order() -> None:
    deny, ask, allow = (parse_permission_rule("Bash", e) for e in ("deny", "ask", "allow"))  # type: ignore[arg-type]
    for rules in ((allow, ask, deny), (deny, ask, allow)):
        assert effect("bypass", "exec", "make", *rules, tool="Bash") == "deny"
    for rules in ((allow, ask), (ask, allow)):
        assert effect("bypass", "exec", "make", *rules, tool="Bash") == "ask"


def test_a_verdict_says_which_rule_or_mode_it_was() -> None:
    denied = verdict(
        guard("default", parse_permission_rule("Bash(rm:*)", "deny", origin="user")),
        EXEC,
        tool="Bash",
    )
    assert denied == PermissionDecision("deny", "rule: deny Bash(rm:*) (user)", "rule")
    asked = verdict(guard("dont-ask", parse_permission_rule("Bash", "ask")), EXEC, tool="Bash")
    assert asked == PermissionDecision("deny", "mode dont-ask: rule: ask Bash")
    assert verdict(guard("default"), EXEC) == PermissionDecision("ask", "writes /w/proj/x")
    made = verdict(guard("default"), Access("exec", "frob x"))
    assert made == PermissionDecision(
        "ask", "runs frob x: frob is not a known read-only command", doubt=True
    )
    looked = verdict(guard("default"), Access("exec", "ls"))
    assert looked == PermissionDecision("allow", "reads only inside the workspace")


EXEC = Access("exec", "rm x")


def test_the_worst_access_decides() -> None:
    both = (Access("read", f"{ROOT}/a"), Access("write", "/etc/x"))
    assert verdict(guard("accept-edits"), *both) == PermissionDecision(
        "ask", "writes outside the workspace: /etc/x"
    )


def test_a_search_that_may_meet_a_denied_file_is_a_doubt_that_walls_can_settle() -> None:
    search = Access("exec", "grep -rn token .")
    denied, asked = (
        parse_permission_rule("Read(.env)", "deny"),
        parse_permission_rule("Read(.env)", "ask"),
    )
    why = "may read a path that a rule covers:"
    assert verdict(guard("default", denied), search, tool="Bash") == PermissionDecision(
        "ask", f"{why} deny Read(.env)", "rule", doubt=True
    )
    assert verdict(guard("default", asked), search, tool="Bash") == PermissionDecision(
        "ask", f"{why} ask Read(.env)", "rule"
    )


@pytest.mark.parametrize(
    "line",
    [
        *("touch a", "echo x > a", "rm -r src", "sed -i s/a/b/ f", "cp a b", "mkdir -p x/y"),
        *("git commit -m x", "git add .", "git checkout -b x", "git -C sub stash", "git push"),
        *("ls; git reset --hard", "cat a | tee b", "rm -rf /", "python3 x.py; touch a"),
    ],
)
def test_plan_mode_refuses_what_is_known_to_change_something_whatever_allows_it(line: str) -> None:
    for rules in (
        (),
        (parse_permission_rule("Bash", "allow"),),
        (parse_permission_rule("Bash", "ask"),),
    ):
        found = verdict(guard("plan", *rules), Access("exec", line), tool="Bash")
        assert (found.effect, found.because) == ("deny", PLAN_MODE_REASON)


@pytest.mark.parametrize(
    ("kind", "target", "tool", "rule"),
    [
        ("read", "/etc/hosts", "Read", "Read(//etc/**)"),
        ("exec", "cat /etc/hosts", "Bash", "Read(//etc/**)"),
        ("exec", "make test", "Bash", "Bash(make test:*)"),
        ("exec", "curl https://x.org", "Bash", "Bash(curl:*)"),
        ("net", "https://x.org/a", "WebFetch", "WebFetch(domain:x.org)"),
        ("call", "a", "mcp__a__b", "mcp__a"),
    ],
)
def test_in_plan_mode_more_reading_is_asked_about_unless_a_rule_allows_it(
    kind: str, target: str, tool: str, rule: str
) -> None:
    assert effect("plan", kind, target, tool=tool) == "ask"
    assert effect("plan", kind, target, parse_permission_rule(rule, "allow"), tool=tool) == "allow"
    assert effect("plan", kind, target, parse_permission_rule(rule, "deny"), tool=tool) == "deny"


def test_in_plan_mode_looking_inside_is_free_and_ask_rules_hold() -> None:
    assert effect("plan", "exec", "git log | head", tool="Bash") == "allow"
    ask = parse_permission_rule("Read(a)", "ask")
    assert effect("plan", "read", f"{ROOT}/a", ask, tool="Read") == "ask"


names = st.sampled_from(["Bash", "Read", "Edit", "Write", "WebFetch", "Task", "mcp__a__b"])
words = st.text(max_size=12) | st.sampled_from(
    ["git diff:*", "**", "src/**", "//etc", "~/x", "./", "[", "[!", "domain:x", "*", "../a", ":*"]
)
paths = words | words.map(lambda word: f"{ROOT}/{word}")
accesses = st.builds(
    Access, st.sampled_from(["read", "write", "exec", "net", "spawn"]), paths | st.just("git diff")
)
uses = st.builds(ToolUse, names, st.lists(accesses, max_size=3).map(tuple), st.just(ROOT), words)
rules = st.builds(
    PermissionRule, names | st.just("*"), words, st.sampled_from(["allow", "ask", "deny"])
)
guards = st.builds(
    Permissions,
    st.sampled_from(PERMISSION_MODES),
    st.lists(rules, max_size=4).map(tuple),
    st.lists(paths, max_size=2).map(tuple),
)


@given(guards, uses)
@example(
    Permissions("bypass", (PermissionRule("Read", "[z-a]", "deny"),)),
    ToolUse("Read", (Access("read", "a"),), ""),
)
@settings(max_examples=500, deadline=None)
def test_the_judge_has_an_answer_to_everything(guarded: Permissions, use: ToolUse) -> None:
    found = decide_permission(guarded, use)
    assert found.because
    use = plan_commands(use)
    denied = any(rule.effect == "deny" and rule_matches(rule, use) for rule in guarded.rules)
    asked = any(rule.effect == "ask" and rule_matches(rule, use) for rule in guarded.rules)
    if denied:
        assert (found.effect, found.by) == ("deny", "rule")
    if asked:
        assert found.effect != "allow"
    if guarded.mode == "dont-ask":
        assert found.effect != "ask"
    changing = ("write", "tell", "leave")
    if guarded.mode == "plan" and any(access.kind in changing for access in use.accesses):
        assert found.effect == "deny"


@given(guards, uses)
@settings(max_examples=500, deadline=None)
def test_whatever_an_allow_rule_matches_the_same_rule_as_a_deny_matches(
    guarded: Permissions, use: ToolUse
) -> None:
    use = plan_commands(use)
    for rule in guarded.rules:
        allow = PermissionRule(rule.tool, rule.what, "allow")
        reads = (
            rule.tool == "Edit" and use.tool in READ_TOOLS
        )  # to edit includes to read, not so in a no
        if rule_matches(allow, use) and not reads:
            assert rule_matches(PermissionRule(rule.tool, rule.what, "deny"), use)


@given(guards, uses)
@settings(max_examples=500, deadline=None)
def test_one_more_deny_never_permits_more(guarded: Permissions, use: ToolUse) -> None:
    order = {"deny": 0, "ask": 1, "allow": 2}
    before = decide_permission(guarded, use)
    more = Permissions(
        guarded.mode, (*guarded.rules, PermissionRule(use.tool, "", "deny")), guarded.folders
    )
    assert decide_permission(more, use).effect == "deny"
    fewer = Permissions(guarded.mode, guarded.rules[:-1], guarded.folders)
    if guarded.rules and guarded.rules[-1].effect in ("deny", "ask"):
        assert order[before.effect] <= order[decide_permission(fewer, use).effect]


DOUBTFUL = (
    "python3 -c 1; {}",
    "{}; python3 -c 1",
    "$(x) && {}",
    "./build || {}",
    "if $x; then {}; fi",
)
PROTECTED_PATHS = (
    *(".git/hooks/pre-commit", ".git/config", ".claude/settings.json", ".mcp.json", ".envrc"),
    *(".vscode/tasks.json", ".travois/settings.json", "sub/.git/hooks/x", ".husky/pre-push"),
)
WRITES = (
    *("printf x > {}", "echo x >> {}", "cp a {}", "mv a {}", "tee {} < a", "rm -f {}", "touch {}"),
    "sed -i s/a/b/ {}",
)


@pytest.mark.parametrize("around", DOUBTFUL)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("path", PROTECTED_PATHS)
def test_a_doubt_never_hides_a_step_that_only_a_person_may_allow(
    around: str, write: str, path: str
) -> None:
    command = around.format(write.format(path))
    use = ToolUse("Bash", (Access("exec", command),), "/w", "/home/u")
    for mode in ("default", "accept-edits", "auto"):
        verdict = decide_permission(Permissions(mode, folders=("/w",)), use)
        assert (verdict.effect, verdict.doubt) == ("ask", False), (mode, verdict.because)
