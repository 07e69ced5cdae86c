"""The ACP server: its methods and the sessions that are open in the editor."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from travois.acp.options import needs_api_key
from travois.acp.protocol import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    AcpConnection,
    AcpError,
    AuthenticateParams,
    ClientCapabilities,
    EditorMethod,
    EmptyParams,
    ExistingSessionParams,
    InitializeParams,
    ListSessionsParams,
    McpServerParams,
    NameValue,
    NewSessionParams,
    PromptParams,
    SessionParams,
    SetConfigOptionParams,
    SetModeParams,
)
from travois.acp.session import AcpSession
from travois.compat.claude_json import Json, JsonObject
from travois.compose.options import Options
from travois.core.errors import UserError
from travois.providers import catalog
from travois.sessions.catalog import SessionSummary, list_sessions, trash_session
from travois.sessions.home import TravoisHome, locate_home
from travois.version import __version__

PROTOCOL_VERSION = 1
SESSIONS_PER_PAGE = 50
"""Sessions per page of `session/list`."""
AUTH_METHOD_ID = "environment"
"""The id of the only authentication method: API keys in the environment."""
API_KEY_HINT = (
    "Set the API key of a provider, such as ANTHROPIC_API_KEY or OPENAI_API_KEY, in the "
    "environment in which the editor starts Travois. `travois models` lists all providers."
)
AGENT_CAPABILITIES: JsonObject = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        name: {} for name in ("list", "delete", "resume", "close", "fork", "additionalDirectories")
    },
}


class AcpServer:
    """The sessions that an editor has open in this process."""

    def __init__(self, peer: AcpConnection, options: Options, group: TaskGroup) -> None:
        self._peer = peer
        self._options = options
        self._group = group
        self._able = ClientCapabilities()
        self._open: dict[str, AcpSession] = {}
        self._left = False

    def method_handlers(self) -> Mapping[str, EditorMethod]:
        """Return the handler of each method."""
        ways: dict[str, tuple[type[msgspec.Struct], Callable[[Any], Awaitable[JsonObject]]]] = {
            "initialize": (InitializeParams, self._initialize),
            "authenticate": (AuthenticateParams, self._authenticate),
            "logout": (EmptyParams, self._logout),
            "session/new": (NewSessionParams, self._new_session),
            "session/load": (ExistingSessionParams, self._load_session),
            "session/resume": (ExistingSessionParams, self._resume_session),
            "session/fork": (ExistingSessionParams, self._fork_session),
            "session/list": (ListSessionsParams, self._list_sessions),
            "session/delete": (SessionParams, self._delete_session),
            "session/close": (SessionParams, self._close_session),
            "session/set_mode": (SetModeParams, self._set_mode),
            "session/set_config_option": (SetConfigOptionParams, self._set_config_option),
            "session/prompt": (PromptParams, self._prompt),
            "session/cancel": (SessionParams, self._cancel),
        }
        return {name: EditorMethod(*way) for name, way in ways.items()}

    def close_all(self) -> None:
        """Close all sessions, including those being opened."""
        self._left = True
        for talk in self._open.values():
            self._group.start_soon(talk.leave)

    async def _initialize(self, params: InitializeParams) -> JsonObject:
        self._able = params.client_capabilities or ClientCapabilities()
        info: JsonObject = {"name": "travois", "title": "Travois", "version": __version__}
        told: JsonObject = {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": info,
            "agentCapabilities": AGENT_CAPABILITIES,
        }
        return {**told, "authMethods": [_auth_method_json()]}

    async def _authenticate(self, params: AuthenticateParams) -> JsonObject:
        if params.method_id != AUTH_METHOD_ID:
            raise AcpError(INVALID_PARAMS, f"Unknown authentication method {params.method_id!r}")
        if needs_api_key(self._options):
            raise AcpError(AUTH_REQUIRED, f"No API key is set. {API_KEY_HINT}")
        return {}

    async def _logout(self, params: EmptyParams) -> JsonObject:
        raise AcpError(
            METHOD_NOT_FOUND, "Travois has no login: it reads API keys from its environment."
        )

    async def _new_session(self, params: NewSessionParams) -> JsonObject:
        talk = await self._open_session(self._session_options(params))
        return {"sessionId": talk.id, **talk.session_json()}

    async def _load_session(self, params: ExistingSessionParams) -> JsonObject:
        talk = await self._reopen_session(params)
        talk.replay()
        return talk.session_json()

    async def _resume_session(self, params: ExistingSessionParams) -> JsonObject:
        return (await self._reopen_session(params)).session_json()

    async def _fork_session(self, params: ExistingSessionParams) -> JsonObject:
        if not _find_session_summary(params.session_id).first_prompt:
            raise UserError("Nothing to fork yet: send a message first")
        options = replace(self._session_options(params), resume=params.session_id, fork=True)
        talk = await self._open_session(options)
        return {"sessionId": talk.id, **talk.session_json()}

    async def _reopen_session(self, params: ExistingSessionParams) -> AcpSession:
        """Resume a session, closing it first if it is open here."""
        await self._close_if_open(params.session_id)
        _find_session_summary(params.session_id)
        return await self._open_session(
            replace(self._session_options(params), resume=params.session_id)
        )

    async def _open_session(self, options: Options) -> AcpSession:
        talk = AcpSession(self._peer, options, self._able)
        try:
            await self._group.start(talk.run)
        except UserError as fault:
            if needs_api_key(options):
                raise AcpError(AUTH_REQUIRED, f"{fault}\n{API_KEY_HINT}") from None
            raise
        self._open[talk.id] = talk
        self._group.start_soon(talk.send_greeting)  # after our answer, which names the session
        if self._left:
            self._group.start_soon(talk.leave)
        return talk

    async def _close_session(self, params: SessionParams) -> JsonObject:
        self._find_open_session(params.session_id)
        await self._close_if_open(params.session_id)
        return {}

    async def _close_if_open(self, id: str) -> None:
        """Close a session if it is open here."""
        if (talk := self._open.pop(id, None)) is not None:
            await talk.leave()

    async def _delete_session(self, params: SessionParams) -> JsonObject:
        """Move a session to the trash; a missing one is no error."""
        await self._close_if_open(params.session_id)
        home = _locate_home()
        everything = list_sessions(home)
        for summary in everything:
            if summary.id == params.session_id:
                _discard_session(home, summary, everything)
        return {}

    async def _list_sessions(self, params: ListSessionsParams) -> JsonObject:
        found = [one for one in list_sessions(_locate_home()) if one.cwd and one.first_prompt]
        if params.cwd is not None:
            _require_absolute(params.cwd)
            places = (params.cwd, os.path.realpath(params.cwd))
            found = [one for one in found if one.cwd in places]
        if params.cursor is not None:
            found = _sessions_after(found, params.cursor)
        told: JsonObject = {"sessions": [_session_json(one) for one in found[:SESSIONS_PER_PAGE]]}
        return told | (
            {"nextCursor": _encode_cursor(found[SESSIONS_PER_PAGE - 1])}
            if len(found) > SESSIONS_PER_PAGE
            else {}
        )

    async def _set_mode(self, params: SetModeParams) -> JsonObject:
        await self._apply_choice(self._find_open_session(params.session_id), "mode", params.mode_id)
        return {}

    async def _set_config_option(self, params: SetConfigOptionParams) -> JsonObject:
        talk = self._find_open_session(params.session_id)
        await self._apply_choice(talk, params.config_id, str(params.value))
        return {"configOptions": talk.choices.config_options()}

    async def _apply_choice(self, talk: AcpSession, what: str, value: str) -> None:
        try:
            await talk.choices.choose(what, value)
        except UserError as fault:
            raise AcpError(INVALID_PARAMS, str(fault)) from None

    async def _prompt(self, params: PromptParams) -> JsonObject:
        return await self._find_open_session(params.session_id).prompt(params.prompt)

    async def _cancel(self, params: SessionParams) -> JsonObject:
        self._find_open_session(params.session_id).cancel()
        return {}

    def _find_open_session(self, id: str) -> AcpSession:
        talk = self._open.get(id)
        if talk is None or talk.over.is_set():
            raise AcpError(RESOURCE_NOT_FOUND, f"There is no open session {id!r}")
        return talk

    def _session_options(self, params: NewSessionParams) -> Options:
        """Return the command-line options, in the editor's folder and with its servers."""
        _require_absolute(params.cwd)
        if not os.path.isdir(params.cwd):
            raise AcpError(INVALID_PARAMS, f"cwd {params.cwd!r} is not a folder")
        folders = params.additional_directories or ()
        for folder in folders:
            _require_absolute(folder)
        servers = {one.name: _mcp_server_settings(one) for one in params.mcp_servers or ()}
        given = (msgspec.json.encode({"mcpServers": servers}).decode(),) if servers else ()
        return replace(
            self._options,
            cwd=params.cwd,
            folders=(*self._options.folders, *folders),
            mcp=(*given, *self._options.mcp),
        )


