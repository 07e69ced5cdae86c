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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
@pytest.mark.parametrize("seed", first(1, [1, 2]))
def test_bash_runs_nothing_that_an_accepted_plan_does_not_know(tmp_path: Path, seed: int) -> None:
    found = fuzz.compare(LINES, seed, tmp_path.resolve())
    assert found.wrong == []
    assert found.accepted > LINES / 20


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_a_line_stands_where_bash_stands_before_in_and_after_a_pipeline(tmp_path: Path) -> None:
    joined = product(MOVES, (" && ", " || ", "; "), PIPED, (" && ", " || ", "; "))
    lines = [f"x=f; {''.join(parts)}cat f $x" for parts in joined]
    called, _ = fuzz.run(lines, tmp_path.resolve())
    scratch = str(tmp_path.resolve() / "deep" / "er" / "scratch")
    plans = [fuzz.plan(line, cwd=scratch, home=scratch) for line in lines]
    found = [
        (line, fuzz.unsound(known, calls))
        for line, known, calls in zip(lines, plans, called, strict=True)
        if fuzz.accepted(known)
    ]
    assert [one for one in found if one[1]] == []
    assert len(found) > len(lines) / 2


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
    plans = [fuzz.plan(line, cwd=scratch, home=scratch) for line in lines]
    assert [fuzz.unsound(*pair) for pair in zip(plans, called, strict=True)] == ["", "", "", ""]
    assert fuzz.unsound(plans[0], [(scratch, ["ls", "g"])]) == "ran ['ls', 'g']"
    assert "in" in fuzz.unsound(plans[1], [(scratch, ["cat", "f"])])
