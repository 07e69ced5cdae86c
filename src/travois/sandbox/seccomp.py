"""The seccomp filter: system calls that no sandboxed program needs, refused."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
BPF_LOAD_WORD, BPF_JUMP_EQUAL, BPF_JUMP_GREATER_EQUAL, BPF_JUMP_ANY_BIT, BPF_RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x06,
)
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
SYSCALL_NUMBER_OFFSET, ARCH_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
SETUID_MODE, OPEN_CREATE_FLAG = 0o4000, 0o100
NAMESPACE_CLONE_FLAGS = 0x7E020000
"""The flags of `clone` that open a namespace."""
TERMINAL_IOCTLS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal."""
AUDIT_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_SYSCALL_BIT = 0x40000000
"""The first number of the x32 system calls on x86_64."""
REFUSED_SYSCALLS = """
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
ABSENT_SYSCALLS = "clone3 435 435, openat2 437 437"
"""System calls whose flags are in memory, where no filter can read them: programs fall back to the
older ones on ENOSYS."""
FLAG_SYSCALLS = f"""
clone 56 220 0 {NAMESPACE_CLONE_FLAGS}, chmod 90 - 1 {SETUID_MODE}, fchmod 91 52 1 {SETUID_MODE},
fchmodat 268 53 2 {SETUID_MODE}, fchmodat2 452 452 2 {SETUID_MODE}, mknod 133 - 1 {SETUID_MODE},
mknodat 259 33 2 {SETUID_MODE}, creat 85 - 1 {SETUID_MODE}
"""
"""System calls refused if an argument has one of these bits: name, numbers, argument, bits."""
OPEN_SYSCALLS = "open 2 - 1 2, openat 257 56 2 3"
"""System calls that create files: name, numbers, the argument with the flags, the one with the
mode."""
SHARED_IPC_SYSCALLS = """
shmget 29 194, shmctl 31 195, shmat 30 196, semget 64 190, semctl 66 191, semop 65 193,
semtimedop 220 192, msgget 68 186, msgctl 71 187, msgsnd 69 189, msgrcv 70 188, mq_open 240 180,
mq_unlink 241 181
"""
"""System V and POSIX IPC, shared by all programs of a machine unless namespaces separate them."""
OTHER_PROCESS_SYSCALLS = """
prlimit64 302 261 0 0, setpriority 141 140 0 0 1 0, ioprio_set 251 30 0 1 1 0,
sched_setaffinity 203 122 0 0, sched_setscheduler 144 119 0 0, sched_setparam 142 118 0 0,
sched_setattr 314 274 0 0, migrate_pages 256 238 0 0, move_pages 279 239 0 0
"""
"""System calls that can target other processes: refused unless arguments have the values that mean
the caller itself. Name, numbers, then pairs of an argument and its value."""
METADATA_SYSCALLS = """
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, fchown 93 55,
lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
fremovexattr 199 16, setxattrat 463 463, removexattrat 466 466, file_setattr 469 469
"""
"""System calls that change a file's metadata, for which Landlock has no rules."""
ATTRIBUTE_IOCTLS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602)
"""The `ioctl` requests that change metadata: flags such as immutable, projects, and versions."""
IOCTL_SYSCALL, SOCKET_SYSCALL, SOCKETPAIR_SYSCALL = (
    "ioctl 16 29",
    "socket 41 198",
    "socketpair 53 199",
)
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
SOCK_FLAGS = (0, 0x800, 0x80000, 0x80800)
"""SOCK_NONBLOCK and SOCK_CLOEXEC, which are combined with a socket type."""
BpfStep = tuple[int, int, int, int]


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


