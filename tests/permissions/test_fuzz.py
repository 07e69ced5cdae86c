"""What bash really runs is what the plan says, for lines made to mislead."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pytest

from tests.permissions import fuzz
from tests.sampling import first

LINES = 5_000
MOVES = ("cd a", "cd nowhere", "x=b/g.py", "true && cd a", "! cd a", "{ cd a; }", "(cd a)")
PIPED = ("ok 2>&1 | ok", "no >&2 | ok", "ok | ok 2>&1", "ok <f |& ok", "ok 2>&1 | cat f", "ok | ok")
REPEATED = (
    "ok 2>&1 | ok 2>&1 | ok",
    "no <f | cat f >&2 |& { ok; } 2>&1 | ok",
    "ok | ok <f | ok <f | ok",
)
"""Pipelines with several redirections, which the grammar reads as pipelines in pipelines."""
SPELLED = ("$x", "${x}", '"$x"', "'a'", "a", "$x$y", "a$x", "$x'b'", "\\;", "$?", "")
BRACES = ("{1..3}", "{a,b}", "{1..3}$x", "{a,$x}b", "{a..c}{1,2}", "{1..3", "{}", "{$x..3}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
@pytest.mark.parametrize("seed", first(1, [1, 2]))
def test_bash_runs_nothing_that_an_accepted_plan_does_not_know(tmp_path: Path, seed: int) -> None:
    found = fuzz.compare(LINES, seed, tmp_path.resolve())
    assert found.wrong == []
    assert found.accepted > LINES / 20


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_a_line_stands_where_bash_stands_before_in_and_after_a_pipeline(tmp_path: Path) -> None:
    joined = product(MOVES, (" && ", " || ", "; "), (*PIPED, *REPEATED), (" && ", " || ", "; "))
    lines = [f"x=f; {''.join(parts)}cat f $x" for parts in joined]
    found = misjudged(lines, tmp_path.resolve())
    assert [one for one in found if one[1]] == []
    assert len(found) > len(lines) / 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_braces_are_spelled_out_before_variables_are(tmp_path: Path) -> None:
    values = ("f", "';'", "a/", "-n")
    words = ["".join(parts) for parts in product(SPELLED, BRACES, ("", "b", "$x"))]
    lines = [
        f"x={value}; x1={other}; y=g; ok {word}"
        for value, other, word in product(values, ("", "h"), words)
    ]
    found = misjudged(lines, tmp_path.resolve())
    assert [one for one in found if one[1]] == []
    assert len(found) > len(lines) / 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_backslashes_between_backticks_are_those_of_the_shell(tmp_path: Path) -> None:
    inner = ("f", r"\$x", r'"\$x"', r"'\$x'", r"\\f", r"\"f\"", r"$x", r"\'f", "f\\\n")
    around = ("`ok {}`", "$`ok {}`", '"`ok {}`"', '"$`ok {}`"', "$(ls `ok {}`)", "$(ls $`ok {}`)")
    lines = [f"x=g; cat {form.format(word)}" for form, word in product(around, inner)]
    found = misjudged(lines, tmp_path.resolve())
    assert [one for one in found if one[1]] == []
    assert len(found) >= 2 * len(around)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_the_names_of_redirections_run_nothing_that_is_not_known(tmp_path: Path) -> None:
    operators = (">", ">>", ">|", "&>", "&>>", ">&", "1>&", "2>& ", "<>", "<", "<&", "0<& ", "<<<")
    names = (
        "'$(ok)x'",
        "'`ok`'",
        "2'`ok`'",
        '"\\$(ok)"',
        "\\$\\(ok\\)",
        "\\`ok\\`",
        "$'$(ok)'",
        "'$x'",
        "out",
    )
    forms = ("no {}", "no {} | no", "{} no", "(no) {}", "{{ no; }} {}", "no 2>&1 {}")
    lines = [
        f"x='$(ok)'; {form.format(operator + name)}"
        for form, operator, name in product(forms, operators, names)
    ]
    found = misjudged(lines, tmp_path.resolve())
    assert [one for one in found if one[1]] == []
    assert len(found) > len(lines) / 3


def misjudged(lines: list[str], folder: Path) -> list[tuple[str, str]]:
    """The lines whose plan claims to know all, each with what it did not know."""
    called, _ = fuzz.run(lines, folder)
    scratch = str(folder / "deep" / "er" / "scratch")
    plans = [fuzz.plan_command(line, cwd=scratch, home=scratch) for line in lines]
    return [
        (line, fuzz.unsound(known, calls))
        for line, known, calls in zip(lines, plans, called, strict=True)
        if fuzz.accepted(known)
    ]


def test_the_comparison_sees_a_call_that_was_not_foreseen(tmp_path: Path) -> None:
    lines = ["ls f; cat a/f", "cd a && cat f", "no && ls", "frob *.py"]
    called, made = fuzz.run(lines, tmp_path.resolve())
    scratch = str(tmp_path.resolve() / "deep" / "er" / "scratch")
    assert called == [
        [(scratch, ["ls", "f"]), (scratch, ["cat", "a/f"])],
        [(f"{scratch}/a", ["cat", "f"])],
        [(scratch, ["no"])],
        [(scratch, ["frob", "g.py", "h.py"])],
    ]
    assert made == set()
    plans = [fuzz.plan_command(line, cwd=scratch, home=scratch) for line in lines]
    assert [fuzz.unsound(*pair) for pair in zip(plans, called, strict=True)] == ["", "", "", ""]
    assert fuzz.unsound(plans[0], [(scratch, ["ls", "g"])]) == "ran ['ls', 'g']"
    assert "in" in fuzz.unsound(plans[1], [(scratch, ["cat", "f"])])
