"""The ledger of a session: what it established, built from its log, within a token budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import dirname

import msgspec

from travois.context.compaction.outline import (
    ERRORS_PART,
    FILES_PART,
    MESSAGES_PART,
    PENDING_PART,
    REQUEST_PART,
    SOLVING_PART,
    WORK_PART,
)
from travois.context.ledger.extractors import (
    ActionReader,
    BackgroundJob,
    CalledTasks,
    CheckRun,
    CommandRun,
    CreatedItem,
    ErrorRecord,
    GitState,
    LedgerTask,
    ToolAction,
    TouchedFile,
    UserDecision,
    extract_checks,
    extract_commands,
    extract_created_items,
    extract_decisions,
    extract_errors,
    extract_files,
    extract_git_state,
    extract_jobs,
    find_todo_state,
    read_todo_list,
)
from travois.context.ledger.received import ReceivedMessage, extract_received, find_fork_start
from travois.context.ledger.user_words import (
    SpokenMessage,
    extract_answers,
    extract_rules,
    extract_user_messages,
    shorten_message,
    take_first_sentences,
)
from travois.core.facts import Changed, Entry, Opened
from travois.core.tokens import estimate_tokens
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
    """Build the ledger of these log entries; earlier compactions make no difference to it."""
    builder = LedgerBuilder()
    builder.add(keep_live_entries(list(entries)))
    return builder.ledger


class LedgerBuilder:
    """A ledger that grows with its session: no entry is read twice."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._reader = ActionReader()
        self._listed = ""
        """The task list of the log, as it is kept there."""
        self._called = CalledTasks()

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the entries that came since the last time."""
        known, done = self.ledger, [act for e in entries if (act := self._reader.read(e))]
        fork = max(known.fork, find_fork_start(entries))
        said = (*known.said, *extract_user_messages(entries, done))
        others = extract_received(entries, done, fork=fork, earlier=(*known.task, *known.received))
        self.ledger = Ledger(
            said=said,
            answers=extract_answers(entries, since=fork, earlier=known.answers),
            rules=extract_rules(said),
            decisions=(*known.decisions, *extract_decisions(done)),
            tasks=self._list_tasks(entries, done),
            files=extract_files(done, known.files),
            checks=extract_checks(done, known.checks),
            commands=extract_commands(done, known.commands),
            errors=extract_errors(done, known.errors),
            made=extract_created_items(done, known.made),
            git=extract_git_state(done, known.git),
            jobs=extract_jobs(entries, done, known.jobs),
            cwd=_last_folder(entries) or known.cwd,
            task=tuple(one for one in others if one.kind == "task"),
            received=tuple(one for one in others if one.kind != "task"),
            fork=fork,
        )

    def _list_tasks(
        self, entries: Sequence[Entry], done: Iterable[ToolAction]
    ) -> tuple[LedgerTask, ...]:
        self._listed = find_todo_state(entries) or self._listed
        for act in done:
            self._called.add(act)
        return read_todo_list(self._listed) or self._called.all


def _last_folder(entries: Sequence[Entry]) -> str:
    """Return the working folder at the end of a log, for the ledger's paths."""
    for entry in reversed(entries):
        match entry.fact:
            case Changed(what="cwd", value=folder) | Opened(cwd=folder):
                return folder
            case _:
                pass
    return ""


UNLIMITED_CHARS = 10**9
MESSAGE_CHAR_LIMITS = (2_400, 1_200, 600, 300, 150)
"""Character limits of a message, from the widest to the tightest."""
FAVOURED_MESSAGES = 4
"""The first message and this many of the last may be longer than the others."""
TIGHT_ROOM_DIVISOR = 8
"""Tokens of a section's room for each character of a message where not even those fit."""
WHOLE_MESSAGES_SHARE = 0.7
"""The part of a section's room for messages that are shown whole; the rest is for sentences."""
FIRST_MESSAGE_SHARE = 0.3
"""The same for the first message, which the newest must not miss their room for."""
SENTENCE_TOKENS = 40
"""Tokens for a message of which only sentences are shown, if that leaves others with none."""
MIN_CHARS_PER_TOKEN = 3
"""The fewest characters of a token."""
MAX_LINE_CHARS = 200
SECTION_FLOOR_TOKENS = 16
"""Tokens for a heading and the number of what is missing under it."""
USER_MESSAGES_TITLE = "What the human said, in order"
INHERITED_MESSAGES_TITLE = (
    "What the human said to the agent that you are a copy of, in order (not your task)"
)
ANSWERS_TITLE = "What you answered and found so far, the newest last"
SHARED_TASKS_TITLE = (
    "Tasks still open on the list that you share (yours are only those that your task names)"
)

