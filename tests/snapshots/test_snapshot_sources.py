"""Where the contents of a snapshot come from: git's objects, the files, or what the kernel told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.processes import processes
from travois.snapshots import scan
from travois.snapshots.database import open_snapshot_database
from travois.snapshots.scan import FolderWatch
from travois.snapshots.snapshots import Snapshots
from travois.snapshots.take import SnapshotLimits, SnapshotRequest, WatchedTree
from travois.snapshots.tree import DiskState, Snapshot, SnapshotNode

ENVIRONMENT = {
    **{f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "file",
    "PATH": os.environ["PATH"],
}


def shell(folder: Path, text: str) -> None:
    subprocess.run(["bash", "-ec", text], cwd=folder, env=ENVIRONMENT, check=True)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two committed files whose index was written a while after them."""
    monkeypatch.setattr(scan, "UNTRACKED_READS", 0)
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.py").write_text("one\n")
    (folder / "b.txt").write_text("two\n")
    shell(folder, "git init -q -b main; git config gc.auto 0; git add -A; git commit -qm first")
    settle(folder)
    return folder


def settle(folder: Path) -> None:
    """Let enough time pass that neither git nor a snapshot takes a file for just written."""
    time.sleep(0.1)
    refresh = "git update-index -q --really-refresh || true"
    shell(folder, f"{refresh}; touch $(git rev-parse --git-path index)")
    time.sleep(0.1)


def keeper(work: Path) -> Snapshots:
    return Snapshots(work.parent / "home", "p", folders=(str(work),))


def taken(few: Snapshots) -> Snapshot:
    found = few.find(few.take("x"))
    assert found is not None
    return found


def node(few: Snapshots, snapshot: Snapshot, path: Path) -> SnapshotNode:
    with open_snapshot_database(few._path) as shelf:
        found = DiskState(shelf, (snapshot,)).node_at(os.fsencode(path))
    assert found is not None
    return found


def goes_back(few: Snapshots, snapshot: Snapshot) -> None:
    """Bring everything back to a snapshot."""
    outcome = few.restore(few.compare((taken(few),), (snapshot,)))
    assert outcome.failed == ()


# --- what git holds -------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_as", ["loose", "packed"])
def test_a_committed_file_is_known_by_its_blob_and_outlives_the_repository(
    work: Path, kept_as: str
) -> None:
    if kept_as == "packed":
        shell(work, "git repack -qad")
    few = keeper(work)
    then = taken(few)
    assert node(few, then, work / "src/a.py").git_blob
    shutil.rmtree(work)
    work.mkdir()
    goes_back(few, then)
    assert (work / "src/a.py").read_text() == "one\n"
    shell(work, "git fsck --strict && git status --porcelain | diff /dev/null -")


def test_blobs_that_git_throws_away_stay(work: Path) -> None:
    few = keeper(work)
    then = taken(few)
    shell(work, "git checkout -q --orphan other; git rm -rqf .; git commit -q --allow-empty -m x")
    shell(work, "git branch -D main; git reflog expire --expire=now --all; git gc -q --prune=now")
    again = keeper(work)
    taken(again)
    goes_back(again, then)
    assert (work / "src/a.py").read_text() == "one\n"


def test_blobs_stay_while_a_snapshot_needs_them_though_none_lists_their_pack(work: Path) -> None:
    shell(work, "git repack -qad")
    few = Snapshots(work.parent / "home", "p", folders=(str(work),), limits=SnapshotLimits(count=5))
    taken(few)
    shell(work, "git rm -rq --cached . && git commit -q --amend --allow-empty -m x")
    shell(work, "git reflog expire --expire=now --all; git gc -q --prune=now")
    for number in range(5):
        (work / "noise").write_text(str(number))
        then = taken(few)
    with open_snapshot_database(few._path) as shelf:
        assert len(list(shelf.newest())) == 4
    assert node(few, then, work / "src/a.py").git_blob
    (work / "src/a.py").unlink()
    goes_back(few, then)
    assert (work / "src/a.py").read_text() == "one\n"


