"""The session record: what compactions need of everything a session ever said and did.

Each entry is folded in once, so that a compaction costs only what came since the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from travois.context.compaction.declarations import DeclarationIndex
from travois.context.compaction.passages import SpokenNames
from travois.context.compaction.restore import note_used_skills
from travois.context.ledger.ledger import Ledger, LedgerBuilder
from travois.core.facts import Cleared, Compacted, Entry
from travois.core.view import View, ViewItem
from travois.sessions.session import Session


class SessionRecord:
    """The ledger, names, declarations, skills and files of a session."""

    def __init__(self) -> None:
        self.names = SpokenNames()
        self.code = DeclarationIndex()
        self.skills: dict[str, tuple[int, str]] = {}
        self.span_titles: list[str] = []
        self.span_files: list[str] = []
        """The files with what compactions replaced, and what stands in each."""
        self.folded_files: tuple[str, ...] = ()
        """Those of the foldings since the last other compaction."""
        self._ledger = LedgerBuilder()
        self._view = View()
        """The last message, and what waits for results."""

    @property
    def ledger(self) -> Ledger:
        """The established facts."""
        return self._ledger.ledger

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the entries that came since the last time."""
        self._ledger.add(entries)
        self.names.add(entries)
        self.code.add(self._list_messages(entries))
        note_used_skills(entries, self.skills)
        for fact in (one.fact for one in entries if isinstance(one.fact, Compacted)):
            self.span_titles += fact.titles
            self.span_files += fact.files
            folded = fact.by == "folded"
            self.folded_files = (*self.folded_files, *fact.files) if folded else ()

    def _list_messages(self, entries: Sequence[Entry]) -> list[ViewItem]:
        """Return the messages that these entries complete."""
        view, known = self._view, len(self._view.items)
        _show_original_items(view, entries)
        self._view = View(items=view.items[-1:], open=view.open, queued=view.queued)
        return view.items[known:]


def list_original_items(entries: Sequence[Entry]) -> list[ViewItem]:
    """Return a session's messages as they were before any compaction or clearing."""
    view = View()
    _show_original_items(view, entries)
    return view.items


def _show_original_items(view: View, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if not isinstance(entry.fact, Compacted | Cleared):
            view.add(entry)


def restore_items(session: Session, items: Sequence[ViewItem]) -> list[ViewItem]:
    """Return these messages as they originally were, before clearing or compaction."""
    if not items:
        return []
    entries = session.entries_since(min(item.seq for item in items) - 1)
    ever = {item.seq: item for item in list_original_items(entries)}
    return [ever.get(item.seq, item) for item in items]
