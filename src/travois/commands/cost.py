"""`travois cost`: what a session has cost, and what the prompt cache missed."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from travois.commands.context import describe_cache_lifetime, pick_session
from travois.core.cache_audit import CacheMiss, PromptCache, SessionSpending
from travois.core.content import extract_text
from travois.core.cost import compute_cost, price_for_size
from travois.core.facts import Assistant, Entry, Finished, Opened, User
from travois.core.models import Price, Usage
from travois.sessions.log_file import read_history
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_age,
    format_table,
    print_line,
)

COST_HELP = """\
Dollars and tokens by turn and by kind. A cache miss is a reply that read at least 2,000 tokens and
5% less from the prompt cache than was stored there. Each is listed with its cause and extra cost.
Misses with a known reason (a compaction, another model, a pause) are marked as expected.
"""
COST_KINDS = ("input", "read", "write", "output", "forks")


class TurnCost(msgspec.Struct):
    """The cost of one turn."""

    number: int
    at: float
    said: str
    replies: int = 0
    usage: Usage = Usage()
    forks: Usage = Usage()
    dollars: float = 0.0


class SessionCost(msgspec.Struct):
    """The cost of a session; `dollars` is exactly what the session itself counts."""

    dollars: float
    usage: Usage
    kinds: dict[str, KindCost]
    turns: list[TurnCost]
    cache: PromptCache


def register_cost(commands: CommandParsers) -> None:
    """Add the `travois cost` command."""
    top = add_command(
        commands,
        "cost",
        what="show what a session cost, and its prompt cache misses",
        more=COST_HELP,
    )
    about = "session id, id prefix or name (default: the last one of this folder)"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_cost)


def run_cost(args: Namespace) -> int:
    """Print the cost of a session."""
    home, summary = pick_session(args.session)
    found = compute_session_cost(read_history(home.session_folder(summary.project, summary.id), []))
    now = time.time()
    print_line(
        msgspec.json.encode(_session_cost_json(found, now)).decode()
        if args.json
        else render_session_cost(found, now)
    )
    return 0


def compute_session_cost(entries: Iterable[Entry]) -> SessionCost:
    """Compute the cost of a session; that of a fork begins where it branched off."""
    spent, cache = SessionSpending(), PromptCache()
    turns, kinds = [TurnCost(0, 0.0, "(before the first turn)")], _empty_kind_costs()
    for entry in entries:
        price, before = spent.current_price, spent.dollars
        spent, cache = spent.after_entry(entry), cache.after_entry(entry)
        match entry.fact:
            case Opened():
                turns, kinds = (
                    [TurnCost(0, entry.at, "(before the first turn)")],
                    _empty_kind_costs(),
                )
            case User(origin="human", content=content):
                said = " ".join(extract_text(content).split())
                turns.append(TurnCost(turns[-1].number + 1, entry.at, said))
            case Assistant(usage=usage):
                _add_reply_cost(kinds, usage, price=price_for_size(usage, price))
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
    return SessionCost(spent.dollars, spent.usage, kinds, shown, cache)


def render_session_cost(cost: SessionCost, now: float) -> str:
    """Format the cost of a session as text."""
    rows: list[tuple[str, ...]] = [
        ("TURN", "WHEN", "REPLIES", "INPUT", "READ", "WRITTEN", "OUTPUT", "USD", "SAID")
    ]
    for turn in cost.turns:
        used = turn.usage + turn.forks
        counts = (used.input, used.read, used.write + used.write_1h, used.output)
        numbers = [f"{count:,}" for count in counts]
        said = escape_controls(turn.said[:200], lines="show")
        when = format_age(now - turn.at)
        told = (str(turn.number), when, str(turn.replies), *numbers, f"{turn.dollars:.4f}", said)
        rows.append(told)
    kinds = " · ".join(f"{n} {k.tokens:,} ${k.dollars:.4f}" for n, k in cost.kinds.items())
    lifetime = describe_cache_lifetime(cost.cache, now)
    hit = f"{_cache_hit_rate(cost.usage)} of input from cache; {lifetime}"
    total = f"${cost.dollars:.6f}: {kinds}; {hit}"
    return "\n".join(
        (
            format_table(rows, right=range(2, 8)),
            *map(_describe_cache_miss, cost.cache.misses),
            total,
        )
    )


def _describe_cache_miss(miss: CacheMiss) -> str:
    """Describe a prompt cache miss in one line, for `travois cost`."""
    mark = "expected" if miss.is_expected else "MISS"
    more = f"{miss.tokens:,} tokens resent, ${miss.dollars:.4f} extra"
    return f"{mark}: entry {miss.seq}: {more}: {escape_controls(miss.cause_text, lines='show')}"


def _cache_hit_rate(usage: Usage) -> str:
    return f"{usage.read / usage.prompt:.1%}" if usage.prompt else "none"


def _empty_kind_costs() -> dict[str, KindCost]:
    return {name: KindCost() for name in COST_KINDS}


def _add_reply_cost(kinds: dict[str, KindCost], usage: Usage, *, price: Price) -> None:
    """Add one reply's cost to each kind for `travois cost`, as if each were alone."""
    parts = {
        "input": Usage(input=usage.input),
        "read": Usage(read=usage.read),
        "write": Usage(write=usage.write, write_1h=usage.write_1h),
        "output": Usage(output=usage.output),
    }
    for name, part in (*parts.items(), ("forks", usage.beside or Usage())):
        kinds[name].tokens += part.context
        kinds[name].dollars += compute_cost(part, replace(price, above=None))


def _session_cost_json(cost: SessionCost, now: float) -> dict[str, object]:
    """Build the JSON output of `travois cost`."""
    misses = [msgspec.to_builtins(m) | {"expected": m.is_expected} for m in cost.cache.misses]
    return {
        "dollars": cost.dollars,
        "usage": cost.usage,
        "kinds": cost.kinds,
        "turns": cost.turns,
        "misses": misses,
        "cache_seconds": round(cost.cache.seconds_left(now)),
    }


class KindCost(msgspec.Struct):
    """Tokens of one kind, and what they cost."""

    tokens: int = 0
    dollars: float = 0.0
