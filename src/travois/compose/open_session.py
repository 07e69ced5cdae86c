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

from travois.compat.claude_json import make_line_uuid
from travois.compose.options import PICK_SESSION, Options
from travois.core.display_text import write_stderr
from travois.core.errors import UserError
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
from travois.core.models import ModelCard as Card
from travois.engine.loop import UNKNOWN_RESULT, answer_open_calls
from travois.engine.tool_definitions import build_first_head, build_tool_specs
from travois.lazy_imports import lazy_imports
from travois.ports.tool import AnyTool
from travois.prompt.environment import Environment, render_environment
from travois.sessions import catalog
from travois.sessions.checkpoint import CHECKPOINT_FILE as CHECKPOINT
from travois.sessions.home import Project, TravoisHome
from travois.sessions.log_file import (
    LOG_FILE_NAME,
    ResilientSessionLog,
    SessionLog,
    read_history,
    read_opening,
)
from travois.sessions.session import Session
from travois.version import __version__

with lazy_imports():
    import shutil
    import tempfile


SYSTEM_PROMPT_FILE = Path(__file__).parent.parent / "prompt" / "system.md"
PROMPT_NOTE_ORIGINS = ("note", "hook")
"""The origins of messages that belong to the prompt or turn at which they stand."""
SLOW_LOG_BYTES = 32 << 20
"""A log of so many bytes takes about a second to read."""
PASSING_FAILURES = ("rate", "overloaded", "server", "timeout", "garbled")
"""Kinds of failures that may not come again, however few attempts were made."""


class Workspace(msgspec.Struct, frozen=True):
    """The home, project and folder of a session."""

    home: TravoisHome
    project: Project
    cwd: str


class OpenedSession(msgspec.Struct, frozen=True):
    """An open log, and the folder of its large outputs."""

    id: str
    log: SessionLog
    spill: Path
    parent: str = ""
    """The session that this one was just made from."""


def open_log(workspace: Workspace, options: Options, stack: AsyncExitStack) -> OpenedSession:
    """Open the log of the session that the options select, locked until the stack unwinds."""
    _check_options(options)
    if options.create_missing:
        options = replace(options, resume=_choose_session_id(options.resume))
    begins = options.create_missing and not _is_begun(workspace.home, options.resume)
    if (options.latest or options.resume) and not begins:
        return _open_existing(workspace, options, stack)
    id = options.resume or _choose_session_id(options.session_id)
    folder = _session_folder(workspace, id, options, stack)
    log = ResilientSessionLog.create(folder, _build_opened_fact(workspace, id))
    stack.callback(_close_new_session, log)
    return OpenedSession(id, log, folder / "tool-results")


def _is_begun(home: TravoisHome, id: str) -> bool:
    """Return whether a session to open has a first entry; one may be killed at its creation."""
    return any(
        folder.name == id and read_opening(folder) is not None
        for folder in catalog.list_session_folders(home)
    )


def _check_options(options: Options) -> None:
    """Refuse options that contradict each other when a session is opened."""
    going_on = options.latest or bool(options.resume)
    if options.fork and not going_on:
        raise UserError(
            "--fork-session needs --continue or --resume", fix="Name the session to fork."
        )
    if options.latest and options.resume:
        raise UserError("--continue and --resume cannot be combined", fix="Use one of them.")
    if options.resume == PICK_SESSION:
        fix = "`travois sessions` lists them. In a terminal, you can choose from a list."
        raise UserError("Name the session to resume", fix=fix)
    if options.session_id and going_on and not options.fork:
        raise UserError(
            "--session-id names a new session and cannot resume an existing one",
            fix="Add --fork-session, or omit --session-id.",
        )


