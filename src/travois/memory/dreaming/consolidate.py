"""Dreaming: between sessions, memories are put in order, in four phases and one change.

Whatever a phase finds stands in a log of its own. Rules do what rules can; a model that can look
and not touch proposes the rest, topic by topic. Nothing is changed before the end, and then all of
it at once, if what it is based on is still what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar, TypeVarTuple, get_args

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from travois.agents.child import offspring
from travois.core.content import Text, words
from travois.core.facts import Assistant, Changed, Ended, Entry, Noted, Rewound, User
from travois.core.spending import Limits
from travois.engine.agent import Agent, AgentPrompt, Birth
from travois.engine.loop import turn
from travois.engine.tool_definitions import first_head
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
from travois.memory.text import changes as difference
from travois.sessions.session import Session

PROMPT = Path(__file__).parent.parent / "prompts" / "dream.md"
TOOLS = ("Read", "Grep", "Glob", "Bash", "GitStatus", "GitDiff", "GitLog", "GitShow", "GitBlame")
LIMITS = Limits(turns=8, tokens=400_000, seconds=600)
"""How many requests one topic takes at most and how long; how many tokens the whole night."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
TRIES = 3
"""How often a night is planned again because memories changed meanwhile."""
DREAMT = "dreamt"
"""The note that ends the log of a night."""
WHY = "dream"
"""Why the history says that memories were changed."""

T = TypeVar("T")
Args = TypeVarTuple("Args")
Phase = Literal["orient", "gather", "consolidate", "prune"]
Manner = Literal["make", "show"]
"""Whether changes are made, or only shown."""


class Dreamt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a night came to."""

    state: Literal["completed", "failed", "killed"] = "completed"
    id: str = ""
    """By which it can be undone; empty if nothing changed."""
    steps: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The memories that were touched."""
    refused: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()
    """What waits in the inbox for a person's word."""
    alone: str = ""
    """Why no model took part; empty if one did."""
    diff: str = ""
    why: str = ""
    """What went wrong."""


class Draft(msgspec.Struct, frozen=True):
    """A plan for the memories that there are, and what it makes of them."""

    plan: Plan
    before: Mapping[str, Memory]
    after: Mapping[str, Memory]

    @property
    def changes(self) -> tuple[Change, ...]:
        """What makes it true."""
        return changes(self.before, self.after, why=WHY)

    @property
    def names(self) -> tuple[str, ...]:
        """The memories that are touched."""
        return tuple(map(named, self.changes))

    @property
    def diff(self) -> str:
        """What would change, for the eye."""
        shown = (difference(self.before[name], self.after.get(name)) for name in self.names)
        return "\n".join(filter(None, shown))

    def told(self, done: Applied) -> Dreamt:
        """What it came to."""
        return Dreamt(
            id=done.id,
            steps=tuple(step.why for step in self.plan.steps),
            files=self.names,
            refused=self.plan.refused,
            proposed=tuple(step.why for step in self.plan.held),
            diff=done.diff,
        )


def dreamer(parent: Agent, session: Session, *, id: str, log: str) -> Agent | str:
    """An agent that looks and touches nothing, paid by its parent; or why there can be none."""
    head = parent.session.view.epoch
    if head is None:
        return "there is no model"
    if head.model.frail:
        return f"{head.model.name} is too small for that"
    if why := parent.budget.barren():
        return why
    agent = offspring(parent, session, Birth(id, "dream", log), root=parent.world.root)
    known = parent.tools.by_name
    tools = {name: known[name] for name in TOOLS if name in known}
    prompt = PROMPT.read_text("utf-8").strip()
    session.append(first_head(head.model, prompt, tools.values(), wanted=parent.tools.toolset))
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
        budget=parent.budget.child(LIMITS, whose="the night"),
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
    """Put memories in order; `agent` may be why there is none, and then rules work alone.

    What nothing has happened to `since` the last night is not looked at by a model, and what was
    `undone` after an earlier one is not done again.
    """
    _enter(session, "orient")
    before = await _beside(_open, memories)
    steps = await _beside(ruled, before, undone)
    _tell(session, f"{len(before)} memories; rules see to {len(steps)} things")
    _enter(session, "gather")
    said = await _beside(gather)
    drifted = await _beside(_drifted, memories, before.values())
    _tell(session, f"{len(said)} messages of the user since the last night")
    _tell(session, f"{len(drifted)} memories speak of files that have changed")
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
    """Say what a night came to."""
    session.append(Noted(DREAMT, msgspec.json.encode(dreamt).decode()))


