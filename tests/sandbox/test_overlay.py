"""An attempt: a command runs in a copy; what it did there is kept whole or leaves no trace."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path

import anyio
import pytest

from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command, StaleFile, WorkspaceChange
from travois.process.local_processes import LocalProcesses
from travois.sandbox.overlay import Overlay
from travois.sandbox.probe import SandboxSupport, find_sandbox_support

SECONDS = 180.0
SET = (
    f"{os.path.realpath(sys.executable)} -ISc"
    " 'import os, sys; p, n, v = sys.argv[1:]; os.setxattr(p, n, v.encode())'"
)


@cache
def walls() -> SandboxSupport:
    return find_sandbox_support(None)


def works() -> bool:
    return all(check.works for check in walls().checks if check.name in ("namespaces", "overlay"))


pytestmark = pytest.mark.skipif(not works(), reason="no namespaces or no overlay here")

KINDS = {
    "nothing": "cat a d/b",
    "a file is added": "echo new > new; echo deep > d/deep",
    "a file is changed": "echo more >> a; printf x | dd of=d/b conv=notrunc status=none",
    "a file is emptied": ": > a",
    "a file is replaced": "echo other > t; mv t a",
    "a file is deleted": "rm a d/b",
    "a file is renamed": "mv a z; mv d/b e/b",
    "a mode is changed": "chmod 755 a; chmod 600 d/b; chmod 700 .",
    "a time is changed": "touch -d '2001-02-03 04:05:06' a",
    "an old time hides a change": "cp -p a t; tr a b < t > a; touch -r t a; rm t",
    "an attribute is added": f"{SET} d/b user.colour red",
    "a folder is added": "mkdir -p new/er/est; chmod 750 new/er; echo x > new/er/est/x",
    "a folder is deleted": "rm -r d",
    "a folder is deleted and made again": "rm -r d; mkdir d; echo other > d/other",
    "a folder is moved": "mv d moved",
    "a folder's mode is changed": "chmod 711 d",
    "a closed folder": "mkdir shut; echo x > shut/x; chmod 000 shut; chmod 400 a; chmod 000 e/c",
    "a read-only folder": "chmod 700 ro; rm ro/x; echo y > ro/y; chmod 555 ro",
    "a file becomes a folder": "rm a; mkdir a; echo x > a/x",
    "a folder becomes a file": "rm -r d; echo x > d",
    "a file becomes a link": "ln -sf d/b a",
    "a folder becomes a link": "rm -r d; ln -s e d",
    "links come, change and go": "ln -s nowhere n; ln -sfn d link; rm broken; ln -s /etc x",
    "hard links are made": "echo x > one; ln one two; ln a three; mkdir f; ln two f/four",
    "a pipe is made": "mkfifo pipe",
    "odd names": "echo x > $'a\\nb'; echo x > 'a b,c:d\\e'; mkdir é; echo x > é/ü; echo x > ./-rf",
    "much": "for i in $(seq 300); do echo $i > m$i; done; head -c 3000000 /dev/zero > big",
}


def furnish(folder: Path) -> Path:
    """A workspace with one of everything."""
    for name in ("d", "d/sub", "e", "ro"):
        (folder / name).mkdir(parents=True)
    for name in ("a", "d/b", "d/sub/s", "e/c", "ro/x"):
        (folder / name).write_text(f"aaa {name}\n")
    (folder / "link").symlink_to("a")
    (folder / "broken").symlink_to("nowhere/at/all")
    (folder / "ro").chmod(0o555)
    folder.chmod(0o755)
    return folder


def shell(text: str, folder: Path) -> None:
    subprocess.run(["/bin/bash", "-c", text], cwd=folder, check=False, capture_output=True)


async def appears(path: Path) -> None:
    with anyio.fail_after(SECONDS):
        while not path.exists():  # noqa: ASYNC110 - it happens outside of us
            await anyio.sleep(0.01)


Tree = dict[str, tuple[object, ...]]


def tree(folder: Path) -> Tree:
    """Everything that can be seen of a folder but when and where it is."""
    found, inodes = Tree(), dict[int, str]()
    for path in (folder, *sorted(folder.rglob("*"))):
        name, seen = str(path.relative_to(folder)), path.lstat()
        first = inodes.setdefault(seen.st_ino, name)
        attributes = {x: os.getxattr(path, x, follow_symlinks=False) for x in attributes_of(path)}
        found[name] = (
            oct(seen.st_mode),
            seen.st_uid,
            content(path, seen.st_mode),
            first,
            attributes,
        )
    return found


def attributes_of(path: Path) -> list[str]:
    return os.listxattr(path, follow_symlinks=False)


def content(path: Path, mode: int) -> bytes | str:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if not stat.S_ISREG(mode):
        return ""
    if os.access(path, os.R_OK):
        return path.read_bytes()
    return "closed"


def times(folder: Path) -> dict[str, tuple[int, int]]:
    paths = (folder, *folder.rglob("*"))
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in paths}


class Room:
    """A workspace, a place for temporary files, and somebody who runs commands."""

    def __init__(self, folder: Path, processes: LocalProcesses) -> None:
        self.work = furnish(folder / "a,b:c" / "work")
        self.temp = folder / "session" / "temp"
        self.temp.mkdir(parents=True)
        self.processes = processes
        self.pinned = tuple(str(self.work / name) for name in ("pinned", "missing/pin"))

    async def attempt(self, text: str, *, timeout: float = SECONDS) -> Overlay:
        cage = SandboxProfile("try", (str(self.work),), temp=str(self.temp), pinned=self.pinned)
        command = Command(("/bin/bash", "-c", text), str(self.work), sandbox=cage)
        return await self.processes.run_attempt(command, timeout=timeout)

    def left(self) -> list[str]:
        return sorted(os.listdir(self.temp.parent))

    def told(self, attempt: Overlay) -> set[str]:
        return {told(change, self.work) for change in attempt.changes}


def told(change: WorkspaceChange, work: Path) -> str:
    was = f" from {os.path.relpath(change.was, work)}" if change.was else ""
    return f"{change.kind} {os.path.relpath(change.path, work)} {change.size}{was}"


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[Callable[[Room], Awaitable[None]]], None]]:
    def played(scene: Callable[[Room], Awaitable[None]]) -> None:
        async def main() -> None:
            processes = LocalProcesses(support=walls())
            try:
                await scene(Room(tmp_path, processes))
            finally:
                await processes.aclose()

        anyio.run(main)

    yield played
    for root, folders, _ in os.walk(tmp_path):
        for name in folders:
            if not os.path.islink(os.path.join(root, name)):
                os.chmod(os.path.join(root, name), 0o700)


Play = Callable[[Callable[[Room], Awaitable[None]]], None]


@pytest.mark.parametrize("text", KINDS.values(), ids=KINDS)
def test_what_is_kept_is_what_a_real_run_would_have_left(
    play: Play, tmp_path: Path, text: str
) -> None:
    async def scene(room: Room) -> None:
        real = furnish(tmp_path / "real")
        shell(text, real)
        attempt = await room.attempt(text)
        assert await attempt.keep() == ()
        assert tree(room.work) == tree(real)
        assert bool(attempt.changes) == (text != KINDS["nothing"])
        assert room.left() == ["temp"]

    play(scene)


@pytest.mark.parametrize("text", KINDS.values(), ids=KINDS)
def test_what_is_dropped_leaves_no_trace(play: Play, text: str) -> None:
    async def scene(room: Room) -> None:
        before = tree(room.work), times(room.work)
        attempt = await room.attempt(text)
        assert tree(room.work) == before[0]
        await attempt.drop()
        assert (tree(room.work), times(room.work)) == before
        assert room.left() == ["temp"]

    play(scene)


def test_the_changes_are_told(play: Play) -> None:
    async def scene(room: Room) -> None:
        text = (
            "echo new > new; echo more >> a; rm d/b; mv d/sub/s e/t; mkdir f; chmod 700 e;"
            "ln -sfn d link; cat e/c > /dev/null; true >> e/c; exit 3"
        )
        attempt = await room.attempt(text)
        assert room.told(attempt) == {
            "added new 4",
            "changed a 11",
            "deleted d/b 0",
            "renamed e/t 12 from d/sub/s",
            "added f 0",
            "changed e 0",
            "changed link 1",
        }
        assert attempt.completed.status == 3
        assert await attempt.read(str(room.work / "a")) == b"aaa a\nmore\n"
        await attempt.drop()

    play(scene)


MEANWHILE = [
    "echo theirs >> a",
    "touch a",
    "chmod 700 a",
    "echo theirs > new",
    "echo theirs > d/new",
    "rm d/b; ln -s /etc/passwd d/b",
    "mv d elsewhere; ln -s elsewhere d",
]
OURS = "echo ours > a; echo ours > new; rm -r d"


async def refused(room: Room, attempt: Overlay) -> None:
    before = tree(room.work), times(room.work)
    with pytest.raises(StaleFile):
        await attempt.keep()
    assert (tree(room.work), times(room.work)) == before
    await attempt.drop()
    assert room.left() == ["temp"]


@pytest.mark.parametrize("theirs", [*MEANWHILE, "rm a", "rm a; mkdir a"])
def test_nothing_is_kept_over_what_changed_after_it_ended(play: Play, theirs: str) -> None:
    async def scene(room: Room) -> None:
        attempt = await room.attempt(OURS)
        shell(theirs, room.work)
        await refused(room, attempt)

    play(scene)


@pytest.mark.parametrize("theirs", MEANWHILE)
def test_nothing_is_kept_over_what_changed_while_it_ran(play: Play, theirs: str) -> None:
    async def scene(room: Room) -> None:
        results: list[Overlay] = []

        async def tried() -> None:
            waits = "touch /tmp/on; while [ -e /tmp/on ]; do sleep 0.01; done;"
            results.append(await room.attempt(f"{waits} {OURS}"))

        async with anyio.create_task_group() as group:
            group.start_soon(tried)
            await appears(room.temp / "on")
            shell(theirs, room.work)
            (room.temp / "on").unlink()
        await refused(room, results[0])

    play(scene)


def test_a_change_that_has_nothing_to_do_with_it_does_not_matter(play: Play) -> None:
    async def scene(room: Room) -> None:
        attempt = await room.attempt("echo ours >> a")
        (room.work / "e" / "c").write_text("theirs")
        await attempt.keep()
        assert (room.work / "a").read_text() == "aaa a\nours\n"
        assert (room.work / "e" / "c").read_text() == "theirs"

    play(scene)


def test_protected_and_pinned_names_are_kept_only_if_they_are_named(play: Play) -> None:
    async def scene(room: Room) -> None:
        (room.work / "g" / ".vscode").mkdir(parents=True)
        (room.work / "g" / ".vscode" / "x").write_text("x")
        text = (
            "echo x > .bashrc; mkdir .git; echo x > .git/config; echo x > ok; rm -r g; mkdir head"
        )
        attempt = await room.attempt(text)
        left = await attempt.keep(named=[str(room.work / ".git")])
        assert {told(change, room.work) for change in left} == {
            "added .bashrc 2",
            "added head 0",
            "deleted g 0",
            "deleted g/.vscode 0",
            "deleted g/.vscode/x 0",
        }
        there = {name for name in tree(room.work) if name in (".bashrc", "ok", "head")}
        assert there == {"ok"}
        assert (room.work / ".git" / "config").read_text() == "x\n"
        assert (room.work / "g" / ".vscode" / "x").exists()
        again = await room.attempt("echo x > pinned; mkdir -p missing/pin; echo x > ok2")
        kept = await again.keep()
        assert {told(c, room.work) for c in kept} == {"added pinned 2", "added missing/pin 0"}
        assert {"ok2", "missing"} <= tree(room.work).keys()
        room.pinned = (str(room.work / "e" / "c"),)
        closed = await room.attempt("echo x >> e/c; rm e/c; mv e f")
        assert closed.changes == ()
        await closed.drop()

    play(scene)


def test_a_link_that_leads_out_is_kept_as_a_link_and_never_followed(play: Play) -> None:
    async def scene(room: Room) -> None:
        outside = room.temp.parent / "outside"
        outside.mkdir()
        (outside / "b").write_text("safe")
        attempt = await room.attempt("echo ours > d/b; echo ours > d/new")
        shutil.rmtree(room.work / "d")
        (room.work / "d").symlink_to(outside)
        with pytest.raises((StaleFile, OSError)):
            await attempt.keep()
        await attempt.drop()
        assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("b", "safe")]

    play(scene)


def test_more_folders_are_covered_and_nothing_else_can_be_written(play: Play) -> None:
    async def scene(room: Room) -> None:
        more = room.temp.parent / "more"
        more.mkdir()
        loose = room.temp.parent / "loose"
        loose.write_text("loose")
        cage = SandboxProfile(
            "try",
            (str(room.work), str(room.work / "d")),
            temp=str(room.temp),
            writable=(str(more), str(loose)),
        )
        text = f"echo x > d/x; echo x > {more}/x; echo x > {loose}; echo x > {more.parent}/y"
        command = Command(("/bin/bash", "-c", text), str(room.work), sandbox=cage)
        attempt = await room.processes.run_attempt(command, timeout=SECONDS)
        assert (list(more.iterdir()), loose.read_text()) == ([], "loose")
        await attempt.keep()
        assert (room.left(), loose.read_text()) == (["loose", "more", "temp"], "loose")
        assert ((more / "x").read_text(), (room.work / "d" / "x").read_text()) == ("x\n", "x\n")

    play(scene)


@pytest.mark.parametrize(
    ("text", "status"),
    [("exit 7", 7), ("kill -9 $$", -9), ("yes | head -1; exit $((PIPESTATUS - 100))", 41)],
)
def test_the_command_ends_as_it_would_without_us(play: Play, text: str, status: int) -> None:
    async def scene(room: Room) -> None:
        attempt = await room.attempt(text)
        assert attempt.completed.status == status
        await attempt.drop()

    play(scene)


def test_a_command_that_takes_too_long_can_still_be_dropped(play: Play) -> None:
    async def scene(room: Room) -> None:
        before = tree(room.work), times(room.work)
        attempt = await room.attempt("rm -r d; sleep 60", timeout=0.5)
        assert attempt.completed.timed_out
        await attempt.drop()
        assert (tree(room.work), times(room.work)) == before

    play(scene)


def test_cancelling_an_attempt_leaves_nothing(play: Play) -> None:
    async def scene(room: Room) -> None:
        before = tree(room.work), times(room.work)
        with anyio.move_on_after(SECONDS) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(room.attempt, "rm -r d; touch /tmp/on; sleep 60")
                await appears(room.temp / "on")
                group.cancel_scope.cancel()
        assert not scope.cancelled_caught
        assert (tree(room.work), times(room.work)) == before
        assert room.left() == ["temp"]

    play(scene)


KILLED = """
import sys
from pathlib import Path
import anyio
from tests.sandbox.test_overlay import Room, walls
from travois.process.local_processes import LocalProcesses

