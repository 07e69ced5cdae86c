"""The connection to one MCP server: transport, lifecycle, calls and change notifications."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from errno import ENOTSUP
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from travois.core.display_text import escape_invisible
from travois.files.openat import make_folders
from travois.mcp.oauth import Tokens
from travois.mcp.remote import answer_elicitation, asked, remote
from travois.mcp.sdk import (
    MANY,
    WORDS,
    closed,
    doubtful,
    failures,
    held,
    json,
    loaded,
    offers,
    prompts,
    unreached,
    worded,
)
from travois.mcp.tool_cache import keep
from travois.mcp.tools import Answered, Item, Offer, Prompt, Resource, Server, State
from travois.permissions.sandbox_profile import Cage
from travois.permissions.secrets import Secrets, secrets
from travois.ports.tool import ToolError
from travois.ports.world import Command, Env
from travois.process.job import Talk
from travois.process.run import LocalProcesses
from travois.sandbox.hidden_files import find_folders

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp.shared.message import SessionMessage

    from mcp import Client


# Talking with a server that is a program: a message on each line, and nothing without bounds.


LONGEST = 10 << 20
"""Maximum bytes of one message."""
VALUES = 150_000
"""Maximum values in one message: each takes far more memory than its text."""
STRING = re.compile(rb'"(?>[^"\\]++|\\.)*+"', re.DOTALL)
"""A string of JSON; without going back, which would take more memory than the message."""
LOGGED = 1 << 20
"""Maximum bytes logged of one run's standard error."""


class Overlong(Exception):
    """A message that is too large; the server is disconnected."""


@asynccontextmanager
async def streams(
    start: Callable[[], Talk], *, ended: anyio.Event
) -> AsyncGenerator[TransportStreams]:
    """Return a program as the SDK wants it; `ended` is set when it says no more."""
    from mcp.shared.message import SessionMessage

    bring, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, take = anyio.create_memory_object_stream[SessionMessage](0)
    talk = start()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, talk, bring, ended)
            group.start_soon(_say, talk, take, ended)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        for stream in (bring, read, write, take):
            stream.close()
        with anyio.CancelScope(shield=True):
            await talk.aclose()


