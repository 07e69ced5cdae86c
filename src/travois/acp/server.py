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

from travois.acp.options import keyless
from travois.acp.protocol import (
    LOGIN,
    MISSING,
    UNFIT,
    UNKNOWN,
    Again,
    Begin,
    Capabilities,
    Hello,
    Listing,
    Method,
    Mode,
    Nothing,
    One,
    Pair,
    Peer,
    Prompt,
    Server,
    Setting,
    Way,
    Wrong,
)
from travois.acp.session import Talk
from travois.compat.claude_json import Json, Object
from travois.compose.options import Options
from travois.core.errors import UserError
from travois.providers import catalog
from travois.sessions.catalog import SessionSummary, list_sessions, trash_session
from travois.sessions.home import TravoisHome, locate_home
from travois.version import __version__

VERSION = 1
PAGE = 50
"""Sessions per page of `session/list`."""
KEYS = "environment"
"""The id of the only authentication method: API keys in the environment."""
HINT = (
    "Set the API key of a provider, such as ANTHROPIC_API_KEY or OPENAI_API_KEY, in the "
    "environment in which the editor starts Travois. `travois models` lists all providers."
)
ABLE: Object = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        name: {} for name in ("list", "delete", "resume", "close", "fork", "additionalDirectories")
    },
}


class Talks:
    """The sessions that an editor has open in this process."""

    def __init__(self, peer: Peer, options: Options, group: TaskGroup) -> None:
        self._peer = peer
        self._options = options
        self._group = group
        self._able = Capabilities()
        self._open: dict[str, Talk] = {}
        self._left = False

    def ways(self) -> Mapping[str, Way]:
        """Return the handler of each method."""
        ways: dict[str, tuple[type[msgspec.Struct], Callable[[Any], Awaitable[Object]]]] = {
            "initialize": (Hello, self._hello),
            "authenticate": (Method, self._log_in),
            "logout": (Nothing, self._log_out),
            "session/new": (Begin, self._new),
            "session/load": (Again, self._load),
            "session/resume": (Again, self._resume),
            "session/fork": (Again, self._fork),
            "session/list": (Listing, self._list),
            "session/delete": (One, self._delete),
            "session/close": (One, self._close),
            "session/set_mode": (Mode, self._mode),
            "session/set_config_option": (Setting, self._set),
            "session/prompt": (Prompt, self._prompt),
            "session/cancel": (One, self._cancel),
        }
        return {name: Way(*way) for name, way in ways.items()}

    def leave(self) -> None:
        """Close all sessions, including those being opened."""
        self._left = True
        for talk in self._open.values():
            self._group.start_soon(talk.leave)

    async def _hello(self, asked: Hello) -> Object:
        self._able = asked.client_capabilities or Capabilities()
        info: Object = {"name": "travois", "title": "Travois", "version": __version__}
        told: Object = {"protocolVersion": VERSION, "agentInfo": info, "agentCapabilities": ABLE}
        return {**told, "authMethods": [_keys()]}

    async def _log_in(self, asked: Method) -> Object:
        if asked.method_id != KEYS:
            raise Wrong(UNFIT, f"Unknown authentication method {asked.method_id!r}")
        if keyless(self._options):
            raise Wrong(LOGIN, f"No API key is set. {HINT}")
        return {}

    async def _log_out(self, asked: Nothing) -> Object:
        raise Wrong(UNKNOWN, "Travois has no login: it reads API keys from its environment.")

    async def _new(self, asked: Begin) -> Object:
        talk = await self._opened(self._asked(asked))
        return {"sessionId": talk.id, **talk.opened()}

    async def _load(self, asked: Again) -> Object:
        talk = await self._reopened(asked)
        talk.replay()
        return talk.opened()

    async def _resume(self, asked: Again) -> Object:
        return (await self._reopened(asked)).opened()

    async def _fork(self, asked: Again) -> Object:
        if not _known(asked.session_id).first_prompt:
            raise UserError("Nothing to fork yet: send a message first")
        options = replace(self._asked(asked), resume=asked.session_id, fork=True)
        talk = await self._opened(options)
        return {"sessionId": talk.id, **talk.opened()}

    async def _reopened(self, asked: Again) -> Talk:
        """Resume a session, closing it first if it is open here."""
        await self._closed(asked.session_id)
        _known(asked.session_id)
        return await self._opened(replace(self._asked(asked), resume=asked.session_id))

    async def _opened(self, options: Options) -> Talk:
        talk = Talk(self._peer, options, self._able)
        try:
            await self._group.start(talk.live)
        except UserError as fault:
            if keyless(options):
                raise Wrong(LOGIN, f"{fault}\n{HINT}") from None
            raise
        self._open[talk.id] = talk
        self._group.start_soon(talk.greet)  # after our answer, which names the session
        if self._left:
            self._group.start_soon(talk.leave)
        return talk

    async def _close(self, asked: One) -> Object:
        self._talk(asked.session_id)
        await self._closed(asked.session_id)
        return {}

    async def _closed(self, id: str) -> None:
        """Close a session if it is open here."""
        if (talk := self._open.pop(id, None)) is not None:
            await talk.leave()

    async def _delete(self, asked: One) -> Object:
        """Move a session to the trash; a missing one is no error."""
        await self._closed(asked.session_id)
        home = _home()
        everything = list_sessions(home)
        for summary in everything:
            if summary.id == asked.session_id:
                _discard(home, summary, everything)
        return {}

    async def _list(self, asked: Listing) -> Object:
        found = [one for one in list_sessions(_home()) if one.cwd and one.first_prompt]
        if asked.cwd is not None:
            _absolute(asked.cwd)
            places = (asked.cwd, os.path.realpath(asked.cwd))
            found = [one for one in found if one.cwd in places]
        if asked.cursor is not None:
            found = _after(found, asked.cursor)
        told: Object = {"sessions": [_listed(one) for one in found[:PAGE]]}
        return told | ({"nextCursor": _cursor(found[PAGE - 1])} if len(found) > PAGE else {})

    async def _mode(self, asked: Mode) -> Object:
        await self._chosen(self._talk(asked.session_id), "mode", asked.mode_id)
        return {}

    async def _set(self, asked: Setting) -> Object:
        talk = self._talk(asked.session_id)
        await self._chosen(talk, asked.config_id, str(asked.value))
        return {"configOptions": talk.choices.options()}

    async def _chosen(self, talk: Talk, what: str, value: str) -> None:
        try:
            await talk.choices.choose(what, value)
        except UserError as fault:
            raise Wrong(UNFIT, str(fault)) from None

    async def _prompt(self, asked: Prompt) -> Object:
        return await self._talk(asked.session_id).prompt(asked.prompt)

    async def _cancel(self, asked: One) -> Object:
        self._talk(asked.session_id).cancel()
        return {}

    def _talk(self, id: str) -> Talk:
        talk = self._open.get(id)
        if talk is None or talk.over.is_set():
            raise Wrong(MISSING, f"There is no open session {id!r}")
        return talk

    def _asked(self, asked: Begin) -> Options:
        """Return the command-line options, in the editor's folder and with its servers."""
        _absolute(asked.cwd)
        if not os.path.isdir(asked.cwd):
            raise Wrong(UNFIT, f"cwd {asked.cwd!r} is not a folder")
        folders = asked.additional_directories or ()
        for folder in folders:
            _absolute(folder)
        servers = {one.name: _server(one) for one in asked.mcp_servers or ()}
        given = (msgspec.json.encode({"mcpServers": servers}).decode(),) if servers else ()
        return replace(
            self._options,
            cwd=asked.cwd,
            folders=(*self._options.folders, *folders),
            mcp=(*given, *self._options.mcp),
        )


