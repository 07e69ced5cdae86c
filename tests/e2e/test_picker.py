"""Going on with one session of thousands."""

from __future__ import annotations

import time

import pytest

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Program
from tests.e2e.shelves import fill
from travois.version import __version__

LISTED = """
  Travois VERSION  ~/work

  Resume which session? 2,000 in this project
  find:

  ❯ 1 h ago    mend the parser number 0
    1 h ago    mend the parser number 1
    1 h ago    mend the parser number 2
    1 h ago    mend the parser number 3
    1 h ago    mend the parser number 4
    1 h ago    mend the parser number 5
    1 h ago    mend the parser number 6
    1 h ago    mend the parser number 7
    1 h ago    mend the parser number 8
    1 h ago    mend the parser number 9

    you: mend the parser number 0
  model: The answer to mend the parser number 0.

  Enter open · Tab all projects · Esc cancel"""


@pytest.fixture
def full(program: Program) -> Program:
    """A home with two thousand sessions of this folder, and a few of another."""
    at = time.time() - 3_700
    fill(program.home, program.folder, count=2_000, at=at, about="mend the parser")
    other = program.folder.parent / "other"
    other.mkdir()
    fill(program.home, other, count=3, at=at, about="paint the door")
    return program


def seen(glass: Glass) -> str:
    return glass.text.replace(__version__, "VERSION")


def test_one_of_two_thousand_is_found_by_its_words_and_gone_on_with(full: Program) -> None:
    with lab.server([{"say": "Going on."}]) as api:
        full.url = api.url
        glass = Glass(full, "--resume", rows=26)
        glass.until("Esc cancel")
        assert seen(glass).startswith(LISTED)
        glass.type("177x")
        glass.until("0 in this project", "No session matches.")
        glass.type("\x7f parser")
        glass.until("12 in this project", "❯ 3 h ago    mend the parser number 177")
        glass.type("\x1b[B\x1b[B\x1b[A\x1b[6~\x1b[B")
        glass.until("you: mend the parser number 1778")
        glass.type("\r")
        glass.until("❯ mend the parser number 1778", "%")
        glass.type("and then?\r")
        glass.until("Going on.")
        assert glass.leave() == 0
        assert "mend the parser number 1778" in str(api.bodies[-1])


def test_escape_leaves_and_nothing_is_begun(full: Program) -> None:
    glass = Glass(full, "--resume")
    glass.until("Esc cancel")
    glass.type("\x1b")
    assert glass.end() == 0
    assert len(full.logs()) == 2_003


def test_in_a_conversation_another_one_is_opened_where_it_took_place(full: Program) -> None:
    with lab.server([{"say": "Hello.", "repeat": True}]) as api:
        full.url = api.url
        glass = Glass(full, *full.model)
        glass.ready()
        glass.type("remember me\r")
        glass.until("Hello.")
        glass.type("/resume\r")
        glass.until("2,000 in this project")
        glass.type("\tdoor")
        glass.until("3 in all projects", "paint the door number 2")
        glass.type("\x1b[B\x1b[B\r")
        glass.until("· in ", "❯ paint the door number 2", "%")
        glass.type("!basename $PWD\r")
        glass.until("\n  other")
        glass.type("/resume\r")
        glass.until("2 in this project")
        glass.type("\tremember\r")
        glass.until("❯ remember me", "%")
        assert glass.leave() == 0
        api.no_orphans()


def test_in_lines_the_choice_is_made_by_number(full: Program) -> None:
    with lab.server([{"say": "Going on."}]) as api:
        full.url = api.url
        glass = Glass(full, "--plain", "--resume", rows=60)
        glass.until("2,000 sessions in this project:", " 20. mend the parser number 19", "Number")
        glass.type("number 1777\r")
        glass.until("1 sessions in this project:")
        glass.type("1\r")
        glass.until("Type a task.")
        glass.type("and then?\r")
        glass.until("Going on.")
        glass.type("/resume number\r")
        glass.until("There is no session")
        glass.type("/quit\r")
        assert glass.end() == 0


def test_without_a_person_it_must_be_said_which_one(program: Program) -> None:
    done = program.run("-p", "go on", "--resume")
    assert done.code == 2
    assert done.err.startswith("travois: Name the session to resume")
