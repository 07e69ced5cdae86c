"""Rendering of the ledger as text, within a token budget.

Every line that is not ours is quoted or stands behind a dash, so that no message or output can pass
for a heading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from posixpath import dirname

import msgspec

from travois.context.compaction.outline import (
    ERRORS,
    FILES,
    MESSAGES,
    PENDING,
    REQUEST,
    SOLVING,
    WORK,
)
from travois.context.ledger.extractors import Check, Decision, File, Task
from travois.context.ledger.fold import Ledger
from travois.context.ledger.user_words import Said, beginning, shortened
from travois.core.tokens import estimate_tokens

WHOLE = 10**9
LIMITS = (2_400, 1_200, 600, 300, 150)
"""Character limits of a message, from the widest to the tightest."""
FAVOURED = 4
"""The first message and this many of the last may be longer than the others."""
TIGHT = 8
"""Tokens of a section's room for each character of a message where not even those fit."""
WHOLE_SHARE = 0.7
"""The part of a section's room for messages that are shown whole; the rest is for sentences."""
FIRST_SHARE = 0.3
"""The same for the first message, which the newest must not miss their room for."""
SENTENCE = 40
"""Tokens for a message of which only sentences are shown, if that leaves others with none."""
CHARACTERS = 3
"""The fewest characters of a token."""
LINE = 200
FLOOR = 16
"""Tokens for a heading and the number of what is missing under it."""
SAID = "What the human said, in order"
SAID_BEFORE = "What the human said to the agent that you are a copy of, in order (not your task)"
ANSWERED = "What you answered and found so far, the newest last"
SHARED = "Tasks still open on the list that you share (yours are only those that your task names)"

Units = Callable[[int], tuple[str, ...]]


class Rendered(msgspec.Struct, frozen=True):
    """The text that fits, and everything in full if some of it did not (else empty)."""

    text: str
    overflow: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    """The same text section by section, each beside the part of a summary that it belongs to."""


class Section(msgspec.Struct, frozen=True):
    """A heading and its units, given how long a unit may be."""

    part: str
    title: str
    units: Units
    share: float
    """The share of the budget that it gets even when everything else wants more."""
    rank: int
    """The order in which sections get what others leave."""
    said: tuple[Said, ...] = ()
    """The messages that its units are, where it is made of messages in order."""
    opens: bool = True
    """True if the first message counts as much as the newest."""


def render(ledger: Ledger, *, budget: int) -> Rendered:
    """Render the ledger in at most `budget` tokens; a cut section says how much is missing."""
    sections = [section for section in _sections(ledger) if section.units(WHOLE)]
    whole = "\n\n".join(_whole(section, WHOLE) for section in sections)
    rooms = _rooms(sections, budget)
    shown = tuple((s.part, _fitted(s, rooms[s.title])) for s in sections)
    text = "\n\n".join(text for _, text in shown)
    return Rendered(text, "" if text == whole else whole, shown)


def _sections(ledger: Ledger) -> Iterator[Section]:
    rules = _quotes(ledger.rules[::-1])
    yield Section(REQUEST.title, "Rules that the human gave", lambda n: rules, 0.10, 0)
    before = tuple(message for message in ledger.said if message.seq < ledger.fork)
    own = ledger.said[len(before) :]
    share = 0.13 if own and before else 0.26
    yield Section(MESSAGES.title, SAID, lambda n: _told(own, n), share, 1, said=own)
    yield Section(MESSAGES.title, SAID_BEFORE, lambda n: _told(before, n), share, 1, said=before)
    chosen = ledger.decisions[::-1]
    yield Section(REQUEST.title, "Decided by the human", lambda n: _decided(chosen, n), 0.12, 3)
    yield from _tasks(ledger)
    answers = ledger.answers
    yield Section(
        SOLVING.title, ANSWERED, lambda n: _told(answers, n), 0.08, 4, said=answers, opens=False
    )
    yield from _work(ledger)


