"""Flags that people bring along from other agents, as the program obeys them."""

from __future__ import annotations

import json
import subprocess
import sys
from time import monotonic, sleep
from typing import Any

import travois_lab as lab
from tests.e2e.program import Done, Program, read
from travois.core.facts import Epoch, Sent

FINE = [{"say": "Fine."}]


def asked(program: Program, script: Any, *flags: str) -> tuple[Done, list[dict[str, Any]]]:
    """How one run ended, and what the model was asked."""
    with lab.server(script) as api:
        program.url = api.url
        done = program.ask("hello", *flags)
        api.no_invalid()
        return done, api.bodies


def use(name: str, **given: str) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def test_a_session_keeps_its_effort_until_it_is_asked_for_another(program: Program) -> None:
    given = {"effortLevel": "low"}
    first, (body,) = asked(program, FINE, "--settings", json.dumps(given))
    _, (same,) = asked(program, FINE, "-c")
    _, (other,) = asked(program, FINE, "-c", "--max-thinking-tokens", "20000")
    assert first.code == 0
    found = [one["output_config"] for one in (body, same, other)]
    assert found == [{"effort": "low"}, {"effort": "low"}, {"effort": "high"}]
    heads = [entry.fact for entry in program.facts() if isinstance(entry.fact, Epoch)]
    assert [head.model.effort for head in heads] == ["low", "high"]


def test_a_model_that_knows_no_effort_answers_without_and_says_so(program: Program) -> None:
    refusal = {"status": 400, "message": "This model does not support the effort parameter."}
    with lab.server([{"error": refusal}, *FINE]) as api:
        program.url = api.url
        done = program.ask("hello", "--effort", "high")
    assert (done.code, done.out) == (0, "Fine.\n")
    assert "does not accept the requested effort" in done.err
    assert [body.get("output_config") for body in api.bodies] == [{"effort": "high"}, None]
    assert sum(isinstance(entry.fact, Sent) for entry in program.facts()) == 2


def test_bare_leaves_out_all_that_lies_about(program: Program) -> None:
    (program.folder / "CLAUDE.md").write_text("Say MOO.")
    skill = program.folder / ".travois" / "skills" / "moo"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: moo\ndescription: MOO\n---\nMOO")
    (program.folder / ".mcp.json").write_text('{"mcpServers":{"moo":{"command":"moo"}}}')
    hook = {"hooks": [{"type": "command", "command": "echo MOO"}]}
    settings = json.dumps({"hooks": {"UserPromptSubmit": [hook]}})
    done, (body,) = asked(program, FINE, "--bare", "--settings", settings)
    assert (done.code, done.out, "MOO" in json.dumps(body)) == (0, "Fine.\n", False)
    assert "Remember" not in {tool["name"] for tool in body["tools"]}


def test_a_restricted_session_has_no_shell_and_stays_in_its_folders(program: Program) -> None:
    script = [use("Read", file_path="/etc/passwd"), *FINE]
    flags = ("--restricted", "--output-format", "json", "--allowedTools", "Read")
    done, (first, _) = asked(program, script, *flags)
    assert [one["tool_name"] for one in done.result["permission_denials"]] == ["Read"]
    assert {"Bash", "WebFetch"}.isdisjoint(tool["name"] for tool in first["tools"])
    command = program.folder / ".claude" / "commands" / "go.md"
    command.parent.mkdir(parents=True)
    command.write_text("Look: !`ls`")
    typed = program.ask("/go", "--restricted")
    assert (typed.code, "/go was not run" in typed.err) == (1, True)


def test_what_means_nothing_here_is_said_to_be_ignored(program: Program) -> None:
    done, _ = asked(program, FINE, "--betas", "x", "--ide", "--autocompact", "auto")
    assert (done.code, done.out) == (0, "Fine.\n")
    assert done.err.splitlines() == [
        "travois: --betas has no effect in Travois and is ignored",
        "travois: --ide has no effect in Travois and is ignored",
    ]


def test_a_session_may_have_a_worktree_of_its_own(program: Program) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words]
        return subprocess.run(
            command, cwd=program.folder, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    script = [use("Write", file_path="b.txt", content="b"), *FINE]
    done, _ = asked(program, script, "--worktree", "one", "--permission-mode", "acceptEdits")
    tree = program.folder / ".travois" / "worktrees" / "one"
    assert (done.out, (tree / "b.txt").read_text()) == ("Fine.\n", "b")
    assert str(tree) in done.err
    assert not (program.folder / "b.txt").exists()
    clean, _ = asked(program, FINE, "-w", "two")
    assert (clean.err, git("branch", "--format=%(refname:short)").split()[1:]) == (
        "",
        ["travois/one"],
    )


def test_a_task_in_the_background_can_be_gone_on_with(program: Program) -> None:
    with lab.server([*FINE, {"say": "Again."}]) as api:
        program.url = api.url
        begun = program.run("--bg", "hello", "--name", "Bertha", *program.model)
        id = begun.out.strip()
        said, end = program.home / "background" / f"{id}.txt", monotonic() + 180
        while not said.read_text() and monotonic() < end:
            sleep(0.05)
        while "Fine." not in said.read_text() and monotonic() < end:
            sleep(0.05)
        assert (begun.code, program.without_limits(said.read_text())) == (0, "Fine.\n")
        while program.ask("and?", "-r", "Bertha").code == 2 and monotonic() < end:
            sleep(0.05)  # until the first process has left the session
    (log,) = program.logs()
    assert log.parent.name == id
    assert sum(isinstance(entry.fact, Sent) for entry in read(log)) == 2


JUDGE = """
import json, sys
for line in sys.stdin:
    told = json.loads(line)
    method, asked = told.get("method"), told.get("params", {})
    if "id" not in told:
        continue
    name, brought = "result", {}
    if method == "initialize":
        brought = {"protocolVersion": asked["protocolVersion"], "capabilities": {"tools": {}}}
        brought["serverInfo"] = {"name": "court", "version": "1"}
    elif method == "tools/list":
        brought = {"tools": [{"name": "judge", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        given = asked["arguments"]["input"]
        verdict = {"behavior": "deny", "message": "not that one"}
        if given["file_path"] == "a.txt":
            verdict = {"behavior": "allow", "updatedInput": {**given, "content": "judged"}}
        brought = {"content": [{"type": "text", "text": json.dumps(verdict)}]}
    elif method != "ping":
        name, brought = "error", {"code": -32601, "message": "no such method"}
    print(json.dumps({"jsonrpc": "2.0", "id": told["id"], name: brought}), flush=True)
"""


def test_a_tool_of_a_server_may_decide_in_the_place_of_a_person(program: Program) -> None:
    court = {"command": sys.executable, "args": ["-c", JUDGE]}
    servers = json.dumps({"mcpServers": {"court": court}})
    written = [use("Write", file_path=name, content="x") for name in ("a.txt", "b.txt")]
    flags = ("--mcp-config", servers, "--permission-prompt-tool", "mcp__court__judge")
    done, (*_, last) = asked(program, [*written, *FINE], *flags, "--output-format", "json")
    assert (program.folder / "a.txt").read_text() == "judged"
    assert [one["tool_input"]["file_path"] for one in done.result["permission_denials"]] == [
        "b.txt"
    ]
    assert "not that one" in json.dumps(last["messages"])
