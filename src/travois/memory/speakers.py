"""The speaker of each text in a session: the user, the model, a tool, or Travois itself.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal

import msgspec

from travois.context.ledger.user_words import split_sentences
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Compacted, Entry, Result, User
from travois.core.tool_names import canonical_call
from travois.memory.phrases import has_phrase

SpeakerVoice = Literal["user", "model", "act", "tool", "ours"]
"""The source of words; text that the user only pasted counts as a tool's."""
OMISSION_MARK = "\n\x00\n"
MEMORY_TOOLS = ("Remember",)
"""Tools whose results are our own words."""
READING_TOOLS = (
    "Read",
    "Grep",
    "Glob",
    "Symbols",
    "CodebaseSearch",
    "Recall",
    "GitStatus",
    "GitDiff",
    "GitLog",
    "GitShow",
    "GitBlame",
)
READING_COMMAND = re.compile(
    r"(?:cat|git|ls|head|tail|grep|rg|find|sed|tree|wc|less|awk|stat|gh)\b"
)
FENCE_LINE = re.compile(r" {0,3}(`{3,}|~{3,})")
TAG_LINE = re.compile(r"\s*<(/?)([a-zA-Z][\w-]*)[^<>]*>")
SPEAKER_LINE = re.compile(
    r"(?i)\s*\[?(?:system|assistant|user|human|ai|admin|tool|note to ai)\b[^:]{0,20}:"
    r"|\s*[\[(]?(?:\d[\d./-]{5,9}[ ,T]+)?\d{1,2}[:.]\d{2}(?::\d{2})?(?: ?[ap]m)?[\])]?[ \t,–-]+"
    r"<?[\w.@ -]{1,30}>?:"
)
"""A line of a talk: who speaks, or when and who."""
MESSAGE_HEADER = re.compile(
    r"\s*(?:From|To|Cc|Subject|Sent|Date|Von|An|Betreff|De|Para|Asunto|Objet): \S"
    r"|\s*@?\w[\w.-]*(?: [A-Z][\w.-]*)?[ \t]+[\[(]?\d{1,2}:\d{2}(?: ?[AaPp][Mm])?[\])]?\s*:?\s*$"
)
"""The head of a letter or of a message in a chat: all below it is another's."""
CHAT_LINE = re.compile(r"(?m)^\s*<?(@?[A-Za-z][\w.-]{0,20})>?: \S")
PASTE_INTRODUCTION = re.compile(
    r"(?i)\b(?:says?|said|wrote|writes|reads?|output|log|logs|trace|error|page|e-?mail|mail|"
    r"message|"
    r"file|content|contents|readme|issue|ticket|comment|pasted?|slack|docs?|following|below|"
    r"response|report|snippet|text)\b[^:]*:\s*$"
)
PASTE_REFERENCE = re.compile(
    r"(?i)\b(?:this|these|following|below)\b[^.\n]{0,20}\b(?:e-?mail|mail|message|text|letter|page|"
    r"article|post|comment|note|log|output|docs?|document|paragraph|snippet|thread|ticket|issue)\b"
    r"|^(?:please |can you )?(?:translate|summari[sz]e|proofread|rewrite|paraphrase) (?:this|"
    r"that|it)\b"
)
GREETING_LINE = re.compile(r"(?i)\s*(?:hi|hello|hey|dear)\b[^,]{0,30},\s*$")
WISH_INTRODUCTION = re.compile(
    r"(?i)\b(?:remember|note|keep in mind|prefer\w*|rules?|conventions?|things?)\b"
)
QUOTATION = re.compile(
    r'"[^"\n]{15,}"|“[^”\n]{15,}”|„[^“”\n]{15,}[“”]|«[^»\n]{15,}»|(?<!\w)\'[^\'\n]{15,}\'(?!\w)'
)
COLON_BREAK = re.compile(r"(?<=[\w`\"']):\s+(?=\S)")
TEXT_TASK_START = re.compile(
    r"(?i)(?:please |pls |can you |could you |now |and |just |also ){0,2}(?:translate|fix|write|"
    r"add|rename|rewrite|rephrase|reword|proofread|correct|summari[sz]e|explain|put|make|create|"
    r"draft|generate|test|assert|insert|append|reply|send|tell|post|print|render|review|check|"
    r"polish|shorten|format|implement|parse|classify|change|update|replace|estimate|find|compare|"
    r"document|quote|what|is|are|why|who)\b"
)
"""The beginning of a sentence that asks for work on the words after its colon."""
FIRST_PERSON = re.compile(r"(?i)\b(?:i|i['’]\w+|we|we['’]\w+|ich|wir|yo|je|nous)\b")
ASIDE = re.compile(r"(?i)\b(?:fyi|heads[- ]up|btw)\b")
MIN_HEADING_WORDS = 3
"""Words before a colon from which on they are more than a label."""
BLOCK_BREAK = re.compile(r"\n[ \t]*\n|\n\s*[^\w\s`\"'(]|\n[ \t]{2,}\S|\n\w+ - ")
MAX_TYPED_CHARS = 600
MAX_TYPED_LINES = 10
"""A paragraph of more characters or lines than this counts as pasted."""


