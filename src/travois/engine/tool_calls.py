"""Tool calls: parsing, deciding, running and recording them."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import combinations
from traceback import format_exception
from typing import Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from travois.agents.mailbox import AgentOutbox
from travois.agents.task_list import AgentTasks
from travois.context.tool_results import ResultRoom
from travois.context.window import result_room_for_call
from travois.core.content import Call, Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Asked, Decided, Noted, Result
from travois.core.view import open_calls
from travois.engine import loop_detection, permission_gate
from travois.engine.agent import MODE_STATE, Agent, World, apply_mode
from travois.engine.edit_checks import add_new_problems, read_files_before
from travois.engine.interpret_call import InterpretedCall, MeaninglessCall, interpret_call
from travois.engine.permission_gate import (
    ApprovalSource,
    CallDecision,
    ParsedCall,
    ask_person,
    build_call_context,
    decide_call,
    preapprove_call,
    sandbox_for_git,
)
from travois.engine.tmp_folder import (
    describe_tmp_paths,
    find_sandbox_denial,
    hidden_cwd_access,
    locate_calls,
)
from travois.hooks import fire
from travois.hooks.events import AnyHookEvent, CwdChanged
from travois.hooks.output import HookDecision
from travois.lazy_imports import lazy_imports
from travois.memory.memory import MemoryRecorder
from travois.permissions.access import accesses_collide
from travois.permissions.decide import decide_permission
from travois.permissions.resolve_paths import (
    JudgedFiles,
    hidden_path_filter,
    plan_command_lines,
    resolve_accesses,
)
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.tool import CallLocation, ToolError, ToolOutcome, refuse_nul_paths
from travois.ports.world import (
    Choice,
    ChoiceRequest,
    ToolProgress,
    ToolStarted,
    UnansweredQuestion,
    WebSearch,
)
from travois.prompt.briefing import brief_on_touched_files
from travois.sandbox.policy import runs_outside_sandbox
from travois.sessions.session import Session
from travois.skills.skills import SkillRunner
from travois.snapshots.before_call import snapshot_before_calls
from travois.snapshots.uncovered import stamp_uncovered, warn_of_changed

with lazy_imports():
    from travois.memory import extract_memories

RAN_READ_ONLY = "It ran read-only and without network: nothing that it wrote outside /tmp was kept."
RUNS_READ_ONLY = (
    "It runs read-only and without network: nothing that it writes outside /tmp is kept. "
    "If it needs more, end it and call again with sandbox: write."
)
TRIAL_SECONDS = 20
"""The seconds of a read-only run before the person is asked."""
MAX_FAILURE_CHARS = 300
LONG_CALL_CHARS = 20_000
"""Arguments of more characters are judged in a thread: shorter ones take a few milliseconds."""
MAX_PARALLEL_CALLS = 16
"""The most calls of one reply that run in parallel."""


class InvalidCall(msgspec.Struct, frozen=True):
    """A call that cannot run, and why; `crash` is the traceback of a bug of ours."""

    call: Call
    why: str
    crash: str = ""
    by: Literal["schema", "loop"] = "schema"


async def run_tool_calls(agent: Agent) -> None:
    """Run every open tool call; calls that cannot collide run in parallel."""
    waiting = list(open_calls(agent.session.view))
    asked, ran = bool(waiting), list[ParsedCall]()
    if asked and agent.world.snapshots is not None and agent.permissions.guard.mode != "plan":
        agent.world.snapshots.prepare()
    while waiting and not agent.turn.stop_reason:
        await _judge_long_calls(agent, waiting)
        batch = _next_batch(agent, waiting)
        del waiting[: len(batch) or 1]
        rulings = [await _decide_and_record(agent, ready) for ready in batch]
        allowed = [ruled for ruled in rulings if ruled is not None]
        if any(
            access.kind != "read" for ready, _ in allowed for access in ready.collision_accesses
        ):
            # The decision reaches the disk before anything changes: a crash must not hide it.
            agent.session.sync()
        await snapshot_before_calls(agent, [ready for ready, ruling in allowed if not ruling.trial])
        await _run_batch(agent, allowed)
        ran += (ready for ready, _ in allowed)
    await brief_on_touched_files(agent, ran)
    if agent.hooks.active is not None and asked and not agent.turn.stop_reason:
        await fire.on_tool_batch(agent)


async def _judge_long_calls(agent: Agent, waiting: Sequence[Call]) -> None:
    """Judge very long tool calls in a thread first, so that Esc and limits still work.

    What takes long is remembered, so that judging them again takes no time.
    """
    for call in waiting[:MAX_PARALLEL_CALLS]:
        if len(call.args) > LONG_CALL_CHARS:
            await anyio.to_thread.run_sync(_judge_in_thread, agent, call)


def _judge_in_thread(agent: Agent, call: Call) -> None:
    """Parse and judge a long tool call in advance, so that its results are cached."""
    ready = parse_call(agent, call)
    if isinstance(ready, ParsedCall):
        decide_permission(agent.permissions.guard, build_call_context(agent, ready))


async def _run_batch(agent: Agent, batch: Sequence[tuple[ParsedCall, CallDecision]]) -> None:
    """Run a batch of tool calls in parallel, or in turn if hooks made them collide."""
    if agent.hooks.active is not None and _has_collisions(batch):
        for ready, ruling in batch:
            await _run_and_record(agent, ready, ruling)
        return
    if len(batch) == 1:
        await _run_and_record(agent, *batch[0])
        return
    try:
        async with anyio.create_task_group() as group:
            for ready, ruling in batch:
                group.start_soon(_run_and_record, agent, ready, ruling)
    except BaseExceptionGroup as broken:  # a fault stays the same, alone or in company
        raise broken.exceptions[0] from broken


def _has_collisions(batch: Sequence[tuple[ParsedCall, CallDecision]]) -> bool:
    """Return whether tool calls collide after hooks changed them."""
    touching = (ready.collision_accesses for ready, _ in batch)
    return any(accesses_collide(one, other) for one, other in combinations(touching, 2))


async def _decide_and_record(
    agent: Agent, ready: ParsedCall
) -> tuple[ParsedCall, CallDecision] | None:
    """Decide on a tool call and log it; return None, with a result, if it is denied."""
    if agent.turn.stop_reason:
        return None
    if agent.hooks.active is None:
        ready, ruling = permission_gate.apply_changed_input(
            agent, ready, await decide_call(agent, ready), _reparse_call
        )
    else:
        ready, ruling = await permission_gate.decide_with_hooks(agent, ready, _reparse_call)
    agent.session.append(ruling.decided)
    if ruling.decided.verdict == "allow":
        return ready, ruling
    text = f"Permission denied: {ruling.decided.because}. Nothing was run."
    if agent.hooks.active is not None and await _fire_denied_hook(agent, ready, ruling.decided):
        text += " A hook allows another attempt."
    _record_result(agent, ready.call, ToolOutcome((Text(text),), error=True))
    return None


async def _fire_denied_hook(agent: Agent, ready: ParsedCall, decided: Decided) -> bool:
    """Fire the PermissionDenied hook; return whether it lets the model try again."""
    if decided.by == "hook":
        return False
    return await fire.on_permission_denied(
        agent, ready.call, build_call_context(agent, ready), why=decided.because
    )


def _reparse_call(agent: Agent, call: Call) -> ParsedCall | str:
    found = parse_call(agent, call)
    return found.why if isinstance(found, InvalidCall) else found


def _next_batch(agent: Agent, waiting: Sequence[Call]) -> list[ParsedCall]:
    """Return the next tool calls that may run in parallel; reject an invalid first one."""
    batch: list[ParsedCall] = []
    for call in waiting[:MAX_PARALLEL_CALLS]:
        ready = _check_repetition(agent, call, after=batch) or parse_call(agent, call)
        if isinstance(ready, InvalidCall):
            if not batch:
                _reject_call(agent, ready)
            break
        if any(
            accesses_collide(ready.collision_accesses, other.collision_accesses) for other in batch
        ):
            break
        batch.append(ready)
    return batch


def _check_repetition(
    agent: Agent, call: Call, *, after: Sequence[ParsedCall]
) -> InvalidCall | None:
    """Return why not to run a tool call that only repeats a loop; None if it may run."""
    polling = {name for name, tool in agent.tools.by_name.items() if tool.polls}
    before = [ready.call for ready in after]
    why = loop_detection.find_repetition(agent.session.view, call, after=before, polling=polling)
    return InvalidCall(call, why, by="loop") if why else None


def parse_call(agent: Agent, call: Call) -> ParsedCall | InvalidCall:
    """Parse a tool call and find its accesses; return why it cannot run if it is invalid."""
    try:
        meaning = interpret_call(call, agent.tools.by_name, agent.tools.find_mcp_tool)
    except MeaninglessCall as error:
        return InvalidCall(call, str(error))
    call, tool, args = meaning.call, meaning.tool, meaning.args
    try:
        refuse_nul_paths(args)
        if tool.stands is not None:
            return parse_call(agent, Call(call.id, *tool.stands(args)))
        here = _locate_call(agent, meaning)
        told = (*tool.access(args, here), *hidden_cwd_access(agent, here, tool.name))
        cwd = here.cwd if meaning.workdir else ""
        ready = ParsedCall(call, tool, args, told, (), meaning.remarks, cwd, meaning.tokens)
        found = _resolve_accesses(ready, here)
        if agent.permissions.sandbox is not None and runs_outside_sandbox(
            agent.permissions.sandbox, build_call_context(agent, found)
        ):
            return _resolve_accesses(ready, replace(here, temp=""))
        return found
    except ToolError as refusal:
        return InvalidCall(call, str(refusal))
    except Exception as error:  # noqa: BLE001 - a tool's own bug must not end the session
        return InvalidCall(call, _describe_crash(call, error), _format_trace(error))


def _locate_call(agent: Agent, meaning: InterpretedCall) -> CallLocation:
    """Return a tool call's location: the shell's folder, or its own workdir."""
    here = locate_calls(agent)
    if not meaning.workdir:
        return here
    folder = os.path.join(here.cwd, os.path.expanduser(meaning.workdir))
    if not os.path.isdir(folder):
        raise ToolError(f"{meaning.call.name} was not run: workdir {folder} is not a folder.")
    return replace(here, cwd=os.path.realpath(folder))


def _resolve_accesses(ready: ParsedCall, here: CallLocation) -> ParsedCall:
    accesses = resolve_accesses(ready.accesses, here)
    return replace(ready, accesses=accesses, plans=plan_command_lines(accesses, here))


def _reject_call(agent: Agent, unfit: InvalidCall) -> None:
    """Log why a tool call was not run, as its result for the model."""
    if unfit.crash:
        agent.session.append(Noted("crash", unfit.crash))
    agent.session.append(Decided(unfit.call.id, "deny", unfit.why, by=unfit.by))
    _record_result(agent, unfit.call, ToolOutcome((Text(unfit.why),), error=True))


async def _run_and_record(agent: Agent, ready: ParsedCall, ruling: CallDecision) -> None:
    """Run an allowed tool call, then its hooks and checks, and log the result."""
    agent.session.emit(ToolStarted(ready.call.id, ready.call.name))
    before = await read_files_before(agent, ready)
    began = anyio.current_time()
    outcome = await (_run_read_only_first if ruling.trial else execute_call)(
        agent, ready, ruling.sandbox
    )
    try:
        if agent.hooks.active is not None:
            seconds, wanted = anyio.current_time() - began, build_call_context(agent, ready)
            outcome = await fire.on_post_tool_use(
                agent, ready.call, outcome, use=wanted, seconds=seconds
            )
        outcome = await add_new_problems(agent, outcome, before)  # of what hooks have made of it
    finally:  # whatever happens to hooks and checks, the call has its result
        stood = _current_folder(agent.session, agent.world)
        _record_result(agent, ready.call, outcome)
        stands = _current_folder(agent.session, agent.world)
    if agent.hooks.active is not None and stands != stood:
        await fire.fire_hooks(agent, CwdChanged(stood, stands))


async def _run_read_only_first(
    agent: Agent, ready: ParsedCall, profile: SandboxProfile | None
) -> ToolOutcome:
    """Run a tool call read-only and offline; ask permission only if that is not enough."""
    planning = agent.permissions.guard.mode == "plan"
    outcome = ToolOutcome((Text(f"It did not finish within {TRIAL_SECONDS} s."),), error=True)
    with anyio.move_on_after(math.inf if planning else TRIAL_SECONDS) as scope:
        outcome = await execute_call(agent, ready, profile)
    failure = extract_text(outcome.content).strip()
    looked = _describe_trial(agent, profile, outcome)
    if not outcome.error:
        return _add_remark(outcome, looked)
    denial = find_sandbox_denial(agent, ready.plans, profile, failure)
    lacked = denial.kind if denial else ""
    if planning and lacked not in ("network", "read"):
        return _add_remark(outcome, looked)
    if not scope.cancelled_caught and not lacked:
        return _add_remark(
            outcome, f"{looked} If it failed because of that, call again with sandbox: write."
        )
    because = f"failed read-only and without network: {failure[-MAX_FAILURE_CHARS:]}"
    read = (denial.target,) if denial and denial.kind == "read" else ()
    if read:
        because = f"needs to read {read[0]}, which the sandbox hides; it {because}"
    ruling = await ask_person(
        agent, ready, because=because, offers=lacked not in ("network", "read")
    )
    if ruling.sandbox is not None and read:
        ruling = replace(
            ruling, sandbox=replace(ruling.sandbox, shown=(*ruling.sandbox.shown, *read))
        )
    ready, ruling = permission_gate.apply_changed_input(agent, ready, ruling, _reparse_call)
    agent.session.append(ruling.decided)
    if ruling.decided.verdict == "deny":
        return _add_remark(outcome, f"{looked} More was not permitted: {ruling.decided.because}")
    agent.session.sync()
    await snapshot_before_calls(agent, [ready])
    return await execute_call(agent, ready, ruling.sandbox)


def _describe_trial(agent: Agent, profile: SandboxProfile | None, outcome: ToolOutcome) -> str:
    """Describe the limits of a tool call's read-only run."""
    partial_ = profile is not None and profile.backend == "partial"
    runs = bool(outcome.changes) and outcome.changes[0].value == "running"
    looked = RUNS_READ_ONLY if runs else RAN_READ_ONLY
    if agent.permissions.guard.mode == "plan":
        looked = f"Plan mode: {RAN_READ_ONLY[0].lower()}{RAN_READ_ONLY[1:]}"
    return looked.replace("/tmp", "its TMPDIR") if partial_ else looked  # noqa: S108


