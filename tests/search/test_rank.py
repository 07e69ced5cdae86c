"""What speaks for an answer besides its words: who said it, when, and what stands before it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from travois.search.database import SearchCandidate, SearchDocument, SearchQuery
from travois.search.lexical import split_index_terms
from travois.search.rank import rank_documents, rank_groups

MAY = datetime(2023, 5, 7, tzinfo=UTC).timestamp()
NOW = datetime(2023, 9, 1, tzinfo=UTC).timestamp()


def query(text: str) -> SearchQuery:
    found = tuple(dict.fromkeys(split_index_terms(text)))
    return SearchQuery(text, found, dict.fromkeys(found, 1.0), NOW, 6.0)


def candidate(id: str, *, lexical: float = 0.0, cosine: float | None = None) -> SearchCandidate:
    return SearchCandidate(SearchDocument(id, id), (id,), lexical, cosine)


def turn(
    id: str, text: str, *, at: float = 0.0, group: str = "s", order: int = 0, who: str = ""
) -> SearchCandidate:
    document = SearchDocument(id, text, group, order, at=at, who=who)
    return SearchCandidate(document, split_index_terms(text), 0.0, None)


def asked(text: str, *candidates: SearchCandidate) -> list[str]:
    """The order of the answers, each weighed by how many of the question's words it has."""
    wanted = query(text)
    weighed = [
        replace(one, lexical=float(sum(word in one.words for word in wanted.words)))
        for one in candidates
    ]
    return [hit.id for hit in rank_documents(wanted, weighed)]


def test_words_and_meaning_count_together() -> None:
    found = [
        candidate("neither", lexical=0.0, cosine=0.1),
        candidate("words", lexical=4.0, cosine=0.1),
        candidate("both", lexical=4.0, cosine=0.6),
    ]
    assert [hit.id for hit in rank_documents(query("x"), found)] == ["both", "words", "neither"]


def test_without_vectors_the_words_decide() -> None:
    found = [candidate("few", lexical=1.0), candidate("many", lexical=3.0), candidate("none")]
    assert [hit.id for hit in rank_documents(query("x"), found)] == ["many", "few", "none"]


def test_the_order_of_candidates_does_not_matter() -> None:
    found = [candidate(str(at), lexical=at / 7, cosine=at % 3 / 10) for at in range(9)]
    assert rank_documents(query("x"), found) == rank_documents(query("x"), found[::-1])


def test_the_answer_to_a_question_is_found_by_the_question() -> None:
    assert asked(
        "which database",
        turn("other", "The weather is fine today", order=5),
        turn("question", "Which database shall we take?", order=1),
        turn("answer", "Postgres, for the backups", order=2),
        turn("far", "Lunch was good", order=9),
    )[:2] == ["question", "answer"]


def test_what_stands_around_a_good_turn_is_better_than_what_stands_alone() -> None:
    good = "The database shall be Postgres"
    found = asked(
        "which database",
        turn("alone", "Lunch was good", order=20),
        turn("ahead", "Lunch was good", order=0, who="Ada"),
        turn("good", good, order=1, who="Grace"),
        turn("after", "Lunch was good", order=2, who="Ada"),
        turn("later", "Lunch was good", order=3, who="Grace"),
        turn("far", "Lunch was good", order=4),
    )
    assert found == ["good", "after", "later", "ahead", "alone", "far"]


def test_a_turn_that_asks_seldom_tells() -> None:
    said = [turn("asks", "The database?", order=1), turn("tells", "The database!", order=9)]
    assert asked("which database", *said, turn("rain", "Rain", order=20))[0] == "tells"


def test_neighbours_are_of_one_group() -> None:
    found = asked(
        "which database",
        turn("question", "Which database shall we take?", group="s", order=1),
        turn("answer", "Postgres, for the backups", group="s", order=2),
        turn("stranger", "Postgres, for the backups", group="t", order=2),
    )
    assert found == ["question", "answer", "stranger"]


def test_documents_of_no_group_have_no_neighbours() -> None:
    hits = rank_documents(
        query("q"), [turn("a", "q?", group="", order=0), turn("b", "x", group="", order=1)]
    )
    assert {hit.score for hit in hits} == {0.0}