async def _hear(
    talk: Talk, bring: MemoryObjectSendStream[SessionMessage | Exception], ended: anyio.Event
) -> None:
    """Pass messages on; anything else is noise and ignored."""
    try:
        async with aclosing(_messages(talk)) as messages:
            async for message in messages:
                await bring.send(message)
    except (OSError, Overlong, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        ended.set()
        bring.close()


def _message(line: bytes) -> SessionMessage | None:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _messages(talk: Talk) -> AsyncGenerator[SessionMessage]:
    rest = bytearray()
    while data := await talk.receive():
        first, *more = data.split(b"\n")
        rest += first
        for part in more:
            _refuse_many_values(bytes(rest))
            if (message := _message(bytes(rest))) is not None:
                yield message
            rest = bytearray(part)
        if len(rest) > LONGEST:
            raise Overlong


def _refuse_many_values(line: bytes) -> None:
    """Raise `Overlong` if a message would take far more memory than its text does."""
    if _count_values(line, 0, len(line)) <= VALUES:
        return
    count = at = 0
    for string in STRING.finditer(line):
        count += _count_values(line, at, string.start())
        at = string.end()
        if count > VALUES:
            raise Overlong
    if count + _count_values(line, at, len(line)) > VALUES:
        raise Overlong


def _count_values(text: bytes, start: int, end: int) -> int:
    return sum(text.count(sign, start, end) for sign in (b",", b"[", b"{"))


async def _say(
    talk: Talk, take: MemoryObjectReceiveStream[SessionMessage], ended: anyio.Event
) -> None:
    try:
        async for each in take:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await talk.send(f"{text}\n".encode(errors="replace"))
    except OSError:
        ended.set()


class Journal:
    """The log file of a server's standard error, limited to its last runs, secrets redacted."""

    def __init__(self, path: Path, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        self._left = LOGGED

    def add(self, data: bytes) -> None:
        """Write more, up to a limit; a disk that is full is no reason to stop."""
        text = self._secrets.redacted_bytes(data)[: self._left]
        self._left -= len(text)
        if not text:
            return
        try:
            make_folders(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > LOGGED:
                self._path.replace(self._path.with_suffix(".old.log"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
        except OSError:
            return
        with open(file, "ab", buffering=0) as log:
            log.write(text)


# The life of one server: started, lost, started again after a pause, left alone, and wanted.


ATTEMPTS = 5
"""Maximum starts of a server that keeps failing, before it is given up."""
STEADY = 60.0
"""After how many seconds a server counts as one that stays."""
PAUSE = 0.5
LOOK = 2.0
"""Seconds between checks for a login made elsewhere."""
LOGIN = "travois mcp login"


class Life(ABC):
    """The lifecycle of a server: start, restart with pauses, give up, try again on demand."""

    def __init__(self, server: Server, tokens: Tokens, *, mode: str) -> None:
        self.server = server
        self.on = True
        """True if it may be used; the program that drives a session can disable it."""
        self._tokens = tokens
        self._state: State = "starting"
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
    async def _attempt(self, mode: str) -> str:
        """Start the server and stay connected until it ends; returns why it did."""

    @abstractmethod
    def _complain(self, why: str) -> None:
        """Tell the person that the server is not available."""

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._state if self.on else "failed"

    @property
    def why(self) -> str:
        """The reason for the last failure."""
        return self._why if self.on else "it is disabled"

    async def keep(self) -> None:
        """Keep the server for a session: one that was given up is tried again when needed."""
        attempts = ATTEMPTS
        while True:
            await self.run(attempts)
            await self._wish()
            attempts = 1

    async def run(self, attempts: int = ATTEMPTS) -> None:
        """Keep the server running; one that keeps failing is given up."""
        if why := await anyio.to_thread.run_sync(loaded):
            self._rest(why)
            return
        failures = ATTEMPTS - attempts
        while True:
            began = anyio.current_time()
            why = await self._attempt(self._mode or ("legacy" if failures % 2 else "auto"))
            lasted = self._client is not None and anyio.current_time() - began > STEADY
            self._client = None
            failures = 1 if lasted else failures + 1
            if _hopeless(why) or failures >= ATTEMPTS:
                self._rest(why)
                return
            self._become("failed", why)
            with anyio.move_on_after(PAUSE * 2**failures):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            self._become("starting", why)

    async def settled(self) -> None:
        """Wait until the server has started, or has failed to."""
        while self._state == "starting":
            await self._news.wait()

    async def again(self) -> None:
        """Reconnect, whatever the state; afterwards `state` says how that went."""
        with anyio.move_on_after(self.server.start):
            if self._client is not None:
                self._ended.set()
                await self._news.wait()
            await self._up()

    def _become(self, state: State, why: str) -> None:
        self._state, self._why = state, why
        if state == "failed" and not self._complained:
            self._complain(why)
        self._complained = state == "failed" or (self._complained and state == "starting")
        news, self._news = self._news, anyio.Event()
        news.set()

    def _rest(self, why: str) -> None:
        self._resting = True
        self._become("failed", why)

    async def _wish(self) -> None:
        """Wait until the server is needed, or a person has logged in."""
        granted = self._tokens.stamp
        while not self._wanted.is_set() and granted == self._tokens.stamp:
            with anyio.move_on_after(LOOK if LOGIN in self.why else float("inf")):
                await self._wanted.wait()
        self._resting, self._wanted = False, anyio.Event()
        self._become("starting", self.why)

    async def _up(self) -> None:
        """Wait until the server is ready or given up; one that was given up is tried again."""
        if self._client is None:
            self._resting = False
            self._wanted.set()
        while self._client is None and not self._resting:
            await self._news.wait()


def _hopeless(why: str) -> bool:
    """Return whether a retry is useless: the program is missing, or a person must act."""
    return LOGIN in why or "no such program" in why


T = TypeVar("T")
DOUBT = "the call may have run in part or in full; check before you call it again"
GONE = f"the connection ended after the call was sent: {DOUBT}"
STATELESS = "2026-07-28"
"""From this version on there are no sessions, and changes have to be asked for."""
CHANGES = frozenset(f"{what}ListChangedNotification" for what in ("Tool", "Prompt", "Resource"))


class Surroundings(msgspec.Struct, frozen=True):
    """The environment that all servers of a session share."""

    processes: LocalProcesses
    folders: tuple[str, ...]
    """The workspace, which servers are told of."""
    logs: Path
    tokens: Path
    environ: Mapping[str, str]
    complain: Callable[[str], None] = lambda text: None
    """Tells the person of a server that cannot be used."""
    cage: Callable[[tuple[str, ...]], Cage | None] = lambda shown: None
    """The sandbox for servers that run in one, which shows these folders; none if there is none."""
    sandboxed: bool = False
    """True if servers run in the sandbox by default."""

    @property
    def lent(self) -> Path:
        """The folder with the cached tool lists of servers."""
        return self.tokens.parent / "lent"


class Running(msgspec.Struct):
    """A tool call in progress."""

    env: Env
    scope: anyio.CancelScope


class Untaken(ToolError):
    """A call that never reached its server, so it may be repeated."""


class Link(Life):
    """The connection to one MCP server."""

    def __init__(self, server: Server, around: Surroundings, *, mode: str = "") -> None:
        """Take a protocol era as `mode`, if it need not be detected."""
        super().__init__(server, Tokens(around.tokens, server), mode=mode)
        self.about = ""
        self.era = ""
        """The version of the protocol that it speaks."""
        self.info: dict[str, str] = {}
        """Its own name and version."""
        self.offers: tuple[Offer, ...] = ()
        self.prompts: tuple[Prompt, ...] = ()
        self.held: tuple[str, ...] = ()
        """The addresses of what it has to read."""
        self._around = around
        self._folders = around.folders
        self._moved = anyio.Event()
        self._changed = anyio.Event()
        self._over = anyio.Event()
        self._untaken = False
        self._calls: list[Running] = []

    async def call(self, tool: str, args: dict[str, Any], env: Env) -> Answered:
        """Run a tool; a call that never reached the server is repeated once."""
        try:
            return await self._called(tool, args, env)
        except Untaken:
            return await self._called(tool, args, env)

    async def _called(self, tool: str, args: dict[str, Any], env: Env) -> Answered:
        """Run a tool; the time limit starts anew with each sign of progress."""
        client = await self._connected()

        async def shown(progress: float, total: float | None, message: str | None) -> None:
            scope.deadline = anyio.current_time() + self.server.limit
            part = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            env.progress(escape_invisible(f"{part} {message or ''}".strip())[:WORDS])

        async def asked() -> Answered:
            result = await client.call_tool(tool, args, progress_callback=shown)
            return msgspec.json.decode(json(result), type=Answered)

        with anyio.move_on_after(self.server.limit) as scope:
            running = Running(env, scope)
            self._calls.append(running)
            try:
                return await self._tried(asked())
            finally:
                self._calls.remove(running)
        raise ToolError(
            f"{self.server.name} did not respond for {self.server.limit:g} s, so the call was "
            f"cancelled: {DOUBT}."
        )

    async def resources(self) -> tuple[tuple[str, str], ...]:
        """List the server's resources."""
        found = await self._in_time((await self._connected()).list_resources())
        return tuple((one.uri, one.title or one.name) for one in found.resources[:MANY])

    async def read(self, uri: str) -> Answered:
        """Read a resource; only the server itself interprets the address."""
        client = await self._connected()

        async def asked() -> Answered:
            found = await client.read_resource(uri)
            held = (msgspec.json.decode(json(one), type=Resource) for one in found.contents)
            return Answered(tuple(Item("resource", resource=one) for one in held))

        return await self._in_time(asked())

    async def prompt(self, name: str, args: Mapping[str, str]) -> str:
        """Return a prompt with its arguments filled in."""
        found = await self._in_time((await self._connected()).get_prompt(name, dict(args)))
        blocks = (msgspec.json.decode(json(one.content), type=Item) for one in found.messages)
        return "\n\n".join(block.text for block in blocks if block.text)

    async def _connected(self) -> Client:
        """Return the client; wait for a lost connection to come back."""
        with anyio.move_on_after(self.server.start if self.on else 0):
            await self._up()
        if self._client is None or not self.on:
            raise ToolError(
                f"The MCP server {self.server.name} is not available: {self.why or self.state}."
            )
        return self._client

    async def _in_time(self, asked: Awaitable[T]) -> T:
        with anyio.move_on_after(self.server.limit):
            return await self._tried(asked)
        raise ToolError(f"{self.server.name} did not answer within {self.server.limit:g} s.")

    async def _tried(self, asked: Awaitable[T]) -> T:
        """Await an answer; turn every failure into a `Refusal` that the model can act on."""
        over = self._over
        try:
            return await asked
        except (ExceptionGroup, *failures()) as error:
            if not (self._ended.is_set() or closed(error)):
                doubt = f"; {DOUBT}" if self._calls and doubtful(error) else ""
                raise ToolError(f"{self.server.name}: {worded(error)}{doubt}") from None
        with anyio.move_on_after(LOOK):
            await over.wait()
        if self._untaken and len(self._calls) == 1:  # of several, it is not known which one
            raise Untaken(f"{self.server.name}: {self.why}")
        lost = self.why if LOGIN in self.why else f"{GONE} ({self.why})"
        raise ToolError(f"{self.server.name}: {lost}.")

    def _complain(self, why: str) -> None:
        self._around.complain(f"MCP server {self.server.name} is not available: {why}")

    async def _attempt(self, mode: str) -> str:
        """Start the server and stay connected until it ends; returns why it did."""
        self._ended, self._changed, self._over = anyio.Event(), anyio.Event(), anyio.Event()
        self._untaken = False
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self.server.start
            try:
                await self._live(mode, scope)
            except (ExceptionGroup, *failures()) as error:
                self._untaken = self._untaken or unreached(error)
                return worded(error)
            finally:
                self._over.set()
        late = f"it did not answer within {self.server.start:g} s"
        return late if scope.cancelled_caught else self._last_words()

    async def _live(self, mode: str, scope: anyio.CancelScope) -> None:
        from mcp import Client

        client = Client(
            await self._transport(),
            mode=mode,
            list_roots_callback=self._roots,
            elicitation_callback=self._elicited,
            message_handler=self._heard,
        )
        async with client, anyio.create_task_group() as group:
            await self._learn(client)
            scope.deadline = float("inf")
            self._client, self._mode = client, mode
            self._become("ready", "")
            group.start_soon(self._relearn, client)
            group.start_soon(self._listen if self.era >= STATELESS else self._follow, client)
            await self._ended.wait()
            group.cancel_scope.cancel()

    async def _learn(self, client: Client) -> None:
        has = client.server_capabilities
        self.about, self.era = client.instructions or "", client.protocol_version
        if known := client.server_info:
            self.info = {"name": known.name, "version": known.version}
        self.offers = await offers(client) if has.tools is not None else ()
        self.prompts = await prompts(client) if has.prompts is not None else ()
        self.held = await held(client) if has.resources is not None else ()
        keep(self.server, self._around.lent, self.offers)

    async def _relearn(self, client: Client) -> None:
        """List tools, prompts and resources again whenever the server says they changed."""
        while True:
            await self._changed.wait()
            await anyio.sleep(PAUSE)
            self._changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.start):
                    await self._learn(client)
            except failures():
                continue

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes where the protocol requires it, and again after a loss."""
        for lost in range(ATTEMPTS):
            with suppress(*failures()):
                await self._overhear(client)
            await anyio.sleep(PAUSE * 2**lost)

    async def _overhear(self, client: Client) -> None:
        """Read change events; list everything once first, as earlier changes are not reported."""
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as events:
            self._changed.set()
            async for _ in events:
                self._changed.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if type(message).__name__ in CHANGES:
            self._changed.set()
        await anyio.lowlevel.checkpoint()

    def move(self, folders: tuple[str, ...]) -> None:
        """Set the workspace folders, and tell the server if they changed."""
        if folders != self._folders:
            self._folders = folders
            self._moved.set()

    async def _follow(self, client: Client) -> None:
        """Notify the server of each folder change, where the protocol has sessions."""
        from mcp_types import RootsListChangedNotification

        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            with suppress(*failures()):
                await client.session.send_notification(RootsListChangedNotification())

    async def _roots(self, context: object) -> Any:
        from mcp_types import ListRootsResult, Root

        return ListRootsResult(
            roots=[Root.model_validate({"uri": Path(f).as_uri()}) for f in self._folders]
        )

    async def _elicited(self, context: object, params: Any) -> Any:
        """Put a server's question to the person for whose call it works."""
        from mcp_types import ElicitResult

        if not self._calls:
            return ElicitResult(action="cancel")
        running = self._calls[-1]
        running.scope.deadline = float("inf")
        try:
            return await answer_elicitation(self.server.name, params, running.env)
        finally:
            running.scope.deadline = anyio.current_time() + self.server.limit

    async def _transport(self) -> AbstractAsyncContextManager[TransportStreams]:
        server, around = self.server, self._around
        if server.kind == "stdio":
            log = Journal(around.logs / f"{server.key}.log", secrets(around.environ.items()))
            folder = server.cwd or around.folders[0]
            command = Command(server.argv, folder, server.env, cage=self._sandbox())
            return streams(lambda: around.processes.talk(command, log=log.add), ended=self._ended)
        from travois.mcp.oauth_provider import Granted

        auth = Granted(server, self._tokens) if self._tokens.path.exists() else None
        headers = await asked(server, around.processes) if server.helper else {}
        return remote(
            server, auth=auth, headers=headers, forgotten=self._forget, ended=self._ended.set
        )

    def _sandbox(self) -> Cage | None:
        """Return the profile of a sandboxed server; raises OSError where none is available."""
        said, around = self.server.sandbox, self._around
        wanted = around.sandboxed if said is None else said
        cage = around.cage(find_folders(*self.server.argv)) if wanted else None
        if wanted and cage is None:
            raise OSError(ENOTSUP, "it must run in the sandbox, which is not available here")
        return cage

    def _forget(self) -> None:
        """Note that the server lost our session, so the last request had no effect."""
        self._ended.set()
        self._untaken = True

    def _last_words(self) -> str:
        if self.server.url:
            return "the connection ended"
        return f"it exited; see `travois mcp logs {self.server.name}`"


def links(servers: tuple[Server, ...], around: Surroundings) -> tuple[Link, ...]:
    """Create a connection for each server; nothing is started yet."""
    return tuple(Link(server, around) for server in servers)
