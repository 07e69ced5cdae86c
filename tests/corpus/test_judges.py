"""Each judge of the fidelity bench can fail, and each is told of what the engine really sends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.billing import Seen
from bench.continuation import continued, unlisted
from bench.replay import Moment, Setting, Watcher, replay
from bench.staleness import Log, contradicted
from bench.steps import Step, script
from bench.tree import UNKNOWN, Tree

from travois.context.layers import ContextLayers
from travois.context.ledger import build_ledger, render_ledger
from travois.core.content import Text, extract_calls
from travois.core.facts import Assistant, Entry, Opened, Result, User

CWD = "/work/place"
PAUSE = 10.0


def use(name: str, **args: Any) -> tuple[str, dict[str, Any]]:
    return name, args


def recorded(*rounds: tuple[tuple[str, dict[str, Any]], str | tuple[str, str]]) -> list[Step]:
    """Steps of one call each; a result with an `error` before it is one."""
    told: list[dict[str, Any]] = [
        {"role": "user", "origin": "human", "t": 0.0, "content": [text("Please go on.")]}
    ]
    for number, ((name, args), result) in enumerate(rounds):
        failed = isinstance(result, tuple)
        call = {"type": "tool_use", "id": f"c{number}", "name": name, "input": args}
        given = {"type": "tool_result", "tool_use_id": f"c{number}"}
        given |= {"content": result[1] if failed else result, "is_error": failed}
        at = 1 + number * PAUSE
        told.append({"role": "assistant", "origin": "model", "t": at, "content": [call]})
        told.append({"role": "user", "origin": "tool", "t": at + 1, "content": [given]})
    return script(told)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def page(first: int, *lines: str) -> str:
    return "\n".join(f"{number:6}\u2192{line}" for number, line in enumerate(lines, first))


def names(text: str) -> set[str]:
    return set(re.findall(r"\w+_\w+", text))


# --- continuation ---------------------------------------------------------------------------------


def test_a_value_that_is_dropped_lowers_continuation_and_is_named() -> None:
    steps = recorded(
        (use("Grep", pattern="max_depth"), "settings: max_depth min_width"),
        (use("Bash", command="run --with max_depth --and min_width --new brand_new"), "ok"),
    )
    whole = continued(steps, at=1, shown="max_depth is 3, min_width is 4", atoms=names)
    assert (whole.wanted, whole.lost) == (2, ())
    less = continued(steps, at=1, shown="max_depth is 3", atoms=names)
    assert (less.wanted, less.lost) == (2, ("min_width",))


def test_only_the_next_ten_calls_count() -> None:
    later = [(use("Bash", command=f"use old_{n}"), "") for n in range(12)]
    steps = recorded((use("Read", path="x"), " ".join(f"old_{n}" for n in range(12))), *later)
    found = continued(steps, at=1, shown="", atoms=names)
    assert found.lost == tuple(sorted(f"old_{n}" for n in range(10)))


def test_what_the_person_says_with_the_next_step_counts_as_said_before() -> None:
    steps = recorded((use("Bash", command="use said_now"), ""))
    steps[0].said = (User((Text("use said_now"),)),)
    assert continued(steps, at=0, shown="", atoms=names).lost == ("said_now",)


@pytest.mark.parametrize(
    "line",
    [
        "- src/app.py: read_all write_all MAX_SIZE parseThing",
        "- elsewhere: --flag-one getName a1b2c3d4 other_name",
        "read_all, write_all, MAX_SIZE, parseThing",
    ],
)
def test_lists_of_bare_names_are_taken_out(line: str) -> None:
    assert unlisted(f"before\n{line}\nafter") == "before\nafter"


@pytest.mark.parametrize(
    "line",
    [
        "- read_all in src/app.py gives up after MAX_SIZE bytes, as parseThing needs them",
        "- src/app.py (edited, 3 changes)",
        "- pytest -q tests/test_app.py: passed",
        "> - please rename read_all to load_all",
        "- /s/span-1.txt: Read src/app.py, then edited it",
    ],
)
def test_what_says_something_of_a_name_stays(line: str) -> None:
    assert unlisted(line) == line


def test_many_lines_of_one_name_each_are_a_list_and_few_are_not() -> None:
    many = [f"- src/part_{n}.py" for n in range(8)]
    assert unlisted("\n".join(["x is y", *many])) == "x is y"
    assert unlisted("\n".join(many[:7])) == "\n".join(many[:7])


def test_files_that_are_shown_stay_whole() -> None:
    body = '<file path="a" lines="1-1 of 1" mark="ab">\none_a two_b three_c four_d\n</file ab>'
    assert unlisted(body).strip() == body


# --- staleness ------------------------------------------------------------------------------------

TODO = [{"content": "Write the parser", "status": "in_progress"}]
DONE = [{"content": "Write the parser", "status": "completed"}]


def stale(
    steps: list[Step], said: str, *, aside: int = -1, place: Callable[[str], Path] = Path
) -> list[str]:
    count = len(steps)
    log = Log(steps, at=count, aside=count if aside < 0 else aside, cwd=CWD)
    return contradicted(said, log, place)


def test_a_task_that_is_done_by_now_may_not_be_called_open() -> None:
    steps = recorded((use("TodoWrite", todos=TODO), "ok"), (use("TodoWrite", todos=DONE), "ok"))
    assert stale(steps, "- [completed] Write the parser") == []
    assert stale(steps, "- [in_progress] Write the parser") == [
        "task: 'Write the parser' is said to be in_progress, and is completed"
    ]
    assert stale(steps, "- [pending] Paint the wall") == [
        "task: 'Paint the wall' is not on the list"
    ]
    assert stale(steps, "- > - [pending] Paint the wall") == []


def test_tasks_that_are_changed_one_by_one_are_known() -> None:
    steps = recorded(
        (use("TaskCreate", subject="First"), "Task #1 created"),
        (use("TaskCreate", subject="Second"), "Task #2 created"),
        (use("TaskUpdate", taskId="1", status="completed"), "ok"),
        (use("TaskUpdate", taskId="2", status="deleted"), "ok"),
    )
    assert stale(steps, "- [completed] #1 First (me)") == []
    assert len(stale(steps, "- [pending] #1 First\n- [pending] #2 Second")) == 2


def test_two_tasks_with_the_same_words_are_told_apart_by_their_numbers() -> None:
    steps = recorded(
        (use("TaskCreate", subject="Run the tests"), "Task #1 created"),
        (use("TaskUpdate", taskId="1", status="completed"), "ok"),
        (use("TaskCreate", subject="Run the tests"), "Task #2 created"),
    )
    assert stale(steps, "- [completed] #1 Run the tests\n- [pending] #2 Run the tests") == []
    assert len(stale(steps, "- [completed] #2 Run the tests\n- [pending] #1 Run the tests")) == 2


def test_the_state_of_a_file_is_what_was_done_to_it_last() -> None:
    steps = recorded(
        (use("Write", file_path=f"{CWD}/a.py", content="x"), "ok"),
        (use("Edit", file_path=f"{CWD}/a.py", old_string="x", new_string="y"), "ok"),
    )
    assert stale(steps, "- a.py (edited, 2 changes)") == []
    assert stale(steps, "- a.py (deleted)") == ["file: a.py is said to be deleted, and was edited"]


def test_a_command_that_names_the_file_later_leaves_its_state_open() -> None:
    steps = recorded(
        (use("Write", file_path=f"{CWD}/a.py", content="x"), "ok"),
        (use("Bash", command="rm a.py"), ""),
    )
    assert stale(steps, "- a.py (deleted)") == []


def test_a_check_is_as_its_last_run_ended() -> None:
    steps = recorded(
        (use("Bash", command="cd x && pytest -q"), ("error", "1 failed")),
        (use("Bash", command="cd x && pytest -q"), "3 passed"),
    )
    assert stale(steps, "- pytest -q: passed") == []
    assert stale(steps, "- pytest -q: failed (exit code 1)") == [
        "check: 'pytest -q' is said to have failed, and has not"
    ]


def test_a_check_that_last_ran_beside_others_is_not_judged() -> None:
    steps = recorded(
        (use("Bash", command="make lint"), "ok"),
        (use("Bash", command="make lint && make test"), ("error", "1 failed")),
    )
    assert stale(steps, "- make lint: passed") == []


def test_an_older_error_may_not_stand_first() -> None:
    steps = recorded(
        (use("Bash", command="one"), ("error", "ImportError: no module named old")),
        (use("Bash", command="two"), ("error", "TypeError: the newest thing went wrong")),
    )
    old, new = "- ImportError: no module named old (in: one)", "- TypeError: the newest (in: two)"
    head = "## Errors seen, the newest first\n"
    assert stale(steps, f"{head}{new}\n{old}\n") == []
    assert len(stale(steps, f"{head}{old}\n{new}\n")) == 1
    assert len(stale(steps, f"{head}{old}\n")) == 1


def test_a_file_shown_as_it_is_on_disk_must_be_just_that(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n\nfour\n")
    shown = '<file path="a.py" lines="1-3 of 4" mark="12ab">\none\n{}\n\n</file 12ab>'
    steps = recorded((use("Bash", command="true"), ""))

    def place(path: str) -> Path:
        return tmp_path / path

    assert stale(steps, shown.format("two"), place=place) == []
    wrong = ["disk: a.py is shown as it no longer is"]
    assert stale(steps, shown.format("old"), place=place) == wrong
    (tmp_path / "a.py").unlink()
    assert stale(steps, shown.format("two"), place=place) == [
        "disk: a.py is shown, and is not there"
    ]


def test_what_the_model_said_must_hold_for_a_moment_that_is_still_shown() -> None:
    steps = recorded(
        (use("Read", file_path="/a"), page(1, "x")),
        (use("Read", file_path="/b"), page(1, "x")),
        (use("Read", file_path="/c"), page(1, "x")),
    )
    said = "Steps done so far: 2\nCurrent file: /b"
    assert stale(steps, said, aside=2) == []
    assert stale(steps, said, aside=3) == [
        "model: steps done so far is said to be '2', and is '3'",
        "model: current file is said to be '/b', and is '/c'",
    ]
    topped = f"{said}\n\nSince then:\nSteps done so far: 3\nCurrent file: /c"
    assert stale(steps, topped, aside=3) == []


def test_the_judge_reads_what_the_ledger_writes() -> None:
    """A ledger of an earlier moment, written by the program, is caught in each of its parts."""
    steps = recorded(
        (use("TodoWrite", todos=TODO), "ok"),
        (use("Write", file_path=f"{CWD}/a.py", content="x"), "ok"),
        (use("Bash", command="pytest -q"), ("error", "ImportError: no module named old")),
        (use("TodoWrite", todos=DONE), "ok"),
        (use("Edit", file_path=f"{CWD}/a.py", old_string="x", new_string="y"), "ok"),
        (use("Bash", command="pytest -q"), "3 passed"),
        (use("Bash", command="other"), ("error", "TypeError: the newest thing went wrong")),
    )
    now, before = ledger(steps), ledger(steps[:3])
    assert stale(steps, now) == []
    assert [why.partition(":")[0] for why in stale(steps, before)] == [
        "task",
        "file",
        "check",
        "error",
    ]


def ledger(steps: list[Step]) -> str:
    entries = [Entry(1, 0.0, Opened("s", cwd=CWD, project="p", version="0"))]
    for step in steps:
        entries.append(Entry(len(entries) + 1, step.time, Assistant(step.content, stop="calls")))
        for id, outcome in step.results.items():
            fact = Result(id, outcome.content, error=outcome.error)
            entries.append(Entry(len(entries) + 1, step.time, fact))
    return render_ledger(build_ledger(entries), budget=10_000).text


# --- the replay -----------------------------------------------------------------------------------


def long_session(*, rounds: int = 40) -> list[Step]:
    """One file is read and changed, and then many large ones are looked at."""
    path = f"{CWD}/kept.py"
    filler = "\n".join(f"line {n} of a long listing" for n in range(400))
    return recorded(
        (use("Read", file_path=path, offset=3), page(3, "third = 3", "fourth = 4")),
        (use("Edit", file_path=path, old_string="third = 3", new_string="third = 33"), "ok"),
        *((use("Bash", command=f"list {n}"), filler) for n in range(rounds)),
    )


def after_compaction(folder: Path, steps: list[Step], **more: Any) -> list[tuple[Seen, Moment]]:
    found: list[tuple[Seen, Moment]] = []
    watcher = Watcher(compacted=lambda request, moment: found.append((request, moment)))
    layers = ContextLayers(pressure=False)  # a compaction, where clearing would do
    setting = Setting(**({"window": 60_000, "layers": layers, "cwd": CWD} | more))
    _, died = replay(steps, folder / "s", setting=setting, watcher=watcher)
    assert died == ""
    return found


def test_recorded_files_lie_in_the_scratch_tree_and_come_back_after_a_compaction(
    tmp_path: Path,
) -> None:
    (request, moment), *_ = after_compaction(tmp_path, long_session())
    there = moment.tree.place(f"{CWD}/kept.py").read_text()
    assert there == f"{UNKNOWN}\n{UNKNOWN}\nthird = 33\nfourth = 4"
    assert f'<file path="{CWD}/kept.py" lines="3-4 of 4"' in request.text
    assert "third = 33\nfourth = 4" in request.text
    assert not (Path(CWD) / "kept.py").exists()


def test_a_file_outside_the_workspace_does_not_come_back(tmp_path: Path) -> None:
    (request, _), *_ = after_compaction(tmp_path, long_session(), cwd="/elsewhere")
    assert "<file path=" not in request.text


def test_the_judges_are_told_how_much_a_compaction_set_aside(tmp_path: Path) -> None:
    (_, moment), *_ = after_compaction(tmp_path, long_session())
    assert 0 < moment.aside < moment.at


def test_with_thinking_in_the_history_the_provider_leaves_results_out(tmp_path: Path) -> None:
    filler = "\n".join(f"line {n} of a long listing" for n in range(150))
    told: list[dict[str, Any]] = [
        {"role": "user", "origin": "human", "t": 0.0, "content": [text("Please go on.")]}
    ]
    for n in range(30):
        thought = {"type": "thinking", "thinking": f"I think of number {n}."}
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"x {n}"}}
        given = {"type": "tool_result", "tool_use_id": f"c{n}", "content": filler}
        at = 1 + n * PAUSE + (4_000 if n > 20 else 0)
        told.append({"role": "assistant", "origin": "model", "t": at, "content": [thought]})
        told.append({"role": "assistant", "origin": "model", "t": at, "content": [call]})
        told.append({"role": "user", "origin": "tool", "t": at + 1, "content": [given]})
        if n == 20:
            more = text("Go on after the pause.")
            done = [{"role": "assistant", "origin": "model", "t": at + 2, "content": [text("Ok.")]}]
            said = {"role": "user", "origin": "human", "t": at + 4_000, "content": [more]}
            told += [*done, said]
    steps = script(told, thinking=True)
    requests: list[Seen] = []
    watcher = Watcher(lambda step, request, compactions: requests.append(request))
    setting = Setting(200_000, ContextLayers(), edits=True)
    player, died = replay(steps, tmp_path / "s", setting=setting, watcher=watcher)
    assert died == ""
    assert "I think of number 0." in requests[-1].text
    assert requests[-1].left_out > 0
    assert requests[-1].texts.count("[cleared]") == requests[-1].left_out
    assert player.counts["Cleared"] >= 1


def test_later_reads_tell_what_stood_in_a_file_before_and_edits_what_stands_there_after(
    tmp_path: Path,
) -> None:
    path = "/w/a.py"
    steps = recorded(
        (use("Read", file_path=path, offset=2), page(2, "two")),
        (use("Read", file_path=path), page(1, "one", "two", "three")),
        (use("Edit", file_path=path, old_string="two", new_string="2\n2b"), "ok"),
        (use("Edit", file_path=path, old_string="one", new_string="!"), ("error", "no")),
        (use("Write", file_path=path, content="new"), "ok"),
    )
    tree = Tree(tmp_path, [(c, s.results[c.id]) for s in steps for c in extract_calls(s.content)])
    versions: list[str] = []
    for number in range(5):
        tree.run(f"c{number}", state={f"seen:{path}": ""})
        versions.append(tree.place(path).read_text())
    before, after = "one\ntwo\nthree", "one\n2\n2b\nthree"
    assert versions == [before, before, after, after, "new"]


def test_an_edit_of_a_file_that_was_not_read_leaves_it_unknown(tmp_path: Path) -> None:
    steps = recorded((use("Edit", file_path="/w/a", old_string="x", new_string="y"), "ok"))
    tree = Tree(tmp_path, [(c, s.results[c.id]) for s in steps for c in extract_calls(s.content)])
    assert tree.run("c0", state={}) == ()
    assert [change.what for change in tree.run("c0", state={"seen:/w/a": ""})] == ["seen:/w/a"]