def build_seccomp_filter(
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
    if machine not in AUDIT_ARCHES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    tricks = TERMINAL_IOCTLS if alone else (*TERMINAL_IOCTLS, *ATTRIBUTE_IOCTLS)
    refused = (
        REFUSED_SYSCALLS,
        *(() if alone else (SHARED_IPC_SYSCALLS,)),
        *((METADATA_SYSCALLS,) if read_only else ()),
    )
    others = () if alone else tuple(_parse_syscall_table(OTHER_PROCESS_SYSCALLS, machine))
    steps = (
        *_filter_syscalls(machine, refused=refused, others=others, tricks=tricks),
        *_filter_sockets(machine, tuple(sockets), _return_error(refusal)),
    )
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _filter_syscalls(
    machine: str,
    *,
    refused: tuple[str, ...],
    others: tuple[list[int], ...],
    tricks: tuple[int, ...],
) -> Iterator[BpfStep]:
    """Refuse system calls in the seccomp filter, by number and plain arguments."""
    # The same number is another call on another architecture, so that is checked first.
    yield (BPF_LOAD_WORD, 0, 0, ARCH_OFFSET)
    yield from _run_unless(BPF_JUMP_EQUAL, AUDIT_ARCHES[machine], _return_error(errno.ENOSYS))
    yield (BPF_LOAD_WORD, 0, 0, SYSCALL_NUMBER_OFFSET)
    if machine == "x86_64":
        yield from _run_when(BPF_JUMP_GREATER_EQUAL, X32_SYSCALL_BIT, _return_error(errno.ENOSYS))
    for number, *_ in (row for table in refused for row in _parse_syscall_table(table, machine)):
        yield from _run_when(BPF_JUMP_EQUAL, number, _return_error())
    for number, *pairs in others:
        yield from _run_when(BPF_JUMP_EQUAL, number, [*_require_values(pairs), _return_allow()])
    for number, *_ in _parse_syscall_table(ABSENT_SYSCALLS, machine):
        yield from _run_when(BPF_JUMP_EQUAL, number, _return_error(errno.ENOSYS))
    for number, which, bits in _parse_syscall_table(FLAG_SYSCALLS, machine):
        yield from _run_when(
            BPF_JUMP_EQUAL,
            number,
            [
                _load_argument(which),
                *_run_when(BPF_JUMP_ANY_BIT, bits, _return_error()),
                _return_allow(),
            ],
        )
    for number, flags, mode in _parse_syscall_table(OPEN_SYSCALLS, machine):
        made = [_load_argument(mode), *_run_when(BPF_JUMP_ANY_BIT, SETUID_MODE, _return_error())]
        yield from _run_when(
            BPF_JUMP_EQUAL,
            number,
            [
                _load_argument(flags),
                *_run_when(BPF_JUMP_ANY_BIT, OPEN_CREATE_FLAG, made),
                _return_allow(),
            ],
        )
    for number, *_ in _parse_syscall_table(IOCTL_SYSCALL, machine):
        no = [
            step for trick in tricks for step in _run_when(BPF_JUMP_EQUAL, trick, _return_error())
        ]
        yield from _run_when(BPF_JUMP_EQUAL, number, [_load_argument(1), *no, _return_allow()])


def _filter_sockets(
    machine: str, sockets: tuple[int, ...], refused: list[BpfStep]
) -> Iterator[BpfStep]:
    """Refuse other socket families in the seccomp filter, then allow every other call."""
    for number, *_ in _parse_syscall_table(SOCKET_SYSCALL, machine):
        yield from _run_when(BPF_JUMP_EQUAL, number, [*_allow_socket_families(sockets), *refused])
    if AF_UNIX not in sockets:
        for number, *_ in _parse_syscall_table(SOCKETPAIR_SYSCALL, machine):
            yield from _run_when(BPF_JUMP_EQUAL, number, [*_allow_stream_pairs(), *refused])
    yield _return_allow()


def _allow_stream_pairs() -> Iterator[BpfStep]:
    """Allow only stream socket pairs in the seccomp filter: datagrams could go to any path."""
    yield _load_argument(1)
    for kind in (SOCK_STREAM, SOCK_SEQPACKET):
        for flags in SOCK_FLAGS:
            yield from _run_when(BPF_JUMP_EQUAL, kind | flags, [_return_allow()])


def _require_values(pairs: list[int]) -> Iterator[BpfStep]:
    """Refuse a call in the seccomp filter unless each argument has its value."""
    for which, value in zip(pairs[::2], pairs[1::2], strict=True):
        yield _load_argument(which)
        yield from _run_unless(BPF_JUMP_EQUAL, value, _return_error())


def _allow_socket_families(kinds: tuple[int, ...]) -> Iterator[BpfStep]:
    """Allow sockets of these families in the seccomp filter."""
    yield _load_argument(0)
    for kind in kinds:
        yield from _run_when(BPF_JUMP_EQUAL, kind, [_return_allow()])
    if AF_INET in kinds:  # libc asks the kernel by NETLINK_ROUTE which addresses there are
        route = [_load_argument(2), *_run_when(BPF_JUMP_EQUAL, 0, [_return_allow()])]
        yield from _run_when(BPF_JUMP_EQUAL, AF_NETLINK, route)


def _parse_syscall_table(text: str, machine: str) -> Iterator[list[int]]:
    """Yield this machine's system call numbers for the seccomp filter, with their rows."""
    column = list(AUDIT_ARCHES).index(machine) + 1
    for row in text.split(","):
        words = row.split()
        if words[column] != "-":
            yield [int(words[column]), *map(int, words[3:])]


def _run_when(test: int, value: int, then: list[BpfStep]) -> list[BpfStep]:
    return [(test, 0, len(then), value), *then]


def _run_unless(test: int, value: int, then: list[BpfStep]) -> list[BpfStep]:
    return [(test, len(then), 0, value), *then]


def _load_argument(which: int) -> BpfStep:
    """Load the low half of a call's argument in the seccomp filter; the kernel ignores the rest."""
    return (BPF_LOAD_WORD, 0, 0, ARGUMENTS_OFFSET + 8 * which)


def _return_error(number: int = errno.EPERM) -> list[BpfStep]:
    return [(BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | number)]


def _return_allow() -> BpfStep:
    return (BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW)