SectionUnits = Callable[[int], tuple[str, ...]]


class RenderedLedger(msgspec.Struct, frozen=True):
    """The text that fits, and everything in full if some of it did not (else empty)."""

    text: str
    overflow: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    """The same text section by section, each beside the part of a summary that it belongs to."""


class LedgerSection(msgspec.Struct, frozen=True):
    """A heading and its units, given how long a unit may be."""

    part: str
    title: str
    units: SectionUnits
    share: float
    """The share of the budget that it gets even when everything else wants more."""
    rank: int
    """The order in which sections get what others leave."""
    said: tuple[SpokenMessage, ...] = ()
    """The messages that its units are, where it is made of messages in order."""
    opens: bool = True
    """True if the first message counts as much as the newest."""


def render_ledger(ledger: Ledger, *, budget: int) -> RenderedLedger:
    """Render the ledger in at most `budget` tokens; a cut section says how much is missing."""
    sections = [section for section in _list_sections(ledger) if section.units(UNLIMITED_CHARS)]
    whole = "\n\n".join(_render_section(section, UNLIMITED_CHARS) for section in sections)
    rooms = _allot_section_rooms(sections, budget)
    shown = tuple((s.part, _fit_section(s, rooms[s.title])) for s in sections)
    text = "\n\n".join(text for _, text in shown)
    return RenderedLedger(text, "" if text == whole else whole, shown)


def _list_sections(ledger: Ledger) -> Iterator[LedgerSection]:
    """Yield the sections of the ledger, each with its share of the token budget and its rank."""
    rules = tuple(_quote_text(text) for text in ledger.rules[::-1])
    yield LedgerSection(REQUEST_PART.title, "Rules that the human gave", lambda n: rules, 0.10, 0)
    before = tuple(message for message in ledger.said if message.seq < ledger.fork)
    own = ledger.said[len(before) :]
    share = 0.13 if own and before else 0.26
    yield LedgerSection(
        MESSAGES_PART.title,
        USER_MESSAGES_TITLE,
        lambda n: _format_messages(own, n),
        share,
        1,
        said=own,
    )
    yield LedgerSection(
        MESSAGES_PART.title,
        INHERITED_MESSAGES_TITLE,
        lambda n: _format_messages(before, n),
        share,
        1,
        said=before,
    )
    chosen = ledger.decisions[::-1]
    yield LedgerSection(
        REQUEST_PART.title, "Decided by the human", lambda n: _format_decisions(chosen, n), 0.12, 3
    )
    yield from _task_sections(ledger)
    answers = ledger.answers
    yield LedgerSection(
        SOLVING_PART.title,
        ANSWERS_TITLE,
        lambda n: _format_messages(answers, n),
        0.08,
        4,
        said=answers,
        opens=False,
    )
    yield from _work_sections(ledger)


def _task_sections(ledger: Ledger) -> Iterator[LedgerSection]:
    """Yield the ledger sections of open tasks, closed tasks and background jobs."""
    open_, done = (tuple(t for t in ledger.tasks if t.is_open is state) for state in (True, False))
    title = SHARED_TASKS_TITLE if ledger.task else "Tasks still open"
    yield LedgerSection(
        PENDING_PART.title, title, lambda n: tuple(_format_task(t, n) for t in open_), 0.09, 2
    )
    again = {task.subject for task in open_}  # done once, and to be done once more
    closed = tuple(task for task in done[::-1] if task.subject not in again)
    yield LedgerSection(
        PENDING_PART.title,
        "Tasks closed",
        lambda n: tuple(_format_task(t, n) for t in closed),
        0.03,
        8,
    )
    jobs = tuple(
        f"- {_flatten_line(j.id)}: {_flatten_line(j.state, 60)}: {_flatten_line(j.what, 80)}"
        for j in ledger.jobs
    )
    yield LedgerSection(PENDING_PART.title, "Running in the background", lambda n: jobs, 0.02, 9)


