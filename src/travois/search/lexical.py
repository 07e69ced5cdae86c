"""Lexical search (FTS5 and BM25): the rare words of a query decide, so the work is bounded."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log

import msgspec

MAX_POSTINGS = 3072
"""The most postings that one search may visit."""
MAX_QUERY_TERMS = 256
"""The most distinct words of a query that are considered."""
MAX_RARE_TERMS = 32
"""The number of rarest words that count."""
ALL_GROUPS = "[]"
SELECT_GROUP_MEMBERS = """\
select number from document where collection = ?3 and band in (select value from json_each(?2))"""
FTS_TOKENIZER = "ascii tokenchars '!#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"
"""The words come divided: only spaces divide them."""


class SearchCollection(msgspec.Struct, frozen=True, array_like=True):
    """The row of a collection: its number, its embedder and its counts."""

    number: int
    embedder: str
    documents: int
    words: int

    @property
    def table(self) -> str:
        return f"words_{self.number}"


def find_collection(base: sqlite3.Connection, name: str) -> SearchCollection | None:
    """Return the search collection of that name; None if there is none."""
    row = base.execute(
        "select number, embedder, documents, words from collection where name = ?", (name,)
    ).fetchone()
    return SearchCollection(*row) if row else None


def get_or_create_collection(base: sqlite3.Connection, name: str) -> SearchCollection:
    """Return the search collection of that name, created if there is none."""
    if (known := find_collection(base, name)) is not None:
        return known
    base.execute("insert into collection (name) values (?)", (name,))
    made = find_collection(base, name)
    assert made is not None
    base.execute(
        f"create virtual table {made.table} "
        f'using fts5(words, content="", tokenize="{FTS_TOKENIZER}")'
    )
    return made


def count_unembedded(base: sqlite3.Connection, name: str) -> int:
    """Count the search documents that have no vector."""
    row: tuple[int] = base.execute(
        "select count(*) from document where codes is null and collection ="
        " (select number from collection where name = ?)",
        (name,),
    ).fetchone()
    return row[0]


def index_words(
    base: sqlite3.Connection, collection: SearchCollection, number: int, *, words: str
) -> None:
    """Index a search document under its words."""
    base.execute(
        f"insert into {collection.table} (rowid, words) values (?, ?)",  # noqa: S608  a number
        (number, words),
    )


def unindex_words(
    base: sqlite3.Connection, collection: SearchCollection, number: int, *, words: str
) -> None:
    """Remove a document from the word index, given the words it was indexed under."""
    table = collection.table
    base.execute(
        f"insert into {table} ({table}, rowid, words) values ('delete', ?, ?)",  # noqa: S608
        (number, words),
    )


def count_documents_with(
    base: sqlite3.Connection, collection: SearchCollection, words: Iterable[str]
) -> dict[str, float]:
    """Count the documents with each word, the rarest first; common words are estimated."""
    table = collection.table
    some = f"select rowid n from {table} where {table} match ? limit ?"  # noqa: S608
    known: dict[str, float] = {}
    for word in words:
        row: tuple[int, int | None, int | None] = base.execute(
            f"select count(*), min(n), max(n) from ({some})",  # noqa: S608  a number
            (quote_term(word), MAX_POSTINGS),
        ).fetchone()
        count, first, last = row
        if count == MAX_POSTINGS and first is not None and last is not None:
            known[word] = max(count, count * collection.documents / (last - first + 1))
        elif count:
            known[word] = count
    return dict(sorted(known.items(), key=lambda item: (item[1], item[0]))[:MAX_RARE_TERMS])


def find_best_matches(
    base: sqlite3.Connection,
    collection: SearchCollection,
    counted: dict[str, float],
    *,
    limit: int,
    within: str = ALL_GROUPS,
) -> list[int]:
    """Find the documents with most of the rare words, or the latest ones with a common word.

    `within` is a JSON list of the groups that alone count; an empty one means all.
    """
    chosen: list[str] = []
    room = float(MAX_POSTINGS)
    for word, count in counted.items():
        room -= count
        if room < 0:
            break
        chosen.append(quote_term(word))
    order = "rank" if chosen else "rowid desc"
    wanted = " OR ".join(chosen or map(quote_term, counted))
    if not wanted:
        return []
    rows = base.execute(
        f"select rowid from {collection.table} where {collection.table} match ?1"  # noqa: S608
        f" and (?2 = '{ALL_GROUPS}' or +rowid in ({SELECT_GROUP_MEMBERS}))"
        f" order by {order} limit ?4",
        (wanted, within, collection.number, limit),
    )
    return [number for (number,) in rows]


def rate_rarity(collection: SearchCollection, counted: dict[str, float]) -> dict[str, float]:
    """Return each search word's weight: the rarer, the heavier."""
    total = collection.documents
    return {
        word: log(1 + max(0.0, total - count + 0.5) / (count + 0.5))
        for word, count in counted.items()
    }


