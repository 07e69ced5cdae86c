"""MCP server configuration, ours and of other agents, and which servers may start.

A server is a program, or an address that our words go to. The user's own files may name any; one
that comes with a workspace counts once the user has agreed to exactly what is written there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from travois.compat import claude
from travois.compat.config_files import loose
from travois.compat.foreign_agent import CLAUDE, CODEX, CURSOR, GEMINI, OPENCODE, PI, QWEN
from travois.core.json import as_list, as_object, as_string
from travois.permissions.masking import likely, register
from travois.permissions.paths import inside
from travois.prompt.instruction_files import plain_text
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.schema import Json, Plugin, Settings
from travois.settings.sources import SettingsPlaces
from travois.settings.trust import hash_scripts
from travois.settings.validate import SettingsLevel, is_json_array, is_settings_tree

if TYPE_CHECKING:
    from travois.mcp.tools import Server, Standing


# What an entry that names a server means, whoever's words it is in.


SEARCHED = "ENABLE_TOOL_SEARCH"
SHARE = 0.1
SOCKETS = ("ws://", "wss://")
SOCKET = "MCP does not support WebSockets; use the http address of the server"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$?\{env:(\w+)\}|\{file:([^}]+)\}")
BARE = re.compile(r"\$(\w+)")
"""A variable as Gemini may write it, too."""
Filler = Callable[[object], str]


class Entry(msgspec.Struct, frozen=True):
    """A server entry of a configuration file."""

    name: str
    tree: Json
    origin: str
    level: SettingsLevel

    @property
    def text(self) -> str:
        """All of it, as a person is shown it."""
        return f"mcp server {self.name}: {msgspec.json.encode(self.tree, order='sorted').decode()}"


def server(
    entry: Entry, where: SettingsPlaces, environ: Mapping[str, str], notices: list[str]
) -> Server:
    """Build a server's configuration from an entry in any agent's format; raises ValueError."""
    from travois.mcp.tools import Server

    tree = entry.tree

    place = {"CLAUDE_PROJECT_DIR": where.root, "workspaceFolder": where.root}
    known = {**place, "userHome": environ.get("HOME", ""), **environ}

    def text(value: object) -> str:
        said = BARE.sub(r"${\1}", str(value)) if _gemini(entry.origin) else str(value)
        return _filled(said, known, entry, notices)

    argv = tuple(text(word) for word in _argv(tree))
    url = text(tree.get("httpUrl") or tree.get("url") or "")
    if not argv and (tree.get("type") == "ws" or url.startswith(SOCKETS)):
        raise ValueError(SOCKET)
    if not argv and not url.startswith(("http://", "https://")):
        raise ValueError("it needs a command or an http(s) address")
    if tree.get("required") is True:
        notices.append(f"{entry.origin}: server {entry.name}: required has no effect here")
    base = where.home.path if entry.level == "user" else where.cwd
    start, limit = _patience(tree, environ)
    return Server(
        entry.name,
        "stdio" if argv else _kind(tree, entry.origin),
        origin=entry.origin,
        level=entry.level,
        argv=argv,
        env={key: text(value) for key, value in _words(tree, "env", "environment")},
        cwd=os.path.join(base, text(tree["cwd"])) if tree.get("cwd") else where.cwd,
        url=url,
        headers=dict(_headers(tree, environ, text)),
        helper=str(tree.get("headersHelper") or ""),
        client=dict(_client(tree, text)),
        port=_port(tree),
        standing="all" if tree.get("alwaysLoad") else _standing(environ),
        start=_seconds(tree, "startup_timeout_sec", start),
        limit=_seconds(tree, "tool_timeout_sec", limit),
        free=tuple(_free(tree)) if entry.level in ("user", "local", "run") else (),
        sandbox=_sandboxed(tree, entry.level),
        only=_names(tree, "enabled_tools", "includeTools"),
        without=_names(tree, "disabled_tools", "excludeTools"),
    )


def _sandboxed(tree: Json, level: SettingsLevel) -> bool | None:
    """Return the entry's sandbox choice; a workspace's entry cannot turn the sandbox off."""
    said = tree.get("sandbox")
    return said if isinstance(said, bool) and (said or level != "project") else None


def _standing(environ: Mapping[str, str]) -> Standing:
    """Read from ENABLE_TOOL_SEARCH which tools are always loaded."""
    known: dict[str, Standing] = {"false": "all", "auto": "fitting"}
    return known.get(environ.get(SEARCHED, "").partition(":")[0], "some")


def share(environ: Mapping[str, str]) -> float:
    """Return the share of the window that tools loaded "if they fit" may take."""
    percent = environ.get(SEARCHED, "").partition(":")[2]
    return min(100, int(percent)) / 100 if percent.isdecimal() else SHARE


def _argv(tree: Json) -> tuple[object, ...]:
    command, args = tree.get("command"), tree.get("args")
    if is_json_array(command):
        return tuple(command)
    return (command, *(args if is_json_array(args) else ())) if command else ()


def _kind(tree: Json, origin: str) -> Literal["http", "sse"]:
    """Return the transport of an address; Gemini and its kin mean SSE by a plain `url`."""
    events = _gemini(origin) and "httpUrl" not in tree and "type" not in tree
    old = tree.get("type") == "sse" or events
    return "sse" if old else "http"


def _gemini(origin: str) -> bool:
    return ".gemini" in origin or ".qwen" in origin


def _headers(tree: Json, environ: Mapping[str, str], text: Filler) -> Iterator[tuple[str, str]]:
    for name, value in _words(tree, "headers", "http_headers"):
        yield name, text(value)
    for name, variable in _words(tree, "env_http_headers"):
        yield name, environ.get(str(variable), "")
    if bearer := tree.get("bearer_token_env_var"):
        yield "Authorization", f"Bearer {environ.get(str(bearer), '')}"


def _client(tree: Json, text: Filler) -> Iterator[tuple[str, str]]:
    """Yield our OAuth client credentials for a server, if an entry has them."""
    oauth = tree.get("oauth")
    if not is_settings_tree(oauth) or not oauth.get("clientId"):
        return
    secret = oauth.get("clientSecret")
    yield "client_id", text(oauth["clientId"])
    yield "token_endpoint_auth_method", "client_secret_post" if secret else "none"
    if secret:
        yield "client_secret", text(secret)


def _port(tree: Json) -> int:
    oauth = tree.get("oauth")
    port = oauth.get("callbackPort") if is_settings_tree(oauth) else 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def _words(tree: Json, *keys: str) -> Iterator[tuple[str, object]]:
    for key in keys:
        inner = tree.get(key)
        yield from (inner if is_settings_tree(inner) else {}).items()


def _names(tree: Json, *keys: str) -> tuple[str, ...]:
    lists = (tree.get(key) for key in keys)
    return tuple(str(name) for each in lists if is_json_array(each) for name in each)


def _seconds(tree: Json, key: str, default: float) -> float:
    value = tree.get(key)
    return max(1.0, float(value)) if isinstance(value, int | float) else default


def _patience(tree: Json, environ: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds for a start and a call; `timeout` means the start in opencode only."""
    said, starts = tree.get("timeout"), tree.get("type") in ("local", "remote")
    start = said if starts else environ.get("MCP_TIMEOUT")
    limit = environ.get("MCP_TOOL_TIMEOUT") if starts or said is None else said
    return _milliseconds(start, 30.0), _milliseconds(limit, 300.0)


