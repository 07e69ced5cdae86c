"""Sessions that plan first, or move into a git worktree: the program, with either sandbox."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.e2e.glass import Glass
from tests.e2e.program import Program
from tests.e2e.test_tasks import results, step
from tests.e2e.test_tui_talk import answered
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

AUTO = ("--permission-mode", "auto", "--allowedTools", "EnterWorktree,ExitWorktree")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def repository(program: Program) -> Path:
    git(program.folder, "init", "-q", "-b", "main")
    (program.folder / "a.txt").write_text("one\n")
    git(program.folder, "add", "a.txt")
    git(program.folder, "commit", "-qm", "first")
    return program.folder


def scripted(program: Program, steps: list[list[Json]], prompt: str, *args: str) -> list[str]:
    """Run a turn of these steps; returns what each call brought."""
    seen: list[str] = []
    begun: list[int] = []

    def model(prompt: Prompt, state: object) -> list[Json]:
        begun.append(step(prompt))
        if len(begun) > 1:
            seen.extend(results(prompt))
        return [*steps, [text("over")]][step(prompt) - begun[0]]

    with program.served(model) as api:
        done = program.ask(prompt, *args)
        assert done.code == 0, done.err
        api.no_invalid()
        api.append_only()
    return seen


def worktree(program: Program) -> Path:
    (found,) = (path for path in (program.folder / ".travois/worktrees").iterdir() if path.is_dir())
    return found


def enter(name: str) -> Json:
    return {**call("EnterWorktree"), "input": {"name": name}}


def write(path: object, content: str) -> Json:
    return call("Write", file_path=str(path), content=content)


def test_a_session_moves_to_a_worktree_works_there_and_comes_back(program: Program) -> None:
    top = repository(program)
    seen = scripted(
        program,
        [
            [enter("fix")],
            [call("Bash", command="pwd && echo two > b.txt && ls && git branch --show-current")],
            [write("c.txt", "three\n"), write(top / "outside.txt", "no\n")],
            [call("Bash", command=f"echo no > {top}/outside.txt")],
            [call("ExitWorktree", action="remove")],
            [call("ExitWorktree")],
            [call("Bash", command="pwd && ls")],
        ],
        "go",
        *AUTO,
    )
    tree = top / ".travois/worktrees/fix"
    assert f"Now working in {tree} on branch travois/fix" in seen[0]
    assert rf"{tree}\na.txt\nb.txt\ntravois/fix" in seen[1]
    assert (tree / "b.txt").read_text() == "two\n"
    assert (tree / "c.txt").read_text() == "three\n"
    assert "Permission denied" in seen[3], "the folder it came from is outside the workspace now"
    assert not (top / "outside.txt").exists()
    assert "The worktree was kept: 2 files have uncommitted changes (b.txt, c.txt)" in seen[5]
    assert f"Back in {top}. The worktree {tree} is kept" in seen[6]
    assert rf"{top}\na.txt" in seen[7]
    assert "b.txt" not in seen[7]


def test_a_worktree_in_which_nothing_was_done_is_removed(program: Program) -> None:
    top = repository(program)
    seen = scripted(
        program, [[call("EnterWorktree")], [call("ExitWorktree", action="remove")]], "go", *AUTO
    )
    assert "Removed" in seen[1]
    assert git(top, "worktree", "list").count("\n") == 1
    assert git(top, "branch", "--list", "travois/*") == ""


def test_commits_that_are_nowhere_else_are_not_removed_without_a_word(program: Program) -> None:
    top = repository(program)
    commit = "echo two > a.txt && git -c user.name=A -c user.email=a@b.c commit -qam second"
    seen = scripted(
        program,
        [
            [enter("fix")],
            [call("Bash", command=commit)],
            [call("ExitWorktree", action="remove")],
            [call("ExitWorktree", action="remove", discard_changes=True)],
        ],
        "go",
        *AUTO,
    )
    assert "travois/fix has commits that no other branch has" in seen[2]
    assert "Permission denied" in seen[3], "losing work needs a person"
    assert "second" in git(top, "log", "--oneline", "travois/fix")


def test_a_killed_session_goes_on_in_its_worktree(program: Program) -> None:
    """Kill -9 while a command runs there; the next process derives folder and bounds anew."""
    top = repository(program)
    marker = top / ".travois/worktrees/fix/begun"

    def model(prompt: Prompt, state: object) -> list[Json]:
        if step(prompt) == 0:
            return [enter("fix")]
        if step(prompt) == 1:
            return [call("Bash", command="touch begun; sleep 100", timeout=200_000)]
        return [text("never")]

    with program.served(model):
        child = program.start("-p", "go", *program.model, *AUTO)
        while not marker.exists():
            assert child.poll() is None, child.communicate()
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    seen = scripted(
        program,
        [
            [call("Bash", command="pwd && echo two > b.txt")],
            [write("c.txt", "three\n"), write(top / "outside.txt", "no\n")],
            [call("ExitWorktree", action="keep")],
        ],
        "and now",
        "-c",
        *AUTO,
    )
    assert str(marker.parent) in seen[0]
    assert sorted(path.name for path in marker.parent.glob("*.txt")) == ["a.txt", "b.txt", "c.txt"]
    assert "Permission denied" in seen[2]
    assert not (top / "outside.txt").exists()


def test_a_session_whose_worktree_is_gone_goes_on_where_it_began(program: Program) -> None:
    top = repository(program)
    scripted(program, [[enter("fix")]], "go", *AUTO)
    git(top, "worktree", "remove", "--force", str(worktree(program)))
    with program.served([{"say": [call("Bash", command="pwd")]}, {"say": [{"text": "ok"}]}]) as api:
        done = program.ask("again", "-c", *AUTO)
        assert done.code == 0
        assert f"no longer exists; the session is back in {top}" in done.err
        assert f'"{top}' in str(api.ledger[-1].messages[-1]).replace("'", '"')


def test_a_rewind_brings_the_session_back_out_of_its_worktree(program: Program) -> None:
    top = repository(program)
    scripted(program, [], "hello", *AUTO)
    scripted(program, [[enter("fix")]], "go", "-c", *AUTO)
    assert program.run("rewind", "--to", "1", "--conversation-only", "--yes").code == 0
    seen = scripted(program, [[call("Bash", command="pwd")]], "where", "-c", *AUTO)
    assert "worktrees" not in seen[0]
    assert str(top) in seen[0]


def test_files_of_a_worktree_can_be_brought_back(program: Program) -> None:
    repository(program)
    scripted(program, [[enter("fix")]], "go", *AUTO)
    tree = worktree(program)
    scripted(program, [[write("b.txt", "two\n"), write("a.txt", "new\n")]], "on", "-c", *AUTO)
    assert (tree / "b.txt").exists()
    done = program.run("rewind", "--to", "1", "--yes")
    assert done.code == 0, done.err
    assert [path.name for path in tree.glob("*.txt")] == ["a.txt"]
    assert (tree / "a.txt").read_text() == "one\n"


def test_without_a_repository_there_is_no_worktree(program: Program) -> None:
    seen = scripted(program, [[call("EnterWorktree")], [call("ExitWorktree")]], "go", *AUTO)
    assert "is not inside a git repository" in seen[0]
    assert "not in a worktree" in seen[1]


def test_headless_planning_needs_a_rule(program: Program) -> None:
    seen = scripted(program, [[call("EnterPlanMode")], [write("x.txt", "x")]], "go")
    assert "--allowedTools EnterPlanMode" in seen[0]
    allowed = ("--permission-mode", "acceptEdits", "--allowedTools", "EnterPlanMode")
    seen = scripted(program, [[call("EnterPlanMode")], [write("x.txt", "x")]], "go", *allowed)
    assert "Plan mode is on" in seen[0]
    assert "plan mode: no changes" in seen[1]
    assert not (program.folder / "x.txt").exists()


def test_a_person_is_asked_before_plan_mode_begins(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        return [[call("EnterPlanMode")], [text("I plan now.")]][step(prompt)]

    with program.served(model):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("go\r")
        glass.until("? Start plan mode?", "why: starts plan mode", "no, and tell it why")
        answered(glass, "y")
        glass.until("I plan now.", "plan ·")
        assert glass.leave() == 0
