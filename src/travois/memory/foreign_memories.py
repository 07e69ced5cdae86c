"""Memories that Claude Code and Codex keep: where they are, and how to import them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE, CODEX
from travois.memory.folder import open_no_follow
from travois.memory.index import INDEX_FILE, extract_prose
from travois.memory.memory import Evidence, Memory, MemoryScope, MemoryType
from travois.memory.text import make_slug, parse_memory_file
from travois.prompt.instruction_files import read_plain_text

MAX_IMPORTED_FILES = 2_000
"""Files imported from one folder, at most."""
MAX_IMPORTED_CHARS = 12_000
"""Characters of a memory made from a part of a long file, at most."""
TOP_HEADING = re.compile(r"^#{1,2}[ \t]+(\S.*)$", re.MULTILINE)
CODEX_SUMMARY_FILES = ("memory_summary.md", INDEX_FILE)
"""The files of Codex that hold more than the raw material for them."""


def find_source(source: str, environ: Mapping[str, str], root: str) -> Path | None:
    """Return the folder where `claude` or `codex` keeps memories, for this project or all.

    Any other source is a path.
    """
    if source not in (CLAUDE.name, CODEX.name):
        return Path(source).expanduser()
    home = (CLAUDE if source == CLAUDE.name else CODEX).find_home(environ)
    if source == CODEX.name or home is None:
        return home and home / "memories"
    name = re.sub(r"[^A-Za-z0-9]", "-", root)
    found = sorted((home / "projects").glob(f"{name[:200]}*/memory"))
    exact = [path for path in found if path.parent.name == name or len(name) > 200]
    return exact[0] if exact else None


def find_other_projects(environ: Mapping[str, str], but: Path | None) -> list[Path]:
    """List the folders where Claude Code keeps memories of other projects."""
    home = CLAUDE.find_home(environ)
    found = sorted((home / "projects").glob("*/memory")) if home else []
    return [path for path in found if path != but and any(path.glob("*.md"))]


def read_foreign_memories(place: Path, *, scope: MemoryScope, label: str) -> Iterator[Memory]:
    """Read the memories in a folder or a file of another agent. Raises OSError.

    Names that are made of headings begin with the label.
    """
    if place.is_file():
        yield from _read_sections(place, scope=scope, label=label)
    elif any((place / name).is_file() for name in (CODEX_SUMMARY_FILES[0], "raw_memories.md")):
        for path in (place / name for name in CODEX_SUMMARY_FILES):
            if path.is_file():
                yield from _read_sections(path, scope=scope, label=label)
    else:
        yield from _read_folder(place, scope=scope, label=label)


def _read_folder(place: Path, *, scope: MemoryScope, label: str) -> Iterator[Memory]:
    """Read another agent's memory folder, one memory per file; the index text is one more."""
    for path in sorted(place.glob("[!.]*.md"))[:MAX_IMPORTED_FILES]:
        if path.name == INDEX_FILE:
            own = "\n".join(
                extract_prose({INDEX_FILE: read_plain_text(str(path), opener=open_no_follow)})
            )
            if TOP_HEADING.sub("", own).strip():
                yield from _split_at_headings(path, own, scope=scope, label=label)
        elif name := make_slug(path.stem):
            page = parse_memory_file(
                name, read_plain_text(str(path), opener=open_no_follow), scope=scope
            )
            yield _add_source(path, page.memory)


def _read_sections(path: Path, *, scope: MemoryScope, label: str) -> Iterator[Memory]:
    """Read another agent's memory file and yield a memory for each of its headings."""
    yield from _split_at_headings(
        path, read_plain_text(str(path), opener=open_no_follow), scope=scope, label=label
    )


def _split_at_headings(
    path: Path, text: str, *, scope: MemoryScope, label: str
) -> Iterator[Memory]:
    """Split another agent's long memory at headings, several for a long section."""
    starts = [0, *(found.start() for found in TOP_HEADING.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        body = text[start:end].strip()
        found = TOP_HEADING.match(body)
        title = found[1] if found else path.stem.lower()
        if not (body[found.end() :] if found else body).strip():
            continue
        for number, at in enumerate(range(0, len(body), MAX_IMPORTED_CHARS), 1):
            name = make_slug(f"{label} {title}")
            name = name[:54].rstrip("-") + (f"-{number}" if number > 1 else "")
            part = Memory(
                name, title, _guess_type(title), body[at : at + MAX_IMPORTED_CHARS], scope=scope
            )
            yield _add_source(path, part)


def _guess_type(title: str) -> MemoryType:
    """Guess the type of an imported memory from its heading."""
    words = title.casefold()
    if "preference" in words or "feedback" in words:
        return "feedback"
    return "user" if "profile" in words or "user" in words else "reference"


def _add_source(path: Path, memory: Memory) -> Memory:
    """Add the source to an imported memory; its author is the model, whoever it quotes."""
    words = Evidence(str(path), 0, "model", memory.description, memory.modified)
    return replace(memory, author="model", evidence=(words,), anchors=())
