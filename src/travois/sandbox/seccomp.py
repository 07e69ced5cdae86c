"""Calls into the kernel that no program in a cage has a use for, refused by a filter.

The filter is a program for the kernel's own little machine: it sees the number of a call and its
plain arguments, never what a pointer leads to. So a call whose arguments hide behind a pointer
(`clone3`, `openat2`) is said not to exist, and programs take the older call that can be judged.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
LOAD, SAME, LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
SETUID, CREATE = 0o4000, 0o100
NAMESPACES = 0x7E020000
"""The flags of `clone` that open a namespace."""
TERMINAL_TRICKS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into a terminal."""
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FOREIGN = 0x40000000
"""Calls of x86_64 from here on are those of another set, x32."""

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
BITS = f"""
clone 56 220 0 {NAMESPACES}, chmod 90 - 1 {SETUID}, fchmod 91 52 1 {SETUID},
fchmodat 268 53 2 {SETUID}, fchmodat2 452 452 2 {SETUID}, mknod 133 - 1 {SETUID},
mknodat 259 33 2 {SETUID}, creat 85 - 1 {SETUID}
"""
"""Refused if an argument has one of these bits: name, numbers, which argument, bits."""
OPENS = "open 2 - 1 2, openat 257 56 2 3"
"""Make files: name, numbers, which argument has the flags, which the mode."""
SHARED = """
shmget 29 194, shmctl 31 195, shmat 30 196, semget 64 190, semctl 66 191, semop 65 193,
semtimedop 220 192, msgget 68 186, msgctl 71 187, msgsnd 69 189, msgrcv 70 188, mq_open 240 180,
mq_unlink 241 181
"""
"""Memory, semaphores and queues that all programs of a machine share unless mounts and namespaces
part them."""
OTHERS = """
prlimit64 302 261 0 0, setpriority 141 140 0 0 1 0, ioprio_set 251 30 0 1 1 0,
sched_setaffinity 203 122 0 0, sched_setscheduler 144 119 0 0, sched_setparam 142 118 0 0,
sched_setattr 314 274 0 0, migrate_pages 256 238 0 0, move_pages 279 239 0 0
"""
"""May be about other programs: refused unless arguments have the values by which a program means
itself. Name, numbers, then pairs of an argument and its value."""
METADATA = """
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, fchown 93 55,
lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
fremovexattr 199 16, setxattrat 463 463, removexattrat 466 466, file_setattr 469 469
"""
"""Change what a disk keeps of a file besides its bytes, which Landlock has no rules about."""
ATTRIBUTES = (0x40086602, 0x40046602, 0x401C5820, 0x40087602)
"""The same by `ioctl`: flags such as immutable, projects, and versions of files."""
IOCTL, SOCKET, PAIR = "ioctl 16 29", "socket 41 198", "socketpair 53 199"
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
SOCK_FLAGS = (0, 0x800, 0x80000, 0x80800)
"""SOCK_NONBLOCK and SOCK_CLOEXEC, which come with a kind of socket."""

Step = tuple[int, int, int, int]


def families(network: str, *, own_net: bool, profile: str = "work") -> tuple[int, ...]:
    """The kinds of sockets that a program may open.

    A net of its own has nobody to talk to but the commands of its session, so it may; path names
    lead to sockets of others unless mounts hide them, so without mounts those are closed. Mounts
    leave those in the workspace open, where who only looks could have others change things.
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
    """The filter for this machine; raises OSError on one that we know no numbers of.

    `refusal` is the error by which other sockets than these fail. A program that is not `alone`
    shares namespaces with all others of the machine. One that is `read_only` may change no modes,
    times, owners or attributes either, wherever a file is.
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
    """Refuse calls by their number and their plain arguments."""
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
    """Refuse sockets of other kinds, and end with leave for all other calls."""
    for number, *_ in _table(SOCKET, machine):
        yield from _when(SAME, number, [*_sockets(sockets), *refused])
    if AF_UNIX not in sockets:
        for number, *_ in _table(PAIR, machine):
            yield from _when(SAME, number, [*_pairs(), *refused])
    yield _end()


def _pairs() -> Iterator[Step]:
    """Let pairs be made that only lead to each other: datagrams could go to any path."""
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
    yield _argument(0)
    for kind in kinds:
        yield from _when(SAME, kind, [_end()])
    if AF_INET in kinds:  # libc asks the kernel by NETLINK_ROUTE which addresses there are
        route = [_argument(2), *_when(SAME, 0, [_end()])]
        yield from _when(SAME, AF_NETLINK, route)


def _table(text: str, machine: str) -> Iterator[list[int]]:
    """The numbers of calls on this machine, each with what else its row says."""
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
    """The low half of an argument, which is all that the kernel itself looks at here."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * which)


def _refuse(number: int = errno.EPERM) -> list[Step]:
    return [(RETURN, 0, 0, ERROR | number)]


def _end() -> Step:
    return (RETURN, 0, 0, ALLOW)
