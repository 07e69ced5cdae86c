"""MCP server configuration, ours and of other agents, and which servers may start.

A server is a program, or a URL that our messages go to. The user's own files may name any; one that
comes with a workspace counts once the user has approved exactly what is written there.
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
from travois.compat.config_files import parse_jsonc
from travois.compat.foreign_agent import CLAUDE, CODEX, CURSOR, GEMINI, OPENCODE, PI, QWEN
from travois.core.json import as_list, as_object, as_string
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.permissions.paths import is_inside
from travois.permissions.secrets import find_likely_secrets, register_secrets
from travois.prompt.instruction_files import read_plain_text
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.schema import Json, Plugin, Settings
from travois.settings.sources import SettingsPlaces
from travois.settings.trust import hash_scripts
from travois.settings.validate import SettingsLevel, is_json_array, is_settings_tree

if TYPE_CHECKING:
    from travois.mcp.tools import MachineLogin, McpServerConfig, ToolLoading

with lazy_imports():
    import tomllib

    from travois.mcp import tools


# What an entry that names a server means, whoever's words it is in.


TOOL_SEARCH_VARIABLE = "ENABLE_TOOL_SEARCH"
DEFAULT_TOOL_SHARE = 0.1
MACHINE_GRANTS = ("client_credentials", "cross_app_access")
"""The values of `oauth.grantType`: logins without a person."""
DEFAULT_SIGNING_ALGORITHM = "RS256"
WEBSOCKET_SCHEMES = ("ws://", "wss://")
WEBSOCKET_ERROR = "MCP does not support WebSockets; use the http address of the server"
VARIABLE_PATTERN = compile_lazily(r"\$\{(\w+)(?::-([^}]*))?\}|\$?\{env:(\w+)\}|\{file:([^}]+)\}")
BARE_VARIABLE_PATTERN = compile_lazily(r"\$(\w+)")
"""A variable as Gemini may write it, too."""
VariableExpander = Callable[[object], str]


class McpServerEntry(msgspec.Struct, frozen=True):
    """A server entry of a configuration file."""

    name: str
    tree: Json
    origin: str
    level: SettingsLevel

    @property
    def text(self) -> str:
        """Return the whole entry as a person is shown it."""
        return f"mcp server {self.name}: {msgspec.json.encode(self.tree, order='sorted').decode()}"


def build_server_config(
    entry: McpServerEntry, where: SettingsPlaces, environ: Mapping[str, str], notices: list[str]
) -> tools.McpServerConfig:
    """Build an MCP server's configuration from an entry of any agent; raises ValueError."""
    tree = entry.tree

    place = {"CLAUDE_PROJECT_DIR": where.root, "workspaceFolder": where.root}
    known = {**place, "userHome": environ.get("HOME", ""), **environ}

    def expand_text(value: object) -> str:
        said = (
            BARE_VARIABLE_PATTERN.sub(r"${\1}", str(value))
            if _is_gemini_file(entry.origin)
            else str(value)
        )
        return _expand_variables(said, known, entry, notices)

    argv = tuple(expand_text(word) for word in _command_line(tree))
    url = expand_text(tree.get("httpUrl") or tree.get("url") or "")
    if not argv and (tree.get("type") == "ws" or url.startswith(WEBSOCKET_SCHEMES)):
        raise ValueError(WEBSOCKET_ERROR)
    if not argv and not url.startswith(("http://", "https://")):
        raise ValueError("it needs a command or an http(s) address")
    if tree.get("required") is True:
        notices.append(f"{entry.origin}: server {entry.name}: required has no effect here")
    base = where.home.config if entry.level == "user" else where.cwd
    start, limit = _read_timeouts(tree, environ)
    return tools.McpServerConfig(
        entry.name,
        "stdio" if argv else _transport_kind(tree, entry.origin),
        origin=entry.origin,
        level=entry.level,
        argv=argv,
        env={key: expand_text(value) for key, value in _read_tables(tree, "env", "environment")},
        cwd=os.path.join(base, expand_text(tree["cwd"])) if tree.get("cwd") else where.cwd,
        url=url,
        headers=dict(_read_headers(tree, environ, expand_text)),
        helper=str(tree.get("headersHelper") or ""),
        client=dict(_read_oauth_client(tree, expand_text)),
        machine=_read_machine_login(tree, expand_text),
        metadata_url=_read_oauth_text(tree, "clientMetadataUrl", expand_text),
        port=_read_callback_port(tree),
        standing="all" if tree.get("alwaysLoad") else _standing_from_environ(environ),
        start=_read_seconds(tree, "startup_timeout_sec", start),
        limit=_read_seconds(tree, "tool_timeout_sec", limit),
        free=tuple(_list_preapproved_tools(tree))
        if entry.level in ("user", "local", "run")
        else (),
        sandbox=_sandbox_choice(tree, entry.level),
        only=_read_name_lists(tree, "enabled_tools", "includeTools"),
        without=_read_name_lists(tree, "disabled_tools", "excludeTools"),
    )


