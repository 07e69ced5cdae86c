"""One server: started beside the session, kept alive, asked, and never able to hold it up."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from travois.engine.ports import Command, Env
from travois.engine.tool import Refusal
from travois.host.mcp.line import Journal, streams
from travois.host.process import LocalProcesses
from travois.policy.glyphs import visible
from travois.policy.secrets import secrets
from travois.tools.foreign import Answered, Item, Offer, Resource
from travois.tools.lenders import Prompt, Server, State

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.client.session import IncomingMessage
    from pydantic import BaseModel

T = TypeVar("T")
ATTEMPTS = 5
"""How often a server is started that does not stay; then it is left alone."""
STEADY = 60.0
"""After how many seconds a server counts as one that stays."""
PAGES = 50
"""How many pages of a list are asked for."""
MANY = 2_000
"""How many tools one server may lend."""
PAUSE = 0.5
WORDS = 300
GONE = "it ended while the call ran, so what it had done is not known; it is started again"
ABSENT = "the SDK is not installed; `pip install 'travois[mcp]'` brings it"


class Surroundings(msgspec.Struct, frozen=True):
    """What all servers of a session have in common."""

    processes: LocalProcesses
    folders: tuple[str, ...]
    """The workspace, which servers are told of."""
    logs: Path
    tokens: Path
    environ: Mapping[str, str]
    version: str = ""


class Running(msgspec.Struct):
    """A call that a server is busy with."""

    env: Env
    scope: anyio.CancelScope


class Link:
    """A server and our connection to it, whichever of the two ends first."""

    def __init__(self, server: Server, around: Surroundings) -> None:
        self.server = server
        self.state: State = "starting"
        self.why = ""
        self.about = ""
        self.offers: tuple[Offer, ...] = ()
        self.prompts: tuple[Prompt, ...] = ()
        self._around = around
        self._client: Client | None = None
        self._settled = anyio.Event()
        self._ended = anyio.Event()
        self._changed = anyio.Event()
        self._calls: list[Running] = []

    async def run(self) -> None:
        """Keep it running until the session ends; one that does not stay is left alone."""
        if why := await anyio.to_thread.run_sync(loaded):
            self._failed(why)
            return
        failures = 0
        while failures < ATTEMPTS:
            began = anyio.current_time()
            why = await self._attempt("legacy" if failures % 2 else "auto")
            lasted = self._client is not None and anyio.current_time() - began > STEADY
            self._client = None
            failures = 1 if lasted else failures + 1
            self._failed(why)
            if _hopeless(why):
                return
            await anyio.sleep(PAUSE * 2**failures)
            self.state = "starting" if failures < ATTEMPTS else "failed"

    async def settled(self) -> None:
        """Wait until it has started, or has failed to."""
        await self._settled.wait()

    async def call(self, tool: str, args: dict[str, Any], env: Env) -> Answered:
        """Run a tool; it may take as long as it shows signs of life."""
        client = self._connected()

        async def shown(progress: float, total: float | None, message: str | None) -> None:
            scope.deadline = anyio.current_time() + self.server.limit
            part = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            env.progress(visible(f"{part} {message or ''}".strip())[:WORDS])

        async def asked() -> Answered:
            result = await client.call_tool(tool, args, progress_callback=shown)
            return msgspec.json.decode(_json(result), type=Answered)

        with anyio.move_on_after(self.server.limit) as scope:
            running = Running(env, scope)
            self._calls.append(running)
            try:
                return await self._tried(asked())
            finally:
                self._calls.remove(running)
        raise Refusal(
            f"{self.server.name} said nothing for {self.server.limit:g} s; it was told to stop."
        )

    async def resources(self) -> tuple[tuple[str, str], ...]:
        """What it has to read."""
        found = await self._in_time(self._connected().list_resources())
        return tuple((one.uri, one.title or one.name) for one in found.resources[:MANY])

    async def read(self, uri: str) -> Answered:
        """Something that it has; only the server itself ever looks at the address."""
        client = self._connected()

        async def asked() -> Answered:
            found = await client.read_resource(uri)
            held = (msgspec.json.decode(_json(one), type=Resource) for one in found.contents)
            return Answered(tuple(Item("resource", resource=one) for one in held))

        return await self._in_time(asked())

    async def prompt(self, name: str, args: Mapping[str, str]) -> str:
        """A text that it has ready."""
        found = await self._in_time(self._connected().get_prompt(name, dict(args)))
        blocks = (msgspec.json.decode(_json(one.content), type=Item) for one in found.messages)
        return "\n\n".join(block.text for block in blocks if block.text)

    def _connected(self) -> Client:
        if self._client is None:
            raise Refusal(
                f"The server {self.server.name} cannot be used: {self.why or self.state}."
            )
        return self._client

    async def _in_time(self, asked: Awaitable[T]) -> T:
        with anyio.move_on_after(self.server.limit):
            return await self._tried(asked)
        raise Refusal(f"{self.server.name} did not answer within {self.server.limit:g} s.")

    async def _tried(self, asked: Awaitable[T]) -> T:
        """What it answers; whatever goes wrong with that is for the model to know."""
        try:
            return await asked
        except (ExceptionGroup, *failures()) as error:
            if not self._ended.is_set():
                raise Refusal(f"{self.server.name}: {worded(error)}") from None
            raise Refusal(f"{self.server.name}: {GONE}.") from None

    def _failed(self, why: str) -> None:
        self.state, self.why = "failed", why
        self._settled.set()

    async def _attempt(self, mode: str) -> str:
        """Start it and stay with it until it ends; says why it did."""
        self._ended, self._changed = anyio.Event(), anyio.Event()
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self.server.start
            try:
                await self._live(mode, scope)
            except (ExceptionGroup, *failures()) as error:
                return worded(error)
        late = f"it did not answer within {self.server.start:g} s"
        return late if scope.cancelled_caught else self._last_words()

    async def _live(self, mode: str, scope: anyio.CancelScope) -> None:
        from mcp import Client

        client = Client(
            self._transport(),
            mode=mode,
            list_roots_callback=self._roots,
            elicitation_callback=self._elicited,
            message_handler=self._heard,
        )
        async with client, anyio.create_task_group() as group:
            await self._learn(client)
            scope.deadline = float("inf")
            self._client, self.state, self.why = client, "ready", ""
            self._settled.set()
            group.start_soon(self._relearn, client)
            if client.protocol_version >= "2026-07-28":
                group.start_soon(self._listen, client)
            await self._ended.wait()
            group.cancel_scope.cancel()

    async def _learn(self, client: Client) -> None:
        has = client.server_capabilities
        self.about = client.instructions or ""
        self.offers = await _offers(client) if has.tools is not None else ()
        if has.prompts is not None:
            listed = (await client.list_prompts()).prompts[:MANY]
            self.prompts = tuple(
                Prompt(one.name, one.description or "", tuple(a.name for a in one.arguments or ()))
                for one in listed
            )

    async def _relearn(self, client: Client) -> None:
        """Ask again for what it lends when it says that this changed, however often it does."""
        while True:
            await self._changed.wait()
            await anyio.sleep(PAUSE)
            self._changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.start):
                    self.offers = await _offers(client)
            except failures():
                continue

    async def _listen(self, client: Client) -> None:
        """Hear of changes where a server has to be asked for that."""
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()
        except failures():
            return

    async def _heard(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed.set()
        await anyio.lowlevel.checkpoint()

    async def _roots(self, context: object) -> Any:
        from mcp_types import ListRootsResult, Root

        return ListRootsResult(
            roots=[Root.model_validate({"uri": Path(f).as_uri()}) for f in self._around.folders]
        )

    async def _elicited(self, context: object, params: Any) -> Any:
        """Put a question of the server to the person for whose sake it works."""
        from mcp_types import ElicitResult

        from travois.host.mcp.asking import asked

        if not self._calls:
            return ElicitResult(action="cancel")
        running = self._calls[-1]
        running.scope.deadline = float("inf")
        try:
            return await asked(self.server.name, params, running.env)
        finally:
            running.scope.deadline = anyio.current_time() + self.server.limit

    def _transport(self) -> AbstractAsyncContextManager[TransportStreams]:
        server, around = self.server, self._around
        if server.kind == "stdio":
            log = Journal(around.logs / f"{server.key}.log", secrets(around.environ.items()))
            command = Command(server.argv, server.cwd or around.folders[0], server.env)
            return streams(lambda: around.processes.talk(command, log=log.add), ended=self._ended)
        from travois.host.mcp.remote import remote

        return remote(server, around.tokens)

    def _last_words(self) -> str:
        return f"it ended; `travois mcp logs {self.server.name}` shows what it said"


async def _offers(client: Client) -> tuple[Offer, ...]:
    """All tools, page by page, as the server tells of them."""
    found: list[Offer] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        for tool in page.tools:
            schema = msgspec.Raw(msgspec.json.encode(tool.input_schema))
            found.append(Offer(tool.name, tool.description or "", schema))
        cursor = page.next_cursor
        if cursor is None or len(found) > MANY:
            break
    return tuple(found[:MANY])


def _json(value: BaseModel) -> str:
    return value.model_dump_json(by_alias=True, exclude_none=True)


def loaded() -> str:
    """Bring the SDK in, beside all else; says why that cannot be."""
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return ABSENT
    logger = logging.getLogger("mcp")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return ""


def failures() -> tuple[type[Exception], ...]:
    """Whatever a server, or the way to it, can make the SDK raise."""
    import httpx2
    from mcp.client.auth import OAuthFlowError
    from mcp.shared.exceptions import MCPError

    ways = (OSError, RuntimeError, ValueError, RecursionError, TimeoutError)
    streams = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return (MCPError, OAuthFlowError, httpx2.HTTPError, *ways, *streams)


def worded(error: BaseException) -> str:
    """The first thing that went wrong, on one line."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return worded(group.exceptions[0])
    text = str(error) or type(error).__name__
    return visible(" ".join(text.split()))[:WORDS]


def _hopeless(why: str) -> bool:
    """Whether to try again cannot help: nothing is there to be started, or a person must act."""
    return "travois mcp login" in why or "no such program" in why


def links(servers: tuple[Server, ...], around: Surroundings) -> tuple[Link, ...]:
    """A link for each server; nothing is started yet."""
    return tuple(Link(server, around) for server in servers)
