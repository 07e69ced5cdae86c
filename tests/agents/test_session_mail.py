"""The post of a session: what comes in, once, and what is left in the box."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from travois.agents.mailbox import MAIL_FILE, Mailbox
from travois.compose.live_session import LiveSession
from travois.compose.mail import SessionMail
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Ended, Entry, Rewound, User
from travois.ports.world import Event, UserWarned
from travois.testing import Scripted, call, say
from travois_lab.validate import anthropic_faults


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return Options(cwd=str(folder), mode="bypass")


def talking(options: Options, talk: Callable[[LiveSession, SessionMail], Awaitable[None]]) -> None:
    async def main() -> None:
        model = Scripted(call("Glob", pattern="*"), say("Done."), judge=anthropic_faults)
        async with LiveSession(options, model=model) as session:
            office = session.runtime.mail
            assert office is not None
            await talk(session, office)

    anyio.run(main)


def box(office: SessionMail) -> Mailbox:
    """The box as somebody else sees it."""
    return Mailbox(office.boxes[0].folder)


def said(events: list[Event]) -> list[str]:
    facts = [event.fact for event in events if isinstance(event, Entry)]
    mail = [fact for fact in facts if isinstance(fact, User) and fact.origin == "mail"]
    return [extract_text(fact.content).split("\n")[1] for fact in mail]


def test_mail_alone_is_reason_for_a_turn(options: Options) -> None:
    async def talk(session: LiveSession, office: SessionMail) -> None:
        box(office).put("ada", "hello")
        events = [event async for event in session.run()]
        assert said(events) == ["> hello"]
        nothing = [event async for event in session.run()]
        assert [e.fact for e in nothing if isinstance(e, Entry)] == [Ended("end")]

    talking(options, talk)


def test_a_flood_of_mail_comes_in_lots(options: Options) -> None:
    async def talk(session: LiveSession, office: SessionMail) -> None:
        for number in range(30):
            box(office).put("ada", str(number))
        assert len(list(office.collect())) == 20
        assert len(list(office.collect())) == 10

    talking(options, talk)


def test_a_box_is_emptied_when_the_log_has_all_of_it(options: Options) -> None:
    async def talk(session: LiveSession, office: SessionMail) -> None:
        path = office.boxes[0].folder / MAIL_FILE
        box(office).put("ada", "x" * 19_000)
        box(office).put("ada", "y" * 900_000)
        waiting = list(office.collect())
        assert list(office.collect()) == [] and path.stat().st_size > 900_000
        session.runtime.agent.turn.inbox.extend(waiting)
        await session.ask("go")
        assert path.stat().st_size == 0
        whole = next(Path(session.runtime.agent.world.kept).glob("mail-*"))
        assert whole.read_text() == "y" * 900_000
        assert str(whole) in extract_text(waiting[1].content)

    talking(options, talk)


def test_what_was_taken_back_does_not_come_again(options: Options) -> None:
    async def talk(session: LiveSession, office: SessionMail) -> None:
        held = session.runtime.agent.session
        before = held.last
        box(office).put("ada", "hello")
        await session.ask("go")
        assert before is not None
        held.append(Rewound(before.seq))
        fresh = SessionMail.collect(reopened(office))
        assert list(fresh) == []

    def reopened(office: SessionMail) -> SessionMail:
        office.boxes = [box(office)]
        return office

    talking(options, talk)


def test_a_box_that_cannot_be_read_is_told_and_ends_nothing(options: Options) -> None:
    async def talk(session: LiveSession, office: SessionMail) -> None:
        (office.boxes[0].folder / MAIL_FILE).mkdir(parents=True)
        events = [event async for event in session.run("go")]
        warned = [event.text for event in events if isinstance(event, UserWarned)]
        assert warned and "The mail cannot be read" in warned[0]
        assert [e.fact for e in events if isinstance(e, Entry)][-1] == Ended("end")

    talking(options, talk)


def test_damaged_letters_are_told(options: Options) -> None:
    async def talk(session: LiveSession, office: SessionMail) -> None:
        box(office).put("ada", "one")
        box(office).put("ada", "two")
        path = office.boxes[0].folder / MAIL_FILE
        path.write_bytes(path.read_bytes().replace(b"one", b"eno"))
        events = [event async for event in session.run("go")]
        warned = [event.text for event in events if isinstance(event, UserWarned)]
        assert said(events) == ["> two"]
        assert [text for text in warned if "1 damaged" in text] == warned[:1]

    talking(options, talk)


def test_secrets_do_not_leave_by_mail(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")

    async def talk(session: LiveSession, office: SessionMail) -> None:
        await session.ask("go")
        await office.deliver(f"session:{session.id}", "it is sk-0123456789abcdef", sender="a1")
        (letter,) = box(office).take()
        assert letter.text == "it is [redacted: SOME_API_KEY]"
        assert letter.sender == f"session:{session.id[:8]}/a1"

    talking(options, talk)


def test_a_session_that_leaves_no_trace_has_no_mail(options: Options) -> None:
    async def main() -> None:
        untraced = replace(options, persist=False)
        async with LiveSession(untraced, model=Scripted(say("Done."))) as session:
            assert session.runtime.mail is None
            assert await session.ask("go") == "Done."

    anyio.run(main)


def test_a_wrong_address_in_the_settings_stops_the_start(options: Options) -> None:
    wrong = replace(options, settings='{"mail": {"address": "ada"}}')
    with pytest.raises(UserError, match="is not a mail address"):
        talking(wrong, lambda session, office: anyio.lowlevel.checkpoint())
