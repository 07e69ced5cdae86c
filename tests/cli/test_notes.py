"""What `travois notes` and `/notes` show: the newest notes that still count."""

from __future__ import annotations

import msgspec

from travois.commands.context import NO_NOTES_MESSAGE, list_notes_versions, render_latest_notes
from travois.context.session_memory.notes import SessionNotes
from travois.core.facts import AnyFact, Changed, Entry, Noted, Rewound


def noted(text: str, covers: int) -> Noted:
    return Noted("notes", msgspec.json.encode(SessionNotes(0, text, covers)).decode())


def entries(*facts: AnyFact) -> list[Entry]:
    return [Entry(seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]


def test_the_newest_notes_are_shown_without_what_a_terminal_would_obey() -> None:
    found = list_notes_versions(entries(noted("# A\nold", 1), noted("# A\nnew\x1b[2J", 7)))
    assert [one.covers for one in found] == [1, 7]
    shown = render_latest_notes(found)
    assert shown.startswith("# A\nnew") and "\x1b" not in shown
    assert "covers the log up to entry 7" in shown


def test_a_rewind_takes_notes_back_and_a_fork_begins_without() -> None:
    first, second = noted("# A\nold", 1), noted("# A\nnew", 2)
    assert [one.text for one in list_notes_versions(entries(first, second, Rewound(1)))] == [
        "# A\nold"
    ]
    assert (
        render_latest_notes(list_notes_versions(entries(first, Changed("fork", "yes"))))
        == NO_NOTES_MESSAGE
    )
    assert render_latest_notes([]) == NO_NOTES_MESSAGE
