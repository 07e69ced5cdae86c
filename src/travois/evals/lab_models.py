"""The models of an eval that the lab plays: scripts and recordings."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from travois_lab.recording import Replay, load_recording
from travois_lab.server import replaying, server


@contextmanager
def play_script(script: object) -> Generator[str]:
    """Serve a scripted model; yield its URL."""
    with server(script) as api:
        yield api.url


@contextmanager
def play_recording(path: Path) -> Generator[str]:
    """Serve a recorded model; yield its URL."""
    with replaying(Replay(load_recording(path))) as api:
        yield api.url
