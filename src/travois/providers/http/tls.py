"""Whose certificates are believed: the system's, and those that the environment names."""

from __future__ import annotations

import os
import re
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import urlsplit

import msgspec

from travois.core.errors import Fault
from travois.providers.replies import Problem

FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep them, for a Python that was built elsewhere and looks in the wrong place."""
HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
MISMATCH = frozenset((62, 64))
"""What OpenSSL says of a name or an address that the certificate does not have."""
FIX = "If your network inspects TLS, set SSL_CERT_FILE to the file of its certificate."


def contexts(env: Mapping[str, str]) -> Iterator[ssl.SSLContext]:
    """Contexts to try in turn, the cheap one first.

    A folder of certificates is looked into only when one is needed; reading the system's bundle
    costs some 70 ms, but people do add certificates to the bundle and not to the folder.
    """
    folder = _folder(env)
    if folder and sys.platform == "linux":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(capath=folder)
        outside = {n: f for n, f in _named(env).items() if not _within(f, folder)}
        yield _with(context, outside)
    yield whole(env)


def whole(env: Mapping[str, str]) -> ssl.SSLContext:
    """Everything that may be believed, read at once."""
    return _with(_system(), _named(env))


def distrust(error: ssl.SSLError, host: str) -> str:
    """Why TLS with this host failed, and what to do, in words."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"no TLS with {host}: {reason}. Does its address begin with http://?"
    fix = "" if error.verify_code in MISMATCH else f" {FIX}"
    said = error.verify_message.rstrip(".")
    return f"the certificate of {host} is not trusted: {said}.{fix}"


def _system() -> ssl.SSLContext:
    if sys.platform in ("darwin", "win32"):
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile and not paths.capath:
        for bundle in filter(os.path.isfile, BUNDLES):
            context.load_verify_locations(bundle)
    return context


def _with(context: ssl.SSLContext, files: Mapping[str, str]) -> ssl.SSLContext:
    for name, file in files.items():
        try:
            context.load_verify_locations(file)
        except OSError as error:
            why = error.strerror or str(error)
            fix = "Unset it, or name a file of certificates in PEM form."
            raise Fault(f"{name} names no certificates", why=f"{file}: {why}", fix=fix) from None
    return context


def _named(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set, one for each file."""
    files = {os.path.realpath(env[name]): name for name in reversed(FILES) if env.get(name)}
    return {name: file for file, name in files.items()}


def _folder(env: Mapping[str, str]) -> str:
    """The system's folder of certificates by their hashes, if it has one."""
    folder = env.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().openssl_capath
    try:
        found = any(HASHED.fullmatch(name) for name in os.listdir(folder))
    except OSError:
        return ""
    return os.path.realpath(folder) if found else ""


def _within(file: str, folder: str) -> bool:
    return os.path.dirname(file) == folder


# What can go wrong on the way to a server, as problems in words.


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
    match error:
        case socket.gaierror() | ssl.SSLError():
            return error.strerror or str(error)
        case OSError(errno=int(number)):
            return os.strerror(number)
        case _:
            return str(error) or type(error).__name__
