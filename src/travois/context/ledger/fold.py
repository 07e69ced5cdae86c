"""Building of the ledger from the entries of a log."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.context.ledger.extractors import (
    BackgroundJob,
    CheckRun,
    CommandRun,
    CreatedItem,
    ErrorRecord,
    GitState,
    LedgerTask,
    TouchedFile,
    UserDecision,
    extract_actions,
    extract_checks,
    extract_commands,
    extract_created_items,
    extract_decisions,
    extract_errors,
    extract_files,
    extract_git_state,
    extract_jobs,
    extract_tasks,
    extract_todo_list,
)
from travois.context.ledger.received import ReceivedMessage, extract_received, find_fork_start
from travois.context.ledger.user_words import (
    SpokenMessage,
    extract_answers,
    extract_rules,
    extract_user_messages,
)
from travois.core.facts import Changed, Entry, Opened
from travois.core.view import keep_live_entries


class Ledger(msgspec.Struct, frozen=True):
    """The established facts of a session, newest first, except words and decisions."""

    said: tuple[SpokenMessage, ...] = ()
    answers: tuple[SpokenMessage, ...] = ()
    """The model's last answers and findings."""
    rules: tuple[str, ...] = ()
    decisions: tuple[UserDecision, ...] = ()
    tasks: tuple[LedgerTask, ...] = ()
    files: tuple[TouchedFile, ...] = ()
    checks: tuple[CheckRun, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    errors: tuple[ErrorRecord, ...] = ()
    made: tuple[CreatedItem, ...] = ()
    git: GitState = GitState()
    jobs: tuple[BackgroundJob, ...] = ()
    cwd: str = ""
    task: tuple[ReceivedMessage, ...] = ()
    """An agent's task, verbatim; empty for one that a person talks to."""
    received: tuple[ReceivedMessage, ...] = ()
    """Mail, reports and hook notes."""
    fork: int = 0
    """The entry with which a fork's own part begins; all before it was said to its original."""


def build_ledger(entries: Iterable[Entry]) -> Ledger:
    """Build the ledger of these entries; earlier compactions make no difference to it."""
    alive = keep_live_entries(list(entries))
    done = tuple(extract_actions(alive))
    told, fork = extract_user_messages(alive, done), find_fork_start(alive)
    others = extract_received(alive, done, fork=fork)
    return Ledger(
        said=told,
        answers=extract_answers(alive, since=fork),
        rules=extract_rules(told),
        decisions=extract_decisions(done),
        tasks=extract_todo_list(alive) or extract_tasks(done),
        files=extract_files(done),
        checks=extract_checks(done),
        commands=extract_commands(done),
        errors=extract_errors(done),
        made=extract_created_items(done),
        git=extract_git_state(done),
        jobs=extract_jobs(alive, done),
        cwd=_last_folder(alive),
        task=tuple(one for one in others if one.kind == "task"),
        received=tuple(one for one in others if one.kind != "task"),
        fork=fork,
    )


def _last_folder(entries: list[Entry]) -> str:
    """Return the working folder at the end of a log."""
    for entry in reversed(entries):
        match entry.fact:
            case Changed(what="cwd", value=folder) | Opened(cwd=folder):
                return folder
            case _:
                pass
    return ""
