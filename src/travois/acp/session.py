"""One conversation that is open in the editor.

It lives in one task from its opening to its end; prompts wait in line and are taken up one after
the other. What happens is told by a second task; a prompt is answered when all of it was told.
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
from travois.compose import commands as custom
from travois.compose import mcp as lending
from travois.compose.options import Options
from travois.compose.session_picker import Shelf
from travois.context.keep_warm import keep_warm
from travois.core.content import Shown
from travois.core.errors import Fault
from travois.core.facts import Asked, Assistant, Ended, EndedWhy, Entry, Failed, User
from travois.engine.agent import Agent
from travois.hooks.fire import notify
from travois.ports.world import AgentProgress, Event
from travois.sdk import Session, typed
from travois.sessions.catalog import Summary
from travois.tui import slash
from travois.tui.agent_progress import watch_agents
from travois.tui.line_mode import PERMISSION
from travois.tui.slash import Command, Prompt, named, obey
from travois.tui.slash_registry import COMMANDS

# Commands that are typed in an editor: ours that make sense there, and the user's own.


OURS = (
    *("compact", "context", "notes", "cost", "todos", "memory", "agents", "tasks", "mcp", "skills"),
    *("hooks", "config", "rename", "inspect"),
)
"""What stands neither in the editor's own menus, nor in the way of what it shows."""
COLUMNS = 100


