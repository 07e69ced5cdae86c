"""No command leaves a repository in the workspace with which the user's next git runs a program.

Each attack works without a sandbox: that is tried too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.caged import SECONDS, Mode, Scene, play, scene
from travois.process.local_processes import LocalProcesses
from travois.sandbox.policy import PINNED_PATHS

MODES = pytest.mark.parametrize("mode", ["full", "partial"], ids=["bwrap", "landlock"])
EACH = pytest.mark.parametrize("mode", [None, "full", "partial"], ids=["bare", "bwrap", "landlock"])
IDENTITY = "git -c user.name=a -c user.email=a@b"
MAKE = """
git init -q -b main . ; echo one > file; git add file; {git} commit -qm one
git init -q -b main kept; cd kept; echo k > k; git add k; {git} commit -qm k; cd ..
git init -q -b main other; cd other; echo k > k; git add k; {git} commit -qm k; cd ..
git -c protocol.file.allow=always submodule --quiet add ./other sub; {git} commit -qm sub
git worktree add -q -b side tree
"""
LINK = "git update-index --add --cacheinfo 160000,$(git -C {0} rev-parse HEAD),{0}"
ATTACKS: dict[str, tuple[str, str]] = {
    "the shared folder of the repository": (
        "cp -r .git far; printf '[core]\\n\\tfsmonitor = \"touch RAN; false\"\\n' >> far/config; "
        "echo ../far > .git/commondir",
        ".",
    ),
    "settings of a repository within": (
        "printf '[core]\\n\\tfsmonitor = \"touch ../RAN; false\"\\n' >> kept/.git/config",
        "kept",
    ),
    "a new repository within": (
        "mkdir new; cp -r kept/.git new/.git;git -C new config core.fsmonitor 'touch ../RAN;false'",
        "new",
    ),
    "a gitlink": (
        "git clone -q kept linked; git -C linked config core.fsmonitor 'touch ../RAN;false'; "
        + LINK.format("linked"),
        ".",
    ),
    "settings of a submodule": (
        "printf '[core]\\n\\tfsmonitor = \"touch ../RAN; false\"\\n' >> .git/modules/sub/config",
        ".",
    ),
    "settings of a worktree": (
        "cp -r .git far; printf '[core]\\n\\tfsmonitor = \"touch ../RAN; false\"\\n' >> far/config;"
        "echo ../../../far > .git/worktrees/tree/commondir",
        "tree",
    ),
    "a bare-like folder": (
        "git clone -q --bare kept odd; git -C odd config core.fsmonitor 'touch ../RAN;false';"
        "git -C odd config core.bare false; git -C odd config core.worktree .",
        "odd",
    ),
    "a bare-like folder made in two commands": (
        "git clone -q --bare kept odd; git -C odd config core.fsmonitor 'touch ../RAN;false';"
        "git -C odd config core.bare false; git -C odd config core.worktree .; mv odd/HEAD odd/H\n"
        "mv odd/H odd/HEAD",
        "odd",
    ),
    "a folder renamed to .git in a second command": (
        "mkdir late; cp -r kept/.git late/g; mv late/g/HEAD late/g/H; "
        "git config -f late/g/config core.fsmonitor 'touch ../RAN;false'\n"
        "mv late/g/H late/g/HEAD; mv late/g late/.git",
        "late",
    ),
    "a file that points to a repository": (
        "mkdir to; cp -r kept/.git .git/inner; "
        "git config -f .git/inner/config core.fsmonitor 'touch ../RAN;false';"
        "echo gitdir: ../.git/inner > to/.git",
        "to",
    ),
    "a repository whose file is replaced": (
        "cp -r kept/.git .git/inner; git config -f .git/inner/config core.worktree ../../sub;"
        "git config -f .git/inner/config core.fsmonitor 'touch ../RAN;false';"
        "echo gitdir: ../.git/inner > sub/.git",
        "sub",
    ),
    "a link to a repository": (
        "mkdir to; cp -r kept/.git .git/inner; "
        "git config -f .git/inner/config core.fsmonitor 'touch ../RAN;false';"
        "ln -s ../.git/inner to/.git",
        "to",
    ),
    "a hook within": (
        "printf '#!/bin/sh\\ntouch ../RAN\\n' > kept/.git/hooks/post-index-change;"
        "chmod +x kept/.git/hooks/post-index-change; touch kept/k",
        "kept",
    ),
    "hooks elsewhere": (
        "mkdir h; printf '#!/bin/sh\\ntouch ../RAN\\n' > h/post-index-change; chmod +x h/*;"
        "git -C kept config core.hooksPath ../h; touch kept/k",
        "kept",
    ),
    "an include": (
        "printf '[core]\\n\\tfsmonitor = \"touch ../RAN; false\"\\n' > more;"
        "git -C kept config include.path ../../more",
        "kept",
    ),
    "settings of one worktree": (
        "git config -f .git/worktrees/tree/config.worktree core.fsmonitor 'touch ../RAN;false';"
        "git -C kept config extensions.worktreeConfig true;"
        "git config -f kept/.git/config.worktree core.fsmonitor 'touch ../RAN;false'",
        "kept",
    ),
    "the top as a repository": (
        "rm -rf .git.x; mv .git .git.x 2>/dev/null; cp -r kept/.git/* .; rm -rf .git;"
        "git config -f config core.fsmonitor 'touch RAN; false';"
        "git config -f config core.bare false;"
        "git config -f config core.worktree .",
        ".",
    ),
}


@pytest.fixture
def place() -> Iterator[Scene]:
    with scene() as bare:
        line = MAKE.format(git=IDENTITY)
        env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"}
        subprocess.run(["bash", "-ec", line], cwd=bare.work, env=env, check=True)
        pinned = tuple(f"{bare.work}/{name}" for name in PINNED_PATHS)
        yield Scene(bare.work, bare.outside, bare.but(pinned=pinned))


def act(place: Scene, lines: str, mode: Mode | None) -> tuple[str, ...]:
    """Run some lines, each as a command of its own; returns what is told."""
    told = list[str]()

    async def one(processes: LocalProcesses) -> None:
        for line in lines.split("\n"):
            cage = place.sandbox if mode else None
            await processes.run(place.sh(line, sandbox=cage), timeout=SECONDS)
            told.extend(processes.take_notices())

    play(mode, one)
    return tuple(told)


def use_git(place: Scene, folder: str) -> bool:
    """What a user does next; returns whether that ran a program of the command's choice."""
    for words in (["status"], ["add", "-A"]):
        at = place.work / folder
        subprocess.run(["git", *words], cwd=at, capture_output=True, check=False)
    return (place.work / "RAN").exists()


