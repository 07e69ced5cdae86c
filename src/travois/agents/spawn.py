"""Subagents: starting, waiting for, messaging, resuming and stopping them.

One in the foreground runs inside the call that requested it; one in the background runs beside its
parent's conversation. Both end with it at the latest, and every end is reported.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import get_args

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from travois.agents.activity import (
    WORK_NAME_NOTE,
    AgentActivity,
    build_naming_prompt,
    parse_activity_name,
)
from travois.agents.child import (
    PersonViaParent,
    StartSignalModel,
    build_child_prompt,
    find_fork_point,
)
from travois.agents.mail_text import format_mail
from travois.agents.report import (
    END_STATES,
    build_report,
    compute_agent_cost,
    count_agent_turns,
    deliver_report,
    fit_report_text,
    report_message,
    report_token_budget,
)
from travois.context import window
from travois.core.cache_audit import SessionSpending
from travois.core.content import Text, extract_calls, extract_text
from travois.core.facts import (
    Assistant,
    Changed,
    EndReason,
    Entry,
    Epoch,
    Finished,
    Noted,
    Spawned,
    User,
)
from travois.core.patterns import compile_lazily
from travois.core.spending import Budget, Limits
from travois.core.view import open_calls, project_view
from travois.engine.agent import Agent
from travois.engine.background_jobs import JOB_WAIT_SECONDS, hand_over_jobs, wait_for_news
from travois.engine.fork import ask_quietly
from travois.engine.loop import run_turn
from travois.hooks.events import SubagentStart
from travois.hooks.fire import fire_hooks
from travois.lazy_imports import lazy_imports
from travois.ports.agents import HOOK_CALL, AgentOrder, AgentProgress, AgentReport, ChildState
from travois.ports.tool import ToolError

with lazy_imports():
    from travois.engine import tool_calls


NAMING_PROMPT_FILE = Path(__file__).parent / "prompts" / "doing.md"
NAMING_TIMEOUT_SECONDS = 20.0
"""Seconds that a small model has for a name."""
MAX_NAMING_FAILURES = 2
"""Failed naming requests in a row after which no more are made for an agent."""


def last_progress(id: str, entries: Sequence[Entry], *, call: str) -> AgentProgress:
    """Return a subagent's final progress, computed from its log."""
    work, cost = AgentActivity(), compute_agent_cost(entries)
    for entry in entries:
        work = work.after(entry)
    return _build_progress(id, work, cost, call=call)


def _build_progress(
    id: str, work: AgentActivity, cost: SessionSpending, *, call: str
) -> AgentProgress:
    """Build the progress of a subagent: its activity, tool, tokens and cost."""
    return AgentProgress(
        id=id,
        call=call,
        doing=work.said,
        tool=work.tool,
        tokens=cost.usage.prompt + cost.usage.output,
        dollars=cost.dollars,
    )


