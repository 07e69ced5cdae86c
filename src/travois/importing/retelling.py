"""A recorded session, told as facts of ours: every call with its one result, in the order asked.

Thinking is left out: who made it would refuse it under another head, and no one else can read it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from travois.compat.sessions.format import Compaction, Picture, Recorded, Spoken
from travois.core.content import AnyBlock, Call, Media, Shown, Text
from travois.core.facts import IMPORTED, AnyFact, Assistant, Compacted, Ended, Noted, Result, User
from travois.importing.names import translated
from travois.sessions.session import Session

BEGINS = "(The recorded session begins here.)"
NO_RESULT = "(No result of this call was recorded: it was interrupted, or its result is lost.)"
UNREADABLE = "(A recorded {kind}, {mime}, could not be read.)"
STRAY = "(A tool said this; its call is not part of the recorded session.)\n{text}"
ENDS = (
    "(The conversation up to here was held in another program, {agent}, and was imported. Tools "
    "that were called there may be missing here, or may have other names: use those you have.)"
)
Keep = Callable[[bytes], str]
"""Keeps bytes and says under which name."""
Tell = Callable[[float], None]
"""Hears when that which follows was said."""


def retell(recorded: Recorded, session: Session, *, keep: Keep, tell: Tell) -> None:
    """Append all that was said to a session that was just begun.

    The last summary is also the prose that our own next compaction begins with.
    """
    told = _Telling(session, recorded.turns, keep=keep, tell=tell, model=recorded.model)
    shorter = {one.at: one for one in recorded.compactions}
    breaks = {one.at - one.kept for one in recorded.compactions}
    marks: dict[int, int] = {}
    for number, turn in enumerate((*recorded.turns, None)):
        if number in breaks:
            told.flush()
            marks[number] = session.last.seq if session.last else 0
        again = False
        if compaction := shorter.get(number):
            told.flush()
            done = _compact(session, compaction, last=marks[number - compaction.kept])
            again = done and turn is not None and turn.text == compaction.summary
        if turn is not None and not again:
            told.take(turn)
    told.end()
    if recorded.compactions and recorded.compactions[-1].summary.strip():
        session.append(Noted("draft", recorded.compactions[-1].summary))
    session.append(User((Text(ENDS.format(agent=recorded.agent)),), origin="note"))
    assert session.last is not None
    session.append(Noted("extracted", str(session.last.seq)))


def _compact(session: Session, compaction: Compaction, *, last: int) -> bool:
    """Show what that agent's model went on with; what it no longer saw stays in the log."""
    gone = [item.seq for item in session.view.items if item.seq <= last]
    summary = (Text(compaction.summary),)
    if not compaction.summary.strip():
        return False
    if gone:
        session.append(Compacted(gone[0], gone[-1], summary, "model", IMPORTED, compaction.tokens))
    else:
        session.append(User(summary, origin="note"))
    return True


class _Telling:
    """Gathers the parts of a reply, and tells them with the results of its calls."""

    def __init__(
        self, session: Session, turns: Iterable[Spoken], *, keep: Keep, tell: Tell, model: str
    ) -> None:
        self._session, self._keep, self._tell, self._model = session, keep, tell, model
        self._reply: list[Spoken] = []
        self._said, self._open = False, False
        """Whether anybody has said anything, and whether a turn has begun."""
        self._used: set[str] = set()
        asked = (call.id for turn in turns for call in turn.calls)
        self._answers: dict[str, deque[Spoken]] = {id: deque() for id in asked}
        for turn in turns:
            if turn.who == "tool" and turn.answers in self._answers:
                self._answers[turn.answers].append(turn)

    def take(self, turn: Spoken) -> None:
        """Tell one more turn."""
        if turn.who == "model":
            self._reply.append(turn)
            return
        self.flush()
        if turn.who == "tool" and turn.answers in self._answers:
            return
        if turn.who == "user" and self._open:
            self.end()
        text = STRAY.format(text=turn.text) if turn.who == "tool" else turn.text
        content = (*_words(text), *self._media(turn.pictures))
        if content:
            origin = "human" if turn.who == "user" else "note"
            self._append(User(content, origin=origin), turn.at)
            self._open = self._open or turn.who == "user"

    def flush(self) -> None:
        """Tell the reply so far, and what its calls brought."""
        parts, self._reply = self._reply, []
        blocks: list[AnyBlock] = []
        results: list[tuple[Result, float]] = []
        for part in parts:
            blocks += _words(part.text)
            for call in part.calls:
                id = self._free(call.id)
                blocks.append(translated(Call(id, call.name, call.args)))
                results.append(self._result(id, call.id, part.at))
        if not blocks:
            return
        if not self._said:
            self._append(User((Text(BEGINS),), origin="note"), parts[0].at)
        stop = "calls" if results else "end"
        reply = Assistant(tuple(blocks), stop, model=self._model, detail=IMPORTED)
        self._append(reply, parts[-1].at)
        for result, at in results:
            self._append(result, at)
        self._open = True

    def end(self) -> None:
        """A turn is over: by a last word of the model, or because it was stopped."""
        self.flush()
        if not self._open:
            return
        last = self._session.view.items[-1].fact if self._session.view.items else None
        done = isinstance(last, Assistant) and last.stop == "end"
        self._session.append(Ended("end" if done else "aborted", IMPORTED))
        self._open = False

    def _append(self, fact: AnyFact, at: float) -> None:
        self._tell(at)
        self._session.append(fact)
        self._said = True

    def _result(self, id: str, theirs: str, at: float) -> tuple[Result, float]:
        waiting = self._answers[theirs]
        if not waiting:
            return Result(id, (Text(NO_RESULT),), error=True), at
        answer = waiting.popleft()
        content = (*_words(answer.text), *self._media(answer.pictures))
        return Result(id, content, error=answer.error), answer.at

    def _free(self, id: str) -> str:
        """An id that no other call has: some agents used one again, or none."""
        free, number = id or "call", 1
        while free in self._used or (not id and free == "call"):
            free, number = f"{id or 'call'}_{number}", number + 1
        self._used.add(free)
        return free

    def _media(self, pictures: tuple[Picture, ...]) -> Iterable[Shown]:
        for one in pictures:
            try:
                data = b64decode(one.data, validate=False)
            except binascii.Error:
                data = b""
            kind = "image" if one.mime.startswith("image/") else "document"
            lost = Text(UNREADABLE.format(kind=kind, mime=one.mime))
            yield Media(kind, one.mime, self._keep(data), len(data)) if data else lost


def _words(text: str) -> tuple[Shown, ...]:
    return (Text(text),) if text.strip() else ()


def origin(recorded: Recorded) -> Noted:
    """Where a session comes from, as its log says it."""
    told = {
        "agent": recorded.agent,
        "id": recorded.id,
        "path": str(recorded.path),
        "model": recorded.model,
        "last": recorded.at,
        "turns": len(recorded.turns),
    }
    return Noted("origin", msgspec.json.encode(told).decode())
