"""Whatever a command does to a workspace, going back brings it back byte for byte."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.engine.fakes import RecordingPerson, agent, begun, facts, log, play
from travois.app import rewinding
from travois.engine.agent import Agent
from travois.engine.ports import Answer
from travois.kernel.blocks import words
from travois.kernel.facts import Result
from travois.policy.judge import Guard
from travois.store.snapshot.node import OBJECT
from travois.store.snapshots import Limits, Snapshots
from travois.testing import call, say
from travois.tools.shell import BASH

PEOPLE = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
ENVIRONMENT = {
    **{f"GIT_{name}": "t@example.org" for name in PEOPLE},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "PATH": os.environ["PATH"],
}
SETTING = """
git init -q -b main . && git config user.name t && git config user.email t@example.org
git config gc.auto 0
mkdir -p src/deep empty/inner build node_modules/lib
printf 'one\\n' > src/a.py; printf 'two\\n' > src/deep/b.py; printf 'keep\\n' > README
printf '\\000\\001\\377binary' > blob.bin; printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh
ln -s src/a.py link; ln -s nowhere dangling; ln -s src folderlink
printf 'build/\\n*.log\\nnode_modules/\\n' > .gitignore
git add -A && git commit -qm first
printf 'stashed\\n' >> README && git stash -q
git switch -q -c topic && printf 'topic\\n' > topic.txt && git add -A && git commit -qm topic
git switch -q main && git branch spare topic && git tag v1
printf 'three\\n' > src/c.py && git add -A && git commit -qm second
git repack -qad
git worktree add -q ../tree topic 2>/dev/null
printf 'more\\n' >> src/a.py; printf 'staged\\n' > staged.txt; git add staged.txt
printf 'untracked\\n' > notes.txt; printf 'ignored\\n' > build/out; printf 'log\\n' > x.log
printf 'lib\\n' > node_modules/lib/index.js
printf 'odd\\n' > 'a b'; printf 'odd\\n' > "$(printf 'new\\nline')"
printf 'odd\\n' > "$(printf 'caf\\351')"
printf 'secret\\n' > private; chmod 600 private; printf 'ro\\n' > fixed; chmod 444 fixed
"""
COMMANDS = [
    "rm -rf src",
    "rm -rf .git",
    "rm -rf ./* .g*",
    "rm notes.txt x.log build/out",
    "rm -rf node_modules",
    "rmdir empty/inner",
    "unlink link",
    "shred -u notes.txt",
    "truncate -s 0 blob.bin",
    "mv notes.txt README",
    "mv src moved && mv moved/a.py empty/",
    "cp notes.txt blob.bin",
    "cp -r src/deep/. .",
    "dd if=/dev/zero of=blob.bin bs=1 count=3 2>/dev/null",
    "echo x | tee README run.sh",
    "sed -i s/one/other/ src/a.py",
    "echo over > README; : > notes.txt",
    "cat > staged.txt < blob.bin",
    "find . -name '*.py' -delete",
    "find . -type f ! -path './.git/*' -print0 | xargs -0 rm -f",
    "ls | head -3 | xargs -d '\\n' rm -rf",
    "mkdir e2 && cp -r e2/. node_modules && rm -rf e2 node_modules/lib",
    "git checkout -- .",
    "git checkout -q -f topic~1",
    "git restore --staged --worktree .",
    "git reset -q --hard HEAD~1",
    "git reset -q --soft HEAD~1 && git reset -q",
    "git clean -qfd",
    "git clean -qfdx",
    "git stash -q -u",
    "git stash drop -q",
    "git stash clear",
    "git stash -q; git stash pop -q; git stash pop -q",
    "git switch -q -f --detach v1",
    "git branch -q -D spare",
    "git worktree remove --force ../tree",
    "git commit -qam wip && git rebase -q --onto v1 main~1 main",
    "git commit -qam x --amend && git tag -d v1",
    "git reflog expire --expire=now --all && git stash clear && git gc -q --prune=now",
    "git stash -q; FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch --msg-filter 'echo x' HEAD",
    "git update-ref -d refs/heads/topic",
    "git rm -rq --cached src && git rm -q -f staged.txt",
    "git mv README R2 && git add -A && git commit -qm all",
    "git merge -q topic -m merge",
    "git archive -o ../old.tar v1 && tar -xf ../old.tar && rm ../old.tar",
    "printf '%s\\n' '--- README' '+++ README' '@@ -1 +1 @@' '-keep' '+patched' | patch -s -p0",
    "chmod -R 777 . && chmod 000 notes.txt",
    "ln -sfn /etc link && rm dangling && ln -s README dangling",
    "rm run.sh && mkdir run.sh && touch run.sh/inside",
    "rm -rf empty && echo file > empty",
    'python3 -c \'import shutil; shutil.rmtree("src"); open("made", "w").write("x")\'',
    "cd src && rm -rf * && cd .. && rm -rf build",
    "rm -rf ../tree && git worktree prune",
    "rm -f .git/index .git/HEAD && mv .git/refs .git/r2",
    "find .git/objects -type f -name '[0-9a-f]*' -delete",
    "perl -pi -e 's/o/0/g' README src/*.py; mv $(printf 'caf\\351') cafe",
]


def shell(folder: Path, text: str) -> str:
    run = ["bash", "-c", text]
    done = subprocess.run(run, cwd=folder, env=ENVIRONMENT, capture_output=True, check=True)
    return done.stdout.decode(errors="surrogateescape")


def disk(top: Path) -> dict[bytes, tuple[int, bytes]]:
    """Everything below a folder: modes, contents, where links lead. Git's objects apart."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = os.readlink(path) if stat.S_ISLNK(mode) else b""
            if stat.S_ISREG(mode):
                content = Path(os.fsdecode(path)).read_bytes()
            if not OBJECT.fullmatch(path):
                found[path] = (mode, content)
    return found


