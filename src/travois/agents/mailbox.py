"""Mailboxes: a file of mail between processes for each recipient, emptied once all is read.

The reader keeps message IDs in its own log, so that each message is delivered exactly once whatever
is killed when. The order of a sender's messages is that of the file.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hmac import compare_digest
from itertools import islice
from pathlib import Path
from struct import calcsize, unpack
from typing import BinaryIO

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from travois.agents.mail_text import MAIL_PREVIEW_CHARS, MAX_MAIL_CHARS
from travois.core.errors import UserError
from travois.core.patterns import compile_lazily
from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.ports.agents import AgentOrder
from travois.ports.tool import ToolError
from travois.sessions import blobs, catalog, log_line
from travois.sessions.home import TravoisHome

with lazy_imports():
    import secrets


SOCKET_NAME = "bell"
TOKEN_FILE = "bell.token"
WAKEUP_TIMEOUT_SECONDS = 2.0
"""Seconds that either side waits for the other."""
ACKNOWLEDGEMENT = b"heard\n"
PEER_GONE_ERRORS = (OSError, anyio.EndOfStream, anyio.BrokenResourceError)
"""Errors raised when the other side is gone."""


async def listen_for_wakeups(folder: Path, rung: Callable[[], None]) -> None:
    """Accept mailbox wake-ups until cancelled; return if no socket can be created."""
    token = secrets.token_hex(16).encode() + b"\n"
    with suppress(OSError), _short_folder_path(folder) as at:
        _write_token(folder / TOKEN_FILE, token)
        async with await anyio.create_unix_listener(f"{at}/{SOCKET_NAME}", mode=0o600) as listener:
            try:
                await listener.serve(lambda stream: _handle_wakeup(stream, token, rung=rung))
            finally:
                (folder / SOCKET_NAME).unlink(missing_ok=True)
                (folder / TOKEN_FILE).unlink(missing_ok=True)


async def send_wakeup(folder: Path) -> bool:
    """Wake a mailbox's owner; return whether anybody answered."""
    with suppress(*PEER_GONE_ERRORS), _short_folder_path(folder) as at:
        token = (folder / TOKEN_FILE).read_bytes()
        with anyio.move_on_after(WAKEUP_TIMEOUT_SECONDS):
            async with await anyio.connect_unix(f"{at}/{SOCKET_NAME}") as stream:
                await stream.send(token)
                return await stream.receive(len(ACKNOWLEDGEMENT)) == ACKNOWLEDGEMENT
    return False


async def _handle_wakeup(stream: SocketStream, token: bytes, *, rung: Callable[[], None]) -> None:
    """Answer a wake-up from another process of ours that knows the token."""
    async with stream:
        with suppress(*PEER_GONE_ERRORS), anyio.move_on_after(WAKEUP_TIMEOUT_SECONDS):
            if _is_own_process(stream) and compare_digest(
                await _receive_line(stream, len(token)), token
            ):
                rung()
                await stream.send(ACKNOWLEDGEMENT)


async def _receive_line(stream: SocketStream, size: int) -> bytes:
    """Receive a line of limited length from a mailbox's wake-up connection."""
    text = b""
    while len(text) < size and not text.endswith(b"\n"):
        text += await stream.receive(size - len(text))
    return text


def _is_own_process(stream: SocketStream) -> bool:
    """Return whether the sender of a wake-up runs as the same user, where the system tells."""
    asked = getattr(socket, "SO_PEERCRED", None)
    if asked is None:
        return True
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no database is near
    _, user, _ = unpack("3i", raw.getsockopt(socket.SOL_SOCKET, asked, calcsize("3i")))
    return user == os.getuid()


def _write_token(path: Path, token: bytes) -> None:
    """Write the wake-up token to a file that only its owner can read."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(token)


@contextmanager
def _short_folder_path(folder: Path) -> Generator[str]:
    """Return a short path to a mailbox folder: socket names are limited to about 100 bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{fd}"
        yield short if os.path.isdir(short) else str(folder)
    finally:
        os.close(fd)


