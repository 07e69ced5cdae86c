"""Creating subagents from a parent: a copy of its state with a log of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from travois.agents.task_list import SessionTasks
from travois.core.content import Text
from travois.core.facts import Asked, Changed, Result, User
from travois.core.spending import Budget
from travois.core.view import open_calls
from travois.engine.agent import Agent, ParentLink
from travois.ports.agents import AgentOrder
from travois.ports.world import ChoiceRequest, ModelClient, PermissionQuestion, PersonAnswer
from travois.prompt.briefing import rebuild_briefing
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.sessions.session import Session

FORK_PROMPT_FILE = Path(__file__).parent / "prompts" / "fork.md"
FORK_STATE = "fork"
"""The state of a session that is a fork: it starts no agents."""
OPEN_CALL_RESULT = "This call is handled elsewhere, outside this fork."
"""The result of every call that was open where a fork began: the same in all forks of a reply."""
BACKGROUND_DENIAL = (
    "an agent in the background cannot ask for approval; "
    "start it in the foreground, or the user can allow this with a permission rule"
)


def find_fork_point(parent: Agent) -> int:
    """Return the log entry to fork subagents at: the same for all forks of one reply."""
    session = parent.session
    if session.view.open:
        return session.view.items[session.view.replied].seq
    return session.last.seq if session.last else 0


def begin_fork(session: Session) -> None:
    """Begin a forked subagent's history: close open calls, and mark it as a fork."""
    for call in open_calls(session.view):
        session.append(Result(call.id, (Text(OPEN_CALL_RESULT),)))
    session.append(Changed(FORK_STATE, "yes"))


def build_child_prompt(order: AgentOrder) -> str:
    """Build the first prompt of a subagent."""
    if order.kind != "fork":
        return order.prompt
    return FORK_PROMPT_FILE.read_text("utf-8").strip().replace("{prompt}", order.prompt)


def create_child_agent(
    parent: Agent,
    session: Session,
    birth: ParentLink,
    *,
    root: str,
    collect_mail: Callable[[Agent], Iterable[User]] = lambda agent: (),
) -> Agent:
    """Create a subagent with its parent's world and permissions, and its own conversation."""

    def spill(call: str, data: bytes) -> str:
        return parent.world.spill(f"{birth.id}-{call}", data)

    around = parent.prompt.environment
    own_around = around and (lambda: replace(around(), cwd=session.state.get("cwd", root)))
    return replace(
        parent,
        session=session,
        encoder=parent.encoder.fork(),
        tools=replace(parent.tools, announce_mcp=_do_nothing, restate_mcp=tuple),
        world=replace(parent.world, root=root, spill=spill),
        permissions=replace(parent.permissions),
        hooks=replace(parent.hooks),
        prompt=replace(parent.prompt, environment=own_around, restate=rebuild_briefing),
        team=replace(
            parent.team,
            children=None,
            birth=birth,
            tasks=parent.team.tasks or SessionTasks(parent.session),
            collect_mail=collect_mail,
        ),
        budget=Budget(),
        turn=replace(
            parent.turn,
            stop_reason="",
            sent_back=0,
            kept=-1,
            inbox=deque(),
            notes=None,
            late_checks=(),
        ),
        # A child works where it was started, wherever its parent goes.
        runtime=replace(
            parent.runtime, stays_open=False, background=None, worktrees=None, relocate=_do_nothing
        ),
    )


def _do_nothing(agent: Agent) -> None:
    pass


class PersonViaParent:
    """The person, as a child reaches them: one question at a time, and they see who asks."""

    def __init__(self, parent: Agent, order: AgentOrder, lock: anyio.Lock) -> None:
        self._parent = parent
        self._order = order
        self._lock = lock

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Ask through the parent, on whose screen the question is shown."""
        if self._order.background:
            return PersonAnswer(allow=False, reason=f"{question.because}, and {BACKGROUND_DENIAL}")
        summary = f"[{self._order.what}] {question.summary}"
        async with self._lock:
            self._parent.session.append(Asked(question.call, summary, question.digest))
            return await self._parent.permissions.person.decide(replace(question, summary=summary))

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Return None: subagents put no choices to the user."""
        return None


class StartSignalModel:
    """A model that tells when its first answer has begun: from then on its cache can be read."""

    def __init__(self, model: ModelClient, begun: anyio.Event) -> None:
        self._model = model
        self._begun = begun

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send the request, and listen."""
        async with (
            self._model.stream(request) as stream,
            aclosing(self._signal_start(stream)) as heard,
        ):
            yield heard

    async def _signal_start(
        self, stream: AsyncIterator[StreamDelta | Reply]
    ) -> AsyncGenerator[StreamDelta | Reply]:
        async for event in stream:
            self._begun.set()
            yield event
