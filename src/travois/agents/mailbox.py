"""Mail between processes: a file of messages for each recipient, emptied once all are read.

Whoever reads keeps the ids of letters in its own log, so that a letter is delivered exactly once
whatever is killed when. The order of a sender's letters is that of the file.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from travois.core.errors import UserError
from travois.sessions import blobs, catalog, log_line
from travois.sessions.home import TravoisHome

MAIL_FILE = "letters.jsonl"
SESSION_TEAM = "session"
"""The team of all sessions, in which each is called by its id."""
MAX_MESSAGE_CHARS = 1_000_000
"""Maximum characters of a message."""
MAX_MESSAGES_PER_READ = 20
MAX_BYTES_PER_READ = 40_000
"""Maximum messages per read, and approximate maximum bytes."""
READ_BLOCK_BYTES = 1 << 16
ADDRESS_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


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
    """Write one line, all or nothing, after the last whole one."""
    size = _drop_partial_line(fd)
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BaseException:
        os.ftruncate(fd, size)
        raise


def _drop_partial_line(fd: int) -> int:
    """Cut off the partial line of a killed writer, and return the size."""
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
    """List the names of all that ever joined a team."""
    try:
        return sorted(path.name for path in (home.mail / team).iterdir() if path.is_dir())
    except OSError:
        return []


def list_teams(home: TravoisHome) -> list[str]:
    """List the names of all teams."""
    try:
        return sorted(path.name for path in home.mail.iterdir() if path.is_dir())
    except OSError:
        return []


def join_team(home: TravoisHome, address: str) -> tuple[Path, Callable[[], None]]:
    """Join a team under a name; returns the mailbox folder and a function that leaves."""
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