def _milliseconds(said: object, default: float) -> float:
    text = str(said)
    return max(1.0, int(text) / 1000) if text.isdecimal() else default


def _free(tree: Json) -> Iterator[str]:
    """Return the tools that Gemini trusts and Codex approves."""
    if tree.get("trust") is True or tree.get("default_tools_approval_mode") == "approve":
        yield "*"
    for name, said in _words(tree, "tools"):
        if is_settings_tree(said) and said.get("approval_mode") == "approve":
            yield name


def _filled(text: str, environ: Mapping[str, str], entry: Entry, notices: list[str]) -> str:
    """Expand the variables in a text; an unset one stays as it is, with a notice."""

    def value(found: re.Match[str]) -> str:
        if found[4]:
            return _content(found[4], entry, notices) or found[0]
        name = found[1] or found[3]
        if name not in environ and found[2] is None:
            notices.append(f"{entry.origin}: server {entry.name} uses {name}, which is not set")
        return environ.get(name, found[0] if found[2] is None else found[2])

    return VARIABLE.sub(value, text)


def _content(name: str, entry: Entry, notices: list[str]) -> str:
    """Return the text of a file that a variable refers to; empty, with a notice, on failure."""
    try:
        if entry.level == "project":
            raise OSError("only your own configuration files may refer to files")
        path = os.path.join(os.path.dirname(entry.origin), os.path.expanduser(name))
        return plain_text(path).strip()
    except OSError as error:
        why = error.strerror or error
        notices.append(f"{entry.origin}: server {entry.name} cannot use the file {name}: {why}")
        return ""