def _tasks(ledger: Ledger) -> Iterator[Section]:
    open_, done = (tuple(t for t in ledger.tasks if t.open is state) for state in (True, False))
    title = SHARED if ledger.task else "Tasks still open"
    yield Section(PENDING.title, title, lambda n: tuple(_task(t, n) for t in open_), 0.09, 2)
    again = {task.subject for task in open_}  # done once, and to be done once more
    closed = tuple(task for task in done[::-1] if task.subject not in again)
    yield Section(
        PENDING.title, "Tasks closed", lambda n: tuple(_task(t, n) for t in closed), 0.03, 8
    )
    jobs = tuple(f"- {_line(j.id)}: {_line(j.state, 60)}: {_line(j.what, 80)}" for j in ledger.jobs)
    yield Section(PENDING.title, "Running in the background", lambda n: jobs, 0.02, 9)


def _work(ledger: Ledger) -> Iterator[Section]:
    changed = tuple(f for f in ledger.files if f.changes)
    read = tuple(f for f in ledger.files if not f.changes)
    base = nearest_folder([file.path for file in ledger.files], ledger.cwd)
    title = f"Files changed (in {_line(base)})" if base else "Files changed"
    yield Section(FILES.title, title, lambda n: _files(changed, base), 0.10, 4)
    checks = tuple(f"- {_line(c.command, 300)}: {_ended(c)}" for c in ledger.checks)
    yield Section(WORK.title, "Checks, the newest first", lambda n: checks, 0.06, 5)
    errors = tuple(f"- {_line(e.headline)} (in: {_line(e.during, 60)})" for e in ledger.errors)
    yield Section(ERRORS.title, "Errors seen, the newest first", lambda n: errors, 0.07, 6)
    ran = tuple(f"- {_line(c.text)}{' (failed)' if c.failed else ''}" for c in ledger.commands)
    yield Section(
        WORK.title, "Other commands that were run, the newest first", lambda n: ran, 0.04, 8
    )
    yield Section(WORK.title, "Created", lambda n: _created(ledger), 0.05, 7)
    yield Section(FILES.title, "Files only read", lambda n: _files(read, base), 0.02, 10)


def _task(task: Task, limit: int) -> str:
    number = f"#{task.id} " if task.id else ""
    most = limit if limit == WHOLE else LINE
    owner = f" ({_line(task.owner, 40)})" if task.owner else ""
    waits = f" [blocked by {', '.join(f'#{id}' for id in task.waits)}]" if task.waits else ""
    return f"- [{_line(task.status, 20)}] {number}{_line(task.subject, most)}{owner}{waits}"


def _whole(section: Section, limit: int) -> str:
    return "\n".join((f"## {section.title}", *section.units(limit)))


def _rooms(sections: list[Section], budget: int) -> dict[str, int]:
    """Return each section's tokens: its share, then what the others leave, by rank."""
    wants = {s.title: estimate_tokens(_whole(s, LIMITS[0])) + 2 for s in sections}
    spread = max(0, budget - FLOOR * len(sections))
    rooms = {s.title: min(wants[s.title], FLOOR + int(s.share * spread)) for s in sections}
    left = max(0, budget - sum(rooms.values()))
    for section in sorted(sections, key=lambda section: section.rank):
        more = min(left, wants[section.title] - rooms[section.title])
        rooms[section.title] += more
        left -= more
    return rooms


def _fitted(section: Section, room: int) -> str:
    if section.said:
        return _filled(section, room)
    for limit in LIMITS:
        text = _whole(section, limit)
        if estimate_tokens(text) + 2 <= room:
            return text
    return _trimmed(section, room)


