"""Slash commands that show what the command line shows: memory, settings, search, export."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import partial
from time import localtime, strftime
from typing import TYPE_CHECKING

import anyio.to_thread

from travois.compose.memory import open_memories_here
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.tui.slash import CommandHost, SlashCommand, capture_output, parse_command_line

if TYPE_CHECKING:
    from travois.memory.store import FolderMemoryStore

with lazy_imports():
    from travois.commands import config, doctor, dream, memory, search, sessions
    from travois.compose import dreaming


# /memory, and a line that begins with #.

DIFF_HEADER = re.compile(r"^--- \S.*\n\+\+\+ (?:/dev/null\n)?", re.MULTILINE)
"""What a person need not see above the diff of a memory: the name of its file is enough."""
MEMORY_WORDS = ("search", "show", "add", "forget", "undo", "history", "inbox", "accept", "reject")


async def _run_memory_command(host: CommandHost, typed: str) -> str:
    """Run /memory: list, search, add and edit memories."""
    place, loaded = load_workspace(host.options)
    known = open_memories_here(place.home, place.project, loaded)
    return await anyio.to_thread.run_sync(
        partial(_answer_memory_command, known, typed, session=host.session.id)
    )


def _answer_memory_command(memories: FolderMemoryStore, typed: str, *, session: str) -> str:
    """Run a /memory subcommand with the code of `travois memory`."""
    word, _, rest = typed.partition(" ")
    now, rest = time.time(), rest.strip()

    def reject_memory(id: str) -> str:
        memories.reject(id)
        return f"Rejected {id}. It will not be proposed again."

    answers: dict[str, Callable[[], str]] = {
        "": lambda: memory.render_memory_table(memories, memories.read_all(), now=now),
        "search": lambda: memory.render_memory_table(
            memories, memories.search(rest, limit=10), now=now
        ),
        "show": lambda: memory.render_memory(memories, memories.get(rest), now=now),
        "add": lambda: memory.render_memory_change(
            memory.add_memory(memories, rest, session=session)
        ),
        "forget": lambda: memory.render_memory_change(memories.forget(rest)),
        "undo": lambda: memory.render_memory_change(memories.undo(rest)),
        "history": lambda: memory.render_history(memories.history(), now=now),
        "inbox": lambda: memory.render_proposals(memories.inbox(), now=now),
        "accept": lambda: memory.render_memory_change(memories.accept(rest)),
        "reject": lambda: reject_memory(rest),
    }
    if word not in answers:
        raise UserError(
            f"Unknown subcommand: /memory {word}", fix=f"Use {', '.join(MEMORY_WORDS)}."
        )
    answer = answers[word]().replace("travois memory", "/memory")
    return DIFF_HEADER.sub("", answer)


MEMORY_COMMANDS = {
    "memory": SlashCommand(
        "/memory [WORD …]",
        "list and edit memories; #TEXT adds one",
        _run_memory_command,
        lambda desk: MEMORY_WORDS,
        when="ever",
    )
}


# Command-line commands as slash commands: /config, /doctor, /search, /dream and /export.

EXPORT_FORMATS = {".html": "html", ".htm": "html", ".json": "json"}


async def _run_config_command(host: CommandHost, key: str) -> str:
    """Run /config: show settings and where they come from."""

    def explain_settings() -> str:
        loaded = load_workspace(host.options)[1]
        found = config.find_settings(
            loaded, "" if key == "all" else key.removeprefix("explain").strip()
        )
        if not key:
            found = {
                k: v for k, v in found.items() if config.find_setting_origin(k, loaded) != "default"
            }
        return config.render_settings_table(found, loaded)

    more = "" if key else "\n\nAll other settings are defaults: /config all, or /config KEY."
    return await anyio.to_thread.run_sync(explain_settings) + more


async def _run_doctor_command(host: CommandHost, _: str) -> str:
    """Run /doctor: check the sandbox, programs and model."""
    args = parse_command_line(doctor.register_doctor, ("doctor",))
    return await capture_output(host, partial(doctor.run_doctor, args))


async def _run_search_command(host: CommandHost, text: str) -> str:
    """Run /search: search past sessions."""
    args = parse_command_line(search.register_search, ("search", "--", text))
    return (await capture_output(host, partial(search.run_search, args))).replace(
        "travois --resume", "/resume"
    )


async def _run_dream_command(host: CommandHost, word: str) -> str:
    """Run /dream: show or stop memory consolidation."""
    if word not in ("", "status", "stop"):
        raise UserError(f"Unknown subcommand: /dream {word}", fix="Use status or stop.")
    nights = dreaming.compose_dreaming(*load_workspace(host.options))
    show = (
        partial(dream.stop_consolidation, nights)
        if word == "stop"
        else partial(dream.show_consolidations, nights, json=False)
    )
    return (await capture_output(host, show)).replace("travois memory", "/memory")


async def _run_export_command(host: CommandHost, name: str) -> str:
    """Run /export: write this session to a file."""
    path = os.path.expanduser(name) or strftime("travois-%Y%m%d-%H%M%S.md", localtime())
    if os.path.lexists(path):
        raise UserError(f"{path} already exists", fix="Choose another name.")
    kind = EXPORT_FORMATS.get(os.path.splitext(path)[1].lower(), "markdown")
    words = ("sessions", "export", host.session.id, "--format", kind, "--output", path)
    args = parse_command_line(sessions.register_sessions, words)
    return await capture_output(host, partial(sessions.run_sessions_export, args))


PROGRAM_COMMANDS = {
    "search": SlashCommand(
        "/search TEXT", "search all sessions for words", _run_search_command, when="ever"
    ),
    "export": SlashCommand(
        "/export [FILE]", "save the conversation as .md, .html or .json", _run_export_command
    ),
    "config": SlashCommand(
        "/config [KEY]", "show settings and where they come from", _run_config_command, when="ever"
    ),
    "doctor": SlashCommand(
        "/doctor", "check the setup of this machine", _run_doctor_command, when="ever"
    ),
    "dream": SlashCommand(
        "/dream [stop]",
        "show or stop memory consolidation",
        _run_dream_command,
        lambda desk: ("status", "stop"),
        when="ever",
    ),
}
