"""A session that is open in the editor.

It lives in one task from opening to closing; prompts queue up and run one after the other. A second
task sends updates, and a prompt is answered once all its updates are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from travois.acp.editor import (
    EMPTY_PROMPT,
    EditorFiles,
    EditorUser,
    PromptParts,
    parse_prompt_blocks,
)
from travois.acp.options import SessionChoices
from travois.acp.protocol import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    AcpConnection,
    AcpError,
    ClientCapabilities,
    PromptBlock,
)
from travois.acp.updates import AcpUpdates, SubagentSteps, answer_update, fence_text, notice_update
from travois.compat.claude_json import Json, JsonObject
from travois.compose import commands, mcp
from travois.compose.live_session import LiveSession, is_turn_end, typed_text
from travois.compose.options import Options
from travois.compose.session_picker import SessionPicker
from travois.context.keep_warm import keep_cache_warm
from travois.core.content import TextOrMedia
from travois.core.errors import UserError
from travois.core.facts import Asked, Assistant, Ended, EndReason, Entry, Failed, User
from travois.engine.agent import Agent
from travois.hooks.fire import notify_hooks
from travois.ports.world import AgentProgress, Event
from travois.sessions.catalog import SessionSummary
from travois.tui import slash
from travois.tui.agent_progress import enable_activity_names
from travois.tui.line_mode import PERMISSION_NOTICE
from travois.tui.slash import CommandPrompt, SlashCommand, find_slash_command, run_slash_line
from travois.tui.slash_registry import SLASH_COMMANDS

# Slash commands in the editor's prompt.


EDITOR_COMMANDS = (
    *("compact", "context", "notes", "cost", "todos", "memory", "agents", "tasks", "mcp", "skills"),
    *("hooks", "config", "rename", "inspect", "output"),
)
"""Commands that neither duplicate the editor's own menus nor disturb its display."""
EDITOR_COLUMNS = 100


