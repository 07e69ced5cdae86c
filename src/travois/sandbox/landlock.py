"""The partial sandbox for machines without namespaces: Landlock rules and a seccomp filter.

Landlock rules only allow, and apply to everything below a path. So a hidden path is left out by
allowing its siblings one by one, and no new file can be created next to it. For pinned files, which
are at the top of every workspace and in `.git`, that would be too strict: they can be written, and
`guard` restores them afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from travois.permissions.sandbox_profile import SandboxProfile
from travois.sandbox.hidden_files import real_path

if TYPE_CHECKING:
    from subprocess import Popen


# System calls that no sandboxed program needs, refused by a filter.


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
LOAD, SAME, LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
SETUID, CREATE = 0o4000, 0o100
NAMESPACES = 0x7E020000
"""The flags of `clone` that open a namespace."""
TERMINAL_TRICKS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal."""
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FOREIGN = 0x40000000
"""The first number of the x32 system calls on x86_64."""

REFUSED = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272,
pidfd_getfd 438 438, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
bpf 321 280, userfaultfd 323 282, perf_event_open 298 241, add_key 248 217, request_key 249 218,
keyctl 250 219, mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97,
setns 308 268, open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431,
fsmount 432 432, fspick 433 433, mount_setattr 442 442, open_by_handle_at 304 265,
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104,
kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89,
settimeofday 164 170, clock_settime 227 112, syslog 103 116, fanotify_init 300 262
"""
ABSENT = "clone3 435 435, openat2 437 437"
"""System calls whose flags are in memory, where no filter can read them: programs fall back to the
older ones on ENOSYS."""
BITS = f"""
clone 56 220 0 {NAMESPACES}, chmod 90 - 1 {SETUID}, fchmod 91 52 1 {SETUID},
fchmodat 268 53 2 {SETUID}, fchmodat2 452 452 2 {SETUID}, mknod 133 - 1 {SETUID},
mknodat 259 33 2 {SETUID}, creat 85 - 1 {SETUID}
"""
"""System calls refused if an argument has one of these bits: name, numbers, argument, bits."""
OPENS = "open 2 - 1 2, openat 257 56 2 3"
"""System calls that create files: name, numbers, the argument with the flags, the one with the
mode."""
SHARED = """
shmget 29 194, shmctl 31 195, shmat 30 196, semget 64 190, semctl 66 191, semop 65 193,
semtimedop 220 192, msgget 68 186, msgctl 71 187, msgsnd 69 189, msgrcv 70 188, mq_open 240 180,
mq_unlink 241 181
"""
"""System V and POSIX IPC, shared by all programs of a machine unless namespaces separate them."""
OTHERS = """
prlimit64 302 261 0 0, setpriority 141 140 0 0 1 0, ioprio_set 251 30 0 1 1 0,
sched_setaffinity 203 122 0 0, sched_setscheduler 144 119 0 0, sched_setparam 142 118 0 0,
sched_setattr 314 274 0 0, migrate_pages 256 238 0 0, move_pages 279 239 0 0
"""
"""System calls that can target other processes: refused unless arguments have the values that mean
the caller itself. Name, numbers, then pairs of an argument and its value."""
METADATA = """
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, fchown 93 55,
lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
fremovexattr 199 16, setxattrat 463 463, removexattrat 466 466, file_setattr 469 469
"""
"""System calls that change a file's metadata, for which Landlock has no rules."""
ATTRIBUTES = (0x40086602, 0x40046602, 0x401C5820, 0x40087602)
"""The `ioctl` requests that change metadata: flags such as immutable, projects, and versions."""
IOCTL, SOCKET, PAIR = "ioctl 16 29", "socket 41 198", "socketpair 53 199"
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
SOCK_FLAGS = (0, 0x800, 0x80000, 0x80800)
"""SOCK_NONBLOCK and SOCK_CLOEXEC, which are combined with a socket type."""

Step = tuple[int, int, int, int]