def _work_sections(ledger: Ledger) -> Iterator[LedgerSection]:
    """Yield the ledger sections of files, checks, errors, commands and created items."""
    changed = tuple(f for f in ledger.files if f.changes)
    read = tuple(f for f in ledger.files if not f.changes)
    base = choose_base_folder([file.path for file in ledger.files], ledger.cwd)
    title = f"Files changed (in {_flatten_line(base)})" if base else "Files changed"
    yield LedgerSection(FILES_PART.title, title, lambda n: _format_files(changed, base), 0.10, 4)
    checks = tuple(
        f"- {_flatten_line(c.command, 300)}: {_format_check_outcome(c)}" for c in ledger.checks
    )
    yield LedgerSection(WORK_PART.title, "Checks, the newest first", lambda n: checks, 0.06, 5)
    errors = tuple(
        f"- {_flatten_line(e.headline)} (in: {_flatten_line(e.during, 60)})" for e in ledger.errors
    )
    yield LedgerSection(
        ERRORS_PART.title, "Errors seen, the newest first", lambda n: errors, 0.07, 6
    )
    ran = tuple(
        f"- {_flatten_line(c.text)}{' (failed)' if c.failed else ''}" for c in ledger.commands
    )
    yield LedgerSection(
        WORK_PART.title, "Other commands that were run, the newest first", lambda n: ran, 0.04, 8
    )
    yield LedgerSection(
        WORK_PART.title, "Created", lambda n: _format_created_items(ledger), 0.05, 7
    )
    yield LedgerSection(
        FILES_PART.title, "Files only read", lambda n: _format_files(read, base), 0.02, 10
    )


def _format_task(task: LedgerTask, limit: int) -> str:
    """Format one task of the ledger as a line with its status, number, owner and blockers."""
    number = f"#{task.id} " if task.id else ""
    most = limit if limit == UNLIMITED_CHARS else MAX_LINE_CHARS
    owner = f" ({_flatten_line(task.owner, 40)})" if task.owner else ""
    waits = f" [blocked by {', '.join(f'#{id}' for id in task.waits)}]" if task.waits else ""
    status, subject = _flatten_line(task.status, 20), _flatten_line(task.subject, most)
    return f"- [{status}] {number}{subject}{owner}{waits}"


def _render_section(section: LedgerSection, limit: int) -> str:
    return "\n".join((f"## {section.title}", *section.units(limit)))


def _allot_section_rooms(sections: list[LedgerSection], budget: int) -> dict[str, int]:
    """Allot tokens to each ledger section: its share, then what the others leave, by rank."""
    wants = {
        s.title: estimate_tokens(_render_section(s, MESSAGE_CHAR_LIMITS[0])) + 2 for s in sections
    }
    spread = max(0, budget - SECTION_FLOOR_TOKENS * len(sections))
    rooms = {
        s.title: min(wants[s.title], SECTION_FLOOR_TOKENS + int(s.share * spread)) for s in sections
    }
    left = max(0, budget - sum(rooms.values()))
    for section in sorted(sections, key=lambda section: section.rank):
        more = min(left, wants[section.title] - rooms[section.title])
        rooms[section.title] += more
        left -= more
    return rooms


def _fit_section(section: LedgerSection, room: int) -> str:
    """Render a ledger section within its token budget, with messages shortened as needed."""
    if section.said:
        return _fill_with_messages(section, room)
    for limit in MESSAGE_CHAR_LIMITS:
        text = _render_section(section, limit)
        if estimate_tokens(text) + 2 <= room:
            return text
    return _trim_section(section, room)


