"""Restoring after a compaction: recently used files, as they are on disk now, and skills."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from travois.context.compaction.cut import is_summary
from travois.context.compaction.passages import (
    LineRange,
    choose_passages,
    file_name,
    weigh_file,
    weigh_spoken_names,
)
from travois.context.ledger.extractors import (
    ActionKind,
    ActionReader,
    ToolAction,
    classify_tool,
    decode_arguments,
)
from travois.context.ledger.received import share_budget
from travois.context.window import compaction_threshold, room_beside_head
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Changed, Cleared, Compacted, Entry, Result, User
from travois.core.patterns import compile_lazily
from travois.core.tokens import context_tokens, estimate_tokens, token_ratio
from travois.core.view import CLEARED_RESULT, View, ViewItem
from travois.engine.agent import Agent
from travois.permissions.access import Access
from travois.permissions.decide import decide_permission
from travois.permissions.paths import is_inside
from travois.permissions.resolve_paths import home_folder, real_path
from travois.permissions.rules import ToolUse
from travois.ports.tool import ToolError
from travois.ports.world import content_digest
from travois.prompt.briefing import list_nested_instructions
from travois.prompt.environment import escape_line
from travois.prompt.instruction_text import count_fitting_lines
from travois.skills.skills import SKILL_STATE_PREFIX

SHOWING_KINDS: tuple[ActionKind, ...] = ("read", "write")
"""Calls that show the text of a file."""
PAGE_CONTINUES = compile_lazily(r"; continue with offset=(\d+)\]\s*$")
"""The end of a Read result that had no room for more."""
PAGE_END_CHARS = 200
"""The last characters in which this end is looked for."""


def find_next_page_line(text: str) -> int:
    """Return the line at which a Read page stopped for lack of room; 0 if it did not."""
    found = PAGE_CONTINUES.search(text, max(0, len(text) - PAGE_END_CHARS))
    return int(found[1]) if found else 0


def list_note_texts(view: View) -> list[str]:
    """Return the texts of our notes still in the conversation, so as not to restore them twice."""
    facts = [item.fact for item in view.items if not is_summary(item)]
    return [extract_text(f.content) for f in facts if isinstance(f, User) and f.origin == "note"]


def list_edited_paths(view: View) -> list[str]:
    """Return the files that the last reply's edits changed in part."""
    reply = view.items[view.replied].fact if view.replied >= 0 else None
    asked = extract_calls(reply.content) if isinstance(reply, Assistant) else ()
    failed = {
        item.fact.call
        for item in view.items[view.replied + 1 :]
        if isinstance(item.fact, Result) and item.fact.error
    }
    paths = (_path_of_call(call, ("edit",)) for call in asked if call.id not in failed)
    return list(dict.fromkeys(filter(None, paths)))


def is_file_in_sight(view: View, path: str) -> bool:
    """Return whether the last result with this file is still in the conversation, uncut."""
    last = next(
        (
            call
            for call in _newest_calls_naming(view, file_name(path))
            if _path_of_call(call, SHOWING_KINDS) == path
        ),
        None,
    )
    if last is None or last.id in view.cleared:
        return False
    if classify_tool(last.name, decode_arguments(last.args)) == "write":
        return last.id not in view.cleared_inputs
    shown = next(
        (i.fact for i in view.items if isinstance(i.fact, Result) and i.fact.call == last.id), None
    )
    text = extract_text(shown.content) if shown else ""
    return bool(text) and not text.startswith(CLEARED_RESULT) and not find_next_page_line(text)


def _newest_calls_naming(view: View, name: str) -> Iterator[Call]:
    """Yield the tool calls still in the conversation that name a file, newest first."""
    for item in reversed(view.items):
        if isinstance(item.fact, Assistant):
            yield from (
                call for call in reversed(extract_calls(item.fact.content)) if name in call.args
            )


def _path_of_call(call: Call, kinds: tuple[ActionKind, ...]) -> str:
    """Return the file that a tool call of one of these kinds names; empty for other kinds."""
    args = decode_arguments(call.args)
    kind = classify_tool(call.name, args)
    return ToolAction(0, kind, call.name, args, "").path if kind in kinds else ""


