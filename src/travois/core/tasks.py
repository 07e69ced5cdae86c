"""The task list of a session: values and pure edits.

The list is the state `todos` of a session: a JSON array in one `Changed` fact, so that every change
is all or nothing. IDs count up and are never reused: a deleted task with the highest ID stays in
the stored value, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

TODOS_STATE = "todos"
"""The state of a session that holds its list."""
TaskStatus = Literal["pending", "in_progress", "completed", "deleted"]
MAX_SUBJECT_CHARS = 2_000
MAX_TASKS = 500
MAX_LIST_BYTES = 512 * 1024
"""The size of a stored list: each change writes all of it."""


class Task(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One task; `active` is its wording while in progress, for the screen."""

    id: str = ""
    """Empty only in logs written before tasks had ids: there its place in the list is its id."""
    content: str
    status: TaskStatus
    active: str = msgspec.field(default="", name="activeForm")
    description: str = ""
    owner: str = ""
    """The agent that works on it; empty for nobody, or the agent that a person talks to."""
    blocked_by: tuple[str, ...] = msgspec.field(default=(), name="blockedBy")
    metadata: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """True if the task is pending or in progress."""
        return self.status in ("pending", "in_progress")


class TaskError(Exception):
    """An impossible edit of the task list; the message says why and what to do."""


