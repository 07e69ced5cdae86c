"""What comes back after a compaction: the files worked with last, as they are on disk by then."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from travois.context.instructions import beginning
from travois.context.sources import plain
from travois.engine.agent import Agent
from travois.engine.briefing import nested
from travois.engine.ground import home, real
from travois.engine.ports import digest
from travois.engine.skills import USED
from travois.engine.tool import Refusal
from travois.kernel.blocks import Text
from travois.kernel.facts import Changed, Entry, Result
from travois.kernel.tokens import estimate
from travois.kernel.view import Item
from travois.policy.access import Access
from travois.policy.judge import judge
from travois.policy.paths import inside
from travois.policy.rules import Use

if TYPE_CHECKING:
    from travois.context.ledger.acts import Act

SEEN = "seen:"
FILES = 12
READ = 16
"""How many are looked at, as some of them may not need to come back."""
EACH = 5_000
AROUND = 100
"""More tokens than the marks around a file take."""
LEAST = 100
"""Fewer tokens of a file than this are not worth their place."""
SHARE = 0.12
"""How much of the window they may take together."""
LARGEST = 1 << 20
CONTINUED = re.compile(r"; continue with offset=(\d+)\]\s*$")
"""How the result of Read ends that had no room for more."""
NOTE = 200
"""In so many of its last characters."""
SKILL, SKILLS = 5_000, 25_000
"""How many tokens of one skill come back, and of all together."""
INTRO = (
    "Files that you worked with last, as they are on disk at this moment: there is no need to "
    "read them again. The rest of a file that is cut can be read with offset."
)


class Held(msgspec.Struct, frozen=True):
    """A file that was worked with, and the entries whose results showed what was asked for."""

    path: str
    text: str
    first: int = 1
    """The line from which on it was read last."""
    shown: tuple[int, ...] = ()
    cut: dict[int, int] = {}
    """The entries whose results had no room for all of it, and the line at which each stopped."""
    same: bool = True
    """Whether it is what the model knows."""


class Work(msgspec.Struct):
    """What is on record of a file."""

    known: str = ""
    first: int = 1
    shown: tuple[int, ...] = ()
    cut: dict[int, int] = msgspec.field(default_factory=dict[int, int])


async def recent(agent: Agent, entries: Sequence[Entry]) -> tuple[Held, ...]:
    """The files worked with last that may be shown, the last first."""
    if not agent.layers.restore:
        return ()
    instructing = set(nested(agent))
    if agent.library is not None:
        instructing |= {file.path for file in agent.library.standing().files}
    found: list[Held] = []
    for path, work in _worked(entries).items():
        data = await _content(agent, path) if path not in instructing else b""
        if data and b"\0" not in data:
            text = agent.session.secrets.redacted(data.decode("utf-8", errors="replace"))
            same = digest(data) == work.known
            found.append(Held(path, text, work.first, work.shown, work.cut, same))
        if len(found) == READ:
            break
    return tuple(found)


def restored(held: Iterable[Held], kept: Iterable[Item], *, budget: int) -> tuple[Text, ...]:
    """A text with as many of these files as there is room for; not those that are still shown."""
    visible = {item.seq for item in kept}
    missing = [
        _beyond(one, visible) for one in held if not one.same or visible.isdisjoint(one.shown)
    ]
    chosen = missing[:FILES]
    rooms = _rooms(chosen, budget)
    parts = [part for one, room in zip(chosen, rooms, strict=True) if (part := _shown(one, room))]
    body = "\n".join(reversed(parts))
    return (Text(f"<files>\n{INTRO}\n{body}\n</files>"),) if parts else ()


def _rooms(files: Sequence[Held], budget: int) -> list[int]:
    """Share the room out evenly: work often goes on with what was read before the last few files.

    What a short file does not need is left to the others; a share of a few lines helps nobody.
    """
    from travois.context.ledger.received import allot

    count = min(len(files), budget // LEAST)
    sizes = [min(EACH, estimate(one.text) + AROUND) for one in files[:count]]
    return [*allot(sizes, budget), *([0] * (len(files) - count))]


def practised(entries: Iterable[Entry], kept: Sequence[Item], *, budget: int) -> tuple[Text, ...]:
    """What skills said when they were used last, the last first; not those still shown."""
    used = dict[str, tuple[int, str]]()
    for entry in entries:
        if isinstance(entry.fact, Changed) and entry.fact.what.startswith(USED):
            used.pop(entry.fact.what, None)
            used[entry.fact.what] = entry.seq, entry.fact.value
    parts: list[str] = []
    for seq, text in reversed(used.values()):
        if kept and kept[0].seq < seq:
            continue
        lines = text.splitlines(keepends=True)
        count = beginning(lines, min(SKILL, budget))
        cut = (
            "" if count == len(lines) else "[The rest is left out: use the skill again.]\n</skill>"
        )
        part = "".join(lines[:count]) + cut
        budget -= estimate(part)
        parts += [part] if count and budget >= 0 else []
    body = "\n".join(reversed(parts))
    return (Text(f"Skills that you used, as they said then:\n{body}"),) if parts else ()


def _worked(entries: Iterable[Entry]) -> dict[str, Work]:
    """All files that were read or changed whole, by path, the last first."""
    from travois.context.ledger.acts import acts

    done = {act.seq: act for act in acts(entries)}
    found: dict[str, Work] = {}
    act: Act | None = None
    for entry in entries:
        match entry.fact:
            case Result():
                act = done.get(entry.seq)
            case Changed(what=what, value=value) if what.startswith(SEEN):
                work = found.pop(what, Work())
                work.known = value
                found[what] = work
                if act is not None and act.kind in ("read", "write"):
                    _show(work, act)
            case _:
                pass
    return {what.removeprefix(SEEN): found[what] for what in reversed(found)}


def _show(work: Work, act: Act) -> None:
    """Take note of what a read or a write showed of a file."""
    first = act.args.get("offset")
    work.first = first if isinstance(first, int) and first > 0 else 1
    if stopped := _stopped(act):
        work.cut[act.seq] = stopped
    else:
        work.shown += (act.seq,)


def _stopped(act: Act) -> int:
    """The line at which a read stopped for want of room; nought if it showed all it was asked."""
    told = CONTINUED.search(act.text, max(0, len(act.text) - NOTE))
    return int(told[1]) if told and "limit" not in act.args else 0


def _beyond(one: Held, visible: Collection[int]) -> Held:
    """The file from where the results that are still shown stopped, if nothing else is new."""
    stopped = [line for seq, line in one.cut.items() if seq in visible]
    return msgspec.structs.replace(one, first=max(stopped)) if stopped and one.same else one


async def _content(agent: Agent, path: str) -> bytes:
    """What is in a file that may be read without a question; nothing if it may not."""
    try:
        place = real(path)
        use = Use("Read", (Access("read", place, spelt=path),), agent.world.root, home())
        free = any(inside(place, folder) for folder in agent.guard.folders)
        if not free or judge(agent.guard, use).effect != "allow":
            return b""
        found = await agent.world.files.stat(place)
        if found is None or found.kind != "file" or found.size > LARGEST:
            return b""
        return await agent.world.files.read(place)
    except (OSError, Refusal):
        return b""


def _shown(one: Held, tokens: int) -> str:
    """A file from where it was read on, as far as there is room; nothing if not a line fits."""
    lines = one.text.splitlines(keepends=True)
    start = one.first - 1 if estimate(one.text) > tokens and one.first <= len(lines) else 0
    count = beginning(lines[start:], tokens)
    part = _marked(one, lines, start=start, count=count)
    while count and (size := estimate(part)) > tokens:
        count = min(count - 1, count * tokens // size)
        part = _marked(one, lines, start=start, count=count)
    return part if count else ""


def _marked(one: Held, lines: list[str], *, start: int, count: int) -> str:
    """Some lines of a file between marks that say which they are."""
    mark = digest(one.text.encode(errors="replace"))[:16]
    where = f"{start + 1}-{start + count} of {len(lines)}"
    body = "".join(lines[start : start + count]).removesuffix("\n")
    name = plain(one.path).replace('"', "\\x22")
    return f'<file path="{name}" lines="{where}" mark="{mark}">\n{body}\n</file {mark}>'
