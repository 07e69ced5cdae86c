"""What a call brought, below its title: enough to go on, and of a failure why it failed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.tools.world import World
from travois.core.content import Call, Text
from travois.core.facts import Decided, Result
from travois.ports.world import PermissionQuestion
from travois.presentation import ToolCallItem
from travois.tools.apply_patch import APPLY_PATCH
from travois.tools.diff import compare_texts
from travois.tools.read import READ
from travois.tui.call_view import render_finished_call, render_running_call, render_whole_call
from travois.tui.diff_view import render_diff_rows
from travois.tui.layout import STYLE_PATTERN, display_width
from travois.tui.permission_text import AskedCall
from travois.tui.theme import Theme, resolve_theme

NONE = resolve_theme("none", {})
DARK = resolve_theme("dark", {"TERM": "xterm-256color"})
LIGHT = resolve_theme("light", {"COLORTERM": "truecolor"})
RED = DARK.codes["bad"]


def call(
    name: str, args: dict[str, str], text: str, *, error: bool = False, detail: str = ""
) -> ToolCallItem:
    result = Result("c", (Text(text),), error=error, detail=detail)
    return ToolCallItem(Call("c", name, json.dumps(args)), result=result)


def bash(command: str, text: str, code: int = 0) -> ToolCallItem:
    said = f"Exit code {code}\n{text}" if code else text
    detail = json.dumps({"exitCode": code, "interrupted": False, "bytes": len(text)})
    return call("Bash", {"command": command}, said, error=bool(code), detail=detail)


def lines(item: ToolCallItem, theme: Theme = NONE, columns: int = 80) -> list[str]:
    shown = render_finished_call(item, tools={}, theme=theme, columns=columns)
    return [STYLE_PATTERN.sub("", line) for line in shown]


def red(item: ToolCallItem) -> list[str]:
    shown = render_finished_call(item, tools={}, theme=DARK, columns=80)
    return [STYLE_PATTERN.sub("", line).strip() for line in shown[1:] if f"\x1b[{RED}m" in line]


LONG = "\n".join(f"row {number}" for number in range(1, 154))
FAILED_TEST = (
    "collected 9 items\n" + "test_a.py .\n" * 20 + "E   ZeroDivisionError: division by zero\n"
    "test_a.py:4: ZeroDivisionError\nno errors in 12 files\n1 failed, 8 passed in 0.1s\n"
)


def test_of_a_command_the_last_lines_are_shown() -> None:
    assert lines(bash("seq 153", LONG)) == [
        "  ✓ $ seq 153  153 lines",
        *(f"    row {number}" for number in range(149, 154)),
        "    Ctrl-O: 148 more lines",
    ]


def test_a_failed_test_run_says_why_in_red() -> None:
    item = bash("pytest", FAILED_TEST, code=1)
    shown = lines(item)
    assert shown[0] == "  ✗ $ pytest  exit 1"
    assert shown[-1] == "    Ctrl-O: 20 more lines"
    assert red(item) == [
        "E   ZeroDivisionError: division by zero",
        "test_a.py:4: ZeroDivisionError",
        "1 failed, 8 passed in 0.1s",
    ]


def test_a_heading_of_a_report_is_no_reason() -> None:
    heading = f"{'=' * 30} FAILURES {'=' * 30}"
    item = bash("pytest", f"{heading}\n{FAILED_TEST}", code=1)
    assert lines(item)[1] == "    test_a.py ."
    assert heading not in red(item)


def test_of_a_failure_neither_headings_nor_notes_to_the_model_take_its_lines() -> None:
    rows = "\n".join(f"row {number}" for number in range(20))
    text = f"{rows}\n===== short test summary info =====\n1 failed\n[It ran read-only: call again.]"
    assert lines(bash("check", text, code=1))[1:] == [
        *(f"    row {number}" for number in range(14, 20)),
        "    1 failed",
        "    Ctrl-O: 14 more lines",
    ]


def test_a_path_in_a_title_is_relative_to_the_folder() -> None:
    def title(path: str) -> str:
        item = call("Read", {"file_path": path}, "1\ta")
        (shown,) = render_finished_call(item, tools={"Read": READ}, theme=NONE, columns=200)
        return STYLE_PATTERN.sub("", shown)

    assert title(f"{os.getcwd()}/src/a.py") == "  ✓ Read src/a.py  1 line"
    assert title("/etc/a.py") == "  ✓ Read /etc/a.py  1 line"


def test_of_an_agent_that_is_done_the_report_is_shown() -> None:
    assert lines(call("Agent", {}, "[agent a1: done]\nIt is blue.")) == [
        "  ✓ Agent {}",
        "    It is blue.",
    ]
    stopped = lines(call("Agent", {}, "[agent a1: stopped]\nHalf."))
    assert stopped[1:] == ["    [agent a1: stopped]", "    Half."]


@pytest.mark.parametrize(
    ("command", "text", "sign"),
    [
        ("python -m pytest | tail -1", "/usr/bin/python: No module named pytest", "!"),
        ("make 2>&1 | tail", "make: *** [all] Error 2", "!"),
        ("nope; true", "bash: nope: command not found", "!"),
        ("pytest | tail -1", "9 passed in 0.1s", "✓"),
        ("pytest | tail -1", "0 failed, 9 passed", "✓"),
        ("grep -rn fatal: log.txt | head", "fatal: not a repository", "✓"),
        ("cat errors.txt", "Traceback (most recent call last)", "✓"),
    ],
)
def test_a_pipe_that_hides_a_failure_does_not_look_like_success(
    command: str, text: str, sign: str
) -> None:
    assert lines(bash(command, text))[0].split()[0] == sign


def test_of_a_search_the_first_matches_are_shown_and_of_a_read_nothing() -> None:
    found = call("Grep", {"pattern": "row"}, LONG)
    assert lines(found)[1:] == [
        *(f"    row {number}" for number in range(1, 6)),
        "    Ctrl-O: 148 more lines",
    ]
    assert len(lines(call("Read", {"file_path": "a.txt"}, LONG))) == 1


def test_an_edit_shows_its_diff_unless_a_question_has() -> None:
    patch = compare_texts("a.txt", "one\ntwo\n", "one\n2\n").json()
    item = call("Edit", {"file_path": "a.txt"}, "Edited.", detail=patch)
    assert lines(item)[1:] == ["    1   one", "    2 - two", "    2 + 2"]
    shown = render_finished_call(item, tools={}, theme=NONE, columns=80, is_diff_shown=True)
    assert len(shown) == 1


def test_the_errors_that_an_edit_brought_are_shown_even_without_its_diff() -> None:
    patch = compare_texts("a.py", "one\n", "two\n").json()
    found = "1 new error since this edit (pyright):\na.py:1:1: two is unknown\n    two"
    result = Result("c", (Text("Edited."), Text(found), Text("[a remark]")), detail=patch)
    item = ToolCallItem(Call("c", "Edit", '{"file_path": "a.py"}'), result=result)
    shown = render_finished_call(item, tools={}, theme=NONE, columns=80, is_diff_shown=True)
    assert [STYLE_PATTERN.sub("", line) for line in shown[1:]] == [
        "    1 new error since this edit (pyright):",
        "    a.py:1:1: two is unknown",
        "        two",
    ]


def test_a_new_file_shows_its_head_and_ctrl_o_all_of_it() -> None:
    patch = compare_texts("a.txt", None, LONG).json()
    item = call("Write", {"file_path": "a.txt", "content": LONG}, "Created.", detail=patch)
    assert lines(item)[-1] == "    Ctrl-O: 143 more lines"
    whole = render_whole_call(item, theme=NONE, columns=80)
    assert STYLE_PATTERN.sub("", whole[-1]) == "    153 + row 153"


def test_a_call_that_was_denied_did_not_run() -> None:
    item = call("Bash", {"command": "git push"}, "The user said no: not today.", error=True)
    denied = ToolCallItem(item.call, Decided("c", "deny", "no"), item.result)
    assert lines(denied) == ["  ✗ $ git push  not run", "    The user said no: not today."]


def test_a_running_call_shows_its_last_lines() -> None:
    item = ToolCallItem(Call("c", "Bash", '{"command":"make"}'))
    shown = render_running_call(item, "a\nb\nc\nd\n", tools={}, theme=NONE, columns=80)
    assert [STYLE_PATTERN.sub("", line) for line in shown] == [
        "  ● $ make",
        "    b",
        "    c",
        "    d",
    ]


@pytest.mark.parametrize("columns", [42, 80, 120])
@pytest.mark.parametrize("theme", [DARK, LIGHT, NONE], ids=["dark", "light", "none"])
def test_no_line_is_wider_than_the_window(theme: Theme, columns: int) -> None:
    items = (
        bash("x" * 200, "word " * 100, code=2),
        bash("ok", "漢字" * 100),
        call("Read", {"file_path": "y" * 300}, "no " * 200, error=True),
    )
    for item in items:
        shown = render_finished_call(item, tools={}, theme=theme, columns=columns)
        assert max(map(display_width, shown)) < columns
        assert not re.search(r"\x1b\[[0-9;]*[A-JL-Zln-z]", "".join(shown))


PATCH = """\
*** Begin Patch
*** Update File: a.py
@@
-one
+two
*** Add File: sub/new.txt
+first
*** Delete File: old.txt
*** Update File: moved.txt
*** Move to: there.txt
@@
-was
+is
*** End Patch"""
PATCHED = """\
    a.py  +1 -1
    1 - one
    1 + two
    sub/new.txt  new, +1
    1 + first
    old.txt  deleted, 2 lines
    moved.txt → there.txt  +1 -1
    1 - was
    1 + is"""


def test_a_patch_of_several_files_shows_each_before_and_after_it_is_applied(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    for name, text in (("a.py", "one\n"), ("old.txt", "x\ny\n"), ("moved.txt", "was\n")):
        (world.folder / name).write_text(text)
    args = json.dumps({"input": PATCH})
    question = PermissionQuestion("c", "ApplyPatch", args, "Patch a.py", "asks")
    asked = AskedCall(question, str(world.folder))
    assert asked.sentence == "Change 4 files?"
    shown = render_diff_rows(asked.diff_rows, NONE, 80)
    assert [STYLE_PATTERN.sub("", line) for line in shown] == PATCHED.split("\n")
    assert list(asked.describe_call())[:3] == [
        "a.py  +1 -1:",
        "line 1, remove: one",
        "line 1, add: two",
    ]
    outcome = world.run(APPLY_PATCH, input=PATCH)
    item = call("ApplyPatch", {"input": PATCH}, "Success.", detail=outcome.detail)
    assert lines(item)[1:] == PATCHED.split("\n")
    assert lines(item)[0].endswith("+3 -4")


def test_a_patch_that_does_not_fit_is_shown_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.folder / "a.py").write_text("three\n")
    question = PermissionQuestion("c", "ApplyPatch", json.dumps({"input": PATCH}), "Patch", "asks")
    asked = AskedCall(question, str(world.folder))
    assert asked.sentence == "Apply this patch?"
    assert asked.diff_rows == []
    assert next(asked.describe_call()) == "input: *** Begin Patch"
