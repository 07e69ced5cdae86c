"""`travois memory`: show, edit and undo long-term memories."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import localtime, strftime
from typing import assert_never

import msgspec

from travois.commands.sessions import locate_home_and_project
from travois.compose.memory import open_memories_here
from travois.core.errors import UserError
from travois.memory import foreign_memories
from travois.memory.compare_drafts import parse_scope_words
from travois.memory.dreaming.rules import index_by_key
from travois.memory.history import MemoryTransaction
from travois.memory.memory import (
    AppliedChanges,
    DropMemory,
    Evidence,
    Memory,
    MemoryChange,
    MemoryProposal,
    MemoryScope,
    MemoryType,
    PutMemory,
    make_draft_name,
)
from travois.memory.problems import (
    MemoryFinding,
    find_conflicts,
    find_leaked_secrets,
    find_stale_memories,
    find_unused,
)
from travois.memory.signals import MemorySignal, draft_from_signal
from travois.memory.similarity import have_same_meaning
from travois.memory.store import FolderMemoryStore, MemoryStats, share_with_team, usage_key
from travois.memory.text import parse_memory_file
from travois.permissions.leaks import find_leak
from travois.sessions import blobs
from travois.settings import trust
from travois.settings.load import load_settings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_age,
    format_table,
    print_line,
    style_text,
)

# What is remembered, in words for a terminal.


SPEAKER_LABELS = {"user": "you said", "model": "the model said", "tool": "a tool said"}
CONSENT_LABELS = {"auto": "saved directly", "ask": "proposed in the inbox", "off": "not saved"}


def one_line(text: str) -> str:
    """Return a memory's text on one line, with control characters escaped."""
    return escape_controls(" ".join(text.split()), lines="show")


def count_memories(number: int) -> str:
    """Return a count of memories in words."""
    return "1 memory" if number == 1 else f"{number} memories"


def render_memory_table(memories: FolderMemoryStore, found: Sequence[Memory], *, now: float) -> str:
    """Return a table of memories."""
    if not found:
        return (
            "No memories here yet.\nSay “remember …” in a session, or run: travois memory add TEXT"
        )
    rows = [("SCOPE", "TYPE", "NAME", "AGE", "MEMORY")]
    for one in found:
        marks = _memory_marks(memories, one)
        note = style_text(f"[{', '.join(marks)}] ", "yellow") if marks else ""
        age = format_age(now - one.modified).removesuffix(" ago") if one.modified else "?"
        rows.append(
            (one.scope, one.type, one_line(one.name), age, note + one_line(one.description))
        )
    return format_table(rows, right=(3,))


def _memory_marks(memories: FolderMemoryStore, memory: Memory) -> list[str]:
    """List the marks of a memory in tables: stale, pinned, and its author if not the user."""
    stale = ["stale"] if memories.find_stale_files(memory) else []
    pinned = ["pinned"] if memory.pinned else []
    return [*stale, *pinned, *([f"by {memory.author}"] if memory.author != "user" else [])]


def memory_to_json(memories: FolderMemoryStore, memory: Memory) -> str:
    """Build the complete JSON of a memory."""
    told = msgspec.to_builtins(memory) | {
        "scope": memory.scope,
        "author": memory.author,
        "pinned": memory.pinned,
        "stale": memories.find_stale_files(memory),
        "file": str(memory_file(memories, memory)),
    }
    return msgspec.json.encode(told).decode()


def memory_file(memories: FolderMemoryStore, memory: Memory) -> Path:
    """Return the path of a memory's file."""
    folder = memories.folders()[memory.scope]
    return (folder / "pinned" if memory.pinned else folder) / f"{memory.name}.md"


