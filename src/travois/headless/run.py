"""A headless run: runs turns and prints them in the output format."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterable, Callable, Iterable
from contextlib import aclosing
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec.structs import replace

from travois.commands.flags import options_from_args
from travois.compat.claude_json import JsonObject
from travois.compose import commands
from travois.compose.live_session import LiveSession, typed_text
from travois.compose.mcp import list_server_statuses
from travois.compose.session import load_workspace
from travois.compose.structured_output import StructuredAnswer, parse_answer_schema
from travois.compose.turn_tally import Outcome, TurnTally
from travois.core.content import TextOrMedia, extract_text
from travois.core.display_text import clean_for_stream, write_stderr
from travois.core.errors import UserError
from travois.core.facts import Assistant, Ended, Entry, Finished, Noted, Result
from travois.core.json import encode_json
from travois.core.models import ModelCard
from travois.engine.agent import Agent
from travois.engine.background_jobs import JOB_WAIT_SECONDS as JOB_PATIENCE
from travois.headless.control.agent_work import SubagentProgress
from travois.headless.control.tasks import TaskLines
from travois.headless.stream_json import StreamJsonOptions, StreamJsonWriter, build_failure_line
from travois.hooks.fire import HOOK_MODE_NAMES
from travois.lazy_imports import lazy_imports
from travois.memory.extraction import (
    EXTRACTION_WAIT_SECONDS,
    render_extraction_note,
    wait_for_extraction,
)
from travois.ports.world import CompactionProgress, Event, RequestRetrying, UserWarned
from travois.presentation import describe_activity
from travois.progress_line import ProgressLine
from travois.prompt.briefing import list_available_skills
from travois.settings.schema import Plugin
from travois.skills.command_text import TYPED_COMMAND
from travois.terminal import hold_hangups, ignore_hangups
from travois.version import __version__

if TYPE_CHECKING:
    pass

with lazy_imports():
    from travois.context.compaction import compact
    from travois.headless import codex_json, last_turn
    from travois.headless.control import callbacks
    from travois.tui import agent_progress, slash_registry


MIN_SHOWN_RETRY_SECONDS = 1.0
"""Retries that wait less than this are not reported."""
MAX_BACKGROUND_SECONDS = 3_600.0
"""Seconds to wait for background agents after the last reply."""
STATE_FOR_HOST_VARIABLE = "CLAUDE_CODE_SDK_READS_SESSION_STATE"
STATE_FOR_ALL_VARIABLE = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
"""Environment variables with which a client asks for session state events."""
DENIED_EXIT_CODE = 3
"""The exit code of `--fail-on-denial`."""
OUTCOME_EXIT_CODES: dict[Outcome, int] = {
    "done": 0,
    "failed": 1,
    "limit": 4,
    "refused": 5,
    "retryable": os.EX_TEMPFAIL,
    "interrupted": 130,
}
"""The exit codes of a run with one prompt."""
MAX_DENIALS = 5
"""Denied calls that are listed."""
RUN_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
NEWS_ORIGIN: JsonObject = {"kind": "task-notification"}
"""The origin of a turn without a prompt, started by news of a background agent."""
INTERRUPTED_END = Ended("aborted", "interrupted")
"""The end of a turn that was cut off by a signal or an error."""


class HeadlessRun:
    """A headless run, its output format and its exit code."""

    def __init__(self, args: Namespace) -> None:
        self.code = 0
        self.starting = ProgressLine()
        """Names what the start of the session waits for."""
        self.shape = _require_answer(args.json_schema)
        """The structured answer that is required, if any."""
        self.brought: Callable[[], JsonObject] = dict
        """Returns extra fields for the first line of a turn."""
        self.follow_with: Callable[[], None] = _do_nothing
        """Called before each result line, and after each reply."""
        self._telling = StreamJsonOptions(
            partial=args.include_partial_messages,
            replay=args.replay_user_messages,
            hooks=args.include_hook_events,
            forward=args.forward_subagent_text,
        )
        self._format: str = args.output_format
        self._alone: bool = args.input_format == "text"
        """True if no further prompt can come, so that background agents are waited for."""
        self._minds: dict[str, ModelCard] = {}
        """Models of the started subagents, by their ids."""
        self._finished: dict[int, Finished] = {}
        """Side work by entry that no turn has counted; some of it ends between turns."""
        self._counted: set[int] = set()
        """Entries that a turn has counted before `_watch_tasks` came to them."""
        self._over = False
        self._prompt_id: str = args.prompt_id
        self._state = ""
        self._fails_on_denial: bool = args.fail_on_denial
        self._children: list[TurnTally] = []
        """Tallies of the started subagents."""
        self._options = options_from_args(args)
        self._workspace = load_workspace(self._options)
        self.commands, notices = commands.compose_commands(self._options, workspace=self._workspace)
        for notice in notices:
            write_stderr(f"travois: {notice}\n")

    @cached_property
    def _codex_writer(self) -> codex_json.CodexJsonWriter:
        # Loads shlex and more, which no other format needs before the first request.
        return codex_json.CodexJsonWriter()

    def create_session(self, args: Namespace) -> LiveSession:
        """Create the session of a run without a client."""
        options, person, tool = self._options, None, args.permission_prompt_tool
        if tool.startswith("mcp__"):
            person = callbacks.HostUser(
                callbacks.PermissionPromptTool(tool, lambda: session.runtime.agent).ask
            )
            options = replace(options, driven=True)
        own = (self.shape.tool,) if self.shape else ()
        ears = self.shape.listeners if self.shape else ()
        session = LiveSession(
            options,
            person=person,
            tools=own,
            listeners=ears,
            report_start=self.starting.show,
            workspace=self._workspace,
        )
        return session

    def apply_greeting(self, *, schema: str, forward: bool) -> None:
        """Apply the options of the client's `initialize`."""
        self.shape = _require_answer(schema) or self.shape
        if forward:
            self._telling = replace(self._telling, forward=True)

    async def watch_signals(self, scope: anyio.CancelScope) -> None:
        """Stop the turn on the first signal, leaving a session to resume; a second one kills."""
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # by `nohup`, for one
        heeded = [one for one in RUN_EXIT_CODES if one != signal.SIGHUP or not ignored]
        with anyio.open_signal_receiver(*heeded) as signals:
            async for number in signals:
                self.code = self.code if self._over else RUN_EXIT_CODES[number]
                scope.cancel()
                if number != signal.SIGHUP:
                    return
                hold_hangups()
                break
        ignore_hangups()

    async def finish_memory(
        self, session: LiveSession, *, patience: float = EXTRACTION_WAIT_SECONDS
    ) -> None:
        """Wait for memory extraction; from here on the exit code is final."""
        self._over = True
        if told := await wait_for_extraction(session.runtime.agent, patience=patience):
            write_stderr(f"travois: {told}\n")

    def report_state(self, state: str) -> None:
        """Report whether work is under way, if the client asked for it."""
        asked = [name in os.environ for name in (STATE_FOR_HOST_VARIABLE, STATE_FOR_ALL_VARIABLE)]
        if state != self._state and any(asked):
            line: JsonObject = {
                "type": "system",
                "subtype": "session_state_changed",
                "state": state,
            }
            print_json_line(line | ({} if asked[1] else {"sdk_host_only": True}))
        self._state = state

    def create_writer(self, session: LiveSession, *, parent: str | None = None) -> StreamJsonWriter:
        """Create the writer for a turn, or for the subagents of a call."""
        tally = TurnTally(session.runtime.model, self._minds)
        return StreamJsonWriter(session.id, tally, telling=self._telling, parent=parent)

    def follow_subagents(self, session: LiveSession, group: TaskGroup) -> None:
        """Follow subagents and report their work."""
        agent, before = session.runtime.agent, session.runtime.agent.team.on_child

        def on_child(child: Agent) -> None:
            before(child)
            if child.team.birth is not None and child.session.view.epoch is not None:
                self._minds[child.team.birth.id] = child.session.view.epoch.model
            group.start_soon(self._count_denials, child)
            if self._format == "stream-json":
                group.start_soon(self._print_subagent, session, child)

        agent.team.on_child = on_child
        if self._format == "stream-json":
            agent_progress.enable_activity_names(agent)
        group.start_soon(self._watch_tasks, session)

    async def _watch_tasks(self, session: LiveSession) -> None:
        tasks = TaskLines(session.id)
        with session.runtime.agent.session.watch() as events:
            async for event in events:
                if isinstance(event, Entry) and isinstance(event.fact, Finished):
                    self._note_side_work(event.seq, event.fact)
                for line in tasks.lines(event) if self._format == "stream-json" else ():
                    print_json_line(line)

    def _note_side_work(self, seq: int, fact: Finished) -> None:
        """Note side work for the next result, unless a turn has counted it."""
        if seq in self._counted:
            self._counted.remove(seq)
        else:
            self._finished[seq] = fact

    def _count_side_work(self, seq: int) -> None:
        """Note that a turn counts this side work itself."""
        if self._finished.pop(seq, None) is None:
            self._counted.add(seq)

    async def _count_denials(self, child: Agent) -> None:
        """Count the denied calls of a subagent."""
        epoch = child.session.view.epoch
        assert epoch is not None
        tally = TurnTally(epoch.model)
        self._children.append(tally)
        with child.session.watch() as events:
            async for event in events:
                if isinstance(event, Entry):
                    tally.add(event)

    async def _print_subagent(self, session: LiveSession, child: Agent) -> None:
        """Print a subagent's work under the call that started it."""
        assert child.team.birth is not None
        top = session.runtime.agent.session.children[child.team.birth.id.partition(".")[0]]
        speaker = self.create_writer(session, parent=top.call)
        work = SubagentProgress(session.id, top, before=child.session.history())
        with child.session.watch() as events:
            async for event in events:
                for line in (*speaker.subagent_lines(event), *work.lines(event)):
                    print_json_line(line)

    def report_unstarted_turn(self, session: LiveSession, why: str) -> None:
        """Report a turn that could not start."""
        speaker = self.create_writer(session)
        speaker.tally.ended = Ended("crashed", why)
        self._print_outcome(speaker, seconds=0.0)

    def report_cleared(self, old: LiveSession, session: LiveSession) -> None:
        """Report that a session took the place of another one, whose conversation was cleared."""
        print_json_line(self.create_writer(old).reset_line(session.id))
        speaker = self.create_writer(session)
        speaker.tally.ended = Ended("end")
        self._print_opening(session, speaker)
        self._print_outcome(speaker, seconds=0.0)

    def report_unopened_session(self, session: str, why: str) -> None:
        """Report a session that could not be opened, as the result that clients read."""
        if self._format == "stream-json":
            print_json_line(build_failure_line(session, why))

    async def continue_last_turn(self, session: LiveSession) -> None:
        """Go on with the turn that was interrupted; print the result of one that was not."""
        turn = last_turn.find_last_turn(session.runtime.agent.session)
        if turn.is_interrupted:
            await self.run_turn(session, (), continues=True)
            return
        write_stderr("travois: nothing was interrupted; this is the last result\n")
        speaker = self.create_writer(session)
        speaker.tally.shape = self.shape
        if self.shape is not None:
            self.shape.recall_answer(turn.entries)
        self._print_opening(session, speaker)
        for entry in turn.entries:
            lines = self._event_lines(entry, speaker)
            if self._format == "codex-json":
                for line in lines:
                    print_json_line(line)
        self._print_outcome(speaker, seconds=turn.seconds)

    def was_prompted(self, session: LiveSession) -> bool:
        """Return whether an earlier run sent this very prompt, as `--prompt-id` tells."""
        mark = last_turn.make_prompt_id(self._prompt_id)
        return mark in session.runtime.agent.session.received

    async def run_turn(
        self,
        session: LiveSession,
        prompt: tuple[TextOrMedia, ...],
        *,
        given: str = "",
        origin: JsonObject | None = None,
        continues: bool = False,
    ) -> bool:
        """Run and print one turn; return whether it started.

        `given` is the id of its prompt for the client and `origin` what it says of its author;
        `continues` is true for a turn that an earlier run began.
        """
        speaker = self.create_writer(session)
        speaker.tally.ended = INTERRUPTED_END
        speaker.tally.shape, speaker.given = self.shape, given
        unasked = not prompt and not continues
        speaker.origin = NEWS_ORIGIN if unasked else origin
        if continues and (reply := last_turn.find_last_reply(session.runtime.agent.session)):
            speaker.tally.text, speaker.tally.stop = extract_text(reply.content), reply.stop
        if self.shape is not None:
            self.shape.begin_turn()
        start = monotonic()
        self._print_opening(session, speaker)
        try:
            await self._run_and_print(session, prompt, speaker=speaker)
        except UserError as fault:
            speaker.tally.ended = Ended("failed", str(fault))
            self.code = fault.code if self._alone else self.code
            return False
        finally:
            self._print_outcome(speaker, seconds=monotonic() - start)
        return True

    async def _run_and_print(
        self, session: LiveSession, prompt: tuple[TextOrMedia, ...], *, speaker: StreamJsonWriter
    ) -> None:
        if (found := TYPED_COMMAND.fullmatch(typed_text(prompt).strip())) and found[
            1
        ] not in self.commands:
            if found[1] == "compact":
                await self._run_compaction(session, found[2] or "", speaker=speaker)
                return
            if why := _terminal_only_reason(found[1]):
                speaker.tally.ended = Ended("crashed", why)
                return
        mark = last_turn.make_prompt_id(self._prompt_id)
        async with aclosing(session.run(prompt, id=mark)) as events:
            with ProgressLine() as progress:
                await self._print_turn(events, progress, speaker=speaker)
        if self._alone and speaker.tally.ended.why == "end" and await wait_for_background(session):
            await self._run_and_print(session, (), speaker=speaker)

    async def _print_turn(
        self, events: AsyncIterable[Event], progress: ProgressLine, *, speaker: StreamJsonWriter
    ) -> None:
        async for event in events:
            if self._format in ("text", "json"):
                _show_activity(event, progress)
            for line in self._event_lines(event, speaker):
                print_json_line(line)
            if isinstance(event, Entry) and isinstance(event.fact, Assistant | Result):
                self.follow_with()

    async def _run_compaction(
        self, session: LiveSession, focus: str, *, speaker: StreamJsonWriter
    ) -> None:
        """Compact the conversation in place of a turn."""
        with session.runtime.agent.session.watch() as events:
            try:
                await self._compact_and_print(session, focus, speaker=speaker, events=events)
            finally:  # also what is left to say of one that was stopped
                while events.statistics().current_buffer_used:
                    self._print_event(events.receive_nowait(), speaker)

    async def _compact_and_print(
        self,
        session: LiveSession,
        focus: str,
        *,
        speaker: StreamJsonWriter,
        events: MemoryObjectReceiveStream[Event],
    ) -> None:
        """Compact and print events meanwhile: writing a summary may take minutes."""

        async def print_events() -> None:
            with ProgressLine() as progress:
                await self._print_turn(events, progress, speaker=speaker)

        async with anyio.create_task_group() as group:
            group.start_soon(print_events)
            try:
                speaker.tally.text = compact.describe_compaction(
                    await session.compact(focus.strip())
                )
                speaker.tally.ended = Ended("end")
            except UserError as fault:
                speaker.tally.ended = Ended("crashed", str(fault))
            group.cancel_scope.cancel()

    def _print_event(self, event: Event, speaker: StreamJsonWriter) -> None:
        for line in self._event_lines(event, speaker):
            print_json_line(line)

    def _print_opening(self, session: LiveSession, speaker: StreamJsonWriter) -> None:
        if self._format == "stream-json":
            print_json_line(
                speaker.init_line(_session_json(session, tuple(self.commands)) | self.brought())
            )
        elif self._format == "codex-json":
            for line in self._codex_writer.opening_lines(session.id):
                print_json_line(line)

    def _event_lines(self, event: Event, speaker: StreamJsonWriter) -> Iterable[JsonObject]:
        """Return the lines of an event, after it is added to the tally."""
        if isinstance(event, Entry) and isinstance(event.fact, Finished):
            self._count_side_work(event.seq)
        if self._format == "stream-json":
            return speaker.lines(event)
        if isinstance(event, Entry):
            speaker.tally.add(event)
        return self._codex_writer.lines(event) if self._format == "codex-json" else ()

    def _print_outcome(self, speaker: StreamJsonWriter, *, seconds: float) -> None:
        tally = speaker.tally
        for fact in self._finished.values():
            tally.add_side_cost(fact)
        self._finished.clear()
        if self.code <= 1:  # a signal and bad input have codes of their own
            failed = int(tally.is_failure)
            self.code = OUTCOME_EXIT_CODES[tally.outcome] if self._alone else failed
        self._print_denials(tally)
        if self._format == "codex-json":
            for line in self._codex_writer.closing_lines(tally):
                print_json_line(line)
            return
        if self._format != "text":
            self.follow_with()
            print_json_line(speaker.result_line(seconds))
            return
        if text := self._outcome_text(tally):
            sys.stdout.write(clean_for_stream(text + "\n", sys.stdout))
            sys.stdout.flush()
        if tally.is_failure and (tally.ended is not INTERRUPTED_END or self.code > 1):
            write_stderr(f"travois: {tally.failure_text}\n")

    def _print_denials(self, tally: TurnTally) -> None:
        """Print which calls were denied; with `--fail-on-denial`, set the exit code."""
        denied = [*tally.denied, *(one for child in self._children for one in child.denied)]
        if not denied:
            return
        if self._alone:
            many = f"{len(denied)} tool calls were" if len(denied) > 1 else "a tool call was"
            write_stderr(f"travois: {many} denied\n")
            for tool, because in denied[:MAX_DENIALS]:
                write_stderr(f"  {tool}: {because}\n")
            if len(denied) > MAX_DENIALS:
                write_stderr(f"  and {len(denied) - MAX_DENIALS} more\n")
        if self._fails_on_denial and not self.code:
            self.code = DENIED_EXIT_CODE

    def _outcome_text(self, tally: TurnTally) -> str:
        """Return the text to print: only the structured answer if one is required."""
        if self.shape is None or not self.shape.given:
            return tally.text
        return msgspec.json.encode(self.shape.value).decode()


