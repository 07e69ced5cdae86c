"""A session controlled by a client over standard input and output (Claude Code's SDK protocol).

Requests are handled at any time, even during a turn; messages wait for their turn. The session
opens after the client's `initialize`, so that its tools are in the head of the first request.
"""

from __future__ import annotations

import math
import os
import select
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Literal

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from travois.commands.flags import options_from_args
from travois.compat.claude_json import Json, JsonObject
from travois.compose import commands
from travois.compose.live_session import LiveSession, typed_text
from travois.compose.mcp import list_server_statuses
from travois.compose.options import Options, new_session_options
from travois.core.content import TextOrMedia
from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.engine.background_jobs import JOB_WAIT_SECONDS
from travois.headless import prompt_input
from travois.headless.control import mcp, requests, transcripts
from travois.headless.control.callbacks import (
    PERMISSION_REQUEST,
    HostUser,
    PermissionPromptTool,
    build_host_listeners,
    describe_unknown_events,
)
from travois.headless.control.messages import (
    ControlRequest,
    ControlResponse,
    HostConnection,
    InputLine,
)
from travois.headless.run import HeadlessRun, print_json_line

MAX_EXIT_SECONDS = 3.0
"""Seconds that clients wait at least for the process to exit."""
READER_POLL_SECONDS = 0.5
"""Seconds between two checks whether standard output still has a reader."""
DEFAULT_GREETING = ControlRequest("initialize")
CLEAR_COMMAND = "/clear"