def render_memory(memories: FolderMemoryStore, memory: Memory, *, now: float) -> str:
    """Return one memory with its evidence and age."""
    about = ", ".join((memory.type, memory.scope, *_memory_marks(memories, memory)))
    lines = [
        f"{style_text(one_line(memory.name), 'bold')}  ({about})",
        one_line(memory.description),
    ]
    if memory.body.strip() and memory.body.strip() != memory.description:
        lines += ["", escape_controls(memory.body.strip())]
    if memory.evidence:
        lines += ["", "Evidence:"]
    for one in memory.evidence:
        lines += _evidence_lines(one)
    for path in memories.find_stale_files(memory):
        lines += [
            "",
            style_text(f"{one_line(path)} has changed since this was last verified.", "yellow"),
        ]
    used = memories.stats().recalled.get(usage_key(memory))
    lines += ["", _describe_times(memory, used, now=now), f"File: {memory_file(memories, memory)}"]
    return "\n".join(lines)


def _evidence_lines(evidence: Evidence) -> list[str]:
    """Format the quotation that a memory rests on, with its date and session."""
    day = f" on {strftime('%Y-%m-%d', localtime(evidence.at))}" if evidence.at else ""
    said = [f"  {SPEAKER_LABELS[evidence.who]}{day}: “{one_line(evidence.words)}”"]
    if "/" in evidence.session:
        return [*said, f"    {one_line(evidence.session)}"]
    return (
        [*said, f"    travois --resume {one_line(evidence.session)}"] if evidence.session else said
    )


def _describe_times(memory: Memory, used: tuple[int, float] | None, *, now: float) -> str:
    """Describe when a memory was created, changed, verified and last recalled."""
    told = [
        f"{word} {format_age(now - at)}"
        for word, at in (
            ("Created", memory.created),
            ("changed", memory.modified),
            ("last verified", memory.verified),
        )
        if at
    ]
    told.append(
        f"recalled {used[0]} times, last {format_age(now - used[1])}" if used else "never recalled"
    )
    return f"{', '.join(told)}."


def render_history(made: Sequence[MemoryTransaction], *, now: float) -> str:
    """Format the history of memory changes as a table, latest first."""
    if not made:
        return "No changes yet."
    rows = [("ID", "WHEN", "SESSION", "FILES", "WHY")]
    for one in made:
        files = sorted({Path(each.file).stem for each in one.files})
        names = (
            files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "") if files else ""
        )
        why = f"{one.why} (undone)" if one.undone else one.why
        rows.append(
            (
                one.id,
                format_age(now - one.at),
                one.session[:8] or "-",
                one_line(names),
                one_line(why),
            )
        )
    return format_table(rows) + "\n\nUndo one: travois memory undo ID"


def render_proposals(waiting: Sequence[MemoryProposal], *, now: float) -> str:
    """Format the proposed memory changes of the inbox as text."""
    if not waiting:
        return "No proposals in the inbox."
    lines: list[str] = []
    for one in waiting:
        age = format_age(now - one.at)
        lines.append(f"{style_text(one.id, 'bold')}  {_describe_change(one.change)}  ({age})")
        lines.append(f"    reason: {one_line(one.why)}")
    return "\n".join((*lines, "", "travois memory accept ID   or   travois memory reject ID"))


def _describe_change(change: MemoryChange) -> str:
    """Describe a proposed memory change in one line."""
    match change:
        case PutMemory(memory):
            return f"{memory.scope} {memory.type}: {one_line(memory.body or memory.description)}"
        case DropMemory(name, scope):
            return f"forget {scope} {one_line(name)}"
        case _:
            assert_never(change)


def render_stats(counted: MemoryStats) -> str:
    """Format memory counts and use as text."""
    lines = [f"{count_memories(counted.total)}, {counted.pinned} pinned"]
    for name, parts in (
        ("scope", counted.scopes),
        ("type", counted.types),
        ("said by", counted.authors),
    ):
        each = ", ".join(f"{what} {number}" for what, number in sorted(parts.items()))
        lines.append(f"  {name + ':':<9} {each or 'none'}")
    often = sorted(counted.recalled.items(), key=lambda one: (-one[1][0], one[0]))[:5]
    lines += [
        f"  recalled {times} times, used in {counted.used.get(name, (0,))[0]} sessions: "
        f"{one_line(name)}"
        for name, (times, _) in often
    ]
    if counted.idle:
        lines.append(f"  recalled often and never used: {', '.join(map(one_line, counted.idle))}")
    lines.append(f"  never recalled: {len(counted.never)}")
    if counted.waiting:
        lines.append(f"  not yet in the semantic index: {counted.waiting}")
    return "\n".join(lines)