def _do_nothing() -> None:
    pass


def _require_answer(schema: str) -> StructuredAnswer | None:
    return StructuredAnswer(parse_answer_schema(schema)) if schema else None


def _show_activity(event: Event, progress: ProgressLine) -> None:
    """Show what a headless run does, and what its user should hear of, on standard error."""
    if doing := describe_activity(event):
        progress.show(doing)
    if isinstance(event, CompactionProgress) and progress.is_watched:
        return
    if notice := _notice_text(event):
        progress.clear()
        write_stderr(f"travois: {notice}\n")


def _notice_text(event: Event) -> str:
    """Return what a headless run prints of an event on standard error; empty for nothing."""
    match event:
        case UserWarned(text=text):
            return text
        case RequestRetrying(message=message, wait=wait) if wait >= MIN_SHOWN_RETRY_SECONDS:
            return f"{message}; retrying in {wait:.0f} s"
        case CompactionProgress(seconds=seconds) if seconds:
            return f"writing the compaction summary ({seconds:.0f} s so far)"
        case Entry(fact=Noted(what="memory", text=text)):
            return render_extraction_note(text)
        case _:
            return ""


def _terminal_only_reason(command: str) -> str:
    """Return why a slash command cannot run headless; empty for a prompt."""
    return (
        f"/{command} is available only in the terminal"
        if command in slash_registry.SLASH_COMMANDS
        else ""
    )