# What settings say of servers of tools: which may be used, and which were agreed to.


PROJECT = ".mcp.json"
"""The file of a workspace whose servers a user may agree to, or not want, by name."""


class Admission(msgspec.Struct, frozen=True):
    """The settings that allow, deny or approve servers."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    everything: bool = False
    """True if the user approved all servers of `.mcp.json` files."""

    def settled(self, name: str, origin: str) -> bool:
        """Return whether nobody need be asked about a server of a workspace."""
        agreed = self.everything or name in self.agreed
        return self.off(name, origin) or (_named_in(origin) and agreed)

    def off(self, name: str, origin: str) -> bool:
        """Return whether the user does not want a server of a workspace."""
        return _named_in(origin) and name in self.unwanted

    def refusal(self, server: Server) -> str:
        """Return why a server may not be used; empty if it may."""
        if any(_means(text, server) for text in self.denied):
            return "deniedMcpServers lists it"
        if self.allowed and not any(_means(text, server) for text in self._fitting(server)):
            return "allowedMcpServers does not list it"
        return ""

    def _fitting(self, server: Server) -> tuple[str, ...]:
        """Return the allow-list entries that apply: commands or URLs take precedence over names."""
        key = "serverCommand" if server.argv else "serverUrl"
        return tuple(text for text in self.allowed if key in _entry(text)) or self.allowed


def admission(settings: Settings) -> Admission:
    """Build the policy that these settings describe."""
    return Admission(
        settings.allowed_mcp_servers,
        settings.denied_mcp_servers,
        settings.disabled_mcpjson_servers,
        agreed=settings.enabled_mcpjson_servers,
        everything=settings.enable_all_project_mcp_servers,
    )


def _named_in(origin: str) -> bool:
    return os.path.basename(origin) == PROJECT


def _entry(text: str) -> Json:
    try:
        return (
            as_object(msgspec.json.decode(text)) if text.startswith("{") else {"serverName": text}
        )
    except msgspec.DecodeError:
        return {}


def _means(text: str, server: Server) -> bool:
    entry = _entry(text)
    url = as_string(entry.get("serverUrl"))
    return (
        entry.get("serverName") == server.name
        or (bool(server.argv) and tuple(as_list(entry.get("serverCommand"))) == server.argv)
        or bool(url and server.url and fnmatchcase(server.url, url))
    )


GIVEN = "--mcp-config"
OPEN = Admission()
ETC = Path("/etc")
IN_HOME = (GEMINI, QWEN, CURSOR, PI)
"""Agents whose file lies in a home as it lies in a project."""
FILES = (
    (".travois/mcp.json", "mcpServers"),
    (".mcp.json", "mcpServers"),
    *((name, one.servers) for one in (CODEX, OPENCODE, *IN_HOME) for name in one.settings),
)
"""Files of a workspace, the strongest first, and where in each the servers stand."""


class Found(msgspec.Struct, frozen=True):
    """The servers to use, the entries that wait for approval, and notices."""

    servers: tuple[Server, ...] = ()
    waiting: tuple[Entry, ...] = ()
    notices: tuple[str, ...] = ()


def find(
    where: SettingsPlaces,
    environ: Mapping[str, str],
    *,
    levels: Collection[SettingsLevel] = ("user", "project", "local"),
    given: tuple[str, ...] = (),
    only: Literal["all", "given"] = "all",
    plugins: tuple[Plugin, ...] = (),
    admission: Admission = OPEN,
    etc: Path = ETC,
) -> Found:
    """Find all servers by name, each taken whole from the strongest source."""
    notices: list[str] = []
    entries = list(_given(given, notices))
    if only == "all":
        placed = _placed(where, environ, notices)
        entries += (entry for entry in (*placed, *plugged(plugins, where)) if entry.level in levels)
    if (sole := next(claude.managed(etc)).with_name("managed-mcp.json")).is_file():
        notices += [f"only the MCP servers in {sole} may be used"] if entries else []
        entries = list(_entries(sole, "mcpServers", "managed", notices))
    agreed = trust.list_agreed_digests(where.home, where.trusted)
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
            notices.append(f"{entry.origin}: server {entry.name} is not used: {error}")
    ordered = sorted(servers.values(), key=lambda one: one.name)
    return Found(tuple(ordered), tuple(waiting), tuple(notices))


def wanted(
    where: SettingsPlaces, environ: Mapping[str, str], *, admission: Admission = OPEN
) -> tuple[str, ...]:
    """Describe the servers a workspace wants to start, with digests of its own programs."""
    placed = _placed(where, environ, [])
    return _lines((one for one in placed if not admission.settled(one.name, one.origin)), where)


def wishes(plugins: tuple[Plugin, ...], where: SettingsPlaces) -> tuple[str, ...]:
    """Describe the servers that plugins of a workspace want to start."""
    return _lines(plugged(plugins, where), where)


def _lines(entries: Iterable[Entry], where: SettingsPlaces) -> tuple[str, ...]:
    return tuple(_line(entry, where) for entry in entries if entry.level == "project")


def plugged(plugins: tuple[Plugin, ...], where: SettingsPlaces) -> Iterator[Entry]:
    """List the servers of plugins, each under the name of its plugin."""
    for plugin in plugins:
        level: SettingsLevel = "project" if inside(plugin.folder, where.root) else "user"
        for path, servers in plugin.servers:
            for entry in _listed(servers, path, level):
                yield replace(entry, name=f"plugin_{plugin.name}_{entry.name}")


def _wish(entry: Entry, where: SettingsPlaces) -> str:
    return trust.digest_request(_line(entry, where))


def _line(entry: Entry, where: SettingsPlaces) -> str:
    return entry.text + hash_scripts(entry.tree, where.places)


def _placed(where: SettingsPlaces, environ: Mapping[str, str], notices: list[str]) -> list[Entry]:
    """Read the entries of all configuration files, strongest first: local, project, user."""
    person = Path(environ.get("HOME") or "/nonexistent")
    folder = (CLAUDE.home(environ) if environ.get(CLAUDE.variable) else None) or person
    theirs = _tree(folder / ".claude.json", notices)
    found = [e for place in where.places for e in _local(theirs, place, folder)]
    for place in dict.fromkeys((where.cwd, where.root)):
        if os.path.realpath(place) == os.path.realpath(person):
            continue
        for name, key in FILES:
            found += _entries(Path(place, name), key, "project", notices)
    found += _entries(own(where.home), "mcpServers", "user", notices)
    found += _listed(theirs.get("mcpServers"), str(folder / ".claude.json"), "user")
    for path in CODEX.within_home(environ, "config.toml"):
        found += _entries(Path(path), CODEX.servers, "user", notices)
    for agent in IN_HOME:
        found += _entries(person / agent.settings[0], agent.servers, "user", notices)
    for path in OPENCODE.within_home(environ, *OPENCODE.settings[:2]):
        found += _entries(Path(path), OPENCODE.servers, "user", notices)
    return found


def own(home: TravoisHome) -> Path:
    """Return our file of the user's servers."""
    return home.path / "mcp.json"


