"""`travois cost`: what a session has cost, turn by turn, and what its cache missed and why."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from travois.cli.context import life, picked
from travois.core.cache_audit import Cache, Miss, Spent
from travois.core.content import words
from travois.core.facts import Assistant, Entry, Finished, Opened, User
from travois.core.models import Price, Usage, cost, rates
from travois.sessions.log_file import history
from travois.terminal.tables import Commands, ago, clean, command, say, table

MORE = """\
Dollars and tokens by turn and by kind. A cache miss is a reply that read at least 2,000 tokens and
5% less than the provider held: it is listed with its cause and with what it cost more. Misses that
something asked for (a compaction, another model, a pause) are marked as expected.
"""
KINDS = ("input", "read", "write", "output", "forks")


class Kind(msgspec.Struct):
    """Tokens of one kind, and what they cost."""

    tokens: int = 0
    dollars: float = 0.0


class Turn(msgspec.Struct):
    """What one turn cost."""

    number: int
    at: float
    said: str
    replies: int = 0
    usage: Usage = Usage()
    forks: Usage = Usage()
    dollars: float = 0.0


class Bill(msgspec.Struct):
    """What a session cost; `dollars` is exactly what the session itself counts."""

    dollars: float
    usage: Usage
    kinds: dict[str, Kind]
    turns: list[Turn]
    cache: Cache


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(
        commands, "cost", what="what a session cost, and what its cache missed", more=MORE
    )
    about = "id, beginning of an id, or name; default: the last one of this folder"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_cost)


def run_cost(args: Namespace) -> int:
    """Tell what it cost."""
    home, summary = picked(args.session)
    found = bill(history(home.session(summary.project, summary.id), []))
    now = time.time()
    say(msgspec.json.encode(_json(found, now)).decode() if args.json else told(found, now))
    return 0


def bill(entries: Iterable[Entry]) -> Bill:
    """The bill of a whole session; a fork's begins where it branched off."""
    spent, cache = Spent(), Cache()
    turns, kinds = [Turn(0, 0.0, "(before the first turn)")], _kinds()
    for entry in entries:
        price, before = spent.price, spent.dollars
        spent, cache = spent.after(entry), cache.after(entry)
        match entry.fact:
            case Opened():
                turns, kinds = [Turn(0, entry.at, "(before the first turn)")], _kinds()
            case User(origin="human", content=content):
                said = " ".join(words(content).split())
                turns.append(Turn(turns[-1].number + 1, entry.at, said))
            case Assistant(usage=usage):
                _split(kinds, usage, price=rates(usage, price))
                turns[-1].replies += 1
                turns[-1].usage += usage
                turns[-1].dollars += spent.dollars - before
            case Finished(usage=usage):
                kinds["forks"].tokens += usage.context
                kinds["forks"].dollars += spent.dollars - before
                turns[-1].forks += usage
                turns[-1].dollars += spent.dollars - before
            case _:
                pass
    shown = [turn for turn in turns if turn.number or turn.dollars]
    return Bill(spent.dollars, spent.usage, kinds, shown, cache)


def told(found: Bill, now: float) -> str:
    """The bill for people."""
    rows: list[tuple[str, ...]] = [
        ("TURN", "WHEN", "REPLIES", "INPUT", "READ", "WRITTEN", "OUTPUT", "USD", "SAID")
    ]
    for turn in found.turns:
        used = turn.usage + turn.forks
        counts = (used.input, used.read, used.write + used.write_1h, used.output)
        numbers = [f"{count:,}" for count in counts]
        said = clean(turn.said[:200], lines="show")
        when = ago(now - turn.at)
        told = (str(turn.number), when, str(turn.replies), *numbers, f"{turn.dollars:.4f}", said)
        rows.append(told)
    kinds = " · ".join(f"{n} {k.tokens:,} ${k.dollars:.4f}" for n, k in found.kinds.items())
    hit = f"{_hit(found.usage)} of the prompts from cache; {life(found.cache, now)}"
    total = f"${found.dollars:.6f}: {kinds}; {hit}"
    return "\n".join((table(rows, right=range(2, 8)), *map(_line, found.cache.misses), total))


def _line(miss: Miss) -> str:
    mark = "expected" if miss.expected else "MISS"
    more = f"{miss.tokens:,} tokens sent again, ${miss.dollars:.4f} more"
    return f"{mark}: entry {miss.seq}: {more}: {clean(miss.why, lines='show')}"


def _hit(usage: Usage) -> str:
    return f"{usage.read / usage.prompt:.1%}" if usage.prompt else "none"


def _kinds() -> dict[str, Kind]:
    return {name: Kind() for name in KINDS}


def _split(kinds: dict[str, Kind], usage: Usage, *, price: Price) -> None:
    """Add one reply to each kind; what one kind costs is what a reply of it alone would."""
    parts = {
        "input": Usage(input=usage.input),
        "read": Usage(read=usage.read),
        "write": Usage(write=usage.write, write_1h=usage.write_1h),
        "output": Usage(output=usage.output),
    }
    for name, part in (*parts.items(), ("forks", usage.beside or Usage())):
        kinds[name].tokens += part.context
        kinds[name].dollars += cost(part, replace(price, above=None))


def _json(found: Bill, now: float) -> dict[str, object]:
    misses = [msgspec.to_builtins(m) | {"expected": m.expected} for m in found.cache.misses]
    return {
        "dollars": found.dollars,
        "usage": found.usage,
        "kinds": found.kinds,
        "turns": found.turns,
        "misses": misses,
        "cache_seconds": round(found.cache.left(now)),
    }
