"""Whatever a command does to a workspace, going back brings it back byte for byte."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from time import sleep

import msgspec
import pytest

from tests.engine.fakes import RecordingPerson, agent, begun, facts, log, play, sendable, with_parts
from travois.core.content import Text, extract_text
from travois.core.facts import Entry, Result, User
from travois.engine.agent import Agent
from travois.permissions.decide import Permissions
from travois.ports.world import PersonAnswer, UserWarned
from travois.providers.replies import Reply
from travois.providers.request import Request
from travois.snapshots import rewind as rewinding
from travois.snapshots import scan
from travois.snapshots.snapshots import Snapshots
from travois.snapshots.take import SnapshotLimits
from travois.snapshots.tree import GIT_OBJECT_PATH, Snapshot, SnapshotRoot
from travois.testing import ScriptLine, call, say
from travois.tools.edit import EDIT
from travois.tools.shell.bash import BASH

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


def needs(text: str) -> None:
    """Skip the test where a program that a command line pipes into is not installed."""
    if "| patch " in text and shutil.which("patch") is None:
        pytest.skip("patch is not installed")


def shell(folder: Path, text: str) -> str:
    run = ["bash", "-c", text]
    done = subprocess.run(run, cwd=folder, env=ENVIRONMENT, capture_output=True, check=True)
    return done.stdout.decode(errors="surrogateescape")


def read_if_allowed(path: Path) -> bytes:
    """Read a file, or say that it cannot be read: `chmod 000` keeps out all but root."""
    try:
        return path.read_bytes()
    except PermissionError:
        return b"(may not be read)"


def disk(top: Path) -> dict[bytes, tuple[int, bytes]]:
    """Everything below a folder: modes, contents, where links lead. Git's objects apart."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = os.readlink(path) if stat.S_ISLNK(mode) else b""
            if stat.S_ISREG(mode):
                content = read_if_allowed(Path(os.fsdecode(path)))
            if not GIT_OBJECT_PATH.fullmatch(path):
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
    shell(top / "work", "git update-index -q --refresh; git -C ../tree update-index -q --refresh")
    return top / "work"


@pytest.fixture(autouse=True)
def heed_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what git holds be taken from git in small trees, too."""
    monkeypatch.setattr(scan, "UNTRACKED_READS", 0)


def keeper(work: Path, limits: SnapshotLimits | None = None) -> Snapshots:
    return Snapshots(work.parent.parent / "home", "p", folders=(str(work),), limits=limits)


def busy(work: Path, *commands: str, lines: tuple[ScriptLine, ...] = ()) -> Agent:
    """An agent whose model runs these commands, one in each turn."""
    each = ((call("Bash", command=text), say("done")) for text in commands)
    lines = lines or tuple(line for pair in each for line in pair)
    guard = Permissions(mode="bypass", folders=(str(work),))
    person = RecordingPerson(PersonAnswer(allow=True))
    more = {"guard": guard, "person": person, "keeper": keeper(work)}
    return agent(work, *lines, tools=[BASH], session=begun(), **more)


def back(one: Agent, work: Path, number: int = 0) -> rewinding.RewindPlan:
    snapshots = keeper(work)
    way = rewinding.plan_rewind_to_turn(log(one).entries, snapshots, number=number)
    outcome = rewinding.apply_rewind(one.session, snapshots, way)
    assert outcome.failed == ()
    return way


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_destroys_comes_back(work: Path, command: str) -> None:
    needs(command)
    told, before = repository(work), disk(work.parent)
    one = busy(work, command)
    assert play(one) == "end"
    (result,) = facts(one, Result)
    assert disk(work.parent) != before or "objects" in command, extract_text(result.content)
    assert back(one, work).theirs == ()
    assert disk(work.parent) == before
    assert repository(work) == told


# --- what goes wrong ------------------------------------------------------------------------------


def entries(one: Agent) -> list[Entry]:
    return log(one).entries


def test_what_others_changed_between_and_after_turns_is_kept(work: Path) -> None:
    one = busy(work, "echo one > README", "echo two > src/c.py")
    play(one, "first")
    (work / "notes.txt").write_text("mine\n")
    play(one, "second")
    (work / "README").write_text("mine too\n")
    (work / "fresh").write_text("mine as well\n")
    way = rewinding.plan_rewind_to_turn(entries(one), keeper(work), number=0)
    assert [os.path.basename(c.path) for c in way.theirs] == [b"README", b"fresh", b"notes.txt"]
    assert [os.path.basename(c.path) for c in way.changes] == [b"c.py"]


def test_a_commit_that_others_made_keeps_the_repository_as_it_is(work: Path) -> None:
    one = busy(work, "git checkout -q -f topic~1")
    play(one)
    shell(work, "git switch -q -c mine && git commit -q --allow-empty -m mine")
    way = rewinding.plan_rewind_to_turn(entries(one), keeper(work), number=0)
    assert {b"/.git/" in change.path for change in way.changes} == {False}
    assert {b"/.git/" in change.path for change in way.theirs} == {True}


def test_going_back_and_forth_and_back_ends_where_it_should(work: Path) -> None:
    before = disk(work)
    one = busy(work, "rm -rf src .git", "echo x > made")
    play(one, "first")
    after = disk(work)
    play(one, "second")
    back(one, work, number=1)
    assert disk(work) == after
    back(one, work, number=0)
    assert disk(work) == before
    for expected in (after, before):
        snapshots = keeper(work)
        way = rewinding.plan_rewind_undo(entries(one), snapshots)
        rewinding.apply_rewind(one.session, snapshots, way)
        assert disk(work) == expected
    said = [i.fact.content for i in one.session.view.items if isinstance(i.fact, User)]
    assert said == []
    assert play(one, "third") == "end"


def test_a_message_during_a_turn_is_a_place_to_go_back_to(work: Path) -> None:
    def steered(request: Request) -> Reply:
        one.turn.inbox.append(User((Text("also c"),)))
        return call("Bash", command="echo two > b")

    lines = call("Bash", command="echo one > a"), steered, call("Bash", command="echo three > c")
    one = busy(work, lines=(*lines, say("done")))
    play(one, "a and b")
    back(one, work, number=1)
    assert [(work / name).exists() for name in "abc"] == [True, True, False]
    sendable(entries(one))


@pytest.mark.parametrize("at", [1, 2, 4, 8])
def test_killed_while_taking_a_snapshot_the_next_one_is_whole(work: Path, at: int) -> None:
    before = disk(work)
    mortal = f"""
