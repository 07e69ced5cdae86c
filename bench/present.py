"""How the work of a recorded session stands at a moment, told from the recording alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from bench.steps import Step
from travois.context.ledger.extractors import (
    ToolAction,
    classify_tool,
    decode_arguments,
    is_list,
    is_object,
)
from travois.core.content import Call, extract_calls, extract_text
from travois.ports.tool import ToolOutcome

STEP, FILE, ERROR, TASK = "Steps done so far", "Current file", "Last error", "Task in progress"
"""The labels under which the recorded model states where it stands."""
NONE = "none"
LONGEST = 160
SUBJECT = ("content", "step", "subject")
REFUSED = "doesn't want to proceed"
PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+?)\s*$", re.MULTILINE)
PATCH = {"Update": "edited", "Add": "written", "Delete": "deleted"}
DID = {"edit": "edited", "write": "written", "delete": "deleted"}


class Present(msgspec.Struct):
    """Where a session stands after some of its steps."""

    steps: int = 0
    file: str = ""
    """The file that was read or changed last."""
    error: str = ""
    """The first line of the last result that was an error."""
    error_at: int = -1
    tasks: dict[str, str] = {}
    """The status of each task of the list, by its subject; of two with the same, the newest."""
    numbered: dict[str, tuple[str, str]] = {}
    """The subject and the status of each task that has a number, by that."""
    files: dict[str, tuple[str, int]] = {}
    """What was last done to each file that a tool changed, and in which step."""
    commands: dict[str, tuple[int, ToolOutcome]] = {}
    """Each command line that was run, when it was last, and what it brought."""

    @property
    def task(self) -> str:
        """The task that is being worked on."""
        underway = (subject for subject, status in self.tasks.items() if status == "in_progress")
        return next(underway, "")


def present(steps: Sequence[Step]) -> Present:
    """How things stand after these steps."""
    now, listed, made = Present(len(steps)), dict[str, str](), dict[str, tuple[str, str]]()
    for at, step in enumerate(steps):
        for call in extract_calls(step.content):
            outcome = step.results.get(call.id)
            if outcome is None:
                continue
            args = decode_arguments(call.args)
            act = ToolAction(
                at, classify_tool(call.name, args), call.name, args, extract_text(outcome.content)
            )
            _work(now, act, outcome)
            if not outcome.error:
                listed = dict(_list(act)) if act.kind == "list" else listed
                _single(made, act)
    now.tasks, now.numbered = listed | dict(made.values()), made
    return now


def _work(now: Present, act: ToolAction, outcome: ToolOutcome) -> None:
    if act.command:
        now.commands[act.command] = act.seq, outcome
    if outcome.error:
        if REFUSED not in act.text:
            now.error, now.error_at = _headline(act.text), act.seq
        return
    if act.kind in ("read", *DID) and act.path:
        now.file = act.path
    if act.kind in DID and act.path:
        now.files[act.path] = DID[act.kind], act.seq
    for verb, path in PATCHED.findall(act.arg("input", "patch", "cmd", "command")):
        now.file, now.files[path] = path, (PATCH[verb], act.seq)


def _headline(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return next((line for line in lines if line), "")[:LONGEST]


def _list(act: ToolAction) -> Iterator[tuple[str, str]]:
    lists = [value for value in act.args.values() if is_list(value)]
    for item in lists[0] if lists else ():
        if is_object(item):
            subject = next((str(item[key]) for key in SUBJECT if item.get(key)), "")
            yield subject, str(item.get("status") or "pending")


def _single(made: dict[str, tuple[str, str]], act: ToolAction) -> None:
    """Take tasks into account that are made and changed one by one."""
    if act.kind == "task" and (subject := act.arg("subject")):
        number = re.search(r"#(\d+)", act.text)
        made[number[1] if number else f"call {act.seq}"] = subject, "pending"
    elif act.kind == "retask" and (id := str(act.args.get("taskId"))) in made:
        subject, status = made[id]
        made[id] = act.arg("subject") or subject, act.arg("status") or status
        if made[id][1] == "deleted":
            del made[id]


def stated_by_model(now: Present) -> str:
    """What the recorded model says of the present when it is asked to sum up.

    The next step goes by number: its arguments would tell the model what it is measured by.
    """
    error = now.error or NONE
    return "\n".join(
        f"{label}: {value}"
        for label, value in (
            (STEP, now.steps),
            (FILE, now.file or NONE),
            (ERROR, error),
            (TASK, now.task or NONE),
        )
    )


def calls_of(steps: Sequence[Step]) -> Iterator[Call]:
    """All calls of these steps, in order."""
    for step in steps:
        yield from extract_calls(step.content)