def _add_remark(outcome: ToolOutcome, remark: str) -> ToolOutcome:
    return replace(outcome, content=(*outcome.content, Text(f"[{remark}]")))


async def execute_call(
    agent: Agent, ready: ParsedCall, profile: SandboxProfile | None
) -> ToolOutcome:
    """Run an approved tool call; any failure becomes its result."""
    env = CallEnv(agent, ready, profile)
    stamps = stamp_uncovered(agent, ready.plans)
    try:
        outcome = await ready.tool.run(ready.args, env, ready.call.id)
        remarks = (
            describe_tmp_paths(agent.permissions.sandbox, ready.accesses)
            if not outcome.error
            else ()
        )
        remarks = (*remarks, *warn_of_changed(stamps), *ready.remarks)
        return reduce(_add_remark, remarks, outcome)
    except ToolError as refusal:
        return ToolOutcome((Text(str(refusal)),), error=True)
    except (OSError, UserError) as error:
        return ToolOutcome((Text(f"{ready.call.name} failed: {error}"),), error=True)
    except Exception as error:  # noqa: BLE001 - a tool's own bug must not end the session
        agent.session.append(Noted("crash", _format_trace(error)))
        return ToolOutcome((Text(_describe_crash(ready.call, error)),), error=True)


async def run_child_guarded(agent: Agent, work: Callable[[], Awaitable[None]]) -> str:
    """Run a subagent for a tool call; return the error that ended it, which ends nothing else."""
    try:
        await work()
    except Exception as error:  # noqa: BLE001 - a child's fault or bug must not end its parent
        if isinstance(error, ToolError | OSError | UserError):
            return str(error)
        agent.session.append(Noted("crash", _format_trace(error)))
        return f"{type(error).__name__}: {error}"
    return ""


