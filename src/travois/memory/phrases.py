"""The few phrases that tell how a sentence is meant, by language: `phrases.json`.

A language that is not listed has no rules; then only the model's drafts are kept.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

Meaning = Literal[
    "remember",
    "onwards",
    "always",
    "never",
    "objection",
    "prohibition",
    "denial",
    "wish",
    "passing",
    "dated",
    "limited",
    "progress",
    "supposed",
    "reported",
    "retraction",
    "refusal",
    "irony",
    "self",
    "preference",
    "standing",
    "contrast",
    "change",
]
PHRASES_FILE = Path(__file__).with_name("phrases.json")
UNSPACED = ("zh", "ja", "ko", "ar")
"""Languages that join such words to the next ones."""


@cache
def compile_phrases(meaning: Meaning) -> re.Pattern[str]:
    """Compile the phrases with a meaning, of all languages."""
    known = msgspec.json.decode(PHRASES_FILE.read_bytes(), type=dict[str, dict[str, str]])
    parts = (
        f"(?P<{code}>{text})" if code in UNSPACED else rf"(?<![\w-])(?P<{code}>{text})(?!\w)"
        for code, text in known[meaning].items()
    )
    return re.compile("|".join(parts), re.IGNORECASE)


@lru_cache(4_096)
def find_phrase(meaning: Meaning, text: str) -> re.Match[str] | None:
    """Find the first phrase with a meaning in a text."""
    return compile_phrases(meaning).search(straighten_quotes(text))


def has_phrase(text: str, *meanings: Meaning) -> bool:
    """Return whether a text has a phrase with one of these meanings."""
    return any(find_phrase(meaning, text) for meaning in meanings)


def straighten_quotes(text: str) -> str:
    """Return a text with plain apostrophes, at the same places."""
    return text.replace("’", "'")
