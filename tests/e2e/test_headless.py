"""`travois -p`, as a script sees it."""

from __future__ import annotations

import json

import pytest

import travois_lab as lab
from tests.e2e.program import Program, kinds
from travois_lab import call, text

BOTH = pytest.mark.parametrize("protocol", ["anthropic", "chat"])


@BOTH
def test_a_prompt_gets_an_answer(program: Program, protocol: str) -> None:
    program.protocol = protocol
    with lab.server([{"say": [{"text": "Four."}]}]) as api:
        program.url = api.url
        done = program.ask("what is 2 + 2?")
        assert (done.code, done.out, done.err) == (0, "Four.\n", "")
        api.no_invalid()
    assert kinds(program.facts()) == [
        "Opened",
        "Epoch",
        "User",
        "User",
        "Sent",
        "Assistant",
        "Ended",
    ]


@BOTH
def test_tools_run_and_their_results_go_back(program: Program, protocol: str) -> None:
    program.protocol = protocol
    (program.folder / "a.txt").write_text("needle\n")
    script = [
        {"say": [{"tool_use": {"name": "Read", "input": {"file_path": "a.txt"}}}]},
        {
            "when": {"tool_result": {"name": "Read", "contains": "needle"}},
            "say": [{"tool_use": {"name": "Bash", "input": {"command": "echo $((6*7)) > b.txt"}}}],
        },
        {"when": {"tool_result": {"name": "Bash"}}, "say": [{"text": "Written."}]},
    ]
    with lab.server(script) as api:
        program.url = api.url
        done = program.ask("go", "--allowedTools", "Bash")
        assert (done.code, done.out) == (0, "Written.\n"), done.err
        api.no_invalid()
        api.append_only()
    assert (program.folder / "b.txt").read_text() == "42\n"


def test_standard_input_comes_before_the_prompt(program: Program) -> None:
    with lab.server([{"say": [{"text": "ok"}]}]) as api:
        program.url = api.url
        assert program.ask("review this", stdin=b"some diff\n").code == 0
        last = api.bodies[0]["messages"][-1]["content"][-2:]
    assert [block["text"] for block in last] == ["some diff", "review this"]


def test_json_is_one_result_object(program: Program) -> None:
    with lab.server([{"say": [{"text": "Four."}]}]) as api:
        program.url = api.url
        done = program.ask("2+2", "--output-format", "json")
    (result,) = done.lines
    usage = result.pop("usage")
    spent = result.pop("modelUsage")
    for moving in ("duration_ms", "duration_api_ms", "uuid", "session_id", "total_cost_usd"):
        assert result.pop(moving) is not None
    assert result == {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "outcome": "done",
        "result": "Four.",
        "num_turns": 1,
        "stop_reason": "end_turn",
        "terminal_reason": "completed",
        "permission_denials": [],
    }
    assert usage["output_tokens"] > 0
    assert list(spent) == ["claude-opus-5-5"]


def test_stream_json_tells_the_turn_line_by_line(program: Program) -> None:
    script = [
        {"say": [{"text": "Looking."}, {"tool_use": {"name": "Glob", "input": {"pattern": "*"}}}]},
        {"say": [{"text": "Nothing here."}]},
    ]
    with lab.server(script) as api:
        program.url = api.url
        done = program.ask("look", "--output-format", "stream-json")
    shapes = [(line["type"], line.get("subtype")) for line in done.lines]
    assert shapes == [
        ("system", "init"),
        ("assistant", None),
        ("assistant", None),
        ("user", None),
        ("assistant", None),
        ("result", "success"),
    ]
    opening, said, asked, result, _, _ = done.lines
    assert opening["tools"][0] == "Bash"
    assert opening["model"] == "claude-opus-5-5"
    assert said["message"]["content"] == [{"type": "text", "text": "Looking."}]
    assert asked["message"]["content"][0]["type"] == "tool_use"
    assert result["message"]["content"][0]["tool_use_id"] == asked["message"]["content"][0]["id"]
    assert len({line["session_id"] for line in done.lines}) == 1
    assert len({line["uuid"] for line in done.lines}) == len(done.lines)