def _trimmed(section: Section, room: int) -> str:
    units = section.units(min(LIMITS[-1], room // TIGHT))
    kept: list[str] = []
    used = estimate_tokens(f"## {section.title}\n- (and 0000 more)\n")
    for unit in units:
        used += estimate_tokens(f"{unit}\n") + 1
        if used > room:
            break
        kept.append(unit)
    more = f"- (and {len(units) - len(kept)} more)"
    return "\n".join((f"## {section.title}", *kept, more))


def _filled(section: Section, room: int) -> str:
    """Fill the room with messages: the first and the newest in full, of others whole sentences."""
    whole = section.units(LIMITS[0])
    text = "\n".join((f"## {section.title}", *whole))
    if estimate_tokens(text) + 2 <= room:
        return text
    order = list(range(len(whole) - 1, -1, -1))
    order = [*order[:1], 0, *order[1:-1]] if section.opens and order[1:] else order
    used = estimate_tokens(f"## {section.title}\n- (and 0000 more)\n")
    shown: dict[int, str] = {}
    for place, index in enumerate(order):
        cost = estimate_tokens(whole[index]) + 2
        if used + cost <= room * _most(section, place):
            shown[index], used = whole[index], used + cost
    rest = [index for index in order if index not in shown]
    for count, index in enumerate(rest):
        each = max(SENTENCE, (room - used) // (len(rest) - count))
        message = section.said[index]
        brief = beginning(message.text, each * CHARACTERS)
        unit = _quoted(_about(message) + brief) if brief else ""
        if unit and used + (cost := estimate_tokens(unit) + 2) <= room:
            shown[index], used = unit, used + cost
    more = (f"- (and {len(whole) - len(shown)} more)",) if len(shown) < len(whole) else ()
    lines = [shown[index] for index in sorted(shown)]
    head = lines[:1] if section.opens and 0 in shown else []
    return "\n".join((f"## {section.title}", *head, *more, *lines[len(head) :]))


def _most(section: Section, place: int) -> float:
    """Return the share of the room up to which a message may be shown in full."""
    if place == 0:
        return 1.0
    return FIRST_SHARE if section.opens and place == 1 else WHOLE_SHARE


def _told(said: tuple[Said, ...], limit: int) -> tuple[str, ...]:
    return tuple(
        _message(message, limit * FAVOURED if _favoured(index, len(said)) else limit)
        for index, message in enumerate(said)
    )


def _favoured(index: int, count: int) -> bool:
    return index == 0 or index >= count - FAVOURED


def _message(message: Said, limit: int) -> str:
    return _quoted(_about(message) + shortened(message.text, limit))


def _about(message: Said) -> str:
    return f"(refused: {_line(message.about, 80)})\n" if message.about else ""


def _decided(decisions: tuple[Decision, ...], limit: int) -> tuple[str, ...]:
    return tuple(
        f"- {_line(d.question)}: {_quoted(shortened(d.answer, limit))[2:]}"
        if d.question
        else f"- Approved plan:\n  {_quoted(shortened(d.answer, limit * FAVOURED))[2:]}"
        for d in decisions
    )


def _quotes(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_quoted(text) for text in texts)


def _quoted(text: str) -> str:
    """Quote a text, each line behind a mark of its own."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "- > " + "\n  > ".join(line for line in lines if line)


def _line(text: str, limit: int = LINE) -> str:
    """Put a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 2]} …"


def _files(files: tuple[File, ...], cwd: str) -> tuple[str, ...]:
    return tuple(f"- {_line(_near(f.path, cwd))}{_state(f)}" for f in files)


def nearest_folder(paths: Sequence[str], cwd: str) -> str:
    """Return the folder that shortens these paths best: the working folder, or their own."""
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
    """Yield every folder above a path but the topmost ones, which say nothing."""
    while (path := dirname(path)).count("/") > 1:
        yield path


def _near(path: str, folder: str) -> str:
    return path.removeprefix(folder.rstrip("/") + "/") if folder else path


def _state(file: File) -> str:
    if not file.changes:
        return ""
    is_plain = file.changes == 1 or file.state == "deleted"
    return f" ({file.state})" if is_plain else f" ({file.state}, {file.changes} changes)"


def _ended(check: Check) -> str:
    return f"{check.outcome} (exit code {check.code})" if check.code else check.outcome


def _created(ledger: Ledger) -> tuple[str, ...]:
    things = tuple(f"- {t.kind} {_line(t.id)} {_line(t.about, 80)}".rstrip() for t in ledger.made)
    branch = (f"- on git branch {_line(ledger.git.branch)}",) if ledger.git.branch else ()
    return branch + things
