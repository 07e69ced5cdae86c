"""Sessions in the traj/1 format, plain or gzipped."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedCompaction,
    RecordedSession,
    RecordedTurn,
    build_recorded_session,
    decode_json_object,
    encode_arguments,
    int_at,
    join_texts,
    object_at,
    objects_at,
    parse_timestamp,
    shorten_turns,
    string_at,
)
from travois.core.content import Call
from travois.core.errors import UserError

TRAJ_AGENT, TRAJ_FORMAT = "traj", "traj/1"
GZIP_MAGIC = b"\x1f\x8b"


def read_traj_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read a traj/1 session; raises OSError, and `UserError` if the file has none."""
    first, *records = read_traj_records(path)
    turns: list[RecordedTurn] = []
    shorter: list[RecordedCompaction] = []
    for record in records:
        if string_at(record, "type") == "message":
            turns += shorten_turns(_parse_traj_turns(record), longest)
        elif string_at(record, "type") == "compaction" and not record.get("opaque"):
            size = int_at(record, "pre_tokens")
            shorter.append(
                RecordedCompaction(len(turns), string_at(record, "summary"), tokens=size)
            )
    id, cwd = string_at(first, "id"), string_at(first, "cwd")
    model = next(reversed(object_at(first, "models")), "")
    agent = string_at(first, "agent")
    return build_recorded_session(
        agent, path, turns=turns, id=id, cwd=cwd, shorter=shorter, model=model
    )


def read_traj_records(path: Path) -> list[Json]:
    """Read all records of a traj/1 file: first the session, then messages and compactions."""
    data = path.read_bytes()
    try:
        text = gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"Cannot decompress {path}", why=str(error)) from None
    found = [
        record for line in text.splitlines() if (record := decode_json_object(line)) is not None
    ]
    if not found or string_at(found[0], "format") != TRAJ_FORMAT:
        raise UserError(
            f"{path} is not a recorded session",
            why=f"its first line is not in the {TRAJ_FORMAT} format",
        )
    return found


def _parse_traj_turns(record: Json) -> Iterator[RecordedTurn]:
    """Yield the turns in one record of a traj/1 session."""
    at, blocks = parse_timestamp(record.get("ts")), objects_at(record, "content")
    text = join_texts([one for one in blocks if string_at(one, "type") == "text"])
    if string_at(record, "role") == "assistant":
        calls = tuple(
            _parse_traj_call(one) for one in blocks if string_at(one, "type") == "tool_use"
        )
        if text or calls:
            yield RecordedTurn("model", text, at, calls)
        return
    for one in blocks:
        if string_at(one, "type") == "tool_result":
            said, error = join_texts(one.get("content")), one.get("is_error") is True
            yield RecordedTurn("tool", said, at, answers=string_at(one, "tool_use_id"), error=error)
    if text:
        yield RecordedTurn("user" if string_at(record, "origin") == "human" else "note", text, at)


def _parse_traj_call(block: Json) -> Call:
    """Parse a tool call of a traj/1 session; arguments that are no object are put in one."""
    args = block.get("input")
    whole = object_at(block, "input") if isinstance(args, dict) else {"input": args}
    return Call(string_at(block, "id"), string_at(block, "name"), encode_arguments(whole))