@BOTH
def test_partial_messages_rebuild_the_reply(program: Program, protocol: str) -> None:
    program.protocol = protocol
    script = [
        {
            "say": [
                {"text": "Hello there, friend."},
                {"tool_use": {"name": "GitStatus", "input": {}}},
            ]
        },
        {"say": [{"text": "Done."}]},
    ]
    with lab.server(script) as api:
        program.url = api.url
        flags = ("--output-format", "stream-json", "--include-partial-messages")
        done = program.ask("go", *flags)
    events = [line["event"] for line in done.lines if line["type"] == "stream_event"]
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == "Hello there, friend.Done."
    assert [e["type"] for e in events].count("message_stop") == 2
    timed = [line["event"]["type"] for line in done.lines if "ttft_ms" in line]
    assert timed == ["message_start", "message_start"]


def test_a_denied_call_is_told_to_the_model_and_to_the_caller(program: Program) -> None:
    script = [
        {"say": [{"tool_use": {"name": "Bash", "input": {"command": "rm -rf /"}}}]},
        {
            "when": {"tool_result": {"contains": "Permission denied"}},
            "say": [{"text": "I may not."}],
        },
    ]
    with lab.server(script) as api:
        program.url = api.url
        done = program.ask("go", "--output-format", "json")
    assert done.code == 0
    (denial,) = done.result["permission_denials"]
    assert (denial["tool_name"], denial["tool_input"]) == ("Bash", {"command": "rm -rf /"})


def test_a_message_per_line_runs_a_turn_each(program: Program) -> None:
    def line(words: str) -> bytes:
        message = {"role": "user", "content": words}
        return json.dumps({"type": "user", "message": message}).encode() + b"\n"

    script = [{"say": [{"text": "one"}]}, {"say": [{"text": "two"}]}]
    with lab.server(script) as api:
        program.url = api.url
        flags = ("--input-format", "stream-json", "--output-format", "stream-json")
        done = program.run("-p", *program.model, *flags, stdin=line("first") + line("second"))
        api.append_only()
    results = [line["result"] for line in done.lines if line["type"] == "result"]
    assert results == ["one", "two"]
    assert len(program.logs()) == 1


def test_the_turn_limit_ends_with_an_error_and_a_code(program: Program) -> None:
    step = {"say": [{"tool_use": {"name": "GitStatus", "input": {}}}], "repeat": True}
    with lab.server([step]) as api:
        program.url = api.url
        done = program.ask("go", "--max-turns", "3", "--output-format", "json")
        assert len(api.ledger) == 3
    assert done.code == 4
    assert (done.result["subtype"], done.result["num_turns"]) == ("error_max_turns", 3)


def test_the_budget_is_kept_before_the_next_request(program: Program) -> None:
    step = {
        "say": [{"tool_use": {"name": "GitStatus", "input": {}}}],
        "usage": {"input_tokens": 100_000},
        "repeat": True,
    }
    with lab.server([step]) as api:
        program.url = api.url
        done = program.ask("go", "--max-budget-usd", "1.1", "--output-format", "json")
        assert len(api.ledger) == 2  # 0.4 dollars each; a third would pass the budget
    assert (done.code, done.result["subtype"]) == (4, "error_max_budget_usd")


def test_the_system_prompt_can_be_replaced_and_extended(program: Program) -> None:
    with lab.server([{"say": [{"text": "ok"}], "repeat": True}]) as api:
        program.url = api.url
        program.ask("a", "--system-prompt", "You are a bird.")
        program.ask("b", "--append-system-prompt", "Sing.")
        first, second = (body["system"][0]["text"] for body in api.bodies)
    assert first == "You are a bird."
    assert second.startswith("You are Travois") and second.endswith("\n\nSing.")


def test_a_tool_that_is_denied_by_name_is_not_told_of(program: Program) -> None:
    with lab.server([{"say": [{"text": "ok"}], "repeat": True}]) as api:
        program.url = api.url
        program.ask("a", "--disallowedTools", "WebFetch,Bash")
        names = {tool["name"] for tool in api.bodies[0]["tools"]}
    assert "Read" in names and not names & {"WebFetch", "Bash"}


def test_the_first_request_is_small(program: Program) -> None:
    with lab.server([{"say": [{"text": "ok"}]}]) as api:
        program.url = api.url
        program.ask("hello")
        assert len(api.ledger[0].body) / 4 <= 3_000


def test_python_scripts_drive_it_too(program: Program) -> None:
    script = [[call("GitStatus")], [text("Clean.")]]
    with lab.server(lambda prompt, state: script[prompt.n - 1]) as api:
        program.url = api.url
        assert program.ask("go").out == "Clean.\n"
