"""TodoWrite: the model's own list of what is to be done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from travois.engine.occasions import TaskCompleted, TaskCreated
from travois.engine.ports import Env
from travois.engine.tool import Outcome, Refusal, Tool, said
from travois.kernel.facts import Changed


class Todo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to do; `active` says it as being done, for the screen."""

    content: Annotated[str, msgspec.Meta(min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    active: str = msgspec.field(default="", name="activeForm")


class TodoArgs(msgspec.Struct, frozen=True):
    """The whole list, which replaces the one before."""

    todos: tuple[Todo, ...]


async def _write(args: TodoArgs, env: Env, call: str) -> Outcome:
    value = msgspec.json.encode(args.todos).decode()
    for occasion in _news(args.todos, env.state.get("todos", "[]")):
        heard = await env.hear(occasion)
        if why := heard.block or heard.stop:
            raise Refusal(f"The list stays as it was. A hook says: {why}")
    return said(_told(args.todos), changes=(Changed("todos", value),))


def _news(todos: tuple[Todo, ...], before: str) -> Iterator[TaskCreated | TaskCompleted]:
    """What was put on the list, and what on it is done since."""
    held = {todo.content: todo.status for todo in msgspec.json.decode(before, type=list[Todo])}
    for number, todo in enumerate(todos, 1):
        known = held.get(todo.content)
        if known is None:
            yield TaskCreated(str(number), todo.content)
        if todo.status == "completed" != known:
            yield TaskCompleted(str(number), todo.content)


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
