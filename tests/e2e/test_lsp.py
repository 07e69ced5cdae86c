"""Language servers in the real program: errors come with an edit, and nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from tests.e2e.program import Program
from tests.processes import processes
from travois.core.content import extract_text
from travois.core.facts import Result

SCRIPTS = sysconfig.get_path("scripts")
SPEAKER = Path(__file__).parent.parent / "lsp" / "speaker.py"
ON = {"TRAVOIS_LSP_ENABLED": "true", "TRAVOIS_LSP_EDIT_SECONDS": "300"}
"""On, and patient: a loaded machine is slow."""
GOOD = "def total(coins: list[int]) -> int:\n    return sum(coins)\n"


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": args}}]}


def edit(old: str, new: str, file: str = "till.py") -> dict[str, Any]:
    return call("Edit", file_path=file, old_string=old, new_string=new)


def use_basedpyright(program: Program) -> None:
    program.extra = {**ON, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    (program.folder / "till.py").write_text(GOOD)


def use_speaker(program: Program, *args: str, files: str = ".txt") -> None:
    """Put the scripted server in the user's settings, for these files."""
    command = [sys.executable, str(SPEAKER), *args]
    program.extra = dict(ON)
    program.home.mkdir(exist_ok=True)
    servers = {"speaker": {"command": command, "extensions": {files: "text"}}}
    (program.home / "settings.json").write_text(json.dumps({"lsp": {"servers": servers}}))


def results(program: Program) -> list[str]:
    return [extract_text(e.fact.content) for e in program.facts() if isinstance(e.fact, Result)]


def servers_of(program: Program) -> list[str]:
    """The language servers that run for the program's folder."""
    found = (one for one in processes() if "langserver" in one.command)
    return [one.command for one in found if _is_in(one.pid, str(program.folder))]


def stop_while_it_waits(program: Program) -> None:
    """Interrupt the program once it waits for a server that answers nothing."""
    child = program.start("-p", "go", *program.model, "--permission-mode", "acceptEdits")
    while not any(str(SPEAKER) in one.command for one in processes() if one.pid != child.pid):
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    child.communicate()


def _is_in(pid: int, folder: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(folder)
    except OSError:
        return False


def test_a_wrong_edit_comes_back_with_its_errors_and_nothing_is_left(program: Program) -> None:
    use_basedpyright(program)
    script = [
        call("Read", file_path="till.py"),
        edit("sum(coins)", "sun(coins)"),
        edit("sun(coins)", "sum(coins)"),
        call("LSP", operation="references", file_path="till.py", symbol="coins"),
        {"say": "Done."},
    ]
    with program.served(script) as api:
        done = program.ask("go", "--permission-mode", "acceptEdits")
        assert (done.code, done.out) == (0, "Done.\n"), done.err
        api.no_invalid()
        heads = [body["tools"] for body in api.bodies]
    assert all(head == heads[0] for head in heads)
    assert "LSP" not in {tool["name"] for tool in heads[0]}
    assert any("LSP" in tool["description"] for tool in heads[0] if tool["name"] == "ToolSearch")
    _, wrong, mended, found = results(program)
    assert wrong.endswith(
        "1 new error since this edit (basedpyright):\n"
        'till.py:2:12: "sun" is not defined (reportUndefinedVariable)\n'
        "    return sun(coins)"
    )
    assert "error" not in mended
    assert (
        found == "till.py:1:11 def total(coins: list[int]) -> int:\ntill.py:2:16 return sum(coins)"
    )
    assert servers_of(program) == []


def test_after_a_kill_no_server_is_left(program: Program) -> None:
    use_basedpyright(program)
    script = [
        call("Read", file_path="till.py"),
        edit("sum", "sun"),
        call("Bash", command="sleep 9999"),
    ]
    with program.served(script):
        child = program.start("-p", "go", *program.model, "--permission-mode", "bypassPermissions")
        while not servers_of(program) or not any("sleep 9999" in p.command for p in processes()):
            assert child.poll() is None, child.communicate()
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        while servers_of(program):
            time.sleep(0.05)


def test_an_edit_that_was_made_has_its_result_though_the_turn_was_stopped(program: Program) -> None:
    use_speaker(program, "mute")
    with program.served([call("Write", file_path="a.txt", content="BAD\n")]):
        stop_while_it_waits(program)
    assert results(program) == ["Created a.txt: 1 lines."]


def test_without_a_server_the_head_does_not_tell_of_one(program: Program) -> None:
    with program.served([{"say": "Hi."}]) as api:
        assert program.ask("hi").code == 0
        assert "LSP" not in json.dumps(api.bodies[0]["tools"])


def test_a_server_can_write_nothing_and_reach_nobody(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        use_speaker(program, "sandbox", str(there.getsockname()[1]))
        script = [call("Write", file_path="a.txt", content="BAD\n"), {"say": "Done."}]
        with program.served(script):
            assert program.ask("go", "--permission-mode", "acceptEdits").code == 0
    (told,) = results(program)
    assert ", no network" in told and "wrote" not in told, told
    assert not (program.folder / "written-by-server").exists()


def test_a_rename_is_judged_as_an_edit_of_every_file(program: Program) -> None:
    use_basedpyright(program)
    (program.folder / "secret.py").write_text("from till import total\n\ntotal([1])\n")
    script = [
        call("LSP", operation="rename", file_path="till.py", symbol="total", new_name="amount"),
        call("ApplyRename", plan="rename-1"),
        {"say": "Done."},
    ]
    denied = ("--disallowedTools", "Edit(secret.py)")
    with program.served(script):
        done = program.ask("go", "--permission-mode", "acceptEdits", *denied)
        assert done.code == 0, done.err
    plan, refused = results(program)
    assert "3 lines in 2 files" in plan
    assert refused.startswith("Permission denied: ") and "secret.py" in refused
    assert (program.folder / "till.py").read_text() == GOOD


def test_a_program_of_the_project_starts_only_once_it_is_trusted(program: Program) -> None:
    folder = program.folder / "node_modules" / ".bin"
    folder.mkdir(parents=True)
    (folder / "gopls").write_text(f"#!{sys.executable}\n{SPEAKER.read_text()}")
    (folder / "gopls").chmod(0o755)
    program.extra = {**ON, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    script = [call("Write", file_path="a.go", content="BAD\n"), {"say": "Done."}]
    with program.served(script):
        done = program.ask("go", "--permission-mode", "acceptEdits")
    assert "is not trusted" in done.err and "language server gopls" in done.err
    assert results(program) == ["Created a.go: 1 lines."]
    assert "node_modules/.bin/gopls" in program.run("trust").out
    (program.folder / "a.go").unlink()
    with program.served(script):
        done = program.ask("go", "--permission-mode", "acceptEdits", "--continue")
    assert "this is BAD" in results(program)[-1], done.err


def test_doctor_lists_the_servers(program: Program) -> None:
    use_basedpyright(program)
    told = program.run("doctor").out
    assert f"basedpyright, {SCRIPTS}/basedpyright-langserver" in told
    program.extra = {}
    assert (
        "off, as the setting lsp.enabled says; edits are not checked" in program.run("doctor").out
    )
