"""The trust question: whether to trust a folder, and what exactly would be trusted."""

from __future__ import annotations

import termios
from contextlib import suppress
from typing import Protocol

from travois.core.display_text import escape_invisible
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.schema import LoadedSettings

FIRST_TRUST_REASON = "has settings that run programs or grant permissions"
CHANGED_TRUST_REASON = "has new settings that you have not trusted yet"
TRUST_QUESTION = "Trust this folder? [y]es / no (continue without these settings): "


class LineReader(Protocol):
    """A terminal that can show lines and ask for one."""

    def line(self, text: str) -> None:
        """Show a line."""
        ...

    async def read(self, prompt: str) -> str | None:
        """Ask for a line; None when they leave."""
        ...


async def ask_for_trust(home: TravoisHome, loaded: LoadedSettings, reader: LineReader) -> None:
    """Ask whether to trust what a folder asks for, unless answered before; save the answer."""
    if loaded.trust in ("trusted", "refused") or not loaded.wanted:
        return
    reader.line(describe_trust_request(home, loaded))
    _discard_typed_input()
    answer = await reader.read(TRUST_QUESTION)
    if answer is None:
        return
    if answer.strip().lower() in ("y", "yes"):
        trust.trust_folder(home, loaded.root, loaded.wanted, places=loaded.places)
    else:
        trust.refuse_requests(home, loaded.root, loaded.wanted)


def describe_trust_request(home: TravoisHome, loaded: LoadedSettings) -> str:
    """Describe everything that trusting a folder would allow, a line each."""
    agreed = trust.list_agreed_digests(home, loaded.root)
    fresh = [text for text in loaded.wanted if trust.digest_request(text) not in agreed]
    what = CHANGED_TRUST_REASON if loaded.trust == "changed" else FIRST_TRUST_REASON
    return "\n".join(
        (
            f"{escape_invisible(loaded.root)} {what}:",
            *(f"  {escape_invisible(text)}" for text in fresh),
        )
    )


def _discard_typed_input() -> None:
    """Discard input typed before the trust question was visible: it is no answer."""
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)
