"""The common format of recorded sessions of any agent, and tolerant JSON readers for them."""

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


Speaker = Literal["user", "model", "tool", "note"]
"""A person, the model, what a tool answered, or what a harness put in between."""
NO_TEXT_LIMIT = 1 << 40
"""So many characters of each text that nothing is cut."""


class SessionFile(msgspec.Struct, frozen=True):
    """A session file; its stamp changes with its content."""

    agent: str
    path: Path
    stamp: str
    at: float = 0.0
    """When it last changed."""


class RecordedMedia(msgspec.Struct, frozen=True):
    """An image or a document of a turn, as base64."""

    mime: str
    data: str


class RecordedTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn: a message, with the tools that it calls or the call that it answers."""

    who: Speaker
    text: str
    at: float = 0.0
    calls: tuple[Call, ...] = ()
    answers: str = ""
    error: bool = False
    pictures: tuple[RecordedMedia, ...] = ()
    name: str = ""
    """The name of the person who spoke, where several did."""


class RecordedCompaction(msgspec.Struct, frozen=True):
    """A compaction: a summary that replaced all but the last turns before it."""

    at: int
    """The number of turns before it."""
    summary: str
    kept: int = 0
    """The number of those turns that the model went on seeing."""
    tokens: int = 0
    """The window in use by then, as far as that was recorded."""


class RecordedSession(msgspec.Struct, frozen=True):
    """A recorded session: its last branch, without what was taken back."""

    agent: str
    id: str
    path: Path
    cwd: str
    at: float
    """When the last word was said."""
    title: str
    turns: tuple[RecordedTurn, ...]
    compactions: tuple[RecordedCompaction, ...] = ()
    model: str = ""
    """Who answered last."""


# JSON that other agents wrote, read without believing it: what has another shape is absent.


Json = dict[str, object]
MAX_LINE_BYTES = 1 << 25
LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""One half of a character that takes two escapes."""


def read_json_lines(path: Path) -> Iterator[Json]:
    """Yield the JSON objects of a session file, one per line, without damaged and huge lines."""
    with path.open("rb", buffering=1 << 20) as file:
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                _skip_long_line(file)
            elif (record := decode_json_object(line)) is not None:
                yield record


def _skip_long_line(file: BinaryIO) -> None:
    """Skip the rest of a huge line in a session file without keeping it."""
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def decode_json_object(data: bytes | str) -> Json | None:
    """Decode a JSON object in a session file; None if it is anything else.

    Agents that cut texts sometimes cut a character in two: what is left of it is replaced.
    """
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raw = data.encode(errors="replace") if isinstance(data, str) else data
        whole = LONE_SURROGATE.sub(rb"\\ufffd", raw)
        return decode_json_object(whole) if whole != raw else None
    return cast("Json", found) if isinstance(found, dict) else None


def object_at(record: Json, *keys: str) -> Json:
    """Return a JSON object nested in a session record; an empty one if there is none."""
    for key in keys:
        found = record.get(key)
        if not isinstance(found, dict):
            return {}
        record = cast("Json", found)
    return record


def string_at(record: Json, key: str) -> str:
    """Return a string in a session record; an empty one if there is none."""
    found = record.get(key)
    return found if isinstance(found, str) else ""


def objects_at(record: Json, key: str) -> list[Json]:
    """Return the objects of a list in a session record."""
    found = record.get(key)
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Json", one) for one in listed if isinstance(one, dict)]


def join_texts(content: object) -> str:
    """Join the text of a recorded message: a string, or a list of strings or text blocks."""
    if isinstance(content, str):
        return content
    listed = cast("list[object]", content) if isinstance(content, list) else []
    found = (
        one if isinstance(one, str) else string_at(cast("Json", one), "text")
        for one in listed
        if isinstance(one, str | dict)
    )
    return "\n".join(text for text in found if text)


def int_at(record: Json, key: str) -> int:
    """Return a count in a session record; zero if there is none."""
    found = record.get(key)
    return found if isinstance(found, int) else 0


def parse_timestamp(value: object) -> float:
    """Parse a session's time as seconds since 1970, from text or milliseconds; 0 if invalid."""
    if isinstance(value, int | float):
        return value / 1000
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0


