"""The user's messages: verbatim, shortened only by leaving out sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from travois.context.ledger.extractors import ToolAction
from travois.core.content import Media, extract_calls, extract_text
from travois.core.facts import Assistant, Entry, User
from travois.core.patterns import compile_lazily

SENTENCE_BREAK = compile_lazily(r"(?<=[.!?;])(?=\s)|(?<=\n)")
MAX_SENTENCE_CHARS = 400
MAX_LOG_LINES = 6
MAX_ANSWERS = 12
"""The number of the model's last answers and findings that are kept."""
MIN_FINDING_CHARS = 160
"""The length from which on a remark beside a call is more than an announcement of it."""
RULE_SENTENCE = compile_lazily(
    r"(?i)\b(?:never|always|must(?:n't)?|(?:do not|don't|dont)|from now on|make sure|be sure to|"
    r"only (?:use|edit|change|touch|run)|no longer|under no circumstances|at all times|"
    r"remember (?:to|that)|should(?:n't| not)|(?:is|are) not allowed|forbidden)\b"
    r"|^(?:avoid|prefer)\b"
)
NOT_A_RULE = compile_lazily(
    r"(?i)\?\s*$|^(?://|/\*|\|)|\b(?:i|we|you|they|it|that|which|why|who) (?:do not|don't|dont)\b"
)


class SpokenMessage(msgspec.Struct, frozen=True):
    """A message of the user or the model; `about` is the call that the user refused with it."""

    seq: int
    text: str
    about: str = ""


def extract_user_messages(
    entries: Iterable[Entry], acts: Iterable[ToolAction]
) -> tuple[SpokenMessage, ...]:
    """Return the user's messages in order, including the reasons of refusals."""
    typed = (
        SpokenMessage(entry.seq, _text_of_message(entry.fact))
        for entry in entries
        if isinstance(entry.fact, User) and entry.fact.origin == "human"
    )
    refusals = (
        SpokenMessage(act.seq, act.refused, _describe_refused_call(act))
        for act in acts
        if act.refused is not None
    )
    told = [*(message for message in typed if message.text), *refusals]
    return tuple(sorted(told, key=lambda message: message.seq))


def extract_answers(
    entries: Iterable[Entry], *, since: int = 0, earlier: Iterable[SpokenMessage] = ()
) -> tuple[SpokenMessage, ...]:
    """Return the model's last answers and findings for the ledger, in order.

    A remark beside a call counts if it is long enough to state something.
    """
    found = [
        SpokenMessage(entry.seq, text)
        for entry in entries
        if isinstance(entry.fact, Assistant) and entry.seq >= since
        if (text := extract_text(entry.fact.content).strip())
        and (not extract_calls(entry.fact.content) or len(text) >= MIN_FINDING_CHARS)
    ]
    before = [one for one in earlier if one.seq >= since]
    return tuple([*before, *found][-MAX_ANSWERS:])


def extract_rules(told: Iterable[SpokenMessage]) -> tuple[str, ...]:
    """Return the user's sentences that state a standing rule or a constraint, oldest first."""
    found: dict[str, str] = {}
    for message in told:
        for sentence in split_sentences(cut_pasted_logs(message.text)):
            if (
                RULE_SENTENCE.search(sentence)
                and not NOT_A_RULE.search(sentence)
                and len(sentence) <= MAX_SENTENCE_CHARS
            ):
                found.setdefault(sentence.lower(), sentence)
    return tuple(found.values())


def split_sentences(text: str) -> Iterator[str]:
    """Yield each sentence or line of a user's message, without list markers."""
    for piece in SENTENCE_BREAK.split(text):
        sentence = re.sub(r"^[\s>#*+\-]+|^\s*\d+[.)]\s+", "", piece).strip()
        if len(sentence) >= 8:
            yield sentence


def shorten_message(text: str, limit: int) -> str:
    """Shorten a user's message to about `limit` characters: first and last sentences."""
    if len(text) <= limit:
        return text
    text = cut_pasted_logs(text)
    if len(text) <= limit:
        return text
    longest = min(MAX_SENTENCE_CHARS, limit // 2)
    pieces = [_clip_sentence(piece, longest) for piece in SENTENCE_BREAK.split(text)]
    head = _count_fitting_sentences(pieces, limit * 2 // 3)
    tail = _count_fitting_sentences(
        pieces[: head - 1 : -1] if head else pieces[::-1], limit - limit * 2 // 3
    )
    left = len(pieces) - head - tail
    if left <= 0:
        return "".join(pieces)
    end = "".join(pieces[len(pieces) - tail :]).lstrip("\n")
    return f"{''.join(pieces[:head]).rstrip()}\n[… {left} more …]\n{end}".rstrip()


def take_first_sentences(text: str, limit: int) -> str:
    """Return a message's first whole sentences within `limit` characters; empty if none fits."""
    pieces = [piece for piece in SENTENCE_BREAK.split(cut_pasted_logs(text)) if piece.strip()]
    count = _count_fitting_sentences(pieces, limit)
    more = " […]" if count < len(pieces) else ""
    return f"{''.join(pieces[:count]).rstrip()}{more}" if count else ""


def cut_pasted_logs(text: str) -> str:
    """Cut pasted logs and code in a user's message to their first and last lines."""
    kept: list[str] = []
    block: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if fenced or fence or not _is_prose(line):
            block.append(line)
            continue
        kept += _cut_log_block(block)
        kept.append(line)
        block = []
    return "\n".join(kept + _cut_log_block(block))


def _text_of_message(fact: User) -> str:
    """Return a user's message as text, with a placeholder for each image or document."""
    shown = [block for block in fact.content if isinstance(block, Media)]
    return "\n".join(
        [extract_text(fact.content).strip(), *(f"[{m.kind} {m.name}]" for m in shown)]
    ).strip()


def _is_prose(line: str) -> bool:
    plain = sum(c.isalpha() or c == " " for c in line)
    return plain >= 0.75 * len(line) and bool(line.strip())


def _cut_log_block(block: list[str]) -> list[str]:
    """Shorten a pasted log in a user's message to its first and last lines."""
    if len(block) <= MAX_LOG_LINES + 1:
        return block
    head, tail = block[: MAX_LOG_LINES - 2], block[-2:]
    return [*head, f"[… {len(block) - MAX_LOG_LINES} lines left out …]", *tail]


def _clip_sentence(piece: str, longest: int) -> str:
    return piece if len(piece) <= longest else f"{piece[:longest].rstrip()} […]"


def _count_fitting_sentences(pieces: list[str], room: int) -> int:
    """Return how many sentences of a message fit."""
    used = 0
    for count, piece in enumerate(pieces):
        used += len(piece)
        if used > room:
            return count
    return len(pieces)


def _describe_refused_call(act: ToolAction) -> str:
    return f"{act.name} {act.path or act.command}".strip()
