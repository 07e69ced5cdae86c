"""Sessions of Codex: JSONL lines in order, some of them rolled back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.foreign_agent import CODEX
from travois.compat.sessions.format import (
    WHOLE,
    Compaction,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    content,
    encoded,
    inner,
    lines,
    moment,
    number,
    sessions,
    shortened,
    string,
    told,
)
from travois.core.content import Call

NAME, RESUME = CODEX.name, CODEX.resume
FAILED = re.compile(r'(?:exit code:? |exited with code |"exit_code": ?)[1-9]', re.IGNORECASE)
CWD = re.compile(r"<cwd>(.+?)</cwd>|working directory: (\S+)")


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield all sessions, in no order."""
    return sessions(CODEX, CODEX.home(environ))


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Return a session; a thread that another one started has no turns of its own."""
    turns: list[Spoken] = []
    shorter: list[Compaction] = []
    id = cwd = model = ""
    for place, record in enumerate(lines(path)):
        payload = inner(record, "payload") or record
        if place == 0:
            id, cwd = string(payload, "id"), string(payload, "cwd")
            if inner(payload, "source"):
                return told(NAME, path, turns=[])
        if string(payload, "type") == "thread_rolled_back":
            _take_back(turns, number(payload, "num_turns"))
            shorter = [one for one in shorter if one.at <= len(turns)]
        if string(record, "type") == "compacted" and string(payload, "message"):
            shorter.append(Compaction(len(turns), string(payload, "message")))
        if string(record, "type") == "turn_context":
            model = string(payload, "model") or model
        if string(record, "type") != "event_msg":
            turns += shortened(_spoken(payload, moment(record.get("timestamp"))), longest)
    cwd = cwd or next((_cwd(turn.text) for turn in turns if _cwd(turn.text)), "")
    id = id or path.stem[-36:]
    return told(NAME, path, turns=turns, id=id, cwd=cwd, shorter=shorter, model=model)


def _take_back(turns: list[Spoken], prompts: int) -> None:
    """Forget so many prompts of the user, and all that came of them."""
    for _ in range(prompts):
        while turns and turns.pop().who != "user":
            pass


def _spoken(item: Json, at: float) -> Iterator[Spoken]:
    match string(item, "type"):
        case "message":
            text, shown = content(item.get("content"))
            role = string(item, "role")
            who = "model" if role == "assistant" else asked(text) if role == "user" else "note"
            if text or shown:
                yield Spoken(who, text, at, pictures=shown)
        case "function_call":
            yield _called(item, string(item, "arguments"), at)
        case "custom_tool_call":
            yield _called(item, encoded({"input": string(item, "input")}), at)
        case "local_shell_call":
            yield _called(item, encoded(inner(item, "action")), at)
        case "function_call_output" | "custom_tool_call_output":
            yield _answered(item, at)
        case _:
            pass


def _called(item: Json, args: str, at: float) -> Spoken:
    name = string(item, "name") or "shell"
    return Spoken("model", "", at, (Call(string(item, "call_id"), name, args),))


def _answered(item: Json, at: float) -> Spoken:
    output = inner(item, "output")
    text, shown = content(output.get("content") if output else item.get("output"))
    error = output.get("success") is False or bool(FAILED.search(text[:400]))
    return Spoken("tool", text, at, answers=string(item, "call_id"), error=error, pictures=shown)


def _cwd(text: str) -> str:
    """Return the folder that early versions name only in a message to the model."""
    found = CWD.search(text[:2000])
    return (found[1] or found[2]).strip() if found else ""
