"""What the readers of all agents share: where sessions lie, and how what is in them is told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from travois.compat.sessions.loose import Json, encoded, inner, objects, string, texts
from travois.compat.sessions.spoken import WHOLE, Compaction, Found, Picture, Recorded, Spoken, Who
from travois.core.content import Call

TITLE = 200
INJECTED = re.compile(
    r"\s*(?:<[a-z]+[_-][a-z_-]*[a-z][ >]|<(?:skill|permissions instructions)>"
    r"|# AGENTS\.md instructions|\[Request interrupted|Caveat: )"
)
"""How texts begin that harnesses say in the user's place."""
EMBEDDED = re.compile(r"data:([\w.+/-]+);base64,")


def folder(environ: Mapping[str, str], variable: str, *below: str) -> Path | None:
    """The folder that a variable names, else one below the person's home."""
    if chosen := environ.get(variable):
        return Path(chosen).expanduser().absolute()
    person = environ.get("HOME", "")
    return Path(person, *below) if person.startswith("/") else None


def stamped(agent: str, path: Path) -> Found | None:
    """A file with its size and time; None if it is gone or empty."""
    try:
        stat = path.stat()
    except OSError:
        return None
    stamp = f"{stat.st_size} {stat.st_mtime_ns}"
    return Found(agent, path, stamp, stat.st_mtime) if stat.st_size else None


def sessions(agent: str, home: Path | None, *patterns: str) -> Iterator[Found]:
    """The files of these names below a folder, in no order."""
    for path in (path for each in patterns for path in home.glob(each)) if home else ():
        if found := stamped(agent, path):
            yield found


def content(said: object) -> tuple[str, tuple[Picture, ...]]:
    """The words of a content, and its images and documents, in any agent's spelling."""
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
    """A call whose arguments have that name."""
    return Call(string(block, "id"), string(block, "name"), encoded(block.get(args, {})))


def shortened(turns: Iterable[Spoken], longest: int) -> Iterator[Spoken]:
    """No more of each text than that; where texts are cut, nothing is shown but words."""
    if longest == WHOLE:
        return iter(turns)
    return (replace(one, text=cut(one.text, longest), pictures=()) for one in turns)


def cut(text: str, longest: int) -> str:
    """No more of a text than that."""
    return text if len(text) <= longest else text[:longest] + "…"


def asked(text: str) -> Who:
    """Who says this in the user's place: the user, or the harness around the model."""
    return "note" if INJECTED.match(text) else "user"


def headline(turns: list[Spoken], *names: str) -> str:
    """What to call a session: its first name that there is, else the first words of the user."""
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
    """A session of which this was said."""
    at = max((turn.at for turn in turns), default=0.0)
    title = headline(turns, *names)
    said, id = (tuple(turns), tuple(shorter)), id or path.stem
    return Recorded(agent, id, path, cwd, at, title, *said, model)
