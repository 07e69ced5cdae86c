"""Restoring after a compaction: recently used files, as they are on disk by then, and skills."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from travois.context.compaction.in_sight import continued_at, edited_paths, is_in_sight, notes_shown
from travois.context.compaction.passages import Lines, choose, spoken_names, weigh_file
from travois.context.ledger.extractors import Act, acts
from travois.context.ledger.received import allot
from travois.context.window import beside_head, limit
from travois.core.content import Text
from travois.core.facts import Changed, Cleared, Entry, Result, User
from travois.core.tokens import context_tokens, estimate_tokens, token_ratio
from travois.core.view import ViewItem
from travois.engine.agent import Agent
from travois.permissions.access import Access
from travois.permissions.decide import judge
from travois.permissions.paths import inside
from travois.permissions.resolve_paths import home, real
from travois.permissions.rules import Use
from travois.ports.tool import ToolError
from travois.ports.world import content_digest
from travois.prompt.briefing import nested
from travois.prompt.environment import plain
from travois.prompt.instruction_text import beginning
from travois.skills.skills import USED

SEEN = "seen:"
FILES = 12
READ = 32
"""The most files to read, as some of them may not need to come back."""
EACH = 5_000
AROUND = 100
"""More tokens than the marks around a file take."""
LEAST = 100
"""Fewer tokens of a file than this are not worth their place."""
SHARE = 0.12
"""The share of the window that restored files may take together."""
LARGEST = 1 << 20
ENDLESS = 1 << 40
"""Stands for the last line of a file that was read to its end."""
EDITS = 3
"""The number of last edits of a file that show where the work goes on."""
SKILL = 5_000
SKILLS = 25_000
"""The most tokens of all skills together."""
AGAIN = 0.12
"""The share of the room between head and threshold that edited files may take."""
MOST_AGAIN = 8_000
LEAST_AGAIN = 500
INTRO = (
    "Files that you worked with last, as they are on disk now: you need not read them again. "
    "Read omitted parts of a file with offset."
)


class Held(msgspec.Struct, frozen=True):
    """A recently used file, and the lines of it that results showed, by entry."""

    path: str
    text: str
    seen: dict[int, Lines] = {}
    asked: tuple[Lines, ...] = ()
    """The lines that were asked for, whether or not there was room for all of them."""
    edits: tuple[str, ...] = ()
    """Texts that edits put there, the newest last."""
    same: bool = True
    """True if the file is what the model knows."""
    first: int = 0
    """The index of the line from which on it was read last."""


class Lack(msgspec.Struct, frozen=True):
    """The lines of a file to show again."""

    held: Held
    lines: list[str]
    parts: tuple[Lines, ...]

    @property
    def size(self) -> int:
        """The approximate tokens of these lines, with the marks around them."""
        shown = ("".join(self.lines[first:end]) for first, end in self.parts)
        return sum(estimate_tokens(text) + AROUND for text in shown)


class Work(msgspec.Struct):
    """The reads and edits of a file on record."""

    known: str = ""
    seen: dict[int, Lines] = msgspec.field(default_factory=dict[int, Lines])
    asked: list[Lines] = msgspec.field(default_factory=list[Lines])
    edits: list[str] = msgspec.field(default_factory=list[str])
    first: int = 0


async def recent(
    agent: Agent, entries: Sequence[Entry], *, only: Collection[str] | None = None
) -> tuple[Held, ...]:
    """Return the recently used files that may be shown, last one first; with `only`, just those."""
    if not agent.context.layers.restore:
        return ()
    instructing = set(nested(agent))
    if agent.prompt.instructions is not None:
        instructing |= {file.path for file in agent.prompt.instructions.load_always().files}
    found: list[Held] = []
    for path, work in _worked(entries).items():
        if only is not None and path not in only:
            continue
        data = await _content(agent, path) if path not in instructing else b""
        if data and b"\0" not in data:
            text = agent.session.secrets.redacted(data.decode("utf-8", errors="replace"))
            same = content_digest(data) == work.known
            found.append(
                Held(path, text, work.seen, tuple(work.asked), tuple(work.edits), same, work.first)
            )
        if len(found) == READ:
            break
    return tuple(found)


def restored(
    held: Iterable[Held],
    kept: Iterable[ViewItem],
    *,
    budget: int,
    names: Mapping[str, float],
    each: int = EACH,
) -> tuple[Text, ...]:
    """Return a text with as much of these files as fits, without what is still in sight.

    `names` says how often each name was mentioned, which decides where there is too little room;
    `each` is the limit for one file.
    """
    visible = {item.seq for item in kept}
    missing = [lack for one in held if (lack := _lacking(one, visible))]
    spoken = sorted(missing, key=lambda one: -weigh_file(one.held.path, names))
    best = {one.held.path for one in spoken[:FILES]}
    chosen = [one for one in missing if one.held.path in best]
    rooms = _rooms(chosen, budget, each=each)
    shown = (_shown(one, room, names) for one, room in zip(chosen, rooms, strict=True))
    parts = [part for part in shown if part]
    body = "\n".join(reversed(parts))
    return (Text(f"<files>\n{INTRO}\n{body}\n</files>"),) if parts else ()


def _lacking(one: Held, visible: Collection[int]) -> Lack | None:
    """Return the lines of a file that the model has seen but no longer sees, if any."""
    lines = one.text.splitlines(keepends=True)
    ever = one.asked if one.same and one.asked else ((0, ENDLESS),)
    left = {at for first, end in ever for at in range(first, min(end, len(lines)))}
    for seq, (first, end) in one.seen.items() if one.same else ():
        if seq in visible:
            left.difference_update(range(first, min(end, len(lines))))
    parts = tuple(_runs(sorted(left)))
    return Lack(one, lines, parts) if parts else None


def _runs(indexes: Sequence[int]) -> Iterator[Lines]:
    """Yield ranges of consecutive indexes."""
    start = 0
    for at in range(1, len(indexes) + 1):
        if at == len(indexes) or indexes[at] != indexes[at - 1] + 1:
            yield indexes[start], indexes[at - 1] + 1
            start = at


def _rooms(files: Sequence[Lack], budget: int, *, each: int) -> list[int]:
    """Share the room out evenly: work often goes on with files read before the last few.

    Short files leave the rest of their share to the others; a share of a few lines helps nobody.
    """
    count = min(len(files), budget // LEAST)
    sizes = [min(each, one.size) for one in files[:count]]
    return [*allot(sizes, budget), *([0] * (len(files) - count))]


async def show_edited_files(agent: Agent) -> None:
    """Show the out-of-sight parts of files that the last reply changed, once for each file.

    Edits come in groups, and each needs the exact text that it replaces. The note is appended, so
    it moves no prefix, and it only takes free room: it never leads to a compaction.
    """
    view = agent.session.view
    edited = edited_paths(view) if agent.context.layers.restore else []
    lacking = [path for path in edited if not is_in_sight(view, path)]
    if not lacking:
        return
    free = limit(agent) - context_tokens(view)
    budget = round(min(MOST_AGAIN, AGAIN * beside_head(agent), free) / token_ratio(view))
    told = "\n".join(notes_shown(view))
    places = [p for path in lacking for p in _places(agent, path) if _file_mark(p) not in told]
    if not places or budget < LEAST_AGAIN:
        return
    held = await recent(agent, agent.session.history(), only=places)
    names = spoken_names(view.items)
    if texts := restored(held, view.items, budget=budget, names=names, each=budget):
        agent.session.append(User(texts, origin="note"))


def _places(agent: Agent, path: str) -> list[str]:
    """Return the files known to the session that a call means by this path."""
    known = [what.removeprefix(SEEN) for what in agent.session.state if what.startswith(SEEN)]
    below = f"/{path.removeprefix('./')}"
    return [place for place in known if place == path or place.endswith(below)]


def practised(
    entries: Iterable[Entry], kept: Sequence[ViewItem], *, budget: int
) -> tuple[Text, ...]:
    """Return the text of skills as they were last used, without those still shown."""
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
        cut = "" if count == len(lines) else "[The rest is omitted: use the skill again.]\n</skill>"
        part = "".join(lines[:count]) + cut
        budget -= estimate_tokens(part)
        parts += [part] if count and budget >= 0 else []
    body = "\n".join(reversed(parts))
    return (Text(f"Skills that you used, with the text they had then:\n{body}"),) if parts else ()


def _worked(entries: Iterable[Entry]) -> dict[str, Work]:
    """Return all files that were read or changed as a whole, by path, last one first."""
    done = {act.seq: act for act in acts(entries)}
    found: dict[str, Work] = {}
    act: Act | None = None
    results: dict[str, int] = {}
    hidden: set[int] = set()
    for entry in entries:
        match entry.fact:
            case Result(call=call):
                results[call] = entry.seq
                act = done.get(entry.seq)
            case Changed(what=what, value=value) if what.startswith(SEEN):
                work = found.pop(what, Work())
                work.known = value
                found[what] = work
                if act is not None:
                    _show(work, act)
            case Cleared(calls=gone, what="results"):
                hidden |= {seq for call in gone if (seq := results.get(call))}
            case _:
                pass
    for work in found.values():
        work.seen = {seq: lines for seq, lines in work.seen.items() if seq not in hidden}
    return {what.removeprefix(SEEN): found[what] for what in reversed(found)}


def _show(work: Work, act: Act) -> None:
    """Note what a read, a write or an edit showed of a file."""
    if act.kind == "edit":
        work.edits += [new for new in (act.arg("new_string", "new_str", "insert_text"),) if new]
    if act.kind not in ("read", "write"):
        return
    first, limit = _number(act, "offset"), _number(act, "limit")
    work.first = max(0, first - 1)
    stopped = continued_at(act.text) - 1 if continued_at(act.text) else ENDLESS
    asked = work.first + limit if limit else ENDLESS
    work.seen[act.seq] = work.first, min(stopped, asked)
    work.asked.append((work.first, asked))


def _number(act: Act, name: str) -> int:
    value = act.args.get(name)
    return value if isinstance(value, int) and value > 0 else 0


async def _content(agent: Agent, path: str) -> bytes:
    """Return the content of a file that may be read without asking; empty if it may not."""
    try:
        place = real(path)
        use = Use("Read", (Access("read", place, spelt=path),), agent.world.root, home())
        free = any(inside(place, folder) for folder in agent.permissions.guard.folders)
        if not free or judge(agent.permissions.guard, use).effect != "allow":
            return b""
        found = await agent.world.files.stat(place)
        if found is None or found.kind != "file" or found.size > LARGEST:
            return b""
        return await agent.world.files.read(place)
    except (OSError, ToolError):
        return b""


def _shown(lack: Lack, tokens: int, names: Mapping[str, float]) -> str:
    """Render the missing lines of a file, or the best passages of it that fit."""
    one, parts = lack.held, lack.parts
    if lack.size > tokens:
        changed = _changed_lines(one)
        chosen = choose(lack.lines, among=parts, names=names, changed=changed, tokens=tokens)
        parts = tuple(chosen)
    marked = (_marked(one, lack.lines, start=a, count=b - a) for a, b in parts)
    return "\n".join(marked)


def _changed_lines(one: Held) -> list[int]:
    """Return the lines of the last edits of a file, and the line from which it was read last."""
    places = (one.text.find(new) for new in one.edits[-EDITS:])
    found = [one.text.count("\n", 0, place) for place in places if place >= 0]
    return [*found, one.first] if one.first else found


def _file_mark(path: str) -> str:
    """Return the beginning of the mark before some lines of a file."""
    name = plain(path).replace('"', "\\x22")
    return f'<file path="{name}"'


def _marked(one: Held, lines: list[str], *, start: int, count: int) -> str:
    """Put lines of a file between marks that say which lines they are."""
    mark = content_digest(one.text.encode(errors="replace"))[:16]
    where = f"{start + 1}-{start + count} of {len(lines)}"
    body = "".join(lines[start : start + count]).removesuffix("\n")
    return f'{_file_mark(one.path)} lines="{where}" mark="{mark}">\n{body}\n</file {mark}>'