def _sandbox_choice(tree: Json, level: SettingsLevel) -> bool | None:
    """Return an MCP entry's sandbox choice; a workspace's entry cannot turn the sandbox off."""
    said = tree.get("sandbox")
    return said if isinstance(said, bool) and (said or level != "project") else None


def _standing_from_environ(environ: Mapping[str, str]) -> ToolLoading:
    """Read from ENABLE_TOOL_SEARCH which MCP tools are always loaded."""
    known: dict[str, ToolLoading] = {"false": "all", "auto": "fitting"}
    return known.get(environ.get(TOOL_SEARCH_VARIABLE, "").partition(":")[0], "some")


def always_on_tool_share(environ: Mapping[str, str]) -> float:
    """Return the share of the window for MCP tools that are loaded "if they fit"."""
    percent = environ.get(TOOL_SEARCH_VARIABLE, "").partition(":")[2]
    return min(100, int(percent)) / 100 if percent.isdecimal() else DEFAULT_TOOL_SHARE


def _command_line(tree: Json) -> tuple[object, ...]:
    """Return the command and arguments of an MCP server's entry as one list."""
    command, args = tree.get("command"), tree.get("args")
    if is_json_array(command):
        return tuple(command)
    return (command, *(args if is_json_array(args) else ())) if command else ()


def _transport_kind(tree: Json, origin: str) -> Literal["http", "sse"]:
    """Return the transport of an MCP server's URL; for Gemini and its kin a plain `url` is SSE."""
    events = _is_gemini_file(origin) and "httpUrl" not in tree and "type" not in tree
    old = tree.get("type") == "sse" or events
    return "sse" if old else "http"


def _is_gemini_file(origin: str) -> bool:
    return ".gemini" in origin or ".qwen" in origin


def _read_headers(
    tree: Json, environ: Mapping[str, str], text: VariableExpander
) -> Iterator[tuple[str, str]]:
    """Read the HTTP headers of an MCP server's entry, some from environment variables."""
    for name, value in _read_tables(tree, "headers", "http_headers"):
        yield name, text(value)
    for name, variable in _read_tables(tree, "env_http_headers"):
        yield name, environ.get(str(variable), "")
    if bearer := tree.get("bearer_token_env_var"):
        yield "Authorization", f"Bearer {environ.get(str(bearer), '')}"


def _read_oauth_client(tree: Json, text: VariableExpander) -> Iterator[tuple[str, str]]:
    """Yield the OAuth client credentials in an MCP server's entry, if any."""
    oauth = tree.get("oauth")
    if not is_settings_tree(oauth) or not oauth.get("clientId"):
        return
    secret = oauth.get("clientSecret")
    yield "client_id", text(oauth["clientId"])
    yield "token_endpoint_auth_method", "client_secret_post" if secret else "none"
    if secret:
        yield "client_secret", text(secret)


def _read_oauth_text(tree: Json, key: str, text: VariableExpander) -> str:
    """Read a text in the OAuth table of an MCP server's entry; empty if there is none."""
    oauth = tree.get("oauth")
    value = oauth.get(key) if is_settings_tree(oauth) else None
    return text(value) if value else ""


