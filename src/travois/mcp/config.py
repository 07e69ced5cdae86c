"""Servers of tools that are configured, for us or for other agents, and which of them may start.

A server is a program, or an address that our words go to. The user's own files may name any; one
that comes with a workspace counts once the user has agreed to exactly what is written there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from travois.compat import claude as foreign
from travois.compat.config_files import loose
from travois.mcp.admission import Admission
from travois.mcp.mcp_words import Entry, server
from travois.permissions.masking import likely, register
from travois.permissions.paths import inside
from travois.sessions.home import Home
from travois.settings import trust
from travois.settings.schema import Json, Plugin
from travois.settings.sources import Where
from travois.settings.validate import Level, is_tree
from travois.settings.wants import programs

if TYPE_CHECKING:
    from travois.mcp.lenders import Server

GIVEN, OPEN = "--mcp-config", Admission()
ETC = Path("/etc")
FILES = (
    (".travois/mcp.json", "mcpServers"),
    (".mcp.json", "mcpServers"),
    (".codex/config.toml", "mcp_servers"),
    ("opencode.json", "mcp"),
    ("opencode.jsonc", "mcp"),
    (".opencode/opencode.json", "mcp"),
    (".gemini/settings.json", "mcpServers"),
    (".qwen/settings.json", "mcpServers"),
    (".cursor/mcp.json", "mcpServers"),
    (".pi/mcp.json", "mcpServers"),
)
"""Files of a workspace, the strongest first, and where in each the servers stand."""
OWN = (".gemini/settings.json", ".qwen/settings.json", ".cursor/mcp.json", ".pi/mcp.json")


class Found(msgspec.Struct, frozen=True):
    """The servers that count, those that wait for the user's word, and what is wrong."""

    servers: tuple[Server, ...] = ()
    waiting: tuple[Entry, ...] = ()
    notices: tuple[str, ...] = ()


def find(
    where: Where,
    environ: Mapping[str, str],
    *,
    levels: Collection[Level] = ("user", "project", "local"),
    given: tuple[str, ...] = (),
    only: Literal["all", "given"] = "all",
    plugins: tuple[Plugin, ...] = (),
    admission: Admission = OPEN,
    etc: Path = ETC,
) -> Found:
    """All servers by name, each taken whole from the strongest place that has it."""
    notices: list[str] = []
    entries = list(_given(given, notices))
    if only == "all":
        placed = _placed(where, environ, notices)
        entries += (entry for entry in (*placed, *plugged(plugins, where)) if entry.level in levels)
    if (sole := next(foreign.managed(etc)).with_name("managed-mcp.json")).is_file():
        notices += [f"{sole} names the only servers that may be used"] if entries else []
        entries = list(_entries(sole, "mcpServers", "managed", notices))
    agreed = trust.agreed(where.home, where.trusted)
    asked = (e for e in entries if e.level == "project" and _wish(e, where) not in agreed)
    waiting = [entry for entry in asked if not admission.settled(entry.name, entry.origin)]
    servers: dict[str, Server] = {}
    for entry in entries:
        off = not _enabled(entry.tree) or admission.off(entry.name, entry.origin)
        if entry.name in servers or entry in waiting or off:
            continue
        try:
            made = server(entry, where, environ, notices)
            if why := admission.refusal(made):
                raise ValueError(why)
            register(likely((*made.env.items(), *made.client.items())))
            register(made.headers.items())
            servers[entry.name] = made
        except (ValueError, TypeError) as error:
            notices.append(f"{entry.origin}: server {entry.name} is left out: {error}")
    ordered = sorted(servers.values(), key=lambda one: one.name)
    return Found(tuple(ordered), tuple(waiting), tuple(notices))


def wanted(
    where: Where, environ: Mapping[str, str], *, admission: Admission = OPEN
) -> tuple[str, ...]:
    """What a workspace wants to start, a line each, with the digests of its own programs."""
    placed = _placed(where, environ, [])
    return _lines((one for one in placed if not admission.settled(one.name, one.origin)), where)


def wishes(plugins: tuple[Plugin, ...], where: Where) -> tuple[str, ...]:
    """What plugins of a workspace want to start."""
    return _lines(plugged(plugins, where), where)


