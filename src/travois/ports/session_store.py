"""The port to a session store: where a session is kept beside the machine that it runs on.

A session is a few files: logs, to which bytes are appended, and others, which are replaced. Whoever
runs it first claims it under an epoch, as a lease is numbered; from then on, older epochs can
neither append nor put. All calls block.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from travois.core.errors import UserError


class StoredSession(msgspec.Struct, frozen=True):
    """A session as a store lists it."""

    id: str
    project: str = ""
    """The key of its project, by which it is found from another machine."""
    epoch: int = 0
    updated: float = 0.0


class StoreUnavailable(UserError):
    """A store that cannot be reached; nothing was changed as far as we know."""


class StaleEpoch(Exception):
    """A session that was claimed under a newer epoch: this one may no longer write."""


class OffsetTaken(Exception):
    """A log in the store that does not end where the bytes were to be appended."""


class SessionStore(Protocol):
    """Sessions by id, and bytes by their digest."""

    def claim_session(self, session: StoredSession) -> int:
        """Claim a session and return the epoch, the next one if none is given.

        Creates the session if there is none. Raises `StaleEpoch` if there is a newer epoch; the
        same one again is allowed.
        """
        ...

    def append_log(self, session: str, file: str, data: bytes, *, offset: int, epoch: int) -> None:
        """Append to a log that ends at `offset`: all of it or, if killed, nothing.

        The same bytes again at the same offset change nothing. Raises `StaleEpoch` or
        `OffsetTaken`.
        """
        ...

    def put_file(self, session: str, file: str, data: bytes, *, epoch: int) -> None:
        """Replace a file. Raises `StaleEpoch`."""
        ...

    def list_stored_logs(self, session: str) -> dict[str, int]:
        """Return the logs of a session with their sizes; empty for an unknown session."""
        ...

    def list_stored_files(self, session: str) -> tuple[str, ...]:
        """Return the other files of a session."""
        ...

    def read_stored_log(self, session: str, file: str, *, offset: int = 0) -> bytes:
        """Return a log from an offset; raises KeyError without it."""
        ...

    def read_stored_file(self, session: str, file: str) -> bytes:
        """Return a file; raises KeyError without it."""
        ...

    def put_blob(self, name: str, data: bytes) -> None:
        """Keep bytes under the digest that names them."""
        ...

    def get_blob(self, name: str) -> bytes:
        """Return the bytes of a digest; raises KeyError without them."""
        ...

    def list_stored_sessions(self) -> tuple[StoredSession, ...]:
        """Return all sessions, in no order."""
        ...
