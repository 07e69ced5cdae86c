"""The connection to one MCP server: transport, lifecycle, calls and change notifications."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from errno import ENOTSUP
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from travois.core.display_text import escape_invisible
from travois.files.openat import make_folders
from travois.lazy_imports import lazy_imports
from travois.mcp.elicitation import answer_elicitation
from travois.mcp.http_transport import connect_remote, run_headers_helper
from travois.mcp.oauth import TokenStore
from travois.mcp.sdk_errors import (
    MAX_ERROR_CHARS,
    describe_error,
    is_connection_closed,
    is_undelivered_call,
    load_sdk,
    may_have_run,
    sdk_errors,
    to_wire_json,
)
from travois.mcp.tools import (
    McpCallResult,
    McpContent,
    McpPrompt,
    McpResource,
    McpServerConfig,
    McpToolOffer,
    ServerState,
)
from travois.permissions.sandbox_profile import SandboxProfile
from travois.permissions.secrets import Secrets, collect_secrets
from travois.ports.tool import ToolError
from travois.ports.world import Command, Env
from travois.process.job import StdioConnection
from travois.process.local_processes import LocalProcesses
from travois.sandbox.hidden_files import find_named_folders

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp.shared.message import SessionMessage

    from mcp import Client

with lazy_imports():
    import mcp_types
    from mcp.shared import message as shared_message

    import mcp
    from travois.mcp import machine_login, oauth_provider

# Talking with a server that is a program: a message on each line, and nothing without bounds.


MAX_MESSAGE_BYTES = 10 << 20
"""Maximum bytes of one message."""
MAX_MESSAGE_VALUES = 150_000
"""Maximum values in one message: each takes far more memory than its text."""
JSON_STRING = re.compile(rb'"(?>[^"\\]++|\\.)*+"', re.DOTALL)
"""A string of JSON; without going back, which would take more memory than the message."""
MAX_LOG_BYTES = 1 << 20
"""Maximum bytes logged of one run's standard error."""


MAX_LIST_PAGES = 50
"""Maximum pages requested of one list."""
MAX_SERVER_TOOLS = 2_000
"""Maximum tools of one server."""


class MessageTooLarge(Exception):
    """A message that is too large; the server is disconnected."""


@asynccontextmanager
async def open_stdio_streams(
    start: Callable[[], StdioConnection], *, ended: anyio.Event
) -> AsyncGenerator[TransportStreams]:
    """Open a stdio MCP server's streams for the SDK; `ended` is set when its output ends."""
    bring, read = anyio.create_memory_object_stream[shared_message.SessionMessage | Exception](0)
    write, take = anyio.create_memory_object_stream[shared_message.SessionMessage](0)
    talk = start()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_forward_messages, talk, bring, ended)
            group.start_soon(_send_messages, talk, take, ended)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        for stream in (bring, read, write, take):
            stream.close()
        with anyio.CancelScope(shield=True):
            await talk.aclose()


