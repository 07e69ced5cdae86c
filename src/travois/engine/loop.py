"""The loop: while the last word is not the model's, ask and act."""

from __future__ import annotations

from travois.engine.agent import Agent
from travois.engine.dispatch import act
from travois.engine.session import Session
from travois.engine.stream import ask
from travois.kernel.blocks import Text
from travois.kernel.facts import Assistant, Ended, EndedWhy, Result, User
from travois.kernel.view import View, open_calls, waiting

STOPPED = "Stopped before it finished; what it had done by then is not known."
NEVER_RAN = "Stopped before it ran: nothing was done."
UNKNOWN = "The session ended while this call ran; what it had done by then is not known."
CUT = "Your reply was cut off at the output limit. Go on exactly where it stopped."
CUT_CALL = (
    "Your reply was cut off at the output limit inside a tool call, which was not run. "
    "Make the call again with smaller input, in several steps if need be."
)
EMPTY = "Your last reply was empty. Go on with the task, or say that it is done."
NUDGES = 3


async def turn(agent: Agent) -> EndedWhy:
    """Run until the last word is the model's. Cancelling it is the way to stop it."""
    session, why, detail, asked = agent.session, "aborted", "", 0
    try:
        admit(agent)
        while waiting(session.view):
            if stop := exhausted(agent, asked):
                why, detail = stop
                break
            asked += 1
            if failure := await ask(agent):
                why, detail = "failed", failure
                break
            await act(agent)
            admit(agent)
            nudge(agent)
        else:
            why = _last_word(session.view)
    finally:  # appends are synchronous: this works while being cancelled
        answer_open(session, started=STOPPED)
        session.append(Ended(why, detail))
        session.sync()
    return why


def admit(agent: Agent) -> None:
    """Let in what waits outside: prompts, steering, notes."""
    while agent.inbox:
        agent.session.append(agent.inbox.popleft())


def exhausted(agent: Agent, asked: int) -> tuple[EndedWhy, str] | None:
    """Whether a limit forbids one more request."""
    limits, dollars = agent.limits, agent.session.dollars
    if limits.turns and asked >= limits.turns:
        return "turns", f"reached the limit of {limits.turns} turns"
    if limits.dollars and dollars >= limits.dollars:
        return "budget", f"spent ${dollars:.4f} of ${limits.dollars:.4f}"
    return None


def nudge(agent: Agent) -> None:
    """A reply that was cut or empty is not a last word: say so, a few times at most."""
    view = agent.session.view
    reply = view.items[-1].fact
    if not isinstance(reply, Assistant) or _nudged(view) >= NUDGES:
        return
    if reply.stop == "length":
        text = CUT_CALL if reply.detail == "call" else CUT
    elif reply.stop == "end" and not reply.content and _after_result(view):
        text = EMPTY
    else:
        return
    agent.session.append(User((Text(text),), origin="note"))


def answer_open(session: Session, *, started: str) -> None:
    """Give every open call a result, so that the next request is valid whatever happened."""
    for call in open_calls(session.view):
        text = started if call.id in session.decided else NEVER_RAN
        session.append(Result(call.id, (Text(text),), error=True))


def _last_word(view: View) -> EndedWhy:
    last = view.items[-1].fact if view.items else None
    return "refusal" if isinstance(last, Assistant) and last.stop == "refusal" else "end"


def _nudged(view: View) -> int:
    """How many nudges in a row stand before the last reply."""
    count, index = 0, len(view.items) - 2
    while index >= 0 and (said := view.items[index].fact) and isinstance(said, User):
        if said.origin != "note":
            break
        count, index = count + 1, index - 2
    return count


def _after_result(view: View) -> bool:
    return len(view.items) > 1 and isinstance(view.items[-2].fact, Result)
