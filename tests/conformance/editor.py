"""The official client of the Agent Client Protocol, with our program behind it.

Every line that the program writes is held against the models of the protocol's own package: it
must fit, and nothing in it may be unknown to them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
from acp import schema
from acp.connection import StreamDirection, StreamEvent
from pydantic import TypeAdapter

import travois_lab as lab
from tests.e2e.program import travois_command

ANSWERS: dict[str, Any] = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/close": schema.CloseSessionResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/prompt": schema.PromptResponse,
}
ASKED: dict[str, Any] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "elicitation/create": schema.CreateFormSessionElicitationRequest,
}
ALL = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True),
    elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities()),
)


class Judge:
    """Reads every line of both sides."""

    def __init__(self) -> None:
        self._methods: dict[Any, str] = {}
        self.lines = 0
        self.errors: list[str] = []

    def __call__(self, event: StreamEvent) -> None:
        message = event.message
        if event.direction is StreamDirection.OUTGOING:
            if "id" in message and "method" in message:
                self._methods[message["id"]] = message["method"]
            return
        self.lines += 1
        try:
            self._fits(message)
        except (ValueError, AssertionError, KeyError) as error:
            self.errors.append(f"{message}: {error!r}")

    def _fits(self, message: dict[str, Any]) -> None:
        assert message.pop("jsonrpc") == "2.0"
        if "method" in message:
            fits(ASKED[message["method"]], message["params"])
        elif "result" in message:
            fits(ANSWERS[self._methods[message["id"]]], message["result"])
        else:
            fits(schema.Error, message["error"])


def fits(model: Any, raw: Any) -> None:
    """Whether a value is of this model, to the last member."""
    adapter = TypeAdapter(model)
    whole = adapter.dump_python(
        adapter.validate_python(raw), mode="json", by_alias=True, exclude_unset=True
    )
    assert whole == raw, f"the model says {whole}"


class Window:
    """What an editor shows and answers."""

    def __init__(self, *, answers: tuple[str, ...] = (), buffers: dict[str, str] | None = None):
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[Any] = []
        self.filled: dict[str, Any] = {}
        self.forms: list[Any] = []
        self.buffers = buffers or {}
        self.wrote: list[str] = []
        self._answers = list(answers)
        self.hold: anyio.Event | None = None

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **more: Any
    ) -> Any:
        self.asked.append((tool_call, options))
        if self.hold is not None:
            self.hold.set()
            await anyio.sleep(30)
        wanted = self._answers.pop(0) if self._answers else "reject_once"
        found = [one for one in options if wanted in (one.kind, one.name)]
        chosen = schema.AllowedOutcome(option_id=found[0].option_id, outcome="selected")
        return schema.RequestPermissionResponse(outcome=chosen)

    async def read_text_file(self, session_id: str, path: str, **more: Any) -> Any:
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **more: Any) -> Any:
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        self.wrote.append(path)
        self.buffers[path] = content
        Path(path).write_bytes(content.encode())
        return schema.WriteTextFileResponse()

    async def create_elicitation(self, message: str, mode: Any, **more: Any) -> Any:
        self.forms.append((message, mode))
        return schema.AcceptElicitationResponse(action="accept", content=self.filled)

    # --- what was shown ---------------------------------------------------------------------------

    def of(self, kind: str, session: str = "") -> list[Any]:
        return [
            update
            for id, update in self.updates
            if update.session_update == kind and session in ("", id)
        ]

    def said(self, kind: str = "agent_message_chunk", session: str = "") -> str:
        return "".join(one.content.text for one in self.of(kind, session))


class House:
    """A folder, a home, and a lab that answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.home = folder / "home"
        self.api: Any = None
        self.judge = Judge()

    @property
    def environment(self) -> dict[str, str]:
        keys = (
            {"ANTHROPIC_BASE_URL": self.api.url, "ANTHROPIC_API_KEY": "sk-lab"} if self.api else {}
        )
        return {"TRAVOIS_HOME": str(self.home), "HOME": str(self.home.parent), **keys}

    @property
    def command(self) -> tuple[str, ...]:
        return (*travois_command(), "acp", "--model", "anthropic/claude-opus-5-5")

    @asynccontextmanager
    async def editor(
        self, window: Window, able: schema.ClientCapabilities | None = None
    ) -> AsyncGenerator[Any]:
        """The client's side of the connection, greeted."""
        async with acp.spawn_agent_process(
            window,  # type: ignore[arg-type]
            *self.command,
            env=self.environment,
            cwd=self.folder,
            use_unstable_protocol=True,
            observers=[self.judge],
            transport_kwargs={"limit": 1 << 24},
        ) as (client, process):
            client.process = process
            client.hello = await client.initialize(
                protocol_version=acp.PROTOCOL_VERSION, client_capabilities=able
            )
            yield client

    async def begin(self, client: Any, **more: Any) -> str:
        """A session in our folder; gives its id."""
        opened = await client.new_session(cwd=str(self.folder), mcp_servers=[], **more)
        return opened.session_id

    def run(self, script: Any, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Play a scene; every line must have been right, and every request to the model."""
        with lab.server(script) as self.api:
            anyio.run(main)
            self.api.no_invalid()
            self.api.no_orphans()
        assert self.judge.lines
        assert self.judge.errors == []


def text(words: str) -> Any:
    return acp.text_block(words)
