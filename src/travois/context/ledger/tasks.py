"""The task list as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from travois.context.ledger.extractors import Act, is_list, is_object
from travois.core.facts import Changed, Entry
from travois.core.tasks import TODOS, open_blockers, read_tasks

SUBJECT = ("content", "step", "subject", "title", "text", "task", "description")
CLOSED = re.compile(r"(?i)complete|done|cancel|skip|finish|closed|resolved|abandon|dropped")


class Task(msgspec.Struct, frozen=True):
    """One thing to do, with the status that was last given to it."""

    subject: str
    status: str = "pending"
    id: str = ""
    owner: str = ""
    waits: tuple[str, ...] = ()
    """The open tasks that must be completed before it."""

    @property
    def open(self) -> bool:
        """Whether it is still to be done."""
        return not CLOSED.search(self.status)


def listed(entries: Iterable[Entry]) -> tuple[Task, ...]:
    """The list that the log holds; empty in logs of other agents, which hold only the calls."""
    facts = (entry.fact for entry in entries)
    values = [fact.value for fact in facts if isinstance(fact, Changed) and fact.what == TODOS]
    found = read_tasks(values[-1]) if values else ()
    return tuple(
        Task(task.content, task.status, task.id, task.owner, open_blockers(found, task))
        for task in found
    )


def tasks(acts: Iterable[Act]) -> tuple[Task, ...]:
    """The last whole list, and the tasks that were made one by one and not deleted."""
    whole: tuple[Task, ...] = ()
    single: dict[str, Task] = {}
    for act in acts:
        if act.error:
            continue
        if act.kind == "list":
            whole = tuple(_listed(act))
        elif act.kind == "task" and (subject := act.arg(*SUBJECT[2:])):
            number = re.search(r"#(\d+)", act.text)
            single[number[1] if number else f"call {act.seq}"] = Task(
                subject, id=number[1] if number else ""
            )
        elif act.kind == "retask":
            _change(single, act)
    return whole + tuple(single.values())


def _listed(act: Act) -> Iterator[Task]:
    lists = [value for value in act.args.values() if is_list(value)]
    for item in lists[0] if lists else ():
        if is_object(item):
            subject = next((str(item[key]) for key in SUBJECT if item.get(key)), "")
            if subject:
                yield Task(subject, str(item.get("status") or "pending"))


def _change(single: dict[str, Task], act: Act) -> None:
    id = str(act.args.get("taskId") or act.args.get("task_id") or act.args.get("id") or "")
    task = single.get(id)
    if task is None:
        return
    status = act.arg("status") or task.status
    if status == "deleted":
        del single[id]
        return
    subject = act.arg("subject", "title") or task.subject
    single[id] = replace(task, subject=subject, status=status)