ODD: dict[str, Callable[[Path], None]] = {
    "changed": lambda work: shell(work, "echo TWO > b.txt"),
    "assumed unchanged": lambda work: shell(
        work, "git update-index --assume-unchanged b.txt; echo TWO > b.txt; touch .git/index"
    ),
    "skipped": lambda work: shell(
        work, "git update-index --skip-worktree b.txt; echo TWO > b.txt; touch .git/index"
    ),
    "racy": lambda work: shell(
        work, "echo TWO > b.txt; git add b.txt; echo 2WO > b.txt; touch -r b.txt .git/index"
    ),
    "line ends": lambda work: shell(
        work, "echo 'b.txt eol=crlf' > .gitattributes; rm b.txt; git checkout b.txt; "
    ),
    "filter": lambda work: shell(
        work,
        "git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'; "
        "echo 'b.* filter=up' > .gitattributes; git add --renormalize .; git commit -qam up; "
        "rm b.txt; git checkout -q b.txt",
    ),
    "filter in a macro": lambda work: shell(
        work,
        "git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'; "
        "printf '[attr]up filter=up\\nb.* up\\n' > .git/info/attributes; "
        "git add --renormalize .; git commit -qam up; rm b.txt; git checkout -q b.txt",
    ),
    "split index": lambda work: shell(work, "git update-index --split-index; echo 2 > b.txt"),
    "index version 4": lambda work: shell(work, "git update-index --index-version 4"),
    "broken index": lambda work: (
        (work / ".git/index").write_bytes(b"DIRC\0\0\0\2\0\0\0\11x") and None
    ),
}


@pytest.mark.parametrize("oddity", ODD)
def test_what_the_index_says_never_stands_for_other_bytes(work: Path, oddity: str) -> None:
    ODD[oddity](work)
    if oddity not in ("racy", "broken index"):
        time.sleep(0.1)
        os.utime(work / ".git/index")
        time.sleep(0.1)
    before = (work / "b.txt").read_bytes()
    few = keeper(work)
    then = taken(few)
    shutil.rmtree(work)
    work.mkdir()
    goes_back(few, then)
    assert (work / "b.txt").read_bytes() == before


def test_a_committed_file_that_was_read_before_is_not_taken_for_another_one(work: Path) -> None:
    (work / "b.txt").write_text("three\n")
    few = keeper(work)
    then = taken(few)
    assert not node(few, then, work / "b.txt").git_blob
    shell(work, "git commit -qam three")
    settle(work)
    shutil.rmtree(work.parent / "home", ignore_errors=False)
    other = keeper(work)
    with_blob = taken(other)
    assert node(other, with_blob, work / "b.txt").git_blob
    os.utime(work / "b.txt")
    now = taken(other)
    assert not node(other, now, work / "b.txt").git_blob
    paths = [change.path for change in other.compare((with_blob,), (now,))]
    assert os.fsencode(work / "b.txt") not in paths


@pytest.mark.parametrize("kind", ["worktree", "alternates", "submodule"])
def test_repositories_that_share_or_hold_others_come_back(work: Path, kind: str) -> None:
    top = work.parent
    other = top / "other"
    if kind == "worktree":
        shell(work, "git worktree add -q ../other -b other")
    elif kind == "alternates":
        shell(top, "git clone -q --shared work other")
    else:
        shell(top, "git init -q -b main other && git -C other commit -q --allow-empty -m x")
        shell(other, "git -c protocol.file.allow=always submodule --quiet add ../work src")
    settle(other / "src" if kind == "submodule" else other)
    few = Snapshots(top / "home", "q", folders=(str(other),))
    then = taken(few)
    path = other / ("src/b.txt" if kind == "submodule" else "b.txt")
    assert node(few, then, path).git_blob
    path.unlink()
    if kind != "worktree":
        shutil.rmtree(work)
    goes_back(few, then)
    assert path.read_text() == "two\n"


# --- a store that others use, too -----------------------------------------------------------------


def test_two_sessions_take_snapshots_side_by_side(work: Path) -> None:
    mine, theirs = keeper(work), keeper(work)
    first = taken(mine)
    (work / "b.txt").write_text("changed\n")
    second = taken(theirs)
    taken(mine)
    goes_back(theirs, first)
    assert (work / "b.txt").read_text() == "two\n"
    goes_back(mine, second)
    assert (work / "b.txt").read_text() == "changed\n"


def test_contents_that_another_session_drops_during_a_scan_are_stored_again(work: Path) -> None:
    (work / "b.txt").write_text("mine alone\n")
    limits = SnapshotLimits(count=1)
    other = Snapshots(work.parent / "home", "p", folders=(str(work / "src"),), limits=limits)
    dropped: list[int] = []

    def meddle(count: int) -> None:
        if not dropped:
            dropped.append(count)
            for number in range(3):
                (work.parent / "else").write_text(str(number))
                other.take_files("x", [os.fsencode(work.parent / "else")])

    path, own = work.parent / "home/snapshots/p.db", (os.fsencode(work.parent / "home"),)
    tree = WatchedTree(path, own, limits=SnapshotLimits(), listens=False)
    name = tree.take(SnapshotRequest("x", (os.fsencode(work),)), heed=meddle).name
    few = keeper(work)
    then = few.find(name)
    assert then is not None
    (work / "b.txt").unlink()
    goes_back(few, then)
    assert (work / "b.txt").read_text() == "mine alone\n"


# --- what the kernel tells ------------------------------------------------------------------------


