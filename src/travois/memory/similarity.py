"""Similarity of two texts by their words, without a model or an index.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from travois.memory.phrases import has_phrase

WORD_PATTERN = re.compile(r"[^\W_]+(?:[._/@#+'’-]+[^\W_]+)*[+#]*", re.UNICODE)
WORD_ENDINGS = (
    "ations",
    "ation",
    "ments",
    "ment",
    "ings",
    "ing",
    "ers",
    "er",
    "ed",
    "es",
    "s",
    "ly",
)
FILLER_TEXT = """a about after again all also an and any are as at be been before being both but
by can could did do does during each else ever every for from had has have he her here his how i if
in into is it its itself just let like may me might more most my no nor now of off on once one only
or other our out over own per please really same shall she should so some still such than that the
their them then there these they this those through thing to too under until up upon us use very via
was we were what when where whether which while who whom whose will with within would yes you your
user always never not don't doesn't won't can't isn't dont cannot avoid without stop instead note
want remember prefer project repository repo team work make sure keep mind memory code must
ask need needs"""
FILLER_WORDS = frozenset(FILLER_TEXT.split())
"""Words that tell nothing about what a text is about."""
UNSPACED_SCRIPT = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]+")
"""Text without spaces between words: two characters at a time stand for them."""
MIN_SAME_LIKENESS = 0.7
MIN_CONTAINED_SHARE = 0.85
"""Least share of common words, of both texts or of the shorter one, for the same meaning."""
MIN_COMPARABLE_WORDS = 2
SAME_ROOT_LETTERS = 6
"""Equal first letters of two words that count as forms of one."""


@lru_cache(4_096)
def stem_word(word: str) -> str:
    """Return a word's stem, to compare memories."""
    word = word.casefold().replace("’", "'").removesuffix("'s").strip("'")
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    cut = (word.removesuffix(ending) for ending in WORD_ENDINGS if word.isalpha())
    roots = [root for root in cut if root != word and len(root) >= 3]
    root = roots[0] if roots else word
    if root[-2:-1] == root[-1:]:
        root = root[:-1]
    return root.rstrip("e") if len(root) > 3 or roots else root


@lru_cache(2_048)
def content_words(text: str) -> frozenset[str]:
    """Return the stems of a memory's content words."""
    words = (word.casefold() for word in WORD_PATTERN.findall(UNSPACED_SCRIPT.sub(" ", text)))
    pairs = (a + b for run in UNSPACED_SCRIPT.findall(text) for a, b in pairwise(run))
    return frozenset((*(stem_word(word) for word in words if word not in FILLER_WORDS), *pairs))


def share_covered(text: str, by: frozenset[str]) -> float:
    """Return the share of a memory's content words found in `by`; 1 if it has none."""
    about = content_words(text)
    held = about & by
    forms = {word[:SAME_ROOT_LETTERS] for word in by if len(word) >= SAME_ROOT_LETTERS}
    near = sum(
        word[:SAME_ROOT_LETTERS] in forms for word in about - held if len(word) >= SAME_ROOT_LETTERS
    )
    return (len(held) + near) / len(about) if about else 1.0


def measure_likeness(one: str, other: str) -> float:
    """Return the similarity of two memories: their share of common words, from 0 to 1."""
    a, b = content_words(one), content_words(other)
    return len(a & b) / len(a | b) if a | b else 0.0


def have_same_meaning(one: str, other: str) -> bool:
    """Return whether two texts say the same, as far as words tell."""
    a, b = content_words(one), content_words(other)
    if min(len(a), len(b)) < MIN_COMPARABLE_WORDS or contains_denial(one) != contains_denial(other):
        return bool(a) and a == b and contains_denial(one) == contains_denial(other)
    return measure_likeness(one, other) >= MIN_SAME_LIKENESS or len(
        a & b
    ) >= MIN_CONTAINED_SHARE * min(len(a), len(b))


def contains_denial(text: str) -> bool:
    """Return whether a memory's text contains a negation."""
    return has_phrase(text, "denial")
