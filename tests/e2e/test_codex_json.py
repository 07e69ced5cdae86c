"""`--output-format codex-json`: a turn in the lines that programs written for Codex read."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import travois_lab as lab
from tests.e2e.program import Done, Program
from travois.core.facts import Assistant
from travois.core.models import Usage

FORMAT = ("--output-format", "codex-json")


def use(name: str, **given: object) -> dict[str, Any]:
    return {"tool_use": {"name": name, "input": given}}


def told(program: Program, script: list[Any], *flags: str) -> Done:
    with lab.server(script) as api:
        program.url = api.url
        done = program.ask("go", *FORMAT, *flags)
        api.no_invalid()
    return done


def items(done: Done) -> list[tuple[str, dict[str, Any]]]:
    """What is between the first two lines and the last: stage and item without its id."""
    found = [line for line in done.lines if line["type"].startswith("item.")]
    return [(line["type"][5:], {**line["item"], "id": ""}) for line in found]


def test_work_is_told_as_items_and_its_tokens_are_those_of_the_log(program: Program) -> None:
    (program.folder / "b.txt").write_text("old\n")
    script = [
        {"say": [{"text": "Let me see."}, use("Read", file_path="b.txt")]},
        {"say": [use("Write", file_path="a.txt", content="a\n")]},
        {"say": [use("Edit", file_path="b.txt", old_string="old", new_string="new")]},
        {"say": [use("Bash", command="cat b.txt")]},
        {"say": "Done."},
    ]
    done = told(program, script, "--permission-mode", "accept-edits")
    read = {"type": "mcp_tool_call", "server": "travois", "tool": "Read"}
    read |= {"id": "", "arguments": {"file_path": "b.txt"}}
    shown = {"content": [{"type": "text", "text": "1\told"}], "structured_content": None}
    ran = {"id": "", "type": "command_execution", "command": "cat b.txt"}
    change = {"id": "", "type": "file_change", "status": "completed"}
    a, b = (str(program.folder / name) for name in ("a.txt", "b.txt"))
    assert items(done) == [
        ("completed", {"id": "", "type": "agent_message", "text": "Let me see."}),
        ("started", {**read, "status": "in_progress"}),
        ("completed", {**read, "status": "completed", "result": shown}),
        ("completed", {**change, "changes": [{"path": a, "kind": "add"}]}),
        ("completed", {**change, "changes": [{"path": b, "kind": "update"}]}),
        ("started", {**ran, "aggregated_output": "", "status": "in_progress"}),
        (
            "completed",
            {**ran, "aggregated_output": "new", "exit_code": 0, "status": "completed"},
        ),
        ("completed", {"id": "", "type": "agent_message", "text": "Done."}),
    ]
    first, second, *_, last = done.lines
    (log,) = program.logs()
    assert (first, second) == (
        {"type": "thread.started", "thread_id": log.parent.name},
        {"type": "turn.started"},
    )
    replies = [entry.fact for entry in program.facts() if isinstance(entry.fact, Assistant)]
    spent = reduce(add, (reply.usage for reply in replies), Usage())
    assert spent.read and spent.write
    assert last == {
        "type": "turn.completed",
        "usage": {
            "input_tokens": spent.input + spent.read + spent.write + spent.write_1h,
            "cached_input_tokens": spent.read,
            "cache_write_input_tokens": spent.write + spent.write_1h,
            "output_tokens": spent.output,
            "reasoning_output_tokens": spent.reasoning,
        },
    }
    begun = [line["item"]["id"] for line in done.lines if line["type"] == "item.started"]
    ended = [line["item"]["id"] for line in done.lines if line["type"] == "item.completed"]
    assert ended == [f"item_{number}" for number in range(6)] and set(begun) < set(ended)


def test_calls_that_fail_say_why(program: Program) -> None:
    (program.folder / "b.txt").write_text("old\n")
    script = [
        {"say": [use("Bash", command="cat b.txt; exit 3")]},
        {"say": [use("Grep", pattern="(")]},
        {"say": [use("Edit", file_path="b.txt", old_string="old", new_string="new")]},
        {"say": [use("TodoWrite", todos=[{"content": "a"}])]},
        {"say": "I cannot."},
    ]
    done = told(program, script)
    ended = [item for stage, item in items(done) if stage == "completed"]
    ran, sought, change, denied, unfit, said = ended
    assert (ran["status"], ran["exit_code"], ran["aggregated_output"]) == ("failed", 3, "old")
    assert (sought["status"], "result" in sought) == ("failed", False)
    assert "unclosed group" in sought["error"]["message"]
    assert (change["changes"], change["status"]) == (
        [{"path": "b.txt", "kind": "update"}],
        "failed",
    )
    assert denied["message"].startswith("Edit: Permission denied: ")
    assert unfit["message"].startswith("TodoWrite: TodoWrite was not run: ")
    assert (done.code, said["text"]) == (0, "I cannot.")


def test_a_list_of_tasks_is_one_item_until_the_turn_ends_if_only_at_a_limit(
    program: Program,
) -> None:
    def tasks(*states: str) -> dict[str, Any]:
        listed = [{"content": f"task {n}", "status": s} for n, s in enumerate(states)]
        return {"say": [use("TodoWrite", todos=listed)]}

    script = [tasks("in_progress", "pending"), tasks("completed", "in_progress")]
    done = told(program, script, "--max-turns", "2")
    begun = [{"text": "task 0", "completed": False}, {"text": "task 1", "completed": False}]
    later = [{"text": "task 0", "completed": True}, {"text": "task 1", "completed": False}]
    item = {"id": "item_0", "type": "todo_list"}
    *listed, failed = done.lines[2:]
    assert listed == [
        {"type": "item.started", "item": {**item, "items": begun}},
        {"type": "item.updated", "item": {**item, "items": later}},
        {"type": "item.completed", "item": {**item, "items": later}},
    ]
    assert (done.code, failed["type"]) == (4, "turn.failed")


def test_thoughts_are_told_and_an_answer_of_a_form_is_the_last_word(program: Program) -> None:
    program.protocol = "chat"
    script = [
        {"say": [{"thinking": "One test."}, use("StructuredOutput", tests=1)]},
        {"say": "There it is."},
    ]
    form = '{"type":"object","properties":{"tests":{"type":"integer"}},"required":["tests"]}'
    done = told(program, script, "--json-schema", form)
    assert [item for _, item in items(done)] == [
        {"id": "", "type": "reasoning", "text": "One test."},
        {"id": "", "type": "agent_message", "text": "There it is."},
        {"id": "", "type": "agent_message", "text": '{"tests":1}'},
    ]


def test_a_turn_that_fails_ends_with_the_reason(program: Program) -> None:
    done = told(program, [{"error": {"status": 403, "message": "no such door"}}])
    *_, error, failed = done.lines
    assert "no such door" in error["message"]
    assert error == {"type": "error", "message": failed["error"]["message"]}
    assert (done.code, failed["type"]) == (1, "turn.failed")


def test_it_tells_of_one_task_and_not_of_a_stream_of_them(program: Program) -> None:
    done = program.run("-p", *FORMAT, "--input-format", "stream-json", stdin=b"")
    assert (done.code, done.out, program.logs()) == (2, "", [])
    assert "codex-json reports one task" in done.err


def test_exec_takes_what_codex_takes_and_read_only_is_kept(program: Program) -> None:
    script = [{"say": [use("Write", file_path="a.txt", content="a")]}, {"say": "I may not."}]
    program.home.mkdir()
    (program.home / "settings.json").write_text('{"permissions": {"allow": ["Write"]}}')
    with lab.server(script) as api:
        program.url = api.url
        here = ("--cd", str(program.folder), "--sandbox", "read-only", "--skip-git-repo-check")
        left = ("--color", "never", "-c", 'approval_policy="never"', "-c", "web_search=live")
        here += ("-c", 'model_reasoning_effort="minimal"')
        done = program.run("exec", *program.model, *here, *left, "-", stdin=b"write")
        assert api.bodies[0]["messages"][-1]["content"][-1]["text"] == "write"
        assert api.bodies[0]["output_config"] == {"effort": "low"}
    assert (done.code, done.out) == (0, "I may not.\n")
    ignored, (denied, why) = done.err.splitlines()[:2], done.err.splitlines()[2:]
    assert ignored == [
        f"travois: {name} has no effect in Travois and is ignored"
        for name in ("--color", "--config web_search")
    ]
    assert denied == "travois: a tool call was denied" and why.startswith("  Write: plan mode: ")
    assert not (program.folder / "a.txt").exists()


def test_an_image_that_may_not_be_shown_is_named(program: Program) -> None:
    apart = program.folder.parent / "apart.png"
    apart.write_bytes(b"\x89PNG\r\n\x1a\n")
    model = ("-m", "anthropic/claude-opus-5-5")
    with lab.server([{"say": "Done."}]) as api:
        program.url = api.url
        missing = program.run("exec", *model, "-i", "none.png", "look")
        done = program.run("exec", *model, "-i", str(apart), "look")
    assert (missing.code, "Image none.png does not exist" in missing.err) == (2, True)
    assert (done.code, done.out) == (0, "Done.\n")
    assert f"{apart} is outside the workspace and was not attached" in done.err
