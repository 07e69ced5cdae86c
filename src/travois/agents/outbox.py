"""The outbox of an agent: its recipients, and how messages reach them."""

from __future__ import annotations

from travois.agents.mail_text import MAIL_PREVIEW_CHARS, MAX_MAIL_CHARS
from travois.engine.agent import Agent
from travois.ports.agents import AgentOrder
from travois.ports.tool import ToolError

PARENT_ADDRESS = "parent"
ALL_ADDRESS = "all"
DELIVERY_NOTE = "will see it at the next step"
RESUME_NOTE = "resumes in the background with your message. Its report arrives automatically."


class AgentOutbox:
    """The outgoing messages of an agent: to children, siblings, parent, team and other sessions."""

    def __init__(self, agent: Agent, call: str = "") -> None:
        self._agent = agent
        self._call = call
        self._me = agent.team.birth.id if agent.team.birth else ""

    async def send(self, to: str, text: str) -> str:
        """Send a message; returns what becomes of it. Raises `ToolError` if nobody would get it."""
        courier = self._agent.team.courier
        if to == ALL_ADDRESS:
            return await self._send_to_all(text)
        if self._deliver_locally(to, text):
            return f"{to} {DELIVERY_NOTE}."
        if courier is not None and (":" in to or to in courier.teammates()):
            return await courier.deliver(to, text, sender=self._me)
        if (told := await self._resume_agent(to, text)) is not None:
            return told
        known = (
            ", ".join(
                (*self._list_local_agents(), *self._list_ended_children(), *self._list_team())
            )
            or "none"
        )
        raise ToolError(f"There is no agent {to!r}. You can write to: {known}.")

    async def _resume_agent(self, to: str, text: str) -> str | None:
        """Resume an agent that has ended, with a message; None if there is no such agent."""
        below, above = self._agent.team.children, self._agent.team.siblings
        for crew, sender, call in ((below, PARENT_ADDRESS, self._call), (above, self._me, "")):
            id = crew.find(to) if crew is not None else ""
            if crew is None or not id or id == self._me:
                continue
            order = AgentOrder(
                prompt=text, what="", resume=id, background=True, sender=sender, call=call
            )
            over = await crew.resume(order)
            if over.state == "running":
                return f"{to} had ended and {RESUME_NOTE}"
            return f"[agent {id}: {over.state}]\n{over.text}"
        return None

    def _list_ended_children(self) -> list[str]:
        """List our children that a message would resume."""
        if self._agent.team.children is None:
            return []
        reports = self._agent.team.children.reports().items()
        return [f"{id} ({one.state})" for id, one in reports if one.state != "running"]

    async def _send_to_all(self, text: str) -> str:
        reached = [name for name in self._list_local_agents() if self._deliver_locally(name, text)]
        for name in self._list_team():
            assert self._agent.team.courier is not None
            await self._agent.team.courier.deliver(name, text, sender=self._me)
            reached.append(name)
        if not reached:
            raise ToolError("There are no other agents to write to.")
        return f"{', '.join(reached)} {DELIVERY_NOTE}."

    def _list_team(self) -> tuple[str, ...]:
        return self._agent.team.courier.teammates() if self._agent.team.courier else ()

    def _list_local_agents(self) -> list[str]:
        """List the agents in this process: children, siblings and the parent."""
        crews = [
            crew
            for crew in (self._agent.team.children, self._agent.team.siblings)
            if crew is not None
        ]
        running = {
            id for crew in crews for id, one in crew.reports().items() if one.state == "running"
        }
        above = [PARENT_ADDRESS] if self._agent.team.siblings is not None else []
        return [*above, *sorted(running - {self._me})]

    def _deliver_locally(self, to: str, text: str) -> bool:
        below, above = self._agent.team.children, self._agent.team.siblings
        if to == self._me:
            return False
        if len(text) > MAX_MAIL_CHARS:
            text = self._spill_long_text(text)
        if (
            below is not None
            and to != PARENT_ADDRESS
            and below.send_message(to, text, sender=PARENT_ADDRESS)
        ):
            return True
        return above is not None and above.send_message(to, text, sender=self._me)

    def _spill_long_text(self, text: str) -> str:
        """Save a long message to a file, and return its beginning and the path."""
        session, world = self._agent.session, self._agent.world
        name = f"mail-{self._me}-{session.last.seq if session.last else 0}"
        path = world.spill(name, session.secrets.redact(text).encode(errors="replace"))
        return (
            f"{text[:MAIL_PREVIEW_CHARS]}\n[{len(text):,} characters in total; full text in {path}]"
        )