import os, signal, sqlite3, sys
from travois.snapshots import database as shelf
put, count = shelf.SnapshotDatabase.put, 0
def dying(self, content, **more):
    global count
    count += 1
    if count == {at * 5}:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(self, content, **more)
shelf.SnapshotDatabase.put = dying
from pathlib import Path
from travois.snapshots.snapshots import Snapshots
Snapshots(Path(sys.argv[1]), "p", folders=(sys.argv[2],)).take("x")
"""
    home = work.parent.parent / "home"
    died = subprocess.run([sys.executable, "-c", mortal, str(home), str(work)], check=False)
    assert died.returncode == -9
    one = busy(work, "rm -rf src .git README")
    play(one)
    back(one, work)
    assert disk(work) == before


@pytest.mark.parametrize("at", [1, 5, 20])
def test_killed_while_restoring_the_same_command_finishes_it(work: Path, at: int) -> None:
    before = disk(work)
    one = busy(work, "rm -rf src .git README; chmod 777 run.sh; echo x > made")
    play(one)
    mortal = f"""
import os, signal, sys
from travois.snapshots import restore
from travois.snapshots.tree import PathChange
from travois.snapshots.snapshots import Snapshots
from pathlib import Path
import msgspec
rename, count = os.rename, 0
def dying(*args, **more):
    global count
    count += 1
    if count == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(*args, **more)
