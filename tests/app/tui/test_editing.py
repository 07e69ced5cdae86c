"""What is offered while a line is typed."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from travois.app.tui.editing import Completing


def test_files_and_what_servers_have_are_offered_after_an_at(tmp_path: Path) -> None:
    (tmp_path / "docs.md").touch()
    held = ["docs:file:///guide", "other:x"]
    completing = Completing(str(tmp_path), lambda name, word: (), lambda: held)
    found = completing.get_completions(Document("see @docs"), CompleteEvent())
    assert [(one.text, one.start_position) for one in found] == [
        ("docs.md", -4),
        ("docs:file:///guide", -4),
    ]
