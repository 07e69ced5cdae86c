"""Slash commands about keys, this session's state, and reports: login, status, usage, feedback."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from shutil import which

import anyio.to_thread

from travois.compose.mcp import list_server_rows
from travois.compose.models import model_catalog
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.core.facts import Failed
from travois.core.tokens import format_tokens
from travois.lazy_imports import lazy_imports
from travois.providers import catalog
from travois.sessions import home
from travois.settings.credentials import KeyStore
from travois.settings.schema import LoadedSettings
from travois.settings.validate import find_nearest_word
from travois.terminal import format_table
from travois.tui.slash import CommandHost, SlashCommand
from travois.version import __version__

with lazy_imports():
    from travois.commands import cost

MIN_KEY_CHARS = 8
OPENERS = ("xdg-open", "open")
FEEDBACK_TEMPLATE = """\
# Travois feedback

{what}

## What happened

(What did you do, what did you expect, and what came instead?)

## Where

{facts}

Nothing was sent. Read this file, remove what is private, and send it where you report bugs.
"""


# /login and /logout.


def _login_names(host: CommandHost) -> dict[str, str]:
    """Return the API key variable of each provider that /login knows, by name."""
    known = model_catalog(load_workspace(host.options)[1]) or catalog.load_catalog()
    return {name: one.key_env[0] for name, one in known.providers.items() if one.key_env}


async def _run_login_command(host: CommandHost, provider: str) -> str:
    """Run /login: store an API key, and use it from now on."""
    known = _login_names(host)
    if not provider:
        rows = [(name, f"{variable}{_key_state(variable)}") for name, variable in known.items()]
        picked = await host.pick_option("Log in to which provider?", rows)
        if picked is None:
            return ""
        provider = list(known)[picked]
    variable = known[_known_provider(provider, known)]
    key = (await host.ask_secret(f"API key for {provider}: ") or "").strip()
    if not key:
        return "Nothing was saved."
    if len(key) < MIN_KEY_CHARS or not key.isascii() or any(char.isspace() for char in key):
        raise UserError(
            "That is not an API key", why="keys are one long word", fix="Paste it whole."
        )
    store = KeyStore(home.locate_home(os.environ))
    place = await anyio.to_thread.run_sync(store.save_key, variable, key)
    os.environ[variable] = key
    told = f"Saved in {place}. {variable} is set for every session that does not set it itself."
    if not host.session.runtime.model.is_frail:
        return f"{told}\n/model switches to a model of {provider}."
    await host.session.switch_with_summary(_default_model(provider))
    return f"{told}\nThe model is {host.session.runtime.model.name}."


def _default_model(provider: str) -> str:
    return f"{provider}/{catalog.load_catalog().providers[provider].default}"


def _known_provider(name: str, known: dict[str, str]) -> str:
    if name in known:
        return name
    near = find_nearest_word(name, known)
    fix = f"Did you mean {near}?" if near else f"Providers: {', '.join(known)}."
    raise UserError(f"There is no provider {name} that takes a key", fix=fix)


def _key_state(variable: str) -> str:
    return ", set" if os.environ.get(variable) else ""


async def _run_logout_command(host: CommandHost, provider: str) -> str:
    """Run /logout: remove a stored API key."""
    store, known = KeyStore(home.locate_home(os.environ)), _login_names(host)
    stored = [name for name, variable in known.items() if variable in store.stored_names()]
    if not stored:
        return "No key is stored. Keys in the environment are your shell's."
    if not provider:
        picked = await host.pick_option("Remove which key?", [(n, known[n]) for n in stored])
        if picked is None:
            return ""
        provider = stored[picked]
    variable = known[_known_provider(provider, known)]
    if not await anyio.to_thread.run_sync(store.forget_key, variable):
        return f"No key of {provider} is stored."
    os.environ.pop(variable, None)
    return f"Removed the key of {provider}."


# /status, /usage and /feedback.


def _status_rows(host: CommandHost) -> list[tuple[str, str]]:
    """Return the rows of /status: what this session runs with."""
    place, loaded = load_workspace(host.options)
    runtime = host.session.runtime
    bounds = runtime.agent.permissions.sandbox
    servers = list_server_rows(runtime.mcp_servers)
    ready = sum(row[1] == "ready" for row in servers)
    stored = KeyStore(place.home).stored_names()
    return [
        (
            "version",
            f"Travois {__version__}, Python {platform.python_version()}, {platform.system()}",
        ),
        ("session", host.session.id[:8]),
        ("folder", runtime.agent.world.root),
        ("model", f"{runtime.model.name}, window {runtime.model.window:,} tokens"),
        ("effort", runtime.model.effort or "left to the model"),
        ("keys", f"stored: {', '.join(stored)}" if stored else "from the environment"),
        ("mode", runtime.agent.permissions.guard.mode),
        ("sandbox", "none" if bounds is None else bounds.backend),
        ("MCP", f"{ready} of {len(servers)} servers ready" if servers else "no servers"),
        ("settings", ", ".join(_settings_places(loaded)) or "defaults"),
        ("files", str(place.home.path)),
    ]


def _settings_places(loaded: LoadedSettings) -> list[str]:
    """Return settings sources other than the default, for /status."""
    return sorted({origin for origin in loaded.origins.values() if origin != "default"})


async def _run_status_command(host: CommandHost, _: str) -> str:
    """Run /status: show what this session runs with."""
    return format_table(await anyio.to_thread.run_sync(_status_rows, host))


async def _run_usage_command(host: CommandHost, _: str) -> str:
    """Run /usage: show the tokens and the cost of this session."""
    found = cost.compute_session_cost(host.session.runtime.agent.session.all_entries())
    used = found.usage
    rows = [
        ("turns", f"{len(found.turns):,}"),
        ("input", f"{format_tokens(used.input)} tokens"),
        ("read from cache", f"{format_tokens(used.read)} tokens"),
        ("written to cache", f"{format_tokens(used.write + used.write_1h)} tokens"),
        ("output", f"{format_tokens(used.output)} tokens"),
        ("cost", f"${found.dollars:.4f}"),
    ]
    return f"{format_table(rows)}\n\n/cost shows each turn, /context what fills the window."


async def _run_feedback_command(host: CommandHost, what: str) -> str:
    """Run /feedback: write a report with the facts of this session, and open it."""
    rows = await anyio.to_thread.run_sync(_status_rows, host)
    private = ("folder", "files", "settings")
    facts = [f"- {name}: {value}" for name, value in rows if name not in private]
    facts.append(f"- terminal: {os.environ.get('TERM_PROGRAM', '')} {os.environ.get('TERM', '')}")
    failures = [
        e.fact
        for e in host.session.runtime.agent.session.all_entries()
        if isinstance(e.fact, Failed)
    ]
    facts += [f"- last error: {one.kind}: {one.message}" for one in failures[-1:]]
    folder = home.locate_home(os.environ).path / "feedback"
    path = folder / time.strftime("%Y%m%d-%H%M%S.md", time.localtime())
    text = FEEDBACK_TEMPLATE.format(what=what or "(One sentence.)", facts="\n".join(facts))
    await anyio.to_thread.run_sync(partial(_write_report, path, text))
    opened = await anyio.to_thread.run_sync(_open_file, path)
    return f"{'Opened' if opened else 'Wrote'} {path}. Nothing was sent."


def _write_report(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _open_file(path: Path) -> bool:
    """Open a feedback report in a desktop program; return whether there is one."""
    shown = (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    program = next(filter(None, map(which, OPENERS)), None) if shown else None
    if program is None:
        return False
    quiet = subprocess.DEVNULL
    subprocess.Popen((program, str(path)), stdin=quiet, stdout=quiet, stderr=quiet)
    return True


ACCOUNT_COMMANDS = {
    "status": SlashCommand(
        "/status",
        "show session, model, mode and sandbox",
        _run_status_command,
        when="ever",
    ),
    "usage": SlashCommand("/usage", "show tokens and cost", _run_usage_command, when="ever"),
    "login": SlashCommand(
        "/login [PROVIDER]", "store an API key and use it", _run_login_command, _login_names
    ),
    "logout": SlashCommand(
        "/logout [PROVIDER]", "remove a stored API key", _run_logout_command, _login_names
    ),
    "feedback": SlashCommand(
        "/feedback [WORDS]",
        "write a report; nothing is sent",
        _run_feedback_command,
    ),
}
