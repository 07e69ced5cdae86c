"""The names that the dropped part of a conversation used, the likeliest to be needed again first.

Model sees: as part of a summary, names by the file they were seen in, to write without a search.
Tokens: a budget.
Cache: moves nothing itself; a compaction that carries it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import log2, sqrt

import msgspec

from travois.context.ledger.acts import Act, decoded, is_list, is_object, kind_of
from travois.kernel.blocks import Call, Text
from travois.kernel.facts import Assistant, Result, User
from travois.kernel.tokens import estimate
from travois.kernel.view import Item

RUN = re.compile(r"[\w./:@#%?&=+~\-]{5,}")
"""What may hold names: cheap to find, and looked into once however often it occurs."""
NAME = re.compile(
    r"https?://.{6,}"
    r"|/?(?:[\w.@\-]+/)+[\w.\-]*\w"  # paths
    r"|[\w\-]+\.[a-z][a-z0-9]{0,4}\b"  # files
    r"|(?<!\w)--[a-z][\w\-]{2,}"  # flags
    r"|\b_*[a-z][a-z0-9]*[A-Z]\w*|\b_*[A-Z][A-Za-z0-9]*[a-z0-9][A-Z]\w*|\b[A-Z]{2,}[a-z]\w*"
    r"|\w*[A-Za-z0-9]_\w+"  # snake_case, CONSTANTS
    r"|\b[a-z][a-z0-9]*(?:-[a-z0-9]+){2,}\b"  # names-with-dashes
    r"|\b(?=[a-f]*\d)[0-9a-f]{7,40}\b|\bv?\d+\.\d+\.\d+[\w.\-]*|\#\d{1,6}\b|\b\d{4,9}\b"
)
PLACE = re.compile(r"(?<=\.[a-z]|[a-z][a-z])-\d+$")
"""A line number that a search puts behind a file's name."""
SHORTEST, LONGEST = 4, 120
LONGEST_RUN = 300
"""What is longer is encoded bytes or squeezed code, and would take long to look through."""
FEW = 3
"""A file with fewer names than this has no line of its own."""
HUMAN, OWN, SHOWN = 4, 3, 1
"""What a mention counts: a human's word, the model's own, a tool's output."""


class Use(msgspec.Struct):
    """How a name was used: mentions by weight, the last item, and the file it was seen in."""

    shown: str
    weight: int = 0
    last: int = -1
    file: str = ""


def index(items: Sequence[Item], *, budget: int, skip: str) -> str:
    """The names in these items that `skip` does not show, as lines of at most `budget` tokens."""
    uses = _uses(items)
    for run in set(RUN.findall(skip)):
        for name in named(run):
            uses.pop(name, None)
    ranked = sorted(uses, key=lambda name: _worth(uses[name], len(items)), reverse=True)
    chosen = _chosen([uses[name] for name in ranked], budget)
    while estimate(text := _lines(chosen)) > budget:
        chosen = chosen[: len(chosen) * 19 // 20]
    return text


def named(run: str) -> dict[str, str]:
    """The names in a run of characters, and how to show them: a path goes by its last part."""
    names: dict[str, str] = {}
    for match in NAME.finditer(run) if len(run) <= LONGEST_RUN else ():
        name = PLACE.sub("", match[0].rstrip(".,:;-"))
        if SHORTEST < len(name) <= LONGEST:
            parts = [name] if "://" in name else name.strip("/").split("/")
            short = len(parts[-1]) <= SHORTEST
            names[name if short else parts[-1]] = name if short else "/".join(parts[-2:])
    return names


def _uses(items: Sequence[Item]) -> dict[str, Use]:
    uses: dict[str, Use] = {}
    homes: dict[str, str] = {}
    known: dict[str, dict[str, str]] = {}
    for at, item in enumerate(items):
        for text, weight, file in _texts(item, homes):
            for name, shown in _found(text, known).items():
                use = uses.setdefault(name, Use(shown))
                use.weight += weight
                use.last = at
                use.file = file or use.file
    return uses


def _found(text: str, known: dict[str, dict[str, str]]) -> dict[str, str]:
    names: dict[str, str] = {}
    for run in dict.fromkeys(RUN.findall(text)):
        inside = known.get(run)
        if inside is None:
            inside = known[run] = named(run)
        names.update(inside)
    return names


def _texts(item: Item, homes: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """What one message says, what that counts, and the file it is about."""
    fact = item.fact
    file = homes.get(fact.call, "") if isinstance(fact, Result) else ""
    weight = SHOWN
    if isinstance(fact, User) and fact.origin == "human":
        weight = HUMAN
    elif isinstance(fact, Assistant):
        weight = OWN
    for block in fact.content:
        if isinstance(block, Text):
            yield block.text, weight, file
        elif isinstance(block, Call):
            args = decoded(block.args)
            path = Act(0, kind_of(block.name, args), block.name, args, "").path
            homes[block.id] = path
            yield "\n".join(_strings(args)) or block.args, weight, path


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_object(value) or is_list(value):
        parts: Iterable[object] = value.values() if is_object(value) else value
        for part in parts:
            yield from _strings(part)


def _worth(use: Use, count: int) -> float:
    """How likely a name is needed again, for its length: used much, by whom, and of late."""
    return log2(1 + use.weight) * (1 + use.last / count) / sqrt(8 + len(use.shown))


def _chosen(ranked: list[Use], budget: int) -> list[Use]:
    chosen: list[Use] = []
    room = budget
    for use in ranked:
        room -= estimate(use.shown + " ")
        if room < 0:
            break
        chosen.append(use)
    return chosen


def _lines(uses: list[Use]) -> str:
    groups: dict[str, list[str]] = {}
    for use in uses:
        groups.setdefault(use.file, []).append(use.shown)
    rest = groups.pop("", [])
    lines: list[str] = []
    for file, members in groups.items():
        if len(members) < FEW:
            rest += members
        else:
            place = " ".join("/".join(file.split("/")[-2:]).split())[:LONGEST]
            lines.append(f"- {place}: {' '.join(sorted(members))}")
    return "\n".join([*lines, f"- elsewhere: {' '.join(sorted(rest))}"] if rest else lines)
