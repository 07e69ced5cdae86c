"""TaskCreate, TaskGet, TaskUpdate, TaskList and TodoWrite: a task list that agents share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from travois.core.tasks import (
    Task,
    TaskEdit,
    TaskError,
    TaskList,
    add_task,
    claim_task,
    edit_task,
    find_task,
    open_blockers,
    replace_tasks,
)
from travois.hooks.events import TaskCompleted, TaskCreated
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env

TaskSubject = Annotated[str, msgspec.Meta(min_length=1)]
TaskNumber = Annotated[str | int, msgspec.Meta(description="the task's number")]
TaskNumbers = tuple[str | int, ...]


class TaskCreateArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task to put on the list."""

    subject: TaskSubject
    description: str = ""
    active: str = msgspec.field(default="", name="activeForm")
    metadata: dict[str, Any] = {}


class TaskGetArgs(msgspec.Struct, frozen=True):
    """A task to show."""

    task: TaskNumber = msgspec.field(name="taskId")


class TaskUpdateArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task, and the fields to change."""

    task: TaskNumber = msgspec.field(name="taskId")
    status: Literal["pending", "in_progress", "completed", "deleted"] | None = None
    subject: TaskSubject | None = None
    description: str | None = None
    active: str | None = msgspec.field(default=None, name="activeForm")
    owner: str | None = None
    blocks: TaskNumbers = msgspec.field(default=(), name="addBlocks")
    blocked_by: TaskNumbers = msgspec.field(default=(), name="addBlockedBy")
    metadata: dict[str, Any] = {}


class TaskListArgs(msgspec.Struct, frozen=True):
    """No arguments: all tasks are listed."""


async def _run_task_create(args: TaskCreateArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TaskCreate tool: add a task, and remove it again if a hook objects."""
    added: list[Task] = []

    def edit(tasks: TaskList) -> TaskList:
        fresh = Task(
            content=args.subject,
            status="pending",
            active=args.active,
            description=args.description,
            metadata=args.metadata,
        )
        tasks, task = add_task(tasks, fresh)
        added.append(task)
        return tasks

    env.tasks.change(edit)
    (task,) = added
    heard = await env.fire_hooks(TaskCreated(task.id, task.content))
    if why := heard.block or heard.stop:
        env.tasks.change(lambda tasks: edit_task(tasks, task.id, TaskEdit(status="deleted")))
        raise ToolError(f"Task #{task.id} was removed again. A hook said: {why}")
    return text_outcome(
        f"Task #{task.id} created successfully: {task.content}", detail=_task_detail(task)
    )