def ended(entries: Iterable[Entry]) -> Dreamt | None:
    """What a night came to, told by its log; none if it did not come to an end."""
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
    """The memories that may be changed, or are pinned."""
    return keyed(m for m in memories.all() if memories.consent(m.scope) != "off")


def _drifted(memories: Memories, some: Iterable[Memory]) -> dict[str, tuple[str, ...]]:
    found = {key(memory): memories.stale(memory) for memory in some if memory.anchors}
    return {name: files for name, files in found.items() if files}


async def _consider(
    session: Session, agent: Agent | str, parts: Sequence[Topic]
) -> tuple[list[Proposed], list[str]]:
    """Ask the model about one topic after the other, each as if it were the first."""
    found: list[Proposed] = []
    flaws: list[str] = []
    if isinstance(agent, str):
        _tell(session, f"by rules alone: {agent}")
        return found, flaws
    start = session.record()[-1].seq
    for number, topic in enumerate(parts, 1):
        _tell(session, f"topic {number} of {len(parts)}: {len(topic.memories)} memories")
        agent.turn.inbox.append(User((Text(told(topic)),), origin="task"))
        why = await turn(agent)
        entries = [entry for entry in session.history() if entry.seq > start]
        session.append(Rewound(start))
        if why != "end":
            flaws.append(f"the model came to no end: {_detail(entries) or why}")
            break
        wanted, unread = operations(_last_words(entries))
        found.append(Proposed(topic, tuple(wanted), _read(entries)))
        flaws += unread
    return found, flaws


def _room(session: Session) -> int:
    """How many tokens a topic may have."""
    return session.view.epoch.model.window // 4 if session.view.epoch else 0


def _silent(topic: Topic) -> bool:
    """Whether nobody spoke of a topic: such ones come last."""
    return not topic.passages


async def _conclude(
    memories: Memories,
    found: Sequence[Proposed],
    *,
    id: str,
    manner: Manner,
    undone: Collection[str],
) -> Dreamt:
    """Plan on what is there at the moment and make it so; plan again if that changed meanwhile."""
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
    return Dreamt("failed", refused=tuple(unfit), why="memories changed all the while")


def _drafted(
    memories: Memories,
    found: Sequence[Proposed],
    barred: Collection[str],
    undone: Collection[str],
) -> Draft:
    before = _open(memories)
    asks: list[Scope] = [scope for scope in SCOPES if memories.consent(scope) == "ask"]
    plan = planned(before, found, asks=asks, barred=barred, without=undone)
    after = dict(before)
    for step in plan.steps:
        step.make(after)
    return Draft(plan, before, after)


def _made(memories: Memories, draft: Draft, id: str) -> Applied:
    """Make a draft true, all of it or nothing, and lay before a person what they decide."""
    based = [draft.before[name] for name in draft.names]
    done = memories.apply(draft.changes, why=WHY, session=id, based=based)
    for step in () if done.refused else draft.plan.held:
        memories.propose(step.changes, why=step.why)
    return done


async def _beside(work: Callable[[*Args], T], *args: *Args) -> T:
    """Do in a thread what only looks; whoever is stopped does not wait for it."""
    return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


def _last_words(entries: Iterable[Entry]) -> str:
    said = [entry.fact for entry in entries if isinstance(entry.fact, Assistant)]
    return words(said[-1].content) if said else ""


def _read(entries: Iterable[Entry]) -> str:
    """What tools have shown."""
    return "\n".join(one.text for one in heard(entries) if one.voice == "tool" and one.files)


def _detail(entries: Iterable[Entry]) -> str:
    return next((e.fact.detail for e in reversed([*entries]) if isinstance(e.fact, Ended)), "")