def _open_existing(workspace: Workspace, options: Options, stack: AsyncExitStack) -> OpenedSession:
    """Open the session to resume, or fork it."""
    if options.resume:
        found = catalog.find_session(workspace.home, options.resume, project=workspace.project)
    else:
        found = catalog.find_newest_session(workspace.home, workspace.project, cwd=workspace.cwd)
    base = workspace.home.session_folder(found.project, found.id)
    last = 0
    if options.fork or options.upto:
        history = [*read_history(base, [])]
        last = _find_fork_point(found.id, history, options.upto)
        if options.drops is not None:
            _check_dropped_turn(found.id, history, options.drops, after=last)
    _announce_long_log(base)
    if not options.fork:
        log = ResilientSessionLog.open(base)
        stack.callback(_close_log, log)
        if options.upto:
            log.append(Rewound(last))
        return OpenedSession(found.id, log, base / "tool-results")
    id = _choose_session_id(options.session_id)
    folder = _session_folder(workspace, id, options, stack)
    if not options.persist:
        (folder.parent / found.id).symlink_to(base)
    log = ResilientSessionLog.create(
        folder, _build_opened_fact(workspace, id, parent=found.id, at=last)
    )
    stack.push(partial(_close_fork, log))
    return OpenedSession(id, log, folder / "tool-results", found.id)


def _announce_long_log(folder: Path) -> None:
    """Announce that reading a long log takes a while."""
    size = (folder / LOG_FILE_NAME).stat().st_size
    if size > SLOW_LOG_BYTES and not (folder / CHECKPOINT).exists() and sys.stderr.isatty():
        write_stderr(f"travois: reading a log of {size >> 20} MB for the first time…\n")


def _find_fork_point(id: str, entries: Iterable[Entry], name: str) -> int:
    """Return the entry to fork a session at: the named message, else the last one."""
    if not name:
        return max(entry.seq for entry in entries)
    for seq, fact in ((entry.seq, entry.fact) for entry in entries):
        parts = range(len(fact.content)) if isinstance(fact, Assistant) else ()
        if name in (
            make_line_uuid(id, str(seq)),
            *(make_line_uuid(id, f"{seq}.{part}") for part in parts),
        ):
            return seq
    raise UserError(f"Session {id} has no message {name}")


def _check_dropped_turn(id: str, entries: Iterable[Entry], prompt: str, *, after: int) -> None:
    """Refuse to leave out more than the turn of this prompt, such as what came in meanwhile."""
    said = [
        entry
        for entry in entries
        if entry.seq > after
        and isinstance(entry.fact, Assistant | Result | User)
        and not (isinstance(entry.fact, User) and entry.fact.origin in PROMPT_NOTE_ORIGINS)
    ]
    if not said or make_line_uuid(id, str(said[0].seq)) != prompt:
        why = f"the message {prompt!r} does not follow the one to resume at"
    elif any(isinstance(entry.fact, User) for entry in said[1:]):
        why = f"messages that are not of the turn of {prompt} follow it"
    else:
        return
    raise UserError(
        "Resume rejected by --resume-drops-turn", why=why, fix="Resume without leaving out a turn."
    )


def describe_log_damage(log: SessionLog) -> tuple[str, ...]:
    """Return notices about damage in the log of a session to resume."""
    torn = f"the last line of the log was incomplete; it was saved to {log.torn}"
    lost = f"{len(log.skipped)} damaged places in the log were skipped (travois sessions show)"
    return (*((torn,) if log.torn else ()), *((lost,) if log.skipped else ()))


def _choose_session_id(wanted: str) -> str:
    """Return a new session's ID: that of --session-id, or a random one."""
    if not wanted:
        return str(uuid4())
    try:
        return str(UUID(wanted))
    except ValueError:
        raise UserError(
            f"The session id {wanted} is not a UUID",
            fix="For example: --session-id $(uuidgen)",
        ) from None


def _session_folder(workspace: Workspace, id: str, options: Options, stack: AsyncExitStack) -> Path:
    """Return the folder of a new session; a temporary one if it is not saved."""
    if options.persist:
        return workspace.home.session_folder(workspace.project.key, id)
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="travois-"))) / id


def _build_opened_fact(workspace: Workspace, id: str, *, parent: str = "", at: int = 0) -> Opened:
    """Build the first log entry of a new session or a fork."""
    return Opened(
        session=id,
        cwd=workspace.cwd,
        project=workspace.project.key,
        version=__version__,
        parent=parent,
        at=at,
    )


def _close_new_session(log: SessionLog) -> None:
    """Close a new session; an empty one is removed."""
    if is_worth_keeping(log.read()):
        _close_log(log)
    else:
        _remove_log(log)


def _close_log(log: SessionLog) -> None:
    """Close a session's log, and report entries that could not be saved."""
    log.close()
    if isinstance(log, ResilientSessionLog) and log.unsaved:
        write_stderr(
            f"travois: the last {len(log.unsaved)} entries of the session were not saved\n"
        )