os.rename = dying
changes = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[PathChange])
Snapshots(Path(sys.argv[1]), "p", folders=(sys.argv[2],)).restore(changes)
"""
    way = rewinding.plan_rewind_to_turn(entries(one), keeper(work), number=0)
    died = subprocess.run(
        [sys.executable, "-c", mortal, str(work.parent.parent / "home"), str(work)],
        input=msgspec.msgpack.encode(way.changes),
        check=False,
    )
    assert died.returncode == -9
    assert disk(work) != before
    assert back(one, work).theirs == ()
    assert disk(work) == before


def test_old_snapshots_make_room_and_what_they_shared_stays(work: Path) -> None:
    told: list[str] = []
    shutil.rmtree(work / "node_modules")
    few = keeper(work, SnapshotLimits(count=10))
    for number in range(12):
        (work / "README").write_text(f"{number}\n")
        last = few.take("x", remarks=told)
    assert told == ["Removed the 2 oldest snapshots to make room."]
    before = disk(work)
    shutil.rmtree(work)
    fresh = keeper(work)
    kept = fresh.find(last)
    assert kept is not None
    now = fresh.find(fresh.take("y"))
    assert now is not None
    assert fresh.restore(fresh.compare((now,), (kept,))).failed == ()
    assert disk(work) == before


def test_snapshots_stay_within_their_bound(work: Path) -> None:
    room = 8 << 20
    told: list[str] = []
    few = keeper(work, SnapshotLimits(room=room))
    for _ in range(8):
        (work / "noise").write_bytes(os.urandom(2 << 20))
        few.take("x", remarks=told)
    assert any("oldest snapshots to make room" in text for text in told)
    home = work.parent.parent / "home"
    assert sum(p.stat().st_size for p in home.rglob("*.db*")) <= room + (3 << 20)


def test_what_is_too_large_is_said_and_left_alone(work: Path) -> None:
    told: list[str] = []
    with (work / "huge").open("wb") as file:
        file.truncate(scan.MAX_WORK_FILE_BYTES + 1)
    few = keeper(work)
    name = few.take("x", remarks=told)
    assert told == [f"Snapshots do not cover {work}/huge: too large or unreadable."]
    (work / "huge").unlink()
    then, now = few.find(name), few.find(few.take("y"))
    assert then is not None
    assert now is not None
    assert few.compare((now,), (then,)) == []


def test_an_unchanged_tree_is_not_read_and_gives_the_same_name(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep(2 * scan.RACY_NANOSECONDS / 1e9)  # what has just changed is looked at twice
    name = keeper(work).take("x")
    monkeypatch.setattr(scan.TreeScan, "_read_file_node", None)
    assert keeper(work).take("again") == name


def test_a_file_written_twice_within_a_moment_is_kept_as_it_is_last(work: Path) -> None:
    few = keeper(work)
    for text in ("aaa", "bbb", "ccc"):
        (work / "racy").write_text(text)
        os.utime(work / "racy", ns=(1, 1))
        found = few.find(few.take("x"))
        assert found is not None
        (change,) = few.compare(
            (found,), (Snapshot("", 0.0, "", (SnapshotRoot(racy(work), None),)),)
        )
        assert few.read_content(change.old) == text.encode()


def racy(work: Path) -> bytes:
    return os.fsencode(work / "racy")


def test_nothing_is_written_through_a_link_that_came_meanwhile(work: Path) -> None:
    one = busy(work, "rm src/a.py")
    play(one)
    snapshots = keeper(work)
    way = rewinding.plan_rewind_to_turn(entries(one), snapshots, number=0)
    outside = work.parent / "outside"
    (work / "src").rename(outside)
    (work / "src").symlink_to(outside)
    assert len(snapshots.restore(list(way.changes)).failed) == 1
    assert not (outside / "a.py").exists()


def test_a_snapshot_that_cannot_be_taken_is_told_to_the_user_and_the_model(work: Path) -> None:
    home = work.parent.parent / "home"
    home.mkdir()
    (home / "snapshots").write_text("in the way")
    one = busy(work, "rm notes.txt")
    shown: list[object] = []
    one.session.emit = shown.append  # type: ignore[method-assign]
    play(one)
    assert not (work / "notes.txt").exists()
    notes = [extract_text(f.content) for f in facts(one, User) if f.origin == "note"]
    assert notes == [
        "No snapshot was taken before this call: File exists. A rewind cannot undo it."
    ]
    warned = [delta.text for delta in shown if isinstance(delta, UserWarned)]
    assert warned == [
        "No snapshot was taken, so a rewind cannot restore files to here: File exists"
    ]


def test_the_question_names_what_a_rewind_does_not_restore(work: Path) -> None:
    one = busy(work, "./run.sh", "rm -rf node_modules")
    one.permissions.guard = Permissions(mode="default", folders=(str(work),))
    play(one, "first")
    play(one, "second")
    assert isinstance(one.permissions.person, RecordingPerson)
    script, removal = one.permissions.person.asked
    warning = f"a rewind does not restore {work}/node_modules"
    assert warning in script.effects
    assert warning not in removal.effects  # what the command names is covered


def test_a_file_that_the_user_changed_before_a_turn_of_edits_stays(work: Path) -> None:
    """The end of a turn of edits says nothing of other files; what earlier turns left does."""
    edit = call("Edit", file_path="README", old_string="keep", new_string="other")
    lines = call("Bash", command="echo one > x.log"), say("done"), edit, say("done")
    one = busy(work, lines=(*lines, call("Bash", command="rm notes.txt"), say("done")))
    with_parts(one, tools={**one.tools.by_name, EDIT.name: EDIT})
    play(one, "first")
    (work / "notes.txt").write_text("mine\n")
    play(one, "second")
    play(one, "third")
    way = rewinding.plan_rewind_to_turn(entries(one), keeper(work), number=0)
    assert [os.path.basename(c.path) for c in way.theirs] == [b"notes.txt"]
    assert [os.path.basename(c.path) for c in way.changes] == [b"README", b"x.log"]
    way = rewinding.plan_rewind_to_turn(entries(one), keeper(work), number=2)
    assert [os.path.basename(c.path) for c in way.changes] == [b"notes.txt"]
    back(one, work, number=2)
    assert (work / "notes.txt").read_text() == "mine\n"


def test_a_file_that_was_made_before_the_tree_was_saved_goes_away_again(work: Path) -> None:
    kept, new = keeper(work), work / "new.py"
    first = kept.take_files("before Write", [os.fsencode(new)]).name
    new.write_text("x = 1\n")
    second = kept.take("before Bash")
    (work / "notes.txt").write_text("other\n")
    last = kept.take("after the turn")
    layers = [found for name in (first, second) if (found := kept.find(name)) is not None]
    ended = kept.find(last)
    assert ended is not None
    changes = {os.fsdecode(c.path): c.new for c in kept.compare((ended,), layers)}
    assert changes[str(new)] is None and changes[str(work / "notes.txt")] is not None
