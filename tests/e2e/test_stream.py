"""Lines of `stream-json` that tell of more than words and calls."""

from __future__ import annotations

from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.program import Line, Program
from tests.e2e.test_compact import EARLY, FILES, model

STREAM = ("--output-format", "stream-json")


def use(name: str, **given: str) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def shapes(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line["type"], line.get("subtype", "")) for line in lines]


def test_an_agent_tells_how_far_it_has_come_and_is_part_of_the_bill(program: Program) -> None:
    started = use("Agent", description="look", prompt="Look.", subagent_type="explore")
    script = [
        {"when": {"last_text": "go"}, **started},
        {"when": {"last_text": "Look."}, **use("Glob", pattern="*")},
        {"say": "ok", "repeat": True},
    ]
    with lab.server(script) as api:
        program.url = api.url
        lines = program.ask("go", *STREAM).lines
        dollars = sum(each.cost for each in api.ledger)
    told = {line["subtype"]: line for line in lines if line["type"] == "system"}
    assert list(told) == ["init", "task_started", "task_progress", "task_notification"]
    progress = told["task_progress"]
    assert (progress["last_tool_name"], progress["usage"]["tool_uses"]) == ("Glob", 1)
    assert progress["task_id"] == told["task_started"]["task_id"]
    assert lines[-1]["total_cost_usd"] == pytest.approx(dollars)


def test_a_call_that_goes_on_is_told(program: Program) -> None:
    script = [use("Bash", command="echo a; sleep 1.2; echo b"), {"say": "Fine."}]
    with lab.server(script) as api:
        program.url = api.url
        lines = program.ask("go", *STREAM, "--allowedTools", "Bash").lines
    told = [line for line in lines if line["type"] == "tool_progress"]
    assert [line["tool_name"] for line in told] == ["Bash", "Bash"]
    assert told[0]["elapsed_time_seconds"] < told[1]["elapsed_time_seconds"]


def test_a_reply_that_does_not_come_is_told_in_its_place(program: Program) -> None:
    with lab.server([{"error": {"status": 401, "message": "no"}}]) as api:
        program.url = api.url
        done = program.ask("go", *STREAM)
    assert shapes(done.lines) == [
        ("system", "init"),
        ("assistant", ""),
        ("result", "success"),
    ]
    said, result = done.lines[1:]
    assert (said["error"], said["message"]["model"]) == ("authentication_failed", "<synthetic>")
    assert (result["api_error_status"], result["terminal_reason"]) == (401, "api_error")


def test_a_program_may_ask_for_a_compaction_as_people_do(program: Program) -> None:
    for number in range(FILES):
        lines = (f"line {n} of file {number}: value_{number}_{n}" for n in range(120))
        (program.folder / f"f{number}.txt").write_text("\n".join(lines))
    with lab.server(model) as api:
        program.url = api.url
        assert program.ask("read them all").code == 0
        done = program.ask("/compact keep the values", *STREAM, "-c", *EARLY)
        clear = program.ask("/clear", *STREAM, "-c")
    told = [line.get("subtype", line["type"]) for line in done.lines]
    assert [one for one in told if one != "informational"] == [
        "init",
        "status",
        "compact_boundary",
        "status",
        "success",
    ]
    assert [line["status"] for line in done.lines if "status" in line] == ["compacting", None]
    assert done.result["result"].startswith("Compacted (manual)")
    assert clear.result["errors"] == ["/clear is available only in the terminal"]
