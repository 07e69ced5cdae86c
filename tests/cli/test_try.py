"""`travois try`: a command runs in a copy; what it changed is shown, then kept or dropped."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from travois.sandbox.probe import find_sandbox_support

WORKS = all(
    c.works for c in find_sandbox_support(None).checks if c.name in ("namespaces", "overlay")
)
pytestmark = pytest.mark.skipif(not WORKS, reason="no namespaces or no overlay here")
MESS = "echo done; echo more >> a; rm b; mv c d; mkdir .git; echo x > .git/config; ln -s /etc l"
CHANGES = [
    ("added", ".git", 0, ""),
    ("added", ".git/config", 2, ""),
    ("changed", "a", 10, ""),
    ("deleted", "b", 0, ""),
    ("renamed", "d", 5, "c"),
    ("added", "l", 4, ""),
]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in (("a", "here\n"), ("b", "1\n2\n"), ("c", "same\n")):
        (folder / name).write_text(text)
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return folder


def travois(work: Path, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "travois", "try", *words]
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(argv, cwd=work, capture_output=True, text=True, timeout=300, **more)  # type: ignore[call-overload]


def names(work: Path) -> list[str]:
    return sorted(os.listdir(work))


def left(work: Path) -> list[str]:
    return sorted(name for name in os.listdir(work.parent) if name not in ("home", "work"))


def test_what_would_change_is_shown_and_dropped(work: Path) -> None:
    done = travois(work, "--drop", MESS)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["done"],
        ["WHAT", "BYTES", "LINES", "PATH"],
        ["added", "+0", "B", "+0", "-0", ".git"],
        ["added", "+2", "B", "+1", "-0", ".git/config"],
        ["changed", "+10", "B", "-5", "B", "+1", "-0", "a"],
        ["deleted", "+0", "B", "-4", "B", "+0", "-2", "b"],
        ["renamed", "c", "->", "d"],
        ["added", "+4", "B", "+1", "-0", "l"],
        ["Dropped;", "nothing", "was", "changed."],
    ]
    assert (done.returncode, done.stderr, names(work), left(work)) == (0, "", ["a", "b", "c"], [])


def test_scripts_get_json_and_keep_what_succeeds(work: Path) -> None:
    told = json.loads(travois(work, "--json", "--keep", MESS).stdout)
    changes = [
        (c["kind"], relative(c["path"], work), c["size"], relative(c["was"], work))
        for c in told.pop("changes")
    ]
    assert changes == CHANGES
    assert told == {
        "status": 0,
        "timed_out": False,
        "output": "done\n",
        "missing": 0,
        "refused": [],
        "kept": True,
        "left": [str(work / ".git"), str(work / ".git" / "config")],
    }
    assert (names(work), (work / "a").read_text()) == (["a", "d", "l"], "here\nmore\n")


def relative(path: str, work: Path) -> str:
    return os.path.relpath(path, work) if path else ""


def test_what_decides_what_runs_later_is_kept_if_it_is_named(work: Path) -> None:
    done = travois(work, "--keep", "--also", ".git", "--", "mkdir", "-p", ".git/x", ".vscode")
    words = "not kept, because it affects what runs later: .vscode (--also .vscode keeps it)"
    assert done.stderr == f"travois: {words}\n"
    assert (work / ".git" / "x").is_dir() and not (work / ".vscode").exists()


def test_what_fails_is_not_kept_and_its_status_is_ours(work: Path) -> None:
    done = travois(work, "--keep", "rm a; exit 3")
    assert (done.returncode, names(work)) == (3, ["a", "b", "c"])
    assert travois(work, "--drop", "kill -9 $$").returncode == 137
    assert travois(work, "--", "true").stdout == "The command changed nothing.\n"


@pytest.mark.parametrize(("answer", "found"), [("y", ["b", "c"]), ("n", ["a", "b", "c"])])
def test_a_person_is_asked(work: Path, answer: str, found: list[str]) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = travois(work, "rm a", stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert done.stdout.splitlines()[-1].startswith("Keep these changes? [y/N] ")
    assert names(work) == found


def test_what_was_tried_reached_nobody_and_wrote_nowhere_else(work: Path) -> None:
    outside = work.parent / "home"
    done = travois(work, "--keep", f"echo x > '{outside}/x'; echo x > /etc/travois-x; echo > ok")
    assert names(work) == ["a", "b", "c", "ok"]
    assert not (outside / "x").exists() and not Path("/etc/travois-x").exists()
    assert "Read-only file system" in done.stdout


def test_without_walls_nothing_is_tried(work: Path) -> None:
    settings = json.dumps({"sandbox": {"enabled": False}})
    done = travois(work, "--keep", "--settings", settings, "rm a")
    assert (done.returncode, done.stdout, names(work)) == (2, "", ["a", "b", "c"])
    assert "`travois try` needs a sandbox" in done.stderr
