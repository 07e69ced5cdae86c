"""Changing what is remembered: always on record, always with the way back."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path

from travois.cli.memory_told import file, line, many
from travois.cli.sessions import here
from travois.core.errors import Fault
from travois.memory import foreign_memories as foreign
from travois.memory.drafts import slug
from travois.memory.memory import Evidence, Memory, Scope, Type
from travois.memory.rules import Signal, draft
from travois.memory.scope import said_scope
from travois.memory.similarity import same
from travois.memory.store import FolderMemories, share
from travois.memory.text import parse
from travois.permissions.leaks import leak
from travois.ports.memory import Applied
from travois.sessions import disk
from travois.settings import trust
from travois.terminal.tables import clean, say, styled, table

COLOURS = {"+": "green", "-": "red"}


def told(done: Applied) -> str:
    """What a change did, and how to take it back."""
    if not done.id:
        return "\n".join(("Nothing changed.", *map(line, done.refused)))
    diff = [styled(clean(row), COLOURS.get(row[:1], "dim")) for row in done.diff.split("\n")]
    refused = [f"not made: {line(why)}" for why in done.refused]
    return "\n".join((*diff, *refused, f"Undo: travois memory undo {done.id}"))


def keep(
    memories: FolderMemories,
    text: str,
    *,
    kind: Type | None = None,
    scope: Scope | None = None,
    name: str = "",
    pinned: bool = False,
    session: str = "",
) -> Applied:
    """Remember what a person wants remembered, in their own words."""
    if secret := leak(text):
        fix = "Keep it where secrets are kept, and remember where that is."
        raise Fault("That is not kept", why=f"it seems to hold a secret ({secret})", fix=fix)
    said = draft(Signal("remember", " ".join(text.split()), 0))
    known = next((one for one in memories.all() if same(one.body or one.description, text)), None)
    if known is not None and not name:
        fix = f"`travois memory edit {known.name}` changes it; --name NAME keeps both."
        raise Fault(f"That is remembered already, as {known.name}", why=known.description, fix=fix)
    now = time.time()
    memory = Memory(
        name or _free(memories, slug(said.text)),
        said.text,
        kind or said.type,
        said.text,
        created=now,
        modified=now,
        verified=now,
        evidence=(Evidence(session, 0, "user", text, now),),
        scope=scope or said_scope(text) or said.scope or "project",
        pinned=pinned,
    )
    return memories.add(memory)


def _free(memories: FolderMemories, name: str) -> str:
    """A name that no memory has."""
    taken, number = {one.name for one in memories.all()}, 2
    free = name
    while free in taken:
        free, number = f"{name[:56]}-{number}", number + 1
    return free


def run_add(memories: FolderMemories, args: Namespace) -> int:
    """Remember something."""
    text = " ".join(args.text)
    if not text.strip():
        raise Fault("Say what to remember")
    done = keep(memories, text, kind=args.type, scope=args.scope, name=args.name, pinned=args.pin)
    say(told(done))
    return 0


def run_forget(memories: FolderMemories, args: Namespace) -> int:
    """Drop memories; unknown names are told before anything is dropped."""
    for name in args.names:
        memories.get(name, args.scope)
    for name in args.names:
        say(told(memories.forget(name, args.scope)))
    return 0


def run_undo(memories: FolderMemories, args: Namespace) -> int:
    """Take a change back."""
    done = memories.undo(args.id)
    say(told(done) if done.diff else f"It is undone. Undo: travois memory undo {done.id}")
    return 0


def run_accept(memories: FolderMemories, args: Namespace) -> int:
    """Make proposed changes."""
    return _decide(memories, args, lambda id: told(memories.accept(id)))


def run_reject(memories: FolderMemories, args: Namespace) -> int:
    """Reject proposed changes."""

    def reject(id: str) -> str:
        memories.reject(id)
        return f"{id} is rejected, and will not be proposed again."

    return _decide(memories, args, reject)


def _decide(memories: FolderMemories, args: Namespace, word: Callable[[str], str]) -> int:
    ids: Iterable[str] = [one.id for one in memories.inbox()] if args.all else args.ids
    if not args.all and not args.ids:
        raise Fault("Say which proposals", fix="`travois memory inbox` lists them; or use --all.")
    for id in ids:
        say(word(id))
    return 0


def run_edit(memories: FolderMemories, args: Namespace) -> int:
    """Let a person change a memory; what cannot be read is not put in its place, and not lost."""
    memory = memories.get(args.name, args.scope)
    path = file(memories, memory)
    before = path.read_bytes()
    draft = _edited(path, before)
    after = draft.read_bytes()
    if after in (before, b""):
        _drop(draft)
        say(
            "Nothing changed."
            if after
            else f"Nothing changed. To drop it: travois memory forget {memory.name}"
        )
        return 0
    flaws = _flaws(memory, after)
    if path.read_bytes() != before:
        flaws = ("its file was changed meanwhile",)
    if flaws:
        fix = f"Your text is kept in {draft}."
        raise Fault(f"{memory.name} was not changed", why="; ".join(flaws), fix=fix)
    disk.replace(path, after)
    _drop(draft)
    say(told(memories.edited()))
    return 0


def _edited(path: Path, text: bytes) -> Path:
    """A copy of a file, as it is when the editor was left."""
    import shlex
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    copy = Path(tempfile.mkdtemp(prefix="travois-memory-")) / path.name
    copy.write_bytes(text)
    try:
        subprocess.run((*shlex.split(editor), str(copy)), check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        fix = f"Set EDITOR to your editor; your text is kept in {copy}."
        raise Fault(f"The editor {editor!r} failed", why=str(error), fix=fix) from error
    return copy


def _drop(draft: Path) -> None:
    draft.unlink()
    draft.parent.rmdir()


def _flaws(memory: Memory, data: bytes) -> tuple[str, ...]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return (f"it is not UTF-8 text: {error.reason}",)
    page = parse(memory.name, text, scope=memory.scope, pinned=memory.pinned)
    kind = leak(f"{page.memory.description}\n{page.memory.body}")
    return (*page.flaws, *((f"it seems to hold a secret ({kind})",) if kind else ()))


def run_import(memories: FolderMemories, args: Namespace) -> int:
    """Read in what another agent remembers, or only list it."""
    path = _place(args.source)
    if path is None or not path.exists():
        why = f"{path} is not there" if path else "it keeps none for this project"
        fix = "Name another folder, or an agent: claude, codex."
        raise Fault(f"There are no memories of {args.source}", why=why, fix=fix)
    if not args.dry_run:
        say(told(memories.import_from(args.source, scope=args.scope)))
        return 0
    scope, label = args.scope or "project", Path(args.source).stem
    try:
        found = list(foreign.memories(path, scope=scope, label=label))
    except OSError as error:
        raise disk.fault(f"The memories in {path} cannot be read", error, path=path) from error
    rows = [(one.type, line(one.name), line(one.description)) for one in found]
    say(table([("TYPE", "NAME", "MEMORY"), *rows]))
    say(f"\n{many(len(found))} would be read in from {path}")
    return 0


def _place(source: str) -> Path | None:
    match source:
        case "claude":
            return foreign.claude(os.environ, trust.root(here()[1].root))
        case "codex":
            return foreign.codex(os.environ)
        case _:
            return Path(source).expanduser()


def run_share(memories: FolderMemories, args: Namespace) -> int:
    """Make the team's folder."""
    home, project = here()
    folder = share(home.prepare(), project)
    say(f"The team's memories are {folder}; commit that folder to share them.")
    say("They count while the repository is trusted (`travois trust`). What agents find for the")
    say("team waits in the inbox: travois memory inbox")
    return 0
