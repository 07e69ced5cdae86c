"""Dreaming: consolidate memories between sessions, in four phases and one change.

Each phase is recorded in a log of its own. Rules do what rules can; a read-only model proposes the
rest, topic by topic. Nothing is changed before the end, and then everything at once, if the
memories it is based on are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar, TypeVarTuple, get_args

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from travois.agents.child import create_child_agent
from travois.core.content import Text, extract_text
from travois.core.facts import Assistant, Changed, Ended, Entry, Noted, Rewound, User
from travois.core.spending import Limits
from travois.engine.agent import Agent, AgentPrompt, ParentLink
from travois.engine.loop import run_turn
from travois.engine.tool_definitions import build_first_head
from travois.memory.dreaming.rules import (
    Passage,
    Plan,
    Proposed,
    Topic,
    changes,
    key,
    keyed,
    named,
    operations,
    planned,
    ruled,
    told,
    topics,
)
from travois.memory.memory import Change, Memory, Scope
from travois.memory.port import MOVED, Applied, Memories
from travois.memory.speakers import heard
from travois.memory.text import changes as render_memory_diff
from travois.sessions.session import Session

PROMPT = Path(__file__).parent.parent / "prompts" / "dream.md"
TOOLS = ("Read", "Grep", "Glob", "Bash", "GitStatus", "GitDiff", "GitLog", "GitShow", "GitBlame")
LIMITS = Limits(turns=8, tokens=400_000, seconds=600)
"""Requests and seconds for one topic; tokens for the whole consolidation."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
TRIES = 3
"""Attempts to plan, because memories may change meanwhile."""
DREAMT = "dreamt"
"""The note that ends the log of a night."""
WHY = "dream"
"""The reason for these changes in the history."""

T = TypeVar("T")
Args = TypeVarTuple("Args")
Phase = Literal["orient", "gather", "consolidate", "prune"]
Manner = Literal["make", "show"]
"""Apply changes, or only show them."""


class Dreamt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a consolidation."""

    state: Literal["completed", "failed", "killed"] = "completed"
    id: str = ""
    """The transaction id for an undo; empty if nothing changed."""
    steps: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The memories that were touched."""
    refused: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    """Proposals in the inbox that wait for the user."""
    alone: str = ""
    """The reason why no model took part; empty if one did."""
    diff: str = ""
    why: str = ""
    """The reason for a failure."""


class Draft(msgspec.Struct, frozen=True):
    """A plan for the current memories, and the memories that it leads to."""

    plan: Plan
    before: Mapping[str, Memory]
    after: Mapping[str, Memory]

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes that carry out the plan."""
        return changes(self.before, self.after, why=WHY)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys of the changed memories."""
        return tuple(map(named, self.changes))

    @property
    def diff(self) -> str:
        """Render the planned changes as a diff."""
        shown = (render_memory_diff(self.before[name], self.after.get(name)) for name in self.names)
        return "\n".join(filter(None, shown))

    def told(self, done: Applied) -> Dreamt:
        """Build the result of the consolidation."""
        return Dreamt(
            id=done.id,
            steps=tuple(step.why for step in self.plan.steps),
            files=self.names,
            refused=self.plan.refused,
            proposed=tuple(step.why for step in self.plan.held),
            diff=done.diff,
        )


def dreamer(parent: Agent, session: Session, *, id: str, log: str) -> Agent | str:
    """Build a read-only agent that spends its parent's budget; or return why there is none."""
    head = parent.session.view.epoch
    if head is None:
        return "no model is available"
    if head.model.is_frail:
        return f"{head.model.name} is too small for this"
    if why := parent.budget.spawn_blocker():
        return why
    agent = create_child_agent(
        parent, session, ParentLink(id, "dream", log), root=parent.world.root
    )
    known = parent.tools.by_name
    tools = {name: known[name] for name in TOOLS if name in known}
    prompt = PROMPT.read_text("utf-8").strip()
    session.append(
        build_first_head(head.model, prompt, tools.values(), wanted=parent.tools.toolset)
    )
    skills, use_skills = agent.prompt.skills, agent.prompt.use_skills
    guard = replace(agent.permissions.guard, mode="plan", silent=True)
    return replace(
        agent,
        tools=replace(agent.tools, by_name=tools),
        world=replace(agent.world, snapshots=None),
        permissions=replace(agent.permissions, guard=guard),
        memory=replace(agent.memory, memories=None),
        prompt=AgentPrompt(skills=skills, use_skills=use_skills),
        team=replace(agent.team, courier=None),
        budget=parent.budget.create_child(LIMITS, whose="the consolidation"),
    )


async def dream(
    session: Session,
    memories: Memories,
    *,
    id: str,
    agent: Agent | str,
    gather: Callable[[], Sequence[Passage]],
    since: float = 0.0,
    manner: Manner = "make",
    undone: Collection[str] = (),
) -> None:
    """Consolidate memories; `agent` may be the reason why there is none, then rules work alone.

    Topics without news `since` the last consolidation are not shown to a model, and what was
    `undone` after an earlier one is not repeated.
    """
    _enter(session, "orient")
    before = await _beside(_open, memories)
    steps = await _beside(ruled, before, undone)
    _tell(session, f"{len(before)} memories; changes by rules: {len(steps)}")
    _enter(session, "gather")
    said = await _beside(gather)
    drifted = await _beside(_drifted, memories, before.values())
    _tell(session, f"{len(said)} user messages since the last consolidation")
    _tell(session, f"{len(drifted)} memories refer to files that have changed")
    _enter(session, "consolidate")
    tidy = dict(before)
    for step in steps:
        step.make(tidy)
    parts = topics(tidy.values(), said, drifted, tokens=_room(session))
    fresh = await _beside(lambda: [topic for topic in parts if topic.fresh(since)])
    found, flaws = await _consider(session, agent, sorted(fresh, key=_silent))
    _enter(session, "prune")
    over = await _conclude(memories, found, id=id, manner=manner, undone=undone)
    alone = agent if isinstance(agent, str) else ""
    end(session, replace(over, alone=alone, refused=(*flaws, *over.refused)))


