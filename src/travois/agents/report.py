"""Reports from a subagent to its parent: its final message, or partial findings.

Everything comes from the subagent's own log, so one that died has a report as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from travois.context.layers import ContextLayers
from travois.context.tool_results import render_preview
from travois.core.cache_audit import SessionSpending
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import (
    Assistant,
    Ended,
    EndReason,
    Entry,
    Finished,
    Noted,
    Opened,
    Result,
    Spawned,
    User,
)
from travois.core.models import Usage
from travois.core.spending import measure_runs
from travois.core.tokens import compact_threshold, context_tokens, estimate_tokens, fact_tokens
from travois.core.view import View, open_calls
from travois.lazy_imports import lazy_imports
from travois.ports.agents import HOOK_CALL, AgentReport, ChildState
from travois.sessions.session import Session

with lazy_imports():
    from travois.context import ledger


MAX_FINDINGS = 3
"""Number of last texts that stand in for a final message."""
MAX_LISTED_FILES = 40
"""Maximum changed files that are named."""
MAX_ARGUMENT_CHARS = 200
MIN_REPORT_TOKENS = 500
"""A report has so many tokens even where many come in, if the window is not too small for it."""
REPORT_WRAPPER_TOKENS = 100
"""Tokens of the wrapper around a report in a tool result."""
CRASH_REASON = "Travois stopped while the agent was running"
DEFAULT_LAYERS = ContextLayers()
RESUMED_NOTE = "resumed"
"""The note in a child's log where it went on after it had ended: what it cost before is paid."""
LEFT_BEHIND_NOTE = "stays"
"""The note in a child's log of what it leaves behind; the last one counts."""
END_STATES: dict[EndReason, ChildState] = {
    "end": "done",
    "aborted": "stopped",
    "turns": "limit",
    "budget": "limit",
}
"""The state of a child by how its last turn ended; anything else is a failure."""


def build_report(
    id: str, entries: Iterable[Entry], *, state: ChildState | None = None, why: str = ""
) -> AgentReport:
    """Build a subagent's report from its log; `state` overrides what the log says."""
    told = list(entries)
    own = _entries_since_fork(told)
    ended = next((e.fact for e in reversed(own) if isinstance(e.fact, Ended)), None)
    state = state or (END_STATES.get(ended.why, "failed") if ended else "lost")
    why = why or (ended.detail if ended else "")
    files = list_changed_files(own)
    texts = [
        text
        for e in own
        if isinstance(e.fact, Assistant) and (text := extract_text(e.fact.content).strip())
    ]
    parts = [texts[-1]] if state == "done" and texts else _partial_findings(own, texts, state, why)
    stays = [
        e.fact.text for e in own if isinstance(e.fact, Noted) and e.fact.what == LEFT_BEHIND_NOTE
    ]
    parts += [text for text in stays[-1:] if text]
    parts += [f"Files changed: {_format_file_list(files)}"] if files else []
    return AgentReport(id, state, "\n\n".join(parts), files, compute_agent_cost(told).usage)


