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

from travois.acp.editor import SILENCE, Buffers, Editor, Said, understood
from travois.acp.options import Choices
from travois.acp.protocol import BROKEN, LOGIN, Block, Capabilities, Peer, Wrong
from travois.acp.updates import Steps, Teller, answer, fenced, notice
from travois.compat.claude_json import Json, Object
from travois.compose import commands, mcp
from travois.compose.options import Options
from travois.compose.session_picker import SessionPicker
from travois.context.keep_warm import keep_cache_warm
from travois.core.content import TextOrMedia
from travois.core.errors import UserError
from travois.core.facts import Asked, Assistant, Ended, EndReason, Entry, Failed, User
from travois.engine.agent import Agent
from travois.hooks.fire import notify
from travois.ports.world import AgentProgress, Event
from travois.sdk import Session, typed_text
from travois.sessions.catalog import SessionSummary
from travois.tui import slash
from travois.tui.agent_progress import watch_agents
from travois.tui.line_mode import PERMISSION
from travois.tui.slash import Command, Prompt, named, obey
from travois.tui.slash_registry import COMMANDS

# Slash commands in the editor's prompt.


OURS = (
    *("compact", "context", "notes", "cost", "todos", "memory", "agents", "tasks", "mcp", "skills"),
    *("hooks", "config", "rename", "inspect"),
)
"""Commands that neither duplicate the editor's own menus nor disturb its display."""
COLUMNS = 100


