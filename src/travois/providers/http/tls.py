"""What can go wrong on the way to a server, as problems in words."""

from __future__ import annotations

import os
import re
from typing import cast
from urllib.parse import urlsplit

import msgspec

from travois.providers.replies import Problem

LOOPBACK = r"(?i)(.+\.)?localhost|127(\.\d+){3}|0\.0\.0\.0|::1"
"""Hosts that are this machine."""


class Target(msgspec.Struct, frozen=True):
    """The other end of a connection."""

    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        """How a person writes it."""
        return f"{self.host}:{self.port}"


def target(url: str) -> Target:
    """Where a URL leads."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Target(parts.scheme, parts.hostname or "", port)


def silent(patience: float) -> Problem:
    """The server said nothing for too long."""
    return Problem("timeout", f"the server was silent for {patience:g} s")


def deaf() -> Problem:
    """The server does not read what it is sent."""
    return Problem("timeout", "the server does not take the request")


def late(to: Target, patience: float) -> Problem:
    """There was no connection in time."""
    return Problem("timeout", f"no connection to {to.name} within {patience:g} s")


def mute() -> Problem:
    """The connection ended before anything was said."""
    return Problem("network", "the server hung up without an answer")


def broken(error: BaseException) -> Problem:
    """The connection ended before the answer did."""
    return Problem("network", f"the connection broke: {plain(root(error))}")


def unreachable(to: Target, error: BaseException) -> Problem:
    """Why there is no connection, out of whatever the libraries have wrapped it in."""
    import socket
    import ssl

    from travois.providers.http.trust import distrust

    cause = root(error)
    match cause:
        case ssl.SSLError():
            return Problem("network", distrust(cause, to.host), retry=False)
        case socket.gaierror() | UnicodeError():
            return Problem("network", f"there is no host {to.host}: {plain(cause)}")
        case ConnectionRefusedError() if re.fullmatch(LOOPBACK, to.host):
            # Nobody but the user starts a server on this machine: waiting does not help.
            what = f"no server is listening on {to.name} (connection refused)"
            return Problem("network", what, retry=False, refused=True)
        case _:
            return Problem("network", f"cannot connect to {to.name}: {plain(cause)}")


def root(error: BaseException) -> BaseException:
    """The error of the system that led to this one, or else the first of all."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, BaseExceptionGroup):
        return root(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    inner = error.__cause__ or error.__context__  # httpcore2 hides the cause, not the context
    return error if inner is None else root(inner)


def plain(error: BaseException) -> str:
    """An error as words; the system's own where there are some, for asyncio's say less."""
    import socket
    import ssl

    match error:
        case socket.gaierror() | ssl.SSLError():
            return error.strerror or str(error)
        case OSError(errno=int(number)):
            return os.strerror(number)
        case _:
            return str(error) or type(error).__name__
