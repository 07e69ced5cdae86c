"""What an agent is doing, in three to five words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.agents.activity import (
    WORK_NAME_NOTE,
    WORK_NAME_SECONDS,
    build_naming_prompt,
    describe_activity,
    describe_tool_call,
    parse_activity_name,
)
from travois.core.content import Call, Text
from travois.core.facts import (
    AnyFact,
    Asked,
    Assistant,
    Decided,
    Ended,
    Entry,
    Failed,
    Noted,
    Result,
    User,
)

CALL = Call("1", "Read", '{"file_path": "/w/a b/main.py"}')


def after(*facts: AnyFact) -> str:
    return describe_activity(Entry(number, 0.0, fact) for number, fact in enumerate(facts, 1))


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("Read", {"file_path": "/w/src/main.py"}, "Reading the file main.py"),
        ("MultiEdit", {"file_path": "main.py"}, "Editing the file main.py"),
        ("Write", {"file_path": "/w/my long name.py"}, "Writing the file my long"),
        ("NotebookEdit", {"notebook_path": "/a.ipynb"}, "Editing the file a.ipynb"),
        ("Bash", {"command": "pytest -q tests -k x y"}, "Running pytest -q tests -k"),
        ("Bash", {"command": "make"}, "Running the command make"),
        ("Bash", {"command": "x", "description": "Run the tests"}, "Run the tests"),
        ("Bash", {"command": "x y", "description": "a b c d e f"}, "Running x y"),
        ("Grep", {"pattern": "def main"}, "Searching the code for def"),
        ("Glob", {"pattern": "**/*.py"}, "Looking for files like **/*.py"),
        ("GitDiff", {}, "Looking at git diff"),
        ("WebFetch", {"url": "https://a.example/b"}, "Fetching a page from a.example"),
        ("Agent", {"description": "find all callers"}, "Starting an agent: find all"),
        ("TodoWrite", {"todos": []}, "Updating its task list"),
        ("mcp__db__query", {}, "Using the tool mcp__db__query"),
        ("Bash", {"command": f"\x1b[2K{'x' * 60} <b>"}, f"Running \\x1b[2K{'x' * 36}… \\x3cb\\x3e"),
    ],
)
def test_a_call_is_told_by_its_object(name: str, args: dict[str, object], words: str) -> None:
    assert describe_tool_call(Call("1", name, json.dumps(args))) == words


def test_the_last_thing_that_began_is_told() -> None:
    asked = Assistant((Text("I look."), CALL), stop="calls")
    assert after() == "Thinking about the task"
    assert after(asked) == "Reading the file main.py"
    assert after(asked, Result("1", (Text("x"),))) == "Reading the file main.py"
    assert after(asked, Asked("1", "?")) == "Waiting for an answer"
    assert after(asked, Asked("1", "?"), Decided("1", "allow", "y")) == "Reading the file main.py"
    assert after(asked, Failed("overloaded", "x", wait=2.0)) == "Waiting to try again"
    assert after(asked, Ended("end")) == "Done with its task"
    assert after(asked, Ended("aborted")) == "Stopped before the end"
    assert after(asked, Ended("end"), User((Text("go on"),))) == "Thinking about the task"


@given(
    st.sampled_from(("Read", "Bash", "Grep", "WebFetch", "Agent", "SendMessage", "x", "")),
    st.dictionaries(
        st.sampled_from(("file_path", "command", "description", "pattern", "url", "to")), st.text()
    ),
)
def test_it_is_always_three_to_five_words_on_one_line(name: str, args: dict[str, str]) -> None:
    words = describe_tool_call(Call("1", name, json.dumps(args)))
    assert 3 <= len(words.split()) <= 5
    assert words.isprintable()


def at(*facts: tuple[float, AnyFact]) -> str:
    return describe_activity(
        Entry(number, time, fact) for number, (time, fact) in enumerate(facts, 1)
    )


def test_a_name_holds_for_a_while_and_then_rules_speak_again() -> None:
    asked = Assistant((CALL,), stop="calls")
    named = Noted(WORK_NAME_NOTE, "Mending the parser")
    assert at((0, asked), (1, named)) == "Mending the parser"
    assert at((0, asked), (1, named), (1 + WORK_NAME_SECONDS, asked)) == "Mending the parser"
    assert at((0, asked), (1, named), (2 + WORK_NAME_SECONDS, asked)) == "Reading the file main.py"
    assert at((0, asked), (1, named), (2, Asked("1", "?", ""))) == "Waiting for an answer"
    assert at((0, asked), (1, named), (2, Ended("end"))) == "Done with its task"


def test_the_task_that_a_list_marks_as_worked_on_is_told() -> None:
    todos = [
        {"content": "Read it", "status": "completed"},
        {"content": "Fix the parser", "activeForm": "Fixing the parser", "status": "in_progress"},
    ]
    assert (
        describe_tool_call(Call("1", "TodoWrite", json.dumps({"todos": todos})))
        == "Fixing the parser"
    )


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        ("Fixing the date parser", "Fixing the date parser"),
        (' "Fixing the date parser."\n', "Fixing the date parser"),
        ("Reading tests", "Reading tests"),
        ("Reading all of the login tests", "Reading all of the login"),
        ("Reading", ""),
        ("", ""),
        ("I am sorry,\nbut no", ""),
        ("I would say that it is reading all the tests of it", ""),
        ("Reading \x1b[2Jtests now", "Reading \\x1b[2Jtests now"),
    ],
)
def test_only_a_name_counts_as_one(reply: str, name: str) -> None:
    assert parse_activity_name(reply) == name


def test_a_small_model_is_shown_the_task_and_the_last_steps_within_bounds() -> None:
    task = User((Text("Find the bug. " + "x" * 9_000),), origin="task")
    step = Assistant((Text("Now I look at it. " + "y" * 9_000), CALL), stop="calls")
    shown = build_naming_prompt(
        [Entry(n, 0.0, fact) for n, fact in enumerate((task, *[step] * 50))]
    )
    assert "Find the bug." in shown and "- Reading the file main.py" in shown
    assert len(shown) < 5_000
