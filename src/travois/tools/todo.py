"""TodoWrite: the model's plan, as one call that writes its part of the task list anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from travois.core.tasks import Task, Tasks, replace_tasks
from travois.hooks.events import TaskCompleted, TaskCreated
from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Env


class Todo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to do; `active` says it as being done, for the screen."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    active: str = msgspec.field(default="", name="activeForm")


class TodoArgs(msgspec.Struct, frozen=True):
    """The whole list, which replaces the one before."""

    todos: tuple[Todo, ...]


async def _write(args: TodoArgs, env: Env, call: str) -> Outcome:
    desk, wanted = env.tasks, tuple(map(_task, args.todos))

    def edit(tasks: Tasks) -> Tasks:
        return replace_tasks(tasks, wanted, by=desk.me)

    for occasion in _news(desk.read(), desk.preview(edit)):
        heard = await env.hear(occasion)
        if why := heard.block or heard.stop:
            raise Refusal(f"The list stays as it was. A hook says: {why}")
    after = desk.change(edit)
    mine = [task for task in after if task.owner == desk.me]
    others = len(after) - len({task.id for task in mine} | _named(after, args.todos))
    kept = f" {others} tasks of other agents stay on the list." if others else ""
    return said(_told(args.todos) + kept)


def _task(todo: Todo) -> Task:
    return Task(content=todo.content, status=todo.status, active=todo.active)


def _named(tasks: Tasks, todos: tuple[Todo, ...]) -> set[str]:
    """Return the ids of the tasks that the call speaks of."""
    contents = {todo.content for todo in todos}
    return {task.id for task in tasks if task.content in contents}


def _news(before: Tasks, after: Tasks) -> Iterator[TaskCreated | TaskCompleted]:
    """Yield what was put on the list, and what on it is done since."""
    held = {task.id: task.status for task in before}
    for task in after:
        if task.status == "deleted":
            continue
        if task.id not in held:
            yield TaskCreated(task.id, task.content)
        if task.status == "completed" != held.get(task.id):
            yield TaskCompleted(task.id, task.content)


def _told(todos: tuple[Todo, ...]) -> str:
    if not todos:
        return "The list is empty."
    done = sum(todo.status == "completed" for todo in todos)
    busy = sum(todo.status == "in_progress" for todo in todos)
    note = f" {busy} are in progress at once: keep to one." if busy > 1 else ""
    return f"{done} of {len(todos)} done.{note}"


TODO = Tool(
    name="TodoWrite",
    description=(
        "Replace your task list. Use it for work of three or more steps; keep one task in_progress "
        "and mark each completed as soon as it is."
    ),
    args=TodoArgs,
    access=lambda args, here: (),
    run=_write,
    summary=lambda args: f"Task list: {_told(args.todos)}",
)
