"""One network namespace for the commands of a session that may not use the machine's network.

It contains only a loopback interface: a server that one command starts is reachable for the next
one, and for nobody outside. No process of its own keeps it alive: it exists while the session holds
it or a command runs in it, so nothing is left of it after a kill.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from fcntl import ioctl
from shutil import which
from struct import pack
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock
from typing import Protocol, TypeVar

import msgspec

from travois.sandbox import landlock

ResultT = TypeVar("ResultT")
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin"
"""Folders in which `nsenter` is searched: nothing there comes from a workspace."""
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
TCP_LISTEN_STATE = "0A"


class NetworkNamespace(Protocol):
    """An open network namespace and the way into it."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that make it enter the namespace."""
        ...

    def start(self, begin: Callable[[], ResultT]) -> ResultT:
        """Start a program, which has the prefix, in the namespace."""
        ...

    def socket(self, family: int) -> socket.socket:
        """Open a TCP socket in the namespace, not yet connected."""
        ...

    def close(self) -> None:
        """Release the namespace."""
        ...


class SessionNetwork:
    """The network namespace of one session, created when a command first needs it."""

    def __init__(self) -> None:
        self._held: NetworkNamespace | None = None
        self._lock = Lock()

    def open(self, bwrap: str) -> NetworkNamespace:
        """Return the namespace, created with this bwrap if needed. Raises OSError on failure."""
        with self._lock:
            self._held = self._held or open_network_namespace(bwrap)
            return self._held

    def socket(self, family: int) -> socket.socket | None:
        """Open a TCP socket in the namespace; None while no command has used it."""
        with self._lock:
            return self._held.socket(family) if self._held else None

    def close(self) -> None:
        """Release the namespace; it ends with the last command in it."""
        with self._lock:
            if self._held is not None:
                self._held.close()
            self._held = None


def open_network_namespace(bwrap: str) -> NetworkNamespace:
    """Create a network namespace and keep it open. Raises OSError if that is impossible."""
    try:
        return ThreadHeldNamespace()
    except PermissionError:
        return FileHeldNamespace(bwrap)


class ThreadHeldNamespace:
    """A network namespace held by a thread, for users who may change namespaces.

    Programs started by that thread are in it, too, as fast as any start. The thread stays: bwrap
    ends its command when the thread that started it ends.
    """

    prefix = ()

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "travois-loopback")
        try:
            self._thread.submit(_enter_new_network).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def start(self, begin: Callable[[], ResultT]) -> ResultT:
        """Start a program from the thread."""
        return self._thread.submit(begin).result()

    def socket(self, family: int) -> socket.socket:
        """Open a TCP socket from the thread."""
        return self._thread.submit(socket.socket, family, socket.SOCK_STREAM).result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


class FileHeldNamespace:
    """A network namespace held by open files, for users who may change it only through bwrap.

    It belongs to a user namespace, which a process with threads cannot enter; so another program
    enters both and becomes the command.
    """

    def __init__(self, bwrap: str) -> None:
        self._nsenter = which("nsenter", path=SYSTEM_PATH)
        self._user, self._network = _make_namespaces(bwrap)
        self._helper: Popen[bytes] | None = None
        self._line: socket.socket | None = None

    @property
    def prefix(self) -> tuple[str, ...]:
        """A program that enters the namespaces by our open files, which no command inherits."""
        user, network = (f"/proc/{os.getpid()}/fd/{fd}" for fd in (self._user, self._network))
        if self._nsenter is not None:
            keep = "--preserve-credentials"
            return (self._nsenter, f"--user={user}", f"--net={network}", keep, "--")
        return (*_build_isolated_argv("enter.py"), user, network)

    def start(self, begin: Callable[[], ResultT]) -> ResultT:
        """Start a program, which enters the namespace through its prefix."""
        return begin()

    def socket(self, family: int) -> socket.socket:
        """Open a TCP socket through a helper in the namespace."""
        line = self._line = self._line or self._start_helper()
        line.send(bytes((family,)))
        said, fds, _, _ = socket.recv_fds(line, 1, 1)
        if not said or not fds:
            raise OSError("the helper process in the session's network has ended")
        return socket.socket(fileno=fds[0])

    def _start_helper(self) -> socket.socket:
        """Start the helper; it ends when we close our end of the line, or die."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._helper = Popen(
                (*self.prefix, *_build_isolated_argv("dialer.py")),
                stdin=theirs.fileno(),
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        return ours

    def close(self) -> None:
        """Close the files, and end the helper."""
        os.close(self._user)
        os.close(self._network)
        if self._line is not None:
            self._line.close()
        if self._helper is not None:
            self._helper.wait()


def find_listening_ports(pid: int) -> tuple[int, ...]:
    """Return the ports that servers in a process's own loopback network listen on."""
    found: set[int] = set()
    with suppress(OSError):
        if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            return ()  # it has not yet entered the session's
        for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
            with open(table) as file:
                rows = [line.split() for line in file][1:]
            found |= {int(row[1][-4:], 16) for row in rows if row[3] == TCP_LISTEN_STATE}
    return tuple(sorted(found))


def _enter_new_network() -> None:
    """Move the calling thread into a new network namespace and bring its loopback up."""
    landlock.enter_empty_network()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        ioctl(any_socket, SIOCSIFFLAGS, pack("16sH22x", b"lo", IFF_UP))


def _make_namespaces(bwrap: str) -> tuple[int, int]:
    """Create a user namespace with its own network; return their descriptors.

    bwrap brings the loopback up. Where only bwrap may make namespaces, this works as well.
    """
    with ExitStack() as stack:
        info, told = os.pipe()
        stack.callback(os.close, info)
        words = ("--unshare-user", "--unshare-net", "--die-with-parent", "--ro-bind", "/", "/")
        with os.fdopen(told, "wb") as theirs:
            maker = Popen(
                (bwrap, *words, "--info-fd", str(told), "--", "/bin/cat"),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        stack.enter_context(maker)  # closes its standard input, which ends cat
        place = f"/proc/{_read_child_pid(info)}/ns"
        # Our own network must never pass for the empty one: commands in it would reach everything.
        if os.stat(f"{place}/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            raise OSError("bwrap created no network namespace")
        user = os.open(f"{place}/user", os.O_RDONLY | os.O_CLOEXEC)
        return user, os.open(f"{place}/net", os.O_RDONLY | os.O_CLOEXEC)


def _read_child_pid(info: int) -> int:
    """Read the pid of bwrap's child, which holds the new network namespace."""
    said = b""
    while chunk := os.read(info, 4096):
        said += chunk
    try:
        return msgspec.json.decode(said, type=dict[str, int])["child-pid"]
    except (msgspec.DecodeError, KeyError):
        raise OSError("bwrap created no namespaces") from None


def _build_isolated_argv(script: str) -> tuple[str, ...]:
    """Return the command line of a sandbox helper script, run with the standard library alone."""
    path = os.path.join(os.path.dirname(__file__), script)
    return (os.path.realpath(sys.executable), "-I", "-S", path)