def _read_machine_login(tree: Json, text: VariableExpander) -> MachineLogin | None:
    """Read the credentials for a login without a person; raises ValueError if some are missing."""
    oauth = tree.get("oauth")
    grant = _read_oauth_text(tree, "grantType", text)
    if not grant or not is_settings_tree(oauth):
        return None
    if grant not in MACHINE_GRANTS:
        raise ValueError(f"oauth.grantType is {grant!r}, not one of {', '.join(MACHINE_GRANTS)}")
    idp: Json = {"oauth": oauth.get("identityProvider")}
    crosses = grant == MACHINE_GRANTS[1]
    login = tools.MachineLogin(
        client_id=_read_oauth_text(tree, "clientId", text),
        issuer=_read_oauth_text(tree, "issuer", text),
        client_secret=_read_oauth_text(tree, "clientSecret", text),
        private_key=_read_oauth_text(tree, "privateKey", text),
        algorithm=_read_oauth_text(tree, "signingAlgorithm", text) or DEFAULT_SIGNING_ALGORITHM,
        scope=_read_oauth_text(tree, "scope", text),
        id_token=_read_oauth_text(idp, "idToken", text) if crosses else "",
        idp_client_id=_read_oauth_text(idp, "clientId", text),
        idp_token_endpoint=_read_oauth_text(idp, "tokenEndpoint", text),
    )
    needed = {
        "oauth.clientId": login.client_id,
        "oauth.issuer": login.issuer,
        "oauth.clientSecret": login.client_secret or (login.private_key and not crosses),
    }
    if crosses:
        needed["oauth.identityProvider.idToken"] = login.id_token
        needed["oauth.identityProvider.clientId"] = login.idp_client_id
        needed["oauth.identityProvider.tokenEndpoint"] = login.idp_token_endpoint
    if missing := [key for key, value in needed.items() if not value]:
        raise ValueError(f"grantType {grant} needs {', '.join(missing)}")
    return login


def _read_callback_port(tree: Json) -> int:
    """Read the OAuth callback port of an MCP server's entry; 0 if it names none."""
    oauth = tree.get("oauth")
    port = oauth.get("callbackPort") if is_settings_tree(oauth) else 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def _read_tables(tree: Json, *keys: str) -> Iterator[tuple[str, object]]:
    """List the members of several tables in an MCP server's entry."""
    for key in keys:
        inner = tree.get(key)
        yield from (inner if is_settings_tree(inner) else {}).items()


def _read_name_lists(tree: Json, *keys: str) -> tuple[str, ...]:
    lists = (tree.get(key) for key in keys)
    return tuple(str(name) for each in lists if is_json_array(each) for name in each)


def _read_seconds(tree: Json, key: str, default: float) -> float:
    value = tree.get(key)
    return max(1.0, float(value)) if isinstance(value, int | float) else default


def _read_timeouts(tree: Json, environ: Mapping[str, str]) -> tuple[float, float]:
    """Return an MCP server's start and call timeouts; for opencode `timeout` means the start."""
    said, starts = tree.get("timeout"), tree.get("type") in ("local", "remote")
    start = said if starts else environ.get("MCP_TIMEOUT")
    limit = environ.get("MCP_TOOL_TIMEOUT") if starts or said is None else said
    return _parse_milliseconds(start, 30.0), _parse_milliseconds(limit, 300.0)


def _parse_milliseconds(said: object, default: float) -> float:
    text = str(said)
    return max(1.0, int(text) / 1000) if text.isdecimal() else default


def _list_preapproved_tools(tree: Json) -> Iterator[str]:
    """Return an MCP server's tools that Gemini trusts and Codex approves."""
    if tree.get("trust") is True or tree.get("default_tools_approval_mode") == "approve":
        yield "*"
    for name, said in _read_tables(tree, "tools"):
        if is_settings_tree(said) and said.get("approval_mode") == "approve":
            yield name


def _expand_variables(
    text: str, environ: Mapping[str, str], entry: McpServerEntry, notices: list[str]
) -> str:
    """Expand variables in MCP configuration text; an unset one stays, with a notice."""

    def expand_match(found: re.Match[str]) -> str:
        if found[4]:
            return _read_referenced_file(found[4], entry, notices) or found[0]
        name = found[1] or found[3]
        if name not in environ and found[2] is None:
            notices.append(f"{entry.origin}: server {entry.name} uses {name}, which is not set")
        return environ.get(name, found[0] if found[2] is None else found[2])

    return VARIABLE_PATTERN.sub(expand_match, text)


