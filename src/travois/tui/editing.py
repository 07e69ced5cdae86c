"""The line that is typed: its past, its completion, and what is pasted into it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from travois.terminal.tables import amount
from travois.tui.cells import clean

LONG, LINES = 1_000, 12
"""A paste that is longer than this is shown by its size."""
FILES = 5_000
"""How many files are looked through for a word; in a larger tree a folder must be typed."""
FRESH = 20.0
"""How many seconds a listing of files is good for."""
SKIPPED = {".git", ".hg", ".venv", "node_modules", "__pycache__", "target", "dist", ".mypy_cache"}
FOUND = 30
MENTION = re.compile(r"(?:^|\s)@(\S*)$")
COMMAND = re.compile(r"/([\w:.-]*)(?:\s+(\S*))?")

Held = Callable[[], list[str]]
Offers = Callable[[str | None, str], Iterable[tuple[str, str]]]
"""Names of commands with their meaning; for a named command, what may follow it."""


class Pastes:
    """Long pastes, shown by their size and sent whole."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}

    def taken(self, text: str) -> str:
        """What to show for a paste."""
        text = clean(text.replace("\r\n", "\n").replace("\r", "\n"))
        if len(text) <= LONG and text.count("\n") < LINES:
            return text
        name = f"[pasted {amount(len(text.encode()))}]"
        if name in self._kept:
            name = f"{name[:-1]}, {len(self._kept) + 1}]"
        self._kept[name] = text
        return name

    def whole(self, text: str) -> str:
        """What was typed, with all that was pasted."""
        for name, paste in self._kept.items():
            text = text.replace(name, paste)
        return text


class Completing(Completer):
    """Completes commands after a slash, and after an @ files and what servers have."""

    def __init__(self, folder: str, offers: Offers, held: Held = list) -> None:
        self._folder = folder
        self._offers = offers
        self._held = held
        self._files: list[str] = []
        self._is_cut = False
        """Whether there are more files than were listed."""
        self._listed = -FRESH

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """What may stand here."""
        before = document.text_before_cursor
        if found := COMMAND.fullmatch(before):
            name, word = found[1], found[2]
            known = self._offers(None, name) if word is None else self._offers(name, word)
            start = -len(name) if word is None else -len(word)
            for text, meaning in known:
                shown = f"/{text}" if word is None else text
                yield Completion(text, start, display=shown, display_meta=meaning)
        elif found := MENTION.search(before):
            for path in self._near(found[1]):
                yield Completion(path, -len(found[1]), display=path)
            if self._is_cut:
                yield Completion("", display=f"(only {FILES:,} files searched; type a folder)")

    def _near(self, word: str) -> list[str]:
        """Files whose path holds the word, those whose name begins with it first."""
        if monotonic() - self._listed > FRESH:
            files = list(islice(_walk(self._folder), FILES + 1))
            self._files, self._is_cut = files[:FILES], len(files) > FILES
            self._listed = monotonic()
        low = word.lower()
        named = _inside(self._folder, os.path.dirname(word)) if self._is_cut or "/" in word else ()
        known = dict.fromkeys((*self._files, *named, *self._held()))
        found = [path for path in known if low in path.lower()]
        found.sort(key=lambda path: (not _name(path).lower().startswith(low), len(path), path))
        return found[:FOUND]


def buffer(completer: Completer, past: str) -> Buffer:
    """The line that is typed, with the past that is kept in a file."""
    os.makedirs(os.path.dirname(past), mode=0o700, exist_ok=True)
    return Buffer(
        completer=completer,
        complete_while_typing=True,
        history=FileHistory(past),
        multiline=True,
        tempfile_suffix=".md",
    )


def _name(path: str) -> str:
    return os.path.basename(path.rstrip("/"))


def _inside(folder: str, part: str) -> list[str]:
    """What lies in one folder below this one, whose own folders end with a slash."""
    try:
        with os.scandir(os.path.join(folder, part)) as entries:
            found = [(one.name, "/" if one.is_dir() else "") for one in islice(entries, FILES)]
    except OSError:
        return []
    kept = [os.path.join(part, name) + end for name, end in found if name not in SKIPPED]
    return [path for path in kept if _is_typed(path)]


def _is_typed(path: str) -> bool:
    """Whether a path can stand after an @."""
    return path.isprintable() and " " not in path


def _walk(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        inside = os.path.relpath(place, folder)
        for name in sorted(files):
            path = name if inside == "." else f"{inside}/{name}"
            if _is_typed(path):
                yield path