def _local(theirs: Json, place: str, folder: Path) -> Iterator[Entry]:
    projects = theirs.get("projects")
    project = projects.get(place) if is_settings_tree(projects) else None
    servers = project.get("mcpServers") if is_settings_tree(project) else None
    yield from _listed(servers, str(folder / ".claude.json"), "local")


def _entries(path: Path, key: str, level: SettingsLevel, notices: list[str]) -> Iterator[Entry]:
    yield from _listed(_tree(path, notices).get(key), str(path), level)


def _listed(servers: object, origin: str, level: SettingsLevel) -> Iterator[Entry]:
    for name, tree in (servers if is_settings_tree(servers) else {}).items():
        if is_settings_tree(tree):
            yield Entry(name, tree, origin, level)


def _given(given: tuple[str, ...], notices: list[str]) -> Iterator[Entry]:
    for text in given:
        if text.lstrip().startswith("{"):
            tree = _parsed(text.encode(errors="replace"), Path(GIVEN), notices)
        else:
            path = Path(text).expanduser()
            tree = _tree(path, notices)
            if not path.is_file():
                notices.append(f"{GIVEN} {text}: no such file")
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
        notices.append(f"{path} is not valid, so its servers are not used: {error}")
        return {}
    return tree if is_settings_tree(tree) else {}


def _table(text: str) -> object:
    from tomllib import loads  # few have such a file, and all would wait for it

    return loads(text)


def _enabled(tree: Json) -> bool:
    inside_a_program = tree.get("type") == "sdk"
    return tree.get("enabled") is not False and not tree.get("disabled") and not inside_a_program