def socket_families(network: str, *, own_net: bool, profile: str = "work") -> tuple[int, ...]:
    """Return the socket families that a program may open.

    In a network of its own it can only reach the commands of its session, so inet sockets are
    allowed. Unix sockets by path lead to other programs unless mounts hide them, so without mounts
    they are refused. Mounts leave those in the workspace open, and a read-only command could have
    another program make changes through one.
    """
    if own_net and profile == "look":
        return (AF_INET, AF_INET6)
    if own_net:
        return (AF_UNIX, AF_INET, AF_INET6)
    return (AF_INET, AF_INET6) if network == "on" else ()


def program(
    sockets: Iterable[int],
    *,
    refusal: int = errno.EPERM,
    alone: bool = True,
    read_only: bool = False,
) -> bytes:
    """Build the seccomp filter for this machine. Raises OSError on an unknown architecture.

    Opening another socket fails with the error `refusal`. A program that is not `alone` shares
    namespaces with all others of the machine. One that is `read_only` may not change modes, times,
    owners or attributes either, wherever a file is.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    tricks = TERMINAL_TRICKS if alone else (*TERMINAL_TRICKS, *ATTRIBUTES)
    refused = (REFUSED, *(() if alone else (SHARED,)), *((METADATA,) if read_only else ()))
    others = () if alone else tuple(_table(OTHERS, machine))
    steps = (
        *_calls(machine, refused=refused, others=others, tricks=tricks),
        *_openings(machine, tuple(sockets), _refuse(refusal)),
    )
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _calls(
    machine: str,
    *,
    refused: tuple[str, ...],
    others: tuple[list[int], ...],
    tricks: tuple[int, ...],
) -> Iterator[Step]:
    """Refuse system calls by their number and their plain arguments."""
    # The same number is another call on another architecture, so that is checked first.
    yield (LOAD, 0, 0, MACHINE)
    yield from _unless(SAME, MACHINES[machine], _refuse(errno.ENOSYS))
    yield (LOAD, 0, 0, NUMBER)
    if machine == "x86_64":
        yield from _when(LEAST, FOREIGN, _refuse(errno.ENOSYS))
    for number, *_ in (row for table in refused for row in _table(table, machine)):
        yield from _when(SAME, number, _refuse())
    for number, *pairs in others:
        yield from _when(SAME, number, [*_only(pairs), _end()])
    for number, *_ in _table(ABSENT, machine):
        yield from _when(SAME, number, _refuse(errno.ENOSYS))
    for number, which, bits in _table(BITS, machine):
        yield from _when(SAME, number, [_argument(which), *_when(ANY_BIT, bits, _refuse()), _end()])
    for number, flags, mode in _table(OPENS, machine):
        made = [_argument(mode), *_when(ANY_BIT, SETUID, _refuse())]
        yield from _when(SAME, number, [_argument(flags), *_when(ANY_BIT, CREATE, made), _end()])
    for number, *_ in _table(IOCTL, machine):
        no = [step for trick in tricks for step in _when(SAME, trick, _refuse())]
        yield from _when(SAME, number, [_argument(1), *no, _end()])


def _openings(machine: str, sockets: tuple[int, ...], refused: list[Step]) -> Iterator[Step]:
    """Refuse other socket families, and end by allowing every other call."""
    for number, *_ in _table(SOCKET, machine):
        yield from _when(SAME, number, [*_sockets(sockets), *refused])
    if AF_UNIX not in sockets:
        for number, *_ in _table(PAIR, machine):
            yield from _when(SAME, number, [*_pairs(), *refused])
    yield _end()


def _pairs() -> Iterator[Step]:
    """Allow socket pairs that lead only to each other: a datagram socket could send to any path."""
    yield _argument(1)
    for kind in (SOCK_STREAM, SOCK_SEQPACKET):
        for flags in SOCK_FLAGS:
            yield from _when(SAME, kind | flags, [_end()])


def _only(pairs: list[int]) -> Iterator[Step]:
    """Refuse unless each argument has its value."""
    for which, value in zip(pairs[::2], pairs[1::2], strict=True):
        yield _argument(which)
        yield from _unless(SAME, value, _refuse())


def _sockets(kinds: tuple[int, ...]) -> Iterator[Step]:
    """Allow sockets of these families."""
    yield _argument(0)
    for kind in kinds:
        yield from _when(SAME, kind, [_end()])
    if AF_INET in kinds:  # libc asks the kernel by NETLINK_ROUTE which addresses there are
        route = [_argument(2), *_when(SAME, 0, [_end()])]
        yield from _when(SAME, AF_NETLINK, route)


def _table(text: str, machine: str) -> Iterator[list[int]]:
    """Yield the numbers of the calls on this machine, each with the rest of its row."""
    column = list(MACHINES).index(machine) + 1
    for row in text.split(","):
        words = row.split()
        if words[column] != "-":
            yield [int(words[column]), *map(int, words[3:])]


def _when(test: int, value: int, then: list[Step]) -> list[Step]:
    return [(test, 0, len(then), value), *then]


def _unless(test: int, value: int, then: list[Step]) -> list[Step]:
    return [(test, len(then), 0, value), *then]


def _argument(which: int) -> Step:
    """Load the low half of an argument, which is all the kernel itself looks at here."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * which)


