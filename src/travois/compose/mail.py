"""The post of one session: the mailboxes that it reads, and the way to those of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from travois.agents import mailbox as store
from travois.agents.mail_text import LONGEST, mail
from travois.agents.mailbox import Letter, Mailbox
from travois.compose.open_session import Found, Place
from travois.core.errors import Fault
from travois.core.facts import Changed, User
from travois.engine.agent import Agent, World
from travois.ports.agents import TaskStore
from travois.ports.world import Warned
from travois.sessions.home import Home
from travois.sessions.session import Session
from travois.settings.schema import Mail

STOP = "stop"
"""The sender of a letter that ends an agent at its next step; no mailbox has this name."""
FULL = 1 << 16
"""The size from which a mailbox is emptied when all of it was read."""


def compose_mail(
    place: Place,
    found: Found,
    session: Session,
    *,
    world: World,
    settings: Mail | None,
    stack: AsyncExitStack,
) -> Office | None:
    """The post of a session, which joins its team until the stack unwinds; none if it has none."""
    if settings is None:
        return None
    office = Office(place, found, session, spill=world.spill, settings=settings)
    if settings.address:
        folder, leave = store.join(place.home, settings.address)
        stack.callback(leave)
        office.boxes.append(Mailbox(folder))
        team, _, name = settings.address.partition(":")
        from travois.agents.team_tasks import TeamTaskFile
        from travois.compose.team_tasks import TeamTasks

        file = TeamTaskFile(folder.parent)
        office.tasks = TeamTasks(session, file, team=team, member=name)
    stack.callback(office.close)
    return office


async def post(home: Home, to: str, text: str, *, sender: str) -> str:
    """Leave a message for another process and ring; returns what becomes of it."""
    from travois.agents import wakeup as doorbell

    folder = await anyio.to_thread.run_sync(store.locate, home, to)
    await anyio.to_thread.run_sync(Mailbox(folder).put, sender, text)
    if await doorbell.ring(folder):
        return f"{to} was told."
    return f"It waits in the mailbox of {to}, who sees it at the next step."


def collect_from(folder: Path) -> Callable[[Agent], Iterator[User]]:
    """What a person puts in the way of an agent from elsewhere: words, or that it is to end."""
    box = Mailbox(folder / "mail")

    def collect(agent: Agent) -> Iterator[User]:
        for letter in box.take():
            if letter.sender == STOP:
                agent.session.append(Changed("ending", "the user"))
            elif letter.id not in agent.session.received:
                yield mail(letter.sender, letter.text, id=letter.id)

    return collect


class Office:
    """What a session needs to send mail to other processes and to get theirs."""

    def __init__(
        self,
        place: Place,
        found: Found,
        session: Session,
        *,
        spill: Callable[[str, bytes], str],
        settings: Mail,
    ) -> None:
        self.boxes = [Mailbox(found.log.folder / "mail")]
        self.listens = settings.listen or bool(settings.address)
        self._home = place.home
        self._session, self._spill = session, spill
        self.tasks: TaskStore | None = None
        """The task list of its team; none if it is in none."""
        self._address = settings.address or f"{store.SESSION}:{found.id[:8]}"
        self._team = settings.address.partition(":")[0]
        self._given: dict[Path, set[str]] = {}
        """The letters that were taken from each box since it was empty."""
        self.called = False
        """Whether somebody rang since we last looked for mail."""
        self._rung = anyio.Event()

    def collect(self) -> Iterator[User]:
        """The mail that came, without what the log has already."""
        received, self.called = self._session.received, False
        self._follow_tasks()
        for box in self.boxes:
            self._tidy(box, above=FULL)
            letters = self._taken(box)
            self._given.setdefault(box.folder, set()).update(letter.id for letter in letters)
            yield from (self._shown(letter) for letter in letters if letter.id not in received)

    def _follow_tasks(self) -> None:
        """Take over what others of the team changed on its task list."""
        if self.tasks is None:
            return
        try:
            self.tasks.read()
        except Fault as fault:
            self._session.emit(Warned(str(fault)))

    def team(self) -> tuple[str, ...]:
        """The names of the others in our team."""
        names = store.members(self._home, self._team) if self._team else ()
        return tuple(name for name in names if f"{self._team}:{name}" != self._address)

    async def carry(self, to: str, text: str, *, sender: str = "") -> str:
        """Leave a message in a mailbox and ring its bell."""
        address = to if ":" in to else f"{self._team}:{to}"
        signed = f"{self._address}/{sender}" if sender else self._address
        text = self._session.secrets.redacted(text)
        return await post(self._home, address, text, sender=signed)

    async def rung(self) -> None:
        """Wait until somebody rings, unless somebody did."""
        while not self.called:
            await self._rung.wait()

    async def listen(self) -> None:
        """Answer the bell of each of our mailboxes."""
        from travois.agents import wakeup as doorbell

        async with anyio.create_task_group() as group:
            for box in self.boxes:
                box.folder.mkdir(mode=0o700, exist_ok=True)
                group.start_soon(doorbell.listen, box.folder, self._ring)

    def close(self) -> None:
        """Empty the boxes of what was read."""
        for box in self.boxes:
            self._tidy(box, above=0)

    def _taken(self, box: Mailbox) -> list[Letter]:
        """What lies in a box; that it cannot be read ends nothing."""
        tell, lost = self._session.emit, box.damaged
        try:
            letters = box.take()
        except Fault as fault:
            tell(Warned(str(fault)))
            return []
        if box.damaged > lost:
            tell(Warned(f"{box.damaged - lost} damaged letters in {box.folder} were skipped"))
        return letters

    def _ring(self) -> None:
        self.called = True
        self._rung.set()
        self._rung = anyio.Event()

    def _tidy(self, box: Mailbox, *, above: int) -> None:
        """Empty a box once all that was taken from it is in the log, on the disk itself."""
        session, given = self._session, self._given.get(box.folder, set())
        if box.taken > above and given <= session.received:
            session.sync()
            box.clear()
            given.clear()

    def _shown(self, letter: Letter) -> User:
        whole = ""
        if len(letter.text) > LONGEST:
            data = self._session.secrets.redacted_bytes(letter.text.encode())
            try:
                whole = self._spill(f"mail-{letter.id}", data)
            except OSError as error:
                raise Fault("A long message cannot be kept", why=str(error)) from error
        return mail(letter.sender, letter.text, id=letter.id, whole=whole)
