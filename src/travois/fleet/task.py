"""A task of the fleet, and the files that people write tasks in (JSONL, YAML, lists of repos)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports

with lazy_imports():
    import yaml

TASK_ID_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,63}")
"""Ids are also names of folders and of git branches."""
KEY_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
REMOTE_REPO_PATTERN = re.compile(r"[a-z][a-z0-9+]*://|[\w.-]+@[\w.-]+:")
MAX_PRIORITY = 100
MAX_BEST_OF = 20
MAX_SHOWN_PROBLEMS = 20
BRANCH_PREFIX = "travois/"
DATABASE_VARIABLE = "TRAVOIS_FLEET_DB"

PublishKind = Literal["branch", "patch"]
Mode = Literal["default", "plan", "accept-edits", "auto", "dont-ask", "bypass"]


def locate_fleet_folder(home: Path, url: str) -> Path:
    """Return the folder for a queue's clones: one for each, as task ids may be the same."""
    name = blake2b(url.encode(), digest_size=6).hexdigest() if url else "local"
    return home / "fleet" / name


class FleetTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task as it is queued. It names secrets and holds none."""

    prompt: str
    repo: str
    id: str = ""
    """What makes submitting idempotent; without one, a hash of the rest."""
    ref: str = ""
    """The branch, tag or commit to start from; the repository's default branch if empty."""
    model: str = ""
    agent: str = ""
    mode: Mode = "auto"
    """The permission mode of the run."""
    priority: int = 0
    """Higher ones start sooner."""
    max_usd: float = 0.0
    max_seconds: float = 0.0
    setup: str = ""
    """A shell command that runs in the clone before the agent."""
    check: str = ""
    """A shell command that has to succeed in the clone before anything is published."""
    key: str = ""
    """The name of the worker's environment variable that holds the provider key."""
    publish: PublishKind = "branch"
    best_of: int = 1
    """How many runs compete; the check picks."""

    @property
    def branch(self) -> str:
        """The branch that the result is pushed to."""
        return BRANCH_PREFIX + self.id


class TaskProblem(msgspec.Struct, frozen=True):
    """A problem with one field of a fleet task, and its position in the file."""

    place: str
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.field + ': ' if self.field else ''}{self.what}"


def load_tasks(path: str, text: str, *, folder: Path, best_of: int = 0) -> tuple[FleetTask, ...]:
    """Load the fleet tasks of a file; raises `UserError` with every problem, queueing none."""
    problems: list[TaskProblem] = []
    is_yaml = path.endswith((".yaml", ".yml"))
    rows = _yaml_rows(path, text) if is_yaml else _json_rows(path, text, problems)
    found: list[tuple[str, FleetTask]] = []
    for place, row in rows:
        if task := _read_task(place, row, problems):
            task = replace(task, best_of=best_of or task.best_of)
            found.append((place, _resolve_repo(task, folder)))
    return _finish_tasks(found, problems, source=path)


