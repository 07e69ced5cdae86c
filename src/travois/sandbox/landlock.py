"""Walls for machines that give us no namespaces: rules on files, and a filter on calls.

Rules only ever allow, and hold for everything below a path. What is hidden is therefore left out by
allowing its siblings one by one: beside it nothing can be made anew. For what is pinned that would
cost too much, since it stands at the top of every workspace and in `.git`: it can be written, and
`guard` restores it afterwards.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from travois.sandbox import kernel, seccomp
from travois.sandbox.profile import Cage
from travois.sandbox.real import real_path

if TYPE_CHECKING:
    from subprocess import Popen

LEAST = 3
"""Earlier versions let anyone truncate anything."""
READ = 0b1101
LIST = 0b1000
WRITE = 0b0111_0111_1011_0010
"""All but making devices."""
IOCTL = 0b1000_0000_0000_0000
"""To set up a device. /dev/tty is the terminal that the harness gave a program, or none."""
OF_FILES = 0b1100_0000_0000_0111
"""What can be allowed of a file; the rest is about folders."""
ALL = 0b1111_1111_1111_1111
ALONE = 0b11
"""No signal to, and no abstract socket of, anyone outside."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
BRIEF_LIMIT = "Protected files are restored after a command, not blocked while it runs."
LIMITS = (
    "Protected files (.git/hooks, .git/config, .travois, .claude, .vscode and the like) can change "
    "while a command runs; they are checked and restored when it and all its children have ended.",
    "Until then, programs outside the sandbox (your editor, your own git) see the changed files.",
    "Your own changes to protected files while a command runs are undone too; a copy is kept.",
    "If a rule hides a file in the workspace, commands cannot create files in the same folder.",
    "Lists of allowed hosts do not work: such a command has no network. Nor do Unix sockets.",
    "Without network, commands cannot open TCP sockets, not even to reach a server on this machine "
    "that an earlier command started.",
    "A command that was allowed to write can change modes, times and attributes (chmod, touch, "
    "setfattr) of your files outside the workspace, though not their contents. Read-only commands "
    "cannot, and cannot do so in the workspace or TMPDIR either.",
    "Names and sizes of hidden files can be told by commands that guess their paths, not their "
    "contents; names in hidden folders cannot be listed. Nor can /: a rule for it would list all.",
    "The machine's own /tmp can be read. Caches of tool chains in your home are read-only.",
    "System V shared memory, semaphores and queues do not work in the sandbox.",
)
"""What these walls do not protect that namespaces do, in words for a person."""


def confinement(cage: Cage, ours: ExitStack) -> Callable[[], None]:
    """What binds the thread that calls it, and all that it starts, for ever.

    No code of ours runs between fork and exec: it would run in a copy of a process whose other
    threads are gone. Instead a thread binds itself and then starts the program as ever.
    """
    version = kernel.landlock_version()
    known = ALL if version >= 5 else ALL >> 1
    attributes = struct.pack("<QQQ", known, 0, ALONE)[: 24 if version >= 6 else 8]
    ruleset = kernel.landlock_ruleset(attributes)
    ours.callback(os.close, ruleset)
    for path, rights in grants(cage):
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
            _grant(ruleset, path, rights & known)
    families = seccomp.families(cage.network, own_net=False)
    filtered = seccomp.program(families, alone=False, read_only=cage.profile == "look")
    return lambda: kernel.confine_thread(ruleset, filtered)


def grants(cage: Cage) -> Iterator[tuple[str, int]]:
    """Which paths may be used how.

    A rule holds for all below a path. So `/`, and a folder that is hidden, cannot be listed
    although something in it is shown: all of the names below it could be listed then.
    """
    hidden = {real_path(path) for path in cage.hidden if os.path.lexists(path)}
    yield from _beside("/", {*hidden, "/dev"})  # for root, the raw disks are in there
    for path in (*cage.shown, *cage.caches, *cage.folders):
        real = real_path(path)
        yield from _beside(real, hidden - {real})
    yield "/dev", LIST
    for name in DEVICES:
        yield f"/dev/{name}", READ | WRITE | (IOCTL if name == "tty" else 0)
    yield real_path(cage.temp), READ | WRITE
    if cage.profile == "look":
        return
    for folder in (*cage.folders, *cage.writable):
        yield from _beside(folder, hidden, READ | WRITE)


def _beside(path: str, kept: Collection[str], rights: int = READ) -> Iterator[tuple[str, int]]:
    """The path, or as much of what lies in it as leaves out what is kept."""
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
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= OF_FILES
        kernel.landlock_add(ruleset, struct.pack("<Qi", rights, fd))
    finally:
        os.close(fd)


def apart(confine: Callable[[], None], start: Callable[[], Popen[bytes]]) -> Popen[bytes]:
    """Start a program from a thread that is confined and then ends."""
    from threading import Thread

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
