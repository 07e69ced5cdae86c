"""A key that a command of the user's prints, asked for again when it is old or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

import anyio

from travois.permissions.masking import register
from travois.providers.replies import Problem

LIFE = "CLAUDE_CODE_API_KEY_HELPER_TTL_MS"
USUAL = 300_000
"""How many milliseconds a key is good for, unless the variable says otherwise."""
PATIENCE = 60.0
"""How many seconds the command may take: a person may have to log in."""

Headers = tuple[tuple[str, str], ...]


class PrintedKey:
    """The key as it is at the moment; `heard` is told each one, so that no log shows it."""

    def __init__(self, command: str, heard: Callable[[Headers], None]) -> None:
        self._command, self._heard = command, heard
        self._key, self._until, self._uses = "", 0.0, 0

    async def headers(self) -> Headers:
        """What proves whose a request is; raises `Problem`."""
        if not self._key or monotonic() > self._until:
            self._key, self._uses = await self._asked(), 0
            life = os.environ.get(LIFE, "")
            self._until = monotonic() + (int(life) if life.isdecimal() else USUAL) / 1000
        self._uses += 1
        proof = (("x-api-key", self._key), ("authorization", f"Bearer {self._key}"))
        register((("apiKeyHelper", self._key),))
        self._heard((proof[0],))
        return proof

    def refused(self) -> bool:
        """Forget the key; whether it had been good before, so that another one may help."""
        worn, self._key = self._uses > 1, ""
        return worn

    async def _asked(self) -> str:
        from subprocess import DEVNULL

        line = ("/bin/sh", "-c", self._command)
        try:
            with anyio.fail_after(PATIENCE):
                done = await anyio.run_process(line, check=False, stdin=DEVNULL)
        except TimeoutError:
            raise Problem("auth", f"apiKeyHelper said nothing for {PATIENCE:g} s") from None
        key = done.stdout.decode(errors="replace").strip()
        if done.returncode or not key.isascii() or len(key.split()) != 1:
            why = done.stderr.decode(errors="replace").strip()[-200:] or "it printed no key"
            raise Problem("auth", f"apiKeyHelper failed with {done.returncode}: {why}")
        return key
