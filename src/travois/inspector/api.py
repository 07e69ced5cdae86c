"""The inspector's API: a session at a glance, and each of its parts in full."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

import msgspec
from msgspec.structs import replace

from travois.commands.agents import find_agent_folder, iterate_agent_rows
from travois.commands.audit import describe_request_difference
from travois.commands.context import (
    NotesVersion,
    derive_request,
    list_notes_versions,
)
from travois.commands.cost import KindCost, compute_session_cost
from travois.context.ledger.extractors import LedgerTask, find_todo_state, read_todo_list
from travois.context.receipts import CompactionReceipt, list_compaction_receipts
from travois.context.window import list_item_portions
from travois.core.cache_audit import CacheMiss
from travois.core.content import Call, extract_calls
from travois.core.errors import UserError
from travois.core.facts import (
    Asked,
    Assistant,
    Compacted,
    Decided,
    Entry,
    Hooked,
    Spawned,
    ToolSpec,
)
from travois.core.legality import find_send_blocker
from travois.core.models import Usage
from travois.core.view import ViewItem, keep_live_entries
from travois.inspector.fleet import FleetPage, find_fleet_session, has_fleet, read_fleet_page
from travois.inspector.story import (
    REQUEST_LAYERS,
    LogReader,
    RequestStep,
    SessionStory,
    find_step_of_entry,
    layer_of_item,
)
from travois.inspector.transcript import TranscriptPage, build_transcript_page
from travois.presentation import DocumentPart, document_parts
from travois.providers.encoder import RequestEncoder
from travois.providers.request import OUTPUT_LIMIT_MEMBER
from travois.sessions import lock
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import SessionSummary, list_sessions, summarise_session
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME

FetchBlob = Callable[[str], bytes]
MAX_TEXT_CHARS = 2_000
"""Characters of a text that are sent at first."""
MAX_SEARCH_HITS = 200
ITEMS_PER_PAGE = 100
"""Items per page, and how far back the call of a result is looked up."""
CACHE_MARKER_PATTERN = re.compile(rb',"cache_control":\{[^}]*\}')
"""Cache markers, whose position is not part of what a provider caches."""


class Overview(msgspec.Struct, frozen=True):
    """A session at a glance; steps before `first` were sent earlier."""

    first: int
    layers: tuple[str, ...]
    steps: list[RequestStep]
    entries: int
    dollars: float
    usage: Usage
    kinds: dict[str, KindCost]
    misses: tuple[CacheMiss, ...]
    expected: list[bool]
    """Tells for each miss whether a change explains it."""
    compactions: list[CompactionReceipt]
    agents: int
    """Subagents started by a tool call."""
    tasks: tuple[LedgerTask, ...]
    """The current task list."""
    notes: NotesVersion | None
    """The model's notes on the session."""
    damaged: int


class ItemLine(msgspec.Struct, frozen=True):
    """An item as the model saw it."""

    index: int
    entry: int
    layer: str
    tokens: int
    parts: list[DocumentPart]
    """Parts of the item, with long texts cut."""
    lengths: list[int]
    """Full lengths of the texts."""


class RequestDetail(msgspec.Struct, frozen=True):
    """One request: some of its items, and the check of its bytes."""

    step: RequestStep
    lines: list[ItemLine]
    """Items that are new in this request."""
    answer: ItemLine | None
    """The model's reply."""
    gone: int
    """Items of the previous request that are no longer included."""
    system: int
    tools: int
    shared: int
    """Bytes of the prefix shared with the previous request, ignoring markers."""
    problem: str
    """The difference between the rebuilt and the sent request; empty if there is none."""


class RequestHead(msgspec.Struct, frozen=True):
    """System prompt and tools of a request."""

    system: str
    tools: tuple[ToolSpec, ...]


class BodyPart(msgspec.Struct, frozen=True):
    """Part of a request's body."""

    start: int
    text: str
    size: int


class DecisionRow(msgspec.Struct, frozen=True):
    """A permission decision, a question or a hook run."""

    entry: int
    at: float
    kind: str
    by: str
    what: str
    why: str
    step: int


class SearchHit(msgspec.Struct, frozen=True):
    """A search result."""

    entry: int
    at: float
    kind: str
    title: str
    text: str
    step: int


class CompactionDiff(msgspec.Struct, frozen=True):
    """Items that a compaction removed, and their summary."""

    receipt: CompactionReceipt
    dropped: list[ItemLine]
    """The first of the removed items."""
    count: int
    """The number of removed items."""
    tokens: int
    kept: int
    summary: tuple[str, ...]


