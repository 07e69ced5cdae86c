"""Command lines: what they run, where, and what they touch, told from their text alone."""

# ruff: noqa: E501 - the lines of commands read better side by side

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.permissions.fuzz import Lines
from travois.core.display_text import find_deception
from travois.permissions.access import Access
from travois.permissions.decide import PermissionMode, Permissions, decide_permission
from travois.permissions.rules import ToolUse
from travois.permissions.shell.judge import plan_command
from travois.permissions.shell.options import parse_spec_table
from travois.permissions.shell.plan import CommandPlan

ROOT = "/w/proj"
HOME = "/home/u"


def read(command: str) -> CommandPlan:
    return plan_command(command, cwd=ROOT, home=HOME)


def effect(command: str, mode: PermissionMode = "default") -> str:
    use = ToolUse("Bash", (Access("exec", command),), ROOT, HOME)
    return decide_permission(Permissions(mode, (), (ROOT,)), use).effect


def ran(command: str) -> list[list[str]]:
    return [[word.text for word in step.argv] for step in read(command).steps]


def touched(command: str) -> list[tuple[str, str]]:
    return [(access.kind, access.target) for access in read(command).accesses]


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        ("ls -la 'a b'", [["ls", "-la", "a b"]]),
        ("a; b && c || d | e", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("echo \"a\\\"b\" $'c\\td' e\\ f", [["echo", 'a"b', "c\td", "e f"]]),
        ("x=1; frob $x \"$x\"", [["frob", "1", "1"]]),
        ("for i in 1 2; do frob $i; done", [["frob", "1"], ["frob", "2"]]),
        ("frob {a,b}c", [["frob", "ac", "bc"]]),
        ("frob ~/x", [["frob", "/home/u/x"]]),
        ("timeout 5 nice -n 3 frob x", [["frob", "x"]]),
        ("bash -c 'frob x; ls'", [["frob", "x"], ["ls"], ["bash", "-c", "frob x; ls"]]),
        ("(a) & { b; }", [["a"], ["b"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]),
        ("frob \\\n  x", [["frob", "x"]]),
        ("a # b; c", [["a"]]),
    ],
)  # fmt: skip
def test_a_plan_lists_what_runs(command: str, calls: list[list[str]]) -> None:
    assert read(command).unclear == ""
    assert ran(command) == calls


@pytest.mark.parametrize("inner", ["$(frob x)", "`frob x`", '"$(frob x)"', "<(frob x)", "${y:-$(frob x)}",
    "$(( $(frob x) ))", "$(echo $(frob x))"])  # fmt: skip
def test_what_runs_inside_a_word_is_part_of_the_plan(inner: str) -> None:
    assert ["frob", "x"] in ran(f"ls {inner}")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("cat a", [("read", "/w/proj/a")]),
        ("cat < a > b 2>/dev/null", [("read", "/w/proj/a"), ("write", "/w/proj/b")]),
        ("cd src && cat a", [("read", "/w/proj/src"), ("read", "/w/proj/src/a")]),
        ("(cd src); cat a", [("read", "/w/proj/src"), ("read", "/w/proj/a")]),
        (
            "cd src; cat a",
            [("read", "/w/proj/src"), ("read", "/w/proj/src/a"), ("read", "/w/proj/a")],
        ),
        ("cd src || cat a", [("read", "/w/proj/src"), ("read", "/w/proj/a")]),
        ("cd ../x && cd y && ls z", [("read", "/w/x"), ("read", "/w/x/y"), ("read", "/w/x/y/z")]),
        ("cd a && ls 2>&1 | wc && cat b", [("read", "/w/proj/a"), ("read", "/w/proj/a/."), ("read", "/w/proj/a/b")]),
        ("cd a && ls > b", [("read", "/w/proj/a"), ("read", "/w/proj/a/."), ("write", "/w/proj/b"), ("write", "/w/proj/a/b")]),
        ("cat <(ls b) /dev/fd/../environ", [("read", "/w/proj/b"), ("read", "/dev/fd/../environ")]),
        ("grep x a b", [("read", "/w/proj/a"), ("read", "/w/proj/b")]),
        ("grep -e x a", [("read", "/w/proj/a")]),
        ("sed -i s/a/b/ f", [("write", "/w/proj/f")]),
        ("cp a d", [("read", "/w/proj/a"), ("read", "/w/proj/d"), ("write", "/w/proj/d"), ("write", "/w/proj/d/a")]),
        ("mv a d", [("write", "/w/proj/a"), ("write", "/w/proj/d"), ("write", "/w/proj/d/a")]),
        ("cat $PWD/a $HOME/b", [("read", "/w/proj/a"), ("read", "/home/u/b")]),
        ("echo x > /dev/tcp/h/80", [("net", "/dev/tcp/h/80")]),
    ],
)  # fmt: skip
def test_a_plan_lists_what_is_touched_wherever_the_line_may_stand(
    command: str, found: list[tuple[str, str]]
) -> None:
    assert touched(command) == found


@pytest.mark.parametrize(
    "command",
    [
        "f() { ls; }; f",
        "x=(a b); ls",
        "ls ${x@P}",
        "echo $((x))",
        "[[ $x -eq 1 ]]",
        "a[0]=1",
        "PATH=x; ls",
        "IFS=x; ls",
        "cat <<E\n$(x)\nE",
        "cat <<-E\n\tx\nE",
        "ls >(cat)",
        "cd $x; cat a",
        "ls 'a",
        "ls *(a)",
        "while true; do cd a; done",
        "for ((i=0;i<3;i++)); do ls; done",
        'echo $"a"',
        "ls > $x",
        "{fd}> x ls",
        "> a b ls",
        "w`ok`c x",
        "$x a",
        "'' a",
        "ls \\",
        "echo " + "$(echo " * 100 + ")" * 100,
    ],
)
def test_what_may_do_more_than_it_shows_is_asked_about(command: str) -> None:
    assert effect(command) == "ask"
    assert effect(command, "dont-ask") == "deny"