def score_bm25(words: Sequence[str], rarity: Mapping[str, float], *, length: float) -> float:
    """Score a document by BM25; in short texts a repeated word adds little."""
    score = 0.0
    shortness = 0.7 * (0.65 + 0.35 * len(words) / (length or 1.0))
    for word, weight in rarity.items():
        if times := words.count(word):
            score += weight * times * 1.7 / (times + shortness)
    return score


def quote_term(word: str) -> str:
    """Quote a word as an FTS5 query of one term, whatever it contains."""
    return '"' + word.replace('"', "").replace("\0", "") + '"'


# The words of a text as they are indexed and looked for.


TERMS_VERSION = 2
"""Raised whenever `words` says something else of any text: indexes are then made again."""
WORD_PATTERN = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins within a name."""
UNSPACED_SCRIPT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2,}")
"""Scripts that put no space between words: each two characters count as one."""
STOP_WORD_TEXT = """
a about also am an and any are as at be been but by can could did do does don for from get got had
has have he her here hers hey hi him his how i if in into is it its just let me more most much my no
not of on or our out over she should so some such than that the their them then there these they
this those to too up us very was we were what when where which who whom whose why will with would
you your
"""
INDEX_STOP_WORDS = frozenset(STOP_WORD_TEXT.split())
PLURAL_ENDINGS = (
    ("sses", "ss"),
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("s", ""),
)
SINGULAR_ENDINGS = ("ss", "us", "is")
VERB_ENDINGS = ("ingly", "edly", "ing", "ed", "ly", "ment", "ness")
VOWEL_PATTERN = re.compile("[aeiouy]")


def split_index_terms(text: str) -> tuple[str, ...]:
    """Split a text into stemmed terms without stop words, none with a space or a quote."""
    return tuple(stem for word in WORD_PATTERN.findall(text) for stem in _terms_of_word(word))


def _terms_of_word(word: str) -> Iterator[str]:
    """Yield a word's index terms, and for a name such as `fetchUser` also its parts."""
    if UNSPACED_SCRIPT.search(word):
        yield from (word[at : at + 2].lower() for at in range(len(word) - 1))
        return
    word = re.split("['’]", word)[0]
    yield from _stem_word(word.lower())
    if len(parts := CAMEL_CASE_BOUNDARY.split(word)) > 1:
        for part in parts:
            yield from _stem_word(part.lower())


@lru_cache(1 << 14)
def _stem_word(word: str) -> tuple[str, ...]:
    """Strip a word's endings for the search index; a stop word has no terms."""
    if word in INDEX_STOP_WORDS:
        return ()
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return (word,)
    return (_normalize_last_letter(_strip_ending(_strip_plural(word))),)


def _strip_plural(word: str) -> str:
    """Strip the plural ending of a word for the search index."""
    if word.endswith(SINGULAR_ENDINGS):
        return word
    for ending, instead in PLURAL_ENDINGS:
        if word.endswith(ending):
            return word.removesuffix(ending) + instead
    return word


def _strip_ending(word: str) -> str:
    """Strip -ing, -ed and the like for the search index: `stopped` becomes `stop`."""
    for ending in VERB_ENDINGS:
        head = word.removesuffix(ending)
        if head != word and len(head) > 2 and VOWEL_PATTERN.search(head):
            twice = len(head) > 3 and head[-1] == head[-2] and head[-1] not in "lsz"
            return head[:-1] if twice else head
    return word


def _normalize_last_letter(word: str) -> str:
    """Give all forms of a search term one last letter: `save` and `saving`."""
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return f"{word[:-1]}i" if len(word) > 3 and word.endswith("y") else word
