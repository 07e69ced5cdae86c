"""Background agents and commands as `stream-json` task lines."""

from __future__ import annotations

from travois.compat.claude_json import JsonObject, make_line_uuid
from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Changed, Entry, Finished, Result, Spawned, User
from travois.engine.background_jobs import JOB_RUNNING
from travois.lazy_imports import lazy_imports
from travois.ports.world import Event
from travois.sessions.session import JOB_STATE_PREFIX

with lazy_imports():
    from travois.context.ledger import extractors


TASK_STATUSES = {"done": "completed", "failed": "failed"}
"""Task statuses by the outcome of an agent; any other outcome is "stopped"."""


class TaskLines:
    """Reports the start and the end of each background task once."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._known: dict[str, Spawned] = {}
        self._asked: dict[str, Call] = {}
        self._answered = ""

    def lines(self, event: Event) -> list[JsonObject]:
        """Return the lines for an event."""
        match event:
            case Entry(fact=Assistant(content=content)):
                self._asked = {call.id: call for call in extract_calls(content)}
                return []
            case Entry(fact=Result(call=call)):
                self._answered = call
                return []
            case Entry(seq=seq, fact=Changed(what=what, value=value)) if what.startswith(
                JOB_STATE_PREFIX
            ):
                return self._job_lines(seq, what.removeprefix(JOB_STATE_PREFIX), value)
            case Entry(seq=seq, fact=User(mail=what, content=content)) if what.startswith(
                JOB_STATE_PREFIX
            ):
                state = extract_text(content).partition(": ")[2].partition("]")[0]
                return self._job_lines(seq, what.removeprefix(JOB_STATE_PREFIX), state)
            case Entry(seq=seq, fact=Spawned() as fact) if fact.call:
                self._known[fact.id] = fact
                started: JsonObject = {"description": fact.what, "task_type": "local_agent"}
                return [task_line("task_started", str(seq), fact, session=self._session) | started]
            case Entry(seq=seq, fact=Finished(id=id, outcome=outcome)) if id in self._known:
                ended: JsonObject = {
                    "status": TASK_STATUSES.get(outcome, "stopped"),
                    "output_file": "",
                }
                fact = self._known.pop(id)
                line = task_line("task_notification", str(seq), fact, session=self._session)
                return [line | ended | {"summary": fact.what}]
            case _:
                return []

    def _job_lines(self, seq: int, id: str, state: str) -> list[JsonObject]:
        """Return the line for a background command that started or ended."""
        call = self._asked.get(self._answered)
        if state == JOB_RUNNING:
            args = extractors.decode_arguments(call.args) if call else {}
            what = str(args.get("description") or args.get("command") or "")
            fact = self._known[id] = Spawned(id, "shell", what, self._answered)
            started: JsonObject = {"description": what, "task_type": "local_bash"}
            return [task_line("task_started", str(seq), fact, session=self._session) | started]
        if id not in self._known:
            return []
        fact = self._known.pop(id)
        status = "completed" if state == "exit code 0" else "stopped"
        status = "failed" if state.startswith("exit code") and status != "completed" else status
        ended: JsonObject = {
            "status": status,
            "output_file": "",
            "summary": f"{fact.what}: {state}",
        }
        return [task_line("task_notification", str(seq), fact, session=self._session) | ended]


def task_line(kind: str, what: str, fact: Spawned, *, session: str) -> JsonObject:
    """Build a `stream-json` task line."""
    ids: JsonObject = {"session_id": session, "uuid": make_line_uuid(session, f"{kind}.{what}")}
    about: JsonObject = {"task_id": fact.id, "tool_use_id": fact.call}
    return {"type": "system", "subtype": kind, **about, **ids}
