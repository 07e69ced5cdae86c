"""Mail between processes: exactly once, in order, whatever is killed when."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.sessions.sample import opened
from travois.agents import mailbox as mail
from travois.agents.mailbox import Mailbox, MailMessage
from travois.core.content import Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import User
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session

SENDERS, LETTERS = 8, 1_000


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "box", clock=lambda: 1.5)


def texts(letters: list[MailMessage]) -> list[str]:
    return [letter.text for letter in letters]


def test_letters_are_taken_once_and_in_order(box: Mailbox) -> None:
    assert box.take() == []
    sent = [box.put("a", "one"), box.put("b", 'two\nlines \ud800 {"seq":1}')]
    assert sent[1] == MailMessage(sent[1].id, 1.5, "b", 'two\nlines ? {"seq":1}')
    assert box.take() == sent
    assert box.take() == []
    late = box.put("a", "three")
    assert box.take() == [late]
    assert len({letter.id for letter in (*sent, late)}) == 3


def test_only_the_owner_can_look_into_a_box(box: Mailbox) -> None:
    box.put("a", "one")
    assert [oct(p.stat().st_mode & 0o777) for p in (box.folder, box.folder / mail.MAIL_FILE)] == [
        "0o700",
        "0o600",
    ]


def test_many_letters_come_in_several_lots(box: Mailbox) -> None:
    for number in range(50):
        box.put("a", str(number))
    assert [len(box.take()) for _ in range(4)] == [20, 20, 10, 0]
    for text in ("x" * 30_000, "y" * 30_000, "z"):
        box.put("a", text)
    assert [[text[0] for text in texts(box.take())] for _ in range(3)] == [["x", "y"], ["z"], []]


@pytest.mark.parametrize(
    "torn", [b"{", b'{"id":"1","at":1.5,"sender":"a","text":"half', b"x" * 99_999]
)
def test_what_a_killed_writer_left_is_cut_off(box: Mailbox, torn: bytes) -> None:
    first = box.put("a", "one")
    with (box.folder / mail.MAIL_FILE).open("ab") as file:
        file.write(torn)
    assert box.take() == [first]
    assert box.take() == []
    second = box.put("b", "two")
    assert box.take() == [second]
    assert (box.damaged, torn in (box.folder / mail.MAIL_FILE).read_bytes()) == (0, torn == b"{")


def test_a_damaged_letter_is_counted_and_the_others_come(box: Mailbox) -> None:
    box.put("a", "one")
    box.put("a", "two")
    path = box.folder / mail.MAIL_FILE
    path.write_bytes(path.read_bytes().replace(b"one", b"0ne"))
    assert texts(box.take()) == ["two"]
    assert box.damaged == 1


def test_a_box_is_emptied_only_when_all_was_taken(box: Mailbox) -> None:
    path = box.folder / mail.MAIL_FILE
    box.put("a", "one")
    assert not box.clear()
    box.take()
    box.put("a", "two")
    assert not box.clear()
    assert texts(box.take()) == ["two"]
    assert box.clear()
    assert path.stat().st_size == 0
    box.put("a", "three")
    assert texts(box.take()) == ["three"]


def test_a_full_disk_leaves_no_half_a_letter(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    first, plain = box.put("a", "one"), os.write

    def write(fd: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return plain(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(UserError, match="disk is full"):
        box.put("a", "two")
    monkeypatch.undo()
    third = box.put("a", "three")
    assert box.take() == [first, third]


def test_a_letter_that_no_one_would_read_is_refused(box: Mailbox) -> None:
    with pytest.raises(UserError, match="too long"):
        box.put("a", "x" * (mail.MAX_MESSAGE_CHARS + 1))
    assert not box.folder.exists()


# --- addresses ------------------------------------------------------------------------------------


def test_a_name_in_a_team_belongs_to_one_session_at_a_time(tmp_path: Path) -> None:
    home = TravoisHome(tmp_path).prepare()
    folder, leave = mail.join_team(home, "crew:ada")
    assert (
        mail.find_mailbox_folder(home, "crew:ada") == folder == tmp_path / "mail" / "crew" / "ada"
    )
    with pytest.raises(UserError, match="Another session already uses crew:ada"):
        mail.join_team(home, "crew:ada")
    leave()
    mail.join_team(home, "crew:ada")[1]()
    assert (mail.list_teams(home), mail.list_team_members(home, "crew")) == (["crew"], ["ada"])


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("crew:bob", "There is no mailbox crew:bob"),
        ("bob", "is not a mail address"),
        ("../x:bob", "is not a mail address"),
        ("crew:..", "is not a mail address"),
        ("crew:", "is not a mail address"),
        ("session:0000", "There is no session"),
    ],
)
def test_nobody_is_there_under_a_wrong_address(tmp_path: Path, to: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        mail.find_mailbox_folder(TravoisHome(tmp_path).prepare(), to)


def test_no_team_takes_the_name_of_all_sessions(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="A team cannot be called"):
        mail.join_team(TravoisHome(tmp_path).prepare(), "session:ada")


# --- many processes, killed at random -------------------------------------------------------------

FORK = get_context("fork")


def mortal(fatal: int, manner: str) -> None:
    """Make this process die by SIGKILL before, within or after its n-th line."""
    plain, lines = os.write, count(1)

    def write(fd: int, data: bytes) -> int:
        if not data.startswith(b'{"') or next(lines) < fatal:
            return plain(fd, data)
        if manner != "before":
            plain(fd, data if manner == "after" else data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    os.write = write


def send(box: Path, acks: Path, *, sender: str) -> None:
    """Go on where the last one was killed; what it did not acknowledge is sent again."""
    done = acks.read_bytes().count(b"\n") if acks.exists() else 0
    mailbox, acknowledged = Mailbox(box), os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(done, LETTERS):
        letter = mailbox.put(sender, str(number))
        os.write(acknowledged, f"{letter.id}\n".encode())


def deliver(box: Path, folder: Path, *, last: Path) -> None:
    """Take letters until the last was sent and all of them are in the log."""
    with SessionLog.open(folder, write=os.write) as log:
        session, mailbox, letters = Session(log), Mailbox(box), list[MailMessage]()
        while letters or not last.exists() or (box / mail.MAIL_FILE).stat().st_size:
            letters = mailbox.take()
            for letter in letters:
                if letter.id not in session.received:
                    said = (Text(f"{letter.sender} {letter.text}"),)
                    session.append(User(said, origin="mail", mail=letter.id))
            if not letters:
                mailbox.clear()
        assert mailbox.damaged == 0


def keep_on(work: Callable[[], None], *, seed: int) -> None:
    """Run a process again and again, each time till it is killed, until it ends by itself."""
    chance, code = random.Random(seed), -signal.SIGKILL

    def run(fatal: int, manner: str) -> None:
        mortal(fatal, manner)
        work()

    while code == -signal.SIGKILL:
        chosen = (chance.randint(1, 500), chance.choice(("before", "torn", "after")))
        child = FORK.Process(target=run, args=chosen)
        child.start()
        child.join()
        code = child.exitcode
    assert code == 0


def kept_on(work: Callable[[], None], *, seed: int) -> BaseProcess:
    process = FORK.Process(target=keep_on, args=(work,), kwargs={"seed": seed})
    process.start()
    return process


def received(folder: Path) -> dict[str, list[str]]:
    """The ids of all letters in the log, by sender, in the order of their coming."""
    found: dict[str, list[str]] = {}
    with SessionLog.open(folder) as log:
        for entry in log.read():
            if isinstance(entry.fact, User):
                found.setdefault(extract_text(entry.fact.content).split()[0], []).append(
                    entry.fact.mail
                )
        assert log.skipped == ()
    return found


def test_each_letter_comes_exactly_once_and_in_order_whoever_is_killed(tmp_path: Path) -> None:
    box, folder, last = tmp_path / "box", tmp_path / "session", tmp_path / "last"
    SessionLog.create(folder, opened()).close()
    acks = {f"s{number}": tmp_path / f"acks{number}" for number in range(SENDERS)}
    senders = [
        kept_on(partial(send, box, path, sender=name), seed=number)
        for number, (name, path) in enumerate(acks.items())
    ]
    reader = kept_on(partial(deliver, box, folder, last=last), seed=99)
    for sender in senders:
        sender.join(300)
    last.touch()
    reader.join(300)
    assert [process.exitcode for process in (*senders, reader)] == [0] * (SENDERS + 1)
    found = received(folder)
    for name, path in acks.items():
        sent, came = path.read_text().split(), found[name]
        assert len(sent) == LETTERS
        assert len(set(came)) == len(came)
        assert [id for id in came if id in set(sent)] == sent