def render_memory_folders(memories: FolderMemoryStore) -> str:
    """Format the memory folders, and what happens to memories that agents propose."""
    rows = [("SCOPE", "NEW MEMORIES", "FOLDER")]
    for scope, path in memories.folders().items():
        rows.append((scope, CONSENT_LABELS[memories.consent(scope)], str(path)))
    if "team" in memories.folders():
        return format_table(rows)
    return (
        f"{format_table(rows)}\n\nNo team folder here, or the repository is not trusted:\n"
        "  travois memory share   or   travois trust"
    )


# Changing what is remembered: always on record, always with the way back.


DIFF_STYLES = {"+": "green", "-": "red"}


def render_memory_change(changes: AppliedChanges) -> str:
    """Render the diff of a memory change, and how to undo it."""
    if not changes.id:
        return "\n".join(("Nothing changed.", *map(one_line, changes.refused)))
    diff = [
        style_text(escape_controls(row), DIFF_STYLES.get(row[:1], "dim"))
        for row in changes.diff.split("\n")
    ]
    refused = [f"not applied: {one_line(why)}" for why in changes.refused]
    return "\n".join((*diff, *refused, f"Undo: travois memory undo {changes.id}"))


def add_memory(
    memories: FolderMemoryStore,
    text: str,
    *,
    kind: MemoryType | None = None,
    scope: MemoryScope | None = None,
    name: str = "",
    pinned: bool = False,
    session: str = "",
) -> AppliedChanges:
    """Save a memory in the user's own words."""
    if secret := find_leak(text):
        fix = "Store it in a secret store, and remember where it is."
        raise UserError("Not saved", why=f"it seems to contain a secret ({secret})", fix=fix)
    said = draft_from_signal(MemorySignal("remember", " ".join(text.split()), 0))
    known = next(
        (
            one
            for one in memories.read_all()
            if have_same_meaning(one.body or one.description, text)
        ),
        None,
    )
    if known is not None and not name:
        fix = f"Edit it: travois memory edit {known.name}. To keep both, use --name NAME."
        raise UserError(f"Already remembered as {known.name}", why=known.description, fix=fix)
    now = time.time()
    memory = Memory(
        name or _free_memory_name(memories, make_draft_name(said.text)),
        said.text,
        kind or said.type,
        said.text,
        created=now,
        modified=now,
        verified=now,
        evidence=(Evidence(session, 0, "user", text, now),),
        scope=scope or parse_scope_words(text) or said.scope or "project",
        pinned=pinned,
    )
    return memories.add(memory)


def _free_memory_name(memories: FolderMemoryStore, name: str) -> str:
    """Return a name that no other memory has, numbered if necessary."""
    taken, number = {one.name for one in memories.read_all()}, 2
    free = name
    while free in taken:
        free, number = f"{name[:56]}-{number}", number + 1
    return free


def run_memory_add(memories: FolderMemoryStore, args: Namespace) -> int:
    """Add a memory."""
    text = " ".join(args.text)
    if not text.strip():
        raise UserError("Say what to remember")
    done = add_memory(
        memories, text, kind=args.type, scope=args.scope, name=args.name, pinned=args.pin
    )
    print_line(render_memory_change(done))
    return 0


def run_memory_forget(memories: FolderMemoryStore, args: Namespace) -> int:
    """Delete memories; unknown names fail before anything is deleted."""
    for name in args.names:
        memories.get(name, args.scope)
    for name in args.names:
        print_line(render_memory_change(memories.forget(name, args.scope)))
    return 0