@EACH
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_program_runs_with_the_users_next_git(
    place: Scene, attack: str, mode: Mode | None
) -> None:
    lines, folder = ATTACKS[attack]
    told = act(place, lines, mode)
    (place.work / "RAN").unlink(missing_ok=True)
    ran = use_git(place, folder)
    assert ran is (mode is None), told
    assert mode is None or "Protected files changed" in " ".join(told)


@MODES
@pytest.mark.parametrize(
    "line",
    [
        "git clone -q kept cloned; git -C cloned remote add up ../kept; git -C cloned fetch -q up",
        "git init -q fresh; cd fresh; git config user.name x; echo > a; git add a",
        "git worktree add -q -b another another; git worktree remove another",
        "git init -q --bare store.git; git -C kept push -q ../store.git main",
        f"cd kept; echo x > x; git add x; {IDENTITY} commit -qm x; git checkout -qb topic",
        "git -c protocol.file.allow=always submodule --quiet update --init; rm -rf kept",
        "git -c protocol.file.allow=always clone -q --recurse-submodules . whole",
        "git worktree remove --force tree; git submodule --quiet deinit -f sub",
    ],
)
def test_ordinary_work_with_repositories_is_left_alone(place: Scene, line: str, mode: Mode) -> None:
    git = ("config", "hooks", "config.worktree")
    written = (*(f"{place.work}/.git/{name}" for name in git), f"{place.work}/.gitmodules")
    pinned = tuple(path for path in place.sandbox.pinned if path not in written)
    cage = place.but(pinned=pinned, git_written=written)
    done = list[tuple[int | None, tuple[str, ...], bytes]]()

    async def one(processes: LocalProcesses) -> None:
        found = await processes.run(place.sh(f"set -e; {line}", sandbox=cage), timeout=SECONDS)
        done.append((found.status, processes.take_notices(), found.output.head_and_tail()))

    play(mode, one)
    assert done[0][:2] == (0, ()), done


