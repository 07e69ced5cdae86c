"""Sessions in the traj/1 format, plain or gzipped."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from travois.compat.sessions.format import (
    WHOLE,
    Compaction,
    Json,
    Recorded,
    Spoken,
    decode,
    encoded,
    inner,
    moment,
    number,
    objects,
    shortened,
    string,
    texts,
    told,
)
from travois.core.content import Call
from travois.core.errors import UserError

NAME, FORMAT = "traj", "traj/1"
PACKED = b"\x1f\x8b"


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Read a session; raises OSError, and `UserError` if the file holds none."""
    first, *records = rows(path)
    turns: list[Spoken] = []
    shorter: list[Compaction] = []
    for record in records:
        if string(record, "type") == "message":
            turns += shortened(_spoken(record), longest)
        elif string(record, "type") == "compaction" and not record.get("opaque"):
            size = number(record, "pre_tokens")
            shorter.append(Compaction(len(turns), string(record, "summary"), tokens=size))
    id, cwd = string(first, "id"), string(first, "cwd")
    model = next(reversed(inner(first, "models")), "")
    agent = string(first, "agent")
    return told(agent, path, turns=turns, id=id, cwd=cwd, shorter=shorter, model=model)


def rows(path: Path) -> list[Json]:
    """All lines; the first tells of the session, and the others of messages and compactions."""
    data = path.read_bytes()
    try:
        text = gzip.decompress(data) if data.startswith(PACKED) else data
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"Cannot decompress {path}", why=str(error)) from None
    found = [record for line in text.splitlines() if (record := decode(line)) is not None]
    if not found or string(found[0], "format") != FORMAT:
        raise UserError(
            f"{path} is not a recorded session", why=f"its first line is not in the {FORMAT} format"
        )
    return found


def _spoken(record: Json) -> Iterator[Spoken]:
    at, blocks = moment(record.get("ts")), objects(record, "content")
    text = texts([one for one in blocks if string(one, "type") == "text"])
    if string(record, "role") == "assistant":
        calls = tuple(_call(one) for one in blocks if string(one, "type") == "tool_use")
        if text or calls:
            yield Spoken("model", text, at, calls)
        return
    for one in blocks:
        if string(one, "type") == "tool_result":
            said, error = texts(one.get("content")), one.get("is_error") is True
            yield Spoken("tool", said, at, answers=string(one, "tool_use_id"), error=error)
    if text:
        yield Spoken("user" if string(record, "origin") == "human" else "note", text, at)


def _call(block: Json) -> Call:
    """Return a call; arguments that are no object, as some agents have them, become one."""
    args = block.get("input")
    whole = inner(block, "input") if isinstance(args, dict) else {"input": args}
    return Call(string(block, "id"), string(block, "name"), encoded(whole))