@pytest.fixture
def watched(work: Path) -> Callable[[], dict[str, str]]:
    """What the newest snapshot of a tree holds that is watched, by path."""
    try:
        FolderWatch().close()
    except OSError:
        pytest.skip("inotify cannot be used here")
    path, own = work.parent / "home/snapshots/p.db", (os.fsencode(work.parent / "home"),)
    tree = WatchedTree(path, own, limits=SnapshotLimits(), listens=True)

    def contents() -> dict[str, str]:
        name = tree.take(SnapshotRequest("x", (os.fsencode(work),))).name
        then = keeper(work).find(name)
        assert then is not None
        with open_snapshot_database(path) as shelf:
            state = DiskState(shelf, (then,))
            return {
                str(file.relative_to(work)): b"".join(map(shelf.get, found.parts)).decode()
                for file in sorted(work.rglob("*.*"))
                if file.is_file()
                and ".git" not in file.parts
                and (found := state.node_at(os.fsencode(file))) is not None
            }

    return contents


def on_disk(work: Path) -> dict[str, str]:
    files = (file for file in sorted(work.rglob("*.*")) if file.is_file())
    return {str(f.relative_to(work)): f.read_text() for f in files if ".git" not in f.parts}


EVENTS = {
    "nothing": "true",
    "a write": "echo more >> src/a.py",
    "a write of the same size": "printf 'ONE\\n' > src/a.py; touch -d @1 src/a.py",
    "a new file in a new folder": "mkdir -p x/y/z; echo new > x/y/z/n.txt",
    "a folder that moves": "mv src moved; echo more >> moved/a.py",
    "a folder that is made again": "rm -r src; mkdir src; echo other > src/a.py",
    "a folder in place of another": "mkdir q; echo q > q/a.py; rm -r src; mv q src; >src/b.py",
    "a rename over a file": "echo else > t.txt; mv t.txt b.txt",
    "a file that is gone": "rm b.txt",
    "very many changes": "for i in $(seq 400); do mkdir m$i; echo $i > m$i/f.txt; done; rm -r m1*",
}


@pytest.mark.parametrize("event", EVENTS)
def test_a_watched_tree_is_seen_as_it_is(
    work: Path, watched: Callable[[], dict[str, str]], event: str
) -> None:
    assert watched() == on_disk(work)
    for _ in range(2):
        shell(work, f"set +e; exec 2> /dev/null; {EVENTS[event]}; true")
        assert watched() == on_disk(work)


def test_a_file_that_is_changed_by_another_name_is_seen(
    work: Path, watched: Callable[[], dict[str, str]]
) -> None:
    outside = work.parent / "outside"
    os.link(work / "src/a.py", outside)
    assert watched() == on_disk(work)
    with outside.open("a") as file:
        file.write("more\n")
    assert watched()["src/a.py"] == "one\nmore\n"


def test_an_overflow_of_events_is_noticed(
    work: Path, watched: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    assert watched() == on_disk(work)
    for number in range(20_000):
        os.utime(work / ("b.txt" if number % 2 else "src/a.py"))
    (work / "src/a.py").write_text("after the overflow\n")
    assert watched() == on_disk(work)


# --- large trees ----------------------------------------------------------------------------------


def test_a_large_tree_is_looked_at_by_a_process_of_its_own_that_ends_with_us(work: Path) -> None:
    for number in range(5_200):
        (work / f"n{number}").write_text("x")
    few, shown = keeper(work), list[int]()
    few.prepare()
    name = anyio.run(lambda: few.snapshot_workspace(why="x", heed=shown.append)).name
    worker = few._worker
    assert worker is not None
    assert worker.is_alive
    (work / "b.txt").unlink()
    assert anyio.run(lambda: few.snapshot_workspace(why="y")).name != name
    few.close()
    assert not worker.is_alive
    then = few.find(name)
    assert then is not None
    goes_back(few, then)
    assert (work / "b.txt").read_text() == "two\n"


def test_the_process_ends_when_its_session_is_killed(work: Path) -> None:
    for number in range(5_200):
        (work / f"n{number}").write_text("x")
    program = """
import os, sys, signal, anyio
from pathlib import Path
from travois.snapshots.snapshots import Snapshots
few = Snapshots(Path(sys.argv[1]), "p", folders=(sys.argv[2],))
worker = few._get_worker()
worker.prepare(few._build_request(""))
print(worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = [sys.executable, "-c", program, str(work.parent / "home"), str(work)]
    done = subprocess.run(run, capture_output=True, check=False, text=True)
    assert done.returncode == -9
    pid = int(done.stdout)
    while any(each.pid == pid and each.state != "Z" for each in processes()):
        time.sleep(0.01)
    few = keeper(work)
    with open_snapshot_database(few._path) as shelf:
        assert list(shelf.newest()) == []
    then = taken(few)
    (work / "b.txt").unlink()
    goes_back(few, then)
    assert (work / "b.txt").read_text() == "two\n"
