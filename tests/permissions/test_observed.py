"""What the tables say only looks does nothing else when it runs."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.permissions import observed

needed = pytest.mark.skipif(
    observed.bwrap() is None or not all(map(shutil.which, observed.NEEDED)),
    reason="strace and bwrap are needed to watch programs",
)


@needed
def test_calls_that_only_look_change_run_and_reach_nothing(tmp_path: Path) -> None:
    calls = observed.sample(seed=7, count=40)
    found = observed.observe(calls, tmp_path)
    assert {shlex.join(calls[number]): told for number, told in found.items()} == {}


@needed
def test_the_watch_sees_writes_and_other_programs(tmp_path: Path) -> None:
    calls = [["sort", "-o", "out", "f"], ["find", ".", "-exec", "wc", "{}", ";"], ["ls", "f"]]
    calls += [["git", "tag", "--format=a", "new"], ["git", "symbolic-ref", "HEAD", "refs/heads/x"]]
    found = observed.observe(calls, tmp_path)
    assert set(found) == {0, 1, 3, 4}


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git symbolic-ref HEAD refs/heads/x",
            "git branch --format=x new",
            "git tag --sort=x new",
        ),
        *("git reflog expire --all", "git reflog write", "git var -l x y", "git notes add"),
        *(
            "git log --format=%G?",
            "git show --pretty=format:%GK",
            "git tag -l --format='%(signature)'",
        ),
        *("git remote add a b", "git remote show origin", "git worktree add x", "git bisect start"),
        *("strings @list", "strings *", "file -p f", "file -C -m f", "cloc --vcs=./x", "cloc HEAD"),
        *(
            "hostname x",
            "hostname -f",
            "date -s 1",
            "date 01020304",
            "ss -K",
            "ss dst evil.example",
        ),
        *("lsof -i @evil.example", "lsof +M", "netstat x", "uniq f g", "xxd -r f g", "tree -o x"),
        *("awk '{print $1,\n$2 > \"x\"}' f", 'awk \'{if (1) /"/; print > "x"; y=""}\' f'),
        *("awk '{n++ / 2; print > \"x\" / 1}' f", "awk '{print /}/ > \"x\"}' f"),
        *("printf '%n' PATH", "yq '$ENV' f", "sh -c 'cat f{a,b}'", "dotnet --version"),
    ],
)
def test_what_writes_runs_or_reaches_is_not_called_looking(command: str) -> None:
    assert not observed.plan_command(command, cwd="/w", home="/home/u").is_read_only


@pytest.mark.parametrize(
    "command",
    [
        *("git symbolic-ref --short HEAD", "git branch --contains HEAD", "git tag -l 'v*'"),
        *("git remote get-url origin", "git log --format='%h %s' -5", "lsof -i :3000", "ss -tlnp"),
        *("awk '$3 > 5 {print $1/2, ($2+1)/3}' f", "awk '{s+=$1} END {print s/NR}' f", "hostname"),
        *("strings a.bin", "printf '%s\\n' a", "sh -c 'ls | head'", "netstat -tln", "man ls"),
    ],
)
def test_what_looks_is_still_called_looking(command: str) -> None:
    assert observed.plan_command(command, cwd="/w", home="/home/u").is_read_only
