"""The files of a recorded session, rebuilt in a scratch folder from what its calls show.

Recorded reads show lines, writes show whole files, and edits change what is known. Between two
changes of a file all reads show the same content, so what a later one shows was there before.
Lines that no call ever showed are filled with a placeholder, so that they cost what lines cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from travois.context.ledger.extractors import (
    ToolAction,
    classify_tool,
    decode_arguments,
    is_list,
    is_object,
)
from travois.core.content import Call, extract_text
from travois.core.facts import Changed
from travois.files.disk import DiskFiles
from travois.permissions.resolve_paths import real_path
from travois.ports.tool import ToolOutcome
from travois.ports.world import FileStat, content_digest

NUMBERED = re.compile(r"^\s*(\d+)(?:\u2192|\t)(.*)$")
UNKNOWN = "(a line that the recording never showed)"
SEEN = "seen:"


class Shown(msgspec.Struct, frozen=True):
    """What one call tells of a file: lines that it has, its whole text, or what was replaced."""

    path: str
    lines: dict[int, str] = {}
    text: str | None = None
    edits: tuple[tuple[str, str, bool], ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the file is another one afterwards."""
        return self.text is not None or bool(self.edits)


def shown(call: Call, outcome: ToolOutcome) -> Shown | None:
    """What a recorded call tells of a file; none if it failed or was about none."""
    args = decode_arguments(call.args)
    kind = classify_tool(call.name, args)
    path = ToolAction(0, kind, call.name, args, "").path
    if outcome.error or not path:
        return None
    if kind == "write":
        text = args.get("content", args.get("file_text"))
        return Shown(path, text=text) if isinstance(text, str) else None
    if kind == "edit":
        found = tuple(_edits(args))
        return Shown(path, edits=found) if found else None
    lines = dict(_numbered(extract_text(outcome.content))) if kind == "read" else {}
    return Shown(path, lines=lines) if lines else None


def _edits(args: dict[str, object]) -> Iterator[tuple[str, str, bool]]:
    given = args.get("edits")
    for each in given if is_list(given) else [args]:
        if not is_object(each):
            continue
        old, new = each.get("old_string", each.get("old_str")), each.get("new_string", "")
        if isinstance(old, str) and isinstance(new, str) and (old or new):
            yield old, new, bool(each.get("replace_all"))


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page with their numbers, up to the first that has none or is out of order."""
    last = 0
    for row in text.split("\n"):
        found = NUMBERED.match(row)
        if found is None or (last and int(found[1]) != last + 1):
            return
        last = int(found[1])
        yield last, found[2]


class Versions:
    """One file over time: a version for each change that the recording shows."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._open = Shown("")
        self._lines: dict[int, str] = {}

    def add(self, told: Shown) -> int:
        """Take what one call tells into account; returns the version that it leaves."""
        if told.changes:
            self._close()
            self._open, self._lines = told, {}
        self._lines.update(told.lines)
        return len(self._texts)

    def all(self) -> list[str]:
        """The text of each version, from the first on."""
        self._close()
        self._open = Shown("")
        return self._texts

    def _close(self) -> None:
        before = self._texts[-1] if self._texts else ""
        self._texts.append(_overlaid(_changed(before, self._open), self._lines))


def _changed(text: str, told: Shown) -> str:
    if told.text is not None:
        return told.text
    for old, new, every in told.edits:
        if not text:
            text = new  # all that is known of the file is what the edit put there
        elif old:
            text = text.replace(old, new, -1 if every else 1)
    return text


def _overlaid(text: str, lines: dict[int, str]) -> str:
    """The text with these lines as they were shown, by number."""
    if not lines:
        return text
    rows = text.split("\n") if text else []
    rows += [UNKNOWN] * (max(lines) - len(rows))
    for number, line in lines.items():
        rows[number - 1] = line
    return "\n".join(rows)


class Tree:
    """The scratch folder: each file is brought to the version that a call left when it is run."""

    def __init__(self, root: Path, asked: Iterable[tuple[Call, ToolOutcome]]) -> None:
        self._root = root
        told = {call.id: found for call, outcome in asked if (found := shown(call, outcome))}
        versions: dict[str, Versions] = {}
        self._at = {
            id: (one, versions.setdefault(one.path, Versions()).add(one))
            for id, one in told.items()
        }
        self._texts = {path: each.all() for path, each in versions.items()}

    def run(self, call: str, *, state: Any) -> tuple[Changed, ...]:
        """Do to the disk what a recorded call did; what the real tool would note afterwards.

        An edit of a file that was not read before leaves it unknown, as the real one does.
        """
        if call not in self._at:
            return ()
        told, version = self._at[call]
        data = self._texts[told.path][version].encode("utf-8", errors="replace")
        place = self.place(told.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        known = not told.edits or f"{SEEN}{told.path}" in state
        return (Changed(f"{SEEN}{told.path}", content_digest(data)),) if known else ()

    def place(self, path: str) -> Path:
        """Where a recorded path lies in the scratch folder."""
        return Path(f"{self._root}{real_path(path)}")


class TreeFiles(DiskFiles):
    """The program's own files, with every path below the scratch folder, and none written."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._tree = tree

    async def stat(self, path: str) -> FileStat | None:
        """What the recorded path is in the scratch folder."""
        return await super().stat(str(self._tree.place(path)))

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of the recorded file."""
        return await super().read(str(self._tree.place(path)), offset=offset, limit=limit)

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """When each of these was changed last."""
        return await super().modified_times([str(self._tree.place(path)) for path in paths])
