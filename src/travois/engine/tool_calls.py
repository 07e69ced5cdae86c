"""Tool calls: parse, decide, run and record them."""

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

from travois.agents.outbox import AgentOutbox
from travois.agents.task_list import AgentTasks
from travois.context.tool_results import Room
from travois.context.window import call_room
from travois.core.content import Call, Text, words
from travois.core.errors import Fault
from travois.core.facts import Asked, Decided, Noted, Result
from travois.core.view import open_calls
from travois.engine import loop_detection, permission_gate
from travois.engine.agent import Agent, World
from travois.engine.interpret_call import Meaning, Senseless, interpret
from travois.engine.permission_gate import Ready, Ruling, Word, ask, decide, granted, use, wary
from travois.engine.permission_modes import MODE, follow
from travois.engine.tmp_folder import find_held_back, hidden_place, place_of, tmp_remarks
from travois.hooks import fire
from travois.hooks.events import AnyOccasion, CwdChanged
from travois.hooks.output import Heard
from travois.memory.port import Recording
from travois.memory.weighing import Recorder
from travois.permissions.access import collide
from travois.permissions.decide import judge
from travois.permissions.resolve_paths import JudgedFiles, hiding, resolved, understood
from travois.permissions.sandbox_profile import Cage
from travois.ports.tool import Here, Outcome, Refusal, refuse_nul
from travois.ports.web_search import Search
from travois.ports.world import Choice, Inquiry, Progress, Running, Unanswered
from travois.prompt.briefing import touch
from travois.sandbox.policy import runs_outside
from travois.sessions.session import Session
from travois.skills.skills import Practice
from travois.snapshots.before_call import keep
from travois.snapshots.uncovered import stamp_uncovered, tell_changed

LOOKED = "It ran read-only and without network: nothing that it wrote outside /tmp was kept."
LOOKS = (
    "It runs read-only and without network: nothing that it writes outside /tmp is kept. "
    "If it needs more, end it and call again with sandbox: write."
)
PATIENCE = 20
"""The seconds of a read-only run before the person is asked."""
FAILURE = 300
LONG_CALL = 20_000
"""Arguments of more characters are judged in a thread: shorter ones take a few milliseconds."""
ALONGSIDE = 16
"""The most calls of one reply that run in parallel."""


class Unfit(msgspec.Struct, frozen=True):
    """A call that cannot run, and why; `crash` is the traceback of a bug of ours."""

    call: Call
    why: str
    crash: str = ""
    by: Literal["schema", "loop"] = "schema"


async def act(agent: Agent) -> None:
    """Run every open call; calls that cannot collide run in parallel."""
    waiting = list(open_calls(agent.session.view))
    asked, ran = bool(waiting), list[Ready]()
    if asked and agent.world.snapshots is not None and agent.permissions.guard.mode != "plan":
        agent.world.snapshots.prepare()
    while waiting and not agent.turn.stop_reason:
        await _read_long_calls(agent, waiting)
        batch = _batch(agent, waiting)
        del waiting[: len(batch) or 1]
        rulings = [await _ruled(agent, ready) for ready in batch]
        allowed = [ruled for ruled in rulings if ruled is not None]
        if any(access.kind != "read" for ready, _ in allowed for access in ready.touching):
            # The decision reaches the disk before anything changes: a crash must not hide it.
            agent.session.sync()
        await keep(agent, [ready for ready, ruling in allowed if not ruling.trial])
        await _run(agent, allowed)
        ran += (ready for ready, _ in allowed)
    await touch(agent, ran)
    if agent.hooks.active is not None and asked and not agent.turn.stop_reason:
        await fire.batch(agent)


async def _read_long_calls(agent: Agent, waiting: Sequence[Call]) -> None:
    """Judge very long calls in a thread first, so that Esc and limits still act.

    What takes long is remembered, so that judging them again takes no time.
    """
    for call in waiting[:ALONGSIDE]:
        if len(call.args) > LONG_CALL:
            await anyio.to_thread.run_sync(_judge_ahead, agent, call)


def _judge_ahead(agent: Agent, call: Call) -> None:
    ready = understand(agent, call)
    if isinstance(ready, Ready):
        judge(agent.permissions.guard, use(agent, ready))


async def _run(agent: Agent, batch: Sequence[tuple[Ready, Ruling]]) -> None:
    if agent.hooks.active is not None and _entangled(batch):
        for ready, ruling in batch:
            await _perform(agent, ready, ruling)
        return
    if len(batch) == 1:
        await _perform(agent, *batch[0])
        return
    try:
        async with anyio.create_task_group() as group:
            for ready, ruling in batch:
                group.start_soon(_perform, agent, ready, ruling)
    except BaseExceptionGroup as broken:  # a fault stays the same, alone or in company
        raise broken.exceptions[0] from broken