def build_overview(story: SessionStory, *, first: int, damaged: int) -> Overview:
    """Build the overview of a session."""
    total = compute_session_cost(story.entries)
    misses = total.cache.misses
    started = (entry.fact for entry in story.entries[story.own :])
    return Overview(
        first=first,
        layers=REQUEST_LAYERS,
        steps=story.steps[first:],
        entries=story.entries[-1].seq if story.entries else 0,
        dollars=total.dollars,
        usage=total.usage,
        kinds=total.kinds,
        misses=misses,
        expected=[miss.is_expected for miss in misses],
        compactions=list_compaction_receipts(story.entries) if story.cuts else [],
        agents=len({fact.id for fact in started if isinstance(fact, Spawned) and fact.call != ""}),
        tasks=read_todo_list(find_todo_state(keep_live_entries(story.entries))),
        notes=next(reversed(list_notes_versions(story.entries)), None),
        damaged=damaged,
    )


def describe_request(story: SessionStory, index: int, *, fetch: FetchBlob) -> RequestDetail:
    """Describe one request with the first of its new items."""
    step = _find_step(story, index)
    view = story.view_at(index)
    before = story.steps[index - 1].items if index else 0
    epoch, encoder = view.epoch, RequestEncoder(fetch)
    old = _derive_body(story, index - 1, encoder)[0] if index else b""
    body, problem = _derive_body(story, index, encoder)
    return RequestDetail(
        step=step,
        lines=item_lines(view.items, step.common, step.common + ITEMS_PER_PAGE),
        answer=_item_line(step.items, reply, {})
        if (reply := find_reply_item(story, index))
        else None,
        gone=before - step.common,
        system=len(epoch.system) if epoch else 0,
        tools=len(epoch.tools) if epoch else 0,
        shared=_shared_prefix_bytes(old, body),
        problem=problem,
    )


def item_lines(items: list[ViewItem], first: int, last: int) -> list[ItemLine]:
    """Render a request's items for the inspector, with results under their tools' names."""
    near = (item.fact for item in items[max(0, first - ITEMS_PER_PAGE) : last])
    names = {
        c.id: c.name for f in near if isinstance(f, Assistant) for c in extract_calls(f.content)
    }
    return [_item_line(index, item, names) for index, item in enumerate(items[first:last], first)]


def request_items(story: SessionStory, index: int) -> list[ViewItem]:
    """Return all items of a request and its reply for the inspector."""
    _find_step(story, index)
    reply = find_reply_item(story, index)
    return [*story.view_at(index).items, *([reply] if reply else [])]


def items_cut_by_compaction(story: SessionStory, entry: int) -> list[ViewItem]:
    """Return all items that a compaction removed, for the inspector."""
    if entry not in story.cuts:
        raise UserError(f"There is no compaction at entry {entry}")
    return [*story.cuts[entry].dropped]


def find_reply_item(story: SessionStory, index: int) -> ViewItem | None:
    """Return the reply to a request as an item for the inspector."""
    number = story.steps[index].reply
    at = bisect_left(story.entries, number, key=lambda entry: entry.seq) if number else -1
    fact = story.entries[at].fact if at >= 0 else None
    return ViewItem(number, fact) if isinstance(fact, Assistant) else None


def full_text(item: ViewItem, part: int) -> str:
    """Return a text that the inspector shows in full."""
    found = _item_parts(item)
    if not 0 <= part < len(found):
        raise UserError("There is no such part")
    return found[part].text


def request_head(story: SessionStory, index: int) -> RequestHead:
    """Return the system prompt and tools of a request for the inspector."""
    _find_step(story, index)
    epoch = story.view_at(index).epoch
    return RequestHead(epoch.system, epoch.tools) if epoch else RequestHead("", ())


def request_bytes(
    story: SessionStory, index: int, *, start: int, size: int, fetch: FetchBlob
) -> BodyPart:
    """Return part of a request's bytes for the inspector, cut between characters."""
    _find_step(story, index)
    body, _ = _derive_body(story, index, RequestEncoder(fetch))
    while 0 < start < len(body) and body[start] & 0xC0 == 0x80:
        start -= 1
    end = min(start + size, len(body))
    while end < len(body) and body[end] & 0xC0 == 0x80:
        end += 1
    return BodyPart(start, body[start:end].decode("utf-8", "replace"), len(body))