class Statement(msgspec.Struct, frozen=True):
    """Some words with their speaker and their log entry."""

    seq: int
    voice: SpeakerVoice
    text: str
    at: float = 0.0
    blocks: bool = False
    """True if the message has several blocks or lists, some possibly pasted."""
    files: bool = False
    """True if the words only repeat workspace files, which can be read again."""


def collect_statements(entries: Iterable[Entry]) -> tuple[Statement, ...]:
    """Collect everything that was said, in log order, by speaker."""
    asked: dict[str, Call] = {}
    found: list[Statement] = []
    for entry in entries:
        if isinstance(entry.fact, Assistant):
            asked.update((call.id, call) for call in extract_calls(entry.fact.content))
        found += (
            Statement(
                entry.seq,
                voice,
                text,
                entry.at,
                blocks=_has_blocks(entry),
                files=_repeats_files(entry, asked),
            )
            for voice, text in _split_by_voice(entry, asked)
            if text.strip()
        )
    return tuple(found)


def split_typed_text(text: str) -> tuple[str, str]:
    """Split a message into what the user typed and what they pasted or quoted.

    Omitted parts are marked, so that no quote is found across a gap.
    """
    own: list[str] = []
    passed: list[str] = []
    for part, foreign in _split_paragraphs(text):
        (passed if foreign or _looks_pasted(part) else own).append(part)
    kept = [_split_task_text(part) for part in own]
    passed += [tail for _, tail in kept if tail]
    written = OMISSION_MARK.join(head for head, _ in kept)
    passed += QUOTATION.findall(written)
    return QUOTATION.sub(OMISSION_MARK, written).strip(), OMISSION_MARK.join(passed).strip()


def _split_by_voice(entry: Entry, asked: dict[str, Call]) -> Iterator[tuple[SpeakerVoice, str]]:
    """Split a log entry into texts by speaker: the user, the model or a tool."""
    match entry.fact:
        case User(origin="human", content=content):
            texts = [block.text for block in content if isinstance(block, Text)]
            own, passed = split_typed_text(texts[-1]) if texts else ("", "")
            yield "user", own
            yield "tool", OMISSION_MARK.join((*texts[:-1], passed))
        case User(origin="note", content=content):
            yield "ours", extract_text(content)
        case User(content=content):
            yield "tool", extract_text(content)
        case Assistant(content=content):
            yield "model", extract_text(content)
            yield (
                "act",
                OMISSION_MARK.join(
                    c.args for c in extract_calls(content) if c.name not in MEMORY_TOOLS
                ),
            )
        case Result(call=call, content=content):
            own = call in asked and asked[call].name in MEMORY_TOOLS
            yield "ours" if own else "tool", extract_text(content)
        case Compacted(summary=summary):
            yield "ours", extract_text(summary)
        case _:
            pass


def _has_blocks(entry: Entry) -> bool:
    fact = entry.fact
    return isinstance(fact, User) and bool(BLOCK_BREAK.search(extract_text(fact.content).strip()))


