"""Ways out of a cage, tried for real. Each of them works without the cage: that is tried too."""

from __future__ import annotations

import os
import socket
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.process.test_processes import ESCAPES, nap, sleepers
from tests.processes import COUNT_PROGRAMS, run_past_timeout
from tests.sandbox.caged import SECONDS, Mode, Scene, play, run, scene
from travois.process.local_processes import LocalProcesses

__all__ = ["nap"]

each = pytest.mark.parametrize("mode", [None, "full", "partial"], ids=["bare", "bwrap", "landlock"])
both = pytest.mark.parametrize("mode", ["full", "partial"], ids=["bwrap", "landlock"])
ROOT = os.geteuid() == 0
TIOCSTI_CLOSED = Path("/proc/sys/dev/tty/legacy_tiocsti")
SHM = Path("/dev/shm") / f"travois-{os.getpid()}"
OUT = "ESCAPED"

WRITES = {
    "a write outside": "echo x > $OUT/made",
    "a start file of the shell": "echo x >> $OUT/home/.bashrc",
    "a link to a folder outside": "ln -s $OUT link && echo x > link/made",
    "a link that takes the place of a folder": "rm -r sub; ln -s $OUT sub; echo x > sub/made",
    "a second name for a file outside": "ln $OUT/kept mine && echo x >> mine",
    "a move to the outside": "echo x > mine && mv mine $OUT/made",
    "a file taken from outside": "mv $OUT/kept mine",
    "truncation": "truncate -s 0 $OUT/kept",
    "the root of the harness": "echo x > /proc/$HARNESS/root/$OUT/made",
    "our own root": "echo x > /proc/self/root/$OUT/made",
    "shared memory": f"echo x > {SHM}",
    "a hook": "echo x > .git/hooks/post-checkout",
    "a hook of no repository": "mkdir -p bare/.git/hooks; echo x > bare/.git/hooks/h",
    "a pinned name that is not there": "rmdir .mcp.json; rm -f .mcp.json; echo x > .mcp.json",
    "a folder moved onto a pinned name": "mkdir a; echo x > a/b; rmdir .claude; mv -T a .claude",
    "a rename of what a pinned file is in": "mv deep d; mkdir -p deep/er; echo x > deep/er/pinned",
    "a rename of the pinned folder": "mv .git g; mkdir -p .git/hooks; echo x > .git/hooks/h",
    "removal of what is pinned": "rm -f deep/er/pinned",
    "a second name for a pinned file": "ln deep/er/pinned mine && echo x >> mine",
}
"""Shell lines that leave something behind where nothing may change."""


def python(text: str) -> str:
    quoted = textwrap.dedent(text).strip().replace("'", '"')
    return f"{sys.executable} -c '{quoted}\nprint(\"{OUT}\")'"


def syscall(number: int, *args: int) -> str:
    words = ", ".join(map(str, (number, *args)))
    return python(f"import ctypes\nassert ctypes.CDLL(None).syscall({words}) >= 0")


DEEDS = {
    "what the harness knows": f"grep -qs = /proc/$HARNESS/environ && echo {OUT}",
    "a signal to the harness": f"kill -0 $HARNESS && echo {OUT}",
    "a hidden file": "cat $OUT/key",
    "a hidden folder": "cat $OUT/.ssh/id",
    "a hidden folder through a link": "ln -s $OUT/.ssh l; cat l/id",
    "a hidden folder through our own root": "cat /proc/self/root/$OUT/.ssh/id",
    "a namespace": f"unshare -Ur true && echo {OUT}",
    "a mount in a namespace": f"unshare -Urm mount -t tmpfs none /mnt && echo {OUT}",
    "tracing": syscall(101 if os.uname().machine == "x86_64" else 117, 0, 0, 0, 0),
    "a program that runs as its owner": f"cp /bin/true mine && chmod u+s mine && echo {OUT}",
    "a file born to run as its owner": python("""
        import os
        fd = os.open("mine", os.O_CREAT | os.O_WRONLY, 0o4755)
        assert os.fstat(fd).st_mode & 0o4000
    """),
    "a name for a socket": python("""
        import os, socket
        socket.socket(socket.AF_UNIX).connect(os.environ["OUT"] + "/socket")
    """),
    "an abstract socket": python("""
        import os, socket
        socket.socket(socket.AF_UNIX).connect("\\0travois-" + os.environ["HARNESS"])
    """),
    "TCP": python("""
        import os, socket
        socket.create_connection(("127.0.0.1", int(os.environ["TCP"])), 5)
    """),
    "UDP, as names are looked up": python("""
        import os, socket
        line = socket.socket(type=socket.SOCK_DGRAM)
        line.settimeout(2)
        line.sendto(b"?", ("127.0.0.1", int(os.environ["UDP"])))
        line.recv(1)
    """),
    "keys on a terminal": python("""
        import fcntl, os, pty, termios
        if os.fork():
            raise SystemExit(os.wait()[1] >> 8)
        ours, theirs = pty.openpty()
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY)
        fcntl.ioctl(theirs, termios.TIOCSTI, b"x")
    """),
}
"""Shell lines that say so if they did what they may not."""
ROOTS = {
    "a setting of the kernel": (
        f'p=/proc/sys/kernel/core_pattern; x=$(cat $p); echo "$x" > $p && echo {OUT}'
    ),
    "a device": f"mknod disk b 254 0 && echo {OUT}",
    "a mount": f"mount -t tmpfs none sub && umount sub && echo {OUT}",
    "another root": f"chroot / true && echo {OUT}",
}
"""What only root could do at all."""


