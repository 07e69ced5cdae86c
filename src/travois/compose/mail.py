"""Mail of a session: its mailboxes, and messages to agents of other sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from travois.agents import mailbox
from travois.agents.mail_text import MAX_MAIL_CHARS, format_mail
from travois.agents.mailbox import Mailbox, MailMessage
from travois.compose.open_session import OpenedSession, Workspace
from travois.core.errors import UserError
from travois.core.facts import Changed, User
from travois.core.tasks import TODOS_STATE, Task, TaskList, add_task, read_tasks
from travois.engine.agent import Agent, World
from travois.lazy_imports import lazy_imports
from travois.ports.agents import TaskListEdit, TaskStore
from travois.ports.world import UserWarned
from travois.sessions.home import TravoisHome
from travois.sessions.session import Session
from travois.settings.schema import MailSettings

if TYPE_CHECKING:
    from travois.agents.team_tasks import TeamTaskFile

with lazy_imports():
    from travois.agents import team_tasks


TEAM_STATE = "team"
"""State of a session: the team whose task list `todos` is a copy of."""


class TeamTasks:
    """A `TaskStore` over the team's file; every list that is read or written goes into the log."""

    def __init__(self, session: Session, file: TeamTaskFile, *, team: str, member: str) -> None:
        self._session, self._file, self._member = session, file, member
        if session.state.get(TEAM_STATE) != team:
            self._contribute_tasks(read_tasks(session.state.get(TODOS_STATE, "")))
            session.append(Changed(TEAM_STATE, team))

    @property
    def member_name(self) -> str:
        """The name of the session in its team."""
        return self._member

    def read(self) -> str:
        """Return the team's list."""
        return self._record_list(self._file.read())

    def change(self, edit: TaskListEdit) -> str:
        """Change the team's list."""
        return self._record_list(self._file.change(edit))

    def _record_list(self, value: str) -> str:
        if (value or "[]") != self._session.state.get(TODOS_STATE, "[]"):
            self._session.append(Changed(TODOS_STATE, value))
        return value

    def _contribute_tasks(self, own: TaskList) -> None:
        """Add the session's open tasks to the team's list when it joins."""
        wanted = [task for task in own if task.is_open]
        if wanted:
            self._file.change(lambda tasks: _append_tasks(tasks, wanted))


def _append_tasks(tasks: TaskList, more: list[Task]) -> TaskList:
    """Append tasks to a team's task list under new IDs, without their blockers."""
    for task in more:
        fresh = Task(
            content=task.content,
            status=task.status,
            active=task.active,
            description=task.description,
            owner=task.owner,
            metadata=task.metadata,
        )
        tasks, _ = add_task(tasks, fresh)
    return tasks


STOP_SENDER = "stop"
"""The sender of a message that stops an agent at its next step; no mailbox has this name."""
FULL_MAILBOX_BYTES = 1 << 16
"""The size from which a mailbox is emptied when all of it was read."""


def compose_mail(
    workspace: Workspace,
    opened: OpenedSession,
    session: Session,
    *,
    world: World,
    settings: MailSettings | None,
    stack: AsyncExitStack,
) -> SessionMail | None:
    """Compose a session's mailboxes and join its team; None if the settings disable it."""
    if settings is None:
        return None
    mail = SessionMail(workspace, opened, session, spill=world.spill, settings=settings)
    if settings.address:
        folder, leave = mailbox.join_team(workspace.home, settings.address)
        stack.callback(leave)
        mail.boxes.append(Mailbox(folder))
        team, _, name = settings.address.partition(":")
        file = team_tasks.TeamTaskFile(folder.parent)
        mail.tasks = TeamTasks(session, file, team=team, member=name)
    stack.callback(mail.close)
    return mail


async def send_mail(home: TravoisHome, to: str, text: str, *, sender: str) -> str:
    """Put mail into another process's mailbox and wake it; return the outcome."""
    folder = await anyio.to_thread.run_sync(mailbox.find_mailbox_folder, home, to)
    await anyio.to_thread.run_sync(Mailbox(folder).put, sender, text)
    if await mailbox.send_wakeup(folder):
        return f"{to} was notified."
    return f"It is in the mailbox of {to}, who reads it at the next step."


