"""Recorded sessions of any agent in one format, and tolerant JSON readers for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal, cast

import msgspec
from msgspec.structs import replace

from travois.compat.foreign_agent import ForeignAgent
from travois.core.content import Call

# A session that some agent has recorded, in words that are the same for all agents.


Who = Literal["user", "model", "tool", "note"]
"""A person, the model, what a tool answered, or what a harness put in between."""
WHOLE = 1 << 40
"""So many characters of each text that nothing is cut."""


class Found(msgspec.Struct, frozen=True):
    """A session file; its stamp changes with its content."""

    agent: str
    path: Path
    stamp: str
    at: float = 0.0
    """When it last changed."""


class Picture(msgspec.Struct, frozen=True):
    """An image or a document of a turn, as base64."""

    mime: str
    data: str


class Spoken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn: a message, with the tools that it calls or the call that it answers."""

    who: Who
    text: str
    at: float = 0.0
    calls: tuple[Call, ...] = ()
    answers: str = ""
    error: bool = False
    pictures: tuple[Picture, ...] = ()


class Compaction(msgspec.Struct, frozen=True):
    """A compaction: a summary that replaced all but the last turns before it."""

    at: int
    """The number of turns before it."""
    summary: str
    kept: int = 0
    """The number of those turns that the model went on seeing."""
    tokens: int = 0
    """The window in use by then, as far as that was recorded."""


class Recorded(msgspec.Struct, frozen=True):
    """A recorded session: its last branch, without what was taken back."""

    agent: str
    id: str
    path: Path
    cwd: str
    at: float
    """When the last word was said."""
    title: str
    turns: tuple[Spoken, ...]
    compactions: tuple[Compaction, ...] = ()
    model: str = ""
    """Who answered last."""


# JSON that other agents wrote, read without believing it: what has another shape is absent.


Json = dict[str, object]
LONGEST_LINE = 1 << 25
HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""One half of a character that takes two escapes."""


def lines(path: Path) -> Iterator[Json]:
    """Yield the JSON objects of a file, one per line, skipping damaged and huge lines."""
    with path.open("rb", buffering=1 << 20) as file:
        while line := file.readline(LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
                _skip(file)
            elif (record := decode(line)) is not None:
                yield record


def _skip(file: BinaryIO) -> None:
    """Go to the end of a line without keeping it."""
    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def decode(data: bytes | str) -> Json | None:
    """Decode a JSON object; None if it is anything else.

    Agents that cut texts sometimes cut a character in two: what is left of it is replaced.
    """
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raw = data.encode(errors="replace") if isinstance(data, str) else data
        whole = HALF.sub(rb"\\ufffd", raw)
        return decode(whole) if whole != raw else None
    return cast("Json", found) if isinstance(found, dict) else None


def inner(record: Json, *keys: str) -> Json:
    """Return an object inside; an empty one if there is none."""
    for key in keys:
        found = record.get(key)
        if not isinstance(found, dict):
            return {}
        record = cast("Json", found)
    return record


def string(record: Json, key: str) -> str:
    """Return a text inside; an empty one if there is none."""
    found = record.get(key)
    return found if isinstance(found, str) else ""


def objects(record: Json, key: str) -> list[Json]:
    """Return the objects of a list inside."""
    found = record.get(key)
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Json", one) for one in listed if isinstance(one, dict)]


def texts(content: object) -> str:
    """Join the text of a content: a string, or a list of strings or text blocks."""
    if isinstance(content, str):
        return content
    listed = cast("list[object]", content) if isinstance(content, list) else []
    found = (
        one if isinstance(one, str) else string(cast("Json", one), "text")
        for one in listed
        if isinstance(one, str | dict)
    )
    return "\n".join(text for text in found if text)


def number(record: Json, key: str) -> int:
    """Return a count inside; zero if there is none."""
    found = record.get(key)
    return found if isinstance(found, int) else 0


def moment(value: object) -> float:
    """Parse a time as seconds since 1970, from text or milliseconds; 0 if that fails."""
    if isinstance(value, int | float):
        return value / 1000
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0


def encoded(args: object) -> str:
    """Return the arguments of a call as JSON text."""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


TITLE = 200
INJECTED = re.compile(
    r"\s*(?:<[a-z]+[_-][a-z_-]*[a-z][ >]|<(?:skill|permissions instructions)>"
    r"|# AGENTS\.md instructions|\[Request interrupted|Caveat: )"
)
"""How texts begin that harnesses say in the user's place."""
EMBEDDED = re.compile(r"data:([\w.+/-]+);base64,")


def stamped(agent: str, path: Path) -> Found | None:
    """Return a file with its size and time; None if it is gone or empty."""
    try:
        stat = path.stat()
    except OSError:
        return None
    stamp = f"{stat.st_size} {stat.st_mtime_ns}"
    return Found(agent, path, stamp, stat.st_mtime) if stat.st_size else None


def sessions(agent: ForeignAgent, home: Path | None) -> Iterator[Found]:
    """Yield an agent's session files below a folder, in no order."""
    for path in (path for each in agent.sessions for path in home.glob(each)) if home else ():
        if found := stamped(agent.name, path):
            yield found


def content(said: object) -> tuple[str, tuple[Picture, ...]]:
    """Return the words of a content, and its images and documents, in any agent's spelling."""
    found = (_picture(one) for one in objects({"said": said}, "said"))
    return texts(said), tuple(one for one in found if one is not None)


def _picture(block: Json) -> Picture | None:
    for place in (inner(block, "source"), inner(block, "inlineData"), block):
        mime = string(place, "media_type") or string(place, "mimeType")
        if mime and (data := string(place, "data")):
            return Picture(mime, data)
    url = string(block, "image_url") or string(inner(block, "image_url"), "url")
    found = EMBEDDED.match(url or string(block, "url"))
    return Picture(found[1], found.string[found.end() :]) if found else None


def call(block: Json, args: str) -> Call:
    """Return a call whose arguments have that name."""
    return Call(string(block, "id"), string(block, "name"), encoded(block.get(args, {})))


def shortened(turns: Iterable[Spoken], longest: int) -> Iterator[Spoken]:
    """Cut the text of each turn; turns that are cut lose their media."""
    if longest == WHOLE:
        return iter(turns)
    return (replace(one, text=cut(one.text, longest), pictures=()) for one in turns)


def cut(text: str, longest: int) -> str:
    """Cut a text to so many characters."""
    return text if len(text) <= longest else text[:longest] + "…"


def asked(text: str) -> Who:
    """Classify a user message: from the user, or injected by the harness."""
    return "note" if INJECTED.match(text) else "user"


def headline(turns: list[Spoken], *names: str) -> str:
    """Return a session's title: its first name, else the user's first words."""
    said = (turn.text for turn in turns if turn.who == "user" and turn.text.strip())
    name = next((name for name in names if name.strip()), "") or next(said, "")
    return cut(" ".join(name[: 4 * TITLE].split()), TITLE)


def told(
    agent: str,
    path: Path,
    *,
    turns: list[Spoken],
    id: str = "",
    cwd: str = "",
    names: Iterable[str] = (),
    shorter: Iterable[Compaction] = (),
    model: str = "",
) -> Recorded:
    """Build a recorded session."""
    at = max((turn.at for turn in turns), default=0.0)
    title = headline(turns, *names)
    said, id = (tuple(turns), tuple(shorter)), id or path.stem
    return Recorded(agent, id, path, cwd, at, title, *said, model)