def _refuse(number: int = errno.EPERM) -> list[Step]:
    return [(RETURN, 0, 0, ERROR | number)]


def _end() -> Step:
    return (RETURN, 0, 0, ALLOW)


# System calls without a Python wrapper.


PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 22, 28, 38
SECCOMP_MODE_FILTER = 2
NO_ROOT = 0b11
"""Securebits: user 0 has no capabilities, irrevocably."""
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION, LANDLOCK_BENEATH = 1, 1
CLONE_NEWNET = 0x40000000


def leave_network() -> None:
    """Move the calling thread, and everything it starts, into a new, empty network namespace."""
    _checked(_libc().unshare(CLONE_NEWNET))


def landlock_version() -> int:
    """Return the kernel's Landlock ABI version; 0 without Landlock."""
    try:
        return _syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    except OSError:
        return 0


def landlock_ruleset(attributes: bytes) -> int:
    """Create an empty ruleset and return its descriptor."""
    return _syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)


def landlock_add(ruleset: int, rule: bytes) -> None:
    """Add a rule for everything beneath a path."""
    _syscall(LANDLOCK_ADD, ruleset, LANDLOCK_BENEATH, rule, 0)


def confine_thread(ruleset: int, program: bytes) -> None:
    """Bind the calling thread, and all that it starts, to these rules and this filter for good."""

    class Program(ctypes.Structure):
        """A seccomp program as the kernel takes it (`struct sock_fprog`)."""

        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    # Without this the kernel accepts neither rules nor filters from an unprivileged user.
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        _prctl(PR_SET_SECUREBITS, NO_ROOT)
    _syscall(LANDLOCK_RESTRICT, ruleset, 0)
    steps = Program(len(program) // 8, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(steps))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(*args: object) -> None:
    _checked(_libc().prctl(*args, *(0,) * (5 - len(args))))


def _syscall(*args: object) -> int:
    return _checked(_libc().syscall(*args))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


MIN_LANDLOCK_ABI = 3
"""The first version that can forbid truncating files."""
READ = 0b1101
LIST = 0b1000
WRITE = 0b0111_0111_1011_0010
"""All rights but creating device files."""
IOCTL_DEVICE = 0b1000_0000_0000_0000
"""Set up a device. /dev/tty is the terminal that the harness gave a program, or none."""
OF_FILES = 0b1100_0000_0000_0111
"""Rights that apply to a file; the others apply to folders."""
ALL = 0b1111_1111_1111_1111
ALONE = 0b11
"""No signals to, and no abstract sockets of, processes outside."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
BRIEF_LIMIT = "Protected files are restored after a command, not blocked while it runs."
LIMITS = (
    "Protected files (.git/hooks, .git/config, .travois, .claude, .vscode and the like) can change "
    "while a command runs; they are checked and restored after it and all its children have ended.",
    "Until then, programs outside the sandbox (your editor, your own git) see the changed files.",
    "Your own changes to protected files while a command runs are undone too; a copy is kept.",
    "If a rule hides a file in the workspace, commands cannot create files in the same folder.",
    "Allowed-host lists do not work: a command with such a list has no network access. Unix "
    "sockets do not work either.",
    "Without network access, commands cannot open TCP sockets, not even to reach a server that an "
    "earlier command started on this machine.",
    "A command that is allowed to write can change modes, times and attributes (chmod, touch, "
    "setfattr) of your files outside the workspace, but not their contents. Read-only commands "
    "cannot do so, not even in the workspace or TMPDIR.",
    "A command that guesses the path of a hidden file can learn that it exists and its size, but "
    "not its contents. Hidden folders cannot be listed, and neither can /.",
    "The machine's own /tmp is readable. Tool chain caches in your home folder are read-only.",
    "System V shared memory, semaphores and queues do not work in the sandbox.",
)
"""Protections of the full sandbox that this one lacks, in sentences for the user."""


def confinement(cage: SandboxProfile, ours: ExitStack) -> Callable[[], None]:
    """Build the function that binds its calling thread, and everything it starts, for good.

    No code of ours runs between fork and exec, where it would run in a copy of a process without
    its other threads. Instead a thread binds itself and then starts the program normally.
    """
    version = landlock_version()
    # Device ioctls can be ruled since ABI 5, scopes since ABI 6; older kernels reject those bits.
    known = ALL if version >= 5 else ALL >> 1
    attributes = struct.pack("<QQQ", known, 0, ALONE)[: 24 if version >= 6 else 8]
    ruleset = landlock_ruleset(attributes)
    ours.callback(os.close, ruleset)
    for path, rights in grants(cage):
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
            _grant(ruleset, path, rights & known)
    families = socket_families(cage.network, own_net=False)
    filtered = program(families, alone=False, read_only=cage.profile == "look")
    return lambda: confine_thread(ruleset, filtered)


def grants(cage: SandboxProfile) -> Iterator[tuple[str, int]]:
    """Yield each path that may be used, with its rights.

    A rule applies to everything below a path. So `/`, and a hidden folder with something shown in
    it, cannot be listed: a rule for it would list all names below it.
    """
    hidden = {real_path(path) for path in cage.hidden if os.path.lexists(path)}
    yield from _beside("/", {*hidden, "/dev"})  # for root, /dev contains the raw disks
    for path in (*cage.shown, *cage.caches, *cage.folders):
        real = real_path(path)
        yield from _beside(real, hidden - {real})
    yield "/dev", LIST
    for name in DEVICES:
        yield f"/dev/{name}", READ | WRITE | (IOCTL_DEVICE if name == "tty" else 0)
    yield real_path(cage.temp), READ | WRITE
    if cage.profile == "look":
        return
    for folder in (*cage.folders, *cage.writable):
        yield from _beside(folder, hidden, READ | WRITE)


def _beside(path: str, kept: Collection[str], rights: int = READ) -> Iterator[tuple[str, int]]:
    """Yield the path, or as much of its contents as leaves out the hidden paths."""
    if path in kept:
        return
    within = [one for one in kept if one.startswith(path.rstrip("/") + "/")]
    if not within:
        yield path, rights
        return
    if path != "/":
        yield path, LIST
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _beside(entry.path, within, rights)


def _grant(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for one path; rights that only folders have are dropped for a file."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= OF_FILES
        landlock_add(ruleset, struct.pack("<Qi", rights, fd))
    finally:
        os.close(fd)


def apart(confine: Callable[[], None], start: Callable[[], Popen[bytes]]) -> Popen[bytes]:
    """Start a program from a thread that confines itself and then ends."""
    outcome: list[Popen[bytes] | OSError | ValueError] = []

    def body() -> None:
        try:
            confine()
            outcome.append(start())
        except (OSError, ValueError) as error:
            outcome.append(error)

    thread = Thread(target=body, name="travois-confined")
    thread.start()
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]
