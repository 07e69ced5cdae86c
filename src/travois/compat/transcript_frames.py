"""Session stores of claude-agent-sdk: a session as entries of its transcript, and back.

Each log entry goes to the host as lines of Claude Code's format, for programs that read them, and
as the line of our log: only that rebuilds a request to the byte. Blobs go as entries of their own.
"""

from __future__ import annotations

import os
import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from travois.compat.claude_json import Json, JsonObject, make_line_uuid
from travois.compat.claude_transcript import ClaudeTranscriptWriter
from travois.core.facts import Entry
from travois.ports.session_store import StoredSession
from travois.ports.world import Blobs
from travois.sessions.log_line import encode_entry
from travois.sessions.mirror import BASE_PREFIX, BLOB_NAME
from travois.sessions.scan import LOG_FILE_NAME
from travois.sessions.stores.folder import FolderStore

CONFIG_VARIABLE = "CLAUDE_CONFIG_DIR"
"""Where the host puts the transcript of a session to resume, and expects those that are written."""
MAX_FOLDER_CHARS = 200
HASH_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class TranscriptEntry(msgspec.Struct):
    """The fields read of an entry that comes back from a store."""

    type: str = ""
    line: str = ""
    """A line of our log."""
    name: str = ""
    data: str = ""
    """The digest and the bytes of a blob."""


class LogLineHead(msgspec.Struct):
    """The fields that tell log lines apart."""

    seq: int = 0


class TranscriptFrames:
    """Encodes what is new of a session as frames for the host's store."""

    def __init__(self, session: str, cwd: str, *, blobs: Blobs, environ: Mapping[str, str]) -> None:
        self.path = locate_transcript(session, cwd, environ)
        self._session = session
        self._blobs = blobs
        self._writer = ClaudeTranscriptWriter(session, blobs.get)
        self._known = {seq for seq, _ in _read_log_lines(find_transcript(session, environ))}
        self._sent_blobs: set[bytes] = set()

    def encode_frame(self, entries: Iterable[Entry]) -> JsonObject | None:
        """Encode those entries that the store does not have; None if it has them all."""
        told: list[Json] = [line for entry in entries for line in self._encode_lines(entry)]
        return build_frame(self.path, told) if told else None

    def _encode_lines(self, entry: Entry) -> Iterator[JsonObject]:
        lines = [*self._writer.encode_entry(entry)]
        if entry.seq in self._known:
            return
        yield from lines
        own = encode_entry(entry)[1]
        for name in {*BLOB_NAME.findall(own)} - self._sent_blobs:
            self._sent_blobs.add(name)
            yield from self._encode_blob(name.decode())
        yield {
            "type": "travois-log",
            "uuid": make_line_uuid(self._session, f"log.{entry.seq}"),
            "sessionId": self._session,
            "line": own.decode(),
        }

    def _encode_blob(self, name: str) -> Iterator[JsonObject]:
        try:
            data = b64encode(self._blobs.get(name)).decode()
        except KeyError:
            return
        id = make_line_uuid(self._session, f"blob.{name}")
        yield {"type": "travois-blob", "uuid": id, "name": name, "data": data}


def build_frame(path: Path, entries: Sequence[Json]) -> JsonObject:
    """Build the frame with which a host's store gets entries of a transcript."""
    return {"type": "transcript_mirror", "filePath": str(path), "entries": [*entries]}


def locate_transcript(session: str, cwd: str, environ: Mapping[str, str]) -> Path:
    """Return where the host looks for the transcript of a session in this folder."""
    top = environ.get(CONFIG_VARIABLE) or os.path.join(environ.get("HOME", "/"), ".claude")
    folder = _encode_folder_name(unicodedata.normalize("NFC", os.path.realpath(cwd)))
    return Path(unicodedata.normalize("NFC", top), "projects", folder, f"{session}.jsonl")


def find_transcript(session: str, environ: Mapping[str, str]) -> Path | None:
    """Return the transcript that the host got from its store; None without one."""
    top = environ.get(CONFIG_VARIABLE, "")
    return next(Path(top, "projects").glob(f"*/{session}.jsonl"), None) if top else None


def unpack_transcript(transcript: Path, session: str, folder: Path) -> FolderStore | None:
    """Unpack our own lines of a transcript as a store in a folder; None if it has none."""
    logs: list[tuple[str, list[str]]] = []
    for _, line in _read_log_lines(transcript):
        if '"fact":{"type":"opened"' in line:  # of the session, or of one that it was forked from
            logs.append((msgspec.json.decode(line)["fact"]["session"], []))
        if logs:
            logs[-1][1].append(line)
    if not logs or logs[-1][0] != session:
        return None
    store = FolderStore(folder)
    epoch = store.claim_session(StoredSession(session))
    for id, lines in logs:
        name = LOG_FILE_NAME if id == session else f"{BASE_PREFIX}{id}.jsonl"
        store.append_log(session, name, "".join(lines).encode(), offset=0, epoch=epoch)
    for entry in _read_transcript(transcript):
        if entry.type == "travois-blob":
            store.put_blob(entry.name, b64decode(entry.data))
    return store


def _read_log_lines(transcript: Path | None) -> list[tuple[int, str]]:
    """Return the lines of our log that a transcript has, in their order, each once."""
    lines = [entry.line for entry in _read_transcript(transcript) if entry.type == "travois-log"]
    numbered = {msgspec.json.decode(line, type=LogLineHead).seq: line for line in lines}
    return sorted(numbered.items())


def _read_transcript(transcript: Path | None) -> Iterator[TranscriptEntry]:
    if transcript is None:
        return
    with transcript.open("rb") as file:
        for line in file:
            try:
                yield msgspec.json.decode(line, type=TranscriptEntry)
            except msgspec.DecodeError:
                continue  # somebody else's line


def _encode_folder_name(path: str) -> str:
    """Return the folder name for a path, as Claude Code derives it."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", path)
    if len(name) <= MAX_FOLDER_CHARS:
        return name
    number = 0
    for char in path:
        number = (number * 31 + ord(char)) & 0xFFFFFFFF
    number, digits = abs(number - (1 << 32) if number >> 31 else number), ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = HASH_DIGITS[digit] + digits
    return f"{name[:MAX_FOLDER_CHARS]}-{digits}"
