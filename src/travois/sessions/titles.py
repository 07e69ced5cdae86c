"""The title of a session nobody named: what its first prompt asks for, in a few words."""

from __future__ import annotations

import re

from travois.core.patterns import compile_lazily

MAX_TITLE_CHARS = 60
MIN_SENTENCE_CHARS = 12
POLITE_PATTERN = compile_lazily(
    r"(?:hi|hello|hey|hiya|good (?:morning|evening|afternoon)|ok(?:ay)?|please|pls|kindly|thanks"
    r"|there|travois|(?:can|could|would|will) you(?: please)?|i(?:'d| would) like (?:you )?to"
    r"|i (?:want|need) (?:you )?to|help me(?: to)?|let'?s)\b[\s,.!:;-]*",
    re.IGNORECASE,
)
SENTENCE_END_PATTERN = compile_lazily(r"[.!?](?=\s|$)")


def make_title(prompt: str) -> str:
    """Return the request of a prompt without its greeting, cut to its first sentence."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip(" #>*-`")), "")
    text = " ".join(line.lstrip("#>*- ").split())
    asked = _strip_politeness(text)
    if asked != text and " " in asked:
        text = asked[0].upper() + asked[1:]
    ends = (end.end() for end in SENTENCE_END_PATTERN.finditer(text))
    first = next((end for end in ends if end >= MIN_SENTENCE_CHARS), len(text))
    text = text[:first].rstrip(".:,; ") or text
    if len(text) <= MAX_TITLE_CHARS:
        return text
    kept = text[: MAX_TITLE_CHARS - 1]
    words = kept.rpartition(" ")[0] if " " in kept[MAX_TITLE_CHARS // 2 :] else kept
    return f"{words.rstrip('.:,; ')}…"


def is_greeting(prompt: str) -> bool:
    """Tell whether a prompt asks for nothing."""
    return not _strip_politeness(" ".join(prompt.split()))


def _strip_politeness(text: str) -> str:
    while found := POLITE_PATTERN.match(text):
        text = text[found.end() :]
    return text.strip()
