"""Transcripts in Claude Code's JSONL format, for programs that read them."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from travois.compat.claude_json import (
    CLAUDE_STOP_REASONS,
    Json,
    JsonObject,
    encode_claude_block,
    encode_claude_usage,
    make_line_uuid,
)
from travois.core.content import AnyBlock, Call, Media, Text, extract_text
from travois.core.facts import (
    Assistant,
    Changed,
    Compacted,
    Entry,
    Epoch,
    Opened,
    Result,
    Rewound,
    User,
)
from travois.core.tool_names import canonical_call
from travois.files.openat import make_folders
from travois.ports.world import Event
from travois.version import __version__

FetchBlob = Callable[[str], bytes]
WriteMode = Literal["wb", "ab"]
VIEW_MARK: JsonObject = {"entrypoint": "travois"}
"""What lines say in a file that is only a view of a session of ours."""
COMMON_LINE_FIELDS: JsonObject = {
    "isSidechain": False,
    "userType": "external",
    "version": __version__,
}


class TranscriptAgent(msgspec.Struct, frozen=True):
    """The subagent that a transcript is about: its id, its type, and the call that started it."""

    id: str
    kind: str
    call: str
    parent: str = ""
    """The id of the subagent that started it; empty for the main agent."""

    @property
    def metadata(self) -> JsonObject:
        """What stands beside its transcript."""
        told: JsonObject = {"agentType": self.kind, "toolUseId": self.call}
        return told | ({"parentAgentId": self.parent} if self.parent else {})


class ClaudeTranscriptWriter:
    """A writer of entries as transcript lines; the same entry gives the same lines."""

    def __init__(
        self,
        session: str,
        fetch: FetchBlob,
        *,
        agent: TranscriptAgent | None = None,
        mark: JsonObject | None = None,
    ) -> None:
        """Take the subagent that the transcript is about, and further fields of each line."""
        self._session, self._fetch = session, fetch
        self._prefix = f"{agent.call}/" if agent else ""
        """What tells the lines of a subagent from others; as in `stream-json`."""
        self._common = COMMON_LINE_FIELDS | (mark or {})
        if agent:
            self._common |= {"isSidechain": True, "agentId": agent.id}
        self._cwd, self._model = "", ""
        self._told: list[tuple[int, str]] = []
        """The entries that have lines on the living branch, each with its last one."""
        self._callers: dict[str, str] = {}
        """The line of each call."""

    def encode_entry(self, entry: Entry) -> Iterator[JsonObject]:
        """Encode one entry as lines, if it has any."""
        match entry.fact:
            case Opened(cwd=cwd):
                self._cwd = cwd
            case Epoch(model=model):
                self._model = model.id
            case Changed(what="cwd", value=cwd):
                self._cwd = cwd
            case Changed(what="name", value=name):
                yield {"type": "custom-title", "customTitle": name, "sessionId": self._session}
            case Rewound(to=to):
                self._told = [told for told in self._told if told[0] <= to]
            case User() as fact:
                meta: JsonObject = {} if fact.origin == "human" else {"isMeta": True}
                yield self._build_line(entry, "user", {"message": self._user_message(fact), **meta})
            case Assistant() as fact:
                yield from self._assistant_lines(entry, fact)
            case Result() as fact:
                yield self._tool_result_line(entry, fact)
            case Compacted() as fact:
                yield from self._compaction_lines(entry, fact)
            case _:
                pass

    def _build_line(
        self, entry: Entry, kind: str, body: JsonObject, *, part: str = ""
    ) -> JsonObject:
        id = make_line_uuid(self._session, f"{self._prefix}{entry.seq}{part}")
        parent = self._told[-1][1] if self._told else None
        self._told.append((entry.seq, id))
        at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
        return {
            "parentUuid": parent,
            **self._common,
            "cwd": self._cwd,
            "sessionId": self._session,
            "type": kind,
            **body,
            "uuid": id,
            "timestamp": at.replace("+00:00", "Z"),
        }

    def _user_message(self, fact: User) -> JsonObject:
        match fact.content:
            case (Text(text=text),):
                return {"role": "user", "content": text}
            case _:
                return {"role": "user", "content": self._encode_blocks(fact.content)}

    def _encode_blocks(self, content: Iterable[AnyBlock]) -> list[Json]:
        return [
            self._encode_media(one) if isinstance(one, Media) else encode_claude_block(one)
            for one in content
        ]

    def _encode_media(self, block: Media) -> JsonObject:
        try:
            data = b64encode(self._fetch(block.blob)).decode()
        except (KeyError, OSError):
            return {"type": "text", "text": f"[{block.kind} {block.name} is no longer available]"}
        source: JsonObject = {"type": "base64", "media_type": block.mime, "data": data}
        return {"type": block.kind, "source": source}

    def _assistant_lines(self, entry: Entry, fact: Assistant) -> Iterator[JsonObject]:
        """Yield a line for each part of a reply, all with the name of the reply."""
        message: JsonObject = {"id": fact.id or f"msg_{entry.seq}", "type": "message"}
        message |= {"role": "assistant", "model": fact.model or self._model}
        ending: JsonObject = {"stop_reason": CLAUDE_STOP_REASONS[fact.stop], "stop_sequence": None}
        request: JsonObject = {"requestId": fact.request} if fact.request else {}
        for number, block in enumerate(fact.content):
            told = canonical_call(block) if isinstance(block, Call) else block
            content: JsonObject = {
                "content": [encode_claude_block(told)],
                "usage": encode_claude_usage(fact.usage),
            }
            body: JsonObject = {"message": {**message, **content, **ending}, **request}
            line = self._build_line(entry, "assistant", body, part=f".{number}")
            if isinstance(block, Call):
                self._callers[block.id] = str(line["uuid"])
            yield line

    def _tool_result_line(self, entry: Entry, fact: Result) -> JsonObject:
        block: JsonObject = {"type": "tool_result", "tool_use_id": fact.call}
        block |= {"content": self._encode_blocks(fact.content), "is_error": fact.error}
        detail: Json = (
            msgspec.json.decode(fact.detail) if fact.detail else extract_text(fact.content)
        )
        body: JsonObject = {
            "message": {"role": "user", "content": [block]},
            "toolUseResult": detail,
        }
        body["sourceToolAssistantUUID"] = self._callers.get(fact.call)
        return self._build_line(entry, "user", body)

    def _compaction_lines(self, entry: Entry, fact: Compacted) -> Iterator[JsonObject]:
        kept: list[Json] = [id for seq, id in self._told if seq > fact.last]
        about: JsonObject = {"trigger": "manual" if fact.trigger == "manual" else "auto"}
        about |= {"preTokens": fact.before, "preservedMessages": {"uuids": kept}}
        body: JsonObject = {"subtype": "compact_boundary", "content": "Conversation compacted"}
        body |= {"isMeta": False, "compactMetadata": about}
        line = self._build_line(entry, "system", body, part=".0")
        yield line | {"parentUuid": None, "logicalParentUuid": line["parentUuid"]}
        said: JsonObject = {"role": "user", "content": extract_text(fact.summary)}
        more: JsonObject = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        yield self._build_line(entry, "user", {"message": said, **more}, part=".1")


class ClaudeTranscriptFile:
    """The transcript file of a running session, updated when somebody may read it."""

    def __init__(
        self, path: str, writer: ClaudeTranscriptWriter, *, events: MemoryObjectReceiveStream[Event]
    ) -> None:
        self.path = path
        self._writer, self._events = writer, events

    def write_history(self, entries: Iterable[Entry]) -> None:
        """Write the entries so far."""
        lines = encode_claude_transcript(self._writer, entries)
        _write_private_lines(self.path, lines, mode="wb")

    def write_new_entries(self) -> None:
        """Write the entries since the last update."""
        fresh: list[Entry] = []
        while self._events.statistics().current_buffer_used:
            try:
                event = self._events.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
            fresh += [event] if isinstance(event, Entry) else []
        if lines := encode_claude_transcript(self._writer, fresh):
            _write_private_lines(self.path, lines, mode="ab")


def write_transcript_lines(path: Path, lines: list[JsonObject], *, mode: WriteMode) -> None:
    """Write lines of a transcript where Claude Code keeps its own, with the folders they need."""
    with suppress(OSError):
        make_folders(path.parent)
        encoded = [msgspec.json.encode(line) + b"\n" for line in lines]
        _write_private_lines(str(path), encoded, mode=mode)


def _write_private_lines(path: str, lines: list[bytes], *, mode: WriteMode) -> None:
    """Write lines; a disk that is full costs some of them, never the session."""
    with suppress(OSError), open(path, mode, opener=_open_private_file) as file:
        file.writelines(lines)


def encode_claude_transcript(
    writer: ClaudeTranscriptWriter, entries: Iterable[Entry]
) -> list[bytes]:
    """Encode log entries as lines of a Claude Code transcript."""
    told = (line for entry in entries for line in writer.encode_entry(entry))
    return [msgspec.json.encode(line) + b"\n" for line in told]


def _open_private_file(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
