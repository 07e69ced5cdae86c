"""Sessions of Gemini CLI: one JSON document each, or in later versions lines that add up to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.kernel.blocks import Call
from travois.store.recorded.spoken import (
    WHOLE,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    cut,
    decode,
    encoded,
    folder,
    headline,
    inner,
    latest,
    lines,
    moment,
    objects,
    pictures,
    stamped,
    string,
    texts,
)

NAME, RESUME = "gemini", "gemini --resume {id}"
LARGEST = 1 << 28


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """All sessions, in no order; one that was gone on with in the later form counts once."""
    home = folder(environ, "GEMINI_CLI_HOME")
    for path in home.glob(".gemini/tmp/*/chats/session-*.json*") if home else ():
        twin = path.suffix == ".json" and path.with_suffix(".jsonl").exists()
        if path.suffix in (".json", ".jsonl") and not twin and (found := stamped(NAME, path)):
            yield found


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """A session; one that another one started has no turns of its own."""
    about, said = (_lines if path.suffix == ".jsonl" else _document)(path, longest)
    turns = [turn for message in said.values() for turn in message]
    if string(about, "kind") == "subagent":
        turns = []
    title, id = headline(turns, string(about, "summary")), string(about, "sessionId")
    return Recorded(NAME, id or path.stem, path, _cwd(path), latest(turns), title, tuple(turns))


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
            said[id] = tuple(_spoken(record, longest))
        else:
            about |= record
    return about, _messages(about, longest) or said


def _messages(about: Json, longest: int) -> Said:
    return {
        string(message, "id") or str(number): tuple(_spoken(message, longest))
        for number, message in enumerate(objects(about, "messages"))
    }


def _spoken(message: Json, longest: int) -> Iterator[Spoken]:
    at, text = moment(message.get("timestamp")), cut(texts(message.get("content")), longest)
    shown = pictures(message.get("content"), longest)
    match string(message, "type"):
        case "user" if text or shown:
            yield Spoken(asked(text), text, at, pictures=shown)
        case "gemini":
            used = objects(message, "toolCalls")
            yield Spoken("model", text, at, tuple(map(_call, used)))
            yield from (_answer(one, at, longest) for one in used)
        case "error" if text:
            yield Spoken("tool", text, at, error=True)
        case _:
            pass


def _call(used: Json) -> Call:
    return Call(string(used, "id"), string(used, "name"), encoded(used.get("args", {})))


def _answer(used: Json, at: float, longest: int) -> Spoken:
    responses = [inner(one, "functionResponse", "response") for one in objects(used, "result")]
    words = [string(one, "output") or string(one, "error") for one in responses]
    text = "\n".join(filter(None, words)) or string(used, "resultDisplay")
    error = string(used, "status") == "error"
    return Spoken("tool", cut(text, longest), at, answers=string(used, "id"), error=error)


def _cwd(path: Path) -> str:
    try:
        return (path.parents[1] / ".project_root").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
