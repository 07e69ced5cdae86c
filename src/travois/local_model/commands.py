"""Command lines in requests: those after a word like run, and those that stand alone."""

from __future__ import annotations

import re

PROGRAMS = (
    "bash|bun|bundle|cargo|cat|cmake|composer|curl|date|deno|df|docker|dotnet|du|echo|env|file|find"
    "|free|gcc|gh|git|go|gradle|grep|head|hostname|id|java|just|kubectl|ls|make|mvn|mypy|nl|node"
    "|npm|npx|pip3?|pnpm|poetry|printenv|ps|pwd|pytest|python3?|rake|rg|ruby|ruff|rustc|sh|sort"
    "|stat|tail|tox|tree|tsc|uname|uptime|uv|wc|which|whoami|yarn"
)
TALK = re.compile(
    r"[,?]|(?<![\w-])(?:an?|and|because|but|if|it|my|our|so|sure|that|the|them|then|this|until|please|again"
    r"|with|works?|fails?)\b",
    re.IGNORECASE,
)
"""What stands in sentences, and hardly ever in commands."""
AFTER = re.compile(
    r"(?:run|start|try|do)(?: the)?(?: shell)?(?: command)?:?"
    rf" ((?:(?:{PROGRAMS})(?![\w'’.:-])|\./[\w./-]+)(?:\s[^\n\"`]*?)?)"
    r"(?:[\s,]+(?:please|pls|thanks|for me|now|here))*\s*[.!?]?",
    re.IGNORECASE,
)
ALONE = (
    re.compile(rf"((?:{PROGRAMS})\s(?:[^\n\"`]*\s)?--?[A-Za-z\d][^\n\"`]*)"),
    re.compile(
        r"((?:cargo|bash|deno|go|node|pytest|python3?|ruby|ruff|sh) [\w./ -]*[./][\w./ -]*)"
    ),
    re.compile(r"(\./[\w./-]+(?: [\w./=-]+)*)"),
    re.compile(
        r"((?:npm|pnpm|yarn|cargo|docker|pip|uv|tox|make|go)"
        r" (?:compose )?(?:test|check|lint|build|install|run [\w:-]+|ps|ls|images|list|freeze"
        r"|version|fmt|vet)"
        r"|git (?:fetch|pull|branch|remote|tag)|pwd|whoami|pytest|uptime|hostname|date|env|tree)"
    ),
)
"""A program with options; one that takes files, with one; what everybody types."""
TOLD = re.compile(
    r"git (?:status|diff(?: --staged| --cached| --stat)?|log(?: -n ?\d+| -\d+)?"
    r"|(?:show|diff|blame) [\w./~^-]+)"
)
"""What our own tools tell better."""


def command(text: str) -> tuple[int, int] | None:
    """Where a command stands in a text that is one, or that wishes to have one run."""
    if TOLD.fullmatch(text.strip()):
        return None
    for pattern in (AFTER, *ALONE):
        match = pattern.fullmatch(text)
        if match and not TALK.search(match[1]):
            return match.span(1)
    return None