async def _forward_messages(
    talk: StdioConnection,
    bring: MemoryObjectSendStream[SessionMessage | Exception],
    ended: anyio.Event,
) -> None:
    """Forward an MCP server's valid messages; ignore anything else as noise."""
    try:
        async with aclosing(_read_messages(talk)) as messages:
            async for message in messages:
                await bring.send(message)
    except (OSError, MessageTooLarge, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        ended.set()
        bring.close()


def _parse_message(line: bytes) -> shared_message.SessionMessage | None:
    """Parse one JSON-RPC line of an MCP server; None if it is invalid."""
    try:
        return shared_message.SessionMessage(
            mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        )
    except (ValueError, RecursionError):
        return None


async def _read_messages(talk: StdioConnection) -> AsyncGenerator[SessionMessage]:
    """Read JSON-RPC messages from a stdio MCP server; refuse messages that are too large."""
    rest = bytearray()
    while data := await talk.receive():
        first, *more = data.split(b"\n")
        rest += first
        for part in more:
            _refuse_many_values(bytes(rest))
            if (message := _parse_message(bytes(rest))) is not None:
                yield message
            rest = bytearray(part)
        if len(rest) > MAX_MESSAGE_BYTES:
            raise MessageTooLarge


def _refuse_many_values(line: bytes) -> None:
    """Raise `MessageTooLarge` if an MCP message would need far more memory than its text."""
    if _count_values(line, 0, len(line)) <= MAX_MESSAGE_VALUES:
        return
    count = at = 0
    for string in JSON_STRING.finditer(line):
        count += _count_values(line, at, string.start())
        at = string.end()
        if count > MAX_MESSAGE_VALUES:
            raise MessageTooLarge
    if count + _count_values(line, at, len(line)) > MAX_MESSAGE_VALUES:
        raise MessageTooLarge


def _count_values(text: bytes, start: int, end: int) -> int:
    return sum(text.count(sign, start, end) for sign in (b",", b"[", b"{"))


async def _send_messages(
    talk: StdioConnection, take: MemoryObjectReceiveStream[SessionMessage], ended: anyio.Event
) -> None:
    """Write the client's JSON-RPC messages to a stdio MCP server."""
    try:
        async for each in take:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await talk.send(f"{text}\n".encode(errors="replace"))
    except OSError:
        ended.set()


class McpServerLog:
    """The log file of a server's standard error, limited to its last runs, secrets redacted."""

    def __init__(self, path: Path, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        self._left = MAX_LOG_BYTES

    def append(self, data: bytes) -> None:
        """Append to the log up to its size limit; a full disk is ignored."""
        text = self._secrets.redact_bytes(data)[: self._left]
        self._left -= len(text)
        if not text:
            return
        try:
            make_folders(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(self._path.with_suffix(".old.log"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
        except OSError:
            return
        with open(file, "ab", buffering=0) as log:
            log.write(text)


# The life of one server: started, lost, started again after a pause, left alone, and wanted.


MAX_START_ATTEMPTS = 5
"""Maximum starts of a server that keeps failing, before it is given up."""
STABLE_AFTER_SECONDS = 60.0
"""After how many seconds a server counts as one that stays."""
RETRY_PAUSE_SECONDS = 0.5
LOGIN_POLL_SECONDS = 2.0
"""Seconds between checks for a login made elsewhere."""
LOGIN_COMMAND = "travois mcp login"


class McpLifecycle(ABC):
    """The lifecycle of an MCP server: start, restart with delays, give up, retry on demand."""

    def __init__(self, server: McpServerConfig, tokens: TokenStore, *, mode: str) -> None:
        self.server = server
        self.on = True
        """True if it may be used; the program that drives a session can disable it."""
        self._tokens = tokens
        self._state: ServerState = "starting"
        self._why = ""
        self._client: Client | None = None
        self._mode = mode
        """The protocol mode of the last successful connection."""
        self._resting = False
        """True if it was given up until somebody needs it."""
        self._wanted = anyio.Event()
        self._news = anyio.Event()
        self._ended = anyio.Event()
        self._complained = False

    @abstractmethod
    async def _connect(self, mode: str) -> str:
        """Start the server and stay connected until it ends; returns why it did."""

    @abstractmethod
    def _report_failure(self, why: str) -> None:
        """Tell the person that the server is not available."""

    @property
    def state(self) -> ServerState:
        """The state of the connection."""
        return self._state if self.on else "failed"

    @property
    def failure_reason(self) -> str:
        """The reason for the last failure."""
        return self._why if self.on else "it is disabled"

    async def keep_alive(self) -> None:
        """Keep the server for a session: one that was given up is tried again when needed."""
        attempts = MAX_START_ATTEMPTS
        while True:
            await self.run(attempts)
            await self._wait_until_needed()
            attempts = 1

    async def run(self, attempts: int = MAX_START_ATTEMPTS) -> None:
        """Keep the server running; one that keeps failing is given up."""
        if why := await anyio.to_thread.run_sync(load_sdk):
            self._give_up(why)
            return
        failures = MAX_START_ATTEMPTS - attempts
        while True:
            began = anyio.current_time()
            why = await self._connect(self._mode or ("legacy" if failures % 2 else "auto"))
            lasted = (
                self._client is not None and anyio.current_time() - began > STABLE_AFTER_SECONDS
            )
            self._client = None
            failures = 1 if lasted else failures + 1
            if _is_retry_useless(why) or failures >= MAX_START_ATTEMPTS:
                self._give_up(why)
                return
            self._set_state("failed", why)
            with anyio.move_on_after(RETRY_PAUSE_SECONDS * 2**failures):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            self._set_state("starting", why)

    async def wait_until_started(self) -> None:
        """Wait until the server has started, or has failed to."""
        while self._state == "starting":
            await self._news.wait()

    async def reconnect(self) -> None:
        """Reconnect, whatever the state; afterwards `state` says how that went."""
        with anyio.move_on_after(self.server.start):
            if self._client is not None:
                self._ended.set()
                await self._news.wait()
            await self._wait_until_ready()

    def _set_state(self, state: ServerState, why: str) -> None:
        self._state, self._why = state, why
        if state == "failed" and not self._complained:
            self._report_failure(why)
        self._complained = state == "failed" or (self._complained and state == "starting")
        news, self._news = self._news, anyio.Event()
        news.set()

    def _give_up(self, why: str) -> None:
        self._resting = True
        self._set_state("failed", why)

    async def _wait_until_needed(self) -> None:
        """Wait until the server is needed, or a person has logged in."""
        granted = self._tokens.modification_time
        while not self._wanted.is_set() and granted == self._tokens.modification_time:
            with anyio.move_on_after(
                LOGIN_POLL_SECONDS if LOGIN_COMMAND in self.failure_reason else float("inf")
            ):
                await self._wanted.wait()
        self._resting, self._wanted = False, anyio.Event()
        self._set_state("starting", self.failure_reason)

    async def _wait_until_ready(self) -> None:
        """Wait until the server is ready or given up; one that was given up is tried again."""
        if self._client is None:
            self._resting = False
            self._wanted.set()
        while self._client is None and not self._resting:
            await self._news.wait()


def _is_retry_useless(why: str) -> bool:
    """Return whether restarting an MCP server is useless: no program, or a person must act."""
    return LOGIN_COMMAND in why or "no such program" in why


ResultT = TypeVar("ResultT")
UNKNOWN_OUTCOME = "the call may have run in part or in full; check before you call it again"
CONNECTION_LOST = f"the connection ended after the call was sent: {UNKNOWN_OUTCOME}"
STATELESS_VERSION = "2026-07-28"
"""From this version on there are no sessions, and changes have to be asked for."""
LIST_CHANGED_NOTIFICATIONS = frozenset(
    f"{what}ListChangedNotification" for what in ("Tool", "Prompt", "Resource")
)


class McpHost(msgspec.Struct, frozen=True):
    """The environment that all servers of a session share."""

    processes: LocalProcesses
    folders: tuple[str, ...]
    """The workspace, which servers are told of."""
    logs: Path
    tokens: Path
    environ: Mapping[str, str]
    complain: Callable[[str], None] = lambda text: None
    """Tells the person of a server that cannot be used."""
    sandbox: Callable[[tuple[str, ...]], SandboxProfile | None] = lambda shown: None
    """The sandbox for servers that run in one, which shows these folders; none if there is none."""
    sandboxed: bool = False
    """True if servers run in the sandbox by default."""

    @property
    def tool_cache_folder(self) -> Path:
        """The folder with the cached tool lists of servers."""
        return self.tokens.parent / "lent"


class RunningCall(msgspec.Struct):
    """An MCP tool call in progress."""

    env: Env
    scope: anyio.CancelScope


class NotDelivered(ToolError):
    """An MCP tool call that never reached its server, so it may be repeated."""


class McpConnection(McpLifecycle):
    """The connection to one MCP server."""

    def __init__(self, server: McpServerConfig, host: McpHost, *, mode: str = "") -> None:
        """Take a protocol era as `mode`, if it need not be detected."""
        super().__init__(server, TokenStore(host.tokens, server), mode=mode)
        self.about = ""
        self.era = ""
        """The version of the protocol that it speaks."""
        self.info: dict[str, str] = {}
        """Its own name and version."""
        self.offers: tuple[McpToolOffer, ...] = ()
        self.prompts: tuple[McpPrompt, ...] = ()
        self.held: tuple[str, ...] = ()
        """The addresses of what it has to read."""
        self._around = host
        self._folders = host.folders
        self._moved = anyio.Event()
        self._changed = anyio.Event()
        self._over = anyio.Event()
        self._untaken = False
        self._calls: list[RunningCall] = []

    async def call_tool(self, tool: str, args: dict[str, Any], env: Env) -> McpCallResult:
        """Run a tool; a call that never reached the server is repeated once."""
        try:
            return await self._call_tool_once(tool, args, env)
        except NotDelivered:
            return await self._call_tool_once(tool, args, env)

    async def _call_tool_once(self, tool: str, args: dict[str, Any], env: Env) -> McpCallResult:
        """Run a tool; the time limit starts anew with each sign of progress."""
        client = await self._require_client()

        async def report_progress(
            progress: float, total: float | None, message: str | None
        ) -> None:
            scope.deadline = anyio.current_time() + self.server.limit
            part = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            env.progress(escape_invisible(f"{part} {message or ''}".strip())[:MAX_ERROR_CHARS])

        async def send_call() -> McpCallResult:
            result = await client.call_tool(tool, args, progress_callback=report_progress)
            return msgspec.json.decode(to_wire_json(result), type=McpCallResult)

        with anyio.move_on_after(self.server.limit) as scope:
            running = RunningCall(env, scope)
            self._calls.append(running)
            try:
                return await self._translate_errors(send_call())
            finally:
                self._calls.remove(running)
        raise ToolError(
            f"{self.server.name} did not respond for {self.server.limit:g} s, so the call was "
            f"cancelled: {UNKNOWN_OUTCOME}."
        )

    async def list_resources(self) -> tuple[tuple[str, str], ...]:
        """List the server's resources."""
        found = await self._with_time_limit((await self._require_client()).list_resources())
        return tuple((one.uri, one.title or one.name) for one in found.resources[:MAX_SERVER_TOOLS])

    async def read_resource(self, uri: str) -> McpCallResult:
        """Read a resource; only the server itself interprets the address."""
        client = await self._require_client()

        async def send_read() -> McpCallResult:
            found = await client.read_resource(uri)
            held = (
                msgspec.json.decode(to_wire_json(one), type=McpResource) for one in found.contents
            )
            return McpCallResult(tuple(McpContent("resource", resource=one) for one in held))

        return await self._with_time_limit(send_read())

    async def get_prompt(self, name: str, args: Mapping[str, str]) -> str:
        """Return a prompt with its arguments filled in."""
        found = await self._with_time_limit(
            (await self._require_client()).get_prompt(name, dict(args))
        )
        blocks = (
            msgspec.json.decode(to_wire_json(one.content), type=McpContent)
            for one in found.messages
        )
        return "\n\n".join(block.text for block in blocks if block.text)

    async def _require_client(self) -> Client:
        """Return the client; wait for a lost connection to come back."""
        with anyio.move_on_after(self.server.start if self.on else 0):
            await self._wait_until_ready()
        if self._client is None or not self.on:
            why = self.failure_reason or self.state
            raise ToolError(f"The MCP server {self.server.name} is not available: {why}.")
        return self._client

    async def _with_time_limit(self, asked: Awaitable[ResultT]) -> ResultT:
        with anyio.move_on_after(self.server.limit):
            return await self._translate_errors(asked)
        raise ToolError(f"{self.server.name} did not answer within {self.server.limit:g} s.")

    async def _translate_errors(self, asked: Awaitable[ResultT]) -> ResultT:
        """Await an answer; turn every failure into a `ToolError` that the model can act on."""
        over = self._over
        try:
            return await asked
        except (ExceptionGroup, *sdk_errors()) as error:
            if not (self._ended.is_set() or is_connection_closed(error)):
                doubt = f"; {UNKNOWN_OUTCOME}" if self._calls and may_have_run(error) else ""
                raise ToolError(f"{self.server.name}: {describe_error(error)}{doubt}") from None
        with anyio.move_on_after(LOGIN_POLL_SECONDS):
            await over.wait()
        if self._untaken and len(self._calls) == 1:  # of several, it is not known which one
            raise NotDelivered(f"{self.server.name}: {self.failure_reason}")
        lost = (
            self.failure_reason
            if LOGIN_COMMAND in self.failure_reason
            else f"{CONNECTION_LOST} ({self.failure_reason})"
        )
        raise ToolError(f"{self.server.name}: {lost}.")

    def _report_failure(self, why: str) -> None:
        self._around.complain(f"MCP server {self.server.name} is not available: {why}")

    async def _connect(self, mode: str) -> str:
        """Start the server and stay connected until it ends; returns why it did."""
        self._ended, self._changed, self._over = anyio.Event(), anyio.Event(), anyio.Event()
        self._untaken = False
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self.server.start
            try:
                await self._run_client(mode, scope)
            except (ExceptionGroup, *sdk_errors()) as error:
                self._untaken = self._untaken or is_undelivered_call(error)
                return describe_error(error)
            finally:
                self._over.set()
        late = f"it did not answer within {self.server.start:g} s"
        return late if scope.cancelled_caught else self._describe_end()

    async def _run_client(self, mode: str, scope: anyio.CancelScope) -> None:
        client = mcp.Client(
            await self._open_transport(),
            mode=mode,
            list_roots_callback=self._list_roots,
            elicitation_callback=self._on_elicitation,
            message_handler=self._on_notification,
        )
        async with client, anyio.create_task_group() as group:
            await self._fetch_offerings(client)
            scope.deadline = float("inf")
            self._client, self._mode = client, mode
            self._set_state("ready", "")
            group.start_soon(self._refetch_on_change, client)
            group.start_soon(
                self._subscribe_to_changes
                if self.era >= STATELESS_VERSION
                else self._announce_folders,
                client,
            )
            await self._ended.wait()
            group.cancel_scope.cancel()

    async def _fetch_offerings(self, client: Client) -> None:
        has = client.server_capabilities
        self.about, self.era = client.instructions or "", client.protocol_version
        if known := client.server_info:
            self.info = {"name": known.name, "version": known.version}
        self.offers = await fetch_tools(client) if has.tools is not None else ()
        self.prompts = await fetch_prompts(client) if has.prompts is not None else ()
        self.held = await fetch_resource_uris(client) if has.resources is not None else ()
        cache_offers(self.server, self._around.tool_cache_folder, self.offers)

    async def _refetch_on_change(self, client: Client) -> None:
        """List tools, prompts and resources again whenever the server says they changed."""
        while True:
            await self._changed.wait()
            await anyio.sleep(RETRY_PAUSE_SECONDS)
            self._changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.start):
                    await self._fetch_offerings(client)
            except sdk_errors():
                continue

    async def _subscribe_to_changes(self, client: Client) -> None:
        """Subscribe to changes where the protocol requires it, and again after a loss."""
        for lost in range(MAX_START_ATTEMPTS):
            with suppress(*sdk_errors()):
                await self._read_change_events(client)
            await anyio.sleep(RETRY_PAUSE_SECONDS * 2**lost)

    async def _read_change_events(self, client: Client) -> None:
        """Read change events; list everything once first, as earlier changes are not reported."""
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as events:
            self._changed.set()
            async for _ in events:
                self._changed.set()

    async def _on_notification(self, message: IncomingMessage) -> None:
        if type(message).__name__ in LIST_CHANGED_NOTIFICATIONS:
            self._changed.set()
        await anyio.lowlevel.checkpoint()

    def set_folders(self, folders: tuple[str, ...]) -> None:
        """Set the workspace folders, and tell the server if they changed."""
        if folders != self._folders:
            self._folders = folders
            self._moved.set()

    async def _announce_folders(self, client: Client) -> None:
        """Notify the server of each folder change, where the protocol has sessions."""
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            with suppress(*sdk_errors()):
                await client.session.send_notification(mcp_types.RootsListChangedNotification())

    async def _list_roots(self, context: object) -> Any:
        return mcp_types.ListRootsResult(
            roots=[mcp_types.Root.model_validate({"uri": Path(f).as_uri()}) for f in self._folders]
        )

    async def _on_elicitation(self, context: object, params: Any) -> Any:
        """Pass a server's question to the user whose call it is working on."""
        if not self._calls:
            return mcp_types.ElicitResult(action="cancel")
        running = self._calls[-1]
        running.scope.deadline = float("inf")
        try:
            return await answer_elicitation(self.server.name, params, running.env)
        finally:
            running.scope.deadline = anyio.current_time() + self.server.limit

    async def _open_transport(self) -> AbstractAsyncContextManager[TransportStreams]:
        server, around = self.server, self._around
        if server.kind == "stdio":
            log = McpServerLog(
                around.logs / f"{server.key}.log", collect_secrets(around.environ.items())
            )
            folder = server.cwd or around.folders[0]
            command = Command(server.argv, folder, server.env, sandbox=self._sandbox_profile())
            return open_stdio_streams(
                lambda: around.processes.connect_stdio(command, log=log.append), ended=self._ended
            )
        headers = await run_headers_helper(server, around.processes) if server.helper else {}
        connect = partial(
            connect_remote,
            server,
            headers=headers,
            forgotten=self._on_session_lost,
            ended=self._ended.set,
        )
        if server.machine is not None:
            login = machine_login.create_machine_login(server, server.machine, self._tokens)
            return connect(auth=login)
        if not self._tokens.path.exists():
            return connect()
        auth = oauth_provider.StoredLoginProvider(server, self._tokens)
        return connect(auth=auth, check=auth.check_response)

    def _sandbox_profile(self) -> SandboxProfile | None:
        """Return the profile of a sandboxed server; raises OSError where none is available."""
        said, around = self.server.sandbox, self._around
        wanted = around.sandboxed if said is None else said
        profile = around.sandbox(find_named_folders(*self.server.argv)) if wanted else None
        if wanted and profile is None:
            raise OSError(ENOTSUP, "it must run in the sandbox, which is not available here")
        return profile

    def _on_session_lost(self) -> None:
        """Note that the server lost our session, so the last request had no effect."""
        self._ended.set()
        self._untaken = True

    def _describe_end(self) -> str:
        if self.server.url:
            return "the connection ended"
        return f"it exited; see `travois mcp logs {self.server.name}`"


def create_connections(
    servers: tuple[McpServerConfig, ...], host: McpHost
) -> tuple[McpConnection, ...]:
    """Create a connection for each MCP server; none is started yet."""
    return tuple(McpConnection(server, host) for server in servers)


def cache_offers(server: McpServerConfig, folder: Path, offers: tuple[McpToolOffer, ...]) -> None:
    """Cache an MCP server's tool list, if any of its tools may be always loaded."""
    path = _cache_path(server, folder)
    if server.standing == "some" and not any(offer.is_always_loaded for offer in offers):
        path.unlink(missing_ok=True)
        return
    make_folders(folder)
    path.touch(0o600)
    path.write_bytes(msgspec.json.encode(offers))


def read_cached_offers(server: McpServerConfig, folder: Path) -> tuple[McpToolOffer, ...]:
    """Read an MCP server's last tool list from the cache; empty if there is none."""
    try:
        return msgspec.json.decode(
            _cache_path(server, folder).read_bytes(), type=tuple[McpToolOffer, ...]
        )
    except (OSError, msgspec.DecodeError):
        return ()


def _cache_path(server: McpServerConfig, folder: Path) -> Path:
    said = msgspec.json.encode((server.name, server.argv, server.url))
    return folder / f"{blake2b(said, digest_size=12).hexdigest()}.json"


async def fetch_tools(client: Client) -> tuple[McpToolOffer, ...]:
    """Fetch all tools of an MCP server, page by page."""
    found: list[McpToolOffer] = []
    cursor: str | None = None
    for _ in range(MAX_LIST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        for tool in page.tools:
            schema = msgspec.Raw(msgspec.json.encode(tool.input_schema))
            meta = msgspec.Raw(msgspec.json.encode(tool.meta))
            found.append(McpToolOffer(tool.name, tool.description or "", schema, meta))
        cursor = page.next_cursor
        if cursor is None or len(found) > MAX_SERVER_TOOLS:
            break
    return tuple(found[:MAX_SERVER_TOOLS])


async def fetch_prompts(client: Client) -> tuple[McpPrompt, ...]:
    """Fetch the prompts that an MCP server offers."""
    listed = (await client.list_prompts()).prompts[:MAX_SERVER_TOOLS]
    return tuple(
        McpPrompt(one.name, one.description or "", tuple(a.name for a in one.arguments or ()))
        for one in listed
    )


async def fetch_resource_uris(client: Client) -> tuple[str, ...]:
    """Fetch the URIs of an MCP server's resources, those that a person can type."""
    try:
        listed = (await client.list_resources()).resources[:MAX_SERVER_TOOLS]
    except sdk_errors():
        return ()
    uris = (str(one.uri) for one in listed)
    return tuple(uri for uri in uris if uri == escape_invisible(uri) and not re.search(r"\s", uri))
