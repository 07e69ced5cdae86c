"""What the model is told of the sandbox after real commands: only what the sandbox did."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from socket import create_server

import pytest

from tests.e2e.program import Program
from tests.e2e.test_tmp import BYPASS, call, play

OFFLINE = ("--settings", json.dumps({"sandbox": {"network": {"mode": "off"}}}), *BYPASS)
ROOT = os.geteuid() == 0


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the user that is neither in the workspace nor in /tmp."""
    folder = Path(tempfile.mkdtemp(prefix=".travois-outside-", dir=Path.home()))
    yield folder
    shutil.rmtree(folder)


def write(path: object) -> str:
    """A command whose writing nobody sees before it runs."""
    return f"""python3 -c "open('{path}', 'w')" """


def remarked(text: str) -> bool:
    return "sandbox" in text.lower()


def test_a_write_to_a_hidden_folder_is_told_with_that_folder(full: Program, outside: Path) -> None:
    """The folder lies in the home, which commands do not see, so that it is not there for them."""
    touch = f"import os; os.execvp('touch', ['touch', '{outside}/x'])"
    (said,) = play(full, call("Bash", command=f'python3 -c "{touch}"'), flags=OFFLINE)
    assert said.endswith(
        f"[The sandbox hides {outside} from commands; the user can allow it with the setting "
        "sandbox.filesystem.allowRead. If needed, call again with sandbox: off.]"
    )


def test_without_mounts_the_remark_names_the_folder_for_temporary_files(
    partial: Program, outside: Path
) -> None:
    (said,) = play(partial, call("Bash", command=write(outside / "x")), flags=OFFLINE)
    assert "write only in the workspace and $TMPDIR" in said
    assert f"{partial.home}/tmp/" in said
    assert f"not to {outside}/x." in said


def test_a_pinned_path_is_told_as_such(full: Program) -> None:
    (full.folder / ".git/hooks").mkdir(parents=True)
    (said,) = play(full, call("Bash", command=write(".git/hooks/pre-commit")), flags=OFFLINE)
    hook = full.folder / ".git/hooks/pre-commit"
    assert f"[The sandbox does not let commands change {hook}." in said
    assert not hook.exists()


@pytest.mark.parametrize("name", ["full", "partial"])
def test_a_hidden_path_is_told_as_such(
    name: str, outside: Path, request: pytest.FixtureRequest
) -> None:
    program: Program = request.getfixturevalue(name)
    (outside / "key").write_text("secret")
    hidden = json.dumps({"sandbox": {"filesystem": {"denyRead": [str(outside)]}}})
    line = f"""python3 -c "print(open('{outside}/key').read())" """
    script = call("Bash", command=line), call("Bash", command=f"cat {outside}/none")
    said, missing = play(program, *script, flags=("--settings", hidden, *BYPASS))
    assert f"[The sandbox hides {outside}/key from commands; the user can allow it" in said
    # What is not there could not be read without a sandbox either.
    assert "No such file" in missing
    assert "sandbox hides" not in missing


FAILURES = [
    "echo 'Permission denied'; exit 1",
    "echo 'git@github.com: Permission denied (publickey).'; exit 128",
    "./run.sh",
    "cat /no/such/file",
    "cat /root/../etc/none: Permission denied; exit 1",
    "mkdir made/too/deep",
    "exec 3<>/dev/tcp/127.0.0.1/9",
]


def test_other_failures_are_not_blamed_on_the_sandbox(full: Program) -> None:
    (full.folder / "run.sh").write_text("echo ran\n")
    script = [call("Bash", command=line) for line in FAILURES]
    for line, said in zip(FAILURES, play(full, *script, flags=OFFLINE), strict=True):
        assert "Exit code" in said, line
        assert not remarked(said), said


def test_nor_are_they_without_mounts(partial: Program) -> None:
    (partial.folder / "run.sh").write_text("echo ran\n")
    script = [call("Bash", command=line) for line in FAILURES[:-1]]
    for said in play(partial, *script, flags=OFFLINE):
        assert not remarked(said), said


def test_a_file_without_permissions_is_blamed_only_if_root_could_read_it(full: Program) -> None:
    line = "touch mine && chmod 000 mine && cat mine"
    (said,) = play(full, call("Bash", command=line), flags=OFFLINE)
    assert "Permission denied" in said
    assert ("No program in the sandbox has root rights" in said) is ROOT


def test_a_port_is_blamed_on_the_sandbox_only_if_somebody_listens(full: Program) -> None:
    with create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        line = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        (said,) = play(full, call("Bash", command=line), flags=OFFLINE)
        assert f"no network in the sandbox and cannot reach port {port} on this machine" in said
        (said,) = play(full, call("Bash", command=line))
        assert not remarked(said)


def test_a_host_is_missed_only_without_a_network(full: Program) -> None:
    line = "python3 -c \"import socket; socket.getaddrinfo('nobody.invalid', 80)\""
    (said,) = play(full, call("Bash", command=line), flags=OFFLINE)
    assert "[This command has no network in the sandbox. If needed," in said
    (said,) = play(full, call("Bash", command=line))
    assert not remarked(said)


# --- what nobody has allowed runs read-only first ------------------------------------------------


def test_a_try_that_fails_at_the_walls_is_asked_about(full: Program) -> None:
    database = "import sqlite3; sqlite3.connect('db').execute('create table t (x)')"
    lines = (
        write("made"),
        "python3 -c 'import os; os.mkdir(\"d\")'",
        "python3 -c 'import os; os.system(\"mkdir e\"); exit(1)'",
        f'python3 -c "{database}"',
    )
    for said in play(full, *(call("Bash", command=line) for line in lines), flags=()):
        assert "More was not permitted: failed read-only and without network" in said
    assert list(full.folder.iterdir()) == []


def test_a_try_that_fails_for_itself_is_not(full: Program) -> None:
    lines = (
        "python3 -c 'raise PermissionError(13, \"Permission denied\")'",
        "python3 -c 'exit(\"git@github.com: Permission denied (publickey).\")'",
        "python3 -c 'exit(3)'",
    )
    for said in play(full, *(call("Bash", command=line) for line in lines), flags=()):
        assert "More was not permitted" not in said
        assert "If it failed because of that, call again with sandbox: write." in said


def test_a_try_without_mounts_is_asked_about_too(partial: Program) -> None:
    (said,) = play(partial, call("Bash", command=write("made")), flags=())
    assert "nothing that it wrote outside its TMPDIR was kept" in said
    assert "More was not permitted" in said
