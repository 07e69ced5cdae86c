"""The task list: the program, its subagents, its team, and what of the list survives."""

from __future__ import annotations

import json
import re
from pathlib import Path

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Program, read
from tests.e2e.test_mail import joined, member
from travois.core.facts import Changed
from travois.core.tasks import Task, TaskList, read_tasks
from travois_lab import Prompt, call, text
from travois_lab.objects import Json


def lists(log: Path) -> list[TaskList]:
    """Every list that a log holds, in order."""
    facts = (entry.fact for entry in read(log))
    return [read_tasks(f.value) for f in facts if isinstance(f, Changed) and f.what == "todos"]


def agent_logs(program: Program) -> list[Path]:
    return sorted(program.home.glob("sessions/*/*/agents/**/log.jsonl"))


def step(prompt: Prompt) -> int:
    """How many replies the conversation of this request has so far."""
    return sum(message["role"] == "assistant" for message in prompt.messages)


def results(prompt: Prompt) -> list[str]:
    found = prompt.messages[-1]["content"]
    blocks = [block for block in found if block["type"] == "tool_result"]
    return [json.dumps(block["content"]) for block in blocks]


def test_tasks_and_todos_are_two_doors_to_one_list(program: Program) -> None:
    todos = [
        {"content": "Build", "status": "completed", "activeForm": "Building"},
        {"content": "Ship", "status": "pending", "activeForm": "Shipping"},
    ]
    steps: list[list[Json]] = [
        [
            call("TaskCreate", subject="Build", description="all", activeForm="Building"),
            call("TaskCreate", subject="Test", description="it"),
        ],
        [call("TaskUpdate", taskId="2", addBlockedBy=["1"])],
        [call("TaskList")],
        [call("TodoWrite", todos=todos)],
        [call("TaskList")],
        [text("done")],
    ]
    seen: list[str] = []

    def model(prompt: Prompt, state: object) -> list[Json]:
        seen.extend(results(prompt) if step(prompt) else [])
        return steps[step(prompt)]

    with program.served(model) as api:
        done = program.ask("go", "--output-format", "stream-json", "--verbose")
        assert done.code == 0, done.err
        api.no_invalid()
        api.append_only()
    assert "Task #1 created successfully: Build" in seen[0]
    assert r"#1 [pending] Build\n#2 [pending] Test [blocked by #1]" in seen[3]
    assert r"#1 [completed] Build\n#3 [pending] Ship" in seen[5]
    (log,) = program.logs()
    assert lists(log)[-1] == (
        Task(id="1", content="Build", status="completed", active="Building", description="all"),
        Task(id="3", content="Ship", status="pending", active="Shipping"),
    )


def worker(name: str) -> Json:
    args = {"description": "work", "prompt": f"be a worker {name}", "name": name}
    return {**call("Agent"), "input": args}


def test_subagents_work_through_the_list_of_their_lead(program: Program) -> None:
    """Two agents side by side claim the same task: one gets it, and the lead's log has it all."""

    def model(prompt: Prompt, state: object) -> list[Json]:
        first = json.dumps(prompt.messages[0])
        if "be a worker" in first:
            mine = re.findall(r"be a worker (\w+)", first)[0]
            return [
                [call("TaskUpdate", taskId="1", status="in_progress")],
                [call("TaskCreate", subject=f"found by {mine}", description="")],
                [text("done")],
            ][step(prompt)]
        return [
            [call("TaskCreate", subject="Build", description="")],
            [worker("ann"), worker("ben")],
            [call("TaskList")],
            [text("over")],
        ][step(prompt)]

    with lab.server(model) as api:
        program.url = api.url
        done = program.ask("go", "--permission-mode", "bypass")
        assert (done.code, done.out) == (0, "over\n"), done.err
        api.no_invalid()
        lead = api.ledger[-1]
    (log,) = program.logs()
    one, *found = lists(log)[-1]
    assert (one.status, one.owner in ("ann", "ben")) == ("in_progress", True)
    assert [(task.id, task.status) for task in found] == [("2", "pending"), ("3", "pending")]
    assert {task.content for task in found} == {"found by ann", "found by ben"}
    assert f"({one.owner})" in json.dumps(lead.messages)
    refused = [log for log in agent_logs(program) if "is being done by" in log.read_text()]
    assert len(refused) == 1
    assert [lists(log)[-1][0] for log in agent_logs(program)] == [one, one]


