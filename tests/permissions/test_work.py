"""How much work judging takes: linear in the text, bounded, and counted rather than timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.permissions import catastrophic as ruin
from travois.permissions import paths
from travois.permissions.access import Access
from travois.permissions.decide import (
    PermissionDecision,
    PermissionMode,
    Permissions,
    decide_permission,
)
from travois.permissions.paths import fold_name
from travois.permissions.rules import ToolUse, parse_permission_rule
from travois.permissions.shell import judge as shell
from travois.permissions.shell import rough as loose
from travois.permissions.shell.destruction import find_possible_loss
from travois.permissions.shell.parse import shorten_heredocs
from travois.permissions.shell.plan import (
    MAX_PARSED_CHARS,
    MAX_WORK_UNITS,
    CommandPlan,
    CommandTooComplex,
    WorkBudget,
)
from travois.permissions.shell.state import StartFolder
from travois.permissions.shell.walk import CommandWalker

MOST_CALLS = 120_000
"""Calls of functions, ours and built-in, that one verdict may take, whatever the text is."""

FAMILIES: dict[str, Callable[[int], str]] = {
    "words": lambda n: "echo " + "ab " * (n // 3),
    "one word": lambda n: "echo " + "a" * n,
    "double quotes": lambda n: 'echo "' + 'a b\\" ' * (n // 6) + '"',
    "data": lambda n: "curl -d '" + '{"a": "b"} ' * (n // 11) + "' http://localhost",
    "statements": lambda n: "ls; " * (n // 4),
    "conditions": lambda n: "ls && " * (n // 6) + "ls",
    "pipes": lambda n: "ls | " * (n // 5) + "ls",
    "subshells": lambda n: "(" * (n // 2) + ")" * (n // 2),
    "substitutions": lambda n: "echo " + "$(" * (n // 3) + ")" * (n // 3),
    "failing substitutions": lambda n: "echo $((x$(" * (n // 20) + ")))" * (n // 20),
    "variables": lambda n: "".join(f"a{i}=1; " for i in range(n // 8)),
    "uses of variables": lambda n: "x=1;" + " echo $x;" * (n // 9),
    "braces": lambda n: "echo " + "{a,b}" * (n // 5),
    "open braces": lambda n: "echo " + "{" * n,
    "a list in braces": lambda n: "echo {" + "a," * (n // 2) + "}",
    "escapes": lambda n: "echo " + "\\ " * (n // 2),
    "blank lines": lambda n: ("  \n" * 20 + "x\n") * (n // 60),
    "tildes": lambda n: "ls " + "~" * n,
    "stars": lambda n: "ls " + "*" * n,
    "dollars": lambda n: "echo " + "$" * n,
    "paths": lambda n: "cat " + "a/b.c " * (n // 6),
    "redirections": lambda n: "echo " + ">a " * (n // 3),
    "conditions inside": lambda n: "if ls; then " * (n // 16) + "ls" + "; fi" * (n // 16),
    "shells": lambda n: "bash -c " * (n // 8) + "ls",
    "wrappers": lambda n: "env " * (n // 4) + "ls",
    "xargs": lambda n: "xargs " * (n // 6) + "ls",
    "removals": lambda n: "rm " * (n // 3) + "$x",
    "options": lambda n: "grep " + "-e a " * (n // 5) + "f",
    "tests of find": lambda n: "find . " + "-name a -o " * (n // 11) + "-print",
    "a script of sed": lambda n: "sed -n '" + "1p;" * (n // 3) + "' f",
    "a program of awk": lambda n: "awk '{" + "print $1;" * (n // 9) + "}' f",
    "cases": lambda n: "case a in " + "a) ls;; " * (n // 8) + "esac",
    "functions": lambda n: "a(){ " * (n // 5),
    "here-documents": lambda n: "cat <<'A'\nx\nA\n" * (n // 14),
    "operators of here-documents": lambda n: "cat " + "<<A " * (n // 4),
    "signs of here-documents": lambda n: "<<" * (n // 2),
    "unbalanced quotes": lambda n: "echo " + "\"'" * (n // 2),
    "backticks": lambda n: "`" * n,
    "other scripts": lambda n: "cat " + "漢字 " * (n // 3),
    "ligatures": lambda n: "cat " + "ﷺ" * n,
    "programs": lambda n: "frob a; " * (n // 8),
    "files to write": lambda n: "cat " + "".join(f">{i} " for i in range(n // 6)),
    "names like a denied one": lambda n: "".join(f"{i}.envx " for i in range(n // 10)) + "$(x)",
    "a here-document": lambda n: "cat <<'A'\n" + "$x `\n" * (n // 5) + "A\n",
}
GUARD = Permissions(
    folders=("/w",),
    rules=(
        parse_permission_rule("Bash(rm:*)", "deny"),
        parse_permission_rule("Read(./.env)", "deny"),
        parse_permission_rule("Bash(git * --force*)", "ask"),
        parse_permission_rule("Bash(git diff:*)", "allow"),
    ),
)


def verdict(
    command: str, *, mode: PermissionMode = "default", deny: str = ""
) -> PermissionDecision:
    rules = (parse_permission_rule(deny, "deny"),) if deny else GUARD.rules
    guard = Permissions(mode, rules, GUARD.folders)
    return decide_permission(guard, ToolUse("Bash", (Access("exec", command),), "/w", "/root"))


def calls(command: str) -> int:
    """How many functions are called to judge a command for the first time."""
    cached = (
        shell.plan_command,
        loose.flatten_command,
        paths._fold_words,
        paths._fold_path,
        ruin._catastrophe_in_text,
    )
    for function in (*cached, loose.command_vocabulary):
        function.cache_clear()
    verdict("ls")  # tables are read once
    return calls_of(lambda: verdict(command))


def calls_of(work: Callable[[], object]) -> int:
    """How many functions some work calls."""
    count = 0

    def called(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_takes_more_work_than_is_allowed(family: str) -> None:
    worst = max(calls(FAMILIES[family](size)) for size in (4_000, 15_000, 40_000, 1_000_000))
    assert worst <= MOST_CALLS


@pytest.mark.parametrize("family", FAMILIES)
def test_twice_the_text_takes_about_twice_the_work(family: str) -> None:
    make = FAMILIES[family]
    one, two = calls(make(800)), calls(make(1_600))
    assert two <= 2.6 * one + 500


@pytest.mark.parametrize("family", ["files to write", "paths", "programs", "words", "ligatures"])
def test_a_thousand_rules_do_not_multiply_the_work(family: str) -> None:
    made = ("Bash(p{} x*y*:*)", "deny"), ("Read(./d{}/**/*.k)", "deny"), ("Edit(s{}/**)", "allow")
    rules = [
        parse_permission_rule(text.format(i), effect) for i in range(334) for text, effect in made
    ]
    warm = ToolUse("Bash", (Access("exec", "ls $(x)"),), "/w", "/root")
    decide_permission(
        Permissions(rules=tuple(rules), folders=("/w",)), warm
    )  # patterns are compiled once
    use = ToolUse("Bash", (Access("exec", FAMILIES[family](4_000)),), "/w", "/root")
    few, many = (
        calls_of(lambda r=r: decide_permission(Permissions(rules=tuple(r), folders=("/w",)), use))
        for r in (rules[:3], rules)
    )
    assert many <= few + 60 * len(rules)


@pytest.mark.parametrize("depth", [3, 5, 8, 12])
def test_loops_in_loops_are_bounded(depth: int) -> None:
    heads = "".join(f"for v{i} in a b c d; do " for i in range(depth))
    assert calls(heads + "x=$v0; echo $x" + "; done" * depth) <= MOST_CALLS
    heads = "".join(f"for v{i} in 1 2 3 4 5 6 7 8; do " for i in range(depth))
    assert calls(heads + "cd $v0" + "; done" * depth) <= MOST_CALLS


def test_work_over_the_limit_is_asked_about_with_what_was_found_so_far() -> None:
    plan = shell.plan_command("ls; " * 3_000, cwd="/w")
    assert plan.unclear == "it is too complex to analyze"
    assert [step.name for step in plan.steps] == ["ls"]
    assert verdict("ls; " * 3_000).effect == "ask"


def test_the_count_stops_where_it_says() -> None:
    walker = CommandWalker("ls; " * 3_000, StartFolder("/w"), WorkBudget())
    with pytest.raises(CommandTooComplex):
        walker.run()
    assert walker.work.spent <= MAX_WORK_UNITS + 5_000


@pytest.mark.parametrize("size", [5_000, 20_000, 200_000])
@pytest.mark.parametrize("mode", ["default", "auto", "bypass", "accept-edits"])
def test_deny_rules_hold_however_long_the_text_is(size: int, mode: PermissionMode) -> None:
    padding = "echo " + "ab " * (size // 3)
    for hidden in ("rm -rf x", "/bin/rm x", "r''m x"):
        command = f"{padding}; {hidden}; {padding}"
        assert verdict(command, mode=mode, deny="Bash(rm:*)").effect == "deny", hidden
    for hidden in ("cat .env", "cat ./.env", "cat a/../.ENV", "cat /w/.env"):
        command = f"{padding}; {hidden}; {padding}"
        assert verdict(command, mode=mode, deny="Read(./.env)").effect == "deny", hidden
    command = f"{padding}; cat ~/.ssh/id; {padding} $(x)"
    assert verdict(command, mode=mode, deny="Read(~/.ssh/**)").effect == "deny"


@pytest.mark.parametrize("size", [5_000, 20_000, 200_000])
def test_what_ruins_is_asked_about_however_long_the_text_is(size: int) -> None:
    padding = "true " + "xy " * (size // 3)
    for ruinous in ("rm -rf /", "rm --force -r ~", "mkfs.ext4 /dev/sda1", ":(){ :|:& };:"):
        asked = verdict(f"{padding}; {ruinous}; {padding}", mode="bypass", deny="WebFetch")
        assert asked.effect == "ask", (ruinous, asked.because)


def test_the_text_of_a_here_document_does_not_count() -> None:
    body = 'it\'s "text" with $x, `y` and rm -rf /\n' * 3_000
    for line in ("cat <<'EOF'", 'cat <<"EOF"', "cat << 'EOF' | head", "x=$(cat <<'EOF'"):
        tail = "\n)" if "$(" in line else "\n"
        plan = shell.plan_command(f"ls; {line}\n{body}EOF{tail}", cwd="/w")
        assert plan.unclear == "" and plan.is_read_only, line


@pytest.mark.parametrize(
    "command",
    [
        "echo '<<'\"'A'\"\nBODY\nA\n",
        "# cat <<'A'\nBODY\nA\n",
        "echo \"<<'A'\nBODY\nA\n\"",
        "echo $((1<<A\nBODY\nA\n))",
        "cat <<'B' <<'A'\nx\nB\nBODY\nA\nrm x\n",
        "cat <<A\n$(BODY)\nA\n",
        "cat <<-'A'\nBODY\nA\n",
    ],
)
def test_what_only_looks_like_a_here_document_is_never_skipped(command: str) -> None:
    body = "touch made\n" * 2_000
    plan = shell.plan_command(command.replace("BODY", body), cwd="/w")
    assert plan.unclear or not plan.is_read_only


@given(st.text(alphabet="<'\"AB\n x;#\\$()", max_size=60))
def test_a_shortened_text_parts_with_nothing_but_bodies(text: str) -> None:
    brief = shorten_heredocs(text)
    source = brief.text.encode()
    assert all(source[at : at + 2] == b"<<" for at in brief.operators)
    if not brief.operators:
        assert brief.text == text


def test_a_long_command_in_a_here_document_keeps_its_steps() -> None:
    body = "x" * MAX_PARSED_CHARS + "\n"
    plan: CommandPlan = shell.plan_command(
        f"cat > notes.md <<'EOF'\n{body}EOF\nrm -r build", cwd="/w"
    )
    assert not plan.unclear
    assert [access.target for access in plan.accesses if access.kind == "write"] == [
        "/w/notes.md",
        "/w/build",
    ]


def test_invisible_characters_are_those_of_the_unicode_tables() -> None:
    from unicodedata import category, normalize

    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if category(char) == "Cf" and not 0xD800 <= code < 0xE000:
            hidden = "".join(c for c in normalize("NFKC", char) if category(c) != "Cf")
            assert fold_name(f"a{char}b") == f"a{hidden}b".casefold(), hex(code)


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab", max_size=12))
def test_stars_stand_for_anything(pattern: str, text: str) -> None:
    import re

    expected = re.fullmatch(pattern.replace("*", ".*"), text) is not None
    assert loose.matches_star_pattern(pattern, text) is expected


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_long_text_may_destroy_is_bounded(family: str) -> None:
    loss = find_possible_loss(shell.plan_command(FAMILIES[family](15_000), cwd="/w"), cwd="/w")
    assert loss is None or len(loss.paths) <= 4_000


def test_every_path_that_follows_one_of_several_programs_is_kept() -> None:
    loss = find_possible_loss(
        shell.plan_command("$x; rm a; /bin/rm b; mv c d; (cd e && rm f)", cwd="/w"), cwd="/w"
    )
    assert loss is not None
    assert {"/w/a", "/w/b", "/w/c", "/w/d", "/w/e/f"} <= set(loss.paths)
