"""The network that the commands of a session share: a loopback, and nobody outside."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest

from tests.sandbox.caged import Scene, scene, walls
from travois.ports.world import ProcessResult
from travois.process.local_processes import LocalProcesses
from travois.sandbox import loopback
from travois.sandbox.loopback import (
    FileHeldNamespace,
    NetworkNamespace,
    ThreadHeldNamespace,
    find_listening_ports,
)

SECONDS = 300.0
SERVER = """
import http.server, sys
class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *args): ...
server = http.server.HTTPServer(("127.0.0.1", 0), Site)
print(server.server_port, flush=True)
server.serve_forever()
"""
ASK = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/").read().decode())
"""
Ways = Callable[[str], NetworkNamespace]


def by_thread(bwrap: str) -> NetworkNamespace:
    if os.geteuid():
        pytest.skip("only root may move a thread into a new network")
    return ThreadHeldNamespace()


def by_python(bwrap: str) -> NetworkNamespace:
    """As on a machine without nsenter."""
    found = FileHeldNamespace(bwrap)
    found._nsenter = None  # pyright: ignore[reportPrivateUsage] - to find none is all that differs
    return found


@pytest.fixture(params=[by_thread, FileHeldNamespace, by_python])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ways:
    """Each way of holding the network, whoever runs the tests."""
    monkeypatch.setattr(loopback, "open_network_namespace", request.param)
    return request.param


class Session:
    """The commands of one session, in one workspace."""

    def __init__(self, place: Scene) -> None:
        self.place = place
        self.processes = LocalProcesses(support=walls("full"))

    async def run(self, text: str, **cage: object) -> ProcessResult:
        command = self.place.sh(text, sandbox=self.place.but(**cage))
        return await self.processes.run(command, timeout=SECONDS)

    async def ask(self, port: int, **cage: object) -> str:
        """What the server at a port says to a command; the kind of error if it says nothing."""
        (self.place.work / "ask.py").write_text(ASK)
        done = await self.run(f"{sys.executable} ask.py {port}", **cage)
        return done.output.head_and_tail().decode().strip().rpartition("\n")[2]

    async def serve(self, id: str = "server", **cage: object) -> int:
        """Start a server in the background; returns the port that it listens at."""
        (self.place.work / "server.py").write_text(SERVER)
        text = f"exec {sys.executable} server.py"
        job = await self.processes.start(self.place.sh(text, sandbox=self.place.but(**cage)), id=id)
        said = b""
        with anyio.fail_after(SECONDS):
            while not said.endswith(b"\n"):
                await job.wait_for_change()
                said += job.take_output().head_and_tail()
        return int(said)


def play(act: Callable[[Session], Awaitable[None]]) -> None:
    async def main() -> None:
        with scene() as place:
            session = Session(place)
            try:
                await act(session)
            finally:
                await session.processes.aclose()

    anyio.run(main)


REFUSED = "<urlopen error [Errno 111] Connection refused>"


def refused(said: str) -> bool:
    return said.endswith(REFUSED)


def test_a_server_answers_the_next_command_whatever_that_may_do(way: Ways) -> None:
    async def act(session: Session) -> None:
        port = await session.serve()
        assert await session.ask(port) == "served"
        assert await session.ask(port, profile="look") == "served"
        assert await session.ask(port, network="listed", hosts=("example.org",)) == "served"

    play(act)


def test_files_belong_to_the_user_and_no_namespace_is_handed_in(way: Ways) -> None:
    async def act(session: Session) -> None:
        done = await session.run("touch made; ls -l /proc/self/fd | grep -c 'net:\\|user:'")
        assert done.output.head_and_tail() == b"0\n"
        made = (session.place.work / "made").stat()
        assert (made.st_uid, made.st_gid) == (os.geteuid(), os.getegid())

    play(act)


def test_nobody_outside_is_reached_and_nobody_outside_reaches_in(way: Ways) -> None:
    async def act(session: Session) -> None:
        with machine_server() as outside:
            assert refused(await session.ask(outside))
            assert refused(await session.ask(outside, profile="look"))
        there = await session.run("cat /proc/net/dev /proc/net/route; cat /proc/net/unix | wc -l")
        interfaces = [line for line in there.output.head_and_tail().splitlines() if b":" in line]
        assert [line.split(b":")[0].strip() for line in interfaces] == [b"lo"]
        port = await session.serve()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))

    play(act)


def test_two_sessions_do_not_see_each_other(way: Ways) -> None:
    async def act(session: Session) -> None:
        port = await session.serve()
        hello = "import socket; s=socket.socket(socket.AF_UNIX); s.bind('\\0hello'); s.listen()"
        talk = "import socket; s=socket.socket(socket.AF_UNIX); s.connect('\\0hello'); print('in')"
        (session.place.work / "hello.py").write_text(
            f"{hello}; print(1); import time; time.sleep(999)"
        )
        (session.place.work / "talk.py").write_text(talk)
        job = await session.processes.start(
            session.place.sh(f"exec {sys.executable} -u hello.py"), id="hello"
        )
        await job.wait_for_change()
        assert (await session.run(f"{sys.executable} talk.py")).output.head_and_tail() == b"in\n"
        other = Session(session.place)
        assert refused(await other.ask(port))
        assert (await other.run(f"{sys.executable} talk.py")).status == 1
        await other.processes.aclose()

    play(act)


def test_a_socket_for_the_browser_leads_into_the_session(way: Ways) -> None:
    async def act(session: Session) -> None:
        assert session.processes.session_socket(socket.AF_INET) is None
        port = await session.serve()
        for _ in range(2):
            found = session.processes.session_socket(socket.AF_INET)
            assert found is not None
            with found:
                found.connect(("127.0.0.1", port))
                found.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert found.makefile("rb").read().endswith(b"served")

    play(act)


def test_nothing_is_left_of_it(way: Ways) -> None:
    def held() -> tuple[int, set[str]]:
        gc.collect()  # what other tests left behind is closed before it is counted
        threads = {one.name for one in threading.enumerate() if "travois" in one.name}
        return len(os.listdir("/proc/self/fd")), threads

    async def act(session: Session) -> None:
        await session.serve()
        assert session.processes.session_socket(socket.AF_INET) is not None

    async def main() -> None:
        with scene() as place:
            before = held()
            session = Session(place)
            await act(session)
            await session.processes.aclose()
            assert held() == before

    anyio.run(main)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_who_asks_only_this_machine_gets_the_network_that_answers() -> None:
    async def act(session: Session) -> None:
        port = await session.serve()
        with machine_server() as outside:
            for wanted, ports in ((port, (port,)), (outside, (outside,))):
                text = f"curl -sS --http0.9 http://127.0.0.1:{wanted}/"
                done = await session.run(text, network="on", local_ports=ports)
                assert (done.status, done.output.head_and_tail()) == (0, b"served")
        missed = await session.run(f"curl -sS http://127.0.0.1:{port}/", network="on")
        assert (missed.status, missed.session_ports) == (7, (port,))

    play(act)


def test_a_process_of_our_own_network_tells_no_ports() -> None:
    with machine_server():
        assert find_listening_ports(os.getpid()) == ()


@contextmanager
def machine_server() -> Iterator[int]:
    """A server of the machine's own; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            try:
                while True:
                    with listener.accept()[0] as client:
                        client.recv(4096)
                        client.sendall(b"HTTP/1.0 200 OK\r\n\r\nserved")
            except OSError:
                pass

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
