"""Agents that a session starts, as lines: they also come and go between turns."""

from __future__ import annotations

from travois.app.shapes import Object
from travois.app.speak import uuid
from travois.engine.ports import Event
from travois.kernel.facts import Entry, Finished, Spawned

STATES = {"done": "completed", "failed": "failed"}
"""How an agent ended, by the names that hosts know; else it was stopped."""


class Tasks:
    """Tells once of each agent that it began, and that it ended."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._known: dict[str, Spawned] = {}

    def lines(self, event: Event) -> list[Object]:
        """What to print for this event."""
        match event:
            case Entry(seq=seq, fact=Spawned() as fact) if fact.call:
                self._known[fact.id] = fact
                started: Object = {"description": fact.what, "task_type": "local_agent"}
                return [self._line("task_started", seq, fact) | started]
            case Entry(seq=seq, fact=Finished(id=id, outcome=outcome)) if id in self._known:
                ended: Object = {"status": STATES.get(outcome, "stopped"), "output_file": ""}
                fact = self._known.pop(id)
                return [self._line("task_notification", seq, fact) | ended | {"summary": fact.what}]
            case _:
                return []

    def _line(self, kind: str, seq: int, fact: Spawned) -> Object:
        ids: Object = {"session_id": self._session, "uuid": uuid(self._session, f"{kind}.{seq}")}
        about: Object = {"task_id": fact.id, "tool_use_id": fact.call}
        return {"type": "system", "subtype": kind, **about, **ids}
