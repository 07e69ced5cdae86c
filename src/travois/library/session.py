"""`Session`: one conversation with an agent, driven by a program."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, cast, overload

import anyio
from msgspec.structs import replace

from travois.compose.live_session import LiveSession
from travois.compose.structured_output import ANSWER_MISSING, NO_VALID_ANSWER
from travois.compose.turn_tally import TurnTally
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Entry
from travois.core.models import ModelCard
from travois.engine.agent import Agent
from travois.extensions.custom_models import CustomModel
from travois.extensions.function_hooks import build_function_listener
from travois.extensions.function_tools import build_function_tool
from travois.extensions.permission_callback import CallbackPerson
from travois.lazy_imports import lazy_imports
from travois.library.events import (
    ConversationCompacted,
    Event,
    TextDelta,
    TurnEnded,
    translate_event,
)
from travois.library.options import Options, build_compose_options
from travois.library.results import OutputT, Result, RunFailures, ToolFailure, build_run_result
from travois.ports.tool import AnyTool
from travois.ports.world import ModelClient

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from travois.extensions.custom_models import ModelProvider
    from travois.library.output_types import RequiredOutput

    NewOutputT = TypeVar("NewOutputT")

with lazy_imports():
    from travois.extensions import in_process_mcp
    from travois.library import output_types

JsonSchema = Mapping[str, Any]


class EventStream(Generic[OutputT]):
    """The events of one run; iterate over it once. Leaving the loop early stops the turn."""

    def __init__(self, events: AsyncGenerator[Event]) -> None:
        self._events = events
        self._result: Result[OutputT] | None = None

    async def __aiter__(self) -> AsyncIterator[Event]:
        async with aclosing(self._events) as events:
            async for event in events:
                if isinstance(event, TurnEnded):
                    self._result = event.result
                yield event

    async def text_stream(self) -> AsyncIterator[str]:
        """Yield the model's text as it arrives, and nothing else."""
        async with aclosing(self._events) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text
                elif isinstance(event, TurnEnded):
                    self._result = event.result

    @property
    def result(self) -> Result[OutputT]:
        """The result, once the stream has ended."""
        if self._result is None:
            raise UserError("The run has not ended", fix="Read the stream to its end first.")
        return self._result


