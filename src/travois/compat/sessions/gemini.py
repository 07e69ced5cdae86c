"""Sessions of Gemini CLI: one JSON document, or JSONL in later versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.foreign_agent import GEMINI
from travois.compat.sessions.format import (
    WHOLE,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    call,
    content,
    decode,
    inner,
    lines,
    moment,
    objects,
    sessions,
    shortened,
    string,
    told,
)

NAME, RESUME = GEMINI.name, GEMINI.resume
LARGEST, ENDS = 1 << 28, (".json", ".jsonl")


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield all sessions, in no order; one that was gone on with in the later form counts once."""
    return (one for one in sessions(GEMINI, GEMINI.home(environ)) if not _twin(one.path))


def _twin(path: Path) -> bool:
    return path.suffix == ".json" and path.with_suffix(".jsonl").exists()


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Return a session; one that another one started has no turns of its own."""
    about, said = (_lines if path.suffix == ".jsonl" else _document)(path, longest)
    turns = [turn for message in said.values() for turn in message]
    if string(about, "kind") == "subagent":
        turns = []
    id, names = string(about, "sessionId"), (string(about, "summary"),)
    return told(NAME, path, turns=turns, id=id, cwd=_cwd(path), names=names)


Said = dict[str, tuple[Spoken, ...]]


def _document(path: Path, longest: int) -> tuple[Json, Said]:
    whole = path.stat().st_size <= LARGEST and decode(path.read_bytes())
    if not whole:
        return {}, {}
    return whole, _messages(whole, longest)


def _lines(path: Path, longest: int) -> tuple[Json, Said]:
    about: Json = {}
    said: Said = {}
    for record in lines(path):
        if back := string(record, "$rewindTo"):
            ids = list(said)
            for id in ids[ids.index(back) if back in said else 0 :]:
                del said[id]
        elif "$set" in record:
            about |= inner(record, "$set")
        elif id := string(record, "id"):
            said[id] = tuple(shortened(_spoken(record), longest))
        else:
            about |= record
    return about, _messages(about, longest) or said


def _messages(about: Json, longest: int) -> Said:
    return {
        string(message, "id") or str(number): tuple(shortened(_spoken(message), longest))
        for number, message in enumerate(objects(about, "messages"))
    }


def _spoken(message: Json) -> Iterator[Spoken]:
    at, (text, shown) = moment(message.get("timestamp")), content(message.get("content"))
    match string(message, "type"):
        case "user" if text or shown:
            yield Spoken(asked(text), text, at, pictures=shown)
        case "gemini":
            used = objects(message, "toolCalls")
            yield Spoken("model", text, at, tuple(call(one, "args") for one in used))
            yield from (_answer(one, at) for one in used)
        case "error" if text:
            yield Spoken("tool", text, at, error=True)
        case _:
            pass


def _answer(used: Json, at: float) -> Spoken:
    responses = [inner(one, "functionResponse", "response") for one in objects(used, "result")]
    words = [string(one, "output") or string(one, "error") for one in responses]
    text = "\n".join(filter(None, words)) or string(used, "resultDisplay")
    error = string(used, "status") == "error"
    return Spoken("tool", text, at, answers=string(used, "id"), error=error)


def _cwd(path: Path) -> str:
    try:
        return (path.parents[1] / ".project_root").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