def _keys() -> Json:
    """Describe the authentication method: an API key of any provider, from the environment."""
    names = dict.fromkeys(
        name for one in catalog.catalog().providers.values() for name in one.key_env
    )
    keys: list[Json] = [{"name": name, "secret": True, "optional": True} for name in names]
    told: Object = {"id": KEYS, "name": "API key", "description": HINT}
    return {**told, "type": "env_var", "vars": keys}


def _server(server: Server) -> Json:
    """Convert a server to an entry of our settings."""
    if server.type == "stdio":
        env = _table(server.env)
        return {"command": server.command, "args": list(server.args), "env": env}
    return {"type": server.type, "url": server.url, "headers": _table(server.headers)}


def _table(pairs: tuple[Pair, ...]) -> Json:
    return {pair.name: pair.value for pair in pairs}


def _absolute(path: str) -> None:
    if not os.path.isabs(path):
        raise Wrong(UNFIT, f"{path!r} is not an absolute path")


def _home() -> TravoisHome:
    return locate_home(os.environ).prepare()


def _known(id: str) -> SessionSummary:
    found = next((one for one in list_sessions(_home()) if one.id == id), None)
    if found is None:
        raise Wrong(MISSING, f"There is no session {id!r}")
    return found


def _discard(home: TravoisHome, summary: SessionSummary, everything: list[SessionSummary]) -> None:
    if any(one.parent == summary.id for one in everything):
        raise UserError("The session cannot be deleted", why="another session was forked from it")
    trash_session(home, summary)


def _listed(summary: SessionSummary) -> Json:
    when = datetime.fromtimestamp(summary.updated, UTC).isoformat()
    told: Object = {"sessionId": summary.id, "cwd": summary.cwd}
    return {**told, "title": summary.title, "updatedAt": when}


def _cursor(summary: SessionSummary) -> str:
    """Encode the end of a page, in a way that new and deleted sessions do not shift."""
    return urlsafe_b64encode(msgspec.json.encode((summary.updated, summary.id))).decode()


def _after(found: list[SessionSummary], cursor: str) -> list[SessionSummary]:
    try:
        last = msgspec.json.decode(urlsafe_b64decode(cursor), type=tuple[float, str])
    except (ValueError, msgspec.DecodeError):
        raise Wrong(UNFIT, f"Invalid cursor {cursor!r}") from None
    return [one for one in found if (one.updated, one.id) < last]
