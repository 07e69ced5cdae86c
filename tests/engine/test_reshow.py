"""Files that the model goes on changing although their text is out of sight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.context.test_restore import bodies, texts, weighed, working
from tests.engine.fakes import facts, log, play
from travois.context.compaction.restore import MIN_EDITED_TOKENS
from travois.context.layers import ContextLayers
from travois.context.microcompact.clear import CLEARED_RESULT_MARKER
from travois.context.window import compaction_threshold
from travois.core.content import Text, extract_text
from travois.core.facts import Cleared, Compacted, Result, User
from travois.core.tokens import context_tokens
from travois.core.view import project_view
from travois.engine.agent import Agent
from travois.testing import Scripted, call, calls, say

LINES = [f"value_{number} = {number}  # some words about it" for number in range(60)]


def edit(number: int, name: str = "a.py") -> tuple[str, dict[str, object]]:
    """Change one line of a file."""
    return "Edit", {"file_path": name, "old_string": LINES[number], "new_string": f"new = {number}"}


def with_read_files(folder: Path, *names: str, **more: Any) -> Agent:
    """An agent that has read these files."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(LINES) + "\n")
    one = working(folder, *(call("Read", file_path=name) for name in names), say("ok"), **more)
    play(one)
    return one


def clear_reads(one: Agent) -> None:
    gone = tuple(fact.call for fact in facts(one, Result))
    one.session.append(Cleared(gone, CLEARED_RESULT_MARKER.replace("{path}", "/kept/{call}")))


def notes(one: Agent) -> list[str]:
    """What was shown again, by the log."""
    said = [extract_text(fact.content) for fact in facts(one, User) if fact.origin == "note"]
    return [text for text in said if text.startswith("<files>")]


def test_a_changed_file_whose_read_was_cleared_is_shown_before_the_next_request(
    tmp_path: Path,
) -> None:
    one = with_read_files(tmp_path, "a.py", "b.py")
    clear_reads(one)
    one.model = Scripted(calls(edit(3)), say("ok"))
    play(one)
    (note,) = notes(one)
    assert LINES[50] in note and "new = 3" in note, "as it is on disk by now"
    assert "b.py" not in note
    assert note in texts(bodies(one)[-1])


def test_it_is_shown_once_however_often_the_file_is_changed(tmp_path: Path) -> None:
    one = with_read_files(tmp_path, "a.py")
    clear_reads(one)
    one.model = Scripted(*(calls(edit(number)) for number in range(4)), say("ok"))
    play(one)
    assert len(notes(one)) == 1


def test_only_the_file_that_was_changed_is_shown_not_others_of_its_name(tmp_path: Path) -> None:
    one = with_read_files(tmp_path, "x/a.py", "y/a.py")
    clear_reads(one)
    one.model = Scripted(calls(edit(3, "y/a.py")), say("ok"))
    play(one)
    (note,) = notes(one)
    assert "y/a.py" in note and "x/a.py" not in note


@pytest.mark.parametrize("line", [edit(3), ("Read", {"file_path": "a.py", "offset": 2})])
def test_nothing_is_shown_of_a_file_that_is_in_sight(tmp_path: Path, line: Any) -> None:
    one = with_read_files(tmp_path, "a.py")
    one.model = Scripted(calls(line), calls(edit(5)), say("ok"))
    play(one)
    assert notes(one) == []


def test_nothing_is_shown_after_an_edit_that_failed(tmp_path: Path) -> None:
    one = with_read_files(tmp_path, "a.py")
    clear_reads(one)
    wrong = call("Edit", file_path="a.py", old_string="nowhere", new_string="x")
    one.model = Scripted(wrong, say("ok"))
    play(one)
    assert notes(one) == []


def test_nothing_is_shown_where_restoring_is_off(tmp_path: Path) -> None:
    one = with_read_files(tmp_path, "a.py", layers=ContextLayers(restore=False))
    clear_reads(one)
    one.model = Scripted(calls(edit(3)), say("ok"))
    play(one)
    assert notes(one) == []


def test_it_takes_no_room_that_is_not_free(tmp_path: Path) -> None:
    """What is shown again must not be what a compaction is made for."""
    one = with_read_files(tmp_path, "a.py", window=60_000)
    clear_reads(one)
    left = compaction_threshold(one) - context_tokens(one.session.view)
    filler = "word " * ((left - 800) * 3 // 5)
    one.session.append(User((Text(filler),), origin="human"))
    one.model = Scripted(weighed(calls(edit(3))), weighed(say("ok")))
    play(one)
    assert notes(one) == []
    assert facts(one, Compacted) == []
    assert 0 < compaction_threshold(one) - context_tokens(one.session.view) < 2 * MIN_EDITED_TOKENS


def test_a_resumed_session_shows_the_same(tmp_path: Path) -> None:
    one = with_read_files(tmp_path, "a.py")
    clear_reads(one)
    one.model = Scripted(calls(edit(3)), say("ok"))
    play(one)
    assert project_view(log(one).entries).items == one.session.view.items
