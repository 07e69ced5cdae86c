"""The forms of a word, and the words within a name, find each other."""

from __future__ import annotations

import pytest

from travois.search.lexical import split_index_terms


@pytest.mark.parametrize(
    "forms",
    [
        "save saves saved saving",
        "stop stops stopped stopping",
        "party parties party's party’s",
        "class classes",
        "watch watches watched watching",
        "deploy deploys deployed deployment",
        "quick quickly quickness",
    ],
)
def test_the_forms_of_a_word_are_one_word(forms: str) -> None:
    assert len(set(split_index_terms(forms))) == 1


def test_short_words_numbers_and_accents_stay_as_they_are() -> None:
    assert split_index_terms("gas bus v2 2023 naïve Straße") == (
        "gas",
        "bus",
        "v2",
        "2023",
        "naïve",
        "straße",
    )


def test_text_without_spaces_is_found_by_any_part_of_it() -> None:
    assert set(split_index_terms("検索")) < set(split_index_terms("全文検索は速い"))


def test_what_is_only_grammar_is_left_out() -> None:
    assert split_index_terms("What did we do with the cache, and why?") == ("cach",)


def test_a_name_in_code_is_found_by_itself_and_by_its_words() -> None:
    assert split_index_terms("fetchUserName") == ("fetchusernam", "fetch", "user", "nam")
    assert split_index_terms("HTTPServer") == ("httpserver", "http", "server")
    assert split_index_terms("user_name src/user-name.py") == (
        "user",
        "nam",
        "src",
        "user",
        "nam",
        "py",
    )


def test_no_word_has_a_space_or_a_quote() -> None:
    assert split_index_terms("""say "don't" 'now' `x y` a_b""") == ("say", "now", "x", "y", "b")
