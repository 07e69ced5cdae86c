"""Writes sessions as other agents do: what was said, in each one's own format."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from travois.compat.sessions.format import RecordedTurn
from travois.core.content import Call

Line = dict[str, Any]
CALL = Call("c1", "Edit", '{"file_path":"/w/cache.py"}')
TALK = (
    RecordedTurn("user", "why did we drop redis", 1000.0),
    RecordedTurn("model", "Let me look.", 1001.0, (CALL,)),
    RecordedTurn("tool", "no such file", 1002.0, answers="c1", error=True),
    RecordedTurn("model", "It lost writes.", 1003.0),
)
"""The same little conversation for all agents."""


def stamp(at: float) -> str:
    return f"1970-01-01T00:{int(at) // 60:02}:{int(at) % 60:02}Z"


def put(path: Path, lines: Iterable[Line]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def claude(turns: Iterable[RecordedTurn], *, cwd: str = "/w") -> list[Line]:
    """A chain of lines."""
    lines: list[Line] = []
    for number, turn in enumerate(turns):
        line: Line = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
        line |= {"timestamp": stamp(turn.at), "cwd": cwd, "isSidechain": False, "version": "2.1"}
        lines.append(line | _claude(turn))
    return lines


def _claude(turn: RecordedTurn) -> Line:
    blocks: list[Line] = [{"type": "text", "text": turn.text}] if turn.text else []
    if turn.who == "model":
        for call in turn.calls:
            args = json.loads(call.args)
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": args})
        return {"type": "assistant", "message": {"role": "assistant", "content": blocks}}
    if turn.who == "tool":
        answer: Line = {"type": "tool_result", "tool_use_id": turn.answers, "content": turn.text}
        return {"type": "user", "message": {"content": [answer | {"is_error": turn.error}]}}
    said: Line = {"type": "user", "message": {"role": "user", "content": turn.text}}
    return said | ({"isMeta": True} if turn.who == "note" else {})


def codex(turns: Iterable[RecordedTurn], *, id: str = "thread-1", cwd: str = "/w") -> list[Line]:
    """A first line about the session, and an item for everything said."""
    meta = {"id": id, "cwd": cwd, "cli_version": "0.146.0", "source": "cli"}
    lines: list[Line] = [{"type": "session_meta", "timestamp": stamp(0), "payload": meta}]
    for turn in turns:
        about = {"type": "response_item", "timestamp": stamp(turn.at)}
        lines.extend(about | {"payload": item} for item in _codex(turn))
    return lines


def _codex(turn: RecordedTurn) -> Iterable[Line]:
    if turn.who == "tool":
        yield {"type": "function_call_output", "call_id": turn.answers, "output": turn.text}
        return
    role = {"model": "assistant", "note": "developer"}.get(turn.who, "user")
    if turn.text:
        content = [{"type": "input_text", "text": turn.text}]
        yield {"type": "message", "role": role, "content": content}
    for call in turn.calls:
        asked = {"type": "function_call", "name": call.name, "call_id": call.id}
        yield asked | {"arguments": call.args}


def gemini(turns: Iterable[RecordedTurn]) -> list[Line]:
    """Messages; a call is kept with its result."""
    messages: list[Line] = []
    for turn in turns:
        said = {"id": f"m{len(messages)}", "timestamp": stamp(turn.at), "content": turn.text}
        match turn.who:
            case "tool":
                _finish(messages[-1]["toolCalls"], turn)
            case "model":
                used = [_used(call) for call in turn.calls]
                messages.append(said | {"type": "gemini", "toolCalls": used})
            case _:
                messages.append(said | {"type": "user"})
    return messages


def _used(call: Call) -> Line:
    return {"id": call.id, "name": call.name, "args": json.loads(call.args)}


def _finish(used: list[Line], turn: RecordedTurn) -> None:
    one = next(call for call in used if call["id"] == turn.answers)
    key = "error" if turn.error else "output"
    one["result"] = [{"functionResponse": {"response": {key: turn.text}}}]
    one["status"] = "error" if turn.error else "success"


def opencode(turns: Iterable[RecordedTurn]) -> list[tuple[Line, list[Line]]]:
    """Messages with their parts; a call is kept with its result."""
    messages: list[tuple[Line, list[Line]]] = []
    for turn in turns:
        if turn.who == "tool":
            _state(messages[-1][1], turn)
            continue
        role = "assistant" if turn.who == "model" else "user"
        parts: list[Line] = [{"type": "text", "text": turn.text}] if turn.text else []
        for call in turn.calls:
            state = {"status": "running", "input": json.loads(call.args)}
            parts.append({"type": "tool", "callID": call.id, "tool": call.name, "state": state})
        messages.append(({"role": role, "time": {"created": turn.at * 1000}}, parts))
    return messages


def _state(parts: list[Line], turn: RecordedTurn) -> None:
    one = next(part for part in parts if part.get("callID") == turn.answers)
    done = {"status": "error", "error": turn.text} if turn.error else {"output": turn.text}
    one["state"] |= done


def opencode_files(home: Path, turns: Iterable[RecordedTurn], **about: object) -> Path:
    """The session as opencode's earlier versions keep it."""
    storage = home / "opencode" / "storage"
    session = {"id": "ses_1", "directory": "/w", "title": "Caching", **about}
    for number, (message, parts) in enumerate(opencode(turns)):
        put(storage / "message" / "ses_1" / f"msg_{number:03}.json", [message])
        for order, part in enumerate(parts):
            put(storage / "part" / f"msg_{number:03}" / f"prt_{order:03}.json", [part])
    return put(storage / "session" / "project" / "ses_1.json", [session])


def opencode_database(
    home: Path, turns: Iterable[RecordedTurn], *, revert: Line | None = None
) -> Path:
    """The session as opencode's later versions keep it; returns where the reader sees it."""
    path = home / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as rows:
        rows.executescript(
            "create table session (id, parent_id, directory, title, revert, time_updated);"
            "create table message (id, session_id, time_created, time_updated, data);"
            "create table part (id, message_id, session_id, data);"
        )
        back = json.dumps(revert) if revert else None
        rows.execute("insert into session values ('ses_1', null, '/w', 'Caching', ?, 7)", (back,))
        rows.execute("insert into session values ('ses_2', 'ses_1', '/w', 'Child', null, 7)")
        for number, (message, parts) in enumerate(opencode(turns)):
            id = f"msg_{number:03}"
            row = (id, "ses_1", number, number, json.dumps(message))
            rows.execute("insert into message values (?, ?, ?, ?, ?)", row)
            for order, part in enumerate(parts):
                place = (f"prt_{number:03}_{order:03}", id, "ses_1", json.dumps(part))
                rows.execute("insert into part values (?, ?, ?, ?)", place)
    rows.close()
    return path / "ses_1"