async def wait_for_background(session: LiveSession) -> bool:
    """Wait for a headless run's background work; return whether there is news."""
    with anyio.move_on_after(MAX_BACKGROUND_SECONDS):
        return await session.news(patience=JOB_PATIENCE)
    return False


def _session_json(session: LiveSession, commands: tuple[str, ...]) -> JsonObject:
    """Describe the session on the first line of a headless run's turn."""
    runtime, mode = session.runtime, session.runtime.agent.permissions.guard.mode
    return {
        "cwd": runtime.agent.world.root,
        "model": runtime.model.id,
        "tools": list(runtime.agent.tools.by_name),
        "mcp_servers": list_server_statuses(runtime.mcp_servers),
        "permissionMode": HOOK_MODE_NAMES.get(mode, mode),
        "slash_commands": list(commands),
        "skills": [skill.name for skill in list_available_skills(runtime.agent).skills],
        "agents": list(runtime.agent.team.children.kinds) if runtime.agent.team.children else [],
        "plugins": [_plugin_json(one) for one in runtime.plugins],
        "output_style": runtime.style,
        "apiKeySource": runtime.key_source,
        "claude_code_version": __version__,
        "betas": list(runtime.model.betas),
    }


def _plugin_json(plugin: Plugin) -> JsonObject:
    told: JsonObject = {"name": plugin.name, "path": plugin.folder}
    return told | ({"version": plugin.version} if plugin.version else {})


def print_json_line(line: JsonObject) -> None:
    """Print one JSON line of a headless run and flush."""
    sys.stdout.buffer.write(encode_json(line) + b"\n")
    sys.stdout.buffer.flush()
