"""The ledger for people: one line per request, and what broke."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from travois_lab.exchange import Exchange
from travois_lab.ledger import Ledger
from travois_lab.objects import Json

COLUMNS = ("#", "status", "model", "bytes", "read", "written", "plain", "output", "USD", "prefix")


def ledger_json(ledger: Ledger) -> list[Json]:
    """Every exchange as one row, without its bytes."""
    return [_row(ledger, exchange) for exchange in ledger]


def _row(ledger: Ledger, exchange: Exchange) -> Json:
    usage = exchange.usage
    change = ledger.divergence(exchange.n) if exchange.row else None
    return {
        "n": exchange.n,
        "at": round(exchange.at, 3),
        "path": exchange.path,
        "model": exchange.model,
        "status": exchange.status,
        "error": exchange.error,
        "bytes": len(exchange.body),
        "read": usage.read,
        "written": usage.write + usage.write_1h,
        "plain": usage.input,
        "output": usage.output,
        "cost": round(exchange.cost, 6),
        "stop": exchange.stop,
        "betas": list(exchange.betas),
        "faults": list(exchange.faults),
        "applied_edits": list(exchange.applied),
        "thinking": list(exchange.transformed),
        "invalid": list(exchange.invalid),
        "prefix": change.kind if change else "-",
        "divergence": str(change) if change and change.path else "",
    }


def summary(ledger: Ledger) -> Json:
    """The whole session in a few numbers."""
    return {
        "requests": len(ledger),
        "cost": round(ledger.cost(), 6),
        "cache_hit_ratio": round(ledger.cache_hit_ratio(), 4),
    }


def broken(rows: Iterable[Json]) -> list[str]:
    """The invariants that these requests broke, each in a line."""
    found: list[str] = []
    for row in rows:
        if row["prefix"] == "edited":
            found.append(f"request {row['n']}: {row['divergence']}")
        found += [f"request {row['n']}: {fault}" for fault in row["invalid"]]
    return found


def render(rows: list[Json], totals: Json) -> Iterator[str]:
    """The report, line by line."""
    table = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    for line in table:
        yield "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
    yield ""
    share = f"{totals['cache_hit_ratio']:.1%}"
    count = f"{totals['requests']} request{'' if totals['requests'] == 1 else 's'}"
    yield f"{count}, ${totals['cost']:.6f}, {share} of the prompt from cache"
    problems = broken(rows)
    yield from (f"! {problem}" for problem in problems)
    if not problems:
        yield "append-only, and nothing invalid"


def _cells(row: Json) -> tuple[str, ...]:
    names = ("n", "status", "model", "bytes", "read", "written", "plain", "output")
    return (*(str(row[name]) for name in names), f"{row['cost']:.6f}", str(row["prefix"]))