SEEN_STATE_PREFIX = "seen:"
MAX_RESTORED_FILES = 12
MAX_FILES_READ = 32
"""The most files to read, as some of them may not need to come back."""
MAX_FILE_TOKENS = 5_000
FILE_MARK_TOKENS = 100
"""More tokens than the marks around a file take."""
MIN_FILE_TOKENS = 100
"""Fewer tokens of a file than this are not worth their place."""
RESTORED_SHARE = 0.12
"""The share of the window that restored files may take together."""
MAX_FILE_BYTES = 1 << 20
LAST_LINE = 1 << 40
"""Stands for the last line of a file that was read to its end."""
RECENT_EDITS = 3
"""The number of last edits of a file that show where the work goes on."""
MAX_SKILL_TOKENS = 5_000
MAX_ALL_SKILLS_TOKENS = 25_000
"""The most tokens of all skills together."""
EDITED_FILES_SHARE = 0.12
"""The share of the room between head and threshold that edited files may take."""
MAX_EDITED_TOKENS = 8_000
MIN_EDITED_TOKENS = 500
RESTORED_FILES_INTRO = (
    "Files that you worked with last, as they are on disk now: you need not read them again. "
    "Read omitted parts of a file with offset."
)


class RecentFile(msgspec.Struct, frozen=True):
    """A recently used file, and the lines of it that results showed, by entry."""

    path: str
    text: str
    seen: dict[int, LineRange] = {}
    asked: tuple[LineRange, ...] = ()
    """The lines that were asked for, whether or not there was room for all of them."""
    edits: tuple[str, ...] = ()
    """Texts that edits put there, the newest last."""
    same: bool = True
    """True if the file is what the model knows."""
    first: int = 0
    """The index of the line from which on it was read last."""


class MissingLines(msgspec.Struct, frozen=True):
    """The lines of a file to show again."""

    held: RecentFile
    lines: list[str]
    parts: tuple[LineRange, ...]

    @property
    def tokens(self) -> int:
        """The approximate tokens of these lines, with the marks around them."""
        shown = ("".join(self.lines[first:end]) for first, end in self.parts)
        return sum(estimate_tokens(text) + FILE_MARK_TOKENS for text in shown)


class RecentFileHistory(msgspec.Struct):
    """The reads and edits of a file on record."""

    known: str = ""
    seen: dict[int, LineRange] = msgspec.field(default_factory=dict[int, LineRange])
    asked: list[LineRange] = msgspec.field(default_factory=list[LineRange])
    edits: list[str] = msgspec.field(default_factory=list[str])
    first: int = 0