class TaskEdit(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to one task; `None` leaves a field as it is."""

    content: str | None = None
    status: TaskStatus | None = None
    active: str | None = None
    description: str | None = None
    owner: str | None = None
    blocks: tuple[str, ...] = ()
    """Tasks that cannot start before this one is completed, added to those known."""
    blocked_by: tuple[str, ...] = ()
    metadata: Mapping[str, object] = {}
    """Keys to set; a key whose value is null is removed."""


TaskList = tuple[Task, ...]


# --- stored values --------------------------------------------------------------------------------


def read_stored(value: str) -> TaskList:
    """Decode a stored task list, including the deleted task that may end it."""
    found = msgspec.json.decode(value, type=tuple[Task, ...]) if value else ()
    return tuple(task if task.id else replace(task, id=str(n)) for n, task in enumerate(found, 1))


def read_tasks(value: str) -> TaskList:
    """Decode a stored task list as users and models see it."""
    return tuple(task for task in read_stored(value) if task.status != "deleted")


def store_tasks(tasks: TaskList) -> str:
    """Encode a task list; of its deleted tasks only one with the highest ID is kept."""
    highest = max((int(task.id) for task in tasks), default=0)
    kept = [task for task in tasks if task.status != "deleted"]
    gone = [task for task in tasks if task.status == "deleted" and int(task.id) == highest]
    value = msgspec.json.encode([*kept, *map(_make_tombstone, gone)])
    long = next((task for task in kept if len(task.content) > MAX_SUBJECT_CHARS), None)
    if long is not None:
        raise TaskError(
            f"The subject of task #{long.id} is longer than {MAX_SUBJECT_CHARS} characters. "
            "Put the details into the description."
        )
    if len(kept) > MAX_TASKS or len(value) > MAX_LIST_BYTES:
        limit = f"{MAX_TASKS} tasks and {MAX_LIST_BYTES // 1024} KB"
        raise TaskError(f"The task list is full ({limit} at most). Delete completed tasks first.")
    return value.decode()


def _make_tombstone(task: Task) -> Task:
    return Task(id=task.id, content="", status="deleted")


# --- looking --------------------------------------------------------------------------------------


def find_task(tasks: TaskList, id: str) -> Task:
    """Return the task with an ID; raises `TaskError` if there is none."""
    for task in tasks:
        if task.id == id and task.status != "deleted":
            return task
    highest = max((int(task.id) for task in tasks), default=0)
    if id.isdecimal() and 0 < int(id) <= highest:
        raise TaskError(f"Task #{id} was deleted.")
    live = ", ".join(f"#{task.id}" for task in tasks if task.status != "deleted")
    raise TaskError(f"Task #{id} not found. Tasks: {live or 'none'}.")


def open_blockers(tasks: TaskList, task: Task) -> tuple[str, ...]:
    """Return the ids of the tasks that must be completed before this one."""
    waiting = {other.id for other in tasks if other.is_open}
    return tuple(id for id in task.blocked_by if id in waiting)


def task_remark(tasks: TaskList, task: Task) -> str:
    """Describe who works on a task and what blocks it; empty if neither is known."""
    waits = open_blockers(tasks, task) if task.is_open else ()
    parts = (task.owner, f"blocked by {', '.join(f'#{id}' for id in waits)}" if waits else "")
    text = ", ".join(filter(None, parts))
    return f" ({text})" if text else ""


# --- edits ----------------------------------------------------------------------------------------


def add_task(tasks: TaskList, task: Task) -> tuple[TaskList, Task]:
    """Add a task at the end of the list, under a new ID."""
    number = max((int(each.id) for each in tasks), default=0) + 1
    added = replace(task, id=str(number))
    return (*tasks, added), added


def edit_task(tasks: TaskList, id: str, edit: TaskEdit) -> TaskList:
    """Return the task list with one task changed; raises `TaskError`."""
    old = find_task(tasks, id)
    if edit.status == "deleted":
        return _delete_task(tasks, id)
    new = replace(
        old,
        content=old.content if edit.content is None else edit.content,
        status=edit.status or old.status,
        active=old.active if edit.active is None else edit.active,
        description=old.description if edit.description is None else edit.description,
        owner=old.owner if edit.owner is None else edit.owner,
        metadata=_merge_metadata(old.metadata, edit.metadata),
    )
    edited = tuple(new if task.id == id else task for task in tasks)
    for blocker, blocked in [*((b, id) for b in edit.blocked_by), *((id, b) for b in edit.blocks)]:
        edited = _add_blocker(edited, blocker=blocker, blocked=blocked)
    return edited


def claim_task(tasks: TaskList, id: str, *, by: str) -> TaskList:
    """Let an agent begin a task; refuses one that another agent is working on."""
    task = find_task(tasks, id)
    if task.status == "in_progress" and task.owner not in ("", by):
        raise TaskError(
            f"Task #{id} is being done by {task.owner}. "
            "Choose another one, or set owner to take it over."
        )
    owner = task.owner if task.owner and task.status == "in_progress" else by or task.owner
    return edit_task(tasks, id, TaskEdit(status="in_progress", owner=owner))


def replace_tasks(tasks: TaskList, wanted: Iterable[Task], *, by: str) -> TaskList:
    """Return the task list after an agent rewrote its part; equal subjects are the same task.

    Of what it leaves out, its own tasks are deleted and those of other agents stay.
    """
    left = [task for task in tasks if task.status != "deleted"]
    result = tasks
    order: list[str] = []
    for each in wanted:
        known = next((task for task in left if task.content == each.content), None)
        if known is None:
            result, known = add_task(result, replace(each, owner=by))
        else:
            left.remove(known)
            claims = each.status == "in_progress" and not known.owner
            active, owner = each.active or known.active, by if claims else known.owner
            edit = TaskEdit(status=each.status, active=active, owner=owner)
            result = edit_task(result, known.id, edit)
        order.append(known.id)
    for task in left:
        if task.owner == by:
            result = _delete_task(result, task.id)
    place = {id: n for n, id in enumerate(order)}
    return tuple(sorted(result, key=lambda task: place.get(task.id, len(order))))


def _delete_task(tasks: TaskList, id: str) -> TaskList:
    """Return the task list without one task, which then blocks no other."""
    cleared = (_remove_blocker(task, id) for task in tasks)
    return tuple(_make_tombstone(task) if task.id == id else task for task in cleared)


def _remove_blocker(task: Task, id: str) -> Task:
    """Return a task that no longer waits for the task with this ID."""
    if id not in task.blocked_by:
        return task
    return replace(task, blocked_by=tuple(each for each in task.blocked_by if each != id))


def _add_blocker(tasks: TaskList, *, blocker: str, blocked: str) -> TaskList:
    """Make one task wait for another; refuse a cycle, in which none could start."""
    find_task(tasks, blocker)
    task = find_task(tasks, blocked)
    if blocker in task.blocked_by:
        return tasks
    if blocker == blocked or blocked in _collect_blockers(tasks, blocker):
        same = blocker == blocked
        why = "it is the same task" if same else f"#{blocker} waits for #{blocked}"
        raise TaskError(f"Task #{blocked} cannot wait for #{blocker}: {why}.")
    waits = replace(task, blocked_by=(*task.blocked_by, blocker))
    return tuple(waits if each.id == blocked else each for each in tasks)


def _collect_blockers(tasks: TaskList, id: str) -> set[str]:
    """Return the IDs of all tasks that a task waits for, directly or not."""
    waits = {task.id: task.blocked_by for task in tasks}
    found: set[str] = set()
    todo = list(waits.get(id, ()))
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += waits.get(each, ())
    return found


def _merge_metadata(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in {**old, **new}.items() if value is not None}
