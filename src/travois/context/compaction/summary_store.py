"""Store of shared summaries, one folder for each project and trust.

A cache: deleting it costs money, and changes nothing else.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio

from travois.sessions import blobs

MAX_STORED_SUMMARIES = 200
"""The most summaries that are kept; the oldest go first."""
MAX_SUMMARY_BYTES = 200_000
"""A file of more bytes is none of ours."""


class SummaryFolder:
    """A folder with one file for each summary, named by the digest of what it covers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._under_way: dict[str, anyio.Event] = {}

    @property
    def pending(self) -> dict[str, anyio.Event]:
        """The keys that a model is being asked for in this process, each set when that is over."""
        return self._under_way

    def get(self, key: str) -> str:
        """Return the summary of this key; empty if there is none."""
        path = self._folder / f"{key}.md"
        try:
            if path.is_symlink() or path.stat().st_size > MAX_SUMMARY_BYTES:
                return ""
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def put(self, key: str, text: str) -> None:
        """Store a summary; if that fails, it will be asked for again."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = text.encode(errors="replace")
            blobs.replace_file(self._folder / f"{key}.md", data, sync="whenever")
            kept = sorted(self._folder.glob("*.md"), key=lambda path: path.stat().st_mtime)
            for path in kept[:-MAX_STORED_SUMMARIES]:
                path.unlink(missing_ok=True)