class Session:
    """One conversation. Leaving the block stops what runs and keeps everything on disk."""

    def __init__(
        self, options: Options | None = None, *, model: str | ModelProvider | ModelClient = ""
    ) -> None:
        """`model` is that of the options, if it is given here."""
        chosen = options or Options()
        self.options = replace(chosen, model=model) if model else chosen
        """The options that the session was made with."""
        self._composed = build_compose_options(self.options)
        self._tools = tuple(
            build_function_tool(each, self._note_failure) for each in self.options.tools
        )
        self._failures = RunFailures()
        self._stack = AsyncExitStack()
        self._live: LiveSession | None = None
        self._events: AsyncGenerator[Event] | None = None
        """The events of the last run."""
        self._run_over = anyio.Event()
        self._run_task = 0
        """The task that reads the events of the last run."""
        self._minds: dict[str, ModelCard] = {}
        """The models of the subagents, by their ids."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            servers = await self._connect_servers(stack)
            live = await stack.enter_async_context(self._create_live_session(servers))
            self._live = live
            self._follow_models(live.runtime.agent)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._events is not None:
            with suppress(RuntimeError):  # as above: it is being closed elsewhere
                await self._events.aclose()
        try:
            return await self._stack.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            _raise_single(group, error)
            return False

    @property
    def id(self) -> str:
        """The id under which the session can be resumed."""
        return self._open_session.id

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self._open_session.runtime.model.name

    @property
    def notices(self) -> tuple[str, ...]:
        """What whoever runs the session should know from its start, such as ignored settings."""
        return self._open_session.runtime.notices

    @overload
    async def run(
        self, prompt: str, *, output: None = None, raise_on_error: bool = False
    ) -> Result[None]: ...

    @overload
    async def run(
        self, prompt: str, *, output: type[NewOutputT], raise_on_error: bool = False
    ) -> Result[NewOutputT]: ...

    @overload
    async def run(
        self, prompt: str, *, output: JsonSchema, raise_on_error: bool = False
    ) -> Result[Any]: ...

    async def run(
        self,
        prompt: str,
        *,
        output: type[Any] | JsonSchema | None = None,
        raise_on_error: bool = False,
    ) -> Result[Any]:
        """Run one prompt to its end. The result says what came of it, also if that is an error.

        `output` is a type or JSON schema that the answer must fit. An empty prompt goes on with a
        turn that was interrupted.
        """
        stream = self.stream(prompt, output=output)
        async for _ in stream:
            pass
        return stream.result.raise_for_error() if raise_on_error else stream.result

    async def ask(self, prompt: str) -> str:
        """Run one prompt and return the text of the answer; raises `RunError` without one."""
        return (await self.run(prompt, raise_on_error=True)).text

    @overload
    def stream(self, prompt: str, *, output: None = None) -> EventStream[None]: ...

    @overload
    def stream(self, prompt: str, *, output: type[NewOutputT]) -> EventStream[NewOutputT]: ...

    @overload
    def stream(self, prompt: str, *, output: JsonSchema) -> EventStream[Any]: ...

    @overload
    def stream(self, prompt: str, *, output: type[Any] | JsonSchema | None) -> EventStream[Any]: ...

    def stream(
        self, prompt: str, *, output: type[Any] | JsonSchema | None = None
    ) -> EventStream[Any]:
        """Run one prompt and return its events as they happen; the last one has the result."""
        return EventStream(self._stream_run(prompt, output))

    async def run_once(self, prompt: str, *, mark: str, output: Any = None) -> Result[Any]:
        """Run a prompt that may have been sent before, under this mark, by a run that was lost.

        What is left of its turn is finished then; the prompt is not sent again.
        """
        session = self._open_session.runtime.agent.session
        received = mark in session.received
        stream = EventStream[Any](self._stream_run("" if received else prompt, output, mark=mark))
        async for _ in stream:
            pass
        replies = (item.fact for item in reversed(session.view.items))
        last = next((fact for fact in replies if isinstance(fact, Assistant)), None)
        text = stream.result.text or (extract_text(last.content) if last and received else "")
        return replace(stream.result, text=text)

    def stop(self) -> None:
        """Stop the running turn; its result says `interrupted`."""
        self._open_session.stop()

    async def compact(self, focus: str = "") -> ConversationCompacted:
        """Replace older messages by a summary; `focus` says what it must keep."""
        fact = await self._open_session.compact(focus)
        return ConversationCompacted(fact.before, fact.after)

    def set_model(self, name: str) -> None:
        """Answer with another model from the next turn on."""
        self._open_session.switch(name)

    def set_effort(self, effort: str) -> None:
        """Change the model's effort; empty leaves it to the model."""
        self._open_session.exert(effort)

    def set_mode(self, mode: str) -> None:
        """Switch the permission mode."""
        self._open_session.enter(mode)

    # --- how it works -----------------------------------------------------------------------------

    @property
    def _open_session(self) -> LiveSession:
        if self._live is None:
            raise UserError(
                "The session is not open", fix="Use `async with Session(…) as session`."
            )
        return self._live

    async def _connect_servers(self, stack: AsyncExitStack) -> tuple[AnyTool, ...]:
        """Connect the MCP servers of this process; return their tools."""
        found: list[AnyTool] = []
        for name, server in self.options.mcp_servers.items():
            if not isinstance(server, Mapping):
                connecting = in_process_mcp.connect_in_process(name, server)
                found += await stack.enter_async_context(connecting)
        return tuple(found)

    def _create_live_session(self, servers: tuple[AnyTool, ...]) -> LiveSession:
        options, model = self.options, self.options.model
        answers = options.on_permission or options.on_question
        person = CallbackPerson(options.on_permission, options.on_question) if answers else None
        return LiveSession(
            self._composed,
            model=model if isinstance(model, str) else adapt_model(model),
            person=person,
            tools=(*self._tools, *servers),
            listeners=tuple(build_function_listener(each) for each in options.hooks),
            layers=tuple(options.layers),
        )

    def _follow_models(self, agent: Agent) -> None:
        """Note the models of subagents, whose prices apply to what they use."""
        before = agent.team.on_child

        def on_child(child: Agent) -> None:
            before(child)
            if child.team.birth is not None and child.session.view.epoch is not None:
                self._minds[child.team.birth.id] = child.session.view.epoch.model

        agent.team.on_child = on_child

    def _note_failure(self, tool: str, error: Exception) -> None:
        """Note an exception of a tool; end the turn if the tool asks for that."""
        failure = ToolFailure(tool, error)
        self._failures.tools.append(failure)
        policy = next(one.settings.on_error for one in self.options.tools if one.name == tool)
        if policy == "stop_turn":
            self._failures.fatal = self._failures.fatal or failure
            self._end_running_turn(f"{tool} failed: {error}")

    def _end_running_turn(self, why: str) -> None:
        """End the running turn before its next request."""
        self._open_session.runtime.agent.turn.stop_reason = why

    async def _stream_run(
        self, prompt: str, output: type[Any] | JsonSchema | None, *, mark: str = ""
    ) -> AsyncGenerator[Event]:
        """Yield the events of a run, which begins once no other one runs."""
        live = self._open_session
        await self._wait_for_last_run()
        self._run_over, self._run_task = anyio.Event(), anyio.get_current_task().id
        self._failures = RunFailures()
        self._events = self._count_as_run(self._run_all_turns(live, prompt, output, mark))
        async with aclosing(self._events) as events:
            async for event in events:
                yield event

    async def _count_as_run(self, turns: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        """Yield the events of turns; when it is closed, the next run may begin."""
        try:
            async with aclosing(turns) as events:
                async for event in events:
                    yield event
        finally:
            self._run_over.set()

    async def _wait_for_last_run(self) -> None:
        """Wait for the last run; one whose events nobody reads any more is stopped."""
        if self._events is None:
            return
        if self._run_task == anyio.get_current_task().id:
            with suppress(RuntimeError):  # it is just being closed, because its loop was left
                await self._events.aclose()
        await self._run_over.wait()

    def _require_output(self, output: type[Any] | JsonSchema | None) -> RequiredOutput | None:
        if output is None:
            return None
        required = output_types.RequiredOutput(
            output, on_exhausted=lambda: self._end_running_turn(NO_VALID_ANSWER)
        )
        required.install_tool(self._open_session.runtime.agent)
        return required

    async def _run_all_turns(
        self, live: LiveSession, prompt: str, output: type[Any] | JsonSchema | None, mark: str
    ) -> AsyncGenerator[Event]:
        """Run turns until the model has finished, with the required output if there is one."""
        required, said = self._require_output(output), prompt
        tally = TurnTally(live.runtime.model, self._minds)
        while said is not None:
            async with aclosing(self._run_one_turn(live, said, tally, mark=mark)) as events:
                async for event in events:
                    yield event
            said, mark = await self._next_prompt(live, tally, required), ""
        self._failures.is_output_missing = required is not None and required.is_missing
        value = required.value if required is not None else None
        yield TurnEnded(build_run_result(tally, self._failures, session_id=live.id, output=value))

    async def _run_one_turn(
        self, live: LiveSession, prompt: str, tally: TurnTally, *, mark: str
    ) -> AsyncGenerator[Event]:
        """Run one turn, and count what it uses."""
        async with aclosing(live.run(prompt or (), id=mark)) as events:
            async for event in events:
                shown = tally.add(event) if isinstance(event, Entry) else tally.items.add(event)
                for each in translate_event(shown):
                    yield each

    async def _next_prompt(
        self, live: LiveSession, tally: TurnTally, required: RequiredOutput | None
    ) -> str | None:
        """Return what to say after a turn: empty to hear subagents; None if the run is over."""
        if tally.ended.why != "end":
            return None
        if await live.news(patience=0.0):
            return ""
        if required is not None and required.is_missing and required.count_missing_output():
            return ANSWER_MISSING
        return None


def adapt_model(model: ModelProvider | ModelClient) -> ModelClient:
    """Return a model of a program's own as the engine asks one."""
    return model if isinstance(model, ModelClient) else CustomModel(model)


def _raise_single(group: BaseExceptionGroup[BaseException], inner: BaseException | None) -> None:
    """Raise the one error in a group as itself; nothing if that is already on its way."""
    leaves = [*_list_leaves(group)]
    others = [one for one in leaves if one is not inner]
    if not others:
        return
    if len(others) == 1:
        raise others[0] from others[0].__cause__
    raise group


def _list_leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _list_leaves(cast("BaseExceptionGroup[BaseException]", one))
        else:
            yield one


@overload
def run_sync(
    prompt: str,
    options: Options | None = None,
    *,
    model: str | ModelProvider | ModelClient = "",
    output: None = None,
    raise_on_error: bool = False,
) -> Result[None]: ...


@overload
def run_sync(
    prompt: str,
    options: Options | None = None,
    *,
    model: str | ModelProvider | ModelClient = "",
    output: type[NewOutputT],
    raise_on_error: bool = False,
) -> Result[NewOutputT]: ...


@overload
def run_sync(
    prompt: str,
    options: Options | None = None,
    *,
    model: str | ModelProvider | ModelClient = "",
    output: JsonSchema,
    raise_on_error: bool = False,
) -> Result[Any]: ...


def run_sync(
    prompt: str,
    options: Options | None = None,
    *,
    model: str | ModelProvider | ModelClient = "",
    output: Any = None,
    raise_on_error: bool = False,
) -> Result[Any]:
    """Run one prompt in a session of its own, from a program without an event loop."""

    async def main() -> Result[Any]:
        async with Session(options, model=model) as session:
            return await session.run(prompt, output=output, raise_on_error=raise_on_error)

    _refuse_event_loop()
    return anyio.run(main)


def _refuse_event_loop() -> None:
    """Refuse to block an event loop, which a notebook or a web server runs."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return
    raise UserError(
        "run_sync cannot be used while an event loop runs, as in a notebook or a web server",
        fix="Use `async with Session(…) as session` and `await session.run(…)` there.",
    )
