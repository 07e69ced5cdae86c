"""What a model does with its hands: ordinary work happens, and what is protected stays."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.glass import use
from tests.e2e.program import Done, Program
from travois.core.content import Text
from travois.core.facts import Result

WHO = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
FREE = {"bypass": ("--permission-mode", "bypass"), "rule": ("--allowedTools", "Bash")}


@pytest.fixture(autouse=True)
def repository(program: Program) -> None:
    program.extra |= WHO
    git = ["git", "-C", str(program.folder)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    (program.folder / "file").write_text("one\n")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True, env=os.environ | WHO)


def work(program: Program, *lines: str, flags: tuple[str, ...] = FREE["bypass"]) -> list[str]:
    """Let the model run these lines one after the other; returns what it is told of each."""
    script = [*({"say": [use("Bash", command=line)]} for line in lines), {"say": [{"text": "ok"}]}]
    with program.served(script) as api:
        done = program.ask("go", *flags)
        assert done.out == "ok\n", done.err
        api.no_invalid()
    return results(program)


def results(program: Program) -> list[str]:
    """The text of every result."""
    found = [entry.fact for entry in program.facts() if isinstance(entry.fact, Result)]
    return ["".join(b.text for b in one.content if isinstance(b, Text)) for one in found]


ORDINARY = (
    "touch made && mkdir build && echo x > build/x",
    "mv made moved && rm moved && sed -i s/one/two/ file",
    "python3 -m venv --without-pip .venv && .venv/bin/python -c 'print(1)'",
    "git stash && git stash pop && git checkout -qb topic",
    "git add file && git commit -qm two && git log --format=%s",
)


@pytest.mark.parametrize("allowed", FREE)
def test_ordinary_work_happens(program: Program, allowed: str) -> None:
    told = work(program, *ORDINARY, flags=FREE[allowed])
    assert [text for text in told if "denied" in text or "Exit code" in text] == []
    assert (told[2], told[-1]) == ("1", "two\none")
    assert (program.folder / "file").read_text() == "two\n"


def test_what_runs_later_stays_as_it_was_and_the_model_is_told(program: Program) -> None:
    config = program.folder / ".git/config"
    before = config.read_text()
    # The script hides from our reading of the line what it does.
    plant = "echo evil > .git/hooks/pre-commit; echo '[alias]' >> .git/config; echo end"
    (program.folder / "plant.sh").write_text(plant)
    (told,) = work(program, "sh plant.sh")
    assert not (program.folder / ".git/hooks/pre-commit").exists()
    assert config.read_text() == before
    restored = "Protected files changed while a command ran and were restored" in told
    assert restored or "Read-only file system" in told


def test_git_sets_remotes_and_nothing_that_runs_programs(program: Program) -> None:
    script = "git remote add up ../up; git config core.fsmonitor evil; git config alias.a '!evil'"
    (program.folder / "set.sh").write_text(script)
    (told,) = work(program, "git checkout -q main; sh set.sh")
    text = (program.folder / ".git/config").read_text()
    assert ('[remote "up"]' in text, "evil" in text) == (True, False)
    assert ".git/config (alias.a, core.fsmonitor)" in told


def test_our_own_git_runs_nothing_that_a_running_command_planted(program: Program) -> None:
    outside = program.home.parent / "escaped"
    evil = program.folder / "evil.sh"
    evil.write_text(f"#!/bin/sh\necho ran >> ran\ntouch {outside}\ncat\n")
    evil.chmod(0o755)
    (program.folder / ".gitattributes").write_text("* filter=x diff=x\n")
    settings = f"""[core]
    fsmonitor = {evil}
    hooksPath = .
    [filter "x"]
    clean = {evil}
    [diff "x"]
    command = {evil}
    textconv = {evil}
    """
    (program.folder / "settings").write_text(settings)
    plant = """
    while :; do
        cat .git/config.kept settings > .git/config.made; mv .git/config.made .git/config
        touch planted; sleep 0.05
    done
    """
    (program.folder / "plant.sh").write_text(f"cp .git/config .git/config.kept\n{plant}")
    script = [
        {"say": [use("Bash", command="git gc -q; sh plant.sh", run_in_background=True)]},
        {"say": [use("Bash", command="until [ -e planted ]; do sleep 0.05; done")]},
        {"say": [use("Edit", file_path="file", old_string="one", new_string="two")]},
        {"say": [use("GitStatus"), use("GitDiff"), use("GitLog")]},
        {"say": [use("GitDiff", stat=True), use("GitShow", rev="HEAD")]},
        {"say": [use("KillShell", shell_id="bash_1")]},
        {"say": [{"text": "ok"}]},
    ]
    with program.served(script) as api:
        done = program.ask("go", *FREE["bypass"])
        assert done.out == "ok\n", done.err
        api.no_invalid()
    assert not outside.exists()
    told = results(program)
    assert any("+two" in text for text in told), told
    assert "evil" not in (program.folder / ".git/config").read_text()


def test_a_session_that_is_killed_leaves_nothing_changed_for_good(program: Program) -> None:
    hook = program.folder / ".git/hooks/pre-commit"
    plant = "echo evil > .git/hooks/pre-commit; touch planted; sleep 600"
    (program.folder / "plant.sh").write_text(plant)
    script = [{"say": [use("Bash", command="sh plant.sh")]}, {"say": [{"text": "ok"}]}]
    with program.served(script):
        child = program.start("-p", "go", *program.model, *FREE["bypass"])
        planted = program.folder / "planted"
        end = time.monotonic() + 300
        while child.poll() is None and time.monotonic() < end and not planted.exists():
            time.sleep(0.02)
        assert planted.exists(), "the command did not start"
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with program.served([{"say": [{"text": "ok"}]}] * 200):
        done = settled(program, hook)
        assert done.out == "ok\n"
    assert not hook.exists()


def settled(program: Program, hook: Path) -> Done:
    """The next session that finds all processes of the killed one gone."""
    end = time.monotonic() + 300
    while True:
        done = program.ask("go")
        if not hook.exists() or time.monotonic() > end:
            return done
        time.sleep(0.3)


def test_what_the_model_writes_itself_beside_a_job_stays(program: Program) -> None:
    script = [
        {"say": [use("Bash", command="touch up; sleep 600", run_in_background=True)]},
        {"say": [use("Bash", command="until [ -e up ]; do sleep 0.05; done")]},
        {"say": [use("Write", file_path=".claude/agents/one.md", content="mine\n")]},
        {"say": [use("KillShell", shell_id="bash_1")]},
        {"say": [{"text": "ok"}]},
    ]
    with program.served(script):
        rule = ("--allowedTools", "Edit(.claude/agents/**)")  # bypass alone does not write there
        assert program.ask("go", *FREE["bypass"], *rule).out == "ok\n"
    assert (program.folder / ".claude/agents/one.md").read_text() == "mine\n"
    assert "restored" not in "".join(results(program))