class ProgressFollower:
    """Follows one sub-agent while it runs."""

    def __init__(self, agent: Agent, *, call: str, tell: Callable[[AgentProgress], None]) -> None:
        self._agent, self._call, self._tell = agent, call, tell
        entries = agent.session.history()
        self._work, self._spent = AgentActivity(), compute_agent_cost(entries)
        self._told: AgentProgress | None = None
        self._moved = anyio.Event()
        """Set once the agent has done something since its work was named."""

    async def follow(self) -> None:
        """Report the agent's progress until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._name_periodically)
            await self._watch_session()

    async def _watch_session(self) -> None:
        with self._agent.session.watch() as events:
            self._report_progress()
            async for event in events:
                if isinstance(event, Entry):
                    self._apply_entry(event)

    def _apply_entry(self, entry: Entry) -> None:
        self._work, self._spent = self._work.after(entry), self._spent.after_entry(entry)
        if isinstance(entry.fact, Assistant) and extract_calls(entry.fact.content):
            self._moved.set()
        self._report_progress()

    def _report_progress(self) -> None:
        id = self._agent.team.birth.id if self._agent.team.birth else ""
        now = _build_progress(id, self._work, self._spent, call=self._call)
        if now != self._told:
            self._told = now
            self._tell(now)

    async def _name_periodically(self) -> None:
        """Have a small model name the work now and then, if the agent has made progress."""
        agent, failures = self._agent, 0
        while (
            agent.team.naming is not None
            and agent.team.naming.watched
            and failures < MAX_NAMING_FAILURES
        ):
            await self._moved.wait()
            await agent.runtime.sleep(agent.team.naming.seconds)
            self._moved = anyio.Event()
            name = await name_work(agent)
            failures = 0 if name else failures + 1
            if name:
                agent.session.append(Noted(WORK_NAME_NOTE, name))


async def name_work(agent: Agent) -> str:
    """Ask a small model to name a subagent's activity; empty if there is none or it fails."""
    small = agent.team.naming.small() if agent.team.naming is not None else None
    if small is None:
        return ""
    at, head = (
        agent.runtime.clock(),
        Epoch(small.card, NAMING_PROMPT_FILE.read_text("utf-8").strip()),
    )
    shown = User((Text(build_naming_prompt(agent.session.history())),))
    view, reply = project_view([Entry(1, at, head), Entry(2, at, shown)]), None
    with anyio.move_on_after(NAMING_TIMEOUT_SECONDS):
        asking = msgspec.structs.replace(agent, model=small.model)
        reply = await ask_quietly(asking, view, what=WORK_NAME_NOTE)
    return parse_activity_name(extract_text(reply.content)) if reply else ""


AGENT_ID_PATTERN = compile_lazily(r"a\d+(\.\d+)*")
"""The form of agent ids; jobs and side requests have other ids."""
AGENT_NAME_STATE = "agent:"
"""State of a session: the id of the agent that has this name."""
OUTCOME_STATES: dict[str, ChildState] = {state: state for state in get_args(ChildState)}
FORK_HEAD_START_SECONDS = 10.0
"""Maximum seconds that forks of one reply wait for the first one's answer to begin."""

ChildFactory = Callable[[Agent, AgentOrder, str], AbstractAsyncContextManager[Agent]]
"""Makes a child of that id ready for its first turn, and puts everything away after its last."""


class RunningChild(msgspec.Struct):
    """One child while it runs."""

    id: str
    order: AgentOrder
    budget: Budget
    scope: anyio.CancelScope
    over: anyio.Event
    agent: Agent | None = None
    state: ChildState = "stopped"
    why: str = ""


