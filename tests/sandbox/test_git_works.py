"""Ordinary git works behind both kinds of walls, in a workspace as a session has one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.sandbox.caged import Mode, Scene, scene, walls
from travois.compose.sandbox import move_sandbox_policy
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.rules import ToolUse
from travois.permissions.shell.judge import plan_command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.policy import SandboxPolicy, build_sandbox_profile

BACKENDS = pytest.mark.parametrize("mode", ["full", "partial"], ids=["bwrap", "landlock"])
WHO = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
LOCAL = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow"}
ENV = WHO | LOCAL | {"GIT_CONFIG_VALUE_0": "always", "GIT_EDITOR": "true"}
SECONDS = 120.0


class Repository:
    """A workspace with two commits on each of two branches, and a bare repository beside it."""

    def __init__(self, place: Scene, mode: Mode) -> None:
        self.work, self.mode, self.place = place.work, mode, place
        self.bare = place.work / "bare.git"
        self.told: tuple[str, ...] = ()
        make = """
        git init -q -b main; echo one > file; git add file; git commit -qm one
        git checkout -qb side; echo side > side; git add side; git commit -qm side
        git checkout -q main; echo two >> file; git commit -qam two; git clone -q --bare . bare.git
        echo bare.git > .git/info/exclude; git config user.signingkey mine
        """
        subprocess.run(["bash", "-ec", make], cwd=self.work, env=os.environ | ENV, check=True)

    def run(self, line: str, *, root: Path | None = None) -> str:
        """Run a line as a session in a folder does whose user allowed it."""
        at = str(root or self.work)
        made = plan_command(line, cwd=at, home="/home/u")
        use = ToolUse("Bash", (Access("exec", line),), at, "/home/u", plans=(made,))
        bounds = move_sandbox_policy(SandboxPolicy(temp=self.place.sandbox.temp, network="off"), at)
        around = build_sandbox_profile(bounds, Permissions(folders=(at,)), use)
        assert around is not None and around.profile == "work"
        out = list[str]()

        async def main() -> None:
            processes = LocalProcesses(support=walls(self.mode))
            try:
                command = self.place.sh(f"cd {at}; {line}", sandbox=around, env=ENV)
                done = await processes.run(command, timeout=SECONDS)
                out.append(done.output.head_and_tail().decode())
                assert done.status == 0, out[0]
            finally:
                await processes.aclose()
                self.told = processes.take_notices()

        anyio.run(main)
        assert self.told == ()
        return out[0].strip()

    def git(self, *words: str, root: Path | None = None) -> str:
        """Ask git from outside."""
        done = subprocess.run(
            ["git", *words], cwd=root or self.work, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


@pytest.fixture
def place() -> Iterator[Scene]:
    with scene() as found:
        yield found


@pytest.fixture(params=["full", "partial"], ids=["bwrap", "landlock"])
def repo(place: Scene, request: pytest.FixtureRequest) -> Repository:
    return Repository(place, request.param)


def test_add_and_commit(repo: Repository) -> None:
    repo.run("echo x > new; git add new; git commit -qm new")
    assert repo.git("log", "-1", "--format=%s") == "new"


def test_stash(repo: Repository) -> None:
    repo.run("echo x >> file; git stash; git stash list; git stash pop")
    assert repo.git("status", "--short") == "M file"


def test_rebase(repo: Repository) -> None:
    repo.run("git rebase -q main side")
    assert repo.git("log", "--format=%s", "side", "--") == "side\ntwo\none"


def test_merge(repo: Repository) -> None:
    repo.run("git merge -q --no-edit side")
    assert (repo.work / "side").read_text() == "side\n"


def test_cherry_pick(repo: Repository) -> None:
    repo.run("git cherry-pick side")
    assert repo.git("log", "-1", "--format=%s") == "side"


def test_bisect(repo: Repository) -> None:
    said = repo.run("git bisect start main main~1; git bisect run test ! -e x; git bisect reset")
    assert "is the first bad commit" in said
    assert repo.git("branch", "--show-current") == "main"


def test_fetch(repo: Repository) -> None:
    repo.git("remote", "add", "origin", str(repo.bare))
    repo.run("git fetch -q origin")
    assert repo.git("rev-parse", "origin/side") == repo.git("rev-parse", "side")


def test_gc(repo: Repository) -> None:
    repo.run("git gc -q --prune=now")
    assert repo.git("fsck") == ""
    assert list((repo.work / ".git/objects/pack").glob("*.pack"))


def test_a_new_branch(repo: Repository) -> None:
    repo.run("git checkout -qb topic")
    assert repo.git("branch", "--show-current") == "topic"


def test_an_upstream(repo: Repository) -> None:
    repo.git("remote", "add", "origin", str(repo.bare))
    repo.git("fetch", "-q", "origin")
    repo.run("git branch --set-upstream-to origin/main main")
    assert repo.git("config", "branch.main.merge") == "refs/heads/main"


def test_a_remote(repo: Repository) -> None:
    repo.run("git remote add up bare.git; git remote rename up down; git remote set-url down ./b")
    assert repo.git("config", "remote.down.url") == "./b"
    repo.run("git remote remove down")
    assert repo.git("remote") == ""


def test_push_with_an_upstream(repo: Repository) -> None:
    repo.run("git remote add origin bare.git && git checkout -qb t && git push -qu origin t")
    assert repo.git("config", "branch.t.remote") == "origin"
    assert repo.git("rev-parse", "t") == repo.git("rev-parse", "t", root=repo.bare)


def test_a_worktree_and_work_in_it(repo: Repository) -> None:
    repo.run("git worktree add -q tree side")
    tree = repo.work / "tree"
    assert (tree / ".git").is_file()
    repo.run("echo x > new; git add new; git commit -qm new; git checkout -qb t2", root=tree)
    assert repo.git("log", "-1", "--format=%s", root=tree) == "new"
    repo.run("git remote add up ../bare.git; git fetch -q up; git branch -qu up/main", root=tree)
    assert repo.git("config", "branch.t2.remote") == "up"
    repo.run("git worktree remove --force tree")
    assert not tree.exists()


def test_a_submodule(repo: Repository) -> None:
    repo.run("git submodule --quiet add ./bare.git sub; git commit -qm sub")
    assert (repo.work / "sub/file").is_file()
    assert repo.git("config", "--file", ".gitmodules", "submodule.sub.path") == "sub"
    repo.run("git submodule --quiet deinit -f sub; git submodule --quiet update --init sub")
    assert (repo.work / "sub/file").is_file()


def test_a_repository_within(repo: Repository) -> None:
    repo.run("git init -q inner; git clone -q bare.git cloned; cd cloned; git checkout -q side")
    assert (repo.work / "cloned/side").is_file()
    assert (repo.work / "inner/.git/HEAD").is_file()


@BACKENDS
def test_a_new_repository_in_the_workspace(place: Scene, mode: Mode) -> None:
    repo = Repository(place, mode)
    shutil.move(repo.work / ".git", place.outside / "git")
    repo.run("git init -q -b main; git add file; git commit -qm first")
    assert repo.git("log", "--format=%s") == "first"


@BACKENDS
def test_a_clone_into_the_workspace(place: Scene, mode: Mode) -> None:
    repo = Repository(place, mode)
    shutil.move(repo.work / ".git", place.outside / "git")
    for name in ("file", "side"):
        (repo.work / name).unlink(missing_ok=True)
    shutil.move(repo.bare, place.outside / "bare.git")
    repo.run(f"git clone -q {place.outside}/bare.git .")
    assert repo.git("log", "-1", "--format=%s") == "two"
    assert repo.git("config", "branch.main.remote") == "origin"


def test_large_files(repo: Repository) -> None:
    if subprocess.run(["git", "lfs", "version"], capture_output=True, check=False).returncode:
        pytest.skip("git-lfs is not installed")
    repo.run("git lfs install --local && git lfs track '*.bin'")
    repo.run("echo large > a.bin; git add a.bin .gitattributes; git commit -qm large")
    assert "oid sha256" in repo.git("cat-file", "-p", "HEAD:a.bin")
    repo.run("rm a.bin; git checkout a.bin; git lfs ls-files")
    assert (repo.work / "a.bin").read_text() == "large\n"
    repo.run("git remote add origin bare.git; git push -q origin main")
    assert list((repo.bare / "lfs/objects").rglob("*"))


def test_what_would_run_programs_is_never_set_by_the_way(repo: Repository) -> None:
    line = "git remote add up bare.git; printf '[core]\\n\\tfsmonitor = evil\\n' > x; "
    with pytest.raises(AssertionError):
        repo.run(f"{line} cat x >> .git/co*ig; git commit -q --allow-empty -m x")
    assert ".git/config (core.fsmonitor)" in repo.told[0]
    assert repo.git("config", "remote.up.url") == "bare.git"