@contextmanager
def stage() -> Iterator[tuple[Scene, dict[str, str]]]:
    """A workspace with things to protect, and neighbours that listen."""
    with scene() as bare, ExitStack() as stack:
        out, work = bare.outside, bare.work
        for folder in (out / "home", out / ".ssh", work / "sub", work / "deep" / "er"):
            folder.mkdir(parents=True)
        (work / ".git" / "hooks").mkdir(parents=True)
        for file in (out / "kept", out / "home" / ".bashrc", work / "deep" / "er" / "pinned"):
            file.write_text("as it was\n")
        for secret in (out / "key", out / ".ssh" / "id"):
            secret.write_text(OUT)
        names = (".git/hooks", "bare/.git/hooks", ".mcp.json", ".claude", "deep/er/pinned")
        pinned = tuple(str(work / name) for name in names)
        cage = bare.but(pinned=pinned, hidden=(str(out / "key"), str(out / ".ssh")))
        for name in (str(out / "socket"), f"\0travois-{os.getpid()}"):
            stack.enter_context(listening(name))
        tcp, udp = stack.enter_context(neighbours())
        ports = {"TCP": str(tcp), "UDP": str(udp)}
        yield (
            Scene(work, out, cage),
            {"OUT": str(out), "HARNESS": str(os.getpid()), "HOME": str(out / "home"), **ports},
        )
        SHM.unlink(missing_ok=True)


@contextmanager
def listening(name: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        yield


@contextmanager
def neighbours() -> Iterator[tuple[int, int]]:
    """One who takes connections, and one who answers what is thrown at him."""
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        for one in (tcp, udp):
            one.bind(("127.0.0.1", 0))
        tcp.listen()

        def answer() -> None:
            while (came := udp.recvfrom(9))[0] != b"end":
                udp.sendto(b"!", came[1])

        thread = threading.Thread(target=answer)
        thread.start()
        yield tcp.getsockname()[1], udp.getsockname()[1]
        udp.sendto(b"end", udp.getsockname())
        thread.join()


def state(place: Scene) -> dict[str, str]:
    """All that may not change: what is outside, what is pinned, and shared memory."""
    pinned = [Path(path) for path in place.sandbox.pinned]
    roots = [place.outside, *pinned, SHM]
    files = {f for root in roots for f in (root, *root.rglob("*")) if f.is_file()}
    return {str(file): file.read_text() for file in sorted(files)}


@each
@pytest.mark.parametrize("way", WRITES)
def test_nothing_is_written_where_nothing_may_change(way: str, mode: Mode | None):
    """With Landlock, what is pinned is unchanged once the command and its children have ended."""
    with stage() as (place, env):
        before = state(place)
        cage = place.sandbox if mode else None
        done = run(mode, place.sh(WRITES[way], env=env, sandbox=cage))
        assert (state(place) == before) == (mode is not None), done.output.head_and_tail().decode()


@each
@pytest.mark.parametrize("way", [*DEEDS, *ROOTS])
def test_nothing_is_read_reached_or_gained(way: str, mode: Mode | None):
    if mode is None and way in ROOTS and not ROOT:
        pytest.skip("only root could do that even without a cage")
    if mode is None and way == "keys on a terminal" and TIOCSTI_CLOSED.read_text() == "0\n":
        pytest.skip("this kernel lets nobody type into terminals")
    with stage() as (place, env):
        cage = place.sandbox if mode else None
        done = run(mode, place.sh((DEEDS | ROOTS)[way], env=env, sandbox=cage))
        said = done.output.head_and_tail().decode()
        assert (OUT in said) == (mode is None), said


@both
@pytest.mark.parametrize("way", ["a write", "a pinned name that is not there"])
def test_who_may_only_look_changes_nothing(way: str, mode: Mode):
    text = {"a write": "echo x > sub/made", "a pinned name that is not there": "mkdir .claude"}
    with stage() as (place, env):
        before = sorted(place.work.rglob("*"))
        done = run(mode, place.sh(text[way], env=env, sandbox=place.but(profile="look")))
        assert (sorted(place.work.rglob("*")), done.status) == (before, 1)


@pytest.mark.parametrize("ending", ["by itself", "timeout"])
def test_no_process_outlives_its_cage(ending: str, nap: str):
    escapes = " \n".join(escape.replace("{}", nap) for escape in ESCAPES.values())
    seen = f"until [ $({COUNT_PROGRAMS.format(nap)}) = {len(ESCAPES)} ]; do sleep 0.05; done"
    last = "" if ending == "by itself" else "sleep 600"

    async def act(processes: LocalProcesses) -> None:
        with scene() as place:
            command = place.sh(f"{escapes}\n{seen}; echo all\n{last}")
            done = await run_past_timeout(
                lambda seconds: processes.run(command, timeout=seconds), said=b"all\n"
            )
            assert (done.timed_out, done.left_running) == (ending == "timeout", ())
            assert sleepers(nap) == []

    play("full", act)


def test_without_namespaces_what_is_left_is_told_and_ends_with_the_session(nap: str):
    escapes = " \n".join(escape.replace("{}", nap) for escape in ESCAPES.values())
    seen = f"until [ $({COUNT_PROGRAMS.format(nap)}) = {len(ESCAPES)} ]; do sleep 0.05; done"

    async def act(processes: LocalProcesses) -> None:
        with scene() as place:
            done = await processes.run(place.sh(f"{escapes}\n{seen}"), timeout=SECONDS)
            assert set(sleepers(nap)) <= set(done.left_running) != set()
            await processes.aclose()
            assert sleepers(nap) == []

    play("partial", act)