MAIL_FILE = "letters.jsonl"
SESSION_TEAM = "session"
"""The team of all sessions, in which each is called by its id."""
MAX_MESSAGE_CHARS = 1_000_000
"""Maximum characters of a message."""
MAX_MESSAGES_PER_READ = 20
MAX_BYTES_PER_READ = 40_000
"""Maximum messages per read, and approximate maximum bytes."""
READ_BLOCK_BYTES = 1 << 16
ADDRESS_WORD = compile_lazily(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class MailMessage(msgspec.Struct, frozen=True):
    """One message, with a name that no other has."""

    id: str
    at: float
    sender: str
    text: str


class Mailbox:
    """The messages for one recipient: any process may add one, a single one takes them out."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.taken = 0
        """Bytes of the file read so far."""
        self.damaged = 0
        """Number of lines that could not be read."""
        self._path = folder / MAIL_FILE
        self._clock = clock

    def put(self, sender: str, text: str) -> MailMessage:
        """Append a message; once this returns, no crash of ours loses it."""
        if len(text) > MAX_MESSAGE_CHARS:
            why, fix = f"it has {len(text):,} characters", "Write it to a file and send its path."
            raise UserError("The message is too long", why=why, fix=fix)
        text = text.encode(errors="replace").decode()
        letter = MailMessage(os.urandom(8).hex(), self._clock(), sender, text)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            with _open_locked(self._path) as fd:
                _append_line(fd, log_line.add_checksum(msgspec.json.encode(letter)))
        except OSError as error:
            raise blobs.make_storage_error(
                "The message cannot be sent", error, path=self._path
            ) from error
        return letter

    def take(self) -> list[MailMessage]:
        """Return the next messages, if there are any."""
        try:
            if self._path.stat().st_size == self.taken:
                return []
            with (
                _open_locked(self._path, how=fcntl.LOCK_SH) as fd,
                os.fdopen(os.dup(fd), "rb") as file,
            ):
                return list(self._read(file, size=os.fstat(fd).st_size))
        except FileNotFoundError:
            self.taken = 0
            return []
        except OSError as error:
            raise blobs.make_storage_error(
                "The mail cannot be read", error, path=self._path
            ) from error

    def clear(self) -> bool:
        """Empty the file if all its messages were read."""
        with suppress(OSError), _open_locked(self._path, how=fcntl.LOCK_EX | fcntl.LOCK_NB) as fd:
            if os.fstat(fd).st_size == self.taken:
                os.ftruncate(fd, 0)
                self.taken = 0
                return True
        return False

    def _read(self, file: BinaryIO, *, size: int) -> Iterator[MailMessage]:
        """Yield messages from the last position on; an unfinished line is left for later."""
        if size < self.taken:  # somebody else emptied it
            self.taken = 0
        start = file.seek(self.taken)
        for text in islice(file, MAX_MESSAGES_PER_READ):
            if not text.endswith(b"\n"):
                return
            self.taken += len(text)
            letter = _parse_message_line(text)
            if letter is None:
                self.damaged += 1
            else:
                yield letter
            if self.taken - start > MAX_BYTES_PER_READ:
                return


def _parse_message_line(text: bytes) -> MailMessage | None:
    """Parse one line of an agent's mailbox; None if it is damaged."""
    whole, _ = log_line.split_records(text)
    try:
        return msgspec.json.decode(whole[0], type=MailMessage) if whole else None
    except ValueError:
        return None


def _append_line(fd: int, data: bytes) -> None:
    """Append a line to a mailbox file, all or nothing, after the last whole one."""
    size = _drop_partial_line(fd)
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BaseException:
        os.ftruncate(fd, size)
        raise


def _drop_partial_line(fd: int) -> int:
    """Cut off a killed writer's partial line in a mailbox file, and return the size."""
    size = end = os.fstat(fd).st_size
    while end and os.pread(fd, 1, end - 1) != b"\n":
        start = max(0, end - READ_BLOCK_BYTES)
        end = start + os.pread(fd, end - start, start).rfind(b"\n") + 1
    if end < size:
        os.ftruncate(fd, end)
    return end


@contextmanager
def _open_locked(path: Path, *, how: int = fcntl.LOCK_EX) -> Generator[int]:
    """Open a mailbox file under a lock, which closing it releases."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        fcntl.flock(fd, how)
        yield fd
    finally:
        os.close(fd)


# --- addresses ------------------------------------------------------------------------------------


def find_mailbox_folder(home: TravoisHome, to: str) -> Path:
    """Find the mailbox folder of a mail address, `session:ID` or `TEAM:NAME`."""
    team, name = _parse_address(to)
    if team == SESSION_TEAM:
        found = catalog.find_session(home, name)
        return home.session_folder(found.project, found.id) / "mail"
    if name in list_team_members(home, team):
        return home.mail / team / name
    known = ", ".join(f"{team}:{each}" for each in list_team_members(home, team)) or "none"
    fix = f"Members of that team: {known}. A session joins a team with the setting mail.address."
    raise UserError(f"There is no mailbox {to}", fix=fix)


def list_team_members(home: TravoisHome, team: str) -> list[str]:
    """List the names of all agents that ever joined a team."""
    try:
        return sorted(path.name for path in (home.mail / team).iterdir() if path.is_dir())
    except OSError:
        return []


def list_teams(home: TravoisHome) -> list[str]:
    """List the names of all agent teams."""
    try:
        return sorted(path.name for path in home.mail.iterdir() if path.is_dir())
    except OSError:
        return []


def join_team(home: TravoisHome, address: str) -> tuple[Path, Callable[[], None]]:
    """Join an agent team under a name; return the mailbox folder and a function that leaves."""
    team, name = _parse_address(address)
    if team == SESSION_TEAM:
        raise UserError(
            f"A team cannot be called {SESSION_TEAM!r}", fix="Change the setting mail.address."
        )
    folder = home.mail / team / name
    with ExitStack() as undo:
        try:
            for each in (home.mail, folder.parent, folder):
                each.mkdir(mode=0o700, exist_ok=True)
            fd = os.open(folder / "reader", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            undo.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "Choose another name in the setting mail.address."
            raise UserError(f"Another session already uses {address}", fix=fix) from None
        except OSError as error:
            raise blobs.make_storage_error(
                f"The mailbox {address} cannot be opened", error, path=folder
            ) from error
        return folder, undo.pop_all().close


def _parse_address(address: str) -> tuple[str, str]:
    """Split a mail address into team and name; raise `UserError` if it is invalid."""
    team, _, name = address.partition(":")
    if ADDRESS_WORD.fullmatch(team) and ADDRESS_WORD.fullmatch(name):
        return team, name
    fix = "Use session:ID or TEAM:NAME, with letters, digits, dots and dashes."
    raise UserError(f"{address!r} is not a mail address", fix=fix)


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
        for runtime, sender, call in ((below, PARENT_ADDRESS, self._call), (above, self._me, "")):
            id = runtime.find(to) if runtime is not None else ""
            if runtime is None or not id or id == self._me:
                continue
            order = AgentOrder(
                prompt=text, what="", resume=id, background=True, sender=sender, call=call
            )
            over = await runtime.resume(order)
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
            runtime
            for runtime in (self._agent.team.children, self._agent.team.siblings)
            if runtime is not None
        ]
        running = {
            id
            for runtime in crews
            for id, one in runtime.reports().items()
            if one.state == "running"
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
