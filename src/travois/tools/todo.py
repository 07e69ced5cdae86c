"""TodoWrite: the model's own list of what is to be done."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from travois.engine.ports import Env
from travois.engine.tool import Outcome, Tool, said
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
    return said(_told(args.todos), changes=(Changed("todos", value),))


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
