"""Many sessions on file, as fast as files can be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID
from zlib import crc32

from travois.core.content import Text
from travois.core.facts import AnyFact, Assistant, Ended, Entry, Epoch, Opened, User
from travois.core.models import ModelCard
from travois.sessions import log_line as line
from travois.sessions.home import TravoisHome, identify_project
from travois.version import __version__

MODEL = ModelCard("anthropic", "claude-opus-5-5", "anthropic", window=1_000_000, output=128_000)


def fill(home: Path, folder: Path, *, count: int, at: float, about: str = "task") -> list[str]:
    """Sessions of a folder, each with one exchange, a minute apart; gives their ids."""
    place = TravoisHome(home).prepare()
    key = identify_project(place, str(folder)).key
    ids = [str(UUID(int=(crc32(about.encode()) << 96) + number)) for number in range(count)]
    for number, id in enumerate(ids):
        path = place.session_folder(key, id) / "log.jsonl"
        path.parent.mkdir(parents=True)
        facts = _facts(id, key, str(folder), words=f"{about} number {number}")
        entries = (Entry(seq, at - 60 * number, fact) for seq, fact in enumerate(facts, 1))
        path.write_bytes(b"".join(line.encode_entry(entry)[1] for entry in entries))
    return ids


def _facts(id: str, key: str, cwd: str, *, words: str) -> Iterator[AnyFact]:
    yield Opened(session=id, cwd=cwd, project=key, version=__version__)
    yield Epoch(MODEL, "You help.")
    yield User((Text(words),))
    yield Assistant((Text(f"The answer to {words}."),), "end")
    yield Ended("end")