class ControlSession:
    """A run controlled by a client."""

    def __init__(self, args: Namespace, run: HeadlessRun) -> None:
        self.run = run
        self.connection = HostConnection(print_json_line)
        self.options = Options()
        self.servers: dict[str, mcp.HostMcpServer] = {}
        self.added: dict[str, anyio.CancelScope] = {}
        self.said: dict[str, int] = {}
        """Log entries of user messages, by the client's message ids."""
        self.model = args.model
        self._args = args
        self._session: LiveSession | None = None
        self._wanted: list[Callable[[], Awaitable[None]]] = []
        """Changes to apply as soon as no turn is running."""
        self._changing = anyio.Lock()
        """Held while changes are applied: a turn waits for it."""
        self._greeted: tuple[str, ControlRequest] | None = None
        self._begun = anyio.Event()
        self._garbled = False
        """True if a line could not be parsed, which sets the exit code."""
        self._requests = anyio.create_memory_object_stream[tuple[str, ControlRequest]](math.inf)
        self._prompts = anyio.create_memory_object_stream[InputLine](math.inf)
        if args.prompt:
            self._route(
                InputLine("user", msgspec.Raw(msgspec.json.encode({"content": args.prompt})))
            )
        self._scopes: dict[str, anyio.CancelScope] = {}

    @property
    def _greeting(self) -> ControlRequest:
        """The client's `initialize`, or what counts without one."""
        return self._greeted[1] if self._greeted else DEFAULT_GREETING

    @property
    def session(self) -> LiveSession:
        """The session, once it is open."""
        assert self._session is not None
        return self._session

    async def run_until_closed(self) -> None:
        """Run until the client closes standard input."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._read_lines)
            group.start_soon(self.run.watch_signals, group.cancel_scope)
            await self._begun.wait()
            options = _options_with_greeting(options_from_args(self._args), self._greeting)
            while await self._run_conversation(options):
                options = self._options_after_clear()
            group.cancel_scope.cancel()
        self.run.code = self.run.code or (2 if self._garbled else 0)

    async def _run_conversation(self, options: Options) -> bool:
        """Run one session; return whether the client cleared it, so that another follows."""
        old, self.options, cleared = self._session, options, False
        async with anyio.create_task_group() as group:
            async with AsyncExitStack() as stack:
                self._session = await self._enter_session(stack)
                self.run.follow_subagents(self.session, group)
                self._open_transcripts(stack)
                if old is not None:
                    self.run.report_cleared(old, self.session)
                cleared = await self._serve()
            group.cancel_scope.cancel()
        for notice in self.session.parting:
            write_stderr(f"travois: {notice}\n")
        return cleared

    def _options_after_clear(self) -> Options:
        """Return the options of the session that follows a cleared one."""
        runtime = self.session.runtime
        mode = runtime.agent.permissions.guard.mode
        self.said, self.added = {}, {}
        return replace(new_session_options(self.options), model=runtime.model.name, mode=mode)

    def _open_transcripts(self, stack: AsyncExitStack) -> None:
        """Write the transcripts that the client expects, and send them to its session store."""
        files, frames = self._expects_transcripts(), bool(self._args.session_mirror)
        if not files and not frames:
            return
        written = transcripts.SessionTranscripts(
            self.session, stack, os.environ, files=files, frames=frames
        )

        def write_new_entries() -> None:
            for frame in written.take_frames():
                print_json_line(frame)

        self.run.follow_with = write_new_entries
        stack.callback(write_new_entries)

    def _expects_transcripts(self) -> bool:
        """Return whether the client is one that looks for transcripts in files."""
        return self._greeted is not None and self.options.persist

    async def _enter_session(self, stack: AsyncExitStack) -> LiveSession:
        try:
            return await stack.enter_async_context(await self._create_driven_session())
        except UserError as fault:
            self.run.report_unopened_session(self.options.resume, str(fault))
            raise

    async def _create_driven_session(self) -> LiveSession:
        """Create the session that the flags and `initialize` ask for."""
        options, greeting = self.options, self._greeting
        wanted = (*mcp.find_host_servers(options.mcp), *(greeting.sdk_mcp_servers or ()))
        self.servers = await mcp.connect_host_servers(self.connection, wanted)
        schema = msgspec.json.encode(greeting.json_schema).decode() if greeting.json_schema else ""
        self.run.apply_greeting(schema=schema, forward=bool(greeting.forward_subagent_text))
        self.run.brought = lambda: {"mcp_servers": self._mcp_servers_json()}
        shape, hooks = self.run.shape, greeting.hooks or {}
        own = (shape.tool,) if shape else ()
        ears = shape.listeners if shape else ()
        heard = (*ears, *build_host_listeners(self.connection, hooks))
        for notice in describe_unknown_events(hooks):
            write_stderr(f"travois: {notice}\n")
        tools = (*own, *mcp.list_host_tools(self.servers.values()))
        return LiveSession(options, person=self._create_user(), tools=tools, listeners=heard)

    def _create_user(self) -> HostUser | None:
        """Return who answers questions: the client, an MCP tool, or nobody."""
        match self._args.permission_prompt_tool:
            case "stdio" if self._args.permission_prompts != "none":
                return HostUser(partial(self.connection.request, PERMISSION_REQUEST))
            case "stdio" | "":
                return None
            case tool:
                return HostUser(PermissionPromptTool(tool, lambda: self.session.runtime.agent).ask)

    def _mcp_servers_json(self) -> list[Json]:
        """Return the status of configured and SDK servers."""
        own = [server.brief_status() for server in self.servers.values()]
        return [*list_server_statuses(self.session.runtime.mcp_servers), *own]

    async def _serve(self) -> bool:
        """Serve the client until it is gone or clears the conversation; return whether it did."""
        for notice in self.session.runtime.notices:
            write_stderr(f"travois: {notice}\n")
        receiving = anyio.CancelScope()
        async with anyio.create_task_group() as answering:
            answering.start_soon(self._answer_all, answering, receiving)
            while (line := await self._next_message()) is not None:
                if await self._handle_message(line) == "cleared":
                    receiving.cancel()  # what was asked already is still answered
                    self.session.leaving = "clear"
                    return True
            await self.run.finish_memory(self.session, patience=MAX_EXIT_SECONDS)
            answering.cancel_scope.cancel()
        return False

    async def _read_lines(self) -> None:
        """Route each input line; at the end of input, fail all open questions."""
        async with aclosing(prompt_input.read_json_lines()) as lines:
            async for line in lines:
                if isinstance(line, prompt_input.UnreadableLine):
                    self._garbled = True
                    print_json_line(_control_error_response(line.request_id, line.why))
                    write_stderr(f"travois: {line.why}\n")
                else:
                    self._route(line)
        self.connection.close()
        self._prompts[0].close()
        self._begun.set()
        await self._watch_reader()

    def _route(self, line: InputLine) -> None:
        match line.type:
            case "user":
                self._prompts[0].send_nowait(line)
                self._begun.set()
            case "control_response":
                self._resolve_response(line)
            case "control_request":
                self._queue_request(line)
            case "control_cancel_request":
                if scope := self._scopes.get(line.request_id):
                    scope.cancel()
            case _:
                pass

    def _resolve_response(self, line: InputLine) -> None:
        try:
            self.connection.resolve(msgspec.json.decode(line.response, type=ControlResponse))
        except msgspec.DecodeError as error:
            print_json_line(_control_error_response(line.request_id, f"invalid response: {error}"))

    def _queue_request(self, line: InputLine) -> None:
        try:
            request = msgspec.json.decode(line.request, type=ControlRequest)
        except msgspec.DecodeError as error:
            print_json_line(_control_error_response(line.request_id, f"invalid request: {error}"))
            return
        if request.subtype == "initialize" and not self._begun.is_set():
            self._greeted = (line.request_id, request)
            self._begun.set()
        self._requests[0].send_nowait((line.request_id, request))

    async def _watch_reader(self) -> None:
        """Raise once nobody reads standard output any more."""
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLERR)
        while not poll.poll(0):  # noqa: ASYNC110 - nothing tells that a reader has gone
            await anyio.sleep(READER_POLL_SECONDS)
        raise BrokenPipeError

    async def _answer_all(self, group: TaskGroup, receiving: anyio.CancelScope) -> None:
        with receiving:
            async for id, request in self._requests[1]:
                group.start_soon(self._answer_one, id, request)

    async def _answer_one(self, id: str, request: ControlRequest) -> None:
        with anyio.CancelScope() as self._scopes[id]:
            try:
                told = await requests.answer_request(self, request)
            except (UserError, OSError, msgspec.MsgspecError) as error:
                print_json_line(_control_error_response(id, str(error)))
            else:
                done: JsonObject = {"subtype": "success", "request_id": id, "response": told}
                print_json_line({"type": "control_response", "response": done})
        del self._scopes[id]

    async def switch_model(self, model: str) -> None:
        """Switch the model as soon as no turn is running."""
        await self._change_between_turns(lambda: self.session.switch_with_summary(model))

    async def set_effort(self, effort: str) -> None:
        """Set the effort as soon as no turn is running."""

        async def apply_effort() -> None:
            self.session.exert(effort)

        await self._change_between_turns(apply_effort)

    async def _change_between_turns(self, change: Callable[[], Awaitable[None]]) -> None:
        self._wanted.append(change)
        if not self.session.running:
            await self._apply_changes()

    async def _apply_changes(self) -> None:
        async with self._changing:
            while self._wanted:
                await self._wanted.pop(0)()

    async def _next_message(self) -> InputLine | None:
        """Return the next message, an empty one for news of an agent, or None at the end."""
        try:
            return self._prompts[1].receive_nowait()
        except anyio.EndOfStream:
            return (
                prompt_input.EMPTY_LINE
                if await self.session.news(patience=JOB_WAIT_SECONDS)
                else None
            )
        except anyio.WouldBlock:
            pass
        agents = self.session.runtime.agent.session.running
        self.run.report_state("running" if agents else "idle")
        found: list[InputLine] = []
        async with anyio.create_task_group() as group:

            async def wake_on_news() -> None:
                if await self.session.news():
                    found.append(prompt_input.EMPTY_LINE)
                    group.cancel_scope.cancel()

            if agents or self.session.runtime.agent.session.jobs:
                group.start_soon(wake_on_news)
            try:
                found.insert(0, await self._prompts[1].receive())
            except anyio.EndOfStream:
                pass
            else:
                group.cancel_scope.cancel()
        return found[0] if found else await self._next_message()

    async def _handle_message(self, line: InputLine) -> Literal["handled", "cleared"]:
        """Run a turn with a message; return what to do with `/clear`."""
        self.run.report_state("running")
        try:
            await self._apply_changes()
            prompt = prompt_input.parse_message_content(
                line, self.session.runtime.agent.world.blobs
            )
            if not line.client_composed:
                if self._is_clear_command(prompt):
                    return "cleared"
                prompt = await commands.expand_typed_command(
                    self.session, self.run.commands, prompt
                )
        except UserError as fault:
            self.run.report_unstarted_turn(self.session, str(fault))
            return "handled"
        given, origin = line.uuid or "", line.origin
        if await self.run.run_turn(self.session, prompt, given=given, origin=origin) and line.uuid:
            self.said[line.uuid] = self.session.runtime.agent.session.prompted
        return "handled"

    def _is_clear_command(self, prompt: tuple[TextOrMedia, ...]) -> bool:
        own = CLEAR_COMMAND.removeprefix("/") in self.run.commands
        return typed_text(prompt).strip() == CLEAR_COMMAND and not own


def _options_with_greeting(options: Options, greeting: ControlRequest) -> Options:
    """Return the options with those of the `initialize` request."""
    system = greeting.system_prompt or ""
    agents = msgspec.json.encode(greeting.agents).decode() if greeting.agents else ""
    return replace(
        options,
        driven=True,
        agents=agents or options.agents,
        system=(system if isinstance(system, str) else "\n\n".join(system)) or options.system,
        append_system=greeting.append_system_prompt or options.append_system,
        skills=greeting.skills,
        name=greeting.title or options.name,
    )


def _control_error_response(id: str, why: str) -> JsonObject:
    answer: JsonObject = {"subtype": "error", "request_id": id, "error": why}
    return {"type": "control_response", "response": answer}
