"""Staleness: does the context state something of the present that the log contradicts?

Judged right after a compaction, on what the harness has written: the state of tasks and files, how
checks ended, which error came last, files shown "as they are on disk", and what the model itself
said of the present when it was asked to sum up. What the model said must have been true at some
moment that the kept messages show; what the record says must be true now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.present import ERROR, FILE, NONE, STEP, TASK, Present, present
from bench.steps import Step
from travois.core.content import extract_text
from travois.ports.tool import ToolOutcome

TASK_LINE = re.compile(
    r"^- \[((?:in[_ ]progress|pending|completed?|done|cancel+ed|deleted|skipped|blocked|open|closed))\]"
    r" (?:#(\w+) )?(.+)$",
    re.MULTILINE,
)
FILE_LINE = re.compile(r"^- (.+) \((edited|written|deleted)(?:, \d+ changes)?\)$", re.MULTILINE)
CHECK_LINE = re.compile(r"^- (.+): (passed|failed)(?: \(exit code \d+\))?$", re.MULTILINE)
ERROR_LINE = re.compile(r"^- (.+) \(in: .*\)$", re.MULTILINE)
ERRORS = re.compile(r"^## .*[Ee]rror.*newest first.*\n((?:- .*\n?)+)", re.MULTILINE)
SHOWN = re.compile(
    r'^<file path="(.+?)" lines="(\d+)-(\d+) of (\d+)".*?>\n(.*?)\n</file ',
    re.MULTILINE | re.DOTALL,
)
QUOTED = re.compile(r"^ *(?:- )?>.*$", re.MULTILINE)
TAIL = re.compile(r" \([^()]{1,40}\)$| \[blocked by [^\]]*\]$")
"""What may stand behind the subject of a task."""
FAILURE = re.compile(r"(?i)fail|error|exit|panic|cannot|not found|undefined|timed? ?out|fatal")
JOINED, REDIRECTED = re.compile(r"&&|\|\|?|;|\n"), re.compile(r"\d?>+ ?&?\S+")
BRIEF = 60
"""So many characters of a line are enough to know it."""


class Log:
    """What a recording says of the moments of a session."""

    def __init__(self, steps: Sequence[Step], *, at: int, aside: int, cwd: str) -> None:
        self._steps, self.at, self.aside, self.cwd = steps, at, aside, cwd
        self._kept = [present(steps[:moment]) for moment in range(min(aside, at), at + 1)]
        self.now = self._kept[-1]

    def since(self, value: Callable[[Present], object]) -> set[object]:
        """The values of one kind at every moment that the kept messages show."""
        return set(map(value, self._kept))

    def last_said(self, text: str) -> int:
        """The last step whose results have this text; -1 if none has."""
        found = (at for at in range(self.at - 1, -1, -1) if self._has(at, text))
        return next(found, -1)

    def touched(self, path: str) -> int:
        """The last step in which a command names this file; -1 if none does."""
        name = path.replace("\\", "/").rpartition("/")[2]
        found = (at for line, (at, _) in self.now.commands.items() if name in line)
        return max(found, default=-1)

    def ran(self, command: str) -> ToolOutcome | None:
        """What the command brought when it was run last; none if it ran beside others then."""
        found = [
            (at, outcome, parts)
            for line, (at, outcome) in self.now.commands.items()
            if command in (parts := _parts(line))
        ]
        _, outcome, parts = max(found, key=lambda ran: ran[0], default=(0, None, ()))
        return outcome if len(parts) == 1 else None

    def _has(self, at: int, text: str) -> bool:
        outcomes = self._steps[at].results.values()
        return any(text in " ".join(extract_text(one.content).split()) for one in outcomes)


def contradicted(text: str, log: Log, place: Callable[[str], Path]) -> list[str]:
    """The statements of a text about the present that are not true, each with the reason."""
    own = QUOTED.sub("", SHOWN.sub("", text))
    return [
        *_tasks(own, log),
        *_files(own, log),
        *_checks(own, log),
        *_errors(own, log),
        *_disk(text, place),
        *_by_model(own, log),
    ]


def _tasks(text: str, log: Log) -> Iterator[str]:
    known = {_brief(subject): status for subject, status in log.now.tasks.items()}
    for status, number, subject in TASK_LINE.findall(text):
        told = _numbered(number, subject, log) or known.get(
            _brief(subject), known.get(_brief(TAIL.sub("", subject)))
        )
        if told is None:
            yield f"task: {subject!r} is not on the list"
        elif told != status:
            yield f"task: {subject!r} is said to be {status}, and is {told}"


def _numbered(number: str, subject: str, log: Log) -> str | None:
    """The status of the task with this number, if that is its subject."""
    own, status = log.now.numbered.get(number, ("", ""))
    return status if own and _brief(own) == _brief(subject) else None


def _files(text: str, log: Log) -> Iterator[str]:
    for path, state in FILE_LINE.findall(text):
        for full in (path, f"{log.cwd.rstrip('/')}/{path}"):
            did, at = log.now.files.get(full, (state, -1))
            if did != state and log.touched(full) < at:
                yield f"file: {path} is said to be {state}, and was {did}"


def _checks(text: str, log: Log) -> Iterator[str]:
    for command, outcome in CHECK_LINE.findall(text):
        ran = log.ran(command)
        if ran is None:
            continue
        passed = not ran.error and not FAILURE.search(extract_text(ran.content))
        if (outcome == "passed" and ran.error) or (outcome == "failed" and passed):
            yield f"check: {command!r} is said to have {outcome}, and has not"


def _errors(text: str, log: Log) -> Iterator[str]:
    section = ERRORS.search(text)
    listed = ERROR_LINE.findall(section[1]) if section else []
    if not listed or log.now.error_at < 0:
        return
    first, *others = (log.last_said(line.removesuffix(" …")[:BRIEF]) for line in listed)
    if first >= 0 and max((*others, log.now.error_at)) > first:
        yield f"error: {listed[0]!r} is said to be the newest; later came {log.now.error!r}"


def _disk(text: str, place: Callable[[str], Path]) -> Iterator[str]:
    for path, first, last, count, body in SHOWN.findall(text):
        try:
            data = place(path).read_bytes().decode("utf-8", errors="replace")
        except OSError:
            yield f"disk: {path} is shown, and is not there"
            continue
        lines = data.splitlines(keepends=True)
        there = "".join(lines[int(first) - 1 : int(last)]).removesuffix("\n")
        if there != body or len(lines) != int(count):
            yield f"disk: {path} is shown as it no longer is"


def _by_model(text: str, log: Log) -> Iterator[str]:
    """Judge what the model said last of each thing: an addition takes the place of what it said."""
    values: dict[str, Callable[[Present], object]] = {
        STEP: lambda now: str(now.steps),
        FILE: lambda now: now.file or NONE,
        ERROR: lambda now: now.error or NONE,
        TASK: lambda now: now.task or NONE,
    }
    for label, value in values.items():
        said = re.findall(rf"^{label}: (.+)$", text, re.MULTILINE)
        if said and said[-1] not in log.since(value):
            now = value(log.now)
            yield f"model: {label.lower()} is said to be {said[-1]!r}, and is {now!r}"


def _parts(line: str) -> tuple[str, ...]:
    """The commands of a line, without those that only go to a folder."""
    parts = (" ".join(part.split()) for part in JOINED.split(REDIRECTED.sub("", line)))
    return tuple(part for part in parts if part and not part.startswith("cd "))


def _brief(text: str) -> str:
    return " ".join(text.split()).removesuffix(" …")[:BRIEF]