def end(session: Session, dreamt: Dreamt) -> None:
    """Record the result of a consolidation in its log."""
    session.append(Noted(DREAMT, msgspec.json.encode(dreamt).decode()))


def ended(entries: Iterable[Entry]) -> Dreamt | None:
    """Read the result of a consolidation from its log; None if it did not finish."""
    facts = (entry.fact for entry in entries)
    said = [fact.text for fact in facts if isinstance(fact, Noted) and fact.what == DREAMT]
    return msgspec.json.decode(said[0], type=Dreamt) if said else None


def _enter(session: Session, phase: Phase) -> None:
    stage = "starting" if phase in ("orient", "gather") else "updating"
    if session.state.get("stage") != stage:
        session.append(Changed("stage", stage))
    session.append(Changed("phase", phase))


def _tell(session: Session, text: str) -> None:
    session.append(Noted("dream", text))


def _open(memories: Memories) -> dict[str, Memory]:
    """Return the memories of scopes that are not off, by key."""
    return keyed(m for m in memories.all() if memories.consent(m.scope) != "off")


def _drifted(memories: Memories, some: Iterable[Memory]) -> dict[str, tuple[str, ...]]:
    """Return the changed files of each memory that has any."""
    found = {key(memory): memories.stale(memory) for memory in some if memory.anchors}
    return {name: files for name, files in found.items() if files}


async def _consider(
    session: Session, agent: Agent | str, parts: Sequence[Topic]
) -> tuple[list[Proposed], list[str]]:
    """Ask the model about one topic at a time, each in a fresh conversation."""
    found: list[Proposed] = []
    flaws: list[str] = []
    if isinstance(agent, str):
        _tell(session, f"rules only: {agent}")
        return found, flaws
    start = session.all_entries()[-1].seq
    for number, topic in enumerate(parts, 1):
        _tell(session, f"topic {number} of {len(parts)}: {len(topic.memories)} memories")
        agent.turn.inbox.append(User((Text(told(topic)),), origin="task"))
        why = await run_turn(agent)
        entries = [entry for entry in session.history() if entry.seq > start]
        session.append(Rewound(start))
        if why != "end":
            flaws.append(f"the model did not finish: {_detail(entries) or why}")
            break
        wanted, unread = operations(_last_words(entries))
        found.append(Proposed(topic, tuple(wanted), _read(entries)))
        flaws += unread
    return found, flaws


def _room(session: Session) -> int:
    """Return the token limit of a topic."""
    return session.view.epoch.model.window // 4 if session.view.epoch else 0


def _silent(topic: Topic) -> bool:
    """Return whether no passage concerns a topic: such topics come last."""
    return not topic.passages


async def _conclude(
    memories: Memories,
    found: Sequence[Proposed],
    *,
    id: str,
    manner: Manner,
    undone: Collection[str],
) -> Dreamt:
    """Plan with the current memories and apply; plan again if they changed meanwhile."""
    barred: set[str] = set()
    unfit: list[str] = []
    for _ in range(TRIES):
        draft = await _beside(_drafted, memories, found, frozenset(barred), undone)
        if manner == "show":
            return draft.told(Applied("", draft.diff))
        with anyio.CancelScope(shield=True):  # nobody stops it between a change and its record
            done = await anyio.to_thread.run_sync(_made, memories, draft, id)
            if not done.refused:
                over = draft.told(done)
                return replace(over, refused=(*unfit, *over.refused))
            fresh = [line for line in done.refused if MOVED not in line]
            barred |= {line.partition(":")[0] for line in fresh}
            unfit += fresh
    return Dreamt(
        "failed", refused=tuple(unfit), why="the memories kept changing during the consolidation"
    )


def _drafted(
    memories: Memories,
    found: Sequence[Proposed],
    barred: Collection[str],
    undone: Collection[str],
) -> Draft:
    """Plan the consolidation of the current memories."""
    before = _open(memories)
    asks: list[Scope] = [scope for scope in SCOPES if memories.consent(scope) == "ask"]
    plan = planned(before, found, asks=asks, barred=barred, without=undone)
    after = dict(before)
    for step in plan.steps:
        step.make(after)
    return Draft(plan, before, after)


def _made(memories: Memories, draft: Draft, id: str) -> Applied:
    """Apply a draft completely or not at all, and propose what the user must decide."""
    based = [draft.before[name] for name in draft.names]
    done = memories.apply(draft.changes, why=WHY, session=id, based=based)
    for step in () if done.refused else draft.plan.held:
        memories.propose(step.changes, why=step.why)
    return done


async def _beside(work: Callable[[*Args], T], *args: *Args) -> T:
    """Run read-only work in a thread; a cancelled caller does not wait for it."""
    return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


def _last_words(entries: Iterable[Entry]) -> str:
    said = [entry.fact for entry in entries if isinstance(entry.fact, Assistant)]
    return extract_text(said[-1].content) if said else ""


def _read(entries: Iterable[Entry]) -> str:
    """Return the file contents that tools have shown."""
    return "\n".join(one.text for one in heard(entries) if one.voice == "tool" and one.files)


def _detail(entries: Iterable[Entry]) -> str:
    return next((e.fact.detail for e in reversed([*entries]) if isinstance(e.fact, Ended)), "")