def repository(folder: Path) -> str:
    """What git says of it, looking closely."""
    asked = (
        "git status --porcelain=v2 --branch --ignored",
        "git for-each-ref",
        "git stash list",
        "git reflog --all",
        "git worktree list",
        "git ls-files --stage",
        "git rev-list --all --reflog --objects",
    )
    return shell(folder, "git fsck --full --no-dangling 2>/dev/null && " + " && ".join(asked))


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one of everything, made once; its worktree lies beside it."""
    top = tmp_path_factory.mktemp("pattern")
    (top / "work").mkdir()
    shell(top / "work", SETTING)
    return top


@pytest.fixture
def work(pattern: Path, tmp_path: Path) -> Path:
    top = tmp_path / "top"
    shutil.copytree(pattern, top, symlinks=True)
    for file in (top / "work/.git/worktrees/tree/gitdir", top / "tree/.git"):
        file.write_text(file.read_text().replace(str(pattern), str(top)))
    return top / "work"


def keeper(work: Path, limits: Limits | None = None) -> Snapshots:
    return Snapshots(work.parent.parent / "home", "p", folders=(str(work),), limits=limits)


def busy(work: Path, *commands: str, snapshots: Snapshots | None = None) -> Agent:
    """An agent whose model runs these commands, one in each turn."""
    lines = [line for text in commands for line in (call("Bash", command=text), say("done"))]
    guard = Guard(mode="bypass", folders=(str(work),))
    person = RecordingPerson(Answer(allow=True))
    kept = snapshots or keeper(work)
    return agent(
        *(work, *lines), tools=[BASH], session=begun(), guard=guard, person=person, keeper=kept
    )


def back(one: Agent, work: Path, number: int = 0) -> rewinding.Way:
    snapshots = keeper(work)
    way = rewinding.before_turn(log(one).entries, snapshots, number=number)
    outcome = rewinding.go(one.session, snapshots, way)
    assert outcome.failed == ()
    return way


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_destroys_comes_back(work: Path, command: str) -> None:
    told, before = repository(work), disk(work.parent)
    one = busy(work, command)
    assert play(one) == "end"
    (result,) = facts(one, Result)
    assert disk(work.parent) != before or "objects" in command, words(result.content)
    assert back(one, work).theirs == ()
    assert disk(work.parent) == before
    assert repository(work) == told
