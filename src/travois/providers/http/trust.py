"""Whose certificates are believed: the system's, and those that the environment names."""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Iterator, Mapping

from travois.core.errors import Fault

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