def _trim_section(section: LedgerSection, room: int) -> str:
    """Render as many lines of a ledger section as fit, and say how many are left out."""
    units = section.units(min(MESSAGE_CHAR_LIMITS[-1], room // TIGHT_ROOM_DIVISOR))
    kept: list[str] = []
    used = estimate_tokens(f"## {section.title}\n- (and 0000 more)\n")
    for unit in units:
        used += estimate_tokens(f"{unit}\n") + 1
        if used > room:
            break
        kept.append(unit)
    more = f"- (and {len(units) - len(kept)} more)"
    return "\n".join((f"## {section.title}", *kept, more))


def _fill_with_messages(section: LedgerSection, room: int) -> str:
    """Fill the ledger's room with messages: first and newest whole, of others some sentences."""
    whole = section.units(MESSAGE_CHAR_LIMITS[0])
    text = "\n".join((f"## {section.title}", *whole))
    if estimate_tokens(text) + 2 <= room:
        return text
    order = list(range(len(whole) - 1, -1, -1))
    order = [*order[:1], 0, *order[1:-1]] if section.opens and order[1:] else order
    used = estimate_tokens(f"## {section.title}\n- (and 0000 more)\n")
    shown: dict[int, str] = {}
    for place, index in enumerate(order):
        cost = estimate_tokens(whole[index]) + 2
        if used + cost <= room * _max_room_share(section, place):
            shown[index], used = whole[index], used + cost
    rest = [index for index in order if index not in shown]
    for count, index in enumerate(rest):
        each = max(SENTENCE_TOKENS, (room - used) // (len(rest) - count))
        message = section.said[index]
        brief = take_first_sentences(message.text, each * MIN_CHARS_PER_TOKEN)
        unit = _quote_text(_format_refusal(message) + brief) if brief else ""
        if unit and used + (cost := estimate_tokens(unit) + 2) <= room:
            shown[index], used = unit, used + cost
    more = (f"- (and {len(whole) - len(shown)} more)",) if len(shown) < len(whole) else ()
    lines = [shown[index] for index in sorted(shown)]
    head = lines[:1] if section.opens and 0 in shown else []
    return "\n".join((f"## {section.title}", *head, *more, *lines[len(head) :]))


def _max_room_share(section: LedgerSection, place: int) -> float:
    """Return the share of the ledger's room up to which a message may be shown in full."""
    if place == 0:
        return 1.0
    return FIRST_MESSAGE_SHARE if section.opens and place == 1 else WHOLE_MESSAGES_SHARE


def _format_messages(said: tuple[SpokenMessage, ...], limit: int) -> tuple[str, ...]:
    """Quote messages for the ledger, shortened to a limit, with more room for favoured ones."""
    return tuple(
        _quote_message(
            message, limit * FAVOURED_MESSAGES if _is_favoured(index, len(said)) else limit
        )
        for index, message in enumerate(said)
    )


def _is_favoured(index: int, count: int) -> bool:
    return index == 0 or index >= count - FAVOURED_MESSAGES


def _quote_message(message: SpokenMessage, limit: int) -> str:
    return _quote_text(_format_refusal(message) + shorten_message(message.text, limit))


def _format_refusal(message: SpokenMessage) -> str:
    return f"(refused: {_flatten_line(message.about, 80)})\n" if message.about else ""


def _format_decisions(decisions: tuple[UserDecision, ...], limit: int) -> tuple[str, ...]:
    """Format the user's decisions for the ledger: answers to questions and approved plans."""
    return tuple(
        f"- {_flatten_line(d.question)}: {_quote_text(shorten_message(d.answer, limit))[2:]}"
        if d.question
        else (
            "- Approved plan:\n"
            f"  {_quote_text(shorten_message(d.answer, limit * FAVOURED_MESSAGES))[2:]}"
        )
        for d in decisions
    )


def _quote_text(text: str) -> str:
    """Quote a text in the ledger, with a mark before each line."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "- > " + "\n  > ".join(line for line in lines if line)


def _flatten_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Join a text into one line for the ledger."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 2]} …"


def _format_files(files: tuple[TouchedFile, ...], cwd: str) -> tuple[str, ...]:
    """Format the files of the ledger as lines with relative paths and states."""
    return tuple(
        f"- {_flatten_line(_relative_path(f.path, cwd))}{_format_file_state(f)}" for f in files
    )


def choose_base_folder(paths: Sequence[str], cwd: str) -> str:
    """Choose the folder that shortens the ledger's paths best: the working folder, or another."""
    whole = [path for path in paths if path.startswith("/")]
    inside = [path for path in whole if path.startswith(cwd.rstrip("/") + "/")]
    if cwd.strip("/") and (len(inside) * 2 >= len(whole)):
        return cwd
    if len(whole) < max(2, len(paths)):
        return ""  # those that are not whole are told from elsewhere
    holding = Counter(folder for path in whole for folder in _folders_above(path))
    saved = {f: len(f) * count for f, count in holding.items() if count * 2 >= len(whole)}
    return max(saved, key=saved.__getitem__, default="")


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a ledger file, without the topmost ones, which say nothing."""
    while (path := dirname(path)).count("/") > 1:
        yield path


def _relative_path(path: str, folder: str) -> str:
    return path.removeprefix(folder.rstrip("/") + "/") if folder else path


def _format_file_state(file: TouchedFile) -> str:
    """Format a changed file's state and number of changes; empty for one only read."""
    if not file.changes:
        return ""
    is_plain = file.changes == 1 or file.state == "deleted"
    return f" ({file.state})" if is_plain else f" ({file.state}, {file.changes} changes)"


def _format_check_outcome(check: CheckRun) -> str:
    return f"{check.outcome} (exit code {check.code})" if check.code else check.outcome


def _format_created_items(ledger: Ledger) -> tuple[str, ...]:
    """Format the git branch and the commits, issues and pull requests that were created."""
    things = tuple(
        f"- {t.kind} {_flatten_line(t.id)} {_flatten_line(t.about, 80)}".rstrip()
        for t in ledger.made
    )
    branch = (f"- on git branch {_flatten_line(ledger.git.branch)}",) if ledger.git.branch else ()
    return branch + things
