"""Agents and commands in the background, as lines: they also come and go between turns."""

from __future__ import annotations

from collections.abc import Sequence

from travois.app.shapes import Object
from travois.app.speak import uuid
from travois.context.doing import NAME
from travois.context.doing import Work as Doing
from travois.engine.jobs import RUNNING
from travois.engine.ports import Event
from travois.engine.report import spent
from travois.engine.session import JOB
from travois.kernel.blocks import Call, calls, words
from travois.kernel.facts import Assistant, Changed, Entry, Finished, Noted, Result, Spawned, User

STATES = {"done": "completed", "failed": "failed"}
"""How an agent ended, by the names that hosts know; else it was stopped."""


class Work:
    """Tells how far one agent has come, each time that it does something or that is named."""

    def __init__(self, session: str, spawned: Spawned, *, before: Sequence[Entry] = ()) -> None:
        self._session = session
        self._about = spawned
        self._began: float | None = None
        self._uses = self._tokens = 0
        self._work, self._spent = Doing(), spent(before)

    def lines(self, event: Event) -> list[Object]:
        """What to print for an event of its own."""
        if not isinstance(event, Entry):
            return []
        self._began = event.at if self._began is None else self._began
        self._work, self._spent = self._work.after(event), self._spent.after(event)
        done = calls(event.fact.content) if isinstance(event.fact, Assistant) else ()
        if isinstance(event.fact, Assistant):
            self._tokens = event.fact.usage.context
        named = isinstance(event.fact, Noted) and event.fact.what == NAME
        if not done and not named:
            return []
        self._uses += len(done)
        usage: Object = {"total_tokens": self._tokens, "tool_uses": self._uses}
        usage["duration_ms"] = round(1000 * (event.at - self._began))
        told: Object = {"description": self._about.what, "usage": usage}
        told |= {"last_tool_name": self._work.tool, "summary": self._work.said}
        told["total_cost_usd"] = self._spent.dollars
        what = f"{self._about.id}.{event.seq}"
        return [_line("task_progress", what, self._about, session=self._session) | told]


class Tasks:
    """Tells once of each agent that it began, and that it ended."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._known: dict[str, Spawned] = {}
        self._asked: dict[str, Call] = {}
        self._answered = ""

    def lines(self, event: Event) -> list[Object]:
        """What to print for this event."""
        match event:
            case Entry(fact=Assistant(content=content)):
                self._asked = {call.id: call for call in calls(content)}
                return []
            case Entry(fact=Result(call=call)):
                self._answered = call
                return []
            case Entry(seq=seq, fact=Changed(what=what, value=value)) if what.startswith(JOB):
                return self._job(seq, what.removeprefix(JOB), value)
            case Entry(seq=seq, fact=User(mail=what, content=content)) if what.startswith(JOB):
                state = words(content).partition(": ")[2].partition("]")[0]
                return self._job(seq, what.removeprefix(JOB), state)
            case Entry(seq=seq, fact=Spawned() as fact) if fact.call:
                self._known[fact.id] = fact
                started: Object = {"description": fact.what, "task_type": "local_agent"}
                return [_line("task_started", str(seq), fact, session=self._session) | started]
            case Entry(seq=seq, fact=Finished(id=id, outcome=outcome)) if id in self._known:
                ended: Object = {"status": STATES.get(outcome, "stopped"), "output_file": ""}
                fact = self._known.pop(id)
                line = _line("task_notification", str(seq), fact, session=self._session)
                return [line | ended | {"summary": fact.what}]
            case _:
                return []

    def _job(self, seq: int, id: str, state: str) -> list[Object]:
        """A command in the background that began or ended."""
        call = self._asked.get(self._answered)
        if state == RUNNING:
            from travois.context.ledger.acts import decoded

            args = decoded(call.args) if call else {}
            what = str(args.get("description") or args.get("command") or "")
            fact = self._known[id] = Spawned(id, "shell", what, self._answered)
            started: Object = {"description": what, "task_type": "local_bash"}
            return [_line("task_started", str(seq), fact, session=self._session) | started]
        if id not in self._known:
            return []
        fact = self._known.pop(id)
        status = "completed" if state == "exit code 0" else "stopped"
        status = "failed" if state.startswith("exit code") and status != "completed" else status
        ended: Object = {"status": status, "output_file": "", "summary": f"{fact.what}: {state}"}
        return [_line("task_notification", str(seq), fact, session=self._session) | ended]


def _line(kind: str, what: str, fact: Spawned, *, session: str) -> Object:
    ids: Object = {"session_id": session, "uuid": uuid(session, f"{kind}.{what}")}
    about: Object = {"task_id": fact.id, "tool_use_id": fact.call}
    return {"type": "system", "subtype": kind, **about, **ids}
