"""Sessions of pi: a tree of JSONL entries, of which the last branch counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.foreign_agent import PI
from travois.compat.sessions.format import (
    WHOLE,
    Compaction,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    call,
    content,
    inner,
    lines,
    moment,
    number,
    objects,
    sessions,
    shortened,
    string,
    texts,
    told,
)

NAME, RESUME = PI.name, PI.resume
NOTES = ("custom_message", "branch_summary")


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield all sessions, in no order."""
    return sessions(PI, PI.home(environ))


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Return the last branch of a session."""
    alive, turns, shorter = _branch(path), list[Spoken](), list[Compaction]()
    places: dict[str, int] = {}
    about: Json = {}
    name = model = ""
    for entry in lines(path):
        if string(entry, "type") == "session":
            about = entry
        if string(entry, "id") not in alive:
            continue
        places[string(entry, "id")] = len(turns)
        if string(entry, "type") == "compaction":
            shorter.append(_shorter(entry, len(turns), places))
        name = string(entry, "name") or name
        model = string(inner(entry, "message"), "model") or model
        turns += shortened(_spoken(entry), longest)
    id, cwd = string(about, "id"), string(about, "cwd")
    return told(
        NAME, path, turns=turns, id=id, cwd=cwd, names=(name,), shorter=shorter, model=model
    )


def _branch(path: Path) -> set[str]:
    """The entries of the branch that ends last; entries without a parent follow each other."""
    parents: dict[str, str] = {}
    last = ""
    for entry in lines(path):
        if (id := string(entry, "id")) and string(entry, "type") != "session":
            parents[id] = string(entry, "parentId") if "parentId" in entry else last
            last = id
    alive: set[str] = set()
    while last and last not in alive:
        alive.add(last)
        last = parents.get(last, "")
    return alive


def _shorter(entry: Json, at: int, places: Mapping[str, int]) -> Compaction:
    first, size = places.get(string(entry, "firstKeptEntryId"), at), number(entry, "tokensBefore")
    return Compaction(at, string(entry, "summary"), at - first, size)


def _spoken(entry: Json) -> Iterator[Spoken]:
    message, at = inner(entry, "message"), moment(entry.get("timestamp"))
    text, shown = content(message.get("content"))
    match string(message, "role"):
        case "user" if text or shown:
            yield Spoken(asked(text), text, at, pictures=shown)
        case "assistant":
            used = (one for one in objects(message, "content") if one.get("type") == "toolCall")
            calls = tuple(call(one, "arguments") for one in used)
            if text or calls:
                yield Spoken("model", text, at, calls)
        case "toolResult":
            id, error = string(message, "toolCallId"), message.get("isError") is True
            yield Spoken("tool", text, at, answers=id, error=error, pictures=shown)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            said = f"$ {string(message, 'command')}\n{string(message, 'output')}"
            yield Spoken("note", said, at)
        case _:
            said = texts(entry.get("content")) or string(entry, "summary")
            if said and string(entry, "type") in NOTES:
                yield Spoken("note", said, at)