def expand_template(
    template: FleetTask, repos: str, *, path: str, folder: Path
) -> tuple[FleetTask, ...]:
    """Make one fleet task for each repository of a list (`repo [ref]` per line)."""
    problems: list[TaskProblem] = []
    found: list[tuple[str, FleetTask]] = []
    for number, line in enumerate(repos.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{path}:{number}"
        if len(words) > 2:
            problems.append(TaskProblem(place, "", "expected a repository and at most a ref"))
            continue
        task = replace(template, repo=words[0], ref=words[1] if len(words) > 1 else template.ref)
        found.append((place, _resolve_repo(task, folder)))
    return _finish_tasks(found, problems, source=path)


def _finish_tasks(
    found: Iterable[tuple[str, FleetTask]], problems: list[TaskProblem], *, source: str
) -> tuple[FleetTask, ...]:
    """Assign each fleet task its ID, check all of them, and raise what is wrong."""
    tasks: dict[str, FleetTask] = {}
    for place, task in found:
        whole = task if task.id else replace(task, id=derive_task_id(task))
        found_wrong = (*_find_wrong_texts(whole), *_find_wrong_numbers(whole))
        problems += [TaskProblem(place, *each) for each in found_wrong]
        if tasks.setdefault(whole.id, whole) != whole:
            problems.append(TaskProblem(place, "id", f"{whole.id!r} is used twice in this file"))
    if problems:
        shown = [str(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
        more = len(problems) - len(shown)
        listing = "\n  ".join([*shown, *([f"and {more} more"] if more else [])])
        raise UserError(
            f"{source}: nothing was submitted",
            why=f"{len(problems)} problem{'s' * (len(problems) > 1)}",
            fix=listing,
        )
    if not tasks:
        raise UserError(f"{source} has no tasks", fix='One per line: {"repo": …, "prompt": …}')
    return tuple(tasks.values())


def derive_task_id(task: FleetTask) -> str:
    """Derive a fleet task's ID, which is the same for the same task."""
    text = msgspec.json.encode(replace(task, id="", priority=0))
    return f"t-{blake2b(text, digest_size=6).hexdigest()}"


def _json_rows(path: str, text: str, problems: list[TaskProblem]) -> Iterator[tuple[str, object]]:
    """Yield the values of a JSONL task file with their positions."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            yield place, msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            problems.append(TaskProblem(place, "", str(error)))


def _yaml_rows(path: str, text: str) -> Iterator[tuple[str, object]]:
    """Yield the items of a YAML task file with their positions."""
    try:
        # The type stubs of PyYAML leave these two open.
        compose = cast(Callable[..., object], yaml.compose)
        loader = yaml.SafeLoader("")
        construct = cast(Callable[..., object], loader.construct_document)
        top = compose(text, Loader=yaml.SafeLoader)
        if top is None:
            return
        if not isinstance(top, yaml.SequenceNode):
            raise UserError(f"{path} is not a list of tasks", fix="Start each task with `- id:`.")
        for node in top.value:
            yield f"{path}:{node.start_mark.line + 1}", construct(node)
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML", why=str(error)) from None


def _read_task(place: str, row: object, problems: list[TaskProblem]) -> FleetTask | None:
    """Convert a row of a task file to a task, or note what is wrong with it."""
    if not isinstance(row, Mapping):
        problems.append(TaskProblem(place, "", "a task is an object with a repo and a prompt"))
        return None
    try:
        return msgspec.convert(row, FleetTask)
    except msgspec.ValidationError as error:
        problems.append(TaskProblem(place, *_split_validation_error(str(error))))
        return None


def _split_validation_error(text: str) -> tuple[str, str]:
    """Split a validation error in a task file into the field and the problem."""
    what, _, path = text.partition(" - at `")
    named = re.search(r"field `(\w+)`", what)
    return path.strip("`$.") or (named[1] if named else ""), what


def _resolve_repo(task: FleetTask, folder: Path) -> FleetTask:
    """Return a fleet task with its local repository as an absolute path."""
    if not task.repo or REMOTE_REPO_PATTERN.match(task.repo):
        return task
    return replace(task, repo=str((folder / Path(task.repo).expanduser()).resolve()))


def _find_wrong_texts(task: FleetTask) -> Iterator[tuple[str, str]]:
    """Yield a fleet task's fields with unusable texts, and the reasons."""
    if not TASK_ID_PATTERN.fullmatch(task.id) or task.id.endswith((".", ".lock")):
        yield "id", f"{task.id!r}: use up to 64 letters, digits, dots, - and _"
    if not task.repo:
        yield "repo", "no repository"
    elif task.repo.startswith("-") or "::" in task.repo or "\n" in task.repo:
        yield "repo", f"{task.repo!r} is neither a path nor an address of a repository"
    if task.ref.startswith("-") or any(char.isspace() for char in task.ref):
        yield "ref", f"{task.ref!r} is not a branch, tag or commit"
    if not task.prompt.strip():
        yield "prompt", "empty"
    if task.key and not KEY_NAME_PATTERN.fullmatch(task.key):
        yield "key", "the name of an environment variable, never a key itself"


def _find_wrong_numbers(task: FleetTask) -> Iterator[tuple[str, str]]:
    """Yield a fleet task's fields with numbers out of range, and the reasons."""
    for name in ("max_usd", "max_seconds"):
        value: float = getattr(task, name)
        if not 0 <= value < float("inf"):
            yield name, f"{value} is not a limit; leave it out for none"
    if abs(task.priority) > MAX_PRIORITY:
        yield "priority", f"between -{MAX_PRIORITY} and {MAX_PRIORITY}"
    if not 1 <= task.best_of <= MAX_BEST_OF:
        yield "best_of", f"between 1 and {MAX_BEST_OF}"
    elif task.best_of > 1 and not task.check:
        yield "check", "best_of needs a check that picks"
