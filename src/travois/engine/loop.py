"""The agent loop: ask the model and run its tool calls until it has finished."""

from __future__ import annotations

import anyio

from travois.context.manage import relieve
from travois.context.session_memory.keep import keep_notes
from travois.core.content import Opaque, Text, words
from travois.core.errors import Fault
from travois.core.facts import Assistant, Ended, EndedWhy, Result, User
from travois.core.view import THINKING, View, open_calls, waiting
from travois.engine import loop_detection
from travois.engine.agent import Agent
from travois.engine.budget import Exhausted, check, warn
from travois.engine.fallback import come_back
from travois.engine.request import ask
from travois.hooks.fire import gave_up, sent_back, unwelcome
from travois.memory.extraction import gather
from travois.memory.recall import recollect
from travois.prompt.briefing import brief
from travois.sessions.session import Session
from travois.skills.invoke import lapse
from travois.snapshots.before_call import settle

STOPPED = "Stopped before it finished; how far it got is unknown."
NEVER_RAN = "Stopped before it ran: nothing was done."
UNKNOWN = "The session ended while this call ran; how far it got is unknown."
CUT = "Your reply was cut off at the output limit. Go on exactly where it stopped."
CUT_CALL = (
    "Your reply was cut off at the output limit inside a tool call, which was not run. "
    "Make the call again with smaller input, in several steps if need be."
)
EMPTY = "Your last reply was empty. Go on with the task, or say that it is done."
NUDGES = 3
CUTS = ("length", "window")
INSTANT = 0.001


async def turn(agent: Agent) -> EndedWhy:
    """Run one turn, until the model has finished. Cancel it to stop it."""
    session, purse, detail = agent.session, agent.budget, ""
    agent.turn.stop_reason, agent.turn.sent_back = "", 0
    agent.turn.began = session.last.seq if session.last else 0
    why: EndedWhy = "crashed"
    purse.begin(began := agent.runtime.clock())
    try:
        with anyio.move_on_after(most := purse.time(began)) as time:
            why, detail = await _work(agent)
        if time.cancelled_caught:
            why, detail = "budget", f"reached {purse.exhausted(began + most + INSTANT)}"
    except Exhausted as stop:
        why, detail = stop.why, str(stop)
    except anyio.get_cancelled_exc_class():
        why = "aborted"
        raise
    except Fault as fault:
        why, detail = "failed", fault.what
        raise
    finally:  # appends are synchronous: this works while being cancelled
        answer_open(session, started=STOPPED)
        lapse(agent)
        with anyio.CancelScope(shield=True):
            await settle(agent)
        session.append(Ended(why, detail))
        session.sync()
    return why


async def _work(agent: Agent) -> tuple[EndedWhy, str]:
    """Ask the model and run its tool calls; return the reason for the end and a detail."""
    answer_open(agent.session, started=UNKNOWN)
    agent.runtime.relocate(agent)
    come_back(agent)
    await brief(agent)
    agent.turn.stop_reason = await admit(agent) or agent.turn.stop_reason
    while await unfinished(agent):
        if stop := stopped(agent):
            return stop
        check(agent)
        warn(agent)
        if failure := await relieve(agent) or await ask(agent):
            gather(agent, after="failure")
            await gave_up(agent, failure)
            return "failed", failure
        await _act(agent)
        await admit(agent)
        nudge(agent)
    keep_notes(agent)
    gather(agent)
    return _last_word(agent.session.view), ""


async def _act(agent: Agent) -> None:
    """Run the tool calls of the last reply, if it has any."""
    if open_calls(agent.session.view):
        from travois.engine.tool_calls import act

        await act(agent)


async def admit(agent: Agent) -> str:
    """Append waiting messages: prompts, steering, notes, mail and job reports.

    Returns why a hook kept a prompt out, if no other came in.
    """
    kept_out = ""
    prompted = False
    if agent.runtime.reload_settings is not None:
        await agent.runtime.reload_settings(agent)
    agent.tools.announce_mcp(agent)
    agent.turn.inbox.extend(agent.team.collect_mail(agent))
    if agent.session.jobs:
        from travois.engine.background_jobs import end_reports

        agent.turn.inbox.extend(end_reports(agent))
    while agent.turn.inbox:
        said = agent.turn.inbox[0]
        why = await unwelcome(agent, said)
        if not why:
            await recollect(agent, said)
            agent.session.append(said)
        # Only now: hooks and recall take time, and a message must survive being stopped there.
        agent.turn.inbox.popleft()
        kept_out = kept_out or why
        prompted = prompted or (said.origin == "human" and not why)
    return "" if prompted else kept_out


async def unfinished(agent: Agent) -> bool:
    """Return whether the model has to speak next, or a hook sends it back to work."""
    if agent.turn.stop_reason or waiting(agent.session.view):
        return True
    return await sent_back(agent)


def stopped(agent: Agent) -> tuple[EndedWhy, str] | None:
    """Return why the turn ends before the model has finished; none if it goes on."""
    if agent.turn.stop_reason:
        return "hook", agent.turn.stop_reason
    if who := agent.session.state.get("ending"):
        return "end", f"{who} asked it to end"
    if stuck := loop_detection.stuck(agent.session.view):
        return "failed", stuck
    return None


def nudge(agent: Agent) -> None:
    """Ask the model to continue after a reply that was cut off or empty, a few times."""
    view = agent.session.view
    text = _hint(view)
    if text and _nudged(view) < NUDGES:
        agent.session.append(User((Text(text),), origin="note"))


def answer_open(session: Session, *, started: str) -> None:
    """Give every open call a result, so that the next request is valid."""
    for call in open_calls(session.view):
        decided = session.decided.get(call.id)
        text = started if decided and decided.verdict == "allow" else NEVER_RAN
        session.append(Result(call.id, (Text(text),), error=True))


def _last_word(view: View) -> EndedWhy:
    last = view.items[-1].fact if view.items else None
    return "refusal" if isinstance(last, Assistant) and last.stop == "refusal" else "end"


def _hint(view: View) -> str:
    """Return the nudge that fits the last reply; empty if it needs none."""
    last, reply = view.items[-1].fact, view.items[view.replied].fact
    if isinstance(last, User) or not isinstance(reply, Assistant):
        return ""
    if reply.stop in CUTS and reply.detail == "call":
        return CUT_CALL
    if last is not reply:
        return ""
    if reply.stop in CUTS:
        return CUT
    return EMPTY if reply.stop == "end" and _silent(reply) and _after_result(view) else ""


def _nudged(view: View) -> int:
    """Count the nudges at the end, with only cut and empty replies between them."""
    count = 0
    for item in reversed(view.items):
        match item.fact:
            case User(content=(Text(text=text),)) if text in (CUT, CUT_CALL, EMPTY):
                count += 1
            case User():
                break
            case Assistant() as reply if reply.stop not in CUTS and not _silent(reply):
                break
            case _:
                pass
    return count


def _silent(reply: Assistant) -> bool:
    """Return whether a reply has neither text nor calls."""
    kept = (block for block in reply.content if not isinstance(block, Text))
    thoughts = all(isinstance(b, Opaque) and b.kind in (*THINKING, "reasoning") for b in kept)
    return thoughts and not words(reply.content).strip()


def _after_result(view: View) -> bool:
    return len(view.items) > 1 and isinstance(view.items[-2].fact, Result)
