"""TLS contexts, trusted certificates, and errors for servers that cannot be reached."""

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

from travois.core.errors import UserError
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.providers.replies import ApiError

with lazy_imports():
    import truststore


CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""The system bundles, for a Python that was built elsewhere and looks in the wrong place."""
HASHED_CERTIFICATE = compile_lazily(r"[0-9a-f]{8}\.\d+")
NAME_MISMATCH_CODES = frozenset((62, 64))
"""The OpenSSL codes for a host name or address that the certificate does not have."""
CERTIFICATE_FIX = "If your network inspects TLS, set SSL_CERT_FILE to its certificate file."


def create_tls_contexts(env: Mapping[str, str]) -> Iterator[ssl.SSLContext]:
    """Yield TLS contexts to try in turn, the cheap one first.

    A folder of certificates is looked into only when one is needed; reading the system's bundle
    costs some 70 ms, but people do add certificates to the bundle and not to the folder.
    """
    folder = _hashed_certificate_folder(env)
    if folder and sys.platform == "linux":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(capath=folder)
        outside = {n: f for n, f in _certificate_files(env).items() if not _is_in_folder(f, folder)}
        yield _load_certificates(context, outside)
    yield create_full_tls_context(env)


def create_full_tls_context(env: Mapping[str, str]) -> ssl.SSLContext:
    """Create a TLS context that trusts all system and configured certificates."""
    return _load_certificates(_create_system_context(), _certificate_files(env))


def explain_tls_error(error: ssl.SSLError, host: str) -> str:
    """Explain why TLS with a host failed, and what to do."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"TLS with {host} failed: {reason}. Should the URL start with http://?"
    fix = "" if error.verify_code in NAME_MISMATCH_CODES else f" {CERTIFICATE_FIX}"
    said = error.verify_message.rstrip(".")
    return f"the certificate of {host} is not trusted: {said}.{fix}"


def _create_system_context() -> ssl.SSLContext:
    """Create a TLS context that trusts the system's certificates."""
    if sys.platform in ("darwin", "win32"):
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile and not paths.capath:
        for bundle in filter(os.path.isfile, SYSTEM_BUNDLES):
            context.load_verify_locations(bundle)
    return context


def _load_certificates(context: ssl.SSLContext, files: Mapping[str, str]) -> ssl.SSLContext:
    """Load the certificates of environment variables into a TLS context."""
    for name, file in files.items():
        try:
            context.load_verify_locations(file)
        except OSError as error:
            why = error.strerror or str(error)
            fix = "Unset it, or set it to a file of PEM certificates."
            raise UserError(
                f"Cannot load the certificates in {name}", why=f"{file}: {why}", fix=fix
            ) from None
    return context


def _certificate_files(env: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS variables that name certificate files, one for each file."""
    files = {
        os.path.realpath(env[name]): name
        for name in reversed(CERTIFICATE_VARIABLES)
        if env.get(name)
    }
    return {name: file for file, name in files.items()}


def _hashed_certificate_folder(env: Mapping[str, str]) -> str:
    """Return the system's folder of hashed TLS certificates; empty if there is none."""
    folder = env.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().openssl_capath
    try:
        found = any(HASHED_CERTIFICATE.fullmatch(name) for name in os.listdir(folder))
    except OSError:
        return ""
    return os.path.realpath(folder) if found else ""


def _is_in_folder(file: str, folder: str) -> bool:
    return os.path.dirname(file) == folder


# What can go wrong on the way to a server, as problems in words.


LOOPBACK_HOST = r"(?i)(.+\.)?localhost|127(\.\d+){3}|0\.0\.0\.0|::1"
"""Hosts that are this machine."""


class ConnectionTarget(msgspec.Struct, frozen=True):
    """The scheme, host and port of the other end of a connection."""

    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        """The address as `host:port`."""
        return f"{self.host}:{self.port}"


def parse_target(url: str) -> ConnectionTarget:
    """Parse a URL into the scheme, host and port of a connection."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return ConnectionTarget(parts.scheme, parts.hostname or "", port)


def silent_server_error(patience: float) -> ApiError:
    """Return the connection error for a server that sent nothing for too long."""
    return ApiError("timeout", f"no data from the server for {patience:g} s")


def send_timeout_error() -> ApiError:
    """Return the connection error for a server that does not read the request."""
    return ApiError("timeout", "the server stopped reading the request")


def connect_timeout_error(to: ConnectionTarget, patience: float) -> ApiError:
    """Return the error for a connection that was not made in time."""
    return ApiError("timeout", f"no connection to {to.name} within {patience:g} s")


def no_answer_error() -> ApiError:
    """Return the error for a connection that ended before any response."""
    return ApiError("network", "the server closed the connection without a response")


def connection_lost_error(error: BaseException) -> ApiError:
    """Return the error for a connection that ended in the middle of a response."""
    return ApiError(
        "network", f"the connection was lost: {describe_os_error(find_root_cause(error))}"
    )


def unreachable_error(to: ConnectionTarget, error: BaseException) -> ApiError:
    """Return the error for a failed connection, from whatever libraries wrapped it in."""
    cause = find_root_cause(error)
    match cause:
        case ssl.SSLError():
            return ApiError("network", explain_tls_error(cause, to.host), retry=False)
        case socket.gaierror() | UnicodeError():
            return ApiError("network", f"cannot resolve host {to.host}: {describe_os_error(cause)}")
        case ConnectionRefusedError() if re.fullmatch(LOOPBACK_HOST, to.host):
            # Nobody but the user starts a server on this machine: waiting does not help.
            what = f"no server is listening on {to.name} (connection refused)"
            return ApiError("network", what, retry=False, refused=True)
        case _:
            return ApiError("network", f"cannot connect to {to.name}: {describe_os_error(cause)}")


def find_root_cause(error: BaseException) -> BaseException:
    """Return the operating system's error behind a connection failure, else the first cause."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, BaseExceptionGroup):
        return find_root_cause(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    inner = error.__cause__ or error.__context__  # httpcore2 hides the cause, not the context
    return error if inner is None else find_root_cause(inner)


def describe_os_error(error: BaseException) -> str:
    """Describe a connection error in the system's words if possible, as asyncio's say less."""
    match error:
        case socket.gaierror() | ssl.SSLError():
            return error.strerror or str(error)
        case OSError(errno=int(number)):
            return os.strerror(number)
        case _:
            return str(error) or type(error).__name__
