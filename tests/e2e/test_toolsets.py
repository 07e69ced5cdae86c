"""The tools that each family of models was trained with, on the real program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.program import Program
from travois.core.facts import Decided, Epoch, Result


def use(name: str, **args: Any) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": args}}]}


def offered(body: dict[str, Any]) -> set[str]:
    return {tool.get("name") or tool["function"]["name"] for tool in body["tools"]}


NAMES = {
    "claude-opus-5-5": {"Bash", "Read", "Edit", "Write", "Grep", "Glob", "TodoWrite"},
    "gpt-5.2": {"exec_command", "apply_patch", "update_plan", "view_image"},
    "gemini-3-pro": {"run_shell_command", "read_file", "replace", "write_file", "grep_search"},
    "qwen3-coder": {"run_shell_command", "read_file", "edit", "write_file", "grep_search"},
    "some-other-model": {"Bash", "Read", "Edit", "Write", "Grep", "Glob", "TodoWrite"},
}


@pytest.mark.parametrize("model", NAMES)
def test_a_head_names_the_tools_of_its_models_family(program: Program, model: str) -> None:
    with program.served([{"say": "ok", "repeat": True}]) as api:
        provider = "anthropic" if model.startswith("claude") else "openai"
        assert program.ask("hi", "--model", f"{provider}/{model}").code == 0
        (body,) = api.bodies
    assert offered(body) >= NAMES[model]
    others = set[str]().union(*NAMES.values()) - NAMES[model]
    assert not offered(body) & others
    text = json.dumps(body.get("system") or body.get("instructions") or body["messages"][0])
    assert ("TodoWrite" in text) == ("TodoWrite" in NAMES[model])


def test_a_setting_chooses_another_toolset(program: Program) -> None:
    with program.served([{"say": "ok", "repeat": True}]) as api:
        settings = json.dumps({"toolset": "gemini"})
        assert program.ask("hi", "--settings", settings).code == 0
        (body,) = api.bodies
    assert offered(body) >= NAMES["gemini-3-pro"]


def test_rules_see_the_canonical_call_and_the_log_what_the_model_said(program: Program) -> None:
    (program.folder / "a.txt").write_text("one\n")
    script = [
        use("read_file", absolute_path=str(program.folder / "a.txt")),
        use("exec_command", cmd="pwd", workdir=".."),
        {"say": "done"},
    ]
    with program.served(script):
        settings = json.dumps({"permissions": {"deny": ["Read(a.txt)"]}})
        assert program.ask("go", "--settings", settings).code == 0
    facts = [entry.fact for entry in program.facts()]
    first = next(fact for fact in facts if isinstance(fact, Decided))
    assert (first.verdict, first.because) == ("deny", "rule: deny Read(a.txt) (--settings)")
    (_, ran) = [fact for fact in facts if isinstance(fact, Result)]
    assert str(program.folder.parent.resolve()) in str(ran.content)
    said = program.logs()[0].read_text()
    assert '"name":"read_file"' in said and '\\"absolute_path\\"' in said


def test_another_family_changes_the_toolset_with_a_new_head_alone(program: Program) -> None:
    script = [use("Bash", command="true"), {"say": "one"}, {"say": "two", "repeat": True}]
    with program.served(script) as api:
        assert program.ask("hi", "--model", "anthropic/claude-opus-5-5").code == 0
        assert program.ask("again", "-c", "--model", "openai/gpt-5.2").code == 0
        bodies = list(api.bodies)
    assert offered(bodies[0]) == offered(bodies[1])
    assert "apply_patch" in offered(bodies[-1])
    assert '"Bash"' in json.dumps(bodies[-1]), "earlier calls are replayed as they were made"
    heads = [e.fact for e in program.facts() if isinstance(e.fact, Epoch)]
    assert [head.toolset for head in heads] == ["", "openai"]


def test_a_patch_in_openais_grammar_changes_files_and_hooks_hear_of_each(program: Program) -> None:
    (program.folder / "a.txt").write_text("one\n")
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n"
        "*** Add File: b.txt\n+new\n*** End Patch"
    )
    heard = program.folder.parent / "heard"
    hook = {"type": "command", "command": f"cat >> {heard}; echo >> {heard}"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Edit|Write", "hooks": [hook]}]}}
    script = [use("apply_patch", input=patch), {"say": "done"}]
    with program.served(script):
        done = program.ask(
            "go", "--permission-mode", "accept-edits", "--settings", json.dumps(settings)
        )
    assert done.code == 0
    assert (program.folder / "a.txt").read_text() == "two\n"
    assert (program.folder / "b.txt").read_text() == "new\n"
    events = [json.loads(line) for line in heard.read_text().splitlines()]
    assert [(e["tool_name"], e["tool_input"]["file_path"]) for e in events] == [
        ("ApplyPatch", "a.txt"),
        ("ApplyPatch", "b.txt"),
    ]


def test_a_rare_tool_is_found_by_a_search_and_runs_under_its_name(program: Program) -> None:
    (program.folder / "a.txt").write_text("one\ntwo\n")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "two", "new_string": "2"}]
    script = [
        use("ToolSearch", query="several edits of one file"),
        use("MultiEdit", file_path="a.txt", edits=edits[:1]),
        use("McpCall", tool="MultiEdit", arguments={"file_path": "a.txt", "edits": edits[1:]}),
        {"say": "done"},
    ]
    with program.served(script) as api:
        assert program.ask("go", "--permission-mode", "accept-edits").code == 0
        head = offered(api.bodies[0])
    assert "MultiEdit" not in head and {"ToolSearch", "McpCall"} <= head
    facts = [entry.fact for entry in program.facts()]
    found = next(fact for fact in facts if isinstance(fact, Result))
    assert '"tool":"MultiEdit"' in "".join(getattr(b, "text", "") for b in found.content)
    assert (program.folder / "a.txt").read_text() == "1\n2\n"


def test_what_a_call_says_besides_is_answered_and_nothing_is_dropped(program: Program) -> None:
    script = [
        use("Bash", command="echo hi", timeout=900_000),
        use("Bash", command="echo hi", colour="red"),
        {"say": "done"},
    ]
    with program.served(script):
        assert program.ask("go").code == 0
    ran, refused = (e.fact for e in program.facts() if isinstance(e.fact, Result))
    assert "timeout is limited to 600,000; that was used." in str(ran.content)
    assert "it has no argument 'colour'" in str(refused.content) and refused.error