def _lines(entries: Iterable[Entry], where: Where) -> tuple[str, ...]:
    return tuple(_line(entry, where) for entry in entries if entry.level == "project")


def plugged(plugins: tuple[Plugin, ...], where: Where) -> Iterator[Entry]:
    """What plugins bring, each under the name of its plugin."""
    for plugin in plugins:
        level: Level = "project" if inside(plugin.folder, where.root) else "user"
        for path, servers in plugin.servers:
            for entry in _listed(servers, path, level):
                yield replace(entry, name=f"plugin_{plugin.name}_{entry.name}")


def _wish(entry: Entry, where: Where) -> str:
    return trust.digest(_line(entry, where))


def _line(entry: Entry, where: Where) -> str:
    return entry.text + programs(entry.tree, where.places)


def _placed(where: Where, environ: Mapping[str, str], notices: list[str]) -> list[Entry]:
    """What stands in files, the strongest first: local, project, user."""
    person = Path(environ.get("HOME") or "/nonexistent")
    claude = foreign.user(environ)
    folder = claude.parent if claude and environ.get("CLAUDE_CONFIG_DIR") else person
    theirs = _tree(folder / ".claude.json", notices)
    found = [e for place in where.places for e in _local(theirs, place, folder)]
    for place in dict.fromkeys((where.cwd, where.root)):
        if os.path.realpath(place) == os.path.realpath(person):
            continue
        for name, key in FILES:
            found += _entries(Path(place, name), key, "project", notices)
    found += _entries(own(where.home), "mcpServers", "user", notices)
    found += _listed(theirs.get("mcpServers"), str(folder / ".claude.json"), "user")
    codex = Path(environ.get("CODEX_HOME") or person / ".codex")
    found += _entries(codex / "config.toml", "mcp_servers", "user", notices)
    for name in OWN:
        found += _entries(person / name, "mcpServers", "user", notices)
    config = Path(environ.get("XDG_CONFIG_HOME") or person / ".config", "opencode")
    for name in ("opencode.json", "opencode.jsonc"):
        found += _entries(config / name, "mcp", "user", notices)
    return found


def own(home: Home) -> Path:
    """Our file of the user's servers."""
    return home.path / "mcp.json"


def _local(theirs: Json, place: str, folder: Path) -> Iterator[Entry]:
    projects = theirs.get("projects")
    project = projects.get(place) if is_tree(projects) else None
    servers = project.get("mcpServers") if is_tree(project) else None
    yield from _listed(servers, str(folder / ".claude.json"), "local")


def _entries(path: Path, key: str, level: Level, notices: list[str]) -> Iterator[Entry]:
    yield from _listed(_tree(path, notices).get(key), str(path), level)


def _listed(servers: object, origin: str, level: Level) -> Iterator[Entry]:
    for name, tree in (servers if is_tree(servers) else {}).items():
        if is_tree(tree):
            yield Entry(name, tree, origin, level)


def _given(given: tuple[str, ...], notices: list[str]) -> Iterator[Entry]:
    for text in given:
        if text.lstrip().startswith("{"):
            tree = _parsed(text.encode(errors="replace"), Path(GIVEN), notices)
        else:
            path = Path(text).expanduser()
            tree = _tree(path, notices)
            if not path.is_file():
                notices.append(f"{GIVEN} {text}: there is no such file")
        yield from _listed(tree.get("mcpServers", tree), GIVEN, "run")


def _tree(path: Path, notices: list[str]) -> Json:
    try:
        return _parsed(path.read_bytes(), path, notices) if path.is_file() else {}
    except OSError as error:
        notices.append(f"{path} cannot be read: {error.strerror}")
        return {}


def _parsed(data: bytes, path: Path, notices: list[str]) -> Json:
    try:
        text = data.decode("utf-8-sig")
        tree = _table(text) if path.suffix == ".toml" else loose(text)
    except (ValueError, RecursionError) as error:
        notices.append(f"{path} cannot be understood, so its servers are left out: {error}")
        return {}
    return tree if is_tree(tree) else {}


def _table(text: str) -> object:
    from tomllib import loads  # few have such a file, and all would wait for it

    return loads(text)


def _enabled(tree: Json) -> bool:
    inside_a_program = tree.get("type") == "sdk"
    return tree.get("enabled") is not False and not tree.get("disabled") and not inside_a_program
