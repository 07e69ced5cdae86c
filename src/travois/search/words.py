"""The words of a text as they are indexed and looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

VERSION = 2
"""Raised whenever `words` says something else of any text: indexes are then made again."""
WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
HUMP = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins within a name."""
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2,}")
"""Scripts that put no space between words: each two characters count as one."""
NO_MATTER = """
a about also am an and any are as at be been but by can could did do does don for from get got had
has have he her here hers hey hi him his how i if in into is it its just let me more most much my no
not of on or our out over she should so some such than that the their them then there these they
this those to too up us very was we were what when where which who whom whose why will with would
you your
"""
GRAMMAR = frozenset(NO_MATTER.split())
PLURALS = (("sses", "ss"), ("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("s", ""))
SINGULAR = ("ss", "us", "is")
ENDINGS = ("ingly", "edly", "ing", "ed", "ly", "ment", "ness")
VOWEL = re.compile("[aeiouy]")


def words(text: str) -> tuple[str, ...]:
    """Its words in order, without what is only grammar. None has a space or a quote in it."""
    return tuple(stem for word in WORD.findall(text) for stem in _stems(word))


def _stems(word: str) -> Iterator[str]:
    """A word, and if it is a name such as `fetchUser`, also the words within."""
    if UNSPACED.search(word):
        yield from (word[at : at + 2].lower() for at in range(len(word) - 1))
        return
    word = re.split("['’]", word)[0]
    yield from _stem(word.lower())
    if len(parts := HUMP.split(word)) > 1:
        for part in parts:
            yield from _stem(part.lower())


@lru_cache(1 << 14)
def _stem(word: str) -> tuple[str, ...]:
    """A word without its endings; nothing of a word that is only grammar."""
    if word in GRAMMAR:
        return ()
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return (word,)
    return (_rooted(_shortened(_single(word))),)


def _single(word: str) -> str:
    if word.endswith(SINGULAR):
        return word
    for ending, instead in PLURALS:
        if word.endswith(ending):
            return word.removesuffix(ending) + instead
    return word


def _shortened(word: str) -> str:
    """Without -ing, -ed and the like: `stopped` becomes `stop`."""
    for ending in ENDINGS:
        head = word.removesuffix(ending)
        if head != word and len(head) > 2 and VOWEL.search(head):
            twice = len(head) > 3 and head[-1] == head[-2] and head[-1] not in "lsz"
            return head[:-1] if twice else head
    return word


def _rooted(word: str) -> str:
    """With one last letter for all its forms: `save` and `saving`, `party` and `parties`."""
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return f"{word[:-1]}i" if len(word) > 3 and word.endswith("y") else word
