"""The last turn of a session: whether it was interrupted, else its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from travois.core.errors import UserError
from travois.core.facts import Assistant, Ended, EndReason, Entry, Result, Sent, User
from travois.sessions.session import Session

UNFINISHED_ENDS: frozenset[EndReason] = frozenset(
    ("aborted", "crashed", "failed", "turns", "budget")
)
"""How a turn ends that another run can go on with."""
PROMPT_ID_PREFIX = "prompt:"
"""Before the id of a prompt that is sent only once."""


class LastTurn(msgspec.Struct, frozen=True):
    """The entries of a session's last turn, the end included."""

    entries: tuple[Entry, ...]
    ended: Ended

    @property
    def is_interrupted(self) -> bool:
        """True if another run can go on with it."""
        return self.ended.why in UNFINISHED_ENDS

    @property
    def seconds(self) -> float:
        """The seconds that it took."""
        return self.entries[-1].at - self.entries[0].at


def find_last_turn(session: Session) -> LastTurn:
    """Return a session's last turn; raises `UserError` if there is none."""
    last: LastTurn | None = None
    for turn in _split_turns(session.history()):
        last = turn if any(map(_is_work, turn.entries)) else last
    if last is None:
        raise UserError(
            "There is nothing to go on with",
            why="the session has no prompt yet",
            fix='Give one: travois -p -r ID "the task"',
        )
    return last


def find_last_reply(session: Session) -> Assistant | None:
    """Return the model's last reply in the current turn; None before the first."""
    facts = (item.fact for item in reversed(session.view.items))
    return next((fact for fact in facts if isinstance(fact, Assistant)), None)


def make_prompt_id(name: str) -> str:
    """Return a prompt's mark in the log, by which a resumed run sends it only once."""
    return f"{PROMPT_ID_PREFIX}{name}" if name else ""


def _split_turns(entries: Iterable[Entry]) -> Iterator[LastTurn]:
    turn: list[Entry] = []
    for entry in entries:
        turn.append(entry)
        if isinstance(entry.fact, Ended):
            yield LastTurn(tuple(turn), entry.fact)
            turn = []


def _is_work(entry: Entry) -> bool:
    """Return whether an entry belongs to the last turn itself, not only to its preparation."""
    match entry.fact:
        case Sent() | Assistant() | Result():
            return True
        case User(origin=origin):
            return origin != "note"
        case _:
            return False