class FileHistories:
    """All files that were read or changed as a whole, the last one at the end."""

    def __init__(self) -> None:
        self._found: dict[str, RecentFileHistory] = {}
        self._reader = ActionReader()
        self._act: ToolAction | None = None
        self._call = ""
        """The call whose result came last, and the action that it completed."""
        self._shown: dict[str, tuple[int, str]] = {}
        """The entry of each result that shows a file, and that file, by call."""

    def by_path(self) -> dict[str, RecentFileHistory]:
        """Return the files by path, the last one first."""
        return {
            what.removeprefix(SEEN_STATE_PREFIX): self._found[what]
            for what in reversed(self._found)
        }

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the entries that came since the last time."""
        for entry in entries:
            act = self._reader.read(entry)
            match entry.fact:
                case Result(call=call):
                    self._act, self._call = act, call
                case Changed(what=what, value=value) if what.startswith(SEEN_STATE_PREFIX):
                    work = self._found.pop(what, RecentFileHistory())
                    self._found[what], work.known = work, value
                    if self._act is not None and _note_shown_lines(work, self._act):
                        self._shown[self._call] = self._act.seq, what
                case Cleared(calls=gone, what="results"):
                    self._forget([call for call in gone if call in self._shown])
                case Compacted(first=first, last=last):
                    self._forget(
                        [call for call, (seq, _) in self._shown.items() if first <= seq <= last]
                    )
                case _:
                    pass

    def _forget(self, calls: Iterable[str]) -> None:
        """Forget the lines of results that are no longer in the conversation."""
        for call in calls:
            seq, what = self._shown.pop(call)
            self._found[what].seen.pop(seq, None)


async def read_recent_files(
    agent: Agent, *, only: Collection[str] | None = None
) -> tuple[RecentFile, ...]:
    """Return the recently used files to restore, last one first; with `only`, just those."""
    if not agent.context.layers.restore:
        return ()
    instructing = set(list_nested_instructions(agent))
    if agent.prompt.instructions is not None:
        instructing |= {file.path for file in agent.prompt.instructions.load_always().files}
    found: list[RecentFile] = []
    for path, work in agent.session.fold(FileHistories).by_path().items():
        if only is not None and path not in only:
            continue
        data = await _read_if_allowed(agent, path) if path not in instructing else b""
        if data and b"\0" not in data:
            text = agent.session.secrets.redact(data.decode("utf-8", errors="replace"))
            same = content_digest(data) == work.known
            found.append(
                RecentFile(
                    path, text, work.seen, tuple(work.asked), tuple(work.edits), same, work.first
                )
            )
        if len(found) == MAX_FILES_READ:
            break
    return tuple(found)


def restore_files(
    held: Iterable[RecentFile],
    kept: Iterable[ViewItem],
    *,
    budget: int,
    names: Mapping[str, float],
    each: int = MAX_FILE_TOKENS,
) -> tuple[Text, ...]:
    """Render as much of the recent files as fits after a compaction, without what is still shown.

    `names` says how often each name was mentioned, which decides where there is too little room;
    `each` is the limit for one file.
    """
    visible = {item.seq for item in kept}
    missing = [lack for one in held if (lack := _find_missing_lines(one, visible))]
    spoken = sorted(missing, key=lambda one: -weigh_file(one.held.path, names))
    best = {one.held.path for one in spoken[:MAX_RESTORED_FILES]}
    chosen = [one for one in missing if one.held.path in best]
    rooms = _share_file_room(chosen, budget, each=each)
    shown = (
        _render_missing_lines(one, room, names) for one, room in zip(chosen, rooms, strict=True)
    )
    parts = [part for part in shown if part]
    body = "\n".join(reversed(parts))
    return (Text(f"<files>\n{RESTORED_FILES_INTRO}\n{body}\n</files>"),) if parts else ()


def _find_missing_lines(recent: RecentFile, visible: Collection[int]) -> MissingLines | None:
    """Return the lines of a file that the model has seen and lost to compaction; None if none."""
    lines = recent.text.splitlines(keepends=True)
    ever = recent.asked if recent.same and recent.asked else ((0, LAST_LINE),)
    left = {at for first, end in ever for at in range(first, min(end, len(lines)))}
    for seq, (first, end) in recent.seen.items() if recent.same else ():
        if seq in visible:
            left.difference_update(range(first, min(end, len(lines))))
    parts = tuple(_group_runs(sorted(left)))
    return MissingLines(recent, lines, parts) if parts else None


def _group_runs(indexes: Sequence[int]) -> Iterator[LineRange]:
    """Yield ranges of consecutive line numbers of a file to restore."""
    start = 0
    for at in range(1, len(indexes) + 1):
        if at == len(indexes) or indexes[at] != indexes[at - 1] + 1:
            yield indexes[start], indexes[at - 1] + 1
            start = at


def _share_file_room(files: Sequence[MissingLines], budget: int, *, each: int) -> list[int]:
    """Divide the room among files to restore: work often returns to files from before the last.

    Short files leave the rest of their share to the others; a share of a few lines helps nobody.
    """
    count = min(len(files), budget // MIN_FILE_TOKENS)
    sizes = [min(each, one.tokens) for one in files[:count]]
    return [*share_budget(sizes, budget), *([0] * (len(files) - count))]


async def show_edited_files(agent: Agent) -> None:
    """Show again the compacted-away parts of files that the last reply edited, once per file.

    Edits come in groups, and each needs the exact text that it replaces. The note is appended, so
    it moves no prefix, and it only takes free room: it never leads to a compaction.
    """
    view = agent.session.view
    edited = list_edited_paths(view) if agent.context.layers.restore else []
    lacking = [path for path in edited if not is_file_in_sight(view, path)]
    if not lacking:
        return
    free = compaction_threshold(agent) - context_tokens(view)
    budget = round(
        min(MAX_EDITED_TOKENS, EDITED_FILES_SHARE * room_beside_head(agent), free)
        / token_ratio(view)
    )
    told = "\n".join(list_note_texts(view))
    places = [
        p
        for path in lacking
        for p in _match_seen_paths(agent, path)
        if _open_file_mark(p) not in told
    ]
    if not places or budget < MIN_EDITED_TOKENS:
        return
    held = await read_recent_files(agent, only=places)
    names = weigh_spoken_names(view.items)
    if texts := restore_files(held, view.items, budget=budget, names=names, each=budget):
        agent.session.append(User(texts, origin="note"))


def _match_seen_paths(agent: Agent, path: str) -> list[str]:
    """Return the session's files that a tool call means by this path."""
    known = [
        what.removeprefix(SEEN_STATE_PREFIX)
        for what in agent.session.state
        if what.startswith(SEEN_STATE_PREFIX)
    ]
    below = f"/{path.removeprefix('./')}"
    return [place for place in known if place == path or place.endswith(below)]