def made(program: Program, *subjects: str) -> None:
    """Run a session that puts these on its list."""
    calls = [call("TaskCreate", subject=each, description="") for each in subjects]
    with program.served([{"say": calls}, {"say": [{"text": "ok"}], "repeat": True}]):
        assert program.ask("plan").code == 0


def test_a_fork_of_a_session_gets_a_copy_of_its_list(program: Program) -> None:
    made(program, "Build", "Test")
    (origin,) = program.logs()
    update = [call("TaskUpdate", taskId="1", status="completed")]
    with program.served([{"say": update}, {"say": [{"text": "ok"}]}]):
        assert program.ask("go", "-c", "--fork-session").code == 0
    (fork,) = (log for log in program.logs() if log != origin)
    assert [task.status for task in lists(fork)[-1]] == ["completed", "pending"]
    assert [task.status for task in lists(origin)[-1]] == ["pending", "pending"]


def test_a_rewind_takes_the_list_back(program: Program) -> None:
    made(program, "Build")
    update = [call("TaskUpdate", taskId="1", status="completed")]
    with program.served([{"say": update}, {"say": [{"text": "ok"}]}]):
        assert program.ask("go", "-c").code == 0
    assert program.run("rewind", "--to", "1", "--conversation-only", "--yes").code == 0
    look = [{"say": [call("TaskList")]}, {"say": [{"text": "ok"}]}]
    with program.served(look):
        assert program.ask("again", "-c").code == 0
    (log,) = program.logs()
    assert "#1 [pending] Build" in log.read_text().rpartition("again")[2]


def test_a_team_shares_one_list_across_processes(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        said = prompt.last_text
        if "plan it" in said:
            return [call("TaskCreate", subject="Build", description="")]
        if "take it" in said:
            return [call("TaskUpdate", taskId="1", status="in_progress")]
        if "look" in said:
            return [call("TaskList")]
        return [text("done")]

    ada, bob = member(program, "ada"), member(program, "bob")
    with lab.server(model) as api:
        ada.url = bob.url = api.url
        assert ada.ask("plan it", *joined("ada")).code == 0
        assert bob.ask("take it", *joined("bob")).code == 0
        assert ada.ask("look", "-c", *joined("ada")).code == 0
        api.no_invalid()
        shown = json.dumps(api.ledger[-1].messages[-1])
    assert "#1 [in_progress] Build (bob)" in shown
    taken = Task(id="1", content="Build", status="in_progress", owner="bob")
    assert [lists(log)[-1] for log in program.logs()] == [(taken,), (taken,)]


def test_the_screen_follows_the_list(program: Program) -> None:
    steps: list[list[Json]] = [
        [
            call("TaskCreate", subject="Build the thing", description=""),
            call("TaskCreate", subject="Test the thing", description=""),
            call("TaskCreate", subject="Ship the thing", description=""),
        ],
        [
            call("TaskUpdate", taskId="3", addBlockedBy=["2"]),
            call("TaskUpdate", taskId="1", status="completed"),
        ],
        [text("a third of it is done")],
    ]

    def model(prompt: Prompt, state: object) -> list[Json]:
        return steps[step(prompt)]

    with program.served(model):
        glass = Glass(program, *program.model)
        glass.until("❯")
        glass.type("go\r")
        glass.until("a third of it is done")
        glass.until("1/3 done")
        glass.type("/todos\r")
        glass.until("✓ #1 Build the thing")
        glass.until("#3 Ship the thing (blocked by #2)")
        glass.leave()