class EditorCommandHost(slash.ScreenlessHost):
    """The host of slash commands in the editor's prompt."""

    def __init__(self, session: LiveSession, options: Options) -> None:
        self.session = session
        self.options = options
        self.columns = EDITOR_COLUMNS
        ours = {name: SLASH_COMMANDS[name] for name in EDITOR_COMMANDS}
        known, self.notices = commands.compose_commands(options, taken=ours)
        self.commands: Mapping[str, SlashCommand] = {**ours, **slash.to_slash_commands(known)}

    async def run_or_pass(self, content: tuple[TextOrMedia, ...]) -> str | tuple[TextOrMedia, ...]:
        """Run a command and return its answer, or return the content for the model."""
        line = typed_text(content)
        if find_slash_command(self, line) is None and not line.startswith(
            f"/{commands.MCP_PROMPT_PREFIX}"
        ):
            return content
        match await run_slash_line(self, line):
            case CommandPrompt(content=said):
                return (*content[:-1], *said)
            case str(answer):
                return fence_text(answer) if "\n" in answer else answer
            case None:
                return content

    def available_commands(self) -> JsonObject:
        """Return all commands, as an update."""
        offers: list[Json] = [
            _command_json(name, one.what, one.usage.partition(" ")[2])
            for name, one in self.commands.items()
        ]
        prompts = mcp.list_mcp_prompts(self.session.runtime.mcp_servers).items()
        offers += (
            _command_json(
                name, f"prompt of the MCP server {server_link.server.name}", " ".join(prompt.fields)
            )
            for name, (server_link, prompt) in prompts
        )
        return {"sessionUpdate": "available_commands_update", "availableCommands": offers}

    async def pick_option(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Return None: no command offered in the editor asks for a choice."""
        return None

    async def pick_session(self, picker: SessionPicker) -> SessionSummary | None:
        """Return None: the editor has a session list of its own."""
        return None

    def set_input(self, text: str) -> None:
        """Do nothing: the editor owns its input."""

    def switch_to(self, options: Options | None) -> None:
        """Refuse: the editor opens sessions itself."""
        raise UserError("The editor opens conversations", fix="Open another one there.")

    def set_theme(self, name: str) -> None:
        """Refuse: the editor has its own colours."""
        raise UserError("The editor has its own colours")


def _command_json(name: str, what: str, hint: str) -> Json:
    told: JsonObject = {"name": name, "description": what}
    return {**told, "input": {"hint": hint}} if hint else told


STOP_REASONS: dict[EndReason, str] = {
    "end": "end_turn",
    "hook": "end_turn",
    "refusal": "refusal",
    "turns": "max_turn_requests",
    "budget": "max_turn_requests",
    "aborted": "cancelled",
}
SESSION_CLOSED = "The session was closed."
CANCELLED_REPLY: JsonObject = {"stopReason": "cancelled"}


class PromptJob:
    """A prompt that waits for its reply."""

    def __init__(self, parts: PromptParts) -> None:
        self.said = parts
        self.over = anyio.Event()
        self.outcome: JsonObject | AcpError = AcpError(INTERNAL_ERROR, SESSION_CLOSED)

    def finish(self, outcome: JsonObject | AcpError) -> None:
        """Set the outcome and wake the waiting request."""
        self.outcome = outcome
        self.over.set()


class TurnOutcome:
    """The outcome of a turn, for the reply to its prompt."""

    def __init__(self) -> None:
        self._ended = Ended("crashed")
        self._stop = ""
        self._trouble = ""

    def add(self, event: Event) -> None:
        """Record an event."""
        match event:
            case Entry(fact=Ended() as fact):
                self._ended = fact
            case Entry(fact=Assistant(stop=stop)):
                self._stop, self._trouble = stop, ""
            case Entry(fact=Failed(kind=kind)):
                self._trouble = kind
            case _:
                pass

    def stop_reason(self) -> str | AcpError:
        """Return the protocol's stop reason, or an error."""
        why = self._ended.why
        if why not in STOP_REASONS:
            code = AUTH_REQUIRED if self._trouble == "auth" else INTERNAL_ERROR
            return AcpError(code, self._ended.detail or why)
        return "max_tokens" if why == "end" and self._stop == "length" else STOP_REASONS[why]


class AcpSession:
    """An open session, its prompt queue and its updates."""

    def __init__(self, peer: AcpConnection, options: Options, able: ClientCapabilities) -> None:
        self._peer = peer
        self._options = options
        self._able = able
        self._person = EditorUser(peer.request, able)
        self._session = LiveSession(options, person=self._person)
        self._jobs: deque[PromptJob] = deque()
        self._running: PromptJob | None = None
        self._scope: anyio.CancelScope | None = None
        self._stirred = anyio.Event()
        self._left = False
        self._told = 0
        """The last entry that was sent."""
        self._moved = anyio.Event()
        self._offered: JsonObject = {}
        self._steps = SubagentSteps()
        self.over = anyio.Event()
        """Set when the session is closed and its log is released."""

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run the session until the editor closes it; its failure does not affect others."""
        begun, why = False, SESSION_CLOSED
        try:
            async with self._session as session, anyio.create_task_group() as group:
                self._set_up(session, group)
                begun = True
                task_status.started()
                await self._run_jobs()
                session.leaving = "prompt_input_exit"
                group.cancel_scope.cancel()
        except (UserError, OSError, ExceptionGroup) as error:
            if not begun or not (why := _user_error_text(error)):
                raise
        finally:
            self._fail_waiting_prompts(why)

    def _set_up(self, session: LiveSession, group: TaskGroup) -> None:
        agent = session.runtime.agent
        agent.runtime.stays_open = True
        self.choices = SessionChoices(session, self._options)
        self._teller = AcpUpdates(agent, self.choices)
        self._desk = EditorCommandHost(session, replace(self._options, resume="", fork=False))
        self._person.session, self._person.describe = session.id, self._teller.describe_call
        if self._able.can_read_files:
            agent.use_world(replace(agent.world, files=self._editor_files(agent)))
        before = agent.team.on_child

        def on_child(child: Agent) -> None:
            before(child)
            group.start_soon(self._follow_subagent, child)

        agent.team.on_child = on_child
        enable_activity_names(agent)
        group.start_soon(self._send_events)

    def _editor_files(self, agent: Agent) -> EditorFiles:
        files, folders = agent.world.files, agent.permissions.guard.folders
        return EditorFiles(
            files, self._peer.request, able=self._able, session=self.id, folders=folders
        )

    def _fail_waiting_prompts(self, why: str) -> None:
        self._left = True
        for job in (*self._jobs, *filter(None, (self._running,))):
            job.finish(AcpError(INTERNAL_ERROR, why))
        self.over.set()

    def session_json(self) -> JsonObject:
        """Return the modes and options of an opened session."""
        return {"modes": self.choices.modes_json(), "configOptions": self.choices.config_options()}

    async def send_greeting(self) -> None:
        """Send the available commands and the notices."""
        self._send_changed_commands()
        notices = (*self._session.runtime.notices, *self._desk.notices)
        for line in dict.fromkeys(notices):
            self._send_update(notice_update(line))

    def replay(self) -> None:
        """Send the whole history."""
        for entry in self._session.runtime.agent.session.history():
            for update in self._teller.replay(entry):
                self._send_update(update)
        for update in self._teller.state_updates():
            self._send_update(update)

    async def prompt(self, blocks: tuple[PromptBlock, ...]) -> JsonObject:
        """Run a prompt after those before it; raise `AcpError`."""
        agent = self._session.runtime.agent
        job = PromptJob(parse_prompt_blocks(blocks, agent.world.blobs, cwd=agent.world.root))
        if not self._left:
            self._jobs.append(job)
            self._stirred.set()
            try:
                await job.over.wait()
            except anyio.get_cancelled_exc_class():
                self._cancel_job(job)
                raise
        if isinstance(job.outcome, AcpError):
            raise job.outcome
        return job.outcome

    def _cancel_job(self, job: PromptJob) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        elif job is self._running and self._scope is not None:
            self._scope.cancel()

    def cancel(self) -> None:
        """Stop the running turn and drop the queue."""
        while self._jobs:
            self._jobs.popleft().finish(CANCELLED_REPLY)
        if self._scope is not None:
            self._scope.cancel()

    async def leave(self) -> None:
        """Close the session."""
        self._left = True
        self.cancel()
        self._stirred.set()
        await self.over.wait()

    async def _run_jobs(self) -> None:
        while await self._has_next_job():
            job = self._running = self._jobs.popleft() if self._jobs else PromptJob(EMPTY_PROMPT)
            outcome: JsonObject | AcpError = CANCELLED_REPLY
            with anyio.CancelScope() as self._scope:
                outcome = await self._answer_prompt(job.said)
            self._scope = None
            await self._wait_until_sent()
            self._send_changed_commands()
            job.finish(outcome)
            self._running = None

    async def _has_next_job(self) -> bool:
        """Wait for a prompt, mail or news of a background agent; return False when closed."""
        agent, mail = self._session.runtime.agent, self._session.runtime.mail
        while not self._left:
            if self._jobs or agent.turn.inbox or (mail is not None and mail.called):
                return True
            self._stirred = anyio.Event()
            async with anyio.create_task_group() as group:
                for watch in (
                    partial(keep_cache_warm, agent),
                    self._wake_on_mail,
                    self._wake_on_subagent,
                ):
                    group.start_soon(watch)
                await self._stirred.wait()
                group.cancel_scope.cancel()
        return False

    async def _wake_on_mail(self) -> None:
        if self._session.runtime.mail is not None:
            await self._session.runtime.mail.wait_for_mail()
            self._stirred.set()

    async def _wake_on_subagent(self) -> None:
        if await self._session.news():
            self._stirred.set()

    async def _answer_prompt(self, parts: PromptParts) -> JsonObject | AcpError:
        try:
            found = await self._desk.run_or_pass(parts.content)
            if not isinstance(found, str):
                return await self._run_turn(found, parts.notes)
        except UserError as fault:
            return AcpError(INTERNAL_ERROR, str(fault))
        self._send_update(answer_update(found))
        return self._prompt_reply("end_turn")

    async def _run_turn(
        self, content: tuple[TextOrMedia, ...], notes: tuple[User, ...]
    ) -> JsonObject | AcpError:
        """Run one turn; notes on attachments go first."""
        inbox = self._session.runtime.agent.turn.inbox
        inbox.extend(notes)
        course = TurnOutcome()
        try:
            async with aclosing(self._session.run(content)) as events:
                async for event in events:
                    course.add(event)
        except UserError:
            for note in notes:
                inbox.remove(note)
            raise
        found = course.stop_reason()
        return found if isinstance(found, AcpError) else self._prompt_reply(found)

    def _prompt_reply(self, stop: str) -> JsonObject:
        used = self._session.runtime.agent.session.usage
        usage: JsonObject = {
            "totalTokens": used.context,
            "inputTokens": used.input,
            "outputTokens": used.output,
            "thoughtTokens": used.reasoning,
            "cachedReadTokens": used.read,
            "cachedWriteTokens": used.write + used.write_1h,
        }
        return {"stopReason": stop, "usage": usage}

    def _send_update(self, update: JsonObject) -> None:
        self._peer.notify("session/update", {"sessionId": self.id, "update": update})

    def _send_changed_commands(self) -> None:
        """Send changed commands: MCP servers bring prompts once they are up."""
        if (listed := self._desk.available_commands()) != self._offered:
            self._offered = listed
            self._send_update(listed)

    async def _send_events(self) -> None:
        agent = self._session.runtime.agent
        with agent.session.watch() as events:
            self._told = agent.session.last.seq if agent.session.last else 0
            async for event in events:
                for update in self._teller.updates(event):
                    self._send_update(update)
                if isinstance(event, AgentProgress):
                    self._send_update(
                        self._steps.progress(event, shown=self._teller.is_awaiting(event.call))
                    )
                if isinstance(event, Entry):
                    await self._mark_sent(event, agent)

    async def _mark_sent(self, entry: Entry, agent: Agent) -> None:
        self._told = entry.seq
        self._moved.set()
        self._moved = anyio.Event()
        if isinstance(entry.fact, Asked):
            self._person.call_shown_event(entry.fact.call).set()
            await notify_hooks(agent, "permission_prompt", PERMISSION_NOTICE)

    async def _wait_until_sent(self) -> None:
        """Wait until all events so far are sent."""
        last = self._session.runtime.agent.session.last
        while last is not None and self._told < last.seq:
            await self._moved.wait()

    async def _follow_subagent(self, child: Agent) -> None:
        """Show the last steps of a subagent under the call that started it."""
        assert child.team.birth is not None
        born = self._session.runtime.agent.session.children[child.team.birth.id.partition(".")[0]]
        with child.session.watch() as events:
            async for event in events:
                if is_turn_end(event):
                    return
                if self._steps.add(born.call, event, child) and self._teller.is_awaiting(born.call):
                    self._send_update(self._steps.update(born.call))


def _user_error_text(error: BaseException) -> str:
    """Return the message of an error that the user can fix; empty for a bug of ours."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if inner:
        found = [_user_error_text(one) for one in inner]
        return found[0] if all(found) else ""
    return str(error) if isinstance(error, UserError | OSError) else ""
