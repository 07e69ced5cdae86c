"""What is offered while a line is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from travois.tui import keys
from travois.tui.keys import InputCompleter


def test_files_and_what_servers_have_are_offered_after_an_at(tmp_path: Path) -> None:
    (tmp_path / "docs.md").touch()
    held = ["docs:file:///guide", "other:x"]
    completing = InputCompleter(str(tmp_path), lambda name, word: (), lambda: held)
    found = completing.get_completions(Document("see @docs"), CompleteEvent())
    assert [(one.text, one.start_position) for one in found] == [
        ("docs.md", -4),
        ("docs:file:///guide", -4),
    ]


def offered(folder: Path, text: str) -> list[tuple[str, str]]:
    completing = InputCompleter(str(folder), lambda name, word: ())
    found = completing.get_completions(Document(text), CompleteEvent())
    return [(one.text, one.display_text) for one in found]


def test_more_files_than_are_looked_through_are_told_and_reached_by_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_LISTED_FILES", 20)
    for folder in ("a", "b/c"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(15):
            (tmp_path / folder / f"file_{number:02}.py").touch()
    more = ("", "(only 20 files searched; type a folder)")
    assert offered(tmp_path, "see @file_14") == [("a/file_14.py", "a/file_14.py"), more]
    assert offered(tmp_path, "see @b")[0] == ("b/", "b/")
    assert offered(tmp_path, "see @b/")[0] == ("b/c/", "b/c/")
    found = ("b/c/file_14.py", "b/c/file_14.py")
    assert offered(tmp_path, "see @b/c/file_14") == [found, more]


def test_a_folder_that_is_not_looked_through_is_offered_once_it_is_typed(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "left-pad.js").touch()
    assert offered(tmp_path, "see @left") == []
    path = "node_modules/left-pad.js"
    assert offered(tmp_path, "see @node_modules/le") == [(path, path)]
