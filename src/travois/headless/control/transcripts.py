"""Transcripts of a driven session and its subagents, where Claude Code's clients look for them.

Its clients list sessions and read messages from files below `CLAUDE_CONFIG_DIR/projects`, or get
them as frames for a session store of their own. Both are views of our log: they are never read
here, apart from what a host brings back from its store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from travois.compat.claude_json import JsonObject
from travois.compat.claude_transcript import (
    VIEW_MARK,
    ClaudeTranscriptWriter,
    TranscriptAgent,
    write_transcript_lines,
)
from travois.compat.transcript_frames import TranscriptFrames, build_frame, locate_transcript
from travois.compose.live_session import LiveSession
from travois.core.facts import Entry
from travois.engine.agent import Agent
from travois.ports.world import Event

METADATA_SUFFIX = ".meta.json"
AGENT_METADATA = "agent_metadata"
"""The type of the entry that tells a store what stands beside a subagent's transcript."""


class FollowedLog(msgspec.Struct):
    """The log of an agent whose entries become lines of a transcript."""

    agent: Agent
    path: Path
    writer: ClaudeTranscriptWriter
    events: MemoryObjectReceiveStream[Event]
    pending: list[Entry]
    before: list[JsonObject] = []
    """Entries for the host's store before its first lines."""
    mode: Literal["wb", "ab"] = "wb"

    def take_entries(self) -> list[Entry]:
        """Return the entries that are not written yet."""
        while self.events.statistics().current_buffer_used:
            event = self.events.receive_nowait()
            self.pending.extend((event,) if isinstance(event, Entry) else ())
        taken, self.pending = self.pending, []
        return taken


class SessionTranscripts:
    """The transcripts of one driven session: files, frames for the host's store, or both."""

    def __init__(
        self,
        session: LiveSession,
        stack: AsyncExitStack,
        environ: Mapping[str, str],
        *,
        files: bool,
        frames: bool,
    ) -> None:
        main = session.runtime.agent
        root, blobs = main.world.root, main.world.blobs
        self._session, self._stack, self._files = session.id, stack, files
        self._path = locate_transcript(session.id, root, environ)
        # The file may be what the host got from its store, so it is read before it is written.
        self._frames = (
            TranscriptFrames(session.id, root, blobs=blobs, environ=environ) if frames else None
        )
        self._logs: dict[str, FollowedLog] = {}
        self._follow(main, "", self._path, about=None)
        before = main.team.on_child

        def on_child(child: Agent) -> None:
            before(child)
            self._follow_child(child)

        main.team.on_child = on_child

    def take_frames(self) -> Iterator[JsonObject]:
        """Write what is new to the files, and yield the frames for the host's store."""
        for id, log in self._logs.items():
            entries = log.take_entries()
            lines = [line for entry in entries for line in log.writer.encode_entry(entry)]
            if lines and self._files:
                write_transcript_lines(log.path, lines, mode=log.mode)
                log.mode = "ab"
            if self._frames is None or not entries:
                continue
            if id:
                told, log.before = [*log.before, *lines], []
                yield build_frame(log.path, told)
            elif frame := self._frames.encode_frame(entries):
                yield frame

    def _follow(self, agent: Agent, id: str, path: Path, *, about: TranscriptAgent | None) -> None:
        fetch = agent.world.blobs.get
        writer = ClaudeTranscriptWriter(self._session, fetch, agent=about, mark=VIEW_MARK)
        events = self._stack.enter_context(agent.session.watch())
        history = agent.session.history() if id else [*agent.session.read_whole_log()]
        self._logs[id] = FollowedLog(agent, path, writer, events, history)

    def _follow_child(self, child: Agent) -> None:
        """Follow a subagent, and tell which call started it."""
        birth = child.team.birth
        assert birth is not None
        parent = birth.id.rpartition(".")[0]
        call = self._logs[parent].agent.session.children[birth.id].call
        about = TranscriptAgent(birth.id, birth.kind, call, parent)
        path = self._path.with_suffix("") / "subagents" / f"agent-{birth.id}.jsonl"
        self._follow(child, birth.id, path, about=about)
        self._logs[birth.id].before = [{"type": AGENT_METADATA, **about.metadata}]
        if self._files:
            beside = path.with_suffix(METADATA_SUFFIX)
            write_transcript_lines(beside, [about.metadata], mode="wb")