def run_memory_undo(memories: FolderMemoryStore, args: Namespace) -> int:
    """Undo a change to memories."""
    done = memories.undo(args.id)
    print_line(
        render_memory_change(done)
        if done.diff
        else f"Undone. Undo this: travois memory undo {done.id}"
    )
    return 0


def run_memory_accept(memories: FolderMemoryStore, args: Namespace) -> int:
    """Accept proposed memory changes."""
    return _decide_proposals(memories, args, lambda id: render_memory_change(memories.accept(id)))


def run_memory_reject(memories: FolderMemoryStore, args: Namespace) -> int:
    """Reject proposed memory changes."""

    def reject_proposal(id: str) -> str:
        memories.reject(id)
        return f"Rejected {id}; it will not be proposed again."

    return _decide_proposals(memories, args, reject_proposal)


def _decide_proposals(
    memories: FolderMemoryStore, args: Namespace, word: Callable[[str], str]
) -> int:
    """Accept or reject the named memory proposals, or all of them."""
    ids: Iterable[str] = [one.id for one in memories.inbox()] if args.all else args.ids
    if not args.all and not args.ids:
        raise UserError(
            "Name the proposals", fix="`travois memory inbox` lists them; or use --all."
        )
    for id in ids:
        print_line(word(id))
    return 0


def run_memory_edit(memories: FolderMemoryStore, args: Namespace) -> int:
    """Let the user edit a memory; an invalid text is refused, but not lost."""
    memory = memories.get(args.name, args.scope)
    path = memory_file(memories, memory)
    before = path.read_bytes()
    draft = _edit_copy(path, before)
    after = draft.read_bytes()
    if after in (before, b""):
        _remove_draft(draft)
        print_line(
            "Nothing changed."
            if after
            else f"Nothing changed. To delete it: travois memory forget {memory.name}"
        )
        return 0
    flaws = _find_edit_flaws(memory, after)
    if path.read_bytes() != before:
        flaws = ("its file was changed in the meantime",)
    if flaws:
        fix = f"Your text is saved in {draft}."
        raise UserError(f"{memory.name} was not changed", why="; ".join(flaws), fix=fix)
    blobs.replace_file(path, after)
    _remove_draft(draft)
    print_line(render_memory_change(memories.record_edits()))
    return 0


def _edit_copy(path: Path, text: bytes) -> Path:
    """Open a copy of a memory's file in the user's editor; return its path."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    copy = Path(tempfile.mkdtemp(prefix="travois-memory-")) / path.name
    copy.write_bytes(text)
    try:
        subprocess.run((*shlex.split(editor), str(copy)), check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        fix = f"Set EDITOR to your editor; your text is saved in {copy}."
        raise UserError(f"The editor {editor!r} failed", why=str(error), fix=fix) from error
    return copy


def _remove_draft(draft: Path) -> None:
    draft.unlink()
    draft.parent.rmdir()


def _find_edit_flaws(memory: Memory, data: bytes) -> tuple[str, ...]:
    """List what is wrong with an edited memory file, such as a secret in it."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return (f"it is not UTF-8 text: {error.reason}",)
    page = parse_memory_file(memory.name, text, scope=memory.scope, pinned=memory.pinned)
    kind = find_leak(f"{page.memory.description}\n{page.memory.body}")
    return (*page.flaws, *((f"it seems to contain a secret ({kind})",) if kind else ()))


def run_memory_import(memories: FolderMemoryStore, args: Namespace) -> int:
    """Import the memories of another agent, or only list them."""
    path = foreign_memories.find_source(
        args.source, os.environ, trust.trust_root(locate_home_and_project()[1].root)
    )
    if path is None or not path.exists():
        why = f"{path} does not exist" if path else "it has none for this project"
        fix = "Name another folder, or an agent: claude, codex."
        raise UserError(f"No memories of {args.source} found", why=why, fix=fix)
    if not args.dry_run:
        print_line(render_memory_change(memories.import_from(args.source, scope=args.scope)))
        return 0
    scope, label = args.scope or "project", Path(args.source).stem
    try:
        found = list(foreign_memories.read_foreign_memories(path, scope=scope, label=label))
    except OSError as error:
        raise blobs.make_storage_error(
            f"Cannot read the memories in {path}", error, path=path
        ) from error
    rows = [(one.type, one_line(one.name), one_line(one.description)) for one in found]
    print_line(format_table([("TYPE", "NAME", "MEMORY"), *rows]))
    print_line(f"\n{count_memories(len(found))} would be imported from {path}")
    return 0


