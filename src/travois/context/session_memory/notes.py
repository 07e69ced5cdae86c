"""Session notes: when they are updated, the update itself, and their use as a summary.

An update runs in the background: a fork that may edit one file, which is kept in memory meanwhile.
See docs/decisions/0046.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from travois.context import window
from travois.context.compaction.cut import ConversationCut, cut_after_entry
from travois.context.session_memory.plan import (
    NotesBudget,
    NotesProgress,
    UpdatePace,
    are_notes_worthwhile,
    build_notes_prompt,
    fit_notes,
    has_no_notes,
    is_update_due,
    replace_sections,
)
from travois.context.window import compaction_threshold, current_model, room_beside_head
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Entry, Noted, Result, User
from travois.core.tokens import context_tokens, fact_tokens, token_ratio
from travois.core.tool_names import canonical_name
from travois.core.view import View
from travois.engine.agent import Agent, NotesUpdate
from travois.engine.fork import ask_quietly
from travois.engine.interpret_call import InterpretedCall, MeaninglessCall, interpret_call
from travois.lazy_imports import lazy_imports
from travois.permissions.resolve_paths import home_folder
from travois.ports.tool import ToolError
from travois.ports.world import FileStat, StaleFile, content_digest
from travois.providers.replies import build_assistant_fact

with lazy_imports():
    from travois.engine import permission_gate, tmp_folder, tool_calls


NOTES_FILE = "notes.md"
UPDATE_WAIT_SECONDS = 60.0
"""The longest time, in seconds, that a compaction waits for a running update."""
MIN_KEPT_TOKENS = 10_000
MAX_KEPT_TOKENS = 40_000
"""The least and the most tokens that stay verbatim when notes become the summary."""
MIN_KEPT_SHARE = 0.07
MAX_KEPT_SHARE = 0.3
"""The same bounds as shares of the room between head and threshold, for small windows."""


class SessionNotes(msgspec.Struct, frozen=True):
    """The notes, the size of the conversation then, and the last entry that they cover."""

    size: int = 0
    text: str = ""
    covers: int = 0


class NotesSummary(msgspec.Struct, frozen=True):
    """Notes that can replace the older conversation, and the cut that goes with them."""

    text: str
    cut: ConversationCut
    covers: int
    """The last entry that they cover."""


def should_keep_notes(agent: Agent) -> bool:
    """Return whether to keep session notes: as the user set, or if they pay off."""
    card, wanted = current_model(agent), agent.context.layers.notes
    if (
        agent.runtime.background is None
        or card.is_frail
        or not wanted
        or not agent.context.layers.draft
    ):
        return False
    if wanted != "auto" or not agent.context.layers.is_automatic:
        return wanted is True
    most = compaction_threshold(agent)
    return are_notes_worthwhile(card.price, limit=most, head=most - room_beside_head(agent))


def update_notes_if_due(agent: Agent) -> None:
    """Start an update of the session notes in the background, if one is due."""
    if not should_keep_notes(agent) or is_updating_notes(agent):
        return
    held, view, pace = (
        current_notes(agent),
        agent.session.view,
        UpdatePace.for_room(room_beside_head(agent)),
    )
    if not held.text and context_tokens(view) < pace.first:
        return
    since = max(held.covers, agent.turn.notes.covers if agent.turn.notes else 0)
    if not is_update_due(
        _measure_progress(view, since, held, limit=compaction_threshold(agent)), pace
    ):
        return
    underway = agent.turn.notes = NotesUpdate(anyio.Event(), covers=agent.session.seq)

    async def update() -> None:
        underway.begun = True
        try:
            await _update_notes(agent, held)
        finally:
            underway.done.set()

    assert agent.runtime.background is not None
    agent.runtime.background(update)


async def _update_notes(agent: Agent, notes: SessionNotes) -> None:
    """Ask the model to edit the session notes, log the result and write the file."""
    session = agent.session
    covers, size = session.seq, context_tokens(session.view)
    text = await ask_for_notes_update(
        agent, notes.text, path=notes_path(agent), budget=notes_budget(agent)
    )
    if text:
        session.append(
            Noted("notes", msgspec.json.encode(SessionNotes(size, text, covers)).decode())
        )
        write_notes(agent, text)


def is_updating_notes(agent: Agent) -> bool:
    """Return whether an update of the session notes is running."""
    return agent.turn.notes is not None and not agent.turn.notes.done.is_set()


def current_notes(agent: Agent) -> SessionNotes:
    """Return the current session notes; empty if there are none."""
    return decode_notes(agent.session.notes)


def decode_notes(text: str) -> SessionNotes:
    """Decode the session notes from the log."""
    return msgspec.json.decode(text, type=SessionNotes) if text else SessionNotes()


def notes_path(agent: Agent) -> str:
    """Return the path of this session's notes file."""
    return f"{agent.world.kept}/{NOTES_FILE}"


def notes_budget(agent: Agent) -> NotesBudget:
    """Return the size limit of the session notes: no more than a summary may take."""
    return NotesBudget(min(NotesBudget().whole, window.scaled_layers(agent).ledger))


def write_notes(agent: Agent, text: str) -> str:
    """Write the session notes to their file, which the log can rebuild; return its path."""
    return agent.world.spill(NOTES_FILE, text.encode(errors="replace"))


