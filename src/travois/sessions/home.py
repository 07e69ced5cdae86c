"""Where Travois keeps everything that outlives a process: one folder, for its owner only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISVTX

import msgspec

from travois.core.errors import Fault
from travois.sessions import disk


class Home(msgspec.Struct, frozen=True):
    """The folder and what lies where in it."""

    path: Path
    passing: str = ""
    """Why nothing that is kept here outlives the process; empty if it does."""

    @property
    def sessions(self) -> Path:
        """One folder per project, and in it one per session."""
        return self.path / "sessions"

    @property
    def blobs(self) -> Path:
        """Bytes by the name of their content."""
        return self.path / "blobs"

    @property
    def summaries(self) -> Path:
        """Summaries that sessions share: one folder per project, and in it one per trust."""
        return self.path / "summaries"

    @property
    def projects(self) -> Path:
        """What is known of folders, so that one that was moved is known again."""
        return self.path / "projects"

    @property
    def trash(self) -> Path:
        """What was pruned, until the trash is emptied."""
        return self.path / "trash"

    @property
    def mail(self) -> Path:
        """One folder per team, and in it one per member."""
        return self.path / "mail"

    @property
    def settings(self) -> Path:
        """The user's settings."""
        return self.path / "settings.json"

    def session(self, project: str, id: str) -> Path:
        """The folder of one session."""
        return self.sessions / project / id

    def session_tmp(self, id: str) -> Path:
        """What is /tmp for the commands of one session; short, since sockets have short names."""
        return self.path / "tmp" / id

    def prepare(self) -> Home:
        """Make the folder if it is missing, and see that it can be written to."""
        try:
            disk.make_folders(self.path)
            self.sessions.mkdir(mode=0o700, exist_ok=True)
            for folder in (self.path, self.sessions):
                _close_to_others(folder)
        except OSError as error:
            raise disk.fault("Travois cannot keep its files", error, path=self.path) from error
        if not os.access(self.sessions, os.W_OK | os.X_OK):
            raise Fault(
                "Travois cannot keep its files",
                why=f"{self.sessions} is not writable",
                fix="Make it writable, or set TRAVOIS_HOME to a folder that is.",
            )
        return self


def prepare_or_pass(environ: Mapping[str, str]) -> tuple[Home, Home]:
    """The home to read from, and a home to write to: a passing one where the other cannot be.

    The passing one is removed when the process ends.
    """
    try:
        home = locate(environ).prepare()
        return home, home
    except Fault as fault:
        why = fault.why or fault.what
    import atexit
    from shutil import rmtree
    from tempfile import mkdtemp

    folder = Path(mkdtemp(prefix="travois-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    told = f"Nothing is kept after the end: {why}. No session, memory, snapshot or answer 'always'"
    kept = Home(folder, passing=f"{told} outlives this run; set TRAVOIS_HOME to a writable folder")
    try:
        return locate(environ), kept.prepare()
    except Fault:
        return kept, kept.prepare()


def _close_to_others(folder: Path) -> None:
    """Take from a folder of ours what others may do there; all that lies in it is closed with it.

    A folder that many share (as /tmp) is left as it is.
    """
    found = folder.stat()
    if found.st_mode & 0o077 and found.st_uid == os.geteuid() and not found.st_mode & S_ISVTX:
        with suppress(OSError):
            folder.chmod(0o700)


def locate(environ: Mapping[str, str]) -> Home:
    """The home that this environment asks for; nothing is made yet."""
    if chosen := environ.get("TRAVOIS_HOME"):
        return Home(Path(chosen).expanduser().absolute())
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # a relative one is to be ignored, says its specification
        return Home(Path(state) / "travois")
    person = environ.get("HOME", "")
    if not person.startswith("/"):
        raise Fault(
            "Travois does not know where to keep its files",
            why="HOME is not set",
            fix="Set TRAVOIS_HOME to a folder of yours.",
        )
    return Home(Path(person) / ".local" / "state" / "travois")
