"""Transcripts in Claude Code's JSONL format, for programs that read them."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from travois.compat.claude_json import STOPS, Json, Object, block_json, usage_json, uuid
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
from travois.ports.world import Event
from travois.version import __version__

Fetch = Callable[[str], bytes]
LIKE: Object = {"isSidechain": False, "userType": "external", "version": __version__}


class Writer:
    """A writer of entries as transcript lines; the same entry gives the same lines."""

    def __init__(self, session: str, fetch: Fetch) -> None:
        self._session, self._fetch = session, fetch
        self._cwd, self._model = "", ""
        self._told: list[tuple[int, str]] = []
        """The entries that have lines on the living branch, each with its last one."""
        self._callers: dict[str, str] = {}
        """The line of each call."""

    def lines(self, entry: Entry) -> Iterator[Object]:
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
                meta: Object = {} if fact.origin == "human" else {"isMeta": True}
                yield self._line(entry, "user", {"message": self._said(fact), **meta})
            case Assistant() as fact:
                yield from self._reply(entry, fact)
            case Result() as fact:
                yield self._result(entry, fact)
            case Compacted() as fact:
                yield from self._compacted(entry, fact)
            case _:
                pass

    def _line(self, entry: Entry, kind: str, body: Object, *, part: str = "") -> Object:
        id = uuid(self._session, f"{entry.seq}{part}")
        parent = self._told[-1][1] if self._told else None
        self._told.append((entry.seq, id))
        at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
        return {
            "parentUuid": parent,
            **LIKE,
            "cwd": self._cwd,
            "sessionId": self._session,
            "type": kind,
            **body,
            "uuid": id,
            "timestamp": at.replace("+00:00", "Z"),
        }

    def _said(self, fact: User) -> Object:
        match fact.content:
            case (Text(text=text),):
                return {"role": "user", "content": text}
            case _:
                return {"role": "user", "content": self._blocks(fact.content)}

    def _blocks(self, content: Iterable[AnyBlock]) -> list[Json]:
        return [self._media(one) if isinstance(one, Media) else block_json(one) for one in content]

    def _media(self, block: Media) -> Object:
        try:
            data = b64encode(self._fetch(block.blob)).decode()
        except (KeyError, OSError):
            return {"type": "text", "text": f"[{block.kind} {block.name} is no longer available]"}
        source: Object = {"type": "base64", "media_type": block.mime, "data": data}
        return {"type": block.kind, "source": source}

    def _reply(self, entry: Entry, fact: Assistant) -> Iterator[Object]:
        """Yield a line for each part of a reply, all with the name of the reply."""
        message: Object = {"id": fact.id or f"msg_{entry.seq}", "type": "message"}
        message |= {"role": "assistant", "model": fact.model or self._model}
        ending: Object = {"stop_reason": STOPS[fact.stop], "stop_sequence": None}
        request: Object = {"requestId": fact.request} if fact.request else {}
        for number, block in enumerate(fact.content):
            told = canonical_call(block) if isinstance(block, Call) else block
            content: Object = {"content": [block_json(told)], "usage": usage_json(fact.usage)}
            body: Object = {"message": {**message, **content, **ending}, **request}
            line = self._line(entry, "assistant", body, part=f".{number}")
            if isinstance(block, Call):
                self._callers[block.id] = str(line["uuid"])
            yield line

    def _result(self, entry: Entry, fact: Result) -> Object:
        block: Object = {"type": "tool_result", "tool_use_id": fact.call}
        block |= {"content": self._blocks(fact.content), "is_error": fact.error}
        detail: Json = (
            msgspec.json.decode(fact.detail) if fact.detail else extract_text(fact.content)
        )
        body: Object = {"message": {"role": "user", "content": [block]}, "toolUseResult": detail}
        body["sourceToolAssistantUUID"] = self._callers.get(fact.call)
        return self._line(entry, "user", body)

    def _compacted(self, entry: Entry, fact: Compacted) -> Iterator[Object]:
        kept: list[Json] = [id for seq, id in self._told if seq > fact.last]
        about: Object = {"trigger": "manual" if fact.trigger == "manual" else "auto"}
        about |= {"preTokens": fact.before, "preservedMessages": {"uuids": kept}}
        body: Object = {"subtype": "compact_boundary", "content": "Conversation compacted"}
        body |= {"isMeta": False, "compactMetadata": about}
        line = self._line(entry, "system", body, part=".0")
        yield line | {"parentUuid": None, "logicalParentUuid": line["parentUuid"]}
        said: Object = {"role": "user", "content": extract_text(fact.summary)}
        more: Object = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        yield self._line(entry, "user", {"message": said, **more}, part=".1")


class Transcript:
    """The transcript file of a running session, updated when somebody may read it."""

    def __init__(
        self, path: str, writer: Writer, *, events: MemoryObjectReceiveStream[Event]
    ) -> None:
        self.path = path
        self._writer, self._events = writer, events

    def begin(self, entries: Iterable[Entry]) -> None:
        """Write the entries so far."""
        self._write(encoded(self._writer, entries), mode="wb")

    def update(self) -> None:
        """Write the entries since the last update."""
        fresh: list[Entry] = []
        while self._events.statistics().current_buffer_used:
            try:
                event = self._events.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
            fresh += [event] if isinstance(event, Entry) else []
        if lines := encoded(self._writer, fresh):
            self._write(lines, mode="ab")

    def _write(self, lines: list[bytes], *, mode: Literal["wb", "ab"]) -> None:
        """Write lines; a disk that is full costs some of them, never the session."""
        with suppress(OSError), open(self.path, mode, opener=_private) as file:
            file.writelines(lines)


def encoded(writer: Writer, entries: Iterable[Entry]) -> list[bytes]:
    """Encode entries as lines of the file."""
    told = (line for entry in entries for line in writer.lines(entry))
    return [msgspec.json.encode(line) + b"\n" for line in told]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
