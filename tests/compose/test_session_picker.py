"""The sessions that one can go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.shelves import fill
from travois.compose.options import Options
from travois.compose.session_picker import SessionPicker
from travois.core.errors import UserError
from travois.sessions import lock
from travois.sessions import log_line as line
from travois.sessions.home import TravoisHome, identify_project
from travois.sessions.log_file import SessionLog


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        fill(tmp_path / "home", tmp_path / name, count=3, at=1000.0, about=f"work {name}")
    return TravoisHome(tmp_path / "home")


def shelf(home: TravoisHome, tmp_path: Path, *, but: str = "") -> SessionPicker:
    return SessionPicker(home, identify_project(home, str(tmp_path / "here")), but=but)


def test_those_of_this_project_are_found_by_words_and_by_the_beginning_of_an_id(
    home: TravoisHome, tmp_path: Path
) -> None:
    fill(tmp_path / "home", tmp_path / "here", count=1, at=500.0, about="paint the shed")
    known = shelf(home, tmp_path)
    everything = known.search("", everywhere=False)
    titles = [*(f"work here number {n}" for n in range(3)), "paint the shed number 0"]
    assert [one.title for one in everything] == titles
    assert known.search("SHED paint", everywhere=False) == [everything[3]]
    assert known.search(everything[2].id, everywhere=False) == [everything[2]]
    assert known.search(everything[2].id[-6:], everywhere=False) == []
    assert len(known.search("number", everywhere=True)) == 7
    assert (
        shelf(home, tmp_path, but=everything[0].id).search("", everywhere=False) == everything[1:]
    )


def test_the_end_of_a_session_is_told_although_its_last_lines_cannot_be_read(
    home: TravoisHome, tmp_path: Path
) -> None:
    known = shelf(home, tmp_path)
    first = known.search("", everywhere=False)[0]
    path = home.session_folder(first.project, first.id) / "log.jsonl"
    strange = line.add_checksum(b'{"seq":9,"at":1000.0,"fact":{"type":"from-the-future"}}')
    path.write_bytes(path.read_bytes() + strange + b'{"seq":10,"at":10')
    assert known.last_words(first) == ("work here number 0", "The answer to work here number 0.")


def test_one_of_another_project_goes_on_in_its_own_folder(
    home: TravoisHome, tmp_path: Path
) -> None:
    known, options = shelf(home, tmp_path), Options(cwd=str(tmp_path / "here"), fork=True)
    near = known.search("work here", everywhere=False)[0]
    far = known.search("work there", everywhere=True)[0]
    assert known.resume_options(near, options) == Options(
        cwd=str(tmp_path / "here"), resume=near.id
    )
    assert known.resume_options(far, options) == Options(cwd=str(tmp_path / "there"), resume=far.id)


def test_one_that_is_open_is_not_taken_away(home: TravoisHome, tmp_path: Path) -> None:
    known = shelf(home, tmp_path)
    first = known.search("", everywhere=False)[0]
    folder = home.session_folder(first.project, first.id)
    with SessionLog.open(folder):
        assert lock.find_lock_holder(folder) is not None
        with pytest.raises(UserError, match="open elsewhere"):
            known.resume_options(first, Options())