def _auth_method_json() -> Json:
    """Describe the ACP authentication method: an API key from the environment."""
    names = dict.fromkeys(
        name for one in catalog.load_catalog().providers.values() for name in one.key_env
    )
    keys: list[Json] = [{"name": name, "secret": True, "optional": True} for name in names]
    told: JsonObject = {"id": AUTH_METHOD_ID, "name": "API key", "description": API_KEY_HINT}
    return {**told, "type": "env_var", "vars": keys}


def _mcp_server_settings(server: McpServerParams) -> Json:
    """Convert an MCP server from the editor to an entry of our settings."""
    if server.type == "stdio":
        env = _pairs_to_object(server.env)
        return {"command": server.command, "args": list(server.args), "env": env}
    return {"type": server.type, "url": server.url, "headers": _pairs_to_object(server.headers)}


def _pairs_to_object(pairs: tuple[NameValue, ...]) -> Json:
    return {pair.name: pair.value for pair in pairs}


def _require_absolute(path: str) -> None:
    if not os.path.isabs(path):
        raise AcpError(INVALID_PARAMS, f"{path!r} is not an absolute path")


def _locate_home() -> TravoisHome:
    return locate_home(os.environ).prepare()


def _find_session_summary(id: str) -> SessionSummary:
    """Find a session by ID for the editor; raise `AcpError` if there is none."""
    found = next((one for one in list_sessions(_locate_home()) if one.id == id), None)
    if found is None:
        raise AcpError(RESOURCE_NOT_FOUND, f"There is no session {id!r}")
    return found