def _describe_crash(call: Call, error: Exception) -> str:
    return f"{call.name} crashed: {type(error).__name__}: {error}. This is a bug in the tool."


def _format_trace(error: Exception) -> str:
    return "".join(format_exception(error))


def _record_result(agent: Agent, call: Call, outcome: ToolOutcome) -> None:
    """Log a tool call's result, and apply its changes of mode and folder."""
    agent.session.append(
        Result(call.id, outcome.content, outcome.error, outcome.detail, outcome.lines)
    )
    for change in outcome.changes:
        agent.session.append(change)
        if change.what == MODE_STATE:
            apply_mode(agent, change.value)
    agent.runtime.relocate(agent)


def _current_folder(session: Session, world: World) -> str:
    return session.state.get("cwd", world.root)


class CallEnv:
    """The environment that one tool call sees."""

    def __init__(self, agent: Agent, ready: ParsedCall, profile: SandboxProfile | None) -> None:
        self._session = agent.session
        self._person = agent.permissions.person
        self._world = world = agent.world
        self._call = ready.call.id
        self._ready = ready
        self.sandbox = profile
        self.mode = agent.permissions.guard.mode
        self.root = world.root
        self.hidden = hidden_path_filter(agent.permissions.guard, ready.call.name, root=world.root)
        self.files = JudgedFiles(world.files, ready.accesses, self.hidden)
        self.processes = world.processes
        self.web = world.web
        self.blobs = world.blobs
        self.agents = agent.team.children
        self.outbox = AgentOutbox(agent, ready.call.id)
        self.tasks = AgentTasks(agent)
        worktrees = agent.runtime.worktrees
        self.worktrees = worktrees(agent) if worktrees else None
        self._agent = agent
        self.kept = world.kept

    @property
    def cwd(self) -> str:
        """The current folder of the shell, or the folder that the call names."""
        return self._ready.cwd or _current_folder(self._session, self._world)

    @property
    def room(self) -> ResultRoom:
        """The tokens that the result may take."""
        room, most = result_room_for_call(self._agent, self._ready.call), self._ready.tokens
        return replace(room, cap=min(room.cap, most)) if most else room

    @property
    def has_mail(self) -> bool:
        """True if a message waits for the model."""
        return bool(self._agent.turn.inbox)

    @property
    def stays_open(self) -> bool:
        """True if a wake-up can start a turn."""
        return self._agent.runtime.stays_open

    @property
    def wary(self) -> SandboxProfile | None:
        """The sandbox for git run by the harness."""
        return sandbox_for_git(self._agent)

    @property
    def search(self) -> WebSearch | None:
        """The web search; none where it is off."""
        search = self._agent.tools.search_web
        return partial(search, self._agent) if search is not None else None

    @property
    def memory(self) -> MemoryRecorder | None:
        """The memory for later sessions; none where it is off."""
        if self._agent.memory.memories is None:
            return None
        return extract_memories.AgentMemoryRecorder(self._agent)

    @property
    def skills(self) -> SkillRunner | None:
        """The usable skills; none where there are none."""
        practice = self._agent.prompt.use_skills
        return practice(self._agent) if practice is not None else None

    @property
    def state(self) -> Mapping[str, str]:
        """The newest value of each `Changed` fact."""
        return self._session.state

    def spill(self, call: str, data: bytes) -> str:
        """Save a large output in the session's folder."""
        return self._world.spill(call, self._session.secrets.redact_bytes(data))

    def progress(self, text: str) -> None:
        """Show the call's progress."""
        self._session.emit(ToolProgress(self._call, text))

    async def fire_hooks(self, occasion: AnyHookEvent) -> HookDecision:
        """Fire a hook event of this call and return the decision."""
        return await fire.fire_hooks(self._agent, occasion, call=self._call)

    async def choose(self, choices: tuple[Choice, ...], *, plan: str = "") -> tuple[str, ...]:
        """Ask the user, once everything that led to the question is on screen."""
        self._session.append(Asked(self._call, choices[0].question))
        answers = await self._person.choose(ChoiceRequest(self._call, choices, plan))
        if answers is None:
            raise UnansweredQuestion("Nobody answered.")
        return answers


# Calls that a person's words bring with them: a file that they mention, a command of a command.


RAN_PREAPPROVED = "ran"


async def run_preapproved_tool(
    agent: Agent, name: str, args: dict[str, str], *, by: ApprovalSource = "rules"
) -> ToolOutcome:
    """Run a call that needs no question; raises `ToolError` if it does.

    The call is logged, but is not part of the conversation; `by` names who allowed it.
    """
    call = Call(f"unasked-{agent.session.seq}", name, msgspec.json.encode(args).decode())
    ready = parse_call(agent, call)
    if isinstance(ready, InvalidCall):
        raise ToolError(ready.why)
    ruling = preapprove_call(agent, ready, by=by)
    if ruling is None:
        raise ToolError(f"{ready.tool.summary(ready.args)} may not run without approval.")
    agent.session.append(Noted(RAN_PREAPPROVED, f"{name} {call.args}"))
    outcome = await execute_call(agent, ready, ruling.sandbox)
    if outcome.error:
        raise ToolError(extract_text(outcome.content).strip())
    for change in outcome.changes:
        agent.session.append(change)
    return outcome
