"""Building of the ledger from the entries of a log."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.context.ledger.extractors import (
    Check,
    Command,
    Decision,
    File,
    Git,
    Job,
    Made,
    Task,
    Trouble,
    acts,
    checks,
    commands,
    decisions,
    errors,
    files,
    git,
    jobs,
    listed,
    made,
    tasks,
)
from travois.context.ledger.received import Received, forked_at, received
from travois.context.ledger.user_words import Said, answers, rules, said
from travois.core.facts import Changed, Entry, Opened
from travois.core.view import keep_live_entries


class Ledger(msgspec.Struct, frozen=True):
    """The established facts of a session, newest first, except words and decisions."""

    said: tuple[Said, ...] = ()
    answers: tuple[Said, ...] = ()
    """The model's last answers and findings."""
    rules: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    tasks: tuple[Task, ...] = ()
    files: tuple[File, ...] = ()
    checks: tuple[Check, ...] = ()
    commands: tuple[Command, ...] = ()
    errors: tuple[Trouble, ...] = ()
    made: tuple[Made, ...] = ()
    git: Git = Git()
    jobs: tuple[Job, ...] = ()
    cwd: str = ""
    task: tuple[Received, ...] = ()
    """An agent's task, verbatim; empty for one that a person talks to."""
    received: tuple[Received, ...] = ()
    """Mail, reports and hook notes."""
    fork: int = 0
    """The entry with which a fork's own part begins; all before it was said to its original."""


def fold(entries: Iterable[Entry]) -> Ledger:
    """Build the ledger of these entries; earlier compactions make no difference to it."""
    alive = keep_live_entries(list(entries))
    done = tuple(acts(alive))
    told, fork = said(alive, done), forked_at(alive)
    others = received(alive, done, fork=fork)
    return Ledger(
        said=told,
        answers=answers(alive, since=fork),
        rules=rules(told),
        decisions=decisions(done),
        tasks=listed(alive) or tasks(done),
        files=files(done),
        checks=checks(done),
        commands=commands(done),
        errors=errors(done),
        made=made(done),
        git=git(done),
        jobs=jobs(alive, done),
        cwd=_folder(alive),
        task=tuple(one for one in others if one.kind == "task"),
        received=tuple(one for one in others if one.kind != "task"),
        fork=fork,
    )


def _folder(entries: list[Entry]) -> str:
    for entry in reversed(entries):
        match entry.fact:
            case Changed(what="cwd", value=folder) | Opened(cwd=folder):
                return folder
            case _:
                pass
    return ""
