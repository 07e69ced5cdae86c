"""Memories that Claude Code and Codex keep: where they are, and how to import them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE, CODEX
from travois.memory.folder import unlinked
from travois.memory.index import INDEX, prose
from travois.memory.memory import Evidence, Memory, Scope, Type
from travois.memory.text import parse, slug
from travois.prompt.instruction_files import plain_text

MANY = 2_000
"""Files imported from one folder, at most."""
LONGEST = 12_000
"""Characters of a memory made from a part of a long file, at most."""
HEADING = re.compile(r"^#{1,2}[ \t]+(\S.*)$", re.MULTILINE)
SUMMARIES = ("memory_summary.md", INDEX)
"""The files of Codex that hold more than the raw material for them."""


def find_source(source: str, environ: Mapping[str, str], root: str) -> Path | None:
    """Return where `claude` or `codex` keeps memories, of this main checkout or of everything.

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


def others(environ: Mapping[str, str], but: Path | None) -> list[Path]:
    """List the folders where Claude Code keeps memories of other projects."""
    home = CLAUDE.find_home(environ)
    found = sorted((home / "projects").glob("*/memory")) if home else []
    return [path for path in found if path != but and any(path.glob("*.md"))]


def memories(place: Path, *, scope: Scope, label: str) -> Iterator[Memory]:
    """Read the memories in a folder or a file of another agent. Raises OSError.

    Names that are made of headings begin with the label.
    """
    if place.is_file():
        yield from _sections(place, scope=scope, label=label)
    elif any((place / name).is_file() for name in (SUMMARIES[0], "raw_memories.md")):
        for path in (place / name for name in SUMMARIES):
            if path.is_file():
                yield from _sections(path, scope=scope, label=label)
    else:
        yield from _files(place, scope=scope, label=label)


def _files(place: Path, *, scope: Scope, label: str) -> Iterator[Memory]:
    """Read one memory per file; other text in the index becomes one more."""
    for path in sorted(place.glob("[!.]*.md"))[:MANY]:
        if path.name == INDEX:
            own = "\n".join(prose({INDEX: plain_text(str(path), opener=unlinked)}))
            if HEADING.sub("", own).strip():
                yield from _parts(path, own, scope=scope, label=label)
        elif name := slug(path.stem):
            page = parse(name, plain_text(str(path), opener=unlinked), scope=scope)
            yield _from(path, page.memory)


def _sections(path: Path, *, scope: Scope, label: str) -> Iterator[Memory]:
    yield from _parts(path, plain_text(str(path), opener=unlinked), scope=scope, label=label)


def _parts(path: Path, text: str, *, scope: Scope, label: str) -> Iterator[Memory]:
    """Split a long text into memories: one for each heading, several for a long section."""
    starts = [0, *(found.start() for found in HEADING.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        body = text[start:end].strip()
        found = HEADING.match(body)
        title = found[1] if found else path.stem.lower()
        if not (body[found.end() :] if found else body).strip():
            continue
        for number, at in enumerate(range(0, len(body), LONGEST), 1):
            name = slug(f"{label} {title}")
            name = name[:54].rstrip("-") + (f"-{number}" if number > 1 else "")
            part = Memory(name, title, _type(title), body[at : at + LONGEST], scope=scope)
            yield _from(path, part)


def _type(title: str) -> Type:
    """Guess the type of a memory from its heading."""
    words = title.casefold()
    if "preference" in words or "feedback" in words:
        return "feedback"
    return "user" if "profile" in words or "user" in words else "reference"


def _from(path: Path, memory: Memory) -> Memory:
    """Add the source; the author is the model, whoever it quotes."""
    words = Evidence(str(path), 0, "model", memory.description, memory.modified)
    return replace(memory, author="model", evidence=(words,), anchors=())