def mail_collector(folder: Path) -> Callable[[Agent], Iterator[User]]:
    """Return a function that collects mail from other processes for an agent."""
    box = Mailbox(folder / "mail")

    def collect(agent: Agent) -> Iterator[User]:
        for letter in box.take():
            if letter.sender == STOP_SENDER:
                agent.session.append(Changed("ending", "the user"))
            elif letter.id not in agent.session.received:
                yield format_mail(letter.sender, letter.text, id=letter.id)

    return collect


class SessionMail:
    """A session's mailboxes, and its access to those of others."""

    def __init__(
        self,
        workspace: Workspace,
        opened: OpenedSession,
        session: Session,
        *,
        spill: Callable[[str, bytes], str],
        settings: MailSettings,
    ) -> None:
        self.boxes = [Mailbox(opened.log.folder / "mail")]
        self.listens = settings.listen or bool(settings.address)
        self._home = workspace.home
        self._session, self._spill = session, spill
        self.tasks: TaskStore | None = None
        """The task list of its team; none if it is in none."""
        self._address = settings.address or f"{mailbox.SESSION_TEAM}:{opened.id[:8]}"
        self._team = settings.address.partition(":")[0]
        self._given: dict[Path, set[str]] = {}
        """The ids of messages taken from each mailbox since it was empty."""
        self.called = False
        """True if there was a wake-up since mail was last collected."""
        self._rung = anyio.Event()

    def collect(self) -> Iterator[User]:
        """Yield new mail that the log does not have yet."""
        received, self.called = self._session.received, False
        self._follow_tasks()
        for box in self.boxes:
            self._clear_read_mail(box, above=FULL_MAILBOX_BYTES)
            letters = self._take_letters(box)
            self._given.setdefault(box.folder, set()).update(letter.id for letter in letters)
            yield from (
                self._letter_message(letter) for letter in letters if letter.id not in received
            )

    def _follow_tasks(self) -> None:
        """Take over changes of the team's task list."""
        if self.tasks is None:
            return
        try:
            self.tasks.read()
        except UserError as fault:
            self._session.emit(UserWarned(str(fault)))

    def teammates(self) -> tuple[str, ...]:
        """Return the names of the other members of the team."""
        names = mailbox.list_team_members(self._home, self._team) if self._team else ()
        return tuple(name for name in names if f"{self._team}:{name}" != self._address)

    async def deliver(self, to: str, text: str, *, sender: str = "") -> str:
        """Put a message into a mailbox and wake its reader."""
        address = to if ":" in to else f"{self._team}:{to}"
        signed = f"{self._address}/{sender}" if sender else self._address
        text = self._session.secrets.redact(text)
        return await send_mail(self._home, address, text, sender=signed)

    async def wait_for_mail(self) -> None:
        """Wait for the next wake-up; return at once if there was one."""
        while not self.called:
            await self._rung.wait()

    async def listen(self) -> None:
        """Listen for wake-ups of each of our mailboxes."""
        async with anyio.create_task_group() as group:
            for box in self.boxes:
                box.folder.mkdir(mode=0o700, exist_ok=True)
                group.start_soon(mailbox.listen_for_wakeups, box.folder, self._wake)

    def close(self) -> None:
        """Clear the mailboxes of read messages."""
        for box in self.boxes:
            self._clear_read_mail(box, above=0)

    def _take_letters(self, box: Mailbox) -> list[MailMessage]:
        """Take the messages from a mailbox; warn if it cannot be read."""
        tell, lost = self._session.emit, box.damaged
        try:
            letters = box.take()
        except UserError as fault:
            tell(UserWarned(str(fault)))
            return []
        if box.damaged > lost:
            tell(UserWarned(f"{box.damaged - lost} damaged messages in {box.folder} were skipped"))
        return letters

    def _wake(self) -> None:
        self.called = True
        self._rung.set()
        self._rung = anyio.Event()

    def _clear_read_mail(self, box: Mailbox, *, above: int) -> None:
        """Clear a mailbox once all messages from it are in the log on disk."""
        session, given = self._session, self._given.get(box.folder, set())
        if box.taken > above and given <= session.received:
            session.sync()
            box.clear()
            given.clear()

    def _letter_message(self, letter: MailMessage) -> User:
        whole = ""
        if len(letter.text) > MAX_MAIL_CHARS:
            data = self._session.secrets.redact_bytes(letter.text.encode())
            try:
                whole = self._spill(f"mail-{letter.id}", data)
            except OSError as error:
                raise UserError("A long message could not be saved", why=str(error)) from error
        return format_mail(letter.sender, letter.text, id=letter.id, whole=whole)
