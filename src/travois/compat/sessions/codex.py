"""Sessions of Codex: JSONL lines in order, some of them rolled back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.foreign_agent import CODEX
from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedCompaction,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    build_recorded_session,
    classify_user_text,
    encode_arguments,
    find_session_files,
    int_at,
    object_at,
    parse_timestamp,
    read_json_lines,
    shorten_turns,
    split_content,
    string_at,
)
from travois.core.content import Call

CODEX_AGENT, RESUME = CODEX.name, CODEX.resume
FAILED_COMMAND_PATTERN = re.compile(
    r'(?:exit code:? |exited with code |"exit_code": ?)[1-9]', re.IGNORECASE
)
CWD_PATTERN = re.compile(r"<cwd>(.+?)</cwd>|working directory: (\S+)")


def find_sessions(environ: Mapping[str, str]) -> Iterator[SessionFile]:
    """Yield all Codex sessions, in no order."""
    return find_session_files(CODEX, CODEX.find_home(environ))


def read_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read a Codex session; a thread that another one started has no turns of its own."""
    turns: list[RecordedTurn] = []
    shorter: list[RecordedCompaction] = []
    id = cwd = model = ""
    for place, record in enumerate(read_json_lines(path)):
        payload = object_at(record, "payload") or record
        if place == 0:
            id, cwd = string_at(payload, "id"), string_at(payload, "cwd")
            if object_at(payload, "source"):
                return build_recorded_session(CODEX_AGENT, path, turns=[])
        if string_at(payload, "type") == "thread_rolled_back":
            _roll_back_turns(turns, int_at(payload, "num_turns"))
            shorter = [one for one in shorter if one.at <= len(turns)]
        if string_at(record, "type") == "compacted" and string_at(payload, "message"):
            shorter.append(RecordedCompaction(len(turns), string_at(payload, "message")))
        if string_at(record, "type") == "turn_context":
            model = string_at(payload, "model") or model
        if string_at(record, "type") != "event_msg":
            turns += shorten_turns(
                _parse_codex_turns(payload, parse_timestamp(record.get("timestamp"))), longest
            )
    cwd = cwd or next(
        (_find_cwd_in_text(turn.text) for turn in turns if _find_cwd_in_text(turn.text)), ""
    )
    id = id or path.stem[-36:]
    return build_recorded_session(
        CODEX_AGENT, path, turns=turns, id=id, cwd=cwd, shorter=shorter, model=model
    )


def _roll_back_turns(turns: list[RecordedTurn], prompts: int) -> None:
    """Remove a Codex session's last prompts, with everything that followed them."""
    for _ in range(prompts):
        while turns and turns.pop().who != "user":
            pass


def _parse_codex_turns(item: Json, at: float) -> Iterator[RecordedTurn]:
    """Yield the turns in one item of a Codex session."""
    match string_at(item, "type"):
        case "message":
            text, shown = split_content(item.get("content"))
            role = string_at(item, "role")
            who = (
                "model"
                if role == "assistant"
                else classify_user_text(text)
                if role == "user"
                else "note"
            )
            if text or shown:
                yield RecordedTurn(who, text, at, pictures=shown)
        case "function_call":
            yield _codex_call_turn(item, string_at(item, "arguments"), at)
        case "custom_tool_call":
            yield _codex_call_turn(item, encode_arguments({"input": string_at(item, "input")}), at)
        case "local_shell_call":
            yield _codex_call_turn(item, encode_arguments(object_at(item, "action")), at)
        case "function_call_output" | "custom_tool_call_output":
            yield _codex_result_turn(item, at)
        case _:
            pass


def _codex_call_turn(item: Json, args: str, at: float) -> RecordedTurn:
    name = string_at(item, "name") or "shell"
    return RecordedTurn("model", "", at, (Call(string_at(item, "call_id"), name, args),))


def _codex_result_turn(item: Json, at: float) -> RecordedTurn:
    """Parse a tool output of a Codex session into a turn."""
    output = object_at(item, "output")
    text, shown = split_content(output.get("content") if output else item.get("output"))
    error = output.get("success") is False or bool(FAILED_COMMAND_PATTERN.search(text[:400]))
    return RecordedTurn(
        "tool", text, at, answers=string_at(item, "call_id"), error=error, pictures=shown
    )


def _find_cwd_in_text(text: str) -> str:
    """Return the folder that old Codex sessions name only in a message to the model."""
    found = CWD_PATTERN.search(text[:2000])
    return (found[1] or found[2]).strip() if found else ""
