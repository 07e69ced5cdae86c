"""llama.cpp on this machine: started on first use, stopped with the session."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.core.models import ModelCard, Price
from travois.files import installation
from travois.local_model import gguf
from travois.local_model.serve import ServeOrder, ServerReady
from travois.ports.world import Command
from travois.process.job import StdioConnection
from travois.process.local_processes import LocalProcesses
from travois.providers.catalog import ModelEndpoint
from travois.providers.client import HttpModel
from travois.providers.http.client import Transport
from travois.providers.replies import ApiError, Reply, StreamDelta
from travois.providers.request import Request

SERVER_MODULE = "travois.local_model.serve"
LOG_LINES = 200
"""The number of log lines kept, to say why it failed."""
FAILURE_PATTERNS = (
    re.compile(r"error loading model: (.+)"),
    re.compile(r"(GGML_ASSERT\(.+\) failed)"),
    re.compile(r"\bE \S+ *(?:\S+:)? *(.+)"),
    re.compile(r"(.*Error.*)"),
)
"""The patterns of llama.cpp's error messages, the plainest first."""
QUIET_ENV = {"GGML_NO_BACKTRACE": "1"}
"""Else it starts a debugger when it aborts."""


def fit_model_to_file(model: ModelCard) -> ModelCard:
    """Return the local model with its weights file's window; raises `UserError` if invalid."""
    path = Path(os.path.abspath(os.path.expanduser(model.id)))
    about = gguf.read_gguf_header(path)
    window = gguf.usable_window(about, asked=model.window)
    output = min(model.output, max(1, window // 4))
    return replace(model, id=str(path), window=window, output=output, images=False, price=Price())


def llamacpp_load_problem() -> str:
    """Return why llama.cpp cannot be loaded, by loading it in another process; empty if it can."""
    if why := llamacpp_missing_reason():
        return why
    argv = [sys.executable, "-c", "import xllamacpp"]
    done = run(argv, check=False, capture_output=True)
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f"llama.cpp cannot be loaded: {said}" if done.returncode else ""


def llamacpp_missing_reason() -> str:
    """Return why llama.cpp cannot be run; empty if it can."""
    if find_spec("xllamacpp") is None:
        return f"xllamacpp is not installed: {installation.extra_command('local')}"
    return ""


class LlamaServer:
    """A llama.cpp server process for one model file, restarted on demand."""

    def __init__(self, path: Path, *, window: int, threads: int = 1) -> None:
        self._order = ServeOrder(str(path), window, os.urandom(16).hex(), threads)
        self._processes = LocalProcesses()
        self._log = deque[bytes](maxlen=LOG_LINES)
        self._starting = anyio.Lock()
        self._talk: StdioConnection | None = None
        self._where: ModelEndpoint | None = None

    async def start_endpoint(self) -> ModelEndpoint:
        """Return the server's endpoint, starting it if it does not run; raises `ApiError`."""
        async with self._starting:
            if self._talk is not None and self._talk.status is not None:
                await self._stop_server()
            if self._where is None:
                key = ("authorization", f"Bearer {self._order.key}")
                self._where = ModelEndpoint(await self._start_server(), (key,), "none")
            return self._where

    async def aclose(self) -> None:
        """Stop the server."""
        await self._stop_server()
        await self._processes.aclose()

    async def _start_server(self) -> str:
        if why := llamacpp_missing_reason():
            raise self._startup_problem(why)
        argv = (sys.executable, "-P", "-m", SERVER_MODULE)
        self._log.clear()
        command = Command(argv, cwd=os.path.dirname(self._order.path), env=QUIET_ENV)
        self._talk, said = self._processes.connect_stdio(command, log=self._log.append), b""
        try:
            await self._talk.send(msgspec.json.encode(self._order) + b"\n")
            while not said.endswith(b"\n") and (more := await self._talk.receive()):
                said += more
            url = msgspec.json.decode(said, type=ServerReady).url
        except (OSError, msgspec.DecodeError):
            await self._stop_server()
            raise self._startup_problem(self._failure_reason()) from None
        except BaseException:
            await self._stop_server()
            raise
        return f"{url}/v1"

    async def _stop_server(self) -> None:
        talk, self._talk, self._where = self._talk, None, None
        if talk is not None:
            await talk.aclose()

    def _failure_reason(self) -> str:
        log = b"".join(self._log).decode(errors="replace")
        hits = (hit for reason in FAILURE_PATTERNS if (hit := reason.search(log)))
        return next((hit[1].strip() for hit in hits), "llama.cpp exited without an error message")

    def _startup_problem(self, why: str) -> ApiError:
        what = f"Cannot run {self._order.path}"
        fix = "Choose another file with --model local/PATH, or another model."
        return ApiError("missing", str(UserError(what, why=why, fix=fix)), retry=False)


class LlamaModel:
    """A model that llama.cpp runs on this machine."""

    def __init__(self, card: ModelCard, engine: LlamaServer, travel: Transport) -> None:
        self._card, self._engine, self._travel = card, engine, travel

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send the request; the last thing yielded is the reply. Raises `ApiError`."""
        served = HttpModel(self._card, await self._engine.start_endpoint(), self._travel)
        async with served.stream(request) as events:
            yield events
