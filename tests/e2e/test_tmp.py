"""/tmp with the real program: what is private says so, lasts, and can be found on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import close_namespaces
from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE
from travois.sandbox import probe

BYPASS = ("--permission-mode", "bypass")
DONE = {"say": [{"text": "done"}]}


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder in the machine's own /tmp, with a file of the user."""
    folder = Path(tempfile.mkdtemp(prefix="travois-machine-", dir="/tmp"))
    (folder / "notes.txt").write_text("from the user\n")
    yield folder
    shutil.rmtree(folder)


def call(name: str, **args: object) -> dict[str, Any]:
    return {"say": [use(name, **args)]}


def results(body: Any) -> list[str]:
    """The results of tool calls that a request carried, as text."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    found = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [_text(one) for one in found]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(b.get("text", "") for b in content)


def play(program: Program, *script: dict[str, Any], flags: tuple[str, ...] = BYPASS) -> list[str]:
    """Run one prompt; returns what the model saw of its calls."""
    with program.served([*script, DONE]) as api:
        done = program.ask("go", *flags)
        assert done.out == "done\n", done.err
        api.no_invalid()
        return results(api.bodies[-1])


def told_path(text: str) -> Path:
    found = re.search(r"on disk, \S+ is (\S+?)[;.\]]+(?:\s|$)", text)
    assert found, text
    return Path(found[1])


def test_what_write_creates_in_tmp_is_where_it_says_and_a_resumed_session_has_it(
    full: Program,
) -> None:
    (said,) = play(full, call("Write", file_path="/tmp/plan.txt", content="first\n"))
    assert said.startswith("Created /tmp/plan.txt: 1 lines.")
    assert PRIVATE_TMP_NOTICE in said
    assert not os.path.lexists("/tmp/plan.txt")
    place = told_path(said)
    assert place.read_text() == "first\n"
    assert place.is_relative_to(full.home)
    assert place.parent.stat().st_mode & 0o777 == 0o700

    script = [
        call("Read", file_path="/tmp/plan.txt"),
        call("Edit", file_path="/tmp/plan.txt", old_string="first", new_string="second"),
        call("Bash", command="cat /tmp/plan.txt"),
    ]
    read, edited, shown = play(full, *script, flags=("--continue", *BYPASS))[1:]
    assert read.startswith("1\tfirst")
    assert f"on disk, /tmp/plan.txt is {place}" in edited
    assert "a link to" not in edited
    assert shown == "second"
    assert place.read_text() == "second\n"


def test_a_command_tells_once_what_it_left_in_tmp(full: Program) -> None:
    many = "for n in 1 2 3 4 5; do mkdir /tmp/d$n; done"
    script = [
        call("Bash", command="echo hi > /tmp/made"),
        call("Bash", command="cat /tmp/made /var/tmp/made"),
        call("Bash", command=many),
        call("Bash", command="sleep 0", run_in_background=True),
    ]
    first, second, third, fourth = play(full, *script)
    (place,) = full.home.glob("tmp/*/made")
    assert place.read_text() == "hi\n"
    assert first == f"[{PRIVATE_TMP_NOTICE}; on disk, this command left {place}.]"
    assert second == "hi\nhi"
    assert third.endswith(f"{place.parent}/d3 and 2 more there.]")
    assert str(place.parent) in fourth


def test_a_session_that_left_nothing_in_tmp_leaves_no_folder(full: Program) -> None:
    assert play(full, call("Bash", command="touch /tmp/x; rm /tmp/x; echo ok")) == ["ok"]
    assert list(full.home.glob("tmp/*")) == []


def test_a_session_that_leaves_no_trace_says_that_its_tmp_goes(full: Program) -> None:
    flags = ("--no-session-persistence", *BYPASS)
    (said,) = play(full, call("Write", file_path="/tmp/plan.txt", content="x"), flags=flags)
    assert "it is removed when this session ends" in said
    assert not told_path(said).exists()


def test_a_fork_begins_with_a_copy_of_tmp(full: Program) -> None:
    (said,) = play(full, call("Write", file_path="/tmp/plan.txt", content="one\n"))
    change = call("Bash", command="cat /tmp/plan.txt; echo two > /tmp/plan.txt")
    flags = ("--continue", "--fork-session", *BYPASS)
    assert play(full, change, flags=flags)[1] == "one"
    assert told_path(said).read_text() == "one\n"
    assert sorted(p.read_text() for p in full.home.glob("tmp/*/plan.txt")) == ["one\n", "two\n"]


def test_tmp_goes_to_the_trash_with_its_session_and_comes_back_with_it(full: Program) -> None:
    (said,) = play(full, call("Write", file_path="/tmp/plan.txt", content="kept\n"))
    place = told_path(said)
    du = json.loads(full.run("sessions", "du", "--json").out)
    assert full.run("sessions", "prune", "--older-than", "0h").code == 0
    assert not place.exists()
    (trashed,) = full.home.glob("trash/*/*")
    assert (trashed / "tmp/plan.txt").read_text() == "kept\n"
    assert sum(du["each"].values()) == sum(f.stat().st_size for f in trashed.rglob("*.*"))
    shutil.move(trashed, full.home / "sessions" / trashed.parent.name / trashed.name)
    assert play(full, call("Bash", command="cat /tmp/plan.txt"), flags=("-c", *BYPASS))[1] == "kept"
    assert place.read_text() == "kept\n"


def test_a_file_of_the_machines_tmp_is_read_as_any_path_outside(
    full: Program, machine: Path
) -> None:
    notes = str(machine / "notes.txt")
    script = [call("Read", file_path=notes), call("Grep", pattern="user", path=str(machine))]
    denied = play(full, *script, flags=())
    assert all(f"reads outside the workspace: {machine}" in one for one in denied)
    flags = ("--allowedTools", f"Read(/{machine}),Grep(/{machine})")
    read, found = play(full, *script, flags=flags)
    assert read.startswith("1\tfrom the user")
    assert f"[{notes} is the machine's own; commands in the sandbox cannot see it.]" in read
    assert notes in found


def test_a_mention_of_a_file_in_the_machines_tmp_needs_leave(full: Program, machine: Path) -> None:
    for flags, seen in (((), False), (("--allowedTools", f"Read(/{machine}/**)"), True)):
        with full.served([DONE]) as api:
            full.ask(f"see @{machine}/notes.txt", *flags)
            assert ("from the user" in json.dumps(api.bodies[-1])) is seen


def test_a_command_that_misses_a_file_of_the_machine_is_told_why(
    full: Program, machine: Path
) -> None:
    notes = machine / "notes.txt"
    told, missing, found = play(
        full,
        call("Bash", command=f"cat {notes}"),
        call("Bash", command="cat /tmp/nobody-has-this"),
        call("Bash", command=f"mkdir -p {machine}; echo mine > {notes}; cat {notes}; false"),
    )
    assert f"they cannot see the machine's own {notes}, but Read can.]" in told
    assert PRIVATE_TMP_NOTICE not in missing
    assert "but Read can" not in found


def test_a_change_of_a_file_in_the_machines_tmp_is_asked_about_and_real(
    full: Program, machine: Path
) -> None:
    notes = str(machine / "notes.txt")
    edit = call("Edit", file_path=notes, old_string="user", new_string="model")
    allowed = ("--allowedTools", f"Read(/{machine}/**)")
    _, denied = play(full, call("Read", file_path=notes), edit, flags=allowed)
    assert f"writes outside the workspace: {notes}" in denied
    assert (machine / "notes.txt").read_text() == "from the user\n"
    _, edited = play(full, call("Read", file_path=notes), edit)
    assert "is the machine's own" in edited
    assert (machine / "notes.txt").read_text() == "from the model\n"


def test_a_search_of_the_private_tmp_says_what_it_was_not(full: Program, machine: Path) -> None:
    (said,) = play(full, call("Glob", pattern="/tmp/**/notes.txt"))
    assert said.startswith("No file matches")
    assert "The machine's own /tmp was not searched." in said


def test_a_command_outside_the_sandbox_has_the_machines_tmp(full: Program, machine: Path) -> None:
    line = f"echo out > {machine}/out"
    (said,) = play(full, call("Bash", command=line, sandbox="off"))
    assert PRIVATE_TMP_NOTICE not in said
    settings = json.dumps({"sandbox": {"excludedCommands": ["cp"]}})
    copy = call("Bash", command=f"cp {machine}/out {machine}/copy")
    (denied,) = play(full, copy, flags=("--settings", settings))
    assert "outside the workspace" in denied
    assert not (machine / "copy").exists()


def test_the_terminal_shows_where_a_file_of_tmp_is(full: Program) -> None:
    write = call("Write", file_path="/tmp/plan.txt", content="x\n")
    with full.served([write, DONE]):
        glass = Glass(full, *full.model, *BYPASS, columns=200)
        glass.ready()
        glass.type("go\r")
        glass.until(PRIVATE_TMP_NOTICE, "done")
        (place,) = full.home.glob("tmp/*/plan.txt")
        assert any(PRIVATE_TMP_NOTICE in line and str(place) in line for line in glass.lines)
        glass.leave()


# --- without mounts ------------------------------------------------------------------------------


def test_without_mounts_tmp_is_the_machines_own_for_all_tools(
    partial: Program, machine: Path
) -> None:
    notes, new = str(machine / "notes.txt"), str(machine / "new.txt")
    script = [
        call("Write", file_path=new, content="new\n"),
        call("Bash", command=f"cat {new} {notes}"),
        call("Bash", command='f=$(mktemp) && echo "$f"'),
    ]
    written, shown, made = play(partial, *script)
    assert written.splitlines() == [f"Created {new}: 1 lines."]
    assert (machine / "new.txt").read_text() == "new\n"
    assert shown == "new\nfrom the user"
    assert Path(made).is_file()
    assert Path(made).parent.parent == partial.home / "tmp"
    denied = play(partial, call("Write", file_path=str(machine / "no"), content=""), flags=())
    assert "writes outside the workspace" in denied[0]


def test_a_session_that_goes_on_without_mounts_is_told_where_its_files_are(full: Program) -> None:
    (said,) = play(full, call("Write", file_path="/tmp/plan.txt", content="x\n"))
    place = told_path(said)
    (full.home / "walls.json").unlink()  # the sandbox that works here is found anew
    close_namespaces(full)
    with full.served([call("Bash", command="cat /tmp/plan.txt"), DONE]) as api:
        full.ask("go on", "--continue", *BYPASS)
        body = json.dumps(api.bodies[-1])
        assert f"Files you made in /tmp before are in: {place.parent}" in body
        assert f"/tmp/plan.txt of this session is {place} on disk" in results(api.bodies[-1])[-1]


# --- the program itself below /tmp ---------------------------------------------------------------


def test_a_program_below_tmp_runs_its_tools_in_the_full_sandbox(
    full: Program, machine: Path
) -> None:
    source = Path(probe.__file__).parents[1]
    shutil.copytree(source, machine / "lib/travois", ignore=shutil.ignore_patterns("__pycache__"))
    (machine / "bin").mkdir()
    (machine / "bin/mine").write_text("#!/bin/sh\necho mine ran\n")
    (machine / "bin/mine").chmod(0o755)
    (machine / "linked").symlink_to(Path(sys.prefix) / "bin")
    (full.folder / "a.txt").write_text("needle\n")
    path = f"{machine}/bin:{machine}/linked:{os.environ['PATH']}"
    below = replace(full, extra={"PYTHONPATH": str(machine / "lib"), "PATH": path})
    # With a list of hosts, a bridge of the program's own runs inside the sandbox.
    listed = {"mode": "listed", "allowedDomains": ["example.org"]}
    hosts = json.dumps({"sandbox": {"network": listed}})
    change = f"open('{machine}/bin/x', 'w')"
    script = [
        call("Grep", pattern="needle"),
        call("Bash", command=f"mine && ls {machine}/lib/travois/version.py && cat a.txt"),
        call("Bash", command=f"{machine}/linked/python -c 'print(6 * 7)'"),
        call("Bash", command=f'python3 -c "{change}"'),
    ]
    found, ran, linked, kept = play(below, *script, flags=("--settings", hosts, *BYPASS))
    assert found == "a.txt"
    assert ran == f"mine ran\n{machine}/lib/travois/version.py\nneedle"
    assert linked == "42"
    assert not (machine / "bin/x").exists()
    assert "Read-only file system" in kept


def test_the_copy_below_tmp_is_the_one_that_runs(full: Program, machine: Path) -> None:
    source = Path(probe.__file__).parents[1]
    shutil.copytree(source, machine / "travois", ignore=shutil.ignore_patterns("__pycache__"))
    where = [sys.executable, "-c", "import travois; print(travois.__file__)"]
    env = full.environment | {"PYTHONPATH": str(machine)}
    said = subprocess.run(where, env=env, capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(machine / "travois/__init__.py")