def _repeats_files(entry: Entry, asked: dict[str, Call]) -> bool:
    """Return whether a result only repeats files of the workspace."""
    if not isinstance(entry.fact, Result) or entry.fact.call not in asked:
        return False
    call = canonical_call(asked[entry.fact.call])
    if call.name != "Bash":
        return call.name in READING_TOOLS
    command = re.search(r'"command"\s*:\s*"\s*', call.args)
    return command is not None and bool(READING_COMMAND.match(call.args, command.end()))


def _split_paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each part of a user's message, and whether it was pasted or quoted."""
    for foreign, lines in groupby(_mark_foreign_lines(text), key=lambda line: line[1]):
        for part in re.split(r"\n[ \t]*\n", "\n".join(line for line, _ in lines)):
            if part.strip():
                yield part, foreign


def _mark_foreign_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether the user pasted it; all are after an introduced paste."""
    fence, inside, rest, talk = "", "", False, _is_conversation(text)
    for line in text.split("\n"):
        marked, tag = FENCE_LINE.match(line), TAG_LINE.match(line)
        another = (
            _is_quoted_line(line) or MESSAGE_HEADER.match(line) or (talk and CHAT_LINE.match(line))
        )
        foreign = bool(fence or inside or rest or marked or tag or another)
        yield line, foreign
        fence, inside = _next_fence(fence, marked, line), _next_open_tag(inside, tag, line)
        told = _introduces_paste(line) and (not foreign or bool(MESSAGE_HEADER.match(line)))
        rest = not (fence or inside) and (rest or told)


def _is_conversation(text: str) -> bool:
    """Return whether a pasted text is a conversation between people."""
    names = [name.casefold() for name in CHAT_LINE.findall(text)]
    return len(names) > 1 and (len(set(names)) < len(names) or "me" in names)


def _introduces_paste(line: str) -> bool:
    """Return whether a line introduces a paste, or is the header of a message."""
    if MESSAGE_HEADER.match(line):
        return True
    found = (
        PASTE_INTRODUCTION.search(line) or PASTE_REFERENCE.search(line) or GREETING_LINE.match(line)
    )
    return bool(found) and not WISH_INTRODUCTION.search(line)


def _split_task_text(part: str) -> tuple[str, str]:
    """Split a paragraph at a colon before text that is only to be worked on."""
    for colon in COLON_BREAK.finditer(part):
        head = re.split(r"[.!?;]\s+|\n", part[: colon.start()])[-1].strip()
        if _only_passes_on(head):
            return part[: colon.end()], part[colon.end() :]
    return part, ""


def _only_passes_on(head: str) -> bool:
    """Return whether the words before a colon show that the rest is not the user's wish."""
    if has_phrase(head, "remember", "onwards") or ASIDE.search(head):
        return False
    if TEXT_TASK_START.match(head) or PASTE_INTRODUCTION.search(f"{head}:"):
        return True
    return len(head.split()) >= MIN_HEADING_WORDS and not (
        WISH_INTRODUCTION.search(head) or FIRST_PERSON.search(head)
    )


def _is_quoted_line(line: str) -> bool:
    return line.lstrip().startswith((">", "|")) or bool(SPEAKER_LINE.match(line))


def _next_fence(fence: str, found: re.Match[str] | None, line: str) -> str:
    """Return the code fence that is open after a line of a message; empty if none."""
    if found and not fence:
        return found[1]
    return "" if found and found[1].startswith(fence) and line.strip() == found[1] else fence


def _next_open_tag(inside: str, tag: re.Match[str] | None, line: str) -> str:
    """Return the tag still open after a line of a user's message; empty if none."""
    if inside:
        return "" if f"</{inside}" in line else inside
    return tag[2] if tag and not tag[1] and f"</{tag[2]}" not in line else ""


def _looks_pasted(paragraph: str) -> bool:
    """Return whether a paragraph seems pasted: too long, or mostly not words."""
    if len(paragraph) > MAX_TYPED_CHARS or paragraph.count("\n") >= MAX_TYPED_LINES:
        return True
    letters = sum(c.isalpha() or c.isspace() for c in paragraph)
    return len(paragraph) > 80 and letters < 0.7 * len(paragraph)


def split_spoken_sentences(text: str) -> tuple[str, ...]:
    """Split what a speaker said into sentences."""
    return tuple(split_sentences(text))
