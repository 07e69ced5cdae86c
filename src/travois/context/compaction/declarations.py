"""Code declarations seen in the dropped part of a conversation, by file and line.

Model sees: as part of a summary, signatures to write calls and edits by without another search.
Tokens: a budget.
Cache: moves nothing itself; a compaction that carries it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf, log2

import msgspec

from travois.context.ledger.extractors import ToolAction, classify_tool, decode_arguments
from travois.context.ledger.ledger import choose_base_folder
from travois.core.content import Call, Text, extract_text
from travois.core.facts import Assistant, Result
from travois.core.patterns import compile_lazily
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem

DECLARATIONS_TITLE = "## Declarations seen, by file"
LINE_NUMBERS_NOTE = (
    "Line numbers are from when each was last seen{base}; later edits may have moved them."
)
MAX_DECLARATION_CHARS = 110
MAX_CODE_LINE_CHARS = 400
"""A longer line is squeezed code, of which a declaration tells nothing."""
NUMBERED_LINE = compile_lazily(r"^\s*(\d{1,6})(?:→|\t|[:|]\s?)(.*)$")
SEARCH_HIT = compile_lazily(
    r"^(?P<path>[\w./@+\-]+\.\w{1,6})[:\-](?P<line>\d{1,6})[:\-](?P<text>.*)$"
)
DECLARATION_MODIFIERS = (
    r"(?:(?:export|default|public|private|protected|internal|static|async|abstract|final|override|"
    r"virtual|readonly|unsafe|inline|declare|pub(?:\([a-z ]+\))?)\s+)*"
)
DECLARATION_LINE = compile_lazily(
    rf"^\s*{DECLARATION_MODIFIERS}(?:"
    r"(?:def|class|fn|function\*?|interface|struct|enum|trait|module|namespace|protocol|object)"
    r"\s+(?P<name>[A-Za-z_$][\w$]*)"
    r"|func\s+(?:\([^)]*\)\s*)?(?P<func>[A-Za-z_]\w*)"
    r"|type\s+(?P<type>[A-Za-z_]\w*)"
    r"|impl(?:<[^>]*>)?\s+(?P<impl>[A-Za-z_]\w*)"
    r")"
)
NAMED_VALUE_LINE = compile_lazily(
    r"^(?:export\s+)?(?:const|let|var|static|pub const|final)\s+(?P<name>[A-Za-z_$][\w$]*)\s*[:=]"
    r"|^(?P<upper>[A-Z][A-Z0-9_]{2,})\s*(?::[^=]+)?=\s*\S"
    r"|^\s+(?P<literal>[A-Za-z_]\w{4,})\s+(?::?=)\s*(?:[\"'`][^\"'`]{1,60}[\"'`]|[\d.]+),?\s*$"
)
"""Names with a value; inside a block only where that is a short literal."""
IDENTIFIER = compile_lazily(r"[A-Za-z_$][\w$]*")
FILE_NAME = compile_lazily(r"(?<![\w/])[\w./@+\-]*[\w\-]\.[A-Za-z]\w{0,5}\b")


class Declaration(msgspec.Struct):
    """A declaration as it was last seen."""

    file: str
    name: str
    text: str
    line: int = 0
    last: int = 0
    """The number of the message."""
    seq: int = 0
    """The entry of that message."""


class DeclarationIndex:
    """The latest sighting of each declaration in a conversation, and how often it was named."""

    def __init__(self) -> None:
        self.count = 0
        """The number of messages so far."""
        self.found: dict[tuple[str, str], Declaration] = {}
        self._homes: dict[str, str] = {}
        """The file that the result of a call will show."""
        self._whole: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        """In how many of the model's own messages each name stands."""

    def add(self, items: Iterable[ViewItem]) -> None:
        """Add the entries that came since the last time."""
        for item in items:
            for place, line, text in _code_lines_of(item, self._homes):
                if name := find_declared_name(text):
                    file = _resolve_known_path(place, self._whole)
                    self.found[file, name] = Declaration(
                        file, name, _shorten_declaration(text), line, self.count, item.seq
                    )
            if isinstance(item.fact, Assistant):
                self._uses.update(set(IDENTIFIER.findall(_text_by_model(item.fact.content))))
            self.count += 1

    def score(self, one: Declaration) -> float:
        """Score how likely it is needed again: named by the model often, and recently."""
        return (1 + log2(1 + self._uses[one.name])) * (0.5 + one.last / max(1, self.count))


