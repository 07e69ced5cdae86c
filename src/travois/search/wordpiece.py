"""WordPiece tokenizer for an uncased BERT vocabulary."""

from __future__ import annotations

from functools import lru_cache
from unicodedata import category, normalize

UNKNOWN_PIECE, START_PIECE, END_PIECE = 100, 101, 102
MAX_TEXT_CHARS = 8192
"""The most characters of a text that are read, far more than fit."""
MAX_WORD_CHARS = 100
"""Longer words are unknown."""
IDEOGRAPHS = (
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),
    *((0x20000, 0x2A6DF), (0x2A700, 0x2CEAF), (0x2F800, 0x2FA1F)),
)


class WordPieceTokenizer:
    """A tokenizer with its vocabulary."""

    def __init__(self, pieces: list[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(pieces)}
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, *, limit: int) -> list[int]:
        """Encode a text as piece numbers between start and end, at most `limit` of them."""
        numbers = [START_PIECE]
        for word in normalize_for_bert(text[:MAX_TEXT_CHARS]).split():
            numbers += self._encode_word(word)
            if len(numbers) >= limit:
                break
        return [*numbers[: limit - 1], END_PIECE]

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if (number := self._numbers.get(word)) is not None:
            return (number,)
        if (known := self._known.get(word)) is None:
            if len(self._known) > 50_000:
                self._known.clear()
            known = self._known[word] = self._split_word(word)
        return known

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Split a word into the longest pieces from the left; unknown if one has no number."""
        if len(word) > MAX_WORD_CHARS:
            return (UNKNOWN_PIECE,)
        found: list[int] = []
        start = 0
        while start < len(word):
            ends = range(len(word), start, -1)
            lead = "##" if start else ""
            end = next((end for end in ends if lead + word[start:end] in self._numbers), 0)
            if not end:
                return (UNKNOWN_PIECE,)
            found.append(self._numbers[lead + word[start:end]])
            start = end
        return tuple(found)


def normalize_for_bert(text: str) -> str:
    """Lower-case a text for WordPiece, strip accents, and space out punctuation."""
    return "".join(map(_fold_character, normalize("NFD", text)))


@lru_cache(maxsize=8192)
def _fold_character(char: str) -> str:
    """Return a character as BERT's tokenizer expects it: lower case, spaced or dropped."""
    kind = category(char)
    if char in "\t\n\r" or char.isspace():
        return " "
    if kind == "Mn" or kind[0] == "C" or char == "\ufffd":
        return ""
    if kind[0] == "P" or (char.isascii() and not char.isalnum()) or _is_ideograph(char):
        return f" {char.lower()} "
    return char.lower()


def _is_ideograph(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in IDEOGRAPHS)