def note_used_skills(entries: Iterable[Entry], used: dict[str, tuple[int, str]]) -> None:
    """Record each skill's last used text, with its entry, the latest one last."""
    for entry in entries:
        if isinstance(entry.fact, Changed) and entry.fact.what.startswith(SKILL_STATE_PREFIX):
            used.pop(entry.fact.what, None)
            used[entry.fact.what] = entry.seq, entry.fact.value


def restore_skills(
    used: Mapping[str, tuple[int, str]], kept: Sequence[ViewItem], *, budget: int
) -> tuple[Text, ...]:
    """Render skills as they were last used, after a compaction, without those still shown."""
    parts: list[str] = []
    for seq, text in reversed(list(used.values())):
        if kept and kept[0].seq < seq:
            continue
        lines = text.splitlines(keepends=True)
        count = count_fitting_lines(lines, min(MAX_SKILL_TOKENS, budget))
        cut = "" if count == len(lines) else "[The rest is omitted: use the skill again.]\n</skill>"
        part = "".join(lines[:count]) + cut
        budget -= estimate_tokens(part)
        parts += [part] if count and budget >= 0 else []
    body = "\n".join(reversed(parts))
    return (Text(f"Skills that you used, with the text they had then:\n{body}"),) if parts else ()


def _note_shown_lines(work: RecentFileHistory, act: ToolAction) -> bool:
    """Record the lines of a file that a tool call showed; return whether there were any."""
    if act.kind == "edit" and (new := act.arg("new_string", "new_str", "insert_text")):
        work.edits = [*work.edits, new][-RECENT_EDITS:]
    if act.kind not in ("read", "write"):
        return False
    first, limit = _positive_argument(act, "offset"), _positive_argument(act, "limit")
    work.first = max(0, first - 1)
    stopped = find_next_page_line(act.text) - 1 if find_next_page_line(act.text) else LAST_LINE
    asked = work.first + limit if limit else LAST_LINE
    work.seen[act.seq] = work.first, min(stopped, asked)
    if (work.first, asked) not in work.asked:
        work.asked.append((work.first, asked))
    return True


def _positive_argument(act: ToolAction, name: str) -> int:
    value = act.args.get(name)
    return value if isinstance(value, int) and value > 0 else 0


async def _read_if_allowed(agent: Agent, path: str) -> bytes:
    """Read a recent file to restore if permission rules allow it without asking; else empty."""
    try:
        place = real_path(path)
        use = ToolUse("Read", (Access("read", place, spelt=path),), agent.world.root, home_folder())
        free = any(is_inside(place, folder) for folder in agent.permissions.guard.folders)
        if not free or decide_permission(agent.permissions.guard, use).effect != "allow":
            return b""
        found = await agent.world.files.stat(place)
        if found is None or found.kind != "file" or found.size > MAX_FILE_BYTES:
            return b""
        return await agent.world.files.read(place)
    except (OSError, ToolError):
        return b""


def _render_missing_lines(lack: MissingLines, tokens: int, names: Mapping[str, float]) -> str:
    """Render the missing lines of a file, or the best passages of it that fit."""
    one, parts = lack.held, lack.parts
    if lack.tokens > tokens:
        changed = _find_changed_lines(one)
        chosen = choose_passages(
            lack.lines, among=parts, names=names, changed=changed, tokens=tokens
        )
        parts = tuple(chosen)
    marked = (_wrap_file_lines(one, lack.lines, start=a, count=b - a) for a, b in parts)
    return "\n".join(marked)


def _find_changed_lines(recent: RecentFile) -> list[int]:
    """Return the lines of a file's last edits, and the line from which it was last read."""
    places = (recent.text.find(new) for new in recent.edits[-RECENT_EDITS:])
    found = [recent.text.count("\n", 0, place) for place in places if place >= 0]
    return [*found, recent.first] if recent.first else found


def _open_file_mark(path: str) -> str:
    """Return the opening tag around restored lines of a file."""
    name = escape_line(path).replace('"', "\\x22")
    return f'<file path="{name}"'


def _wrap_file_lines(recent: RecentFile, lines: list[str], *, start: int, count: int) -> str:
    """Wrap restored lines of a file in tags that give their numbers."""
    mark = content_digest(recent.text.encode(errors="replace"))[:16]
    where = f"{start + 1}-{start + count} of {len(lines)}"
    body = "".join(lines[start : start + count]).removesuffix("\n")
    return f'{_open_file_mark(recent.path)} lines="{where}" mark="{mark}">\n{body}\n</file {mark}>'