def is_worth_keeping(entries: Iterable[Entry]) -> bool:
    """Return whether a new session stays on disk: something was said in it."""
    facts = [entry.fact for entry in entries]
    return not _has_no_turn(facts) and not _is_failed_start(facts)


def _close_fork(
    log: SessionLog,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close a fork; one that failed to open is removed."""
    if error is None:
        _close_log(log)
    else:
        _remove_log(log)


def _remove_log(log: SessionLog) -> None:
    """Close the log of a session and delete its folder."""
    log.close()
    shutil.rmtree(log.folder, ignore_errors=True)


def _has_no_turn(facts: list[AnyFact]) -> bool:
    """Return whether a session has neither a user prompt nor a finished turn."""
    return not any(
        isinstance(fact, Ended) or (isinstance(fact, User) and fact.origin == "human")
        for fact in facts
    )


def _is_failed_start(facts: list[AnyFact]) -> bool:
    """Return whether a session's first request failed for good, so that it need not be kept.

    A wrong key, an unknown model or a server that is not there is put right by the user, who then
    starts again. What failed for a passing reason, or was interrupted, can be resumed.
    """
    if any(isinstance(fact, Assistant | Result) for fact in facts):
        return False
    ends = [fact.why for fact in facts if isinstance(fact, Ended)]
    failures = [fact for fact in facts if isinstance(fact, Failed) and fact.kind != "compaction"]
    last = failures[-1] if failures else None
    if last is None or last.kind in PASSING_FAILURES or last.attempt > 1 or last.wait >= 0:
        return False
    return set(ends) == {"failed"}


def settle_session_log(
    session: Session,
    workspace: Workspace,
    *,
    card: Card,
    tools: tuple[AnyTool, ...],
    options: Options,
) -> None:
    """Bring a resumed session's log to a state from which a turn can start."""
    session.is_lasting = options.persist and not workspace.home.passing
    if session.view.epoch is None:
        session.append(build_first_head(card, _system_text(options), tools, wanted=options.toolset))
        session.append(render_environment(describe_surroundings(workspace, options)))
        return
    answer_open_calls(session, started=UNKNOWN_RESULT)
    if session.last is not None and not _is_between_turns(session.last.fact):
        session.append(Ended("crashed", "the program stopped without ending the turn"))
    if not os.path.isdir(session.state.get("cwd", workspace.cwd)):
        session.append(Changed("cwd", workspace.cwd))


def _is_between_turns(fact: AnyFact) -> bool:
    declined = isinstance(fact, Failed) and fact.kind == "compaction"
    return declined or isinstance(fact, Ended | Opened | Changed)


def build_requested_head(
    session: Session, card: Card, options: Options, *, brought: tuple[AnyTool, ...] = ()
) -> Epoch | None:
    """Return a new request head for a resumed session if the options ask for one, else None.

    Tools that the caller brought count as requested, too.
    """
    epoch = session.view.epoch
    assert epoch is not None
    asked = options.system or options.append_system
    system = _system_text(options) if asked else epoch.system
    same = epoch.model.name == card.name and epoch.model.window <= card.window
    known = {tool.name for tool in epoch.tools}
    added = [spec for spec in build_tool_specs(brought) if spec.name not in known]
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


def _system_text(options: Options) -> str:
    text = options.system or SYSTEM_PROMPT_FILE.read_text("utf-8").strip()
    return f"{text}\n\n{options.append_system}" if options.append_system else text


def describe_surroundings(
    workspace: Workspace, options: Options, *, cwd: str = "", worktree: str = ""
) -> Environment:
    """Describe a session's current surroundings for its log."""
    return Environment(
        cwd=cwd or workspace.cwd,
        platform=sys.platform,
        date=strftime("%Y-%m-%d", localtime()),
        branch=_read_git_branch(worktree or workspace.project.root),
        folders=options.folders,
    )


def _read_git_branch(root: str) -> str:
    """Return a session folder's current git branch without starting git."""
    git = Path(root, ".git")
    try:
        if git.is_file():
            git = Path(root, git.read_text("utf-8").removeprefix("gitdir:").strip())
        head = (git / "HEAD").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