def _entangled(batch: Sequence[tuple[Ready, Ruling]]) -> bool:
    """Return whether calls collide after hooks changed them."""
    touching = (ready.touching for ready, _ in batch)
    return any(collide(one, other) for one, other in combinations(touching, 2))


async def _ruled(agent: Agent, ready: Ready) -> tuple[Ready, Ruling] | None:
    """Decide on a call and record it; return none, with a result, if it is denied."""
    if agent.turn.stop_reason:
        return None
    if agent.hooks.active is None:
        ready, ruling = permission_gate.amended(agent, ready, await decide(agent, ready), _again)
    else:
        ready, ruling = await permission_gate.ruled(agent, ready, _again)
    agent.session.append(ruling.decided)
    if ruling.decided.verdict == "allow":
        return ready, ruling
    text = f"Permission denied: {ruling.decided.because}. Nothing was run."
    if agent.hooks.active is not None and await _appealed(agent, ready, ruling.decided):
        text += " A hook allows another attempt."
    _record(agent, ready.call, Outcome((Text(text),), error=True))
    return None


async def _appealed(agent: Agent, ready: Ready, decided: Decided) -> bool:
    if decided.by == "hook":
        return False
    return await fire.denied(agent, ready.call, use(agent, ready), why=decided.because)


def _again(agent: Agent, call: Call) -> Ready | str:
    found = understand(agent, call)
    return found.why if isinstance(found, Unfit) else found


def _batch(agent: Agent, waiting: Sequence[Call]) -> list[Ready]:
    """Return the longest run of calls that may run together; reject an invalid first one."""
    batch: list[Ready] = []
    for call in waiting[:ALONGSIDE]:
        ready = _repeated(agent, call, after=batch) or understand(agent, call)
        if isinstance(ready, Unfit):
            if not batch:
                _reject(agent, ready)
            break
        if any(collide(ready.touching, other.touching) for other in batch):
            break
        batch.append(ready)
    return batch


def _repeated(agent: Agent, call: Call, *, after: Sequence[Ready]) -> Unfit | None:
    """Return the reason not to run a call that only repeats a cycle; none if it may run."""
    polling = {name for name, tool in agent.tools.by_name.items() if tool.polls}
    before = [ready.call for ready in after]
    why = loop_detection.looping(agent.session.view, call, after=before, polling=polling)
    return Unfit(call, why, by="loop") if why else None


def understand(agent: Agent, call: Call) -> Ready | Unfit:
    """Parse a call and find what it would touch; or say why it cannot run."""
    try:
        meaning = interpret(call, agent.tools.by_name, agent.tools.find_mcp_tool)
    except Senseless as error:
        return Unfit(call, str(error))
    call, tool, args = meaning.call, meaning.tool, meaning.args
    try:
        refuse_nul(args)
        if tool.stands is not None:
            return understand(agent, Call(call.id, *tool.stands(args)))
        here = _place_of_call(agent, meaning)
        told = (*tool.access(args, here), *hidden_place(agent, here, tool.name))
        cwd = here.cwd if meaning.workdir else ""
        ready = Ready(call, tool, args, told, (), meaning.remarks, cwd, meaning.tokens)
        found = _understood(ready, here)
        if agent.permissions.sandbox is not None and runs_outside(
            agent.permissions.sandbox, use(agent, found)
        ):
            return _understood(ready, replace(here, temp=""))
        return found
    except Refusal as refusal:
        return Unfit(call, str(refusal))
    except Exception as error:  # noqa: BLE001 - a tool's own bug must not end the session
        return Unfit(call, _broke(call, error), _trace(error))


def _place_of_call(agent: Agent, meaning: Meaning) -> Here:
    """Return the location of a call: the shell's folder, or its own workdir."""
    here = place_of(agent)
    if not meaning.workdir:
        return here
    folder = os.path.join(here.cwd, os.path.expanduser(meaning.workdir))
    if not os.path.isdir(folder):
        raise Refusal(f"{meaning.call.name} was not run: workdir {folder} is not a folder.")
    return replace(here, cwd=os.path.realpath(folder))


def _understood(ready: Ready, here: Here) -> Ready:
    accesses = resolved(ready.accesses, here)
    return replace(ready, accesses=accesses, plans=understood(accesses, here))


def _reject(agent: Agent, unfit: Unfit) -> None:
    """Record why a call was not run, for the model."""
    if unfit.crash:
        agent.session.append(Noted("crash", unfit.crash))
    agent.session.append(Decided(unfit.call.id, "deny", unfit.why, by=unfit.by))
    _record(agent, unfit.call, Outcome((Text(unfit.why),), error=True))


