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
    DreamPlan,
    MemoryTopic,
    TopicProposal,
    UserPassage,
    diff_memories,
    get_change_key,
    get_memory_key,
    index_by_key,
    parse_operations,
    plan_dream,
    plan_rule_steps,
    render_topic,
    split_into_topics,
)
from travois.memory.memory import (
    CHANGED_MEANWHILE,
    AppliedChanges,
    Memory,
    MemoryChange,
    MemoryScope,
    MemoryStore,
)
from travois.memory.speakers import collect_statements
from travois.memory.text import render_memory_diff as render_memory_diff
from travois.sessions.session import Session

DREAM_PROMPT_FILE = Path(__file__).parent.parent / "prompts" / "dream.md"
DREAM_TOOLS = (
    "Read",
    "Grep",
    "Glob",
    "Bash",
    "GitStatus",
    "GitDiff",
    "GitLog",
    "GitShow",
    "GitBlame",
)
DREAM_LIMITS = Limits(turns=8, tokens=400_000, seconds=600)
"""Requests and seconds for one topic; tokens for the whole consolidation."""
MEMORY_SCOPES: tuple[MemoryScope, ...] = get_args(MemoryScope)
MAX_PLAN_ATTEMPTS = 3
"""Attempts to plan, because memories may change meanwhile."""
DREAM_RESULT_NOTE = "dreamt"
"""The note that ends the log of a consolidation."""
DREAM_CHANGE_REASON = "dream"
"""The reason for these changes in the history."""

StepT = TypeVar("StepT")
Args = TypeVarTuple("Args")
DreamPhase = Literal["orient", "gather", "consolidate", "prune"]
DreamMode = Literal["make", "show"]
"""Apply changes, or only show them."""


class DreamResult(msgspec.Struct, frozen=True, omit_defaults=True):
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


class ChangeDraft(msgspec.Struct, frozen=True):
    """A plan for the current memories, and the memories that it leads to."""

    plan: DreamPlan
    before: Mapping[str, Memory]
    after: Mapping[str, Memory]

    @property
    def changes(self) -> tuple[MemoryChange, ...]:
        """Return the changes that carry out the plan."""
        return diff_memories(self.before, self.after, why=DREAM_CHANGE_REASON)

    @property
    def memory_keys(self) -> tuple[str, ...]:
        """Return the keys of the changed memories."""
        return tuple(map(get_change_key, self.changes))

    @property
    def diff(self) -> str:
        """Render the planned changes as a diff."""
        shown = (
            render_memory_diff(self.before[name], self.after.get(name)) for name in self.memory_keys
        )
        return "\n".join(filter(None, shown))

    def to_result(self, changes: AppliedChanges) -> DreamResult:
        """Build the result of the consolidation."""
        return DreamResult(
            id=changes.id,
            steps=tuple(step.why for step in self.plan.steps),
            files=self.memory_keys,
            refused=self.plan.refused,
            proposed=tuple(step.why for step in self.plan.held),
            diff=changes.diff,
        )


def make_dream_agent(parent: Agent, session: Session, *, id: str, log: str) -> Agent | str:
    """Create the read-only agent for memory consolidation; return why if there is none."""
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
    tools = {name: known[name] for name in DREAM_TOOLS if name in known}
    prompt = DREAM_PROMPT_FILE.read_text("utf-8").strip()
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
        budget=parent.budget.create_child(DREAM_LIMITS, whose="the consolidation"),
    )


async def consolidate_memories(
    session: Session,
    memories: MemoryStore,
    *,
    id: str,
    agent: Agent | str,
    gather: Callable[[], Sequence[UserPassage]],
    since: float = 0.0,
    manner: DreamMode = "make",
    undone: Collection[str] = (),
) -> None:
    """Consolidate memories; `agent` may be the reason why there is none, then rules work alone.

    Topics without news `since` the last consolidation are not shown to a model, and what was
    `undone` after an earlier one is not repeated.
    """
    _enter_phase(session, "orient")
    before = await _run_in_thread(_load_changeable, memories)
    steps = await _run_in_thread(plan_rule_steps, before, undone)
    _note_progress(session, f"{len(before)} memories; changes by rules: {len(steps)}")
    _enter_phase(session, "gather")
    said = await _run_in_thread(gather)
    drifted = await _run_in_thread(_find_changed_files, memories, before.values())
    _note_progress(session, f"{len(said)} user messages since the last consolidation")
    _note_progress(session, f"{len(drifted)} memories refer to files that have changed")
    _enter_phase(session, "consolidate")
    tidy = dict(before)
    for step in steps:
        step.apply(tidy)
    parts = split_into_topics(tidy.values(), said, drifted, tokens=_compute_topic_tokens(session))
    fresh = await _run_in_thread(lambda: [topic for topic in parts if topic.has_news_since(since)])
    found, flaws = await _ask_about_topics(session, agent, sorted(fresh, key=_has_no_passages))
    _enter_phase(session, "prune")
    over = await _plan_and_apply(memories, found, id=id, manner=manner, undone=undone)
    alone = agent if isinstance(agent, str) else ""
    record_dream_result(session, replace(over, alone=alone, refused=(*flaws, *over.refused)))


def record_dream_result(session: Session, dreamt: DreamResult) -> None:
    """Record the result of a consolidation in its log."""
    session.append(Noted(DREAM_RESULT_NOTE, msgspec.json.encode(dreamt).decode()))


def read_dream_result(entries: Iterable[Entry]) -> DreamResult | None:
    """Read the result of a consolidation from its log; None if it did not finish."""
    facts = (entry.fact for entry in entries)
    said = [
        fact.text for fact in facts if isinstance(fact, Noted) and fact.what == DREAM_RESULT_NOTE
    ]
    return msgspec.json.decode(said[0], type=DreamResult) if said else None


