"""The outbox of an agent: its recipients, and how messages reach them."""

from __future__ import annotations

from travois.agents.mail_text import HEAD, LONGEST
from travois.engine.agent import Agent
from travois.ports.agents import AgentOrder
from travois.ports.tool import ToolError

PARENT = "parent"
ALL = "all"
SOON = "will see it at the next step"
WOKEN = "resumes in the background with your message. Its report arrives automatically."


class AgentOutbox:
    """The outgoing messages of an agent: to children, siblings, parent, team and other sessions."""

    def __init__(self, agent: Agent, call: str = "") -> None:
        self._agent = agent
        self._call = call
        self._me = agent.team.birth.id if agent.team.birth else ""

    async def send(self, to: str, text: str) -> str:
        """Send a message; returns what becomes of it. Raises `Refusal` if nobody would get it."""
        courier = self._agent.team.courier
        if to == ALL:
            return await self._send_to_all(text)
        if self._tell(to, text):
            return f"{to} {SOON}."
        if courier is not None and (":" in to or to in courier.teammates()):
            return await courier.deliver(to, text, sender=self._me)
        if (told := await self._wake(to, text)) is not None:
            return told
        known = ", ".join((*self._near(), *self._ended(), *self._team())) or "none"
        raise ToolError(f"There is no agent {to!r}. You can write to: {known}.")

    async def _wake(self, to: str, text: str) -> str | None:
        """Resume an agent that has ended, with a message; None if there is no such agent."""
        below, above = self._agent.team.children, self._agent.team.siblings
        for crew, sender, call in ((below, PARENT, self._call), (above, self._me, "")):
            id = crew.find(to) if crew is not None else ""
            if crew is None or not id or id == self._me:
                continue
            order = AgentOrder(
                prompt=text, what="", resume=id, background=True, sender=sender, call=call
            )
            over = await crew.resume(order)
            if over.state == "running":
                return f"{to} had ended and {WOKEN}"
            return f"[agent {id}: {over.state}]\n{over.text}"
        return None

    def _ended(self) -> list[str]:
        """List our children that a message would resume."""
        if self._agent.team.children is None:
            return []
        reports = self._agent.team.children.reports().items()
        return [f"{id} ({one.state})" for id, one in reports if one.state != "running"]

    async def _send_to_all(self, text: str) -> str:
        reached = [name for name in self._near() if self._tell(name, text)]
        for name in self._team():
            assert self._agent.team.courier is not None
            await self._agent.team.courier.deliver(name, text, sender=self._me)
            reached.append(name)
        if not reached:
            raise ToolError("There are no other agents to write to.")
        return f"{', '.join(reached)} {SOON}."

    def _team(self) -> tuple[str, ...]:
        return self._agent.team.courier.teammates() if self._agent.team.courier else ()

    def _near(self) -> list[str]:
        """List the agents in this process: children, siblings and the parent."""
        crews = [
            crew
            for crew in (self._agent.team.children, self._agent.team.siblings)
            if crew is not None
        ]
        running = {
            id for crew in crews for id, one in crew.reports().items() if one.state == "running"
        }
        above = [PARENT] if self._agent.team.siblings is not None else []
        return [*above, *sorted(running - {self._me})]

    def _tell(self, to: str, text: str) -> bool:
        below, above = self._agent.team.children, self._agent.team.siblings
        if to == self._me:
            return False
        if len(text) > LONGEST:
            text = self._kept(text)
        if below is not None and to != PARENT and below.send_message(to, text, sender=PARENT):
            return True
        return above is not None and above.send_message(to, text, sender=self._me)

    def _kept(self, text: str) -> str:
        """Return the beginning of a long text, and the file that has all of it."""
        session, world = self._agent.session, self._agent.world
        name = f"mail-{self._me}-{session.last.seq if session.last else 0}"
        path = world.spill(name, session.secrets.redacted(text).encode(errors="replace"))
        return f"{text[:HEAD]}\n[{len(text):,} characters in total; full text in {path}]"
