"""The agent loop: ask the model and run its tool calls until it has finished."""

from __future__ import annotations

import anyio

from travois.context.manage import manage_window
from travois.context.session_memory.notes import update_notes_if_due
from travois.core.content import Opaque, Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Ended, EndReason, Result, User
from travois.core.view import THINKING_KINDS, View, awaits_model, open_calls
from travois.engine import loop_detection
from travois.engine.agent import Agent
from travois.engine.budget import BudgetExhausted, check_budget, warn_near_limit
from travois.engine.request import request_reply
from travois.engine.retry import return_to_chosen_model
from travois.hooks.fire import on_stop, on_stop_failure, on_user_prompt
from travois.lazy_imports import lazy_imports
from travois.memory.extraction import start_extraction
from travois.memory.recall import count_used_memories, recall_for_prompt
from travois.prompt.briefing import brief_agent
from travois.sessions.session import Session
from travois.skills.invoke import revoke_turn_rights
from travois.snapshots.before_call import snapshot_after_turn

with lazy_imports():
    from travois.engine import background_jobs, tool_calls


STOPPED_RESULT = "Stopped before it finished; how far it got is unknown."
NEVER_RAN_RESULT = "Stopped before it ran: nothing was done."
UNKNOWN_RESULT = "The session ended while this call ran; how far it got is unknown."
CUT_REPLY_NUDGE = "Your reply was cut off at the output limit. Go on exactly where it stopped."
CUT_CALL_NUDGE = (
    "Your reply was cut off at the output limit inside a tool call, which was not run. "
    "Make the call again with smaller input, in several steps if need be."
)
EMPTY_REPLY_NUDGE = "Your last reply was empty. Go on with the task, or say that it is done."
MAX_NUDGES = 3
CUT_STOPS = ("length", "window")
CLOCK_MARGIN_SECONDS = 0.001


async def run_turn(agent: Agent) -> EndReason:
    """Run one turn of the agent loop until the model has finished. Cancel it to stop it."""
    session, budget, detail, limit = agent.session, agent.budget, "", ""
    agent.turn.stop_reason, agent.turn.sent_back = "", 0
    agent.turn.began = session.last.seq if session.last else 0
    why: EndReason = "crashed"
    budget.begin_run(began := agent.runtime.clock())
    try:
        with anyio.move_on_after(most := budget.seconds_left(began)) as time:
            why, detail = await _ask_and_act(agent)
        if time.cancelled_caught:
            why, limit = "budget", "seconds"
            detail = f"reached {budget.exhausted_text(began + most + CLOCK_MARGIN_SECONDS)}"
    except BudgetExhausted as stop:
        why, detail, limit = stop.why, str(stop), stop.limit
    except anyio.get_cancelled_exc_class():
        why = "aborted"
        raise
    except UserError as fault:
        why, detail = "failed", fault.what
        raise
    finally:  # appends are synchronous: this works while being cancelled
        answer_open_calls(session, started=STOPPED_RESULT)
        revoke_turn_rights(agent)
        with anyio.CancelScope(shield=True):
            await snapshot_after_turn(agent)
        budget.end_run(agent.runtime.clock())
        session.append(Ended(why, detail, limit))
        session.sync()
    return why


async def _ask_and_act(agent: Agent) -> tuple[EndReason, str]:
    """Ask the model and run its tool calls; return why the turn ended, with details."""
    answer_open_calls(agent.session, started=UNKNOWN_RESULT)
    agent.runtime.relocate(agent)
    return_to_chosen_model(agent)
    await brief_agent(agent)
    agent.turn.stop_reason = await admit_inbox(agent) or agent.turn.stop_reason
    while await has_more_to_do(agent):
        if stop := find_turn_stop(agent):
            return stop
        check_budget(agent)
        warn_near_limit(agent)
        if failure := await manage_window(agent) or await request_reply(agent):
            start_extraction(agent, after="failure")
            await on_stop_failure(agent, failure)
            return "failed", failure
        await _answer_calls(agent)
        await admit_inbox(agent)
        nudge_model(agent)
    update_notes_if_due(agent)
    await count_used_memories(agent)
    start_extraction(agent)
    return _end_reason(agent.session.view), ""


async def _answer_calls(agent: Agent) -> None:
    """Run the tool calls of the last reply, if it has any."""
    if open_calls(agent.session.view):
        await tool_calls.run_tool_calls(agent)