async def _run_task_update(args: TaskUpdateArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TaskUpdate tool: change, claim, complete or delete a task."""
    id, edit = _parse_task_id(args.task), _build_task_edit(args)
    old = _require_task(env.tasks.read(), id)
    if args.status == "completed" != old.status:
        heard = await env.fire_hooks(TaskCompleted(id, args.subject or old.content))
        if why := heard.block or heard.stop:
            raise ToolError(f"Task #{id} stays {old.status}. A hook said: {why}")

    def apply(tasks: TaskList) -> TaskList:
        if args.status == "in_progress" and args.owner is None:
            tasks = claim_task(tasks, id, by=env.tasks.me)
        return edit_task(tasks, id, edit)

    after = env.tasks.change(apply)
    if args.status == "deleted":
        return text_outcome(f"Updated task #{id} deleted")
    new = _require_task(after, id)
    text = f"Updated task #{id} {', '.join(_list_changed_fields(args, old, new))}".rstrip()
    return text_outcome(f"{text}{_task_change_remark(after, old, new)}", detail=_task_detail(new))


async def _run_task_get(args: TaskGetArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TaskGet tool: show all fields of one task."""
    tasks = env.tasks.read()
    task = _require_task(tasks, _parse_task_id(args.task))
    blocks = [other.id for other in tasks if task.id in other.blocked_by]
    rows = {
        "Status": task.status,
        "Owner": task.owner,
        "Active form": task.active,
        "Description": task.description,
        "Blocked by": ", ".join(f"#{each}" for each in task.blocked_by),
        "Blocks": ", ".join(f"#{each}" for each in blocks),
        "Metadata": msgspec.json.encode(task.metadata).decode() if task.metadata else "",
    }
    lines = (f"{name}: {value}" for name, value in rows.items() if value)
    return text_outcome(
        "\n".join((f"Task #{task.id}: {task.content}", *lines)), detail=_task_detail(task)
    )


async def _run_task_list(args: TaskListArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TaskList tool: list all tasks of the session."""
    tasks = env.tasks.read()
    detail = msgspec.json.encode({"tasks": tasks}).decode()
    return text_outcome(
        "\n".join(format_task(tasks, task) for task in tasks) or "No tasks found", detail=detail
    )


def format_task(tasks: TaskList, task: Task) -> str:
    """Render a task as one line: its number, status, subject, owner and blockers."""
    owner = f" ({task.owner})" if task.owner else ""
    waits = ", ".join(f"#{id}" for id in open_blockers(tasks, task))
    blocked = f" [blocked by {waits}]" if waits else ""
    return f"#{task.id} [{task.status}] {task.content}{owner}{blocked}"


def _parse_task_id(given: str | int) -> str:
    return str(given).strip().removeprefix("#").strip()


def _require_task(tasks: TaskList, id: str) -> Task:
    """Find a task by ID for a task tool, or report that there is none."""
    try:
        return find_task(tasks, id)
    except TaskError as error:
        raise ToolError(str(error)) from None


def _build_task_edit(args: TaskUpdateArgs) -> TaskEdit:
    """Convert the arguments of a TaskUpdate call to an edit of the task."""
    return TaskEdit(
        content=args.subject,
        status=args.status,
        active=args.active,
        description=args.description,
        owner=args.owner,
        blocks=tuple(map(_parse_task_id, args.blocks)),
        blocked_by=tuple(map(_parse_task_id, args.blocked_by)),
        metadata=args.metadata,
    )


def _list_changed_fields(args: TaskUpdateArgs, old: Task, new: Task) -> list[str]:
    """List the fields that a TaskUpdate call has changed."""
    fields = {
        "subject": old.content != new.content,
        "description": old.description != new.description,
        "activeForm": old.active != new.active,
        "owner": old.owner != new.owner,
        "metadata": old.metadata != new.metadata,
        "blocks": bool(args.blocks),
        "blockedBy": old.blocked_by != new.blocked_by,
        "status": old.status != new.status,
    }
    return [name for name, changed in fields.items() if changed]


def _task_change_remark(tasks: TaskList, old: Task, new: Task) -> str:
    """Name the tasks that still block a started task, or that a completed one unblocks."""
    waits = open_blockers(tasks, new)
    if new.status == "in_progress" and waits:
        return f". It is blocked by {', '.join(f'#{id}' for id in waits)}: do that first."
    if new.status != "completed" or old.status == "completed":
        return ""
    free = [
        f"#{task.id}"
        for task in tasks
        if task.is_open and new.id in task.blocked_by and not open_blockers(tasks, task)
    ]
    return f". No longer blocked: {', '.join(free)}" if free else ""


def _task_detail(task: Task) -> str:
    return msgspec.json.encode({"task": task}).decode()


TASK_CREATE = Tool(
    name="TaskCreate",
    description="Add a task to the list you share with your agents and team.",
    args=TaskCreateArgs,
    access=lambda args, here: (),
    run=_run_task_create,
    summary=lambda args: f"New task: {args.subject}",
    deferred=True,
)

TASK_UPDATE = Tool(
    name="TaskUpdate",
    description=(
        "Change a task: in_progress claims it for you, completed unblocks dependent tasks."
    ),
    args=TaskUpdateArgs,
    access=lambda args, here: (),
    run=_run_task_update,
    summary=lambda args: f"Task #{_parse_task_id(args.task)}: {args.status or 'change'}",
    deferred=True,
)

TASK_GET = Tool(
    name="TaskGet",
    description="Show all details of one task.",
    args=TaskGetArgs,
    access=lambda args, here: (),
    run=_run_task_get,
    summary=lambda args: f"Show task #{_parse_task_id(args.task)}",
    deferred=True,
)

TASK_LIST = Tool(
    name="TaskList",
    description="List all tasks with status, owner and blockers.",
    args=TaskListArgs,
    access=lambda args, here: (),
    run=_run_task_list,
    summary=lambda args: "List the tasks",
    polls=True,
    deferred=True,
)


class Todo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One to-do; `active` is its wording while in progress, for the screen."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    active: str = msgspec.field(default="", name="activeForm")


class TodoArgs(msgspec.Struct, frozen=True):
    """The whole to-do list, which replaces the previous one."""

    todos: tuple[Todo, ...]


async def _run_todo_write(args: TodoArgs, env: Env, call: str) -> ToolOutcome:
    """Run the TodoWrite tool: replace the agent's own tasks, unless a hook objects."""
    desk, wanted = env.tasks, tuple(map(_todo_to_task, args.todos))

    def edit(tasks: TaskList) -> TaskList:
        return replace_tasks(tasks, wanted, by=desk.me)

    for occasion in _task_list_events(desk.read(), desk.preview(edit)):
        heard = await env.fire_hooks(occasion)
        if why := heard.block or heard.stop:
            raise ToolError(f"The list was not changed. A hook said: {why}")
    after = desk.change(edit)
    mine = [task for task in after if task.owner == desk.me]
    others = len(after) - len({task.id for task in mine} | _find_todo_ids(after, args.todos))
    kept = f" {others} tasks of other agents remain on the list." if others else ""
    return text_outcome(_describe_todos(args.todos) + kept)


def _todo_to_task(todo: Todo) -> Task:
    return Task(content=todo.content, status=todo.status, active=todo.active)


def _find_todo_ids(tasks: TaskList, todos: tuple[Todo, ...]) -> set[str]:
    """Return the IDs of the tasks that a TodoWrite call lists."""
    contents = {todo.content for todo in todos}
    return {task.id for task in tasks if task.content in contents}


def _task_list_events(before: TaskList, after: TaskList) -> Iterator[TaskCreated | TaskCompleted]:
    """List the tasks that a TodoWrite call creates and completes, for hooks."""
    held = {task.id: task.status for task in before}
    for task in after:
        if task.status == "deleted":
            continue
        if task.id not in held:
            yield TaskCreated(task.id, task.content)
        if task.status == "completed" != held.get(task.id):
            yield TaskCompleted(task.id, task.content)


def _describe_todos(todos: tuple[Todo, ...]) -> str:
    """Summarize a to-do list: how many are done, and a hint if several are in progress."""
    if not todos:
        return "No todos."
    done = sum(todo.status == "completed" for todo in todos)
    busy = sum(todo.status == "in_progress" for todo in todos)
    note = f" {busy} are in progress: work on one at a time." if busy > 1 else ""
    return f"{done} of {len(todos)} done.{note}"


TODO_WRITE = Tool(
    name="TodoWrite",
    description=(
        "Replace your task list. Keep one task in_progress; mark each completed as soon as it is."
    ),
    args=TodoArgs,
    access=lambda args, here: (),
    run=_run_todo_write,
    summary=lambda args: f"Task list: {_describe_todos(args.todos)}",
)
