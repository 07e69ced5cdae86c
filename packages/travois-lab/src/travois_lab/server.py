"""The lab as a server: in a thread beside a test, or as a program of its own."""

from __future__ import annotations

import errno
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.abc
import msgspec
from anyio.from_thread import start_blocking_portal

from travois.core.errors import UserError
from travois_lab.clock import Clock
from travois_lab.exchange import Exchange
from travois_lab.faults import parse_rules
from travois_lab.http import Answer, serve_connection
from travois_lab.ledger import Ledger
from travois_lab.objects import Json
from travois_lab.recording import Replay
from travois_lab.report import ledger_json, render, summary
from travois_lab.routes import answer
from travois_lab.visitors import guard
from travois_lab.world import Options, World

PATIENCE = 10.0


class Api:
    """A running lab, as a test sees it."""

    def __init__(self, world: World, port: int) -> None:
        self.world = world
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def ledger(self) -> Ledger:
        """Every request that came."""
        return self.world.ledger

    @property
    def clock(self) -> Clock:
        """The lab's time; move it with `advance`."""
        return self.world.clock

    @property
    def bodies(self) -> list[Json]:
        """The bodies of all requests, decoded."""
        return [exchange.json for exchange in self.ledger]

    def requests(self, count: int, *, patience: float = PATIENCE) -> list[Exchange]:
        """The exchanges, once at least this many requests have come."""
        until = time.monotonic() + patience
        while len(self.ledger) < count:
            assert time.monotonic() < until, f"{len(self.ledger)} of {count} requests came"
            time.sleep(0.005)
        return list(self.ledger)

    def timeline(self) -> str:
        """The report of all requests so far, as a person reads it."""
        return "\n".join(render(ledger_json(self.ledger), summary(self.ledger)))

    def fault(self, do: str | Json, **match: Any) -> None:
        """Put one more fault rule in force: `api.fault("disconnect", n=2)`."""
        self.world.faults.rules += parse_rules([{"match": match, "do": do}])

    def append_only(self, *, allowed: int = 0) -> None:
        """Fail if a request changed what an earlier one had already said."""
        self.ledger.append_only(allowed=allowed)

    def cache_hit_ratio(self) -> float:
        """The share of all prompt tokens that were read from cache."""
        return self.ledger.cache_hit_ratio()

    def cost(self) -> float:
        """What all requests cost, in US dollars."""
        return self.ledger.cost()

    def no_orphans(self) -> None:
        """Fail if calls and results did not pair in some request."""
        self.ledger.no_orphans()

    def no_invalid(self) -> None:
        """Fail if the validator found anything wrong with any request."""
        self.ledger.no_invalid()


def options(**given: Any) -> Options:
    """Options by name; an unknown one is named in the error."""
    try:
        return msgspec.convert(given, Options)
    except msgspec.ValidationError as error:
        known = ", ".join(Options.__struct_fields__)
        raise UserError("lab options", why=str(error), fix=f"known: {known}") from None


@asynccontextmanager
async def serving(
    world: World, *, port: int = 0, reply: Answer | None = None
) -> AsyncGenerator[Api]:
    """Serve this world on loopback for as long as the block runs; `reply` answers in its place."""
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise _cannot_listen(port, error) from None
    async with listener, anyio.create_task_group() as group:
        bound = int(listener.extra(anyio.abc.SocketAttribute.local_port))  # noqa: S610
        replying = guard(reply or partial(answer, world), port=bound)
        connect = partial(serve_connection, answer=replying)
        group.start_soon(listener.serve, connect)
        try:
            yield Api(world, bound)
        finally:
            group.cancel_scope.cancel()


def _cannot_listen(port: int, error: OSError) -> UserError:
    codes = {
        error.errno,
        *(getattr(e, "errno", 0) for e in getattr(error.__cause__, "exceptions", ())),
    }
    if errno.EADDRINUSE in codes:
        return UserError(
            f"port {port} is in use", fix="choose another with --port, or 0 for any free one"
        )
    return UserError(f"cannot listen on port {port}", why=error.strerror or str(error))


@contextmanager
def replaying(replay: Replay, *, port: int = 0) -> Generator[Api]:
    """A recording as a provider beside a test."""
    with _running(replay.world, port, replay.answer) as api:
        yield api


@contextmanager
def server(model: object = None, *, port: int = 0, **given: Any) -> Generator[Api]:
    """A lab beside a test: `with server(script) as api:`; it ends with the block."""
    with _running(World(model, options(**given)), port, None) as api:
        yield api


@contextmanager
def _running(world: World, port: int, reply: Answer | None) -> Generator[Api]:
    with start_blocking_portal("asyncio") as portal:
        running = portal.wrap_async_context_manager(serving(world, port=port, reply=reply))
        api = running.__enter__()
        try:
            yield api
        finally:
            # A test's own failure stays its own: the server's task group would wrap it.
            running.__exit__(None, None, None)


async def serve(
    world: World, *, port: int, started: Any = None, reply: Answer | None = None
) -> None:
    """Serve until cancelled; `started` is called with the running lab."""
    async with serving(world, port=port, reply=reply) as api:
        if started is not None:
            started(api)
        await anyio.sleep_forever()