def list_decisions(story: SessionStory) -> list[DecisionRow]:
    """List permission decisions, questions and hook runs."""
    asked: dict[str, Call] = {}
    found: list[DecisionRow] = []
    for entry in story.entries[story.own :]:
        fact = entry.fact
        if isinstance(fact, Assistant):
            asked |= {call.id: call for call in extract_calls(fact.content)}
        elif isinstance(fact, Decided | Asked | Hooked):
            found.append(_decision_row(story, entry, asked.get(fact.call)))
    return found


def search_story(story: SessionStory, text: str) -> list[SearchHit]:
    """Search the inspected session for texts that contain all words, newest first."""
    wanted = text.casefold().split()
    own = story.entries[story.own :] if wanted else []
    found = (
        part
        for part in document_parts(own)
        if all(word in f"{part.title}\n{part.text}".casefold() for word in wanted)
    )
    return [_search_hit(story, part, wanted[0]) for part in reversed([*found][-MAX_SEARCH_HITS:])]


def describe_compaction(story: SessionStory, entry: int) -> CompactionDiff:
    """Describe what a compaction removed and its summary."""
    receipt = next(
        (one for one in list_compaction_receipts(story.entries) if one.entry == entry), None
    )
    gone = items_cut_by_compaction(story, entry)
    fact = next((one.fact for one in story.entries if one.seq == entry), None)
    if receipt is None or not isinstance(fact, Compacted):
        raise UserError(f"There is no compaction at entry {entry}")
    summary = tuple(part for block in fact.summary if (part := getattr(block, "text", "")))
    size = sum(one.tokens for item in gone for one in list_item_portions(item))
    kept = story.cuts[entry].kept
    return CompactionDiff(
        receipt, item_lines(gone, 0, ITEMS_PER_PAGE), len(gone), size, kept, summary
    )


def read_span_file(story: SessionStory, entry: int, number: int, *, home: Path) -> str:
    """Read a saved span for the inspector; only files in the Travois home are read."""
    receipt = describe_compaction(story, entry).receipt
    if not 0 <= number < len(receipt.spans):
        raise UserError("There is no such span")
    path = Path(receipt.spans[number].file).resolve()
    if not path.is_relative_to(home.resolve()) or not path.is_file():
        raise UserError(f"{path} is not a file that Travois saved")
    return path.read_text("utf-8", errors="replace")


def _find_step(story: SessionStory, index: int) -> RequestStep:
    """Return a request of the session by index; raise `UserError` if there is none."""
    if not 0 <= index < len(story.steps):
        raise UserError(f"There is no request {index}")
    return story.steps[index]


def _item_line(index: int, item: ViewItem, names: Mapping[str, str]) -> ItemLine:
    """Render an item for the inspector with its texts cut."""
    sizes = list(list_item_portions(item))
    kind = layer_of_item(item, sizes[0].kind) if sizes else "notes"
    found = _item_parts(item)
    cut = [
        replace(part, title=names.get(part.title, part.title), text=part.text[:MAX_TEXT_CHARS])
        for part in found
    ]
    lengths = [len(part.text) for part in found]
    return ItemLine(index, item.seq, kind, sum(one.tokens for one in sizes), cut, lengths)


def _item_parts(item: ViewItem) -> list[DocumentPart]:
    return list(document_parts([Entry(item.seq, 0.0, item.fact)]))


def _derive_body(story: SessionStory, index: int, encoder: RequestEncoder) -> tuple[bytes, str]:
    """Rebuild a request for the inspector, and compare it with the one that was sent."""
    view, sent = story.view_at(index), story.request_fact(index)
    if why := find_send_blocker(view):
        return b"", f"could not have been sent: {why}"
    try:
        request = derive_request(view, sent, encoder)
    except KeyError as error:
        return b"", f"an image or document is missing: {error}"
    return request.body, describe_request_difference(request, sent)


def _shared_prefix_bytes(old: bytes, new: bytes) -> int:
    """Return the length of two requests' shared prefix for the inspector, without markers."""
    one, two = (memoryview(_strip_cache_fields(body)) for body in (old, new))
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        same = one[low:middle] == two[low:middle]
        low, high = (middle, high) if same else (low, middle - 1)
    longest = OUTPUT_LIMIT_MEMBER.search(new)
    aside = [longest.span(2)] if longest else []
    for start, end in (*aside, *(marker.span() for marker in CACHE_MARKER_PATTERN.finditer(new))):
        low += end - start if start <= low else 0
    return low


def _strip_cache_fields(body: bytes) -> bytes:
    """Remove fields that may differ without a cache miss."""
    return CACHE_MARKER_PATTERN.sub(b"", OUTPUT_LIMIT_MEMBER.sub(rb"\1", body, count=1))