async def _perform(agent: Agent, ready: Ready, ruling: Ruling) -> None:
    agent.session.emit(Running(ready.call.id, ready.call.name))
    began = anyio.current_time()
    outcome = await (_try if ruling.trial else carry_out)(agent, ready, ruling.cage)
    if agent.hooks.active is None:
        _record(agent, ready.call, outcome)
    else:
        await _tell(agent, ready, outcome, seconds=anyio.current_time() - began)


async def _tell(agent: Agent, ready: Ready, outcome: Outcome, *, seconds: float) -> None:
    """Run the post-tool hooks; record the result whatever happens to them."""
    try:
        wanted = use(agent, ready)
        outcome = await fire.after(agent, ready.call, outcome, use=wanted, seconds=seconds)
    finally:
        stood = _cwd(agent.session, agent.world)
        _record(agent, ready.call, outcome)
        stands = _cwd(agent.session, agent.world)
    if stands != stood:
        await fire.fire(agent, CwdChanged(stood, stands))


async def _try(agent: Agent, ready: Ready, cage: Cage | None) -> Outcome:
    """Run a call read-only and without network; ask only if that is not enough."""
    planning = agent.permissions.guard.mode == "plan"
    outcome = Outcome((Text(f"It did not finish within {PATIENCE} s."),), error=True)
    with anyio.move_on_after(math.inf if planning else PATIENCE) as scope:
        outcome = await carry_out(agent, ready, cage)
    failure = words(outcome.content).strip()
    looked = _looked(agent, cage, outcome)
    if not outcome.error:
        return _remarked(outcome, looked)
    denial = find_held_back(agent, ready.plans, cage, failure)
    lacked = denial.kind if denial else ""
    if planning and lacked not in ("network", "read"):
        return _remarked(outcome, looked)
    if not scope.cancelled_caught and not lacked:
        return _remarked(
            outcome, f"{looked} If it failed because of that, call again with sandbox: write."
        )
    because = f"failed read-only and without network: {failure[-FAILURE:]}"
    read = (denial.target,) if denial and denial.kind == "read" else ()
    if read:
        because = f"needs to read {read[0]}, which the sandbox hides; it {because}"
    ruling = await ask(agent, ready, because=because, offers=lacked not in ("network", "read"))
    if ruling.cage is not None and read:
        ruling = replace(ruling, cage=replace(ruling.cage, shown=(*ruling.cage.shown, *read)))
    ready, ruling = permission_gate.amended(agent, ready, ruling, _again)
    agent.session.append(ruling.decided)
    if ruling.decided.verdict == "deny":
        return _remarked(outcome, f"{looked} More was not permitted: {ruling.decided.because}")
    agent.session.sync()
    await keep(agent, [ready])
    return await carry_out(agent, ready, ruling.cage)


def _looked(agent: Agent, cage: Cage | None, outcome: Outcome) -> str:
    """Describe how a read-only run was restricted."""
    partial_ = cage is not None and cage.backend == "partial"
    runs = bool(outcome.changes) and outcome.changes[0].value == "running"
    looked = LOOKS if runs else LOOKED
    if agent.permissions.guard.mode == "plan":
        looked = f"Plan mode: {LOOKED[0].lower()}{LOOKED[1:]}"
    return looked.replace("/tmp", "its TMPDIR") if partial_ else looked  # noqa: S108


def _remarked(outcome: Outcome, remark: str) -> Outcome:
    return replace(outcome, content=(*outcome.content, Text(f"[{remark}]")))


async def carry_out(agent: Agent, ready: Ready, cage: Cage | None) -> Outcome:
    """Run an approved call; any failure becomes its outcome."""
    env = CallEnv(agent, ready, cage)
    stamps = stamp_uncovered(agent, ready.plans)
    try:
        outcome = await ready.tool.run(ready.args, env, ready.call.id)
        remarks = (
            tmp_remarks(agent.permissions.sandbox, ready.accesses) if not outcome.error else ()
        )
        remarks = (*remarks, *tell_changed(stamps), *ready.remarks)
        return reduce(_remarked, remarks, outcome)
    except Refusal as refusal:
        return Outcome((Text(str(refusal)),), error=True)
    except (OSError, Fault) as error:
        return Outcome((Text(f"{ready.call.name} failed: {error}"),), error=True)
    except Exception as error:  # noqa: BLE001 - a tool's own bug must not end the session
        agent.session.append(Noted("crash", _trace(error)))
        return Outcome((Text(_broke(ready.call, error)),), error=True)


