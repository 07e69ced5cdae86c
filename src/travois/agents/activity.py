"""Short descriptions of an agent's activity, named by a small model or derived by rule.

Model sees: nothing; it is for people.
Tokens: none by rule; a name costs a request of at most about a thousand tokens to a small model.
Cache: never moves the prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

from travois.context.ledger.extractors import classify_tool, decode_arguments, is_list, is_object
from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Asked, Assistant, Decided, Ended, Entry, Failed, Noted, Result, User
from travois.core.tool_names import canonical_call
from travois.prompt.environment import plain

NAME = "doing"
"""The note in an agent's log with what a small model calls its work."""
HOLDS = 60.0
"""Seconds that such a name is shown while the agent continues."""
LEAST = 2
MOST = 5
LONGEST = 40
TASK = 600
LAST = 8
"""Characters of the task and number of last replies that a small model sees."""
SAID = 300
"""Characters of the text beside a call."""
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
UPDATING = "Updating its task list"
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
    "Recall": "Searching earlier messages",
    **dict.fromkeys(("TaskCreate", "TaskUpdate"), UPDATING),
    **dict.fromkeys(("TaskGet", "TaskList"), "Looking at its tasks"),
}
OBJECTS = {
    "Grep": ("Searching the code for", "pattern"),
    "WebSearch": ("Searching the web for", "query"),
    "Glob": ("Looking for files like", "pattern"),
    "GitBlame": ("Running git blame on", "path"),
    "Symbols": ("Looking up the symbol", "name"),
    "Agent": ("Starting an agent:", "description"),
    "SendMessage": ("Writing to the agent", "to"),
}
FILES = {
    "read": "Reading the file",
    "edit": "Editing the file",
    "write": "Writing the file",
    "delete": "Deleting the file",
}


class Work(msgspec.Struct, frozen=True):
    """An agent's activity as of one entry of its log."""

    said: str = THINKING
    last: str = THINKING
    """The last activity, shown again once a wait is over."""
    named: str = ""
    named_at: float = 0.0
    tool: str = ""
    """The last one that it used."""

    def after(self, entry: Entry) -> Work:
        """Return the activity after one more entry."""
        match entry.fact:
            case Assistant(content=content) if found := extract_calls(content):
                own = phrase(found[-1])
                held = self.named if entry.at - self.named_at <= HOLDS else ""
                return self._now(held or own, last=held or own, tool=found[-1].name)
            case Noted(what=what, text=text) if what == NAME:
                now = self._now(text, last=text)
                return msgspec.structs.replace(now, named=text, named_at=entry.at)
            case Asked():
                return self._now("Waiting for an answer")
            case Failed(wait=wait) if wait >= 0:
                return self._now("Waiting to try again")
            case User(origin="human" | "mail" | "task"):
                return Work(tool=self.tool)
            case Decided() | Result() | Assistant():
                return self._now(self.last)
            case Ended(why=why):
                return self._now(ENDS.get(why, "Stopped before the end"))
            case _:
                return self

    def _now(self, said: str, *, last: str = "", tool: str = "") -> Work:
        return msgspec.structs.replace(
            self, said=said, last=last or self.last, tool=tool or self.tool
        )


def doing(entries: Iterable[Entry]) -> str:
    """Return the last thing that an agent began, or how it ended."""
    work = Work()
    for entry in entries:
        work = work.after(entry)
    return work.said


def asked_of(entries: Sequence[Entry]) -> str:
    """Build the prompt that asks a small model to name an agent's activity."""
    tasks = [e.fact for e in entries if isinstance(e.fact, User) and e.fact.origin == "task"]
    task = plain(extract_text(tasks[-1].content))[:TASK] if tasks else ""
    replies = [entry.fact for entry in entries if isinstance(entry.fact, Assistant)]
    steps = [
        line
        for reply in replies[-LAST:]
        for line in (
            plain(extract_text(reply.content).strip())[:SAID],
            *(f"- {phrase(call)}" for call in extract_calls(reply.content)),
        )
        if line
    ]
    return "\n".join(("<task>", task, "</task>", "<steps>", *steps[-2 * LAST :], "</steps>"))


def name_of(reply: str) -> str:
    """Return the name in a small model's reply; empty if it is no name."""
    lines = [line.strip() for line in reply.strip().splitlines() if line.strip()]
    found = plain(lines[0]).strip("\"'`.*# ").split() if len(lines) == 1 else []
    return _short(*found) if LEAST <= len(found) <= 2 * MOST else ""


def phrase(call: Call) -> str:
    """Return a call in three to five words."""
    call = canonical_call(call)
    args = decode_arguments(call.args)
    kind = classify_tool(call.name, args)
    text = {name: value for name, value in args.items() if isinstance(value, str)}
    if call.name == "TodoWrite":
        return _listed(args)
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


def _listed(args: dict[str, object]) -> str:
    """Return the task of a list that is worked on, as the agent itself calls it."""
    todos = args.get("todos")
    for todo in todos if is_list(todos) else ():
        if is_object(todo) and todo.get("status") == "in_progress":
            text = todo.get("activeForm") or todo.get("content")
            return _short(str(text)) if text else UPDATING
    return UPDATING


def _command(description: str, command: str) -> str:
    """Describe a command by the model's own words if they are short, else by how it begins."""
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