def _decision_row(story: SessionStory, entry: Entry, call: Call | None) -> DecisionRow:
    """Build the inspector's row for a permission decision, question or hook run."""
    what = f"{call.name} {call.args}"[:MAX_TEXT_CHARS] if call else ""
    step = find_step_of_entry(story, entry.seq)
    match entry.fact:
        case Decided() as fact:
            return DecisionRow(entry.seq, entry.at, fact.verdict, fact.by, what, fact.because, step)
        case Asked() as fact:
            return DecisionRow(
                entry.seq, entry.at, "asked", "person", what, fact.question[:MAX_TEXT_CHARS], step
            )
        case Hooked() as fact:
            why = f"{fact.command}: {fact.outcome}"[:MAX_TEXT_CHARS]
            return DecisionRow(entry.seq, entry.at, "hook", fact.event, what, why, step)
        case _:
            raise AssertionError(entry.fact)


def _search_hit(story: SessionStory, part: DocumentPart, word: str) -> SearchHit:
    """Build the inspector's search result with the text around a word."""
    at = max(0, part.text.casefold().find(word))
    near = " ".join(part.text[max(0, at - 80) : at + 160].split())
    replied = part.kind in ("model", "thinking", "call")
    where = find_step_of_entry(story, part.seq, replied=replied)
    return SearchHit(part.seq, part.at, part.kind, part.title, near, where)


# The API that the page calls.


MAX_OPEN_LOGS = 4
"""Logs that stay in memory."""
RECENT_SECONDS = 3600.0
"""Sessions unused for this many seconds are not checked for a running process."""
BODY_PART_BYTES = 1 << 16
Query = Mapping[str, str]


class ListedSession(msgspec.Struct, frozen=True):
    """An entry of the session list."""

    summary: SessionSummary
    title: str
    live: bool


