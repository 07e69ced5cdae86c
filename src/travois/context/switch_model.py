"""Switching to another model: the conversation is kept if it fits, or else compacted first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from travois.context.window import compaction_threshold, current_model, scaled_layers
from travois.core import models
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Compacted, Entry, Epoch
from travois.core.tokens import context_tokens, family_ratio, head_tokens, stop_threshold
from travois.engine.agent import Agent
from travois.engine.tool_definitions import adapt_toolset
from travois.lazy_imports import lazy_imports
from travois.ports.world import CompactionProgress, ModelClient, UserWarned
from travois.prompt.briefing import rebuild_briefing

if TYPE_CHECKING:
    from travois.context.compaction.summary_call import ModelSummary

with lazy_imports():
    from travois.context.compaction import compact, summary_call, summary_prompt


class TrialLog:
    """An in-memory log, for trying out a model switch."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    def append(self, fact: AnyFact) -> Entry:
        """Append in memory only."""
        last = self._entries[-1]
        self._entries.append(Entry(last.seq + 1, last.at, fact))
        return self._entries[-1]

    def sync(self) -> None:
        """Do nothing: no file is written."""

    def read(self) -> Iterable[Entry]:
        """Return the real entries, then the trial ones."""
        return list(self._entries)


def switch_to_model(agent: Agent, epoch: Epoch, *, summary: ModelSummary | None = None) -> str:
    """Make this epoch the head of every request; raises `UserError`, and changes nothing, if not.

    `written` is the model's part of a summary that may be needed; without it, a prepared one is
    used. Returns a description of the compaction, or nothing if there was none.
    """
    epoch = adapt_toolset(epoch, agent.tools.by_name, wanted=agent.tools.toolset)
    trial = _make_trial_agent(agent, epoch)
    if not _is_too_large(trial):
        agent.session.append(epoch)
        return ""
    fact = _compact_trial(trial, summary)
    agent.session.append(fact)
    agent.session.append(epoch)
    agent.session.emit(UserWarned(told := compact.describe_compaction(fact)))
    return told


async def switch_to_model_with_summary(
    agent: Agent, epoch: Epoch, *, former: Callable[[models.ModelCard], ModelClient] | None = None
) -> str:
    """Switch models, and let the current model write a summary first if one is needed.

    `former` returns the client of that model, where it is not the agent's; raises `UserError`.
    """
    trial = _make_trial_agent(
        agent, adapt_toolset(epoch, agent.tools.by_name, wanted=agent.tools.toolset)
    )
    written = None
    if _is_too_large(trial):
        _compact_trial(trial, None)  # raises before anybody is asked, where nothing would help
        wish = summary_prompt.SummaryRequest("switch", most=scaled_layers(trial).ledger)
        try:
            answers = former(current_model(agent)) if former else agent.model
            written = await summary_call.write_model_summary(replace(agent, model=answers), wish)
        except UserError as fault:
            written = summary_call.ModelSummary(why=fault.what)
        finally:
            agent.session.emit(CompactionProgress(over=True))
    return switch_to_model(agent, epoch, summary=written)


def _make_trial_agent(agent: Agent, epoch: Epoch) -> Agent:
    """Return a copy of the agent for trying out a model switch; its log is in memory."""
    session = agent.session
    trial = replace(
        agent,
        session=session.copy_to_log(TrialLog(session.history())),
        prompt=replace(agent.prompt, restate=rebuild_briefing),
        tools=replace(agent.tools, restate_mcp=tuple),
    )
    trial.session.append(epoch)
    return trial


def _is_too_large(trial: Agent) -> bool:
    return context_tokens(trial.session.view) >= stop_threshold(current_model(trial))


def _compact_trial(trial: Agent, summary: summary_call.ModelSummary | None) -> Compacted:
    """Compact for a model switch without a request; raises `UserError` if it is still too large."""
    card, most = current_model(trial), stop_threshold(current_model(trial))
    goal, wish = min(compaction_threshold(trial), most), summary_prompt.SummaryRequest("switch")
    fact = None
    for part in (
        summary or summary_call.find_prepared_summary(trial),
        summary_call.ModelSummary(why="no room for a summary by the model"),
    ):
        fact = compact.best_compaction(
            trial, compact.cut_candidates(trial), request=wish, summary=part, goal=goal
        )
        if fact is not None and fact.after < most:
            return replace(fact, limit=compaction_threshold(trial))
    epoch, size = trial.session.view.epoch, context_tokens(trial.session.view)
    head = round(head_tokens(epoch) * family_ratio(card.id)) if epoch else 0
    raise UserError(
        f"Cannot switch to {card.name}",
        why=f"the conversation needs at least {fact.after if fact else size:,} tokens ({head:,} of "
        f"them for system prompt and tools); {most:,} of {card.window:,} are available",
        fix="Choose a model with a larger window. Nothing was changed.",
    )