def run_memory_share(memories: FolderMemoryStore, args: Namespace) -> int:
    """Create the team's memory folder in the repository."""
    home, project = locate_home_and_project()
    folder = share_with_team(home.prepare(), project)
    print_line(f"Team memories are in {folder}; commit that folder to share them.")
    print_line(
        "They are used while the repository is trusted (`travois trust`). New team memories from"
    )
    print_line("agents wait in the inbox: travois memory inbox")
    return 0


# `travois memory doctor`: what is wrong with memories, for people.


def find_memory_problems(memories: FolderMemoryStore, *, now: float) -> list[MemoryFinding]:
    """Find all problems that need no model, most important first."""
    known = index_by_key(memories.read_all())
    changed = {
        key: paths for key, one in known.items() if (paths := memories.find_stale_files(one))
    }
    return [
        *find_leaked_secrets(known, find_leak),
        *(MemoryFinding("file", one.where, one.what, one.fix) for one in memories.find_flaws()),
        *find_stale_memories(known, changed),
        *find_conflicts(known),
        *find_unused(known, memories.stats().never, now=now),
    ]


def render_memory_problems(found: Sequence[MemoryFinding], *, total: int) -> str:
    """Format the problems that were found with memories, each with its fix."""
    if not found:
        return f"No problems in {count_memories(total)}."
    lines: list[str] = []
    for one in found:
        lines += [
            f"{style_text(one.kind, 'yellow')}: {one_line(one.what)}",
            f"    {one_line(one.fix)}",
        ]
    problems = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    return "\n".join((*lines, "", f"{problems} in {count_memories(total)}."))


MEMORY_HELP = """\
examples:
  travois memory                            list the memories of this folder
  travois memory show reply-in-german       show one memory and its evidence
  travois memory add "deploys happen on Tuesdays" --type project
  travois memory undo                       undo the last change
  travois memory import claude --dry-run    list Claude Code's memories of this project

Memories are plain files (`travois memory where`). Every change is recorded and can be undone.
"""
MEMORY_TYPES = ("user", "feedback", "project", "reference")
MEMORY_SCOPES = ("project", "user", "team")
MemoryCommand = Callable[[FolderMemoryStore, Namespace], int]


def register_memory(commands: CommandParsers) -> None:
    """Add the `travois memory` command and its subcommands."""
    top = add_command(
        commands, "memory", what="show, edit and undo long-term memories", more=MEMORY_HELP
    )
    _add_memory_filters(top, default=False)
    top.set_defaults(run=partial(_run_on_memories, run_memory_list))
    below = top.add_subparsers(metavar="command", title="commands")
    _add_reading_commands(below)
    _add_changing_commands(below)
    _add_inbox_commands(below)


def _add_reading_commands(parsers: CommandParsers) -> None:
    """Add the subcommands of `travois memory` that only show memories."""
    _add_memory_filters(
        _add_memory_command(parsers, "list", run_memory_list, what="list memories (the default)")
    )
    search = _add_memory_command(parsers, "search", run_memory_search, what="search memories")
    search.add_argument("text", nargs="+", metavar="TEXT")
    search.add_argument("--limit", type=int, default=10, metavar="N", help="default: 10")
    _add_memory_json_flag(search)
    show = _add_memory_command(
        parsers, "show", run_memory_show, what="show a memory and its evidence"
    )
    _add_memory_name(show)
    _add_memory_json_flag(show)
    history = _add_memory_command(parsers, "history", run_memory_history, what="list changes")
    history.add_argument("--limit", type=int, default=20, metavar="N", help="default: 20")
    _add_memory_json_flag(history)
    doctor = _add_memory_command(
        parsers, "doctor", run_memory_doctor, what="find problems and explain how to fix them"
    )
    doctor.add_argument("--fix", action="store_true", help="rebuild the indexes first")
    _add_memory_json_flag(doctor)
    _add_memory_json_flag(
        _add_memory_command(parsers, "stats", run_memory_stats, what="count memories")
    )
    _add_memory_json_flag(
        _add_memory_command(
            parsers,
            "where",
            run_memory_where,
            what="show the memory folders, and what happens to new memories",
        )
    )