class InspectorApi:
    """The inspector's API over the sessions of a home, with the last logs cached."""

    def __init__(self, home: TravoisHome) -> None:
        self._home = home
        self._readings: dict[Path, LogReader] = {}
        self._fleet_folders: dict[str, Path] = {}
        self._busy = Lock()

    def answer_question(self, question: str, query: Query) -> object:
        """Answer a question of the page; one at a time."""
        ask = API_QUESTIONS.get(question)
        if ask is None:
            raise UserError(f"There is no question {question!r}")
        with self._busy:
            return ask(self, query)

    def log_path(self, query: Query) -> Path:
        """Return the path of the log."""
        return self._find_folder(query) / LOG_FILE_NAME

    def sessions(self, query: Query) -> list[ListedSession]:
        """List all sessions, newest first."""
        return [
            self._list_session(summary, self._home.session_folder(summary.project, summary.id))
            for summary in list_sessions(self._home)
        ]

    def fleet(self, query: Query) -> FleetPage:
        """Return the tasks of the fleet."""
        return read_fleet_page(self._home)

    def has_fleet(self, query: Query) -> bool:
        """Return whether there is a fleet to show."""
        return has_fleet(self._home)

    def overview(self, query: Query) -> tuple[ListedSession, Overview]:
        """Return a session at a glance."""
        reading = self._read_log(query)
        told = build_overview(
            reading.story, first=_parse_number(query, "first"), damaged=len(reading.skipped)
        )
        folder = self._find_folder({"session": query["session"]})
        return self._list_session(summarise_session(folder), folder), told

    def request(self, query: Query) -> RequestDetail:
        """Return one request."""
        return describe_request(
            self._read_log(query).story, _parse_number(query, "step"), fetch=self._fetcher(query)
        )

    def item_page(self, query: Query) -> list[ItemLine]:
        """Return items of a request, or of those removed by a compaction."""
        found = self._find_items(query)
        first = max(0, _parse_number(query, "first"))
        return item_lines(found, first, min(_parse_number(query, "last"), first + ITEMS_PER_PAGE))

    def item_text(self, query: Query) -> str:
        """Return one text of an item in full."""
        items, number = self._find_items(query), _parse_number(query, "item")
        if not 0 <= number < len(items):
            raise UserError(f"There is no item {number}")
        return full_text(items[number], _parse_number(query, "part"))

    def transcript(self, query: Query) -> TranscriptPage:
        """Return a page of the conversation; the newest, if the query names none."""
        return build_transcript_page(
            self._read_log(query).story,
            first=_parse_number(query, "first", default=-1),
            entry=_parse_number(query, "entry"),
            tool=query.get("tool", ""),
        )

    def head(self, query: Query) -> RequestHead:
        """Return the system prompt and the tools of a request."""
        return request_head(self._read_log(query).story, _parse_number(query, "step"))

    def body_bytes(self, query: Query) -> BodyPart:
        """Return part of a request's bytes."""
        return request_bytes(
            self._read_log(query).story,
            _parse_number(query, "step"),
            start=_parse_number(query, "start"),
            size=_parse_number(query, "size", default=BODY_PART_BYTES),
            fetch=self._fetcher(query),
        )

    def decisions(self, query: Query) -> list[DecisionRow]:
        """List permission decisions, questions and hook runs."""
        return list_decisions(self._read_log(query).story)

    def search(self, query: Query) -> list[SearchHit]:
        """Search the texts of a session."""
        return search_story(self._read_log(query).story, query.get("words", ""))

    def diff(self, query: Query) -> CompactionDiff:
        """Return what a compaction removed."""
        return describe_compaction(self._read_log(query).story, _parse_number(query, "compaction"))

    def span(self, query: Query) -> str:
        """Return a saved span of a compaction."""
        story, entry = self._read_log(query).story, _parse_number(query, "compaction")
        return read_span_file(
            story, entry, _parse_number(query, "span"), home=self._find_home(query)
        )

    def agents(self, query: Query) -> list[object]:
        """List the agents of a session as a tree."""
        return [*iterate_agent_rows(self._find_folder({"session": query.get("session", "")}), [])]

    def _find_items(self, query: Query) -> list[ViewItem]:
        story, entry = self._read_log(query).story, _parse_number(query, "compaction")
        if entry:
            return items_cut_by_compaction(story, entry)
        return request_items(story, _parse_number(query, "step"))

    def _list_session(self, summary: SessionSummary, folder: Path) -> ListedSession:
        recent = time.time() - summary.updated < RECENT_SECONDS
        return ListedSession(
            summary, summary.title, recent and lock.find_lock_holder(folder) is not None
        )

    def _find_folder(self, query: Query) -> Path:
        """Find a session's folder; a name that is no plain session id finds none."""
        session, agent = query.get("session", ""), query.get("agent", "")
        named = session == Path(session).name and session not in ("", "..")
        places = (path / session for path in self._home.sessions.iterdir()) if named else ()
        found = next((path for path in places if (path / LOG_FILE_NAME).is_file()), None)
        if found is None and named:
            found = self._find_fleet_folder(session)
        if found is None:
            raise UserError(f"There is no session {session!r}")
        return find_agent_folder(found, agent) if agent else found

    def _find_fleet_folder(self, session: str) -> Path | None:
        found = self._fleet_folders.get(session) or find_fleet_session(self._home, session)
        if found is not None:
            self._fleet_folders[session] = found
        return found

    def _find_home(self, query: Query) -> Path:
        """Return the home that holds a session: a fleet task has one of its own."""
        return self._find_folder({"session": query.get("session", "")}).parents[2]

    def _fetcher(self, query: Query) -> FetchBlob:
        return BlobStore(TravoisHome(self._find_home(query)).blobs).get

    def _read_log(self, query: Query) -> LogReader:
        folder = self._find_folder(query)
        reading = self._readings.pop(folder, None) or LogReader(folder)
        self._readings[folder] = reading
        while len(self._readings) > MAX_OPEN_LOGS:
            del self._readings[next(iter(self._readings))]
        reading.update()
        return reading


API_QUESTIONS: dict[str, Callable[[InspectorApi, Query], object]] = {
    "sessions": InspectorApi.sessions,
    "fleet": InspectorApi.fleet,
    "has-fleet": InspectorApi.has_fleet,
    "overview": InspectorApi.overview,
    "transcript": InspectorApi.transcript,
    "seen": InspectorApi.request,
    "items": InspectorApi.item_page,
    "text": InspectorApi.item_text,
    "head": InspectorApi.head,
    "bytes": InspectorApi.body_bytes,
    "choices": InspectorApi.decisions,
    "search": InspectorApi.search,
    "diff": InspectorApi.diff,
    "span": InspectorApi.span,
    "agents": InspectorApi.agents,
}


def _parse_number(query: Query, name: str, *, default: int = 0) -> int:
    """Parse a whole number in a query of the inspector's API."""
    text = query.get(name, str(default))
    if not text.removeprefix("-").isdecimal() or len(text) > 15:
        raise UserError(f"{name} must be a number, not {text!r}")
    return int(text)
