"""Sessions of pi: a tree of JSONL entries, of which the last branch counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.foreign_agent import PI
from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedCompaction,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    build_recorded_session,
    classify_user_text,
    find_session_files,
    int_at,
    join_texts,
    object_at,
    objects_at,
    parse_recorded_call,
    parse_timestamp,
    read_json_lines,
    shorten_turns,
    split_content,
    string_at,
)

PI_AGENT, RESUME = PI.name, PI.resume
NOTE_ENTRY_TYPES = ("custom_message", "branch_summary")


def find_sessions(environ: Mapping[str, str]) -> Iterator[SessionFile]:
    """Yield all pi sessions, in no order."""
    return find_session_files(PI, PI.find_home(environ))


def read_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read the last branch of a pi session."""
    alive, turns, shorter = (
        _current_branch_ids(path),
        list[RecordedTurn](),
        list[RecordedCompaction](),
    )
    places: dict[str, int] = {}
    about: Json = {}
    name = model = ""
    for entry in read_json_lines(path):
        if string_at(entry, "type") == "session":
            about = entry
        if string_at(entry, "id") not in alive:
            continue
        places[string_at(entry, "id")] = len(turns)
        if string_at(entry, "type") == "compaction":
            shorter.append(_parse_compaction(entry, len(turns), places))
        name = string_at(entry, "name") or name
        model = string_at(object_at(entry, "message"), "model") or model
        turns += shorten_turns(_parse_pi_turns(entry), longest)
    id, cwd = string_at(about, "id"), string_at(about, "cwd")
    return build_recorded_session(
        PI_AGENT, path, turns=turns, id=id, cwd=cwd, names=(name,), shorter=shorter, model=model
    )


def _current_branch_ids(path: Path) -> set[str]:
    """Return the entry IDs of a pi session's last branch; without parents, in file order."""
    parents: dict[str, str] = {}
    last = ""
    for entry in read_json_lines(path):
        if (id := string_at(entry, "id")) and string_at(entry, "type") != "session":
            parents[id] = string_at(entry, "parentId") if "parentId" in entry else last
            last = id
    alive: set[str] = set()
    while last and last not in alive:
        alive.add(last)
        last = parents.get(last, "")
    return alive


def _parse_compaction(entry: Json, at: int, places: Mapping[str, int]) -> RecordedCompaction:
    """Parse a compaction entry of a pi session."""
    first, size = (
        places.get(string_at(entry, "firstKeptEntryId"), at),
        int_at(entry, "tokensBefore"),
    )
    return RecordedCompaction(at, string_at(entry, "summary"), at - first, size)


def _parse_pi_turns(entry: Json) -> Iterator[RecordedTurn]:
    """Yield the turns in one entry of a pi session."""
    message, at = object_at(entry, "message"), parse_timestamp(entry.get("timestamp"))
    text, shown = split_content(message.get("content"))
    match string_at(message, "role"):
        case "user" if text or shown:
            yield RecordedTurn(classify_user_text(text), text, at, pictures=shown)
        case "assistant":
            used = (one for one in objects_at(message, "content") if one.get("type") == "toolCall")
            calls = tuple(parse_recorded_call(one, "arguments") for one in used)
            if text or calls:
                yield RecordedTurn("model", text, at, calls)
        case "toolResult":
            id, error = string_at(message, "toolCallId"), message.get("isError") is True
            yield RecordedTurn("tool", text, at, answers=id, error=error, pictures=shown)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            said = f"$ {string_at(message, 'command')}\n{string_at(message, 'output')}"
            yield RecordedTurn("note", said, at)
        case _:
            said = join_texts(entry.get("content")) or string_at(entry, "summary")
            if said and string_at(entry, "type") in NOTE_ENTRY_TYPES:
                yield RecordedTurn("note", said, at)
