"""What an agent is doing, in three to five words, by rule.

Model sees: nothing; it is for people.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from travois.context.ledger.acts import decoded, kind_of
from travois.context.sources import plain
from travois.kernel.blocks import Call, calls
from travois.kernel.canonical import canonical
from travois.kernel.facts import Asked, Assistant, Decided, Ended, Entry, Failed, Result, User

MOST = 5
LONGEST = 40
THINKING = "Thinking about the task"
ENDS = {
    "end": "Done with its task",
    "failed": "Stopped by an error",
    "turns": "Stopped at its limit",
    "budget": "Stopped at its limit",
    "refusal": "Refused by the model",
    "hook": "Stopped by a hook",
    "crashed": "Lost in a crash",
}
FIXED = {
    "BashOutput": "Watching a background command",
    "KillShell": "Stopping a background command",
    "Monitor": "Waiting for a background command",
    "TaskOutput": "Waiting for a background task",
    "TaskStop": "Stopping a background task",
    "BashInput": "Typing into a program",
    "GitStatus": "Looking at git status",
    "GitDiff": "Looking at git diff",
    "GitLog": "Looking at git log",
    "GitShow": "Looking at a commit",
    "Recall": "Searching what was said",
    **dict.fromkeys(("TodoWrite", "TaskCreate", "TaskUpdate"), "Updating its task list"),
    **dict.fromkeys(("TaskGet", "TaskList"), "Looking at its tasks"),
}
OBJECTS = {
    "Grep": ("Searching the code for", "pattern"),
    "WebSearch": ("Searching the web for", "query"),
    "Glob": ("Looking for files like", "pattern"),
    "GitBlame": ("Looking at who wrote", "path"),
    "Symbols": ("Looking up in the code:", "name"),
    "Agent": ("Starting an agent:", "description"),
    "SendMessage": ("Writing to the agent", "to"),
}
FILES = {
    "read": "Reading the file",
    "edit": "Editing the file",
    "write": "Writing the file",
    "delete": "Deleting the file",
}


def doing(entries: Iterable[Entry]) -> str:
    """The last thing that an agent began, or how it ended."""
    said = last = THINKING
    for entry in entries:
        match entry.fact:
            case Assistant(content=content) if found := calls(content):
                said = last = phrase(found[-1])
            case Asked():
                said = "Waiting for an answer"
            case Failed(wait=wait) if wait >= 0:
                said = "Waiting to try again"
            case User(origin="human" | "mail" | "task"):
                said = last = THINKING
            case Decided() | Result() | Assistant():
                said = last
            case Ended(why=why):
                said = ENDS.get(why, "Stopped before the end")
            case _:
                pass
    return said


def phrase(call: Call) -> str:
    """A call in three to five words."""
    call = canonical(call)
    args = decoded(call.args)
    kind = kind_of(call.name, args)
    text = {name: value for name, value in args.items() if isinstance(value, str)}
    if call.name in FIXED:
        return FIXED[call.name]
    if call.name in OBJECTS:
        words, name = OBJECTS[call.name]
        return _short(words, text.get(name, ""))
    if kind == "shell":
        return _command(text.get("description", ""), text.get("command", ""))
    if kind in FILES:
        path = text.get("file_path") or text.get("path") or text.get("notebook_path") or ""
        return _short(FILES[kind], path.rstrip("/").rpartition("/")[2])
    if call.name == "WebFetch":
        return _short("Fetching a page from", _site(text.get("url", "")))
    return _short("Using the tool", call.name)


def _command(description: str, command: str) -> str:
    """What the model calls a command, if that is short; else how it begins."""
    if 3 <= len(description.split()) <= MOST:
        return _short(description)
    several = len(command.split()) > 1
    return _short("Running" if several else "Running the command", command)


def _site(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _short(*parts: str) -> str:
    words = " ".join(parts).split()[:MOST]
    return " ".join(plain(word if len(word) <= LONGEST else f"{word[:LONGEST]}…") for word in words)
