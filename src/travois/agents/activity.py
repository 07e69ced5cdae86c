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
from travois.prompt.environment import escape_line

WORK_NAME_NOTE = "doing"
"""The note in an agent's log with what a small model calls its work."""
WORK_NAME_SECONDS = 60.0
"""Seconds that such a name is shown while the agent continues."""
MIN_NAME_WORDS = 2
MAX_PHRASE_WORDS = 5
MAX_WORD_CHARS = 40
MAX_TASK_CHARS = 600
MAX_NAMED_STEPS = 8
"""Characters of the task and number of last replies that a small model sees."""
MAX_REPLY_CHARS = 300
"""Characters of the text beside a call."""
THINKING_PHRASE = "Thinking about the task"
END_PHRASES = {
    "end": "Done with its task",
    "failed": "Stopped by an error",
    "turns": "Stopped at its limit",
    "budget": "Stopped at its limit",
    "refusal": "Refused by the model",
    "hook": "Stopped by a hook",
    "crashed": "Lost in a crash",
}
UPDATING_TASKS = "Updating its task list"
TOOL_PHRASES = {
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
    **dict.fromkeys(("TaskCreate", "TaskUpdate"), UPDATING_TASKS),
    **dict.fromkeys(("TaskGet", "TaskList"), "Looking at its tasks"),
}
TOOL_OBJECT_PHRASES = {
    "Grep": ("Searching the code for", "pattern"),
    "WebSearch": ("Searching the web for", "query"),
    "Glob": ("Looking for files like", "pattern"),
    "GitBlame": ("Running git blame on", "path"),
    "Symbols": ("Looking up the symbol", "name"),
    "CodebaseSearch": ("Searching the code for", "query"),
    "Agent": ("Starting an agent:", "description"),
    "SendMessage": ("Writing to the agent", "to"),
}
FILE_ACTION_PHRASES = {
    "read": "Reading the file",
    "edit": "Editing the file",
    "write": "Writing the file",
    "delete": "Deleting the file",
}


class AgentActivity(msgspec.Struct, frozen=True):
    """An agent's activity as of one entry of its log."""

    said: str = THINKING_PHRASE
    last: str = THINKING_PHRASE
    """The last activity, shown again once a wait is over."""
    named: str = ""
    named_at: float = 0.0
    tool: str = ""
    """The last one that it used."""

    def after(self, entry: Entry) -> AgentActivity:
        """Return the activity after one more entry."""
        match entry.fact:
            case Assistant(content=content) if found := extract_calls(content):
                own = describe_tool_call(found[-1])
                held = self.named if entry.at - self.named_at <= WORK_NAME_SECONDS else ""
                return self._with_phrase(held or own, last=held or own, tool=found[-1].name)
            case Noted(what=what, text=text) if what == WORK_NAME_NOTE:
                now = self._with_phrase(text, last=text)
                return msgspec.structs.replace(now, named=text, named_at=entry.at)
            case Asked():
                return self._with_phrase("Waiting for an answer")
            case Failed(wait=wait) if wait >= 0:
                return self._with_phrase("Waiting to try again")
            case User(origin="human" | "mail" | "task"):
                return AgentActivity(tool=self.tool)
            case Decided() | Result() | Assistant():
                return self._with_phrase(self.last)
            case Ended(why=why):
                return self._with_phrase(END_PHRASES.get(why, "Stopped before the end"))
            case _:
                return self

    def _with_phrase(self, said: str, *, last: str = "", tool: str = "") -> AgentActivity:
        return msgspec.structs.replace(
            self, said=said, last=last or self.last, tool=tool or self.tool
        )


def describe_activity(entries: Iterable[Entry]) -> str:
    """Describe a subagent's activity: the last thing that it began, or how it ended."""
    work = AgentActivity()
    for entry in entries:
        work = work.after(entry)
    return work.said


def build_naming_prompt(entries: Sequence[Entry]) -> str:
    """Build the prompt that asks a small model to name an agent's activity."""
    tasks = [e.fact for e in entries if isinstance(e.fact, User) and e.fact.origin == "task"]
    task = escape_line(extract_text(tasks[-1].content))[:MAX_TASK_CHARS] if tasks else ""
    replies = [entry.fact for entry in entries if isinstance(entry.fact, Assistant)]
    steps = [
        line
        for reply in replies[-MAX_NAMED_STEPS:]
        for line in (
            escape_line(extract_text(reply.content).strip())[:MAX_REPLY_CHARS],
            *(f"- {describe_tool_call(call)}" for call in extract_calls(reply.content)),
        )
        if line
    ]
    return "\n".join(
        ("<task>", task, "</task>", "<steps>", *steps[-2 * MAX_NAMED_STEPS :], "</steps>")
    )


def parse_activity_name(reply: str) -> str:
    """Return the activity name in a small model's reply; empty if it is none."""
    lines = [line.strip() for line in reply.strip().splitlines() if line.strip()]
    found = escape_line(lines[0]).strip("\"'`.*# ").split() if len(lines) == 1 else []
    return _join_short_words(*found) if MIN_NAME_WORDS <= len(found) <= 2 * MAX_PHRASE_WORDS else ""


def describe_tool_call(call: Call) -> str:
    """Describe a subagent's tool call in three to five words."""
    call = canonical_call(call)
    args = decode_arguments(call.args)
    kind = classify_tool(call.name, args)
    text = {name: value for name, value in args.items() if isinstance(value, str)}
    if call.name == "TodoWrite":
        return _describe_todo_list(args)
    if call.name in TOOL_PHRASES:
        return TOOL_PHRASES[call.name]
    if call.name in TOOL_OBJECT_PHRASES:
        words, name = TOOL_OBJECT_PHRASES[call.name]
        return _join_short_words(words, text.get(name, ""))
    if kind == "shell":
        return _describe_command(text.get("description", ""), text.get("command", ""))
    if kind in FILE_ACTION_PHRASES:
        path = text.get("file_path") or text.get("path") or text.get("notebook_path") or ""
        return _join_short_words(FILE_ACTION_PHRASES[kind], path.rstrip("/").rpartition("/")[2])
    if call.name == "WebFetch":
        return _join_short_words("Fetching a page from", _url_host(text.get("url", "")))
    return _join_short_words("Using the tool", call.name)


def _describe_todo_list(args: dict[str, object]) -> str:
    """Return the to-do in progress as an agent's activity, in its own words."""
    todos = args.get("todos")
    for todo in todos if is_list(todos) else ():
        if is_object(todo) and todo.get("status") == "in_progress":
            text = todo.get("activeForm") or todo.get("content")
            return _join_short_words(str(text)) if text else UPDATING_TASKS
    return UPDATING_TASKS


def _describe_command(description: str, command: str) -> str:
    """Describe a command as an agent's activity, by the model's words or its beginning."""
    if 3 <= len(description.split()) <= MAX_PHRASE_WORDS:
        return _join_short_words(description)
    several = len(command.split()) > 1
    return _join_short_words("Running" if several else "Running the command", command)


def _url_host(url: str) -> str:
    """Return a URL's host for the description of an agent's activity."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _join_short_words(*parts: str) -> str:
    """Join a few words, each shortened, into the description of an agent's activity."""
    words = " ".join(parts).split()[:MAX_PHRASE_WORDS]
    return " ".join(
        escape_line(word if len(word) <= MAX_WORD_CHARS else f"{word[:MAX_WORD_CHARS]}…")
        for word in words
    )
