"""API keys stored by `/login`: in the system's keyring, or in a private file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path

import msgspec

from travois.lazy_imports import lazy_imports
from travois.sessions import blobs
from travois.sessions.home import TravoisHome

with lazy_imports():
    import shutil
    import subprocess

CREDENTIALS_FILE = "credentials.json"
KEYRING_SECONDS = 10.0
SERVICE = "travois"
RunKeyring = Callable[[tuple[str, ...], str], str | None]
"""Runs a program with this input; returns its output, or None if it failed."""


class StoredKeys(msgspec.Struct, frozen=True):
    """The keys in the file, and the names of those in the keyring."""

    keys: dict[str, str] = {}
    keyring: tuple[str, ...] = ()


class KeyStore:
    """The user's API keys by the name of the variable that holds each."""

    def __init__(self, home: TravoisHome, *, keyring: RunKeyring | None = None) -> None:
        self._path = home.path / CREDENTIALS_FILE
        self._keyring = keyring or run_keyring_program

    @property
    def path(self) -> Path:
        """The file of the keys."""
        return self._path

    def stored_names(self) -> tuple[str, ...]:
        """Return the names of all stored keys."""
        known = self._read_stored_keys()
        return tuple(sorted({*known.keys, *known.keyring}))

    def save_key(self, name: str, key: str) -> str:
        """Store a key; return where it is, in words. Raises `UserError`."""
        known = self._read_stored_keys()
        in_file = {one: held for one, held in known.keys.items() if one != name}
        if self._keyring(("store", name), key) is not None:
            self._write_stored_keys(
                StoredKeys(in_file, tuple(dict.fromkeys((*known.keyring, name))))
            )
            return "the system's keyring"
        left = tuple(one for one in known.keyring if one != name)
        self._write_stored_keys(StoredKeys({**in_file, name: key}, left))
        return f"{self._path}, which only you can read"

    def forget_key(self, name: str) -> bool:
        """Remove a key; return whether there was one."""
        known = self._read_stored_keys()
        if name in known.keyring:
            self._keyring(("clear", name), "")
        kept = {one: held for one, held in known.keys.items() if one != name}
        self._write_stored_keys(
            StoredKeys(kept, tuple(one for one in known.keyring if one != name))
        )
        return name in known.keys or name in known.keyring

    def add_to_environment(self, environ: MutableMapping[str, str]) -> None:
        """Set the variables of all stored keys that the environment does not set itself."""
        known = self._read_stored_keys()
        for name, key in known.keys.items():
            environ.setdefault(name, key)
        for name in known.keyring:
            if name not in environ and (key := self._keyring(("lookup", name), "")):
                environ[name] = key.strip()

    def _read_stored_keys(self) -> StoredKeys:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=StoredKeys)
        except (OSError, msgspec.DecodeError):
            return StoredKeys()

    def _write_stored_keys(self, known: StoredKeys) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            blobs.replace_file(self._path, msgspec.json.encode(known))  # made with mode 0600
        except OSError as error:
            raise blobs.make_storage_error(
                "The key cannot be saved", error, path=self._path
            ) from error


def run_keyring_program(words: tuple[str, ...], text: str) -> str | None:
    """Save, look up or delete an API key with the keyring's program; None if there is none.

    A key goes over standard input, never over the command line, which others can see.
    """
    action, name = words
    if sys.platform == "darwin" and (program := shutil.which("security")):
        return _run_macos_keychain(program, action, name, text=text)
    asks = shutil.which("secret-tool") if os.environ.get("DBUS_SESSION_BUS_ADDRESS") else None
    if asks is None:
        return None
    label = ("--label", f"Travois: {name}") if action == "store" else ()
    return _run_keyring_command((asks, action, *label, "service", SERVICE, "name", name), text)


def _run_macos_keychain(program: str, action: str, name: str, *, text: str) -> str | None:
    if action == "lookup":
        return _run_keyring_command(
            (program, "find-generic-password", "-s", SERVICE, "-a", name, "-w"), ""
        )
    if action == "clear":
        return _run_keyring_command(
            (program, "delete-generic-password", "-s", SERVICE, "-a", name), ""
        )
    if any(char in text for char in '"\\\n'):
        return None
    line = f'add-generic-password -U -s {SERVICE} -a {name} -w "{text}"\n'
    return _run_keyring_command((program, "-i"), line)


def _run_keyring_command(argv: tuple[str, ...], text: str) -> str | None:
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=KEYRING_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