async def survived(agent: Agent, work: Callable[[], Awaitable[None]]) -> str:
    """Run a child; return the error that ended it, which ends nothing else."""
    try:
        await work()
    except Exception as error:  # noqa: BLE001 - a child's fault or bug must not end its parent
        if isinstance(error, Refusal | OSError | Fault):
            return str(error)
        agent.session.append(Noted("crash", _trace(error)))
        return f"{type(error).__name__}: {error}"
    return ""


def _broke(call: Call, error: Exception) -> str:
    return f"{call.name} crashed: {type(error).__name__}: {error}. This is a bug in the tool."


def _trace(error: Exception) -> str:
    return "".join(format_exception(error))


def _record(agent: Agent, call: Call, outcome: Outcome) -> None:
    agent.session.append(
        Result(call.id, outcome.content, outcome.error, outcome.detail, outcome.lines)
    )
    for change in outcome.changes:
        agent.session.append(change)
        if change.what == MODE:
            follow(agent, change.value)
    agent.runtime.relocate(agent)


def _cwd(session: Session, world: World) -> str:
    return session.state.get("cwd", world.root)


class CallEnv:
    """The world as one call sees it."""

    def __init__(self, agent: Agent, ready: Ready, cage: Cage | None) -> None:
        self._session = agent.session
        self._person = agent.permissions.person
        self._world = world = agent.world
        self._call = ready.call.id
        self._ready = ready
        self.cage = cage
        self.mode = agent.permissions.guard.mode
        self.root = world.root
        self.hidden = hiding(agent.permissions.guard, ready.call.name, root=world.root)
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
        return self._ready.cwd or _cwd(self._session, self._world)

    @property
    def room(self) -> Room:
        """The tokens that the result may take."""
        room, most = call_room(self._agent, self._ready.call), self._ready.tokens
        return replace(room, cap=min(room.cap, most)) if most else room

    @property
    def has_mail(self) -> bool:
        """True if a message waits for the model."""
        return bool(self._agent.turn.inbox)

    @property
    def wary(self) -> Cage | None:
        """The sandbox for our own git."""
        return wary(self._agent)

    @property
    def search(self) -> Search | None:
        """The web search; none where it is off."""
        search = self._agent.tools.search_web
        return partial(search, self._agent) if search is not None else None

    @property
    def memory(self) -> Recording | None:
        """The memory for later sessions; none where it is off."""
        return Recorder(self._agent) if self._agent.memory.memories is not None else None

    @property
    def skills(self) -> Practice | None:
        """The usable skills; none where there are none."""
        practice = self._agent.prompt.use_skills
        return practice(self._agent) if practice is not None else None

    @property
    def state(self) -> Mapping[str, str]:
        """The newest value of each `Changed` fact."""
        return self._session.state

    def spill(self, call: str, data: bytes) -> str:
        """Keep a large output in the session's folder."""
        return self._world.spill(call, self._session.secrets.redacted_bytes(data))

    def progress(self, text: str) -> None:
        """Show that something goes on."""
        self._session.emit(Progress(self._call, text))

    async def hear(self, occasion: AnyOccasion) -> Heard:
        """Fire a hook event of this call and return the decision."""
        return await fire.fire(self._agent, occasion, call=self._call)

    async def choose(self, choices: tuple[Choice, ...], *, plan: str = "") -> tuple[str, ...]:
        """Ask the person, once all that led to the question is on screen."""
        self._session.append(Asked(self._call, choices[0].question))
        answers = await self._person.choose(Inquiry(self._call, choices, plan))
        if answers is None:
            raise Unanswered("Nobody answered.")
        return answers


# Calls that a person's words bring with them: a file that they mention, a command of a command.


RAN = "ran"


async def unasked(agent: Agent, name: str, args: dict[str, str], *, by: Word = "rules") -> Outcome:
    """Run a call that needs no question; raises `ToolError` if it does.

    It is on record, and no part of the conversation. `by` is whose word lets it run.
    """
    call = Call(f"unasked-{agent.session.seq}", name, msgspec.json.encode(args).decode())
    ready = understand(agent, call)
    if isinstance(ready, Unfit):
        raise Refusal(ready.why)
    ruling = granted(agent, ready, by=by)
    if ruling is None:
        raise Refusal(f"{ready.tool.summary(ready.args)} may not run without approval.")
    agent.session.append(Noted(RAN, f"{name} {call.args}"))
    outcome = await carry_out(agent, ready, ruling.cage)
    if outcome.error:
        raise Refusal(words(outcome.content).strip())
    for change in outcome.changes:
        agent.session.append(change)
    return outcome