async def admit_inbox(agent: Agent) -> str:
    """Append waiting messages to the log: prompts, steering, notes, mail and job reports.

    Returns why a hook kept a prompt out, if no other was admitted.
    """
    kept_out = ""
    prompted = False
    if agent.runtime.reload_settings is not None:
        await agent.runtime.reload_settings(agent)
    agent.tools.announce_mcp(agent)
    agent.turn.inbox.extend(agent.team.collect_mail(agent))
    if agent.session.jobs:
        agent.turn.inbox.extend(background_jobs.collect_end_reports(agent))
    while agent.turn.inbox:
        said = agent.turn.inbox[0]
        why = await on_user_prompt(agent, said)
        if not why:
            await recall_for_prompt(agent, said)
            agent.session.append(said)
        # Only now: hooks and recall take time, and a message must survive being stopped there.
        agent.turn.inbox.popleft()
        kept_out = kept_out or why
        prompted = prompted or (said.origin == "human" and not why)
    return "" if prompted else kept_out


async def has_more_to_do(agent: Agent) -> bool:
    """Return whether the agent loop goes on: the model must reply, or a hook asks for more."""
    if agent.turn.stop_reason or awaits_model(agent.session.view):
        return True
    return await on_stop(agent)


def find_turn_stop(agent: Agent) -> tuple[EndReason, str] | None:
    """Return why the agent loop must end the turn early; None if it goes on."""
    if agent.turn.stop_reason:
        return "hook", agent.turn.stop_reason
    if who := agent.session.state.get("ending"):
        return "end", f"{who} asked it to end"
    if stuck := loop_detection.find_stuck_turn(agent.session.view):
        return "failed", stuck
    return None


def nudge_model(agent: Agent) -> None:
    """Ask the model to continue after a reply that was cut off or empty, a few times."""
    view = agent.session.view
    text = _choose_nudge(view)
    if text and _count_nudges(view) < MAX_NUDGES:
        agent.session.append(User((Text(text),), origin="note"))


def answer_open_calls(session: Session, *, started: str) -> None:
    """Give every tool call without a result one, so that the next request is valid."""
    for call in open_calls(session.view):
        decided = session.decided.get(call.id)
        text = started if decided and decided.verdict == "allow" else NEVER_RAN_RESULT
        session.append(Result(call.id, (Text(text),), error=True))


def _end_reason(view: View) -> EndReason:
    last = view.items[-1].fact if view.items else None
    return "refusal" if isinstance(last, Assistant) and last.stop == "refusal" else "end"


def _choose_nudge(view: View) -> str:
    """Return the nudge that fits the model's last reply; empty if it needs none."""
    last, reply = view.items[-1].fact, view.items[view.replied].fact
    if isinstance(last, User) or not isinstance(reply, Assistant):
        return ""
    if reply.stop in CUT_STOPS and reply.detail == "call":
        return CUT_CALL_NUDGE
    if last is not reply:
        return ""
    if reply.stop in CUT_STOPS:
        return CUT_REPLY_NUDGE
    return (
        EMPTY_REPLY_NUDGE
        if reply.stop == "end" and _is_empty_reply(reply) and _follows_result(view)
        else ""
    )


def _count_nudges(view: View) -> int:
    """Count the latest nudges with only cut-off and empty replies between them."""
    count = 0
    for item in reversed(view.items):
        match item.fact:
            case User(content=(Text(text=text),)) if text in (
                CUT_REPLY_NUDGE,
                CUT_CALL_NUDGE,
                EMPTY_REPLY_NUDGE,
            ):
                count += 1
            case User():
                break
            case Assistant() as reply if reply.stop not in CUT_STOPS and not _is_empty_reply(reply):
                break
            case _:
                pass
    return count


def _is_empty_reply(reply: Assistant) -> bool:
    """Return whether a model's reply has neither text nor tool calls."""
    kept = (block for block in reply.content if not isinstance(block, Text))
    thoughts = all(isinstance(b, Opaque) and b.kind in (*THINKING_KINDS, "reasoning") for b in kept)
    return thoughts and not extract_text(reply.content).strip()


def _follows_result(view: View) -> bool:
    return len(view.items) > 1 and isinstance(view.items[-2].fact, Result)