def _add_changing_commands(parsers: CommandParsers) -> None:
    """Add the subcommands of `travois memory` that change memories."""
    add = _add_memory_command(parsers, "add", run_memory_add, what="add a memory")
    add.add_argument("text", nargs="+", metavar="TEXT")
    add.add_argument("--type", choices=MEMORY_TYPES, help="default: guessed from the text")
    add.add_argument("--scope", choices=MEMORY_SCOPES, help="default: project")
    add.add_argument("--name", default="", help="default: its first words")
    add.add_argument("--pin", action="store_true", help="prevent agents from changing it")
    edit = _add_memory_command(parsers, "edit", run_memory_edit, what="edit a memory in $EDITOR")
    _add_memory_name(edit)
    forget = _add_memory_command(parsers, "forget", run_memory_forget, what="delete memories")
    forget.add_argument("names", nargs="+", metavar="NAME")
    _add_scope_flag(forget)
    undo = _add_memory_command(parsers, "undo", run_memory_undo, what="undo a change")
    undo.add_argument("id", nargs="?", default="", metavar="ID", help="default: the last one")
    take = _add_memory_command(
        parsers, "import", run_memory_import, what="import memories from another agent"
    )
    take.add_argument("source", nargs="?", default="claude", metavar="claude|codex|PATH")
    take.add_argument("--scope", choices=MEMORY_SCOPES)
    take.add_argument("--dry-run", action="store_true", help="only list them")
    _add_memory_command(
        parsers, "share", run_memory_share, what="create a team folder in the repository"
    )


def _add_inbox_commands(parsers: CommandParsers) -> None:
    """Add the subcommands of `travois memory` that list and decide proposed changes."""
    inbox = _add_memory_command(parsers, "inbox", run_memory_inbox, what="list proposed changes")
    _add_memory_json_flag(inbox)
    for name, run, what in (
        ("accept", run_memory_accept, "apply proposed changes"),
        ("reject", run_memory_reject, "reject proposed changes for good"),
    ):
        answer = _add_memory_command(parsers, name, run, what=what)
        answer.add_argument("ids", nargs="*", metavar="ID")
        answer.add_argument("--all", action="store_true", help="all proposals")


def _add_memory_command(
    commands: CommandParsers, name: str, run: MemoryCommand, *, what: str
) -> ArgumentParser:
    """Add one subcommand of `travois memory`, which runs on this folder's memories."""
    parser = add_command(commands, name, what=what)
    parser.set_defaults(run=partial(_run_on_memories, run))
    return parser


def _run_on_memories(run: MemoryCommand, args: Namespace) -> int:
    """Run a subcommand on the memories that apply in this folder."""
    home, project = locate_home_and_project()
    cwd = os.path.realpath(os.getcwd())
    loaded = load_settings(home, project.root, cwd=cwd, environ=os.environ)
    return run(open_memories_here(home, project, loaded), args)


def _add_memory_filters(parser: ArgumentParser, *, default: object = SUPPRESS) -> None:
    """Add the flags of `travois memory` that filter by scope and type, and --json."""
    add = parser.add_argument
    add("--json", action="store_true", default=default, help="as JSON")
    none = None if default is False else SUPPRESS
    add("--scope", choices=MEMORY_SCOPES, default=none, help="only one scope")
    add("--type", choices=MEMORY_TYPES, default=none, help="only one type")