def encode_arguments(args: object) -> str:
    """Return a recorded tool call's arguments as JSON text."""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


MAX_TITLE_CHARS = 200
INJECTED_TEXT = re.compile(
    r"\s*(?:<[a-z]+[_-][a-z_-]*[a-z][ >]|<(?:skill|permissions instructions)>"
    r"|# AGENTS\.md instructions|\[Request interrupted|Caveat: )"
)
"""How texts begin that harnesses say in the user's place."""
DATA_URL = re.compile(r"data:([\w.+/-]+);base64,")


def stat_session_file(agent: str, path: Path) -> SessionFile | None:
    """Return a session file with its size and time; None if it is missing or empty."""
    try:
        stat = path.stat()
    except OSError:
        return None
    stamp = f"{stat.st_size} {stat.st_mtime_ns}"
    return SessionFile(agent, path, stamp, stat.st_mtime) if stat.st_size else None


def find_session_files(agent: ForeignAgent, home: Path | None) -> Iterator[SessionFile]:
    """Yield an agent's session files below a folder, in no order."""
    for path in (path for each in agent.sessions for path in home.glob(each)) if home else ():
        if found := stat_session_file(agent.name, path):
            yield found


def split_content(said: object) -> tuple[str, tuple[RecordedMedia, ...]]:
    """Split a message of another agent into its text, and its images and documents."""
    found = (_parse_media(one) for one in objects_at({"said": said}, "said"))
    return join_texts(said), tuple(one for one in found if one is not None)


def _parse_media(block: Json) -> RecordedMedia | None:
    """Parse an image or document block of another agent's session; None if it has no data."""
    for place in (object_at(block, "source"), object_at(block, "inlineData"), block):
        mime = string_at(place, "media_type") or string_at(place, "mimeType")
        if mime and (data := string_at(place, "data")):
            return RecordedMedia(mime, data)
    url = string_at(block, "image_url") or string_at(object_at(block, "image_url"), "url")
    found = DATA_URL.match(url or string_at(block, "url"))
    return RecordedMedia(found[1], found.string[found.end() :]) if found else None


def parse_recorded_call(block: Json, args: str) -> Call:
    """Parse a tool call of another agent's session; its arguments have the given key."""
    return Call(
        string_at(block, "id"), string_at(block, "name"), encode_arguments(block.get(args, {}))
    )


def shorten_turns(turns: Iterable[RecordedTurn], longest: int) -> Iterator[RecordedTurn]:
    """Shorten the text of each recorded turn; shortened turns lose their images."""
    if longest == NO_TEXT_LIMIT:
        return iter(turns)
    return (replace(one, text=shorten_text(one.text, longest), pictures=()) for one in turns)


def shorten_text(text: str, longest: int) -> str:
    """Shorten a recorded text to a number of characters."""
    return text if len(text) <= longest else text[:longest] + "…"


def classify_user_text(text: str) -> Speaker:
    """Classify a recorded user message: typed by the user, or injected by the harness."""
    return "note" if INJECTED_TEXT.match(text) else "user"


def make_session_title(turns: list[RecordedTurn], *names: str) -> str:
    """Return a session's title: its first name, else the user's first words."""
    said = (turn.text for turn in turns if turn.who == "user" and turn.text.strip())
    name = next((name for name in names if name.strip()), "") or next(said, "")
    return shorten_text(" ".join(name[: 4 * MAX_TITLE_CHARS].split()), MAX_TITLE_CHARS)


def build_recorded_session(
    agent: str,
    path: Path,
    *,
    turns: list[RecordedTurn],
    id: str = "",
    cwd: str = "",
    names: Iterable[str] = (),
    shorter: Iterable[RecordedCompaction] = (),
    model: str = "",
) -> RecordedSession:
    """Build a recorded session from its turns."""
    at = max((turn.at for turn in turns), default=0.0)
    title = make_session_title(turns, *names)
    said, id = (tuple(turns), tuple(shorter)), id or path.stem
    return RecordedSession(agent, id, path, cwd, at, title, *said, model)
