"""An index finds what is in it, however it came to be there, whatever it is asked."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.search.hashed import Hashed
from travois.search import candidates as gathering
from travois.search import vectors
from travois.search.database import SearchDocument
from travois.search.index import SearchIndex

WORDS = ("redis", "postgres", "cache", "deploy", "friday", "naïve", "日本語", "a", "")
IDS = st.sampled_from(("one", "two", "three", "four", "\ud800"))
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=6).map(" ".join)
DOCUMENTS = st.builds(
    SearchDocument,
    IDS,
    TEXTS,
    group=st.sampled_from(("", "g")),
    order=st.integers(0, 3),
    title=TEXTS,
)
CHANGES = st.lists(
    st.tuples(st.lists(DOCUMENTS, max_size=4), st.lists(IDS, max_size=2)), max_size=5
)
PHASES = (Phase.explicit, Phase.generate)
QUERY = "when did we deploy the redis cache"


def found(index: SearchIndex, text: str = QUERY) -> list[tuple[str, float, float | None]]:
    """All that a ranking gets to know, in an order that is the same for every file."""
    _, candidates = index.find_candidates("c", text, now=0.0)
    return sorted(
        (one.document.id, round(one.lexical, 9), one.cosine and round(one.cosine, 5))
        for one in candidates
    )


@pytest.mark.parametrize("embedder", [None, Hashed()], ids=["words", "meaning"])
@settings(max_examples=25, deadline=None, phases=PHASES)
@given(changes=CHANGES)
def test_many_updates_come_to_the_same_as_one(
    embedder: Hashed | None, changes: list[tuple[list[SearchDocument], list[str]]]
) -> None:
    kept: dict[str, SearchDocument] = {}
    with TemporaryDirectory() as folder:
        grown, made = (
            SearchIndex(Path(folder, "grown"), embedder),
            SearchIndex(Path(folder, "made"), embedder),
        )
        for documents, gone in changes:
            grown.update("c", documents, gone=gone)
            kept = {id: one for id, one in kept.items() if id not in gone}
            kept |= {one.id: one for one in documents}
        made.update("c", kept.values())
        assert (found(grown), grown.document_ids("c")) == (found(made), made.document_ids("c"))
        assert grown.search("c", QUERY, limit=9, now=0.0) == made.search(
            "c", QUERY, limit=9, now=0.0
        )
        assert grown.update("c", kept.values()) == 0
        grown.close()
        made.close()


def test_only_what_changed_is_written_and_embedded(tmp_path: Path) -> None:
    embedder = Hashed()
    index = SearchIndex(tmp_path / "i.db", embedder)
    documents = [SearchDocument(f"d{n}", f"text {n}") for n in range(5)]
    assert index.update("c", documents) == 5
    embedder.asked.clear()
    some = [documents[0], documents[3], SearchDocument("d3", "another")]
    assert index.update("c", some, gone=["d1", "no"]) == 2
    assert index.update("c", [SearchDocument("d3", "another")]) == 0
    assert embedder.asked == ["another"]
    assert index.document_ids("c") == {"d0", "d2", "d3", "d4"}


def test_many_are_found_by_their_words_at_once_and_by_their_meaning_later(tmp_path: Path) -> None:
    index = SearchIndex(tmp_path / "i.db", Hashed())
    index.update("c", [SearchDocument(f"d{n}", f"w{n} same") for n in range(200)])
    assert index.search("c", "w7", limit=1, now=0.0)[0].id == "d7"
    assert index.count_waiting("c") == 136
    assert (index.embed("c", limit=100), index.embed("c", limit=100)) == (100, 36)
    assert (index.count_waiting("c"), index.embed("c", limit=100)) == (0, 0)
    _, candidates = index.find_candidates("c", "same", now=0.0)
    assert all(one.cosine is not None for one in candidates)


def test_vectors_of_another_embedder_are_made_again(tmp_path: Path) -> None:
    documents = [SearchDocument("one", "redis"), SearchDocument("two", "postgres")]
    SearchIndex(tmp_path / "i.db", Hashed("old")).update("c", documents)
    index = SearchIndex(tmp_path / "i.db", Hashed("other"))
    assert [cosine for _, _, cosine in found(index)] == [None]
    assert index.embed("c", limit=9) == 2
    assert [id for id, _, cosine in found(index) if cosine is not None] == ["one", "two"]


def test_a_document_brings_its_neighbours_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MAX_CANDIDATES", 1)
    index = SearchIndex(tmp_path / "i.db", None)
    talk = [
        SearchDocument(f"{g}{n}", "redis" if n == 5 else "-", g, n) for g in "ab" for n in range(9)
    ]
    index.update("c", [*talk[:14], *talk[15:], SearchDocument("alone", "-", order=4)])
    assert [id for id, _, _ in found(index)] == ["a4", "a5", "a6"]


def test_collections_do_not_know_of_each_other(tmp_path: Path) -> None:
    index = SearchIndex(tmp_path / "i.db", Hashed())
    index.update("c", [SearchDocument("one", "redis")], marks={"f": "1"})
    index.update("d", [SearchDocument("one", "postgres")], marks={"f": "2", "g": "3"})
    index.update("d", (), marks={"g": ""})
    assert (index.read_marks("c"), index.read_marks("d"), index.read_marks("e")) == (
        {"f": "1"},
        {"f": "2"},
        {},
    )
    assert [id for id, score, _ in found(index, "redis") if score] == ["one"]
    assert not any(one.lexical for one in index.find_candidates("d", "redis", now=0.0)[1])
    assert index.search("nothing", "redis", limit=5, now=0.0) == []
    assert (
        index.document_ids("c", group="") == {"one"}
        and index.document_ids("c", group="g") == frozenset()
    )


@pytest.mark.parametrize(
    "text",
    [
        *(
            '"',
            'redis"',
            "redis NEAR(a b)",
            "words : redis",
            "redis*",
            "^redis",
            "redis AND",
            "NOT",
        ),
        *("redis OR", "{words} : x", "-redis", "redis\0x", "\ud800 redis", "'; drop table cell"),
        *("日本語", "", " ", "\0", "(((", "redis " * 200_000, "".join(map(chr, range(1, 3000)))),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_query_is_words_whatever_is_in_it(tmp_path: Path, text: str) -> None:
    index = SearchIndex(tmp_path / "i.db", Hashed())
    index.update("c", [SearchDocument("one", "redis 日本語"), SearchDocument("two", text)])
    hits = index.search("c", text, limit=5, now=0.0)
    assert ("redis" not in text) or {"one", "two"} >= {hit.id for hit in hits} != set()
    assert (index.trouble, index.document_ids("c")) == ("", {"one", "two"})


def test_a_word_that_almost_all_have_costs_no_more_than_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("travois.search.lexical.MAX_POSTINGS", 20)
    index = SearchIndex(tmp_path / "i.db", None)
    index.update("c", [SearchDocument(f"d{n}", f"common w{n}") for n in range(400)])
    query, candidates = index.find_candidates("c", "common", now=0.0)
    assert len(candidates) == gathering.MAX_CANDIDATES
    assert query.rarity["common"] < 0.1
    _, candidates = index.find_candidates("c", "common w7", now=0.0)
    assert [one.document.id for one in candidates] == ["d7"]


def test_a_large_collection_is_divided_into_cells_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MAX_COMPARED_VECTORS", 64)
    monkeypatch.setattr(vectors, "VECTORS_PER_CELL", 16)
    index = SearchIndex(tmp_path / "i.db", Hashed())
    documents = [SearchDocument(f"d{n}", f"w{n % 20} w{n % 7} x{n}") for n in range(300)]
    index.update("c", documents[:150])
    while index.embed("c", limit=40):
        pass
    index.update("c", documents[150:], gone=[f"d{n}" for n in range(0, 150, 3)])
    while index.embed("c", limit=40):
        pass
    for number in (1, 155, 200, 299):
        text = documents[number].text
        best = max(index.find_candidates("c", text, now=0.0)[1], key=lambda one: one.cosine or 0)
        assert best.cosine == pytest.approx(1.0, abs=1e-3)
    assert (index.count_waiting("c"), len(index.document_ids("c"))) == (0, 250)