def _enter_phase(session: Session, phase: DreamPhase) -> None:
    """Record in the log that memory consolidation (dreaming) enters a phase."""
    stage = "starting" if phase in ("orient", "gather") else "updating"
    if session.state.get("stage") != stage:
        session.append(Changed("stage", stage))
    session.append(Changed("phase", phase))


def _note_progress(session: Session, text: str) -> None:
    session.append(Noted("dream", text))


def _load_changeable(memories: MemoryStore) -> dict[str, Memory]:
    """Return the memories that consolidation may change, by key."""
    return index_by_key(m for m in memories.read_all() if memories.consent(m.scope) != "off")


def _find_changed_files(
    memories: MemoryStore, some: Iterable[Memory]
) -> dict[str, tuple[str, ...]]:
    """Return the changed files of each memory to consolidate that has any."""
    found = {
        get_memory_key(memory): memories.find_stale_files(memory)
        for memory in some
        if memory.anchors
    }
    return {name: files for name, files in found.items() if files}


async def _ask_about_topics(
    session: Session, agent: Agent | str, parts: Sequence[MemoryTopic]
) -> tuple[list[TopicProposal], list[str]]:
    """Ask the consolidation model about one topic at a time, in fresh conversations."""
    found: list[TopicProposal] = []
    flaws: list[str] = []
    if isinstance(agent, str):
        _note_progress(session, f"rules only: {agent}")
        return found, flaws
    start = session.all_entries()[-1].seq
    for number, topic in enumerate(parts, 1):
        _note_progress(session, f"topic {number} of {len(parts)}: {len(topic.memories)} memories")
        agent.turn.inbox.append(User((Text(render_topic(topic)),), origin="task"))
        why = await run_turn(agent)
        entries = [entry for entry in session.history() if entry.seq > start]
        session.append(Rewound(start))
        if why != "end":
            flaws.append(f"the model did not finish: {_find_end_detail(entries) or why}")
            break
        wanted, unread = parse_operations(_get_final_reply(entries))
        found.append(TopicProposal(topic, tuple(wanted), _collect_file_texts(entries)))
        flaws += unread
    return found, flaws


def _compute_topic_tokens(session: Session) -> int:
    """Return the token limit of a memory consolidation topic."""
    return session.view.epoch.model.window // 4 if session.view.epoch else 0


def _has_no_passages(topic: MemoryTopic) -> bool:
    """Return whether no passage concerns a consolidation topic: such topics come last."""
    return not topic.passages


async def _plan_and_apply(
    memories: MemoryStore,
    found: Sequence[TopicProposal],
    *,
    id: str,
    manner: DreamMode,
    undone: Collection[str],
) -> DreamResult:
    """Plan a consolidation and apply it; plan again if memories changed meanwhile."""
    barred: set[str] = set()
    unfit: list[str] = []
    for _ in range(MAX_PLAN_ATTEMPTS):
        draft = await _run_in_thread(_draft_changes, memories, found, frozenset(barred), undone)
        if manner == "show":
            return draft.to_result(AppliedChanges("", draft.diff))
        with anyio.CancelScope(shield=True):  # nobody stops it between a change and its record
            done = await anyio.to_thread.run_sync(_apply_draft, memories, draft, id)
            if not done.refused:
                over = draft.to_result(done)
                return replace(over, refused=(*unfit, *over.refused))
            fresh = [line for line in done.refused if CHANGED_MEANWHILE not in line]
            barred |= {line.partition(":")[0] for line in fresh}
            unfit += fresh
    return DreamResult(
        "failed", refused=tuple(unfit), why="the memories kept changing during the consolidation"
    )


def _draft_changes(
    memories: MemoryStore,
    found: Sequence[TopicProposal],
    barred: Collection[str],
    undone: Collection[str],
) -> ChangeDraft:
    """Plan the consolidation of the current memories."""
    before = _load_changeable(memories)
    asks: list[MemoryScope] = [scope for scope in MEMORY_SCOPES if memories.consent(scope) == "ask"]
    plan = plan_dream(before, found, asks=asks, barred=barred, without=undone)
    after = dict(before)
    for step in plan.steps:
        step.apply(after)
    return ChangeDraft(plan, before, after)


def _apply_draft(memories: MemoryStore, draft: ChangeDraft, id: str) -> AppliedChanges:
    """Apply a consolidation plan all or nothing, and propose what the user must decide."""
    based = [draft.before[name] for name in draft.memory_keys]
    done = memories.apply(draft.changes, why=DREAM_CHANGE_REASON, session=id, based=based)
    for step in () if done.refused else draft.plan.held:
        memories.propose(step.changes, why=step.why)
    return done


async def _run_in_thread(work: Callable[[*Args], StepT], *args: *Args) -> StepT:
    """Run read-only consolidation work in a thread that a cancelled caller does not await."""
    return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


def _get_final_reply(entries: Iterable[Entry]) -> str:
    said = [entry.fact for entry in entries if isinstance(entry.fact, Assistant)]
    return extract_text(said[-1].content) if said else ""


def _collect_file_texts(entries: Iterable[Entry]) -> str:
    """Return the file contents that tools have shown during a consolidation."""
    return "\n".join(
        one.text for one in collect_statements(entries) if one.voice == "tool" and one.files
    )


def _find_end_detail(entries: Iterable[Entry]) -> str:
    return next((e.fact.detail for e in reversed([*entries]) if isinstance(e.fact, Ended)), "")
