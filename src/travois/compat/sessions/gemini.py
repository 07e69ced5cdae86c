"""Sessions of Gemini CLI: one JSON document, or JSONL in later versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.foreign_agent import GEMINI
from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    build_recorded_session,
    classify_user_text,
    decode_json_object,
    find_session_files,
    object_at,
    objects_at,
    parse_recorded_call,
    parse_timestamp,
    read_json_lines,
    shorten_turns,
    split_content,
    string_at,
)

GEMINI_AGENT, RESUME = GEMINI.name, GEMINI.resume
MAX_DOCUMENT_BYTES = 1 << 28


def find_sessions(environ: Mapping[str, str]) -> Iterator[SessionFile]:
    """Yield all Gemini CLI sessions, in no order; one continued as JSONL counts once."""
    return (
        one
        for one in find_session_files(GEMINI, GEMINI.find_home(environ))
        if not _has_jsonl_twin(one.path)
    )


def _has_jsonl_twin(path: Path) -> bool:
    return path.suffix == ".json" and path.with_suffix(".jsonl").exists()


def read_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read a Gemini CLI session; one that another started has no turns of its own."""
    about, said = (_read_jsonl_session if path.suffix == ".jsonl" else _read_json_session)(
        path, longest
    )
    turns = [turn for message in said.values() for turn in message]
    if string_at(about, "kind") == "subagent":
        turns = []
    id, names = string_at(about, "sessionId"), (string_at(about, "summary"),)
    return build_recorded_session(
        GEMINI_AGENT, path, turns=turns, id=id, cwd=_read_project_root(path), names=names
    )


TurnsByMessage = dict[str, tuple[RecordedTurn, ...]]


def _read_json_session(path: Path, longest: int) -> tuple[Json, TurnsByMessage]:
    """Read a Gemini CLI session from one JSON document; empty if it is too large or invalid."""
    whole = path.stat().st_size <= MAX_DOCUMENT_BYTES and decode_json_object(path.read_bytes())
    if not whole:
        return {}, {}
    return whole, _parse_messages(whole, longest)


def _read_jsonl_session(path: Path, longest: int) -> tuple[Json, TurnsByMessage]:
    """Read a Gemini CLI session from JSONL, applying its rewinds and updates."""
    about: Json = {}
    said: TurnsByMessage = {}
    for record in read_json_lines(path):
        if back := string_at(record, "$rewindTo"):
            ids = list(said)
            for id in ids[ids.index(back) if back in said else 0 :]:
                del said[id]
        elif "$set" in record:
            about |= object_at(record, "$set")
        elif id := string_at(record, "id"):
            said[id] = tuple(shorten_turns(_parse_gemini_turns(record), longest))
        else:
            about |= record
    return about, _parse_messages(about, longest) or said


def _parse_messages(about: Json, longest: int) -> TurnsByMessage:
    """Parse the messages of a Gemini CLI session into turns, by message id."""
    return {
        string_at(message, "id") or str(number): tuple(
            shorten_turns(_parse_gemini_turns(message), longest)
        )
        for number, message in enumerate(objects_at(about, "messages"))
    }


def _parse_gemini_turns(message: Json) -> Iterator[RecordedTurn]:
    """Yield the turns in one message of a Gemini CLI session."""
    at, (text, shown) = (
        parse_timestamp(message.get("timestamp")),
        split_content(message.get("content")),
    )
    match string_at(message, "type"):
        case "user" if text or shown:
            yield RecordedTurn(classify_user_text(text), text, at, pictures=shown)
        case "gemini":
            used = objects_at(message, "toolCalls")
            yield RecordedTurn(
                "model", text, at, tuple(parse_recorded_call(one, "args") for one in used)
            )
            yield from (_parse_tool_call_result(one, at) for one in used)
        case "error" if text:
            yield RecordedTurn("tool", text, at, error=True)
        case _:
            pass


def _parse_tool_call_result(used: Json, at: float) -> RecordedTurn:
    """Parse the result of a tool call in a Gemini CLI session into a turn."""
    responses = [
        object_at(one, "functionResponse", "response") for one in objects_at(used, "result")
    ]
    words = [string_at(one, "output") or string_at(one, "error") for one in responses]
    text = "\n".join(filter(None, words)) or string_at(used, "resultDisplay")
    error = string_at(used, "status") == "error"
    return RecordedTurn("tool", text, at, answers=string_at(used, "id"), error=error)


def _read_project_root(path: Path) -> str:
    """Read the project folder that a Gemini CLI session belongs to; empty if it is unknown."""
    try:
        return (path.parents[1] / ".project_root").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