def _add_memory_json_flag(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="as JSON")


def _say_json_rows(rows: Iterable[str]) -> None:
    """Print a JSON array of memories or changes, one value per line."""
    print_line("[" + ",\n ".join(rows) + "]")


def _add_memory_name(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _add_scope_flag(parser)


def _add_scope_flag(parser: ArgumentParser) -> None:
    """Add the flag that tells memories of the same name apart by scope."""
    parser.add_argument(
        "--scope", choices=MEMORY_SCOPES, default=SUPPRESS, help="if several scopes have the name"
    )


# --- what they tell ------------------------------------------------------------------------------


def run_memory_list(memories: FolderMemoryStore, args: Namespace) -> int:
    """List memories."""
    found = [
        one
        for one in memories.read_all()
        if args.scope in (None, one.scope) and args.type in (None, one.type)
    ]
    found.sort(
        key=lambda one: (MEMORY_SCOPES.index(one.scope), MEMORY_TYPES.index(one.type), one.name)
    )
    if args.json:
        _say_json_rows(memory_to_json(memories, one) for one in found)
        return 0
    print_line(render_memory_table(memories, found, now=time.time()))
    if waiting := len(memories.inbox()):
        print_line(f"\n{waiting} {'proposal' if waiting == 1 else 'proposals'} in the inbox:")
        print_line("  travois memory inbox")
    return 0


def run_memory_search(memories: FolderMemoryStore, args: Namespace) -> int:
    """Search memories; exit code 1 if none matches."""
    found = memories.search(" ".join(args.text), limit=args.limit)
    if args.json:
        _say_json_rows(memory_to_json(memories, one) for one in found)
    elif found:
        print_line(render_memory_table(memories, found, now=time.time()))
    else:
        print_line("No matching memories.")
    return 0 if found else 1


def run_memory_show(memories: FolderMemoryStore, args: Namespace) -> int:
    """Show one memory with its evidence."""
    memory = memories.get(args.name, args.scope)
    print_line(
        memory_to_json(memories, memory)
        if args.json
        else render_memory(memories, memory, now=time.time())
    )
    return 0


def run_memory_history(memories: FolderMemoryStore, args: Namespace) -> int:
    """List changes to memories."""
    made = memories.history(args.limit)
    if args.json:
        _say_json_rows(msgspec.json.encode(one).decode() for one in made)
        return 0
    print_line(render_history(made, now=time.time()))
    return 0


def run_memory_inbox(memories: FolderMemoryStore, args: Namespace) -> int:
    """List proposed memory changes."""
    waiting = memories.inbox()
    if args.json:
        _say_json_rows(msgspec.json.encode(one).decode() for one in waiting)
        return 0
    print_line(render_proposals(waiting, now=time.time()))
    return 0


def run_memory_doctor(memories: FolderMemoryStore, args: Namespace) -> int:
    """Print problems with memories; exit code 1 if there are any."""
    if args.fix:
        memories.record_edits()
    found = find_memory_problems(memories, now=time.time())
    if args.json:
        _say_json_rows(msgspec.json.encode(one).decode() for one in found)
    else:
        print_line(render_memory_problems(found, total=len(memories.read_all())))
        if waiting := memories.count_unembedded():
            print_line(
                f"{waiting} not yet in the semantic index; sessions add them in the background."
            )
    return 1 if found else 0


def run_memory_stats(memories: FolderMemoryStore, args: Namespace) -> int:
    """Print memory counts and use."""
    counted = memories.stats()
    print_line(msgspec.json.encode(counted).decode() if args.json else render_stats(counted))
    return 0


def run_memory_where(memories: FolderMemoryStore, args: Namespace) -> int:
    """Print the memory folders of each scope."""
    if args.json:
        told = {
            scope: {"folder": str(path), "consent": memories.consent(scope)}
            for scope, path in memories.folders().items()
        }
        print_line(msgspec.json.encode(told).decode())
        return 0
    print_line(render_memory_folders(memories))
    return 0