async def wait_for_notes_summary(agent: Agent) -> NotesSummary | None:
    """Wait for a running update, then return the session notes to use as a summary."""
    if not agent.context.layers.notes or not agent.context.layers.draft:
        return None
    await wait_for_notes_update(agent)
    return prepare_notes_summary(agent)


def prepare_notes_summary(agent: Agent) -> NotesSummary | None:
    """Return the current session notes for use as a summary.

    None if there are none, or if they leave more uncovered than may stay verbatim.
    """
    cut = find_notes_cut(agent)
    if cut is None:
        return None
    held = current_notes(agent)
    text = fit_notes(held.text, path=write_notes(agent, held.text), budget=notes_budget(agent))
    return NotesSummary(text, cut, held.covers) if text else None


def find_notes_cut(agent: Agent) -> ConversationCut | None:
    """Return the cut up to which session notes can serve as the summary; None if they lag."""
    held = current_notes(agent)
    if not held.text or not agent.context.layers.notes or not agent.context.layers.draft:
        return None
    free = room_beside_head(agent)
    least = min(MIN_KEPT_TOKENS, round(free * MIN_KEPT_SHARE))
    most = min(MAX_KEPT_TOKENS, round(free * MAX_KEPT_SHARE))
    return cut_after_entry(agent.session.view, held.covers, least=least, most=most)


async def wait_for_notes_update(agent: Agent, *, patience: float = UPDATE_WAIT_SECONDS) -> None:
    """Wait for a running update of the session notes, up to a time limit."""
    if agent.turn.notes is not None and agent.turn.notes.begun:
        with anyio.move_on_after(patience):
            await agent.turn.notes.done.wait()


def _measure_progress(view: View, since: int, notes: SessionNotes, *, limit: int) -> NotesProgress:
    """Measure how far the conversation has grown since the session notes were updated."""
    fresh = [item.fact for item in view.items if item.seq > since]
    replies = [fact for fact in fresh if isinstance(fact, Assistant)]
    return NotesProgress(
        grown=round(sum(map(fact_tokens, fresh)) * token_ratio(view)),
        left=limit - context_tokens(view),
        first=not notes.text,
        calls=sum(len(extract_calls(reply.content)) for reply in replies),
        paused=bool(replies) and not extract_calls(replies[-1].content),
    )


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
    """The only file that a notes update can access, in memory until the update is over."""

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
    """Let the model edit the session notes and return them; empty if nothing changed."""
    pattern = load_notes_template(agent)
    file, view = NotesFile(path, held or pattern), agent.session.view.copy()
    before = file.text
    asked = _build_update_request(agent, held, pattern=pattern, path=path, budget=budget)
    _add_to_view(agent, view, User((Text(asked),), origin="note"))
    await _run_update_rounds(agent, view, file)
    text = agent.session.secrets.redact(file.text)
    return "" if file.text == before or has_no_notes(text, template=pattern) else text


def load_notes_template(agent: Agent) -> str:
    """Load the session notes template: the user's own, or ours."""
    return _read_user_override(agent.context.layers.notes_template, "template.md") or _read_prompt(
        "notes.md"
    )


async def _run_update_rounds(agent: Agent, view: View, file: NotesFile) -> None:
    """Let the model edit the session notes, and ask again where an edit failed."""
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
    """Add a fact to the notes update's own view; the session's log is not touched."""
    last = max((item.seq for item in view.items), default=0)
    view.add(Entry(max(last, agent.session.seq) + 1, agent.runtime.clock(), fact))


async def _run_notes_edit(agent: Agent, call: Call, file: NotesFile) -> Result:
    """Run one edit of the session notes; any other tool call is refused."""
    try:
        meaning = interpret_call(call, agent.tools.by_name, agent.tools.find_mcp_tool)
        _check_only_notes(agent, meaning, file.path)
    except (MeaninglessCall, ToolError) as error:
        return Result(call.id, (Text(str(error)),), error=True)
    # A copy of the turn's state: an edit of the notes is no change of the workspace.
    apart = replace(agent, world=replace(agent.world, files=file), turn=replace(agent.turn))
    accesses = meaning.tool.access(meaning.args, tmp_folder.locate_calls(agent))
    ready = permission_gate.ParsedCall(call, meaning.tool, meaning.args, accesses, ())
    outcome = await tool_calls.execute_call(apart, ready, None)
    return Result(call.id, outcome.content, outcome.error)


def _check_only_notes(agent: Agent, meaning: InterpretedCall, path: str) -> None:
    """Refuse every tool call but partial edits of the session notes."""
    why = REFUSED_CALL_TEXT.format(path=path, tool=_edit_tool_name(agent) or "text")
    if meaning.tool.name not in ALLOWED_TOOLS:
        raise ToolError(why)
    touched = meaning.tool.access(meaning.args, tmp_folder.locate_calls(agent))
    if any(path not in (access.target, access.spelt) for access in touched):
        raise ToolError(why)


def _edit_tool_name(agent: Agent) -> str:
    """Return the model's edit tool for updating session notes; empty if it has none."""
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
    """Return the user's own session notes prompt; empty if there is none."""
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
