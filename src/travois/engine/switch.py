"""Another head: what fits is kept, what does not is shortened first, or nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from travois.engine.agent import Agent
from travois.engine.briefing import again
from travois.engine.heads import suited
from travois.engine.ports import Warned
from travois.engine.room import limit
from travois.kernel.facts import AnyFact, Compacted, Entry, Epoch
from travois.kernel.faults import Fault
from travois.kernel.tokens import context_tokens, family, head_tokens, stop_at


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


def switch(agent: Agent, epoch: Epoch) -> None:
    """Make this the head of every request; raises `Fault`, and changes nothing, if it cannot be."""
    epoch = suited(epoch, agent.tools, wanted=agent.toolset)
    model, session = epoch.model, agent.session
    trial = replace(agent, session=session.twin(Rehearsal(session.history())))
    trial.baseline = lambda: again(trial)
    trial.session.append(epoch)
    size, most = context_tokens(trial.session.view), stop_at(model)
    if size < most:
        session.append(epoch)
        return
    fact = _shortened(trial, goal=min(limit(trial), most))
    if fact is None or fact.after >= most:
        head = round(head_tokens(epoch) * family(model.id))
        raise Fault(
            f"The session cannot go on with {model.name}",
            why=f"it needs about {fact.after if fact else size:,} tokens at least, {head:,} of "
            f"them for system text and tools, and {most:,} of {model.window:,} may be used",
            fix="Choose a model with a larger window; nothing was changed.",
        )
    from travois.engine.compaction import receipt

    session.append(fact)
    session.append(epoch)
    session.emit(Warned(receipt(fact)))


def _shortened(trial: Agent, *, goal: int) -> Compacted | None:
    """A compaction that needs no model: rules gather what stays."""
    from travois.engine.compaction import rungs, shorter

    prose = trial.session.draft if trial.layers.draft else ""
    fact = shorter(trial, rungs(trial), trigger="switch", goal=goal, prose=prose)
    return replace(fact, limit=limit(trial)) if fact else None
