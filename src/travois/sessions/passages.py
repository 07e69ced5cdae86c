"""What of a session can be found: prompts, replies, errors, to-do lists, and files touched."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from travois.compat.sessions.format import Recorded, Spoken, cut, decode, objects, string
from travois.core.content import Call
from travois.permissions import secrets
from travois.search.database import Document

LENGTH = 1000
"""How many characters a passage has, about."""
ERROR = 500
MOST = 2000
"""How many passages of one session are kept: half from its start, half from its end."""
PATHS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")
PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
TODOS = ("todos", "plan", "items")
STEP = ("content", "step", "description", "text")


def passages(recorded: Recorded, *, group: str) -> list[Document]:
    """The passages of a session, in order; what looks like a secret is not in them."""
    drafts = list(_drafts(recorded.turns))
    if len(drafts) > MOST:
        drafts = drafts[: MOST // 2] + drafts[-MOST // 2 :]
    found = [
        Document(f"{group}-{order}", text, group, order, at=turn.at, who=turn.who)
        for order, (turn, text) in enumerate(drafts)
    ]
    title = masked(recorded.title)
    return [replace(one, title=title) if not one.order else one for one in found]


def masked(text: str) -> str:
    """The text with a name in the place of what looks like a secret."""
    for found in reversed(secrets.find(text)):
        text = f"{text[: found.start]}[{found.kind}]{text[found.end :]}"
    return text


def touched(call: Call) -> tuple[str, ...]:
    """The files that a call names."""
    args = decode(call.args) or {}
    named = [string(args, key) for key in PATHS if string(args, key)]
    return (*named, *PATCHED.findall(string(args, "input")))


def _drafts(turns: tuple[Spoken, ...]) -> Iterator[tuple[Spoken, str]]:
    files: dict[str, None] = {}
    for turn in turns:
        if turn.who == "user" and files:
            yield replace(turn, who="model"), _listed(files)
            files = {}
        for text in _said(turn):
            yield turn, text
        files |= dict.fromkeys(path for call in turn.calls for path in touched(call))
    if files:
        yield replace(turns[-1], who="model"), _listed(files)


def _listed(files: dict[str, None]) -> str:
    return cut("Files: " + ", ".join(files), 2 * LENGTH)


def _said(turn: Spoken) -> Iterator[str]:
    if turn.who in ("user", "model"):
        yield from pieces(masked(turn.text))
    elif turn.error and turn.text.strip():
        yield masked(cut(turn.text.strip(), ERROR))
    for call in turn.calls:
        if steps := _steps(call):
            yield masked(cut("To do: " + "; ".join(steps), 2 * LENGTH))


def _steps(call: Call) -> list[str]:
    """The steps of a to-do list that a call writes."""
    name = call.name.lower()
    args = decode(call.args) if "todo" in name or "plan" in name else None
    listed = [step for key in TODOS for step in objects(args or {}, key)]
    found = (next((string(one, key) for key in STEP if string(one, key)), "") for one in listed)
    return [step for step in found if step]


def pieces(text: str) -> Iterator[str]:
    """A text in parts of a readable size, divided where it pauses."""
    text = text.strip()
    while len(text) > LENGTH + LENGTH // 4:
        room = text[:LENGTH]
        at = next((at for mark in ("\n\n", "\n", ". ", " ") if (at := room.rfind(mark)) > 300), 0)
        at = at or LENGTH
        yield text[:at].strip()
        text = text[at:].strip()
    if text:
        yield text
