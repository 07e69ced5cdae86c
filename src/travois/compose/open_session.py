"""Opening a session: a new one, the last one, a named one, or a fork."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import localtime, strftime
from types import TracebackType
from uuid import UUID, uuid4

import msgspec
from msgspec.structs import replace

from travois.compat.claude_json import uuid
from travois.compose.options import PICK, Options
from travois.core.display_text import complain
from travois.core.errors import Fault
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Ended,
    Entry,
    Epoch,
    Failed,
    Opened,
    Result,
    Rewound,
    User,
)
from travois.core.models import Model as Card
from travois.engine.loop import UNKNOWN, answer_open
from travois.engine.tool_definitions import first_head, specs
from travois.ports.tool import AnyTool
from travois.prompt.environment import Surroundings, baseline
from travois.sessions import catalog
from travois.sessions.checkpoint import FILE as CHECKPOINT
from travois.sessions.home import Home, Project
from travois.sessions.log_file import NAME, Enduring, Log, history
from travois.sessions.session import Session
from travois.version import __version__

PROMPT = Path(__file__).parent.parent / "prompt" / "system.md"
SLOW = 32 << 20
"""A log of so many bytes takes about a second to read."""
PASSING = ("rate", "overloaded", "server", "timeout", "garbled")
"""Kinds of failures that may not come again, however few attempts were made."""


class Place(msgspec.Struct, frozen=True):
    """The home, project and folder of a session."""

    home: Home
    project: Project
    cwd: str


class Found(msgspec.Struct, frozen=True):
    """An open log, and the folder of its large outputs."""

    id: str
    log: Log
    spill: Path
    parent: str = ""
    """The session that this one was just made from."""


def open_log(place: Place, options: Options, stack: AsyncExitStack) -> Found:
    """Open the log that the options name, locked until the stack unwinds."""
    _consistent(options)
    if options.latest or options.resume:
        return _existing(place, options, stack)
    id = _identity(options.session_id)
    folder = _folder(place, id, options, stack)
    log = Enduring.create(folder, _opened(place, id))
    stack.callback(_leave, log)
    return Found(id, log, folder / "tool-results")


def _consistent(options: Options) -> None:
    going_on = options.latest or bool(options.resume)
    if options.fork and not going_on:
        raise Fault("--fork-session needs --continue or --resume", fix="Name the session to fork.")
    if options.latest and options.resume:
        raise Fault("--continue and --resume cannot be combined", fix="Use one of them.")
    if options.resume == PICK:
        fix = "`travois sessions` lists them. In a terminal, you can choose from a list."
        raise Fault("Name the session to resume", fix=fix)
    if options.session_id and going_on and not options.fork:
        raise Fault(
            "--session-id names a new session and cannot resume an existing one",
            fix="Add --fork-session, or omit --session-id.",
        )


def _existing(place: Place, options: Options, stack: AsyncExitStack) -> Found:
    if options.resume:
        found = catalog.find(place.home, options.resume, project=place.project)
    else:
        found = catalog.newest(place.home, place.project, cwd=place.cwd)
    base = place.home.session(found.project, found.id)
    asked = options.fork or options.upto
    last = _point(found.id, history(base, []), options.upto) if asked else 0
    _announce(base)
    if not options.fork:
        log = Enduring.open(base)
        stack.callback(_close, log)
        if options.upto:
            log.append(Rewound(last))
        return Found(found.id, log, base / "tool-results")
    id = _identity(options.session_id)
    folder = _folder(place, id, options, stack)
    if not options.persist:
        (folder.parent / found.id).symlink_to(base)
    log = Enduring.create(folder, _opened(place, id, parent=found.id, at=last))
    stack.push(partial(_leave_fork, log))
    return Found(id, log, folder / "tool-results", found.id)


def _announce(folder: Path) -> None:
    """Announce that reading a long log takes a while."""
    size = (folder / NAME).stat().st_size
    if size > SLOW and not (folder / CHECKPOINT).exists() and sys.stderr.isatty():
        complain(f"travois: reading a log of {size >> 20} MB for the first time…\n")


def _point(id: str, entries: Iterable[Entry], name: str) -> int:
    """Return the entry of the named message; the last one if none is named."""
    if not name:
        return max(entry.seq for entry in entries)
    for seq, fact in ((entry.seq, entry.fact) for entry in entries):
        parts = range(len(fact.content)) if isinstance(fact, Assistant) else ()
        if name in (uuid(id, str(seq)), *(uuid(id, f"{seq}.{part}") for part in parts)):
            return seq
    raise Fault(f"Session {id} has no message {name}")


def damage(log: Log) -> tuple[str, ...]:
    """Return notices about damage in a log."""
    torn = f"the last line of the log was incomplete; it was saved to {log.torn}"
    lost = f"{len(log.skipped)} damaged places in the log were skipped (travois sessions show)"
    return (*((torn,) if log.torn else ()), *((lost,) if log.skipped else ()))


def _identity(wanted: str) -> str:
    if not wanted:
        return str(uuid4())
    try:
        return str(UUID(wanted))
    except ValueError:
        raise Fault(
            f"--session-id {wanted} is not a UUID",
            fix="For example: --session-id $(uuidgen)",
        ) from None


def _folder(place: Place, id: str, options: Options, stack: AsyncExitStack) -> Path:
    if options.persist:
        return place.home.session(place.project.key, id)
    from tempfile import TemporaryDirectory

    return Path(stack.enter_context(TemporaryDirectory(prefix="travois-"))) / id


def _opened(place: Place, id: str, *, parent: str = "", at: int = 0) -> Opened:
    return Opened(
        session=id,
        cwd=place.cwd,
        project=place.project.key,
        version=__version__,
        parent=parent,
        at=at,
    )


def _leave(log: Log) -> None:
    """Close a new session; an empty one is removed."""
    if is_worth_keeping(log.read()):
        _close(log)
    else:
        _remove(log)


def _close(log: Log) -> None:
    """Close a log, and report entries that could not be saved."""
    log.close()
    if isinstance(log, Enduring) and log.unsaved:
        complain(f"travois: the last {len(log.unsaved)} entries of the session were not saved\n")


def is_worth_keeping(entries: Iterable[Entry]) -> bool:
    """Return whether a new session stays on disk."""
    facts = [entry.fact for entry in entries]
    return not _is_silent(facts) and not _is_failed_start(facts)


def _leave_fork(
    log: Log,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close a fork; one that failed to open is removed."""
    if error is None:
        _close(log)
    else:
        _remove(log)


