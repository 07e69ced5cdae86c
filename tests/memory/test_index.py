"""The index of memories: everything is in it, no page is too long, little changes at a time."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st

from travois.memory.index import (
    INDEX_FILE,
    MAX_PAGE_BYTES,
    MAX_PAGE_LINES,
    build_index,
    extract_prose,
)
from travois.memory.memory import Memory

LINK = re.compile(r"^- \[[^\]]*\]\((\S+\.md)\)", re.MULTILINE)
KINDS = ("user", "feedback", "project", "reference")


def many(count: int, *, size: int = 60, char: str = "x") -> list[Memory]:
    return [
        Memory(f"area-{n % 7}-fact-{n:05}", char * size, KINDS[n % 4], pinned=n % 50 == 0)
        for n in range(count)
    ]


def links(text: str) -> list[str]:
    return [unquote(link) for link in LINK.findall(text)]


def reached(pages: dict[str, str]) -> list[str]:
    """All that is found from the index within two links."""
    found: list[str] = []
    for link in links(pages.get(INDEX_FILE, "")):
        found += links(pages[link]) if link.startswith("topics/") else [link]
    return found


def sound(memories: list[Memory], kept: tuple[str, ...] = ()) -> dict[str, str]:
    pages = build_index(memories, kept)
    wanted = [f"{'pinned/' if one.pinned else ''}{one.name}.md" for one in memories]
    notes = [link for link in links(pages.get(INDEX_FILE, "")) if "/notes-" in link]
    assert sorted(reached(pages)) == sorted(wanted)
    for text in pages.values():
        assert text.count("\n") <= MAX_PAGE_LINES
        assert len(text.encode()) <= MAX_PAGE_BYTES
    assert sorted(pages) == sorted(
        {INDEX_FILE, *(p for p in links(pages[INDEX_FILE]) if "topics/" in p)}
    )
    assert "".join("".join(extract_prose(pages)).split()) == "".join("".join(kept).split())
    assert notes or extract_prose({INDEX_FILE: pages[INDEX_FILE]}) == kept
    assert build_index(list(reversed(memories)), extract_prose(pages)) == pages
    return pages


def test_a_short_index_is_one_line_for_each() -> None:
    two = [Memory("b", "It is\u2026", "user"), Memory("a", "y" * 300, "project", pinned=True)]
    assert build_index(two) == {
        INDEX_FILE: f"- [a](pinned/a.md): {'y' * 129}…\n- [b](b.md): It is…\n",
    }
    assert build_index([]) == {}


def test_a_long_index_is_split_and_nothing_disappears() -> None:
    for count in (200, 201, 1_000, 10_000):
        sound(many(count))
    sound(many(500, size=149, char="字"))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 700),
    st.integers(0, 150),
    st.lists(st.sampled_from(("# Notes", "", "Mind the gap.", "w" * 500)), max_size=300),
)
def test_every_memory_is_within_two_links(count: int, size: int, kept: list[str]) -> None:
    while kept and not kept[-1]:
        kept.pop()
    sound(many(count, size=size), tuple(kept))


def test_a_line_that_fills_a_page_is_kept() -> None:
    sound(many(300), ("word " * 20_000,))


def test_one_memory_more_changes_little() -> None:
    before = build_index(many(3_000))
    for name in ("aaa", "area-3-fact-01500x", "zzz"):
        after = build_index([*many(3_000), Memory(name, "More", "project")])
        changed = {page for page in {*before, *after} if before.get(page) != after.get(page)}
        assert INDEX_FILE in changed and len(changed) <= 5


def test_names_that_people_gave_to_files_are_linked() -> None:
    odd = [Memory(name, "d", "user") for name in ("My notes (1)", "a]b", "é", "x" * 200)]
    assert sorted(PurePosixPath(link).stem for link in reached(sound(odd))) == sorted(
        one.name for one in odd
    )


def test_what_people_wrote_into_the_index_stays() -> None:
    theirs = "# Mine\n\nMind the gap.\n- [gone](gone.md): it is no more\n* [a](a.md) - old\n- a\n"
    kept = extract_prose({INDEX_FILE: theirs, "topics/user-a.md": "- [a](a.md): b\nAlso this.\n"})
    assert kept == ("# Mine", "", "Mind the gap.", "- a", "Also this.")
    assert build_index([Memory("a", "b", "user")], kept)[INDEX_FILE] == (
        "# Mine\n\nMind the gap.\n- a\nAlso this.\n- [a](a.md): b\n"
    )


def test_a_merge_that_left_both_sides_is_mended() -> None:
    merged = "<<<<<<< HEAD\n- [a](a.md): b\n=======\n- [c](c.md): d\n>>>>>>> theirs\nMine.\n"
    assert extract_prose({INDEX_FILE: merged}) == ("Mine.",)