def _discard_session(
    home: TravoisHome, summary: SessionSummary, everything: list[SessionSummary]
) -> None:
    """Move the editor's session to the trash, unless another one was forked from it."""
    if any(one.parent == summary.id for one in everything):
        raise UserError("The session cannot be deleted", why="another session was forked from it")
    trash_session(home, summary)


def _session_json(summary: SessionSummary) -> Json:
    """Build the entry of a session in the editor's session list."""
    when = datetime.fromtimestamp(summary.updated, UTC).isoformat()
    told: JsonObject = {"sessionId": summary.id, "cwd": summary.cwd}
    return {**told, "title": summary.title, "updatedAt": when}


def _encode_cursor(summary: SessionSummary) -> str:
    """Encode a page end of the editor's session list, unaffected by new or deleted ones."""
    return urlsafe_b64encode(msgspec.json.encode((summary.updated, summary.id))).decode()


def _sessions_after(found: list[SessionSummary], cursor: str) -> list[SessionSummary]:
    """Return the page of the editor's session list that follows a cursor."""
    try:
        last = msgspec.json.decode(urlsafe_b64decode(cursor), type=tuple[float, str])
    except (ValueError, msgspec.DecodeError):
        raise AcpError(INVALID_PARAMS, f"Invalid cursor {cursor!r}") from None
    return [one for one in found if (one.updated, one.id) < last]