def _remove(log: Log) -> None:
    from shutil import rmtree

    log.close()
    rmtree(log.folder, ignore_errors=True)


def _is_silent(facts: list[AnyFact]) -> bool:
    return not any(
        isinstance(fact, Ended) or (isinstance(fact, User) and fact.origin == "human")
        for fact in facts
    )


def _is_failed_start(facts: list[AnyFact]) -> bool:
    """Return whether no request was answered and a retry makes no sense.

    A wrong key, an unknown model or a server that is not there is put right by the user, who then
    starts again. What failed for a passing reason, or was interrupted, can be resumed.
    """
    if any(isinstance(fact, Assistant | Result) for fact in facts):
        return False
    ends = [fact.why for fact in facts if isinstance(fact, Ended)]
    failures = [fact for fact in facts if isinstance(fact, Failed) and fact.kind != "compaction"]
    last = failures[-1] if failures else None
    if last is None or last.kind in PASSING or last.attempt > 1 or last.wait >= 0:
        return False
    return set(ends) == {"failed"}


def settle(
    session: Session, place: Place, *, card: Card, tools: tuple[AnyTool, ...], options: Options
) -> None:
    """Bring a session to a state from which a turn can start."""
    session.is_lasting = options.persist and not place.home.passing
    if session.view.epoch is None:
        session.append(first_head(card, _system(options), tools, wanted=options.toolset))
        session.append(baseline(around(place, options)))
        return
    answer_open(session, started=UNKNOWN)
    if session.last is not None and not _between_turns(session.last.fact):
        session.append(Ended("crashed", "the program stopped without ending the turn"))
    if not os.path.isdir(session.state.get("cwd", place.cwd)):
        session.append(Changed("cwd", place.cwd))


def _between_turns(fact: AnyFact) -> bool:
    declined = isinstance(fact, Failed) and fact.kind == "compaction"
    return declined or isinstance(fact, Ended | Opened | Changed)


def renewed(
    session: Session, card: Card, options: Options, *, brought: tuple[AnyTool, ...] = ()
) -> Epoch | None:
    """Return a new head if the user asked for one: the old one keeps the cache warm.

    Tools that the caller brought count as requested, too.
    """
    epoch = session.view.epoch
    assert epoch is not None
    asked = options.system or options.append_system
    system = _system(options) if asked else epoch.system
    same = epoch.model.name == card.name and epoch.model.window <= card.window
    known = {tool.name for tool in epoch.tools}
    added = [spec for spec in specs(brought) if spec.name not in known]
    if same and card.effort == epoch.model.effort and system == epoch.system and not added:
        return None
    return replace(
        epoch,
        model=replace(epoch.model, effort=card.effort) if same else card,
        system=system,
        tools=tuple(sorted((*epoch.tools, *added), key=lambda tool: tool.name)),
        why="asked for",
        unbind=False,
    )


def _system(options: Options) -> str:
    text = options.system or PROMPT.read_text("utf-8").strip()
    return f"{text}\n\n{options.append_system}" if options.append_system else text


def around(place: Place, options: Options, *, cwd: str = "", worktree: str = "") -> Surroundings:
    """Describe the current surroundings of a session."""
    return Surroundings(
        cwd=cwd or place.cwd,
        platform=sys.platform,
        date=strftime("%Y-%m-%d", localtime()),
        branch=_branch(worktree or place.project.root),
        folders=options.folders,
    )


def _branch(root: str) -> str:
    """Return the current git branch without starting git."""
    git = Path(root, ".git")
    try:
        if git.is_file():
            git = Path(root, git.read_text("utf-8").removeprefix("gitdir:").strip())
        head = (git / "HEAD").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
