"""The user's own keys, dropped paths and folders that can be mentioned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from travois.tui.key_file import KEY_FILE, load_key_file, parse_key
from travois.tui.keys import InputCompleter, mention_dropped_path


def write(folder: Path, **bindings: object) -> Path:
    path = folder / KEY_FILE
    path.write_text(json.dumps(bindings))
    return path


def test_keys_are_read_by_the_names_that_people_use(tmp_path: Path) -> None:
    path = write(tmp_path, mode=["shift-tab", "alt-m"], expand="ctrl-t", editor="f4")
    assert load_key_file(path) == (
        {"mode": (("s-tab",), ("escape", "m")), "expand": (("c-t",),), "editor": (("f4",),)},
        (),
    )
    assert load_key_file(tmp_path / "none.json") == ({}, ())


@pytest.mark.parametrize(
    ("bindings", "told"),
    [
        ({"expnd": "ctrl-t"}, "there is no action expnd; did you mean expand?"),
        ({"expand": "hyper-t"}, "hyper is not Ctrl, Alt or Shift"),
        ({"expand": "t"}, "t is typed into the line"),
        ({"expand": "ctrl-plop"}, "no key that a terminal sends"),
    ],
)
def test_a_wrong_line_is_told_and_changes_nothing(
    tmp_path: Path, bindings: dict[str, str], told: str
) -> None:
    found, notices = load_key_file(write(tmp_path, **bindings, mode="ctrl-y"))
    assert found == {"mode": (("c-y",),)}
    assert told in notices[0] and len(notices) == 1


def test_a_file_that_is_no_json_is_told(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("{")
    found, notices = load_key_file(tmp_path / KEY_FILE)
    assert found == {} and "is ignored" in notices[0]
    with pytest.raises(ValueError, match="no key"):
        parse_key("ctrl-")


def test_a_dropped_path_becomes_a_mention(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    (tmp_path / "two words.py").touch()
    (tmp_path / "shot.png").touch()
    folder = str(tmp_path)
    assert mention_dropped_path(f"'{folder}/src/a.py' ", folder) == "@src/a.py "
    assert mention_dropped_path(f"{folder}/src", "/elsewhere") == f"@{folder}/src "
    for kept in (f"{folder}/two\\ words.py", f"{folder}/shot.png", "see /etc", "/no/such", "src"):
        assert mention_dropped_path(kept, folder) == kept


def test_folders_are_offered_after_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").touch()
    completer = InputCompleter(str(tmp_path), lambda name, word: [])
    found = completer.get_completions(Document("see @do"), CompleteEvent())
    assert [one.text for one in found] == ["docs/", "docs/a.md", "docs/deep/"]
