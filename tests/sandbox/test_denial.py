"""Whether the sandbox was the cause of a failure, by programs' own words."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from travois.permissions.sandbox_profile import SandboxProfile
from travois.sandbox.denial import Denial, find_denial, find_granted_access
from travois.sandbox.disk_facts import LocalDisk

WORK = SandboxProfile(
    "work",
    ("/w",),
    "/state/tmp/1",
    pinned=("/w/.git/hooks", "/w/.vscode"),
    hidden=("/home/u/.ssh", "/state"),
    shown=("/state/skills",),
    writable=("/srv/cache",),
)
LOOK = msgspec.structs.replace(WORK, profile="look", pinned=(), writable=())
PARTIAL = msgspec.structs.replace(WORK, backend="partial")
LOOK_PARTIAL = msgspec.structs.replace(LOOK, backend="partial")


class FakeDisk(msgspec.Struct, frozen=True):
    """A machine whose user owns everything but what is named."""

    foreign: tuple[str, ...] = ("/etc", "/root", "/usr", "/w/theirs", "/bin")
    read_only: tuple[str, ...] = ("/media/cd",)
    programs: tuple[str, ...] = ()
    root: bool = False
    ports: tuple[int, ...] = ()

    @property
    def is_root(self) -> bool:
        return self.root

    def resolve(self, path: str) -> str:
        return path

    def can_access(self, path: str, need: Literal["read", "write"]) -> bool:
        return self.root or not path.startswith(self.foreign)

    def needs_root(self, path: str) -> bool:
        return self.root and path.startswith("/home/other")

    def is_read_only(self, path: str) -> bool:
        return path.startswith(self.read_only)

    def is_program(self, path: str) -> bool:
        return path in self.programs

    def has_listener(self, port: int) -> bool:
        return port in self.ports


USER, ROOT = FakeDisk(), FakeDisk(root=True)


def denial(
    text: str,
    cage: SandboxProfile = WORK,
    disk: FakeDisk = USER,
    *,
    cwd: str = "/w",
    line: str = "",
) -> Denial | None:
    return find_denial(text, cage, cwd=cwd, disk=disk, line=line)


# How many programs say that a path on a read-only mount could not be written.
SAYING = [
    "touch: cannot touch '{path}': Read-only file system",
    "touch: cannot touch ‘{path}’: Read-only file system",
    "mkdir: cannot create directory '{path}': Read-only file system",
    "rm: cannot remove '{path}': Read-only file system",
    "cp: cannot create regular file '{path}': Read-only file system",
    "mv: cannot move 'a' to '{path}': Read-only file system",
    "ln: failed to create symbolic link '{path}': Read-only file system",
    "tee: {path}: Read-only file system",
    "bash: {path}: Read-only file system",
    "bash: line 3: {path}: Read-only file system",
    "/bin/bash: line 1: {path}: Read-only file system",
    "/bin/sh: 1: cannot create {path}: Read-only file system",
    "zsh: read-only file system: {path}",
    "sed: couldn't open temporary file {path}: Read-only file system",
    "tar: {path}: Cannot open: Read-only file system",
    "OSError: [Errno 30] Read-only file system: '{path}'",
    "Error: EROFS: read-only file system, open '{path}'",
    "npm error Error: EROFS: read-only file system, mkdir '{path}'",
    "open {path}: read-only file system",
    "panic: mkdir {path}: read-only file system",
    "Error: Read-only file system @ rb_sysopen - {path}",
    "java.io.FileNotFoundException: {path} (Read-only file system)",
    "fatal: could not create leading directories of '{path}': Read-only file system",
    "fatal: Unable to create '{path}': Read-only file system",
    "fatal: could not create work tree dir '{path}': Read-only file system",
    "error: unable to create file {path}: Read-only file system",
    "/usr/bin/ld: cannot open output file {path}: Read-only file system",
    "error: could not write to `{path}`: Read-only file system (os error 30)",
    "E: Could not open lock file {path} - open (30: Read-only file system)",
    "Can't open '{path}': Read-only file system at x.pl line 1.",
    "wget: can't open '{path}': Read-only file system",
]


@pytest.mark.parametrize("saying", SAYING)
def test_what_only_the_sandbox_keeps_from_being_written_is_found(saying: str) -> None:
    assert denial(saying.format(path="/opt/x")) == Denial("write", "/opt/x")
    assert denial(f"one\n{saying.format(path='../x')}\nlast") == Denial("write", "/x")


@pytest.mark.parametrize("saying", SAYING)
def test_a_disk_that_is_read_only_itself_is_not_the_sandboxs_doing(saying: str) -> None:
    assert denial(saying.format(path="/media/cd/x")) is None


@pytest.mark.parametrize("saying", SAYING)
def test_what_the_user_could_not_write_either_is_not_the_sandboxs_doing(saying: str) -> None:
    assert denial(saying.format(path="/etc/x")) is None
    assert denial(saying.format(path="/etc/x"), disk=ROOT) == Denial("write", "/etc/x")


FORBIDDEN = [
    saying.replace("Read-only file system", "Permission denied")
    .replace("read-only file system", "permission denied")
    .replace("EROFS", "EACCES")
    .replace("30", "13")
    for saying in SAYING
]


@pytest.mark.parametrize("saying", FORBIDDEN)
def test_a_missing_permission_is_not_the_sandboxs_doing(saying: str) -> None:
    for path in ("/root/secret", "theirs/file", "/w/theirs/file", "/etc/x"):
        said = saying.format(path=path)
        for cage in (WORK, LOOK, PARTIAL):
            assert denial(said, cage) is None, said


@pytest.mark.parametrize("saying", FORBIDDEN)
def test_a_mount_does_not_forbid_so_a_forbidden_write_is_not_its_doing(saying: str) -> None:
    assert denial(saying.format(path="/opt/x")) is None


@pytest.mark.parametrize("saying", FORBIDDEN)
def test_without_mounts_the_sandbox_forbids(saying: str) -> None:
    line = "make > /opt/x"
    assert denial(saying.format(path="/opt/x"), PARTIAL, line=line) == Denial("write", "/opt/x")
    assert denial(saying.format(path="/w/x"), PARTIAL, line=line) is None
    assert denial(saying.format(path="/state/tmp/1/x"), PARTIAL, line=line) is None
    assert denial(saying.format(path="/tmp/x"), PARTIAL, line="> /tmp/x") == Denial(
        "write", "/tmp/x"
    )


@pytest.mark.parametrize(
    ("said", "cage", "disk", "found"),
    [
        ("cat: /home/u/.ssh/id: Permission denied", WORK, USER, Denial("read", "/home/u/.ssh/id")),
        ("cat: /home/u/.ssh/id: Permission denied", LOOK, USER, Denial("read", "/home/u/.ssh/id")),
        ("cat: /state/skills/x: Permission denied", WORK, USER, None),
        ("cat: /home/u/.ssh/id: No such file or directory", LOOK, USER,
         Denial("read", "/home/u/.ssh/id")),
        ("cat: /home/u/nothing: No such file or directory", WORK, USER, None),
        ("bash: line 1: nothing: No such file or directory", LOOK, USER, None),
        ("rm: cannot remove '.git/hooks': Device or resource busy", WORK, USER,
         Denial("pinned", "/w/.git/hooks")),
        ("rm: cannot remove '/mnt/usb': Device or resource busy", WORK, USER, None),
        ("touch: cannot touch '.vscode/x': Permission denied", WORK, USER,
         Denial("pinned", "/w/.vscode/x")),
        ("bash: .git/hooks/pre-commit: Read-only file system", WORK, USER,
         Denial("pinned", "/w/.git/hooks/pre-commit")),
        ("bash: /tmp/x: Permission denied", WORK, USER, None),
        ("touch: cannot touch '/srv/cache/x': Permission denied", WORK, USER, None),
        ("ls: cannot open directory '/home/other': Permission denied", WORK, ROOT,
         Denial("rights", "/home/other")),
        ("ls: cannot open directory '/home/other': Permission denied", WORK, USER, None),
        ("chown: changing ownership of 'a': Operation not permitted", WORK, ROOT,
         Denial("rights", "/w/a")),
        ("chown: changing ownership of 'a': Operation not permitted", WORK, USER, None),
        ('sudo: The "no new privileges" flag is set, which prevents sudo', WORK, USER,
         Denial("rights")),
        ("git@github.com: Permission denied (publickey).", WORK, USER, None),
        ("git@github.com: Permission denied (publickey).", LOOK, USER, None),
        ("Permission denied, please try again.", WORK, ROOT, None),
        ("kill: (1) - Operation not permitted", WORK, USER, None),
    ],
)  # fmt: skip
def test_each_kind_of_denial(
    said: str, cage: SandboxProfile, disk: FakeDisk, found: Denial | None
) -> None:
    assert denial(said, cage, disk) == found


def test_a_script_that_is_not_executable_is_not_the_sandboxs_doing() -> None:
    said = "/bin/bash: line 1: /opt/run.sh: Permission denied"
    assert denial(said, PARTIAL, line="/opt/run.sh") is None
    assert denial(said, PARTIAL, line="echo x >/opt/run.sh") == Denial("write", "/opt/run.sh")
    assert denial("sh: 1: ./run.sh: Permission denied", LOOK_PARTIAL, line="./run.sh") is None


def test_what_cannot_be_read_only_for_another_reason_needs_no_path() -> None:
    for said in ("Read-only file system", "error: Read-only file system (os error 30)"):
        assert denial(said) == Denial("write")
        assert denial(said, LOOK) == Denial("write")


def test_a_database_says_no_path_so_only_a_try_that_may_not_write_is_blamed() -> None:
    said = "sqlite3.OperationalError: attempt to write a readonly database"
    assert denial(said) is None
    assert denial(said, LOOK) == Denial("write")
    assert denial("Error: unable to open database file", LOOK_PARTIAL) == Denial("write")


def test_in_a_try_the_workspace_cannot_be_written() -> None:
    said = "touch: cannot touch 'made': Read-only file system"
    assert denial(said, LOOK) == Denial("write", "/w/made")
    said = "touch: cannot touch 'made': Permission denied"
    assert denial(said, LOOK_PARTIAL) == Denial("write", "/w/made")
    assert denial("touch: cannot touch 'theirs/x': Permission denied", LOOK_PARTIAL) is None


OFFLINE = [
    ("curl: (6) Could not resolve host: example.org", "example.org"),
    ("ping: example.org: Name or service not known", ""),
    ("fatal: unable to access 'https://example.org/x.git/': Could not resolve host: example.org",
     "example.org"),
    ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", ""),
    ("npm error code ENOTFOUND\nnpm error network request to https://example.org failed", ""),
    ("dial tcp: lookup example.org: Temporary failure in name resolution", "example.org"),
    ("connect: Network is unreachable", ""),
    ("Error: getaddrinfo EAI_AGAIN registry.npmjs.org", "registry.npmjs.org"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "host"), OFFLINE)
def test_the_network_is_missed_only_where_there_is_none(said: str, host: str) -> None:
    found = denial(said)
    assert found == Denial("network", host)
    assert denial(said, msgspec.structs.replace(WORK, network="on")) is None


def test_a_port_of_this_machine_is_missed_only_if_somebody_listens_there() -> None:
    for said in (
        "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server",
        "requests.exceptions.ConnectionError: ('127.0.0.1', 8080): Connection refused",
        "Error: connect ECONNREFUSED 127.0.0.1:8080",
        "dial tcp [::1]:8080: connect: connection refused",
        "bash: line 1: /dev/tcp/127.0.0.1/8080: Connection refused",
    ):
        assert denial(said) is None, said
        found = denial(said, disk=FakeDisk(ports=(8080,)))
        assert found == Denial("network", "port 8080 on this machine"), said
    assert denial("connect to 10.0.0.1 port 22: Connection refused") is None


def test_sockets_are_refused_where_there_is_no_other_way_to_be_offline() -> None:
    said = "ping: socket: Operation not permitted"
    assert denial(said, PARTIAL) == Denial("network")


@pytest.mark.parametrize(
    "said",
    [
        "cat: {}: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: '{}'",
        "Error: ENOENT: no such file or directory, open '{}'",
        "ls: cannot access '{}': No such file or directory",
        "grep: {}: No such file or directory",
    ],
)
def test_what_is_missing_in_a_hidden_folder_is_not_the_sandboxs_doing(
    tmp_path: Path, said: str
) -> None:
    hiding = msgspec.structs.replace(WORK, hidden=(str(tmp_path),))
    (tmp_path / "there").touch()
    for name, found in (("there", Denial("read", f"{tmp_path}/there")), ("none", None)):
        text = said.format(tmp_path / name)
        assert find_denial(text, hiding, cwd="/w", disk=LocalDisk()) == found


@pytest.mark.parametrize(
    "said",
    [
        "touch: cannot touch '{}': No such file or directory",
        "cp: cannot create regular file '{}': No such file or directory",
    ],
)
def test_what_could_not_be_made_in_a_hidden_folder_is(tmp_path: Path, said: str) -> None:
    hiding = msgspec.structs.replace(WORK, hidden=(str(tmp_path),))
    text = said.format(tmp_path / "none")
    found = find_denial(text, hiding, cwd="/w", disk=LocalDisk())
    assert found == Denial("read", str(tmp_path))


@pytest.mark.parametrize(
    ("path", "cage", "grant"),
    [
        ("/w/src/a", WORK, "write"),
        ("/w/src/a", LOOK, "read"),
        ("/w/.git/hooks/x", WORK, "pinned"),
        ("/w/.git/config", WORK, "write"),
        ("/srv/cache/x", WORK, "write"),
        ("/srv/x", WORK, "read"),
        ("/state/log", WORK, "none"),
        ("/state/skills/x", WORK, "read"),
        ("/tmp/x", WORK, "write"),
        ("/var/tmp/x", LOOK, "write"),
        ("/tmp/x", PARTIAL, "read"),
        ("/w/.git/hooks/x", PARTIAL, "write"),
        ("/state/tmp/1/x", PARTIAL, "write"),
        ("/state/tmp/1/x", WORK, "none"),
        ("/usr/bin/x", WORK, "read"),
    ],
)
def test_of_two_folders_the_deeper_one_says_what_is_granted(
    path: str, cage: SandboxProfile, grant: str
) -> None:
    assert find_granted_access(cage, path) == grant
