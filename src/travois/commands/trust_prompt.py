"""The question whether a folder is trusted, and what exactly would be trusted."""

from __future__ import annotations

import termios
from contextlib import suppress
from typing import Protocol

from travois.core.display_text import escape_invisible
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.schema import LoadedSettings

FIRST = "has settings that run programs or grant permissions"
LATER = "has new settings that you have not trusted yet"
ASK = "Trust this folder? [y]es / no (continue without these settings): "


class Reader(Protocol):
    """A terminal that can show lines and ask for one."""

    def line(self, text: str) -> None:
        """Show a line."""
        ...

    async def read(self, prompt: str) -> str | None:
        """Ask for a line; None when they leave."""
        ...


async def ask(home: TravoisHome, loaded: LoadedSettings, reader: Reader) -> None:
    """Ask about what a folder wants and the user has not answered yet, and keep the answer."""
    if loaded.trust in ("trusted", "refused") or not loaded.wanted:
        return
    reader.line(told(home, loaded))
    _drop_typed()
    answer = await reader.read(ASK)
    if answer is None:
        return
    if answer.strip().lower() in ("y", "yes"):
        trust.trust_folder(home, loaded.root, loaded.wanted, places=loaded.places)
    else:
        trust.refuse_requests(home, loaded.root, loaded.wanted)


def told(home: TravoisHome, loaded: LoadedSettings) -> str:
    """Return everything that trust would let happen, a line each, with nothing hidden."""
    agreed = trust.list_agreed_digests(home, loaded.root)
    fresh = [text for text in loaded.wanted if trust.digest_request(text) not in agreed]
    what = LATER if loaded.trust == "changed" else FIRST
    return "\n".join(
        (
            f"{escape_invisible(loaded.root)} {what}:",
            *(f"  {escape_invisible(text)}" for text in fresh),
        )
    )


def _drop_typed() -> None:
    """Forget what was typed before the question could be read: it is no answer."""
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)