@pytest.mark.parametrize(
    "char", "\0\x01\x08\x0b\r\x1b\x7f\x85\xa0\xad\u200b\u202e\u2066\u2028\ufeff\ud83d\ue000"
)
def test_a_character_that_cannot_be_seen_is_asked_about(char: str) -> None:
    assert effect(f"ls a{char}b") == "ask"


def test_blanks_that_push_the_rest_out_of_sight_are_asked_about() -> None:
    assert find_deception("ls" + " " * 200 + "a") and find_deception("ls" + "\n" * 50 + "pwd")
    assert find_deception("ls\n\npwd") == ""


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /", "rm -fr /*", "rm -r -f ~", "rm -rf ~/", "rm -rf $HOME", "rm -rf .", "rm -rf ..", "rm -rf *",
        "rm -rf /home/u", "rm -rf /w", "rm -rf /w/proj", "rm -rf $X/", "rm -rf \"$X\"/*", "sudo rm -rf /etc",
        "cd / && rm -rf *", "cd .. && rm -rf proj", "find ~ -delete", "find / -exec rm -rf {} +", "chmod -R 000 /usr",
        "bash -c 'rm -rf ~'", "eval 'rm -rf /'", "f() { rm -rf /; }; f", "ls | xargs rm -rf", "mv ~ /tmp/x",
        "dd if=x of=/dev/nvme0n1", "cat x > /dev/sda", "mkfs.xfs /dev/sdb", "wipefs -a /dev/sda", "reboot",
        "systemctl poweroff", "kill -9 -1", ":(){ :|:& };:", "ssh h 'rm -rf /'", "rm -rf \\\n/", "r\\m -rf /", "/bin/rm -rf /",
        "rsync -a --delete e/ /", "env rm -rf /", "echo x | tee /dev/sda", "nohup rm -rf / &", "rm -rf //", "rm -rf /.",
        "rm -rf /etc/..", "rm -rf ./../..", "time rm -rf /", "true && (rm -rf /)", "echo $(rm -rf /)",
    ],
)  # fmt: skip
def test_what_would_ruin_everything_is_never_just_done(command: str) -> None:
    for mode in ("default", "accept-edits", "auto", "bypass", "plan", "dont-ask"):
        assert effect(command, mode) != "allow"


@pytest.mark.parametrize(
    "command",
    ["rm -rf build", "rm -rf ./node_modules dist", "rm -rf /tmp/x/y", "find . -name '*.pyc' -delete", "chmod -R u+w src",
     "mv a b", "rm -f a/*", "kill 123", "git commit -m 'never rm -rf / again'", "echo 'rm -rf /'", "dd if=a of=b", "rm \"$f\""],
)  # fmt: skip
def test_ordinary_destruction_is_left_to_mode_and_rules(command: str) -> None:
    assert effect(command, "bypass") == "allow"


def test_accepted_edits_include_those_of_the_shell_inside_the_workspace() -> None:
    for command in (
        "mkdir -p a/b",
        "touch a",
        "rm a",
        "mv a b",
        "cp a b",
        "echo x > a",
        "sed -i s/a/b/ a",
    ):
        assert (effect(command), effect(command, "accept-edits")) == ("ask", "allow")
    for command in ("rm ../a", "touch .git/x", "mv a .bashrc", "cp a .husky", "echo x > ~/a", "cp a .envrc",
                    "cd .. && touch a", "tee .mcp.json", "rm -rf .git", "rm .*", "mv x .git", "cp -r a b"):  # fmt: skip
        assert effect(command, "accept-edits") == "ask"


def test_a_table_is_read_whole() -> None:
    found = parse_spec_table("a, b: -x -n_ --long= ; file*\nc: --all\n    --more? ; text tame\n")
    assert list(found) == ["a", "b", "c"]
    assert found["a"].short == {"x": "flag", "n": "text"}
    assert found["c"].long == {"--all": "flag", "--more": "maybe"}
    assert (found["c"].operands, found["c"].marks) == (("text",), frozenset({"tame"}))


@given(st.text(max_size=60) | st.text("lsrmcat -/.*?~$(){}[]<>|&;'\"`\\\n#=!@x1", max_size=40))
@settings(max_examples=1500, deadline=None)
def test_every_text_has_a_plan(text: str) -> None:
    found = read(text)
    assert found.text == text
    assert all(step.needs == "nothing" or step.why for step in found.steps)


def test_every_line_that_is_hard_to_read_has_a_plan_and_an_answer() -> None:
    grammar = Lines(7)
    for _ in range(1500):
        assert effect(grammar.line(), "auto") in ("allow", "ask", "deny")


@pytest.mark.parametrize("char", ["é", "€", "漢", "😀", "\U0002f800", "\U0008bc5d", "\U000e1481"])
def test_a_letter_of_any_script_is_part_of_a_word(char: str) -> None:
    for text in (
        f"{{{char}0_",
        f"frob {char}",
        f"${char}",
        f"{char}=1",
        f"ls {{{char},b}}",
        f"cat <<{char}\n{char}",
    ):
        assert read(text).text == text
    if char < "\U00030000":
        assert ran(f"frob {char} a{char}b") == [["frob", char, f"a{char}b"]]
        assert ran(f"{char}=1 frob") == [[f"{char}=1", "frob"]]