def _read_referenced_file(name: str, entry: McpServerEntry, notices: list[str]) -> str:
    """Return the text of a file that MCP configuration refers to; empty, with a notice, if none."""
    try:
        if entry.level == "project":
            raise OSError("only your own configuration files may refer to files")
        path = os.path.join(os.path.dirname(entry.origin), os.path.expanduser(name))
        return read_plain_text(path).strip()
    except OSError as error:
        why = error.strerror or error
        notices.append(f"{entry.origin}: server {entry.name} cannot use the file {name}: {why}")
        return ""


# What settings say of servers of tools: which may be used, and which were agreed to.


PROJECT_FILE_NAME = ".mcp.json"
"""The file of a workspace whose servers a user may agree to, or not want, by name."""


class McpServerPolicy(msgspec.Struct, frozen=True):
    """The settings that allow, deny or approve servers."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    everything: bool = False
    """True if the user approved all servers of `.mcp.json` files."""

    def is_settled(self, name: str, origin: str) -> bool:
        """Return whether a workspace's server needs no question: approved or disabled."""
        agreed = self.everything or name in self.agreed
        return self.is_disabled(name, origin) or (_is_project_file(origin) and agreed)

    def is_disabled(self, name: str, origin: str) -> bool:
        """Return whether the user has disabled a server of a workspace."""
        return _is_project_file(origin) and name in self.unwanted

    def denial_reason(self, server: McpServerConfig) -> str:
        """Return why a server may not be used; empty if it may."""
        if any(_matches_server(text, server) for text in self.denied):
            return "deniedMcpServers lists it"
        if self.allowed and not any(
            _matches_server(text, server) for text in self._applicable_entries(server)
        ):
            return "allowedMcpServers does not list it"
        return ""

    def _applicable_entries(self, server: McpServerConfig) -> tuple[str, ...]:
        """Return the allow-list entries that apply: commands or URLs take precedence over names."""
        key = "serverCommand" if server.argv else "serverUrl"
        return (
            tuple(text for text in self.allowed if key in _parse_policy_entry(text)) or self.allowed
        )


def build_mcp_policy(settings: Settings) -> McpServerPolicy:
    """Build the MCP server policy from the settings."""
    return McpServerPolicy(
        settings.allowed_mcp_servers,
        settings.denied_mcp_servers,
        settings.disabled_mcpjson_servers,
        agreed=settings.enabled_mcpjson_servers,
        everything=settings.enable_all_project_mcp_servers,
    )


def _is_project_file(origin: str) -> bool:
    return os.path.basename(origin) == PROJECT_FILE_NAME


def _parse_policy_entry(text: str) -> Json:
    """Parse an entry of the allowed or denied MCP servers; a plain name is a server's."""
    try:
        return (
            as_object(msgspec.json.decode(text)) if text.startswith("{") else {"serverName": text}
        )
    except msgspec.DecodeError:
        return {}


def _matches_server(text: str, server: McpServerConfig) -> bool:
    """Return whether an entry of the MCP policy names a server by name, command or URL."""
    entry = _parse_policy_entry(text)
    url = as_string(entry.get("serverUrl"))
    return (
        entry.get("serverName") == server.name
        or (bool(server.argv) and tuple(as_list(entry.get("serverCommand"))) == server.argv)
        or bool(url and server.url and fnmatchcase(server.url, url))
    )


MCP_CONFIG_FLAG = "--mcp-config"
NO_POLICY = McpServerPolicy()
ETC_FOLDER = Path("/etc")
AGENTS_WITH_HOME_FILE = (GEMINI, QWEN, CURSOR, PI)
"""Agents whose file lies in a home as it lies in a project."""
WORKSPACE_FILES = (
    (".travois/mcp.json", "mcpServers"),
    (".mcp.json", "mcpServers"),
    *(
        (name, one.servers)
        for one in (CODEX, OPENCODE, *AGENTS_WITH_HOME_FILE)
        for name in one.settings
    ),
)
"""Files of a workspace, the strongest first, and where in each the servers stand."""


class McpServerDiscovery(msgspec.Struct, frozen=True):
    """The servers to use, the entries that wait for approval, and notices."""

    servers: tuple[McpServerConfig, ...] = ()
    waiting: tuple[McpServerEntry, ...] = ()
    notices: tuple[str, ...] = ()