class Desk:
    """Where commands are typed: in the editor's own prompt."""

    def __init__(self, session: Session, options: Options) -> None:
        self.session = session
        self.options = options
        self.columns = COLUMNS
        ours = {name: COMMANDS[name] for name in OURS}
        known, self.notices = custom.known(options, taken=ours)
        self.commands: Mapping[str, Command] = {**ours, **slash.commands(known)}

    async def obeyed(self, content: tuple[Shown, ...]) -> str | tuple[Shown, ...]:
        """The answer to a command, or what is to be said to the model."""
        line = typed(content)
        if named(self, line) is None and not line.startswith(f"/{custom.LENT}"):
            return content
        match await obey(self, line):
            case Prompt(content=said):
                return (*content[:-1], *said)
            case str(answer):
                return fenced(answer) if "\n" in answer else answer
            case None:
                return content

    def listed(self) -> Object:
        """All commands, as the editor offers them."""
        commands: list[Json] = [
            _offer(name, one.what, one.usage.partition(" ")[2])
            for name, one in self.commands.items()
        ]
        prompts = lending.prompts(self.session.crew.loan).items()
        commands += (
            _offer(name, f"a prompt of {lender.server.name}", " ".join(prompt.fields))
            for name, (lender, prompt) in prompts
        )
        return {"sessionUpdate": "available_commands_update", "availableCommands": commands}

    # --- what commands may want of a desk ---------------------------------------------------------

    async def pick(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """None of our commands that are offered here wants it."""
        return None

    async def browse(self, shelf: Shelf) -> Summary | None:
        """The editor has a list of sessions itself."""
        return None

    def type(self, text: str) -> None:
        """What stands in the editor's prompt is its own."""

    def turn_to(self, options: Options | None) -> None:
        """The editor opens conversations itself."""
        raise Fault("This conversation is the editor's", fix="Open another one there.")

    def dress(self, theme: str) -> None:
        """The editor has its own colours."""
        raise Fault("The editor has its own colours")


def _offer(name: str, what: str, hint: str) -> Json:
    told: Object = {"name": name, "description": what}
    return {**told, "input": {"hint": hint}} if hint else told


STOPS: dict[EndedWhy, str] = {
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
    """Something said that waits for its answer."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.over = anyio.Event()
        self.outcome: Object | Wrong = Wrong(BROKEN, CLOSED)

    def end(self, outcome: Object | Wrong) -> None:
        """Let whoever waits know."""
        self.outcome = outcome
        self.over.set()


class Course:
    """How a turn went, as far as its prompt is answered with it."""

    def __init__(self) -> None:
        self._ended = Ended("crashed")
        self._stop = ""
        self._trouble = ""

    def add(self, event: Event) -> None:
        """Take one more event into account."""
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
        """Why it stopped, in the protocol's words, or what went wrong."""
        why = self._ended.why
        if why not in STOPS:
            code = LOGIN if self._trouble == "auth" else BROKEN
            return Wrong(code, self._ended.detail or why)
        return "max_tokens" if why == "end" and self._stop == "length" else STOPS[why]


class Talk:
    """A session with the editor in the place of the terminal."""

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
        """The last entry that the editor has heard of."""
        self._moved = anyio.Event()
        self._offered: Object = {}
        self._steps = Steps()
        self.over = anyio.Event()
        """Set when the session is closed and its log is free."""

    @property
    def id(self) -> str:
        """The name of the session."""
        return self._session.id

    async def live(self, *, task_status: TaskStatus[None]) -> None:
        """Be open until the editor closes it; what breaks it ends nothing else."""
        begun, why = False, CLOSED
        try:
            async with self._session as session, anyio.create_task_group() as group:
                self._arrange(session, group)
                begun = True
                task_status.started()
                await self._converse()
                session.leaving = "prompt_input_exit"
                group.cancel_scope.cancel()
        except (Fault, OSError, ExceptionGroup) as error:
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

    # --- what the editor asks ---------------------------------------------------------------------

    def opened(self) -> Object:
        """What there is to know of a session that begins or goes on."""
        return {"modes": self.choices.modes(), "configOptions": self.choices.options()}

    async def greet(self) -> None:
        """Tell what can be typed, and what the person should know."""
        self._offer()
        notices = (*self._session.crew.notices, *self._desk.notices)
        for line in dict.fromkeys(notices):
            self._update(notice(line))

    def replay(self) -> None:
        """Tell all that was said so far."""
        for entry in self._session.crew.agent.session.history():
            for update in self._teller.replay(entry):
                self._update(update)
        for update in self._teller.standing():
            self._update(update)

    async def prompt(self, blocks: tuple[Block, ...]) -> Object:
        """Say something, once what was said before is answered; raises `Wrong`."""
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
        """Stop what runs, and take up nothing of what waits."""
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

    # --- turns ------------------------------------------------------------------------------------

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
        """Wait until something is said, or mail or an agent has something to tell; not for ever."""
        agent, office = self._session.crew.agent, self._session.crew.office
        while not self._left:
            if self._jobs or agent.turn.inbox or (office is not None and office.called):
                return True
            self._stirred = anyio.Event()
            async with anyio.create_task_group() as group:
                for watch in (partial(keep_warm, agent), self._wake, self._heed):
                    group.start_soon(watch)
                await self._stirred.wait()
                group.cancel_scope.cancel()
        return False

    async def _wake(self) -> None:
        if self._session.crew.office is not None:
            await self._session.crew.office.rung()
            self._stirred.set()

    async def _heed(self) -> None:
        if await self._session.news():
            self._stirred.set()

    async def _answered(self, said: Said) -> Object | Wrong:
        try:
            found = await self._desk.obeyed(said.content)
            if not isinstance(found, str):
                return await self._turn(found, said.notes)
        except Fault as fault:
            return Wrong(BROKEN, str(fault))
        self._update(answer(found))
        return self._done("end_turn")

    async def _turn(self, content: tuple[Shown, ...], notes: tuple[User, ...]) -> Object | Wrong:
        """One turn; what was attached goes ahead of it."""
        inbox = self._session.crew.agent.turn.inbox
        inbox.extend(notes)
        course = Course()
        try:
            async with aclosing(self._session.run(content)) as events:
                async for event in events:
                    course.add(event)
        except Fault:
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

    # --- what is told -----------------------------------------------------------------------------

    def _update(self, update: Object) -> None:
        self._peer.tell("session/update", {"sessionId": self.id, "update": update})

    def _offer(self) -> None:
        """Tell what can be typed, if that has changed: servers bring prompts when they are up."""
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
        """Wait until all that has happened was told."""
        last = self._session.crew.agent.session.last
        while last is not None and self._told < last.seq:
            await self._moved.wait()

    async def _overhear(self, child: Agent) -> None:
        """Show the last steps of an agent under the call of ours that it works for."""
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
    """What the user can mend about an error; nothing if it is ours."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if inner:
        found = [_ordinary(one) for one in inner]
        return found[0] if all(found) else ""
    return str(error) if isinstance(error, Fault | OSError) else ""