def list_changed_files(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the files that a subagent changed, the last one first."""
    return tuple(file.path for file in ledger.build_ledger(entries).files if file.state != "read")


def compute_agent_cost(entries: Iterable[Entry]) -> SessionSpending:
    """Sum what a subagent has cost since it branched off or was resumed."""
    total = SessionSpending()
    for entry in entries:
        total = total.after_entry(entry)
        if isinstance(entry.fact, Noted) and entry.fact.what == RESUMED_NOTE:
            total = replace(total, usage=Usage(), dollars=0.0)
    return total


def count_agent_turns(entries: list[Entry]) -> int:
    """Count the model calls of a subagent since it branched off, or since it was resumed."""
    resumed = [
        place
        for place, entry in enumerate(entries)
        if isinstance(entry.fact, Noted) and entry.fact.what == RESUMED_NOTE
    ]
    return measure_runs(entries[resumed[-1] :] if resumed else entries).turns


def report_token_budget(
    view: View, waiting: Iterable[User], *, limit: int, layers: ContextLayers, among: int
) -> int:
    """Compute the token budget of the next subagent report: its share of the free window.

    Half of the window stays free for what the reports lead to.
    """
    held = [item.fact for item in view.open.values() if item is not None]
    beside = sum(map(fact_tokens, (*held, *(item.fact for item in view.queued), *waiting)))
    since = sum(fact_tokens(item.fact) for item in view.items[view.replied + 1 :])
    free = (limit - context_tokens(view) - beside) // 2
    left = min(free, layers.reply - since - beside) // max(1, among)
    most = layers.result_cap("Agent") - REPORT_WRAPPER_TOKENS
    return max(min(MIN_REPORT_TOKENS, limit // (4 * max(1, among))), min(most, left))


def fit_report_text(text: str, *, tokens: int, keep: Callable[[bytes], str], nonce: str) -> str:
    """Return a subagent's report if it fits, else its two ends and the path of the rest."""
    if estimate_tokens(text) <= tokens:
        return text
    return render_preview(
        text, path=keep(text.encode(errors="replace")), tokens=tokens, nonce=nonce
    )


def _entries_since_fork(entries: list[Entry]) -> list[Entry]:
    """Return a subagent's own log entries: a fork's log begins with its parent's history."""
    first = max((n for n, e in enumerate(entries) if isinstance(e.fact, Opened)), default=0)
    return entries[first:]


def _partial_findings(own: list[Entry], texts: list[str], state: ChildState, why: str) -> list[str]:
    """Collect partial findings of a subagent that has no final message."""
    ended = "It returned no text" if state == "done" else f"It did not finish ({state}"
    parts = [f"{ended}{': ' + why if why else ''}{'' if state == 'done' else ')'}. Partial result:"]
    parts += texts[-MAX_FINDINGS:] or ["(no findings)"]
    doing = _describe_last_calls(own)
    return [*parts, f"Last tool calls: {doing}"] if doing else parts


def _describe_last_calls(own: list[Entry]) -> str:
    """List the last tool calls for a subagent's partial report, marking unfinished ones."""
    asked = (extract_calls(e.fact.content) for e in reversed(own) if isinstance(e.fact, Assistant))
    last = next((found for found in asked if found), ())
    done = {e.fact.call for e in own if isinstance(e.fact, Result) and not e.fact.error}
    return "; ".join(_format_call(call, finished=call.id in done) for call in last)


def _format_call(call: Call, *, finished: bool) -> str:
    """Format a tool call for a subagent's partial report."""
    args = (
        call.args if len(call.args) <= MAX_ARGUMENT_CHARS else f"{call.args[:MAX_ARGUMENT_CHARS]} …"
    )
    return f"{call.name} {args}" + ("" if finished else " (unfinished)")


def _format_file_list(files: tuple[str, ...]) -> str:
    more = f" and {len(files) - MAX_LISTED_FILES} more" if len(files) > MAX_LISTED_FILES else ""
    return ", ".join(files[:MAX_LISTED_FILES]) + more


def report_message(report: AgentReport) -> User:
    """Build the message that brings a subagent's report into the conversation."""
    return User(_format_report(report), origin="task", mail=report.id)


def deliver_report(session: Session, report: AgentReport, *, call: str) -> None:
    """Log a subagent's report: as the result of the call that waits, or as a message."""
    if call == HOOK_CALL:
        return
    if any(waiting.id == call for waiting in open_calls(session.view)):
        session.append(Result(call, _format_report(report), error=True))
    else:
        session.append(report_message(report))


def recover_lost_agents(
    session: Session,
    read: Callable[[str], list[Entry]],
    *,
    keep: Callable[[str, bytes], str],
    layers: ContextLayers = DEFAULT_LAYERS,
) -> None:
    """Deliver reports after a crash for the subagents that never reported."""
    owed, epoch = list(session.owed.values()), session.view.epoch
    for number, spawned in enumerate(owed):
        entries = read(spawned.id)
        if spawned.id in session.running:
            cost = compute_agent_cost(entries)
            turns = count_agent_turns(entries)
            session.append(Finished(spawned.id, "lost", cost.usage, cost.dollars, turns))
        if not entries or epoch is None:
            continue
        tokens = report_token_budget(
            session.view,
            (),
            limit=compact_threshold(epoch.model),
            layers=layers,
            among=len(owed) - number,
        )
        over = _report_crashed_agent(spawned.id, entries, read)
        text = fit_report_text(
            over.text, tokens=tokens, keep=partial(keep, f"{over.id}-report"), nonce=""
        )
        deliver_report(session, replace(over, text=text), call=spawned.call)


def _report_crashed_agent(
    id: str, entries: list[Entry], read: Callable[[str], list[Entry]]
) -> AgentReport:
    """Report the work of a subagent that died in a crash, and of those below it."""
    ended = next(
        (e.fact for e in reversed(_entries_since_fork(entries)) if isinstance(e.fact, Ended)), None
    )
    over = build_report(
        id, entries, state=None if ended else "lost", why="" if ended else CRASH_REASON
    )
    facts = [entry.fact for entry in _entries_since_fork(entries)]
    gone = {fact.id for fact in facts if isinstance(fact, Finished)}
    below = (fact.id for fact in facts if isinstance(fact, Spawned) and fact.id not in gone)
    texts = (
        f"Subagent {each}: {_report_crashed_agent(each, read(each), read).text}" for each in below
    )
    return replace(over, text="\n\n".join((over.text, *texts)))


def _format_report(report: AgentReport) -> tuple[Text, ...]:
    return (Text(f"[agent {report.id}: {report.state}]\n{report.text}"),)
