"""Travois as a library.

    async with LiveSession(model="anthropic/claude-opus-5-5") as session:
        async for event in session.run("fix the failing test"):
            print(event)

Events are the entries of the log as they are written, and deltas for the eye.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from travois.compose import hooks
from travois.compose.options import Options
from travois.compose.session import (
    HostExtensions,
    LoadedWorkspace,
    SessionRuntime,
    compose_session,
    load_workspace,
)
from travois.core.content import Text, TextOrMedia, extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Compacted, Ended, Entry, Failed, User
from travois.core.models import Effort
from travois.core.models import ModelCard as Card
from travois.core.tokens import (
    context_tokens,
    fact_tokens,
    head_tokens,
    stop_threshold,
    token_ratio,
)
from travois.core.view import View
from travois.engine.agent import enter_mode
from travois.engine.background_jobs import report_left_jobs, wait_for_news
from travois.engine.loop import run_turn
from travois.engine.mentions import read_mentions
from travois.hooks.config import Listener
from travois.lazy_imports import lazy_imports
from travois.memory.extraction import wait_for_extraction
from travois.permissions.decide import MODE_ALIASES, PERMISSION_MODES, PermissionMode
from travois.ports.tool import AnyTool
from travois.ports.world import Event, ModelClient, Person
from travois.providers.request import EFFORT_LEVELS
from travois.telemetry import TelemetryOptions
from travois.telemetry import is_otel_installed as telemetry_installed

if TYPE_CHECKING:
    from travois.context.compaction.cut import ConversationCut
    from travois.extensions.custom_layers import ContextLayer

with lazy_imports():
    from travois.compose import dreaming
    from travois.context.compaction import compact as compaction
    from travois.context.compaction import cut
    from travois.files import installation
    from travois.telemetry import otel


EXTRACTION_WAIT_SECONDS = 5.0
"""The seconds to wait for memory extraction when the session is left."""
SUMMARY_WINDOW_SHARE = 8
"""The part of a window that what was established before a prompt may need beside it."""


class LiveSession:
    """One conversation. Leaving the block stops what runs and keeps everything on disk."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        model: str | ModelClient = "",
        person: Person | None = None,
        tools: tuple[AnyTool, ...] = (),
        listeners: tuple[Listener, ...] = (),
        report_start: Callable[[str], None] = lambda text: None,
        workspace: LoadedWorkspace | None = None,
        layers: tuple[ContextLayer, ...] = (),
    ) -> None:
        """`tools` and `listeners` (hooks) are the caller's own; `person` answers questions.

        `report_start` is called with what the start waits for; `workspace` is what
        `load_workspace` has just returned for the same options.
        """
        chosen = options or Options()
        if isinstance(model, str) and model:
            chosen = replace(chosen, model=model)
        self._options = chosen
        self._model = None if isinstance(model, str) else model
        self._guests = HostExtensions(person, tools, listeners, report_start, layers)
        self._workspace = workspace
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self._runtime: SessionRuntime | None = None
        self._scope: anyio.CancelScope | None = None
        self.leaving: hooks.LeaveReason = "other"
        """The reason for which the block will be left."""
        self.parting: tuple[str, ...] = ()
        """Notices for the user after the block is left."""

    @property
    def runtime(self) -> SessionRuntime:
        """The agent and the services that the session runs on."""
        assert self._runtime is not None, "use `async with LiveSession(...)`"
        return self._runtime

    @property
    def id(self) -> str:
        """The name under which it can be resumed."""
        return self.runtime.id

    @property
    def running(self) -> bool:
        """True while a turn runs."""
        return self._scope is not None

    async def news(self, *, patience: float | None = None) -> bool:
        """Wait until an agent or a background command has ended or has a message.

        Returns whether there is something: `run` without a prompt lets it in. False if nothing
        works any more, or if only commands do and `patience`, in seconds, is over.
        """
        return await wait_for_news(self.runtime.agent, patience=patience)

    async def __aenter__(self) -> LiveSession:
        workspace, self._workspace = self._workspace, None
        runtime = await compose_session(
            self._options, model=self._model, guests=self._guests, workspace=workspace
        )
        self._runtime = runtime
        async with AsyncExitStack() as stack:
            stack.push_async_callback(runtime.aclose)
            if runtime.telemetry is not None:
                await self._start_telemetry(runtime, runtime.telemetry, stack)
            if runtime.agent.hooks.active is not None:
                self._guests.report_start("Running SessionStart hooks")
            runtime.notices += await hooks.fire_session_start(runtime.agent, self._options)
            stack.push_async_callback(self._fire_end_hooks)
            self._group = await stack.enter_async_context(anyio.create_task_group())
            runtime.agent.runtime.background = self._run_in_background
            if runtime.agent.hooks.active is not None and runtime.agent.hooks.active.files_to_watch:
                self._group.start_soon(hooks.watch_hook_files, runtime.agent)
            for link in runtime.mcp_servers.links:
                self._group.start_soon(link.keep_alive)
            if (servers := runtime.agent.world.language_servers) is not None:
                self._group.start_soon(servers.run_until_cancelled)
            if runtime.mail is not None and runtime.mail.listens:
                self._group.start_soon(runtime.mail.listen)
            if runtime.nights is not None:
                runtime.notices += dreaming.report_finished_dreams(runtime.nights, runtime.agent)
                self._group.start_soon(dreaming.dream_when_due, runtime.nights, runtime.agent)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._group is not None:
            if kind is None and self.leaving != "other":
                await wait_for_extraction(self.runtime.agent, patience=EXTRACTION_WAIT_SECONDS)
            self._group.cancel_scope.cancel()
        handled = await self._stack.__aexit__(kind, error, trace)
        self.parting += self.runtime.agent.world.processes.take_notices()
        return handled

    async def run(
        self, prompt: str | tuple[TextOrMedia, ...] = (), *, id: str = ""
    ) -> AsyncGenerator[Event]:
        """Run one turn; closing the iterator stops it and answers every open call.

        Without a prompt it is about what came in since the last one, such as mail, or it goes on
        with a turn that was interrupted. `id` marks the prompt in the log.
        """
        assert self._group is not None, "use `async with LiveSession(...)`"
        content = (Text(prompt),) if isinstance(prompt, str) else prompt
        agent = self.runtime.agent
        if content:
            _check_prompt_fits(agent.session.view, User(content), self.runtime.model)
            agent.turn.inbox.extend(await read_mentions(agent, typed_text(content)))
            agent.turn.inbox.append(User(content, mail=id))
        done = anyio.Event()
        with agent.session.watch() as events:
            self._group.start_soon(self._run_turn, done)
            try:
                while not is_turn_end(event := await events.receive()):
                    yield event
                yield event
            finally:
                self.stop()
                with anyio.CancelScope(shield=True):
                    await done.wait()

    async def ask(self, prompt: str | tuple[TextOrMedia, ...]) -> str:
        """Run one turn and return the model's last words."""
        text = ""
        async for event in self.run(prompt):
            if isinstance(event, Entry) and isinstance(event.fact, Assistant):
                text = extract_text(event.fact.content)
        return text

    async def compact(self, focus: str = "", *, first: int = 0, last: int = 0) -> Compacted:
        """Compact the older conversation, or only the part from or up to an entry.

        Raises `UserError`, and leaves the conversation as it is, if that cannot help.
        """
        agent = self.runtime.agent
        self._require_idle()
        part = self._select_cut(first, last)
        try:
            with anyio.CancelScope() as self._scope:
                fact = await compaction.compact_conversation(
                    agent, trigger="manual", focus=focus, part=part
                )
                if fact is not None:
                    return fact
        finally:
            self._scope = None
        failed = agent.session.last.fact if agent.session.last else None
        why = failed.message if isinstance(failed, Failed) else "it was stopped"
        raise UserError("The conversation was not compacted", why=why, code=1)

    def switch(self, model: str) -> None:
        """Switch to another model; raises `UserError`, and changes nothing, if that fails."""
        self._require_idle()
        self.runtime.change_model(model)

    async def switch_with_summary(self, model: str) -> None:
        """Switch to another model; the current one summarises what does not fit."""
        self._require_idle()
        try:
            with anyio.CancelScope() as self._scope:
                await self.runtime.change_model_with_summary(model)
        finally:
            self._scope = None

    def exert(self, effort: str) -> None:
        """Change the model's effort; an empty word leaves it to the model."""
        self._require_idle()
        levels: dict[str, Effort] = {"": "", **{level: level for level in EFFORT_LEVELS}}
        if effort not in levels:
            raise UserError(
                f"Unknown effort {effort!r}", fix=f"Choose: {', '.join(EFFORT_LEVELS)}."
            )
        most = load_workspace(self._options)[1].settings.max_effort_level
        if effort and most and EFFORT_LEVELS.index(levels[effort]) > EFFORT_LEVELS.index(most):
            raise UserError(f"The effort cannot be {effort}", why=f"maxEffortLevel is {most}")
        self.runtime.set_effort(levels[effort])

    def enter(self, mode: str) -> None:
        """Switch the permission mode; bypass only if the session began with it."""
        modes: dict[str, PermissionMode] = {known: known for known in PERMISSION_MODES}
        found = modes.get(MODE_ALIASES.get(mode, mode))
        guard = self.runtime.agent.permissions.guard
        if found is None or found in guard.barred or found == "bypass" != guard.mode:
            why = "it can only be chosen at the start"
            why = "the settings disable it" if found in guard.barred else why
            why = why if found else "there is no such mode"
            fix = f"Choose one of: {', '.join(one for one in PERMISSION_MODES if one != 'bypass')}."
            raise UserError(f"Cannot switch to mode {mode}", why=why, fix=fix)
        enter_mode(self.runtime.agent, found)

    def _require_idle(self) -> None:
        if self.running:
            raise UserError(
                "A turn is running", fix="Wait for it to end or stop it, then try again."
            )

    def _select_cut(self, first: int, last: int) -> ConversationCut | None:
        if not first and not last:
            return None
        view = self.runtime.agent.session.view
        part = cut.cut_from_entry(view, first) if first else cut.cut_up_to_entry(view, last)
        if part is None:
            fix = "`travois context --all` shows the number of each message."
            raise UserError(
                f"There are no messages {'from' if first else 'up to'} {first or last}", fix=fix
            )
        return part

    def _run_in_background(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job beside the conversation, at most until the session is left."""

        async def run_job() -> None:
            await job()

        assert self._group is not None
        self._group.start_soon(run_job)

    async def _fire_end_hooks(self) -> None:
        """Fire the end hooks when the session is left."""
        self.parting = await hooks.fire_session_end(self.runtime.agent, self.leaving)
        if self.runtime.agent.session.jobs:
            self.parting += report_left_jobs(self.runtime.agent)

    async def _start_telemetry(
        self, runtime: SessionRuntime, telemetry: TelemetryOptions, stack: AsyncExitStack
    ) -> None:
        """Send telemetry to a collector from here on."""
        if not telemetry_installed():
            fix = installation.extra_command("otel")
            runtime.notices += (f"telemetry is enabled but not installed: {fix}",)
            return

        def add_parting_notice(why: str) -> None:
            self.parting += (why,)

        await stack.enter_async_context(
            otel.observe_session(runtime.agent, runtime.id, telemetry, tell=add_parting_notice)
        )

    def stop(self) -> None:
        """Stop the running turn, if there is one."""
        if self._scope is not None:
            self._scope.cancel()

    async def _run_turn(self, done: anyio.Event) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                await run_turn(self.runtime.agent)
        finally:
            self._scope = None
            done.set()


def typed_text(content: tuple[TextOrMedia, ...]) -> str:
    """Return the words that a person typed into a prompt, without attached texts."""
    texts = [block.text for block in content if isinstance(block, Text)]
    return texts[-1] if texts else ""


def is_turn_end(event: Event) -> bool:
    """Return whether an event ends a turn."""
    return isinstance(event, Entry) and isinstance(event.fact, Ended)


def _check_prompt_fits(view: View, said: User, model: Card) -> None:
    """Refuse a prompt that no request could hold, before it becomes part of the session.

    All that was said before can give way to it but the head and a summary.
    """
    fixed = head_tokens(view.epoch) if view.epoch else 0
    least = round(fixed * token_ratio(view)) + model.window // SUMMARY_WINDOW_SHARE
    size = round(fact_tokens(said) * token_ratio(view))
    room = stop_threshold(model) - min(context_tokens(view), least)
    if size > room:
        raise UserError(
            "The prompt does not fit into the context window",
            why=f"it is about {size:,} tokens, and {max(room, 0):,} of {model.window:,} are free",
            fix="Save it to a file and ask the model to read that file.",
        )