def find_mcp_servers(
    where: SettingsPlaces,
    environ: Mapping[str, str],
    *,
    levels: Collection[SettingsLevel] = ("user", "project", "local"),
    given: tuple[str, ...] = (),
    only: Literal["all", "given"] = "all",
    plugins: tuple[Plugin, ...] = (),
    admission: McpServerPolicy = NO_POLICY,
    etc: Path = ETC_FOLDER,
) -> McpServerDiscovery:
    """Find all configured MCP servers by name, each taken whole from the strongest source."""
    notices: list[str] = []
    entries = list(_flag_entries(given, notices))
    if only == "all":
        placed = _read_config_files(where, environ, notices)
        entries += (
            entry
            for entry in (*placed, *list_plugin_servers(plugins, where))
            if entry.level in levels
        )
    if (sole := next(claude.managed_claude_settings(etc)).with_name("managed-mcp.json")).is_file():
        notices += [f"only the MCP servers in {sole} may be used"] if entries else []
        entries = list(_read_entries(sole, "mcpServers", "managed", notices))
    agreed = trust.list_agreed_digests(where.home, where.trusted)
    asked = (e for e in entries if e.level == "project" and _entry_digest(e, where) not in agreed)
    waiting = [entry for entry in asked if not admission.is_settled(entry.name, entry.origin)]
    servers: dict[str, McpServerConfig] = {}
    for entry in entries:
        off = not _is_enabled(entry.tree) or admission.is_disabled(entry.name, entry.origin)
        if entry.name in servers or entry in waiting or off:
            continue
        try:
            made = build_server_config(entry, where, environ, notices)
            if why := admission.denial_reason(made):
                raise ValueError(why)
            register_secrets(find_likely_secrets((*made.env.items(), *made.client.items())))
            register_secrets(made.headers.items())
            register_secrets(made.machine.secrets if made.machine else ())
            servers[entry.name] = made
        except (ValueError, TypeError) as error:
            notices.append(f"{entry.origin}: server {entry.name} is not used: {error}")
    ordered = sorted(servers.values(), key=lambda one: one.name)
    return McpServerDiscovery(tuple(ordered), tuple(waiting), tuple(notices))


def describe_workspace_servers(
    where: SettingsPlaces, environ: Mapping[str, str], *, admission: McpServerPolicy = NO_POLICY
) -> tuple[str, ...]:
    """Describe the MCP servers that a workspace wants to start, with program digests."""
    placed = _read_config_files(where, environ, [])
    return _describe_project_entries(
        (one for one in placed if not admission.is_settled(one.name, one.origin)), where
    )


def describe_plugin_servers(plugins: tuple[Plugin, ...], where: SettingsPlaces) -> tuple[str, ...]:
    """Describe the MCP servers that a workspace's plugins want to start."""
    return _describe_project_entries(list_plugin_servers(plugins, where), where)


def _describe_project_entries(
    entries: Iterable[McpServerEntry], where: SettingsPlaces
) -> tuple[str, ...]:
    """Describe a project's own MCP servers for the trust question."""
    return tuple(_describe_entry(entry, where) for entry in entries if entry.level == "project")


def list_plugin_servers(
    plugins: tuple[Plugin, ...], where: SettingsPlaces
) -> Iterator[McpServerEntry]:
    """List the MCP servers of plugins, each under its plugin's name."""
    for plugin in plugins:
        level: SettingsLevel = "project" if is_inside(plugin.folder, where.root) else "user"
        for path, servers in plugin.servers:
            for entry in _table_entries(servers, path, level):
                yield replace(entry, name=f"plugin_{plugin.name}_{entry.name}")


def _entry_digest(entry: McpServerEntry, where: SettingsPlaces) -> str:
    return trust.digest_request(_describe_entry(entry, where))


def _describe_entry(entry: McpServerEntry, where: SettingsPlaces) -> str:
    return entry.text + hash_scripts(entry.tree, where.places)


