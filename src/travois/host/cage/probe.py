"""Which walls this machine lets us build: tried for real, and remembered until it changes."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import msgspec

from travois.policy.cage import Cage

TRUE = "/bin/sh", "-c", "exit 0"
PATIENCE = 10
INSTALL = {
    "debian": "sudo apt install bubblewrap",
    "fedora": "sudo dnf install bubblewrap",
    "arch": "sudo pacman -S bubblewrap",
    "alpine": "sudo apk add bubblewrap",
    "suse": "sudo zypper install bubblewrap",
}
SWITCHES = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "10000"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Settings of the kernel by which users are kept from namespaces: how they forbid and allow it."""
CONTAINER = (
    "in a container: start it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
OVERLAY = """
cd "$1" && mkdir lower upper work &&
mount -t overlay overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work lower
"""


class Check(msgspec.Struct, frozen=True):
    """One thing that was tried."""

    name: str
    works: bool
    why: str = ""
    """What was found."""
    fix: str = ""
    """The command that mends it."""


class Walls(msgspec.Struct, frozen=True):
    """What this machine can do to hold a program."""

    kind: Literal["full", "partial", "none"]
    line: str
    """What the user is told at the start."""
    checks: tuple[Check, ...] = ()
    bwrap: str = ""
    options: tuple[str, ...] = ()
    """Which of its optional words this bwrap knows."""


class Memory(msgspec.Struct, frozen=True):
    """What was found, and on which machine."""

    of: list[str]
    walls: Walls


def look(cache: Path | None, *, workspace: str = "") -> Walls:
    """What works here. Without a cache, or on another machine than before, it is tried."""
    program = find(workspace)
    of = _identity(program)
    if cache is not None:
        with suppress(OSError, msgspec.DecodeError):
            memory = msgspec.json.decode(cache.read_bytes(), type=Memory)
            if memory.of == of:
                return memory.walls
    walls = attempt(program)
    if cache is not None:
        with suppress(OSError):  # to try again next time is slower, not wrong
            aside = cache.with_name(f"{cache.name}.{os.getpid()}")
            aside.write_bytes(msgspec.json.encode(Memory(of, walls)))
            aside.replace(cache)
    return walls


def find(workspace: str) -> str:
    """Where bwrap is; empty if nowhere. One that the workspace brings along is none."""
    inside = os.path.realpath(workspace).rstrip("/") + "/" if workspace else "\0"
    for folder in os.get_exec_path():
        path = os.path.realpath(os.path.join(folder, "bwrap"))
        usable = os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK)
        if usable and not path.startswith(inside):
            return path
    return ""


def attempt(program: str) -> Walls:
    """Try everything."""
    if sys.platform != "linux":
        why = f"there is none for {sys.platform} yet"
        return Walls("none", f"Sandbox: none ({why})", (Check("sandbox", works=False, why=why),))
    namespaces, options = _namespaces(program)
    rules = _landlock()
    checks = (_program(program), namespaces, rules, _overlay(), _terminal())
    if namespaces.works:
        return Walls("full", "Sandbox: full", checks, program, options)
    why = f"no namespaces: {namespaces.why}; fix: {namespaces.fix}"
    if rules.works:
        return Walls("partial", f"Sandbox: partial ({why})", checks)
    return Walls("none", f"Sandbox: none ({why})", checks)


def _identity(program: str) -> list[str]:
    """What must be the same for an earlier answer to hold."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        rooms = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt")]
        changed = str(os.stat(program).st_mtime_ns) if program else ""
        return [boot, *rooms, program, changed, os.uname().release, str(os.geteuid())]
    return [sys.platform, os.uname().release]


def _program(path: str) -> Check:
    fix = "" if path else _install()
    return Check("bubblewrap", works=bool(path), why=path or "it is not installed", fix=fix)


def _install() -> str:
    with suppress(OSError):
        release = Path("/etc/os-release").read_text()
        return next((line for name, line in INSTALL.items() if name in release), "")
    return "install bubblewrap"


def _namespaces(program: str) -> tuple[Check, tuple[str, ...]]:
    """Whether a whole cage can be built, with which optional words."""
    if not program:
        check = Check("namespaces", works=False, why="bubblewrap is not installed", fix=_install())
        return check, ()
    from travois.host.cage import bwrap

    why = ""
    for options in (bwrap.OPTIONAL, ()):
        cage = Cage("look", (), temp="/tmp", sockets=())  # noqa: S108
        words = bwrap.arguments(cage, cwd="/", known=options)
        why = _refusal(program, words)
        if not why:
            return Check("namespaces", works=True, why="user, pid, net, ipc and mount"), options
    return Check("namespaces", works=False, why=why, fix=_open_namespaces()), ()


def _refusal(program: str, words: list[str]) -> str:
    """Why a cage cannot be built; empty if it can."""
    from travois.host.cage import seccomp

    with ExitStack() as stack:
        fd = os.memfd_create("filter")
        stack.callback(os.close, fd)
        try:
            os.write(fd, seccomp.program(seccomp.families("off", own_net=True)))
        except OSError as error:
            return str(error)
        os.lseek(fd, 0, os.SEEK_SET)
        return _failure(program, *words, "--seccomp", str(fd), "--", *TRUE, fds=(fd,))


def _failure(*argv: str, fds: tuple[int, ...] = ()) -> str:
    """The last words of a program that fails; empty if it does not."""
    from subprocess import DEVNULL, PIPE, TimeoutExpired, run

    try:
        done = run(
            argv,
            check=False,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            pass_fds=fds,
            timeout=PATIENCE,
        )
    except (OSError, TimeoutExpired) as error:
        return str(error)
    words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return "" if done.returncode == 0 else words or f"exit code {done.returncode}"


def _open_namespaces() -> str:
    for name, (forbids, allows) in SWITCHES.items():
        with suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == forbids:
                return f"sudo sysctl -w {name.replace('/', '.')}={allows}"
    return CONTAINER


def _landlock() -> Check:
    from travois.host.cage import kernel, landlock

    version = kernel.landlock_version()
    if version < landlock.LEAST:
        why = f"version {version}; {landlock.LEAST} is needed" if version else "not in this kernel"
        return Check(
            "landlock", works=False, why=why, fix="a kernel from 6.2 on, with lsm=landlock"
        )
    from subprocess import DEVNULL, Popen

    try:
        with ExitStack() as stack:
            confine = landlock.confinement(Cage("look", (), temp="/tmp"), stack)  # noqa: S108
            status = landlock.apart(confine, lambda: Popen(TRUE, stdin=DEVNULL)).wait()
    except OSError as error:
        return Check("landlock", works=False, why=str(error))
    return Check("landlock", works=status == 0, why=f"version {version}, with a call filter")


def _overlay() -> Check:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        why = _failure("unshare", "-Urm", "/bin/sh", "-c", OVERLAY, "sh", folder)
    return Check("overlay", works=not why, why=why or "a copy to try things in", fix="")


def _terminal() -> Check:
    """Typing into terminals is refused by our filter; this is about programs outside."""
    with suppress(OSError):
        if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() == "0":
            return Check("tiocsti", works=True, why="closed by the kernel")
    fix = "sudo sysctl -w dev.tty.legacy_tiocsti=0"
    return Check("tiocsti", works=False, why="closed by our filter alone", fix=fix)