async def main():
    room = Room(Path(sys.argv[1]), LocalProcesses(support=walls()))
    print("ready", flush=True)
    sys.stdin.readline()
    await room.attempt("rm -r d; echo x > a; touch /tmp/on; sleep 60")

anyio.run(main)
"""


def test_killing_us_in_the_middle_leaves_the_workspace_as_it_was(tmp_path: Path) -> None:
    here = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert here.stdin and here.stdout and here.stdout.readline() == b"ready\n"
    work, temp = tmp_path / "a,b:c" / "work", tmp_path / "session" / "temp"
    before = tree(work), times(work)
    here.stdin.write(b"\n")
    here.stdin.flush()
    anyio.run(appears, temp / "on")
    here.send_signal(signal.SIGKILL)
    here.wait()
    here.stdin.close()
    here.stdout.close()
    assert (tree(work), times(work)) == before
    assert len(os.listdir(temp.parent)) == 2


def test_what_a_killed_process_left_is_swept_away_and_nothing_that_is_in_use(play: Play) -> None:
    async def scene(room: Room) -> None:
        used = await room.attempt("echo x > x")
        left = room.temp.parent / "travois-try-left"
        (left / "0" / "upper" / "shut").mkdir(parents=True)
        (left / "0" / "upper" / "shut").chmod(0)
        for path in room.temp.parent.iterdir():
            os.utime(path, (0, 0))
        again = await room.attempt("echo y > y")
        assert not left.exists()
        await used.keep()
        await again.keep()
        assert {"x", "y"} < tree(room.work).keys()
        assert room.left() == ["temp"]

    play(scene)


def test_where_there_can_be_no_copy_that_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        room = Room(tmp_path, LocalProcesses(support=SandboxSupport("partial", "")))
        with pytest.raises(OSError, match="trying a command in a copy needs namespaces"):
            await room.attempt("true")
        assert room.left() == ["temp"]

    anyio.run(main)