def _read_config_files(
    where: SettingsPlaces, environ: Mapping[str, str], notices: list[str]
) -> list[McpServerEntry]:
    """Read MCP server entries of all configuration files: local, project, then user."""
    person = Path(environ.get("HOME") or "/nonexistent")
    folder = (CLAUDE.find_home(environ) if environ.get(CLAUDE.variable) else None) or person
    theirs = _read_config_file(folder / ".claude.json", notices)
    found = [e for place in where.places for e in _local_entries(theirs, place, folder)]
    for place in dict.fromkeys((where.cwd, where.root)):
        if os.path.realpath(place) == os.path.realpath(person):
            continue
        for name, key in WORKSPACE_FILES:
            found += _read_entries(Path(place, name), key, "project", notices)
    found += _read_entries(user_mcp_file(where.home), "mcpServers", "user", notices)
    found += _table_entries(theirs.get("mcpServers"), str(folder / ".claude.json"), "user")
    for path in CODEX.home_paths(environ, "config.toml"):
        found += _read_entries(Path(path), CODEX.servers, "user", notices)
    for agent in AGENTS_WITH_HOME_FILE:
        found += _read_entries(person / agent.settings[0], agent.servers, "user", notices)
    for path in OPENCODE.home_paths(environ, *OPENCODE.settings[:2]):
        found += _read_entries(Path(path), OPENCODE.servers, "user", notices)
    return found


def user_mcp_file(home: TravoisHome) -> Path:
    """Return the path of our file with the user's MCP servers."""
    return home.config / "mcp.json"


def _local_entries(theirs: Json, place: str, folder: Path) -> Iterator[McpServerEntry]:
    """List a project's MCP servers in the user's .claude.json."""
    projects = theirs.get("projects")
    project = projects.get(place) if is_settings_tree(projects) else None
    servers = project.get("mcpServers") if is_settings_tree(project) else None
    yield from _table_entries(servers, str(folder / ".claude.json"), "local")


def _read_entries(
    path: Path, key: str, level: SettingsLevel, notices: list[str]
) -> Iterator[McpServerEntry]:
    """Read the MCP servers of one configuration file."""
    yield from _table_entries(_read_config_file(path, notices).get(key), str(path), level)


def _table_entries(servers: object, origin: str, level: SettingsLevel) -> Iterator[McpServerEntry]:
    """Convert a table of MCP servers to entries with their origin."""
    for name, tree in (servers if is_settings_tree(servers) else {}).items():
        if is_settings_tree(tree):
            yield McpServerEntry(name, tree, origin, level)


def _flag_entries(given: tuple[str, ...], notices: list[str]) -> Iterator[McpServerEntry]:
    """Read the MCP servers of `--mcp-config`, given as JSON or as files."""
    for text in given:
        if text.lstrip().startswith("{"):
            tree = _parse_config(text.encode(errors="replace"), Path(MCP_CONFIG_FLAG), notices)
        else:
            path = Path(text).expanduser()
            tree = _read_config_file(path, notices)
            if not path.is_file():
                notices.append(f"{MCP_CONFIG_FLAG} {text}: no such file")
        yield from _table_entries(tree.get("mcpServers", tree), MCP_CONFIG_FLAG, "run")


def _read_config_file(path: Path, notices: list[str]) -> Json:
    """Read and parse an MCP configuration file; add a notice if it cannot be read."""
    try:
        return _parse_config(path.read_bytes(), path, notices) if path.is_file() else {}
    except OSError as error:
        notices.append(f"{path} cannot be read: {error.strerror}")
        return {}


def _parse_config(data: bytes, path: Path, notices: list[str]) -> Json:
    """Parse an MCP configuration as JSON or TOML; add a notice if it is invalid."""
    try:
        text = data.decode("utf-8-sig")
        tree = _parse_toml(text) if path.suffix == ".toml" else parse_jsonc(text)
    except (ValueError, RecursionError) as error:
        notices.append(f"{path} is not valid, so its servers are not used: {error}")
        return {}
    return tree if is_settings_tree(tree) else {}


def _parse_toml(text: str) -> object:
    """Parse a TOML configuration of MCP servers."""
    return tomllib.loads(text)


def _is_enabled(tree: Json) -> bool:
    inside_a_program = tree.get("type") == "sdk"
    return tree.get("enabled") is not False and not tree.get("disabled") and not inside_a_program