def list_declarations(
    index: DeclarationIndex, *, budget: int, skip: str, cwd: str, until: float = inf
) -> str:
    """List the code declarations that `skip` does not show, in at most `budget` tokens.

    Those that were last seen after the entry `until` are still in view.
    """
    seen = (one for one in index.found.values() if one.seq <= until)
    hidden = [one for one in seen if one.text not in skip]
    ranked = sorted(hidden, key=index.score, reverse=True)
    chosen: list[Declaration] = []
    room = budget - estimate_tokens(f"{DECLARATIONS_TITLE}\n{LINE_NUMBERS_NOTE}") - 20
    files: set[str] = set()
    for one in ranked:
        room -= estimate_tokens(f"  {one.line}: {one.text}\n") + (0 if one.file in files else 12)
        if room < 0:
            break
        files.add(one.file)
        chosen.append(one)
    text = _format_declarations(chosen, cwd)
    while (size := estimate_tokens(text)) > budget:  # long paths that no folder makes shorter
        chosen = chosen[: len(chosen) * budget // size]
        text = _format_declarations(chosen, cwd)
    return text


def _format_declarations(chosen: Sequence[Declaration], cwd: str) -> str:
    """Format the chosen code declarations as a section of the summary, grouped by file."""
    if not chosen:
        return ""
    base = choose_base_folder([one.file for one in chosen], cwd)
    where = f" (paths relative to {base})" if base else ""
    lines = [DECLARATIONS_TITLE, LINE_NUMBERS_NOTE.format(base=where)]
    groups: dict[str, list[Declaration]] = {}
    for one in chosen:
        groups.setdefault(one.file, []).append(one)
    for file, members in groups.items():
        lines.append(f"- {file.removeprefix(base.rstrip('/') + '/') if base else file}")
        members.sort(key=lambda one: (one.line, one.name))
        lines += (f"  {one.line}: {one.text}" if one.line else f"  {one.text}" for one in members)
    return "\n".join(lines)


def _resolve_known_path(place: str, whole: dict[str, str]) -> str:
    """Return the full path of a file whose declarations are known under it, if any."""
    file = " ".join(place.split()).removeprefix("./")
    if not file.startswith("/"):
        return whole.get(file, file)
    parts = file.split("/")
    for at in range(2, len(parts)):
        whole["/".join(parts[at:])] = file
    return file


def _code_lines_of(item: ViewItem, homes: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """Yield each line of code in a message, to find declarations, with its file and line."""
    fact = item.fact
    if isinstance(fact, Assistant):
        for block in fact.content:
            if isinstance(block, Call):
                yield from _code_lines_of_call(block, homes)
    elif isinstance(fact, Result) and not fact.error:
        home = homes.pop(fact.call, "")
        for raw in extract_text(fact.content).splitlines():
            if hit := SEARCH_HIT.match(raw):
                yield hit["path"], int(hit["line"]), hit["text"]
            elif home:
                number = NUMBERED_LINE.match(raw)
                yield (home, int(number[1]), number[2]) if number else (home, 0, raw)


def _code_lines_of_call(call: Call, homes: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """Yield the code lines that a tool call writes, and note the file that its result will show."""
    args = decode_arguments(call.args)
    act = ToolAction(0, classify_tool(call.name, args), call.name, args, "")
    named = set(FILE_NAME.findall(act.command)) if act.kind == "shell" else set[str]()
    homes[call.id] = act.path if "." in act.path else named.pop() if len(named) == 1 else ""
    if act.kind in ("edit", "write") and act.path:
        text = act.arg("new_string", "content", "new_str", "file_text", "insert_text")
        yield from ((act.path, 0, line) for line in text.splitlines())


def find_declared_name(text: str) -> str:
    """Return the name that a line of code declares; empty if it declares none."""
    if len(text) > MAX_CODE_LINE_CHARS:
        return ""
    match = DECLARATION_LINE.match(text) or NAMED_VALUE_LINE.match(text)
    return next((name for name in match.groups() if name), "") if match else ""


def _shorten_declaration(text: str) -> str:
    flat = " ".join(text.split()).rstrip("{ ").rstrip()
    return flat if len(flat) <= MAX_DECLARATION_CHARS else f"{flat[: MAX_DECLARATION_CHARS - 1]}…"


def _text_by_model(content: Iterable[object]) -> str:
    """Join a message's text and call arguments by the model, to count mentions of declarations."""
    return "\n".join(
        block.text if isinstance(block, Text) else block.args
        for block in content
        if isinstance(block, Text | Call)
    )