class Desk:
    """The host of slash commands in the editor's prompt."""

    def __init__(self, session: Session, options: Options) -> None:
        self.session = session
        self.options = options
        self.columns = COLUMNS
        ours = {name: COMMANDS[name] for name in OURS}
        known, self.notices = commands.compose_commands(options, taken=ours)
        self.commands: Mapping[str, Command] = {**ours, **slash.commands(known)}

    async def obeyed(self, content: tuple[TextOrMedia, ...]) -> str | tuple[TextOrMedia, ...]:
        """Run a command and return its answer, or return the content for the model."""
        line = typed_text(content)
        if named(self, line) is None and not line.startswith(f"/{commands.MCP_PROMPT_PREFIX}"):
            return content
        match await obey(self, line):
            case Prompt(content=said):
                return (*content[:-1], *said)
            case str(answer):
                return fenced(answer) if "\n" in answer else answer
            case None:
                return content

    def listed(self) -> Object:
        """Return all commands, as an update."""
        offers: list[Json] = [
            _offer(name, one.what, one.usage.partition(" ")[2])
            for name, one in self.commands.items()
        ]
        prompts = mcp.list_mcp_prompts(self.session.crew.loan).items()
        offers += (
            _offer(name, f"prompt of the MCP server {lender.server.name}", " ".join(prompt.fields))
            for name, (lender, prompt) in prompts
        )
        return {"sessionUpdate": "available_commands_update", "availableCommands": offers}

    async def pick(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Return None: no command offered in the editor asks for a choice."""
        return None

    async def browse(self, shelf: SessionPicker) -> SessionSummary | None:
        """Return None: the editor has a session list of its own."""
        return None

    def type(self, text: str) -> None:
        """Do nothing: the editor owns its input."""

    def turn_to(self, options: Options | None) -> None:
        """Refuse: the editor opens sessions itself."""
        raise UserError("The editor opens conversations", fix="Open another one there.")

    def dress(self, theme: str) -> None:
        """Refuse: the editor has its own colours."""
        raise UserError("The editor has its own colours")


def _offer(name: str, what: str, hint: str) -> Json:
    told: Object = {"name": name, "description": what}
    return {**told, "input": {"hint": hint}} if hint else told


STOPS: dict[EndReason, str] = {
    "end": "end_turn",
    "hook": "end_turn",
    "refusal": "refusal",
    "turns": "max_turn_requests",
    "budget": "max_turn_requests",
    "aborted": "cancelled",
}
CLOSED = "The session was closed."
CANCELLED: Object = {"stopReason": "cancelled"}


class Job:
    """A prompt that waits for its reply."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.over = anyio.Event()
        self.outcome: Object | Wrong = Wrong(BROKEN, CLOSED)

    def end(self, outcome: Object | Wrong) -> None:
        """Set the outcome and wake the waiting request."""
        self.outcome = outcome
        self.over.set()


class Course:
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

    def outcome(self) -> str | Wrong:
        """Return the protocol's stop reason, or an error."""
        why = self._ended.why
        if why not in STOPS:
            code = LOGIN if self._trouble == "auth" else BROKEN
            return Wrong(code, self._ended.detail or why)
        return "max_tokens" if why == "end" and self._stop == "length" else STOPS[why]


class Talk:
    """An open session, its prompt queue and its updates."""

    def __init__(self, peer: Peer, options: Options, able: Capabilities) -> None:
        self._peer = peer
        self._options = options
        self._able = able
        self._person = Editor(peer.ask, able)
        self._session = Session(options, person=self._person)
        self._jobs: deque[Job] = deque()
        self._running: Job | None = None
        self._scope: anyio.CancelScope | None = None
        self._stirred = anyio.Event()
        self._left = False
        self._told = 0
        """The last entry that was sent."""
        self._moved = anyio.Event()
        self._offered: Object = {}
        self._steps = Steps()
        self.over = anyio.Event()
        """Set when the session is closed and its log is released."""

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    async def live(self, *, task_status: TaskStatus[None]) -> None:
        """Run the session until the editor closes it; its failure does not affect others."""
        begun, why = False, CLOSED
        try:
            async with self._session as session, anyio.create_task_group() as group:
                self._arrange(session, group)
                begun = True
                task_status.started()
                await self._converse()
                session.leaving = "prompt_input_exit"
                group.cancel_scope.cancel()
        except (UserError, OSError, ExceptionGroup) as error:
            if not begun or not (why := _ordinary(error)):
                raise
        finally:
            self._part(why)

    def _arrange(self, session: Session, group: TaskGroup) -> None:
        agent = session.crew.agent
        self.choices = Choices(session, self._options)
        self._teller = Teller(agent, self.choices)
        self._desk = Desk(session, replace(self._options, resume="", fork=False))
        self._person.session, self._person.describe = session.id, self._teller.described
        if self._able.reads:
            agent.use_world(replace(agent.world, files=self._buffers(agent)))
        before = agent.team.on_child

        def born(child: Agent) -> None:
            before(child)
            group.start_soon(self._overhear, child)

        agent.team.on_child = born
        watch_agents(agent)
        group.start_soon(self._watch)

    def _buffers(self, agent: Agent) -> Buffers:
        files, folders = agent.world.files, agent.permissions.guard.folders
        return Buffers(files, self._peer.ask, able=self._able, session=self.id, folders=folders)

    def _part(self, why: str) -> None:
        self._left = True
        for job in (*self._jobs, *filter(None, (self._running,))):
            job.end(Wrong(BROKEN, why))
        self.over.set()

    def opened(self) -> Object:
        """Return the modes and options of an opened session."""
        return {"modes": self.choices.modes(), "configOptions": self.choices.options()}

    async def greet(self) -> None:
        """Send the available commands and the notices."""
        self._offer()
        notices = (*self._session.crew.notices, *self._desk.notices)
        for line in dict.fromkeys(notices):
            self._update(notice(line))

    def replay(self) -> None:
        """Send the whole history."""
        for entry in self._session.crew.agent.session.history():
            for update in self._teller.replay(entry):
                self._update(update)
        for update in self._teller.standing():
            self._update(update)

    async def prompt(self, blocks: tuple[Block, ...]) -> Object:
        """Run a prompt after those before it; raise `Wrong`."""
        agent = self._session.crew.agent
        job = Job(understood(blocks, agent.world.blobs, cwd=agent.world.root))
        if not self._left:
            self._jobs.append(job)
            self._stirred.set()
            try:
                await job.over.wait()
            except anyio.get_cancelled_exc_class():
                self._withdraw(job)
                raise
        if isinstance(job.outcome, Wrong):
            raise job.outcome
        return job.outcome

    def _withdraw(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        elif job is self._running and self._scope is not None:
            self._scope.cancel()

    def cancel(self) -> None:
        """Stop the running turn and drop the queue."""
        while self._jobs:
            self._jobs.popleft().end(CANCELLED)
        if self._scope is not None:
            self._scope.cancel()

    async def leave(self) -> None:
        """Close the session."""
        self._left = True
        self.cancel()
        self._stirred.set()
        await self.over.wait()

    async def _converse(self) -> None:
        while await self._next():
            job = self._running = self._jobs.popleft() if self._jobs else Job(SILENCE)
            outcome: Object | Wrong = CANCELLED
            with anyio.CancelScope() as self._scope:
                outcome = await self._answered(job.said)
            self._scope = None
            await self._caught_up()
            self._offer()
            job.end(outcome)
            self._running = None

    async def _next(self) -> bool:
        """Wait for a prompt, mail or news of a background agent; return False when closed."""
        agent, office = self._session.crew.agent, self._session.crew.office
        while not self._left:
            if self._jobs or agent.turn.inbox or (office is not None and office.called):
                return True
            self._stirred = anyio.Event()
            async with anyio.create_task_group() as group:
                for watch in (partial(keep_cache_warm, agent), self._wake, self._heed):
                    group.start_soon(watch)
                await self._stirred.wait()
                group.cancel_scope.cancel()
        return False

    async def _wake(self) -> None:
        if self._session.crew.office is not None:
            await self._session.crew.office.wait_for_mail()
            self._stirred.set()

    async def _heed(self) -> None:
        if await self._session.news():
            self._stirred.set()

    async def _answered(self, said: Said) -> Object | Wrong:
        try:
            found = await self._desk.obeyed(said.content)
            if not isinstance(found, str):
                return await self._turn(found, said.notes)
        except UserError as fault:
            return Wrong(BROKEN, str(fault))
        self._update(answer(found))
        return self._done("end_turn")

    async def _turn(
        self, content: tuple[TextOrMedia, ...], notes: tuple[User, ...]
    ) -> Object | Wrong:
        """Run one turn; notes on attachments go first."""
        inbox = self._session.crew.agent.turn.inbox
        inbox.extend(notes)
        course = Course()
        try:
            async with aclosing(self._session.run(content)) as events:
                async for event in events:
                    course.add(event)
        except UserError:
            for note in notes:
                inbox.remove(note)
            raise
        found = course.outcome()
        return found if isinstance(found, Wrong) else self._done(found)

    def _done(self, stop: str) -> Object:
        used = self._session.crew.agent.session.usage
        usage: Object = {
            "totalTokens": used.context,
            "inputTokens": used.input,
            "outputTokens": used.output,
            "thoughtTokens": used.reasoning,
            "cachedReadTokens": used.read,
            "cachedWriteTokens": used.write + used.write_1h,
        }
        return {"stopReason": stop, "usage": usage}

    def _update(self, update: Object) -> None:
        self._peer.tell("session/update", {"sessionId": self.id, "update": update})

    def _offer(self) -> None:
        """Send changed commands: MCP servers bring prompts once they are up."""
        if (listed := self._desk.listed()) != self._offered:
            self._offered = listed
            self._update(listed)

    async def _watch(self) -> None:
        agent = self._session.crew.agent
        with agent.session.watch() as events:
            self._told = agent.session.last.seq if agent.session.last else 0
            async for event in events:
                for update in self._teller.updates(event):
                    self._update(update)
                if isinstance(event, AgentProgress):
                    self._update(self._steps.progress(event, shown=self._teller.awaits(event.call)))
                if isinstance(event, Entry):
                    await self._heard(event, agent)

    async def _heard(self, entry: Entry, agent: Agent) -> None:
        self._told = entry.seq
        self._moved.set()
        self._moved = anyio.Event()
        if isinstance(entry.fact, Asked):
            self._person.told(entry.fact.call).set()
            await notify(agent, "permission_prompt", PERMISSION)

    async def _caught_up(self) -> None:
        """Wait until all events so far are sent."""
        last = self._session.crew.agent.session.last
        while last is not None and self._told < last.seq:
            await self._moved.wait()

    async def _overhear(self, child: Agent) -> None:
        """Show the last steps of a subagent under the call that started it."""
        assert child.team.birth is not None
        born = self._session.crew.agent.session.children[child.team.birth.id.partition(".")[0]]
        with child.session.watch() as events:
            async for event in events:
                if _over(event):
                    return
                if self._steps.add(born.call, event, child) and self._teller.awaits(born.call):
                    self._update(self._steps.update(born.call))


def _over(event: Event) -> bool:
    return isinstance(event, Entry) and isinstance(event.fact, Ended)


def _ordinary(error: BaseException) -> str:
    """Return the message of an error that the user can fix; empty for a bug of ours."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if inner:
        found = [_ordinary(one) for one in inner]
        return found[0] if all(found) else ""
    return str(error) if isinstance(error, UserError | OSError) else ""
