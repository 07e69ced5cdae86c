"""One update of the session notes: a fork that may edit one file, held in memory meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from travois.context.session_memory.plan import (
    NotesBudget,
    build_notes_prompt,
    has_no_notes,
    replace_sections,
)
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Entry, Result, User
from travois.core.tool_names import canonical_name
from travois.core.view import View
from travois.engine.agent import Agent
from travois.engine.fork import ask_quietly
from travois.engine.interpret_call import InterpretedCall, MeaninglessCall, interpret_call
from travois.engine.permission_gate import ParsedCall
from travois.engine.tmp_folder import locate_calls
from travois.engine.tool_calls import execute_call
from travois.permissions.resolve_paths import home_folder
from travois.ports.tool import ToolError
from travois.ports.world import FileStat, StaleFile, content_digest
from travois.providers.replies import build_assistant_fact

NOTES_PROMPT_FOLDER = Path(__file__).parent.parent / "prompts"
CLAUDE_NOTES_CONFIG = ".claude/session-memory/config"
"""Claude Code's folder for a user's own template and prompt, below the home folder."""
EDIT_TOOLS = ("Edit", "ApplyPatch")
"""Tools with which a file is changed in part; one of them must be in the head."""
ALLOWED_TOOLS = (*EDIT_TOOLS, "MultiEdit")
MAX_UPDATE_ROUNDS = 3
"""The most requests of one update: another one only if an edit failed."""
REFUSED_CALL_TEXT = "Not run: this request may only make partial edits to {path} with {tool}."


class NotesFile:
    """The only file that an update can reach, in memory until the update is over."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.data = text.encode(errors="replace")

    @property
    def text(self) -> str:
        """The current notes."""
        return self.data.decode("utf-8", errors="replace")

    async def stat(self, path: str) -> FileStat | None:
        """Return the status of the notes; None for any other path."""
        return FileStat("file", len(self.data), 0) if path == self.path else None

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """Return no names: no folder is visible."""
        return []

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """Return 0 for each path: modification times are unknown."""
        return [0 for _ in paths]

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read bytes of the notes."""
        self._check(path)
        return self.data[offset : None if limit < 0 else offset + limit]

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the notes if they are still what is expected."""
        self._check(path)
        if expect != content_digest(self.data):
            raise StaleFile(path)
        self.data = data
        return content_digest(data)

    async def remove(self, path: str, *, expect: str) -> None:
        """Raise: notes cannot be removed."""
        raise PermissionError(f"{path} may only be edited")

    @asynccontextmanager
    async def queue(self, path: str) -> AsyncGenerator[None]:
        """Yield at once: the edits of an update come one after another anyway."""
        yield

    def _check(self, path: str) -> None:
        if path != self.path:
            raise FileNotFoundError(path)


async def ask_for_notes_update(agent: Agent, held: str, *, path: str, budget: NotesBudget) -> str:
    """Let the model edit the notes and return them; empty if it changed nothing."""
    pattern = load_notes_template(agent)
    file, view = NotesFile(path, held or pattern), agent.session.view.copy()
    before = file.text
    asked = _build_update_request(agent, held, pattern=pattern, path=path, budget=budget)
    _add_to_view(agent, view, User((Text(asked),), origin="note"))
    await _run_update_rounds(agent, view, file)
    text = agent.session.secrets.redact(file.text)
    return "" if file.text == before or has_no_notes(text, template=pattern) else text


def load_notes_template(agent: Agent) -> str:
    """Load the template of the notes: the user's own, or ours."""
    return _read_user_override(agent.context.layers.notes_template, "template.md") or _read_prompt(
        "notes.md"
    )


async def _run_update_rounds(agent: Agent, view: View, file: NotesFile) -> None:
    """Let the model edit, and ask again where an edit failed."""
    for _ in range(MAX_UPDATE_ROUNDS):
        reply = await ask_quietly(agent, view, what="notes")
        if reply is None:
            return
        fact = build_assistant_fact(view, reply)
        asked = extract_calls(fact.content)
        if not asked:
            told = extract_text(fact.content)
            file.data = replace_sections(file.text, told).encode() if told.strip() else file.data
            return
        _add_to_view(agent, view, fact)
        results = [await _run_notes_edit(agent, call, file) for call in asked]
        for result in results:
            _add_to_view(agent, view, result)
        if not any(result.error for result in results):
            return


def _add_to_view(agent: Agent, view: View, fact: User | Assistant | Result) -> None:
    """Add a fact to the fork's own view; the session's log is not touched."""
    last = max((item.seq for item in view.items), default=0)
    view.add(Entry(max(last, agent.session.seq) + 1, agent.runtime.clock(), fact))


async def _run_notes_edit(agent: Agent, call: Call, file: NotesFile) -> Result:
    """Run one edit of the notes; any other call is refused."""
    try:
        meaning = interpret_call(call, agent.tools.by_name, agent.tools.find_mcp_tool)
        _check_only_notes(agent, meaning, file.path)
    except (MeaninglessCall, ToolError) as error:
        return Result(call.id, (Text(str(error)),), error=True)
    # A copy of the turn's state: an edit of the notes is no change of the workspace.
    apart = replace(agent, world=replace(agent.world, files=file), turn=replace(agent.turn))
    accesses = meaning.tool.access(meaning.args, locate_calls(agent))
    ready = ParsedCall(call, meaning.tool, meaning.args, accesses, ())
    outcome = await execute_call(apart, ready, None)
    return Result(call.id, outcome.content, outcome.error)


def _check_only_notes(agent: Agent, meaning: InterpretedCall, path: str) -> None:
    """Refuse everything but partial edits of the notes."""
    why = REFUSED_CALL_TEXT.format(path=path, tool=_edit_tool_name(agent) or "text")
    if meaning.tool.name not in ALLOWED_TOOLS:
        raise ToolError(why)
    touched = meaning.tool.access(meaning.args, locate_calls(agent))
    if any(path not in (access.target, access.spelt) for access in touched):
        raise ToolError(why)


def _edit_tool_name(agent: Agent) -> str:
    """Return the model's name for the tool that edits files; empty if it has none."""
    epoch = agent.session.view.epoch
    names = [spec.name for spec in epoch.tools] if epoch else []
    return next((name for name in names if canonical_name(name) in EDIT_TOOLS), "")


def _build_update_request(
    agent: Agent, held: str, *, pattern: str, path: str, budget: NotesBudget
) -> str:
    """Build the prompt that asks the model to update the session notes."""
    tool = _edit_tool_name(agent)
    own = _read_user_override(agent.context.layers.notes_prompt, "prompt.md") if tool else ""
    return build_notes_prompt(
        held,
        template=pattern,
        instructions=own or _read_prompt("notes-update.md" if tool else "notes-text.md"),
        path=path,
        tool=tool,
        budget=budget,
    )


def _read_prompt(name: str) -> str:
    return (NOTES_PROMPT_FOLDER / name).read_text("utf-8")


def _read_user_override(path: str, name: str) -> str:
    """Return the user's own version of a prompt; empty if there is none."""
    return (
        _read_text_file(Path(path).expanduser())
        if path
        else _read_text_file(Path(home_folder(), CLAUDE_NOTES_CONFIG, name))
    )


def _read_text_file(path: Path) -> str:
    """Read a text file of the session notes; empty if it is unreadable."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
