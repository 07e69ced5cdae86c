"""What is wrong with memories, as far as rules can tell."""

from __future__ import annotations

from travois.memory.dreaming.rules import index_by_key
from travois.memory.memory import Evidence, Memory
from travois.memory.problems import (
    UNUSED_SECONDS,
    MemoryFinding,
    find_conflicts,
    find_leaked_secrets,
    find_stale_memories,
    find_unused,
)

NOW = 1_800_000_000.0
PORT = Memory("port", "The server listens on 8080", "project", created=NOW, modified=NOW)
HEARD = Memory(
    "door", "How to get in", "user", scope="user", evidence=(Evidence("s", 1, "user", "it is xyz"),)
)
KNOWN = index_by_key((PORT, HEARD))


def found(kind: str, memory: Memory, what: str, fix: str = "") -> MemoryFinding:
    forget = f"travois memory forget {memory.name} --scope {memory.scope}"
    return MemoryFinding(kind, memory.name, what, fix + forget)  # pyright: ignore[reportArgumentType]


def test_a_secret_is_found_in_the_words_that_a_memory_rests_on_and_not_repeated() -> None:
    told = list(find_leaked_secrets(KNOWN, lambda text: "a key" if "xyz" in text else ""))
    assert told == [found("secret", HEARD, "user/door seems to contain a secret (a key)")]


def test_a_memory_whose_files_changed_is_to_be_edited_or_forgotten() -> None:
    what = "project/port refers to a.py, b.py, changed since"
    told = list(find_stale_memories(KNOWN, {"project/port": ("a.py", "b.py")}))
    assert told == [found("stale", PORT, what, "travois memory edit port   or   ")]


def test_of_doubles_the_one_is_named_that_a_night_would_drop() -> None:
    again = Memory("again", PORT.description, "project", created=NOW + 9, modified=NOW + 9)
    told = list(find_conflicts(index_by_key((PORT, again))))
    assert [(one.kind, one.name) for one in told] == [("conflict", "again")]
    assert told[0].fix == "travois memory forget again --scope project"


def test_what_lies_unused_for_long_is_named_unless_it_is_pinned_or_young() -> None:
    old = Memory("old", "Once upon a time", "project", modified=NOW - UNUSED_SECONDS - 86400)
    held = Memory("held", "For ever", "project", modified=1.0, pinned=True)
    useful = Memory("useful", "Every day", "project", modified=1.0)
    known = index_by_key((PORT, old, held, useful))
    never = ("project/port", "project/old", "project/held")
    assert list(find_unused(known, never, now=NOW)) == [
        found("unused", old, "project/old was not used in 91 days")
    ]
