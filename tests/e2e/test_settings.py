"""Settings of other agents, held by the real program."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import travois_lab as lab
from tests.e2e.program import Program

HELLO = [{"say": "Hallo.", "repeat": True}]
WHO = ("-c", "user.name=a", "-c", "user.email=a@b.c")
GO = ("-p", "go", "--output-format", "json")


def theirs(program: Program, **settings: object) -> Path:
    """What the user wrote for another agent."""
    path = program.home.parent / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings))
    return path


def test_what_a_user_told_another_agent_of_keys_models_and_words_holds(program: Program) -> None:
    asked, key = program.home.parent / "asked", "sk-helped-0123456789abcdef"
    with lab.server(HELLO) as api:
        path = theirs(
            program,
            env={"ANTHROPIC_BASE_URL": api.url},
            apiKeyHelper=f"echo x >> {asked}; echo {key}",
            model="opus",
            availableModels=["opus"],
            modelPricing={"overrides": {"claude-opus-5-5": {"cacheWrite": 1000, "output": 0}}},
            modelSettings={"claude-opus-5-5": {"effortLevel": "max"}},
            maxEffortLevel="medium",
            language="German",
            attribution={"commit": "With Travois"},
            promptCacheTtl="1h",
            cleanupPeriodDays=30,
            fileSuggestion={"type": "command", "command": "fd"},
        )
        done = program.run(*GO)
        closed = program.run("-p", "go", "--model", "claude-haiku-4-5")
        other = program.run("-c", "-p", "go", "--settings", '{"deniedModels": ["opus"]}')
        (one,) = api.ledger
    assert one.headers["x-api-key"] == key
    assert asked.read_text() == "x\n"
    assert (program.home / "tidied").exists()
    assert b"Answer in German" in one.body and b"With Travois" in one.body
    assert b'"ttl":"1h"' in one.body and b'"effort":"medium"' in one.body
    written = done.result["usage"]["cache_creation_input_tokens"]
    assert done.result["total_cost_usd"] == written / 1000
    notice = f"{path}: fileSuggestion (line 1) has no effect: "
    assert done.err == f"travois: {notice}Travois completes file names itself\n"
    why = "anthropic/claude-haiku-4-5 is not allowed: availableModels lists only opus"
    assert (closed.code, closed.err.splitlines()[-2:]) == (
        2,
        [f"travois: {why}", "  Choose another model with --model."],
    )

    assert (other.code, other.err.splitlines()[-2]) == (
        2,
        "travois: anthropic/claude-opus-5-5 is not allowed: deniedModels lists it",
    )


def test_a_key_that_is_refused_is_asked_for_again_once_it_had_been_good(program: Program) -> None:
    asked = program.home.parent / "asked"
    script = [
        {"say": [{"tool_use": {"name": "Read", "input": {"file_path": "a"}}}]},
        {"say": "Ok."},
    ]
    refused = {"match": {"n": 2}, "do": {"http": {"status": 401}}}
    with lab.server(script, faults=[refused]) as api:
        theirs(
            program,
            env={"ANTHROPIC_BASE_URL": api.url},
            apiKeyHelper=f"echo x >> {asked}; cat {asked} | wc -l",
        )
        done = program.run("-p", "go")
    assert (done.code, done.out) == (0, "Ok.\n"), done.err
    assert asked.read_text() == "x\nx\n"
    theirs(program, apiKeyHelper="echo the vault is sealed >&2; exit 3")
    sealed = program.run("-p", "go")
    assert (sealed.code, sealed.err) == (
        1,
        "travois: auth: apiKeyHelper exited with 3: the vault is sealed\n",
    )


def test_rules_and_hooks_that_change_hold_from_the_next_step_on(program: Program) -> None:
    fresh, heard = program.folder / "fresh.json", program.home.parent / "heard"
    path = program.home.parent / ".claude" / "settings.json"
    theirs(program, permissions={"allow": ["Bash"]}, hooks=after(f"cp {fresh} {path}"))
    changed = {"permissions": {"deny": ["Bash(touch:*)"]}, "hooks": after(f"cat >> {heard}")}
    fresh.write_text(json.dumps(changed))
    calls = (("Read", {"file_path": "fresh.json"}), ("Bash", {"command": "touch a"}))
    script = [
        {"say": [{"tool_use": {"name": name, "input": args}}]} for name, args in (*calls, calls[0])
    ]
    with lab.server([*script, {"say": "Done."}]) as api:
        program.url = api.url
        done = program.ask("go", "--output-format", "json")
        api.append_only()
    (denied,) = done.result["permission_denials"]
    assert denied["tool_input"] == {"command": "touch a"}
    assert json.loads(heard.read_text())["tool_name"] == "Read"
    assert f"{path} changed: its rules and hooks apply from now on" in done.err


def after(command: str) -> dict[str, object]:
    return {"PostToolUse": [{"hooks": [{"type": "command", "command": command}]}]}


def test_a_worktree_has_what_the_repository_wants_in_it(program: Program) -> None:
    theirs(program, worktree={"symlinkDirectories": ["lib"]})
    for name, said in ((".gitignore", ".env*\nlib/\n"), (".worktreeinclude", ".env\n")):
        (program.folder / name).write_text(said)
    (program.folder / "lib").mkdir()
    for name in (".env", ".env.other", "lib/x"):
        (program.folder / name).write_text("1")
    for words in (("init", "-q"), ("add", "."), (*WHO, "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=program.folder, check=True)
    write = {"name": "Write", "input": {"file_path": "made", "content": "1"}}
    tree = program.folder / ".travois/worktrees/one"
    with lab.server([{"say": "Ok."}, {"say": [{"tool_use": write}]}, {"say": "Ok."}]) as api:
        program.url = api.url
        go = ("go", "--worktree", "one", "--permission-mode", "acceptEdits")
        assert (program.ask(*go).code, tree.exists()) == (0, False)
        assert program.ask(*go).code == 0
    assert (tree / "lib").readlink() == program.folder / "lib"
    found = {path.name for path in tree.iterdir()}
    assert found == {".git", ".gitignore", ".worktreeinclude", ".env", "lib", "made"}


CODEX = """
model = "lab-model"
model_provider = "house"
profile = "plain"
[profiles.plain]
model_reasoning_effort = "low"
[model_providers.house]
base_url = "{url}/v1"
wire_api = "chat"
env_key = "HOUSE_KEY"
http_headers = {{ X-Team = "red" }}
env_http_headers = {{ X-Who = "WHO" }}
query_params = {{ api-version = "2026" }}
"""


def test_a_provider_of_codex_is_reached_with_its_headers_and_its_query(program: Program) -> None:
    program.extra = {"HOUSE_KEY": "sk-house", "WHO": "ada"}
    path = program.home.parent / ".codex" / "config.toml"
    path.parent.mkdir()
    with lab.server(HELLO, keys=("sk-house", "in the query")) as api:
        path.write_text(CODEX.format(url=api.url))
        done = program.run("-p", "go")
        entry = {"protocol": "gemini", "url": api.url, "query": {"key": "in the query"}}
        own = json.dumps({"providers": {"own": entry}})
        assert program.run("-p", "go", "--model", "own/lab-model", "--settings", own).code == 0
        one = api.ledger[0]
    assert (done.code, done.out) == (0, "Hallo.\n"), done.err
    sent = [one.headers[name] for name in ("authorization", "x-team", "x-who")]
    assert sent == ["Bearer sk-house", "red", "ada"]
    assert b'"reasoning_effort":"low"' in one.body