@MODES
def test_what_a_user_made_in_a_repository_stays(place: Scene, mode: Mode) -> None:
    config, hook = place.work / "kept/.git/config", place.work / "kept/.git/hooks/pre-commit"
    with config.open("a") as file:
        file.write("[alias]\n\tst = status\n")
    hook.write_text("#!/bin/sh\necho mine\n")
    told = act(place, "echo x > made\ngit -C kept config user.name me; rm -r other", mode)
    assert told == ()
    assert "st = status" in config.read_text() and "name = me" in config.read_text()
    assert hook.read_text() == "#!/bin/sh\necho mine\n"


@MODES
def test_pins_of_what_is_missing_leave_no_trace(mode: Mode) -> None:
    with scene() as bare:
        subprocess.run(["git", "init", "-q", bare.work], check=True)
        place = Scene(bare.work, bare.outside, bare.sandbox)
        cage = place.but(pinned=tuple(f"{bare.work}/{name}" for name in PINNED_PATHS))
        said = list[str]()

        async def one(processes: LocalProcesses) -> None:
            found = await processes.run(
                place.sh("ls -A; ls -A .git; echo x > .mcp.json", sandbox=cage), timeout=SECONDS
            )
            said.extend((found.output.head_and_tail().decode(), *processes.take_notices()))

        before = sorted(os.listdir(bare.work)), sorted(os.listdir(bare.work / ".git"))
        play(mode, one)
        assert said[0].split() == [".git", *before[1]]
        assert ".mcp.json" in said[1]
        assert (sorted(os.listdir(bare.work)), sorted(os.listdir(bare.work / ".git"))) == before


def test_finding_repositories_takes_no_listing_of_what_did_not_change(tmp_path: Path) -> None:
    from travois.sandbox.guard.repositories import RepositoryFinder

    for number in range(50):
        (tmp_path / f"a{number}/b/c").mkdir(parents=True)
    finder = RepositoryFinder(str(tmp_path))
    assert finder.find() == frozenset()
    (tmp_path / "a7/b/c/.git").mkdir()
    assert finder.find() == {str(tmp_path / "a7/b/c/.git")}
    (tmp_path / "a7").rename(tmp_path / "z")
    assert finder.find() == {str(tmp_path / "z/b/c/.git")}
    (tmp_path / "z/b/c/.git").rename(tmp_path / "z/b/c/g")
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / "z/b" / name).touch()
    assert finder.find() == {str(tmp_path / "z/b")}


DEEDS = """
mkdir -p $(dirname NAME)
rm -rf NAME
mv NAME moved
echo x > NAME
mkdir -p NAME && echo x > NAME/made
ln -sfn /etc NAME
chmod 777 NAME
"""
CODE = """
import os, sys
names, *deeds = open("deeds").read().splitlines()
for name in names.split():
    for deed in deeds:
        os.system(f"({deed.replace('NAME', name)}) 2>/dev/null")
"""


@MODES
@pytest.mark.parametrize("there", [True, False], ids=["existing", "missing"])
def test_code_that_is_not_understood_changes_no_pinned_name(mode: Mode, there: bool) -> None:
    with scene() as bare:
        subprocess.run(["git", "init", "-q", bare.work], check=True)
        paths = [bare.work / name for name in PINNED_PATHS]
        for path in paths if there else ():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_dir() and path.name not in ("commondir", "config"):
                path.write_text("as it was\n")
        before = {path: _state(path) for path in paths}
        cage = bare.but(pinned=tuple(map(str, paths)))
        (bare.work / "code.py").write_text(CODE)
        (bare.work / "deeds").write_text(" ".join(PINNED_PATHS) + DEEDS)
        place = Scene(bare.work, bare.outside, cage)
        told = act(place, "python3 code.py", mode)
        assert {path: _state(path) for path in paths} == before, told


def _state(path: Path) -> tuple[str, ...]:
    if path.is_symlink() or not path.exists():
        return (os.readlink(path) if path.is_symlink() else "missing",)
    if path.is_dir():
        return ("folder", *sorted(os.listdir(path)))
    return (path.read_text(), oct(path.stat().st_mode))