@pytest.mark.parametrize("person", ["Ada", "Grace"])
def test_a_question_about_a_person_prefers_what_they_said(person: str) -> None:
    said = [
        turn("Ada", "I bought a bicycle", order=1, who="Ada"),
        turn("Grace", "I bought a bicycle", order=5, who="Grace"),
        turn("no", "Rain", order=9, who="Ada"),
    ]
    assert asked(f"What did {person} buy, a bicycle?", *said)[0] == person


def test_a_role_is_no_name() -> None:
    said = [turn("role", "Hello", who="user"), turn("text", "the user table", order=5, who="model")]
    assert asked("user table", *said) == ["text", "role"]


def test_a_question_about_a_time_prefers_what_was_said_then() -> None:
    said = [
        turn("then", "The deploy failed", group="s", at=MAY),
        turn("later", "The deploy failed", group="t", at=MAY + 60 * 86400),
        turn("never", "Rain", group="u"),
    ]
    assert asked("Which deploy failed in May?", *said)[0] == "then"
    assert asked("Which deploy failed in July?", *said)[0] == "later"


@pytest.mark.parametrize(("word", "best"), [("last", "new"), ("originally", "old")])
def test_a_question_about_the_latest_prefers_what_was_said_later(word: str, best: str) -> None:
    said = [
        turn("old", "The port is 80", group="s", at=MAY),
        turn("new", "The port is 90", group="t", at=MAY + 60 * 86400),
        turn("no", "Rain", group="u", at=MAY + 90 * 86400),
    ]
    assert asked(f"What did I say {word} about the port?", *said)[0] == best


def test_i_asks_for_the_words_of_the_user_and_you_for_those_of_the_model() -> None:
    said = [
        turn("mine", "the port is 80", group="s", who="user"),
        turn("yours", "the port is 80", group="t", who="model"),
        turn("no", "Rain", group="u", who="model"),
    ]
    assert asked("Which port did I want?", *said)[0] == "mine"
    assert asked("Which port did you name?", *said)[0] == "yours"


def test_words_side_by_side_say_more_than_words_apart() -> None:
    said = [
        turn("apart", "The pool has no connection to swimming", group="s"),
        turn("together", "The connection pool is empty today", group="t"),
        turn("no", "Rain", group="u"),
    ]
    assert asked("connection pool", *said)[0] == "together"


def test_a_turn_that_also_asks_loses_only_a_part() -> None:
    tells = "We chose the Postgres database after all. Is that fine?"
    said = [turn("asks", "Which database is that?", order=1), turn("tells", tells, order=9)]
    assert asked("which database", *said, turn("rain", "Rain", order=20))[0] == "tells"


def test_several_good_passages_say_more_for_a_session_than_one() -> None:
    found = [
        SearchCandidate(SearchDocument(f"{group}{order}", "", group, order), (), lexical, None)
        for group, lexicals in {
            "one": (3.0, 0, 0),
            "more": (2.5, 2.5, 2.0),
            "none": (0, 0, 0),
        }.items()
        for order, lexical in enumerate(lexicals)
    ]
    assert [hit.id for hit in rank_groups(query("x"), found)] == ["more", "one", "none"]


def session(group: str, lexical: float, *, hours: float) -> SearchCandidate:
    """The only passage of a session that began so many hours after another."""
    return SearchCandidate(
        SearchDocument(group, "", group, at=MAY + 3600 * hours), (), lexical, None
    )


def test_a_session_soon_before_or_after_a_good_one_is_found_with_it() -> None:
    found = [
        session("good", 9.0, hours=0),
        session("next", 0.0, hours=0.5),
        session("before", 0.0, hours=-1),
        session("some", 3.0, hours=40),
        session("day after", 0.0, hours=24),
    ]
    ranked = [hit.id for hit in rank_groups(query("x"), found)]
    assert ranked == ["good", "next", "before", "some", "day after"]
    elsewhere = rank_groups(query("x"), found, places={"next": "/other"})
    assert [hit.id for hit in elsewhere][:3] == ["good", "before", "some"]


def test_sessions_of_no_known_time_are_not_beside_each_other() -> None:
    found = [
        SearchCandidate(SearchDocument(id, "", id), (), weight, None)
        for id, weight in (("a", 9), ("b", 0))
    ]
    assert [hit.score for hit in rank_groups(query("x"), found)] == [1.0, -1.0]


def test_nothing_is_found_among_nothing() -> None:
    assert (rank_documents(query("x"), []), rank_groups(query("x"), [])) == ([], [])
