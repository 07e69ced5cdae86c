"""Another head: what fits is kept, what does not is shortened first, or nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from travois.context.window import fitted, limit, model
from travois.core.errors import Fault
from travois.core.facts import AnyFact, Compacted, Entry, Epoch
from travois.core.models import Model as Card
from travois.core.tokens import context_tokens, family, head_tokens, stop_at
from travois.engine.agent import Agent
from travois.engine.tool_definitions import suited
from travois.ports.world import Compacting, Model, Warned
from travois.prompt.briefing import again

if TYPE_CHECKING:
    from travois.context.compaction.summary_call import Written


class Rehearsal:
    """A log in memory: what is appended to it has not happened."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    def append(self, fact: AnyFact) -> Entry:
        """Pretend."""
        last = self._entries[-1]
        self._entries.append(Entry(last.seq + 1, last.at, fact))
        return self._entries[-1]

    def sync(self) -> None:
        """Nothing is on file."""

    def read(self) -> Iterable[Entry]:
        """What happened, and then what was pretended."""
        return list(self._entries)


def switch(agent: Agent, epoch: Epoch, *, written: Written | None = None) -> str:
    """Make this the head of every request; raises `Fault`, and changes nothing, if it cannot be.

    `written` is the model's part of the summary that may be needed; else what was prepared is.
    Returns what became of the conversation, or nothing if it goes on as it is.
    """
    epoch = suited(epoch, agent.tools.by_name, wanted=agent.tools.toolset)
    trial = _trial(agent, epoch)
    if not _is_too_large(trial):
        agent.session.append(epoch)
        return ""
    from travois.context.compaction.compact import receipt

    fact = _shortened(trial, written)
    agent.session.append(fact)
    agent.session.append(epoch)
    agent.session.emit(Warned(told := receipt(fact)))
    return told


async def switch_with_summary(
    agent: Agent, epoch: Epoch, *, former: Callable[[Card], Model] | None = None
) -> str:
    """The same, where the model so far writes its part of a summary, if one is needed.

    `former` finds whoever answers for that model, where it is not the agent's; raises `Fault`.
    """
    from travois.context.compaction.summary_call import Wish, Written, write_model_part

    trial = _trial(agent, suited(epoch, agent.tools.by_name, wanted=agent.tools.toolset))
    written = None
    if _is_too_large(trial):
        _shortened(trial, None)  # raises before anybody is asked, where nothing would help
        wish = Wish("switch", most=fitted(trial).ledger)
        try:
            answers = former(model(agent)) if former else agent.model
            written = await write_model_part(replace(agent, model=answers), wish)
        except Fault as fault:
            written = Written(why=fault.what)
        finally:
            agent.session.emit(Compacting(over=True))
    return switch(agent, epoch, written=written)


def _trial(agent: Agent, epoch: Epoch) -> Agent:
    """The agent as it would be with this head; what happens to it does not happen."""
    session = agent.session
    trial = replace(
        agent,
        session=session.twin(Rehearsal(session.history())),
        prompt=replace(agent.prompt, restate=again),
        tools=replace(agent.tools, restate_mcp=tuple),
    )
    trial.session.append(epoch)
    return trial


def _is_too_large(trial: Agent) -> bool:
    return context_tokens(trial.session.view) >= stop_at(model(trial))


def _shortened(trial: Agent, written: Written | None) -> Compacted:
    """A compaction that needs no call; raises `Fault` if even that is too large."""
    from travois.context.compaction.compact import rungs, shorter
    from travois.context.compaction.summary_call import Wish, Written, prepared

    card, most = model(trial), stop_at(model(trial))
    goal, wish = min(limit(trial), most), Wish("switch")
    fact = None
    for part in (written or prepared(trial), Written(why="there is no room for more")):
        fact = shorter(trial, rungs(trial), wish=wish, written=part, goal=goal)
        if fact is not None and fact.after < most:
            return replace(fact, limit=limit(trial))
    epoch, size = trial.session.view.epoch, context_tokens(trial.session.view)
    head = round(head_tokens(epoch) * family(card.id)) if epoch else 0
    raise Fault(
        f"The session cannot go on with {card.name}",
        why=f"it needs about {fact.after if fact else size:,} tokens at least, {head:,} of "
        f"them for system text and tools, and {most:,} of {card.window:,} may be used",
        fix="Choose a model with a larger window; nothing was changed.",
    )