class ChildAgents:
    """The agents that one agent has started; all that is known of them also stands in logs."""

    def __init__(
        self,
        parent: Agent,
        hire: ChildFactory,
        kinds: Mapping[str, str],
        *,
        apart: Collection[str] = (),
    ) -> None:
        self.kinds = kinds
        self._apart = apart
        """The kinds that run in the background, whatever the order says."""
        self._parent = parent
        self._hire = hire
        self._running: dict[str, RunningChild] = {}
        self._reports = {
            id: AgentReport(id, OUTCOME_STATES.get(outcome, "failed"), "")
            for id, outcome in parent.session.outcomes.items()
            if AGENT_ID_PATTERN.fullmatch(id)
        }
        self._progress: dict[str, AgentProgress] = {}
        self._leads: dict[int, anyio.Event] = {}
        """For each reply that asked for forks, whether the first of them is being answered."""
        self._stirred = anyio.Event()
        self._asking = anyio.Lock()

    async def start(self, order: AgentOrder) -> AgentReport:
        """Start a child; gives its report when it has ended, or at once if in the background."""
        parent = self._parent
        if why := parent.budget.spawn_blocker():
            raise ToolError(f"No more agents can be started: {why}. Do this work yourself.")
        if order.kind in self._apart:
            order = replace(order, background=True)
        number = parent.session.spawned + 1
        id = f"{parent.team.birth.id}.{number}" if parent.team.birth else f"a{number}"
        return await self._launch(id, order)

    async def resume(self, order: AgentOrder) -> AgentReport:
        """Resume a child that has ended, with its history; it costs as much as a new one.

        Raises `ToolError` if there is none, or if it still runs.
        """
        parent, id = self._parent, self.find(order.resume)
        if not id:
            known = ", ".join(self._reports) or "none"
            raise ToolError(f"There is no agent {order.resume!r} to resume. Known agents: {known}.")
        if id in self._running:
            raise ToolError(f"Agent {id} is still running. Use SendMessage instead.")
        if why := parent.budget.spawn_blocker():
            raise ToolError(f"Agent {id} cannot be resumed: {why}. Do this work yourself.")
        first = parent.session.children[id]
        order = replace(order, resume=id, kind=first.kind, what=order.what or first.what)
        return await self._launch(id, order)

    async def _launch(self, id: str, order: AgentOrder) -> AgentReport:
        parent = self._parent
        budget = parent.budget.create_child(Limits(), whose=f"agent {id}")
        child = RunningChild(id, order, budget, anyio.CancelScope(), anyio.Event())
        self._running[id], self._reports[id] = child, AgentReport(id, "running", "")
        parent.session.append(Spawned(id, order.kind, order.what, order.call))
        if order.name:
            parent.session.append(Changed(f"{AGENT_NAME_STATE}{order.name}", id))
        if order.background and parent.runtime.background is not None:
            parent.runtime.background(partial(self._run_in_background, child))
            return self._reports[id]
        return await self._run_to_end(child)

    def find(self, name: str) -> str:
        """Return the id of a child that was ever started, by its name or id; empty if none was."""
        session = self._parent.session
        id = (
            name if name in session.children else session.state.get(f"{AGENT_NAME_STATE}{name}", "")
        )
        return id if AGENT_ID_PATTERN.fullmatch(id) and id in session.children else ""

    def reports(self) -> Mapping[str, AgentReport]:
        """Return the latest report of each child, by id."""
        return self._reports

    def progress(self) -> Mapping[str, AgentProgress]:
        """Return the last known progress of each child of this process, by id."""
        return self._progress

    def _record_progress(self, now: AgentProgress) -> None:
        self._progress[now.id] = now
        self._parent.session.emit(now)

    async def stop(self, id: str) -> AgentReport:
        """Stop a child that runs; raises KeyError if there never was one."""
        if child := self._running.get(id):
            child.scope.cancel()
            await child.over.wait()
        return self._reports[id]

    def send_message(self, name: str, text: str, *, sender: str) -> bool:
        """Put mail into the inbox of a child, by its name or id, or of the parent (`parent`)."""
        letter = format_mail(sender, text)
        if name == "parent":
            self._parent.turn.inbox.append(letter)
            self._notify_waiters()
            return True
        for child in self._running.values():
            if child.agent is not None and name in (child.id, child.order.name):
                child.agent.turn.inbox.append(letter)
                return True
        return False

    async def wait_for_news(self) -> bool:
        """Wait until the inbox has news or no subagent runs; return whether it has any."""
        while not self._parent.turn.inbox and self._running:
            await self._stirred.wait()
        return bool(self._parent.turn.inbox)

    def _notify_waiters(self) -> None:
        self._stirred.set()
        self._stirred = anyio.Event()

    async def _run_in_background(self, child: RunningChild) -> None:
        """Run a subagent in the background, and put its report into the parent's inbox."""
        over = await self._run_to_end(child)
        self._parent.turn.inbox.append(report_message(over))
        self._notify_waiters()

    async def _run_to_end(self, child: RunningChild) -> AgentReport:
        """Run a child to its end, whatever that is."""
        try:
            with child.scope:
                if broken := await tool_calls.run_child_guarded(
                    self._parent, partial(self._run_turns, child)
                ):
                    child.state, child.why = "failed", broken
        except anyio.get_cancelled_exc_class():
            deliver_report(self._parent.session, self._finish(child), call=child.order.call)
            raise
        return self._finish(child)

    async def _run_turns(self, child: RunningChild) -> None:
        parent, order = self._parent, child.order
        async with (
            self._let_first_fork_lead(order) as lead,
            self._hire(parent, order, child.id) as agent,
        ):
            child.agent = agent
            budget = replace(child.budget, limits=agent.budget.limits)
            person = PersonViaParent(parent, order, self._asking)
            agent.join_siblings(self, person=person, budget=budget)
            if lead:
                agent.use_model(StartSignalModel(agent.model, lead))
            if order.call == HOOK_CALL:
                agent.hooks.active = None  # it would hear of itself
            parent.team.on_child(agent)
            await fire_hooks(agent, SubagentStart(child.id, order.kind))
            agent.turn.inbox.append(_build_task_message(order))
            follower = ProgressFollower(agent, call=order.call, tell=self._record_progress)
            child.state = END_STATES.get(
                await run_child_turns(agent, beside=follower.follow), "failed"
            )

    @asynccontextmanager
    async def _let_first_fork_lead(self, order: AgentOrder) -> AsyncGenerator[anyio.Event | None]:
        """Let the first fork of a reply go first, so that the others read its prompt cache."""
        if order.kind != "fork" or order.resume:
            yield None
            return
        reply = find_fork_point(self._parent)
        if (first := self._leads.get(reply)) is not None:
            with anyio.move_on_after(FORK_HEAD_START_SECONDS):
                await first.wait()
            yield None
            return
        lead = self._leads[reply] = anyio.Event()
        try:
            yield lead
        finally:
            lead.set()

    def _finish(self, child: RunningChild) -> AgentReport:
        """Record that a subagent has ended and what it cost, even while being cancelled."""
        entries = child.agent.session.history() if child.agent else []
        cost = compute_agent_cost(entries)
        over = build_report(child.id, entries, state=child.state, why=child.why)
        if child.agent is not None and (left := hand_over_jobs(child.agent, self._parent)):
            over = replace(over, text=f"{over.text}\n\n{left}")
        if child.agent is not None:
            self._record_progress(last_progress(child.id, entries, call=child.order.call))
        turns = count_agent_turns(entries)
        self._parent.session.append(
            Finished(child.id, child.state, cost.usage, cost.dollars, turns)
        )
        self._reports[child.id] = over
        del self._running[child.id]
        child.over.set()
        self._notify_waiters()
        return replace(over, text=self._fit_report(over))

    def _fit_report(self, over: AgentReport) -> str:
        """Return as much of a report as the parent has room for; the rest by reference."""
        parent, view = self._parent, self._parent.session.view
        beside = sum(child.order.background for child in self._running.values())
        tokens = report_token_budget(
            view,
            parent.turn.inbox,
            limit=window.compaction_threshold(parent),
            layers=window.scaled_layers(parent),
            among=len(open_calls(view)) + beside + 1,
        )
        keep = partial(parent.world.spill, f"{over.id}-report")
        return fit_report_text(
            over.text,
            tokens=tokens,
            keep=keep,
            nonce=f"{int(parent.runtime.jitter() * 0xFFFFFF):06x}",
        )


def _build_task_message(order: AgentOrder) -> User:
    """Build the message that gives a subagent its task."""
    if order.sender:
        return format_mail(order.sender, order.prompt)
    text = order.prompt if order.resume else build_child_prompt(order)
    return User((Text(text),), origin="task")


async def run_child_turns(agent: Agent, *, beside: Callable[[], Awaitable[None]]) -> EndReason:
    """Run a subagent's turns until the model has finished and none of its own jobs runs.

    `beside` runs concurrently until then.
    """
    why: EndReason = "crashed"
    try:
        async with anyio.create_task_group() as group:
            agent.runtime.background = partial(_start_in_group, group)
            _start_in_group(group, beside)
            why = await run_turn(agent)
            while why == "end" and await wait_for_news(agent, patience=JOB_WAIT_SECONDS):
                why = await run_turn(agent)
            group.cancel_scope.cancel()
    except BaseExceptionGroup as broken:  # a fault stays the same, alone or in company
        raise broken.exceptions[0] from broken
    return why


def _start_in_group(group: TaskGroup, job: Callable[[], Awaitable[None]]) -> None:
    """Start a background job beside a subagent's turns."""

    async def run() -> None:
        await job()

    group.start_soon(run)
