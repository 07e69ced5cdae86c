"""The way out of a cage: to the hosts on its list, by the names they are listed under."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import running
from travois.permissions.hosts import rule_allows_url
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.network import (
    CommandProxy,
    NetworkProxy,
    is_reachable_address,
    normalise_host,
    parse_host_name,
)
from travois.sandbox.probe import find_sandbox_support

WALLS = find_sandbox_support(None)
caged = pytest.mark.skipif(WALLS.kind != "full", reason=WALLS.line)
curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
LABELS = st.text("abcxyz019", min_size=1, max_size=6).filter(
    lambda label: label.strip("0123456789x")
)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)


class Site(BaseHTTPRequestHandler):
    """Says what was asked of it, and keeps the connection if it may."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"{self.command} {self.path} {self.headers['host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """The port of a server that stands for every host that is reached."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


class Names:
    """A resolver that answers by its list, and remembers what it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if not self.answers:
            raise OSError("no such host")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def network(names: Names | None = None, *, judge: object = None) -> Iterator[NetworkProxy]:
    found = NetworkProxy(
        addresses=names or Names(["127.0.0.1"]), judge=judge or (lambda address: True)
    )
    try:
        yield found
    finally:
        found.close()


def run(door: CommandProxy, text: str) -> subprocess.CompletedProcess[str]:
    """A shell line in a network that has nothing but the door."""
    walls = (
        WALLS.bwrap,
        "--unshare-net",
        "--unshare-pid",
        "--die-with-parent",
        "--dev-bind",
        "/",
        "/",
    )
    done = subprocess.run(
        [*walls, *door.argv(("bash", "-c", text))],
        pass_fds=(door.fd,),
        env={**os.environ, **door.environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    door.close_inner_end()
    door.close()
    return done


def unlisted(host: str) -> str:
    return f"{host} is not on the list of allowed hosts; the user can add it"


PROXY = "${http_proxy#http}"
PORT = "${http_proxy##*:}"
"""Where the door is, for a shell inside."""


def raw(words: str) -> str:
    """A line that says these bytes to the door and prints the answer."""
    return f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf '{words}' >&3; timeout 5 head -c 300 <&3"


def known(words: str, door: CommandProxy) -> str:
    """A request with the password of the door."""
    told = b64encode(f"travois:{door.password}".encode()).decode()
    return words.replace(r"\r\n\r\n", rf"\r\nProxy-Authorization: Basic {told}\r\n\r\n")


# --- names ----------------------------------------------------------------------------------------


@given(host=NAMES, listed=NAMES)
def test_a_rule_means_a_host_and_a_star_only_what_is_below(host: str, listed: str) -> None:
    below = host.endswith(f".{listed}")
    assert rule_allows_url(f"domain:{normalise_host(listed)}", f"https://{host}") == (
        host == listed
    )
    assert rule_allows_url(f"domain:{normalise_host('*.' + listed)}", f"https://{host}") == below


@given(st.binary(max_size=30))
def test_what_counts_as_a_name_is_made_of_letters_digits_and_hyphens(host: bytes) -> None:
    name = parse_host_name(host)
    assert not name.strip("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert not name.rpartition(".")[2].isdigit()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"Example.ORG", "example.org"),
        (b"example.org.", "example.org"),
        ("bücher.example".encode(), "xn--bcher-kva.example"),
        ("EXAMPLE。org".encode(), "example.org"),
        (b"evil.org\0.example.org", ""),
        (b"evil.org%00.example.org", ""),
        (b"user@example.org", ""),
        (b"example.org..", ""),
        (b"-a.example.org", ""),
        (b"a_b.example.org", ""),
        (b"\xff\xfe.org", ""),
        (b"", ""),
        (b"." * 300, ""),
        (b"a" * 64 + b".org", ""),
        (b"127.0.0.1", ""),
        (b"127.1", ""),
        (b"2130706433", ""),
        (b"0x7f.0x1", ""),
        (b"0x7f000001", ""),
        (b"[::1]", ""),
        (b"::1", ""),
    ],
)
def test_a_host_has_one_name_or_none(host: bytes, name: str) -> None:
    assert parse_host_name(host) == name


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.100.100.200", "224.0.0.1", "168.63.129.16", "::1", "fe80::1", "fd00:ec2::254"),
        *("::ffff:127.0.0.1", "64:ff9b::7f00:1"),
    ],
)
def test_the_machine_its_neighbours_and_its_cloud_are_never_reached(address: str) -> None:
    assert not is_reachable_address(address)
    assert is_reachable_address("93.184.216.34") and is_reachable_address("2606:4700::1111")


# --- for real -------------------------------------------------------------------------------------


@caged
@curl
def test_a_listed_host_is_reached_in_every_way(site: int) -> None:
    names = Names(["127.0.0.1"])
    url = f"http://Example.org:{site}/a?b"
    with network(names) as net:
        door = net.open(("example.org",))
        done = run(
            door,
            f"curl -sS {url}; echo; curl -sSp {url}; echo;"
            f"curl -sS --proxy socks5h{PROXY} {url}; echo;"
            f"head -c 3000000 /dev/zero | curl -sS --data-binary @- {url} | wc -c",
        )
    asked = f"GET /a?b Example.org:{site}"
    # curl gives a proxy that speaks HTTP the name in small letters.
    assert done.stdout.lower().splitlines() == [asked.lower()] * 3 + ["3000000"]
    assert (done.stderr, done.returncode, door.refused) == ("", 0, ())
    assert names.asked == ["example.org"] * 4


@caged
@curl
def test_others_are_refused_in_words_and_remembered(site: int) -> None:
    names = Names(["127.0.0.1"])
    with network(names) as net:
        door = net.open(("example.org", "*.below.org"))
        done = run(
            door,
            "curl -s http://evil-example.org/; curl -s http://below.org/;"
            "curl -s http://example.org.evil.net/; curl -sSp http://evil.net/",
        )
    hosts = ["evil-example.org", "below.org", "example.org.evil.net", "evil.net"]
    assert done.stdout.splitlines() == [unlisted(host) for host in hosts[:3]]
    assert "response 403" in done.stderr
    assert door.refused == tuple(unlisted(host) for host in hosts)
    assert names.asked == []


@caged
@pytest.mark.parametrize(
    ("words", "answer", "refused"),
    [
        (
            r"CONNECT evil.net\0.example.org:443 HTTP/1.1\r\n\r\n",
            "403",
            r"evil.net\x00.example.org",
        ),
        (r"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", "403", "127.0.0.1"),
        (r"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", "403", "[::1]"),
        (r"GET http://example.org@evil.net/ HTTP/1.1\r\n\r\n", "403", "example.org@evil.net"),
        (r"GET http://example.org\\.evil.net/ HTTP/1.1\r\n\r\n", "403", r"example.org\\.evil.net"),
    ],
)
def test_disguises_are_refused(words: str, answer: str, refused: str) -> None:
    with network() as net:
        door = net.open(("example.org", "*.example.org"))
        done = run(door, raw(known(words, door)))
    assert done.stdout.split()[1] == answer
    assert door.refused == (f"{refused} is not a host name; commands can reach hosts only by name",)


@caged
@curl
def test_a_barred_host_is_refused_with_all_below_it_whatever_the_list_says() -> None:
    with network() as net:
        door = net.open(("*",), ("example.org",))
        words = "; ".join(f"curl -sS http://{h}/" for h in ("example.org", "a.example.org"))
        run(door, words)
    barred = "is on the list of blocked hosts"
    assert door.refused == (f"example.org {barred}", f"a.example.org {barred}")


@caged
@curl
def test_a_door_is_closed_to_who_does_not_know_its_password(site: int) -> None:
    url = f"http://example.org:{site}/"
    ways = ("", "-p", "--proxy-user travois:guess")
    plain = "; ".join(
        f"curl -s {way} -x 127.0.0.1:{PORT} -w '%{{http_connect}} %{{http_code}}\\n' {url}"
        for way in ways
    )
    socks = (f"socks5h://127.0.0.1:{PORT}", f"socks5h://travois:guess@127.0.0.1:{PORT}")
    more = "; ".join(f"curl -s -x {way} {url}; echo $?" for way in socks)
    with network() as net:
        door = net.open(("example.org",))
        done = run(door, f"({plain}; {more})")
    assert done.stdout.splitlines() == ["000 407", "407 000", "000 407", "97", "97"]
    assert door.refused == ()


@caged
@curl
def test_git_which_asks_before_it_tells_a_password_gets_through(site: int) -> None:
    names = Names(["127.0.0.1"])
    with network(names) as net:
        done = run(net.open(("example.org",)), f"git ls-remote http://example.org:{site}/x")
    assert (done.returncode, done.stderr, names.asked) == (0, "", ["example.org"] * 2)


@caged
def test_socks_refuses_addresses_disguises_and_datagrams() -> None:
    with network() as net:
        door = net.open(("example.org", "*.example.org"))
        hello = rf"\5\1\2\1\7travois\040{door.password}"
        address = raw(hello + r"\5\1\0\1\1\1\1\1\0\120") + " | od -An -tx1"
        nul = raw(hello + r"\5\1\0\3\015evil\0.example.org\0\120".replace("015", "021"))
        datagram = raw(hello + r"\5\3\0\1\0\0\0\0\0\0") + " | od -An -tx1"
        done = run(door, f"({address}); ({nul} | od -An -tx1); ({datagram})")
    yes, no = "05 02 01 00", "00 01 00 00 00 00 00 00"
    assert done.stdout.split() == f"{yes} 05 02 {no} {yes} 05 02 {no} {yes} 05 07 {no}".split()
    assert [words.split()[0] for words in door.refused] == ["1.1.1.1", r"evil\x00.example.org"]


@caged
@curl
@pytest.mark.parametrize(
    ("words", "answer"),
    [(r"GET / HTTP/1.1\r\n\r\n", ""), (r"BAD\r\n\r\n", ""), (r"\5\1\0", "005377")],
)
def test_nonsense_is_hung_up_on_and_harms_nobody(words: str, answer: str) -> None:
    with network() as net:
        door = net.open(("example.org",))
        said = raw(known(words, door))
        line = f"({said}) | od -An -b | tr -d '\\n '; curl -sS http://other.org/"
        done = run(door, line)
    assert done.stdout == answer + unlisted("other.org") + "\n"


@caged
@curl
def test_a_name_that_changes_its_mind_gains_nothing(site: int) -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    with network(names, judge=lambda address: address == "127.0.0.1") as net:
        door = net.open(("example.org",))
        url = f"http://example.org:{site}/"
        done = run(door, f"curl -sS {url}; echo; curl -sS {url}")
    inside = "example.org is in a private network, which commands may not reach"
    assert done.stdout.splitlines() == [f"GET / example.org:{site}", inside]
    assert names.asked == ["example.org"] * 2
    assert door.refused == (inside,)


@caged
@curl
def test_by_default_a_listed_name_of_this_machine_is_refused(site: int) -> None:
    net = NetworkProxy(addresses=Names(["127.0.0.1", "169.254.169.254"]))
    door = net.open(("example.org",))
    done = run(door, f"curl -sS http://example.org:{site}/")
    net.close()
    assert done.stdout == "example.org is in a private network, which commands may not reach\n"


@caged
@curl
def test_hosts_that_are_not_there_are_told() -> None:
    with network(Names()) as net:
        nobody = run(net.open(("example.org",)), "curl -s http://example.org/")
    with network() as net:
        silent = run(net.open(("example.org",)), "curl -s http://example.org:1/")
    assert nobody.stdout == "host example.org not found\n"
    assert silent.stdout == "example.org does not answer on port 1\n"


@caged
def test_there_is_no_way_past_the_door(site: int) -> None:
    script = f"""
import socket
tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
here, away = ('127.0.0.1', {site}), ('1.1.1.1', 53)
for kind, place in ((tcp, here), (udp, here), (tcp, away), (udp, away)):
    s = socket.socket(socket.AF_INET, kind)
    try:
        s.settimeout(2); s.connect(place); s.send(b'x'); print(s.recv(1))
    except OSError as error: print(type(error).__name__, error.errno)
"""
    with network() as net:
        done = run(net.open(("*",)), f'{sys.executable} -c "{script}"; getent hosts example.org')
    refused, away = "ConnectionRefusedError 111", "OSError 101"
    assert done.stdout.splitlines() == [refused, refused, away, away]


@caged
@curl
def test_a_list_holds_for_its_own_command_only(site: int) -> None:
    line = f"curl -s http://a.org:{site}/ http://b.org:{site}/ -w '\\n'"
    with network() as net:
        one, two = net.open(("a.org",)), net.open(("b.org",))
        first, second = run(one, line), run(two, line)
    assert first.stdout.splitlines()[0] == f"GET / a.org:{site}"
    assert second.stdout.splitlines()[-1] == f"GET / b.org:{site}"
    assert (one.refused, two.refused) == ((unlisted("b.org"),), (unlisted("a.org"),))


@caged
@pytest.mark.parametrize(
    ("text", "status"),
    [("exit 7", 7), ("kill -9 $$", 137), ("yes | head -1; exit ${PIPESTATUS}", 141)],
)
def test_the_command_ends_as_it_would_without_us(text: str, status: int) -> None:
    with network() as net:
        assert run(net.open(()), text).returncode == status


@caged
@curl
def test_nothing_is_left(site: int) -> None:
    before = left()
    with network() as net:
        for _ in range(3):
            run(net.open(("a.org",)), f"curl -sS http://a.org:{site}/; sleep 60 &")
        unused = net.open(("a.org",))
        assert left() != before
    assert unused.fd == -1
    assert left() == before


@caged
@curl
def test_more_connections_than_there_is_room_for_wait_their_turn(site: int) -> None:
    url = f"http://a.org:{site}/"
    with network() as net:
        door = net.open(("a.org",))
        done = run(door, f"curl -sS -Z --parallel-max 150 $(yes {url} | head -150) | wc -c")
    assert int(done.stdout) == 150 * len(f"GET / a.org:{site}")


@caged
def test_a_socket_that_is_only_passed_is_no_network() -> None:
    """The bridge lets go of what it got: the command has no way to talk to the proxy itself."""
    with network() as net:
        done = run(net.open(()), "ls -l /proc/self/fd | grep -c socket")
    assert done.stdout == "0\n"


# --- behind real walls ----------------------------------------------------------------------------


class Cell:
    """Commands behind all walls, which may reach example.org."""

    def __init__(self, folder: Path) -> None:
        for name in ("work", "temp"):
            (folder / name).mkdir()
        net = NetworkProxy(addresses=Names(["127.0.0.1"]), judge=lambda address: True)
        self.processes = LocalProcesses(support=find_sandbox_support(None), network=net)
        self._work, self._temp = str(folder / "work"), str(folder / "temp")

    def sh(self, text: str) -> Command:
        cage = SandboxProfile(
            "work", (self._work,), self._temp, network="listed", hosts=("example.org",)
        )
        return Command(("/bin/bash", "-c", text), self._work, sandbox=cage)


def left() -> tuple[int, set[str]]:
    """How many files we have open, and which threads."""
    names = {thread.name for thread in threading.enumerate()}
    return len(os.listdir("/proc/self/fd")), {n for n in names if n.startswith("travois")}


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Cell], Awaitable[None]]], None]:
    """Runs a scene in a cell, after which nothing may be left of it."""

    def played(scene: Callable[[Cell], Awaitable[None]]) -> None:
        async def main() -> None:
            cell, before = Cell(tmp_path), left()
            try:
                await scene(cell)
            finally:
                await cell.processes.aclose()
            assert left() == before

        anyio.run(main)

    return played


Play = Callable[[Callable[[Cell], Awaitable[None]]], None]


@caged
@curl
def test_a_command_is_told_whom_it_could_not_reach(play: Play, site: int) -> None:
    async def scene(cell: Cell) -> None:
        line = cell.sh(f"curl -sS http://example.org:{site}/; curl -sS https://evil.net/; exit 5")
        done = await cell.processes.run(line, timeout=300)
        assert done.output.head_and_tail().startswith(
            f"GET / example.org:{site}curl: (56)".encode()
        )
        assert (done.status, done.refused) == (5, (unlisted("evil.net"),))
        killed = await cell.processes.run(cell.sh("kill -9 $$"), timeout=300)
        assert (killed.status, killed.refused) == (-9, ())

    play(scene)


@caged
def test_a_command_with_open_connections_ends_with_all_that_it_started(play: Play) -> None:
    nap = f"{os.getpid()}{id(play)}"
    hanging = (
        f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; echo CONNECT >&3; (setsid sleep {nap} &) ; sleep {nap}"
    )

    def sleepers() -> list[int]:
        return running(f"sleep {nap}")

    async def scene(cell: Cell) -> None:
        done = await cell.processes.run(cell.sh(hanging), timeout=0.5)
        assert (done.timed_out, sleepers()) == (True, [])
        job = await cell.processes.start(cell.sh(f"echo on; {hanging}"), id="1")
        with anyio.fail_after(300):
            while job.take_output().total == 0:  # noqa: ASYNC110 - it happens outside of us
                await anyio.sleep(0.01)
        await job.kill()
        assert sleepers() == []

    play(scene)
