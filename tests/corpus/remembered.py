"""Seeded conversations: what was said, what a careless model would keep of it, what may be kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from travois.core.content import Call, Text
from travois.core.facts import AnyFact, Assistant, Entry, Result, User
from travois.memory.memory import Memory

FOLDER = Path(__file__).parent / "memory"
Row = dict[str, Any]


def rows() -> list[Row]:
    found = (json.loads(line) for path in sorted(FOLDER.glob("*.jsonl")) for line in path.open())
    return list(found)


def facts(row: Row) -> list[AnyFact]:
    """The conversation as it stands in a log."""
    told: list[AnyFact] = []
    for number, (who, *said) in enumerate(row["said"]):
        match who:
            case "user":
                told.append(User((Text(said[0]),)))
            case "model":
                told.append(Assistant((Text(said[0]),), "end"))
            case "tool":
                name, args, text = said
                call = Call(f"call_{number}", name, json.dumps(args))
                told += (Assistant((call,), "calls"), Result(call.id, (Text(text),)))
            case _:
                told.append(User((Text(said[0]),), origin=who))
    return told


def entries(told: Iterable[AnyFact]) -> list[Entry]:
    return [Entry(number, float(number), fact) for number, fact in enumerate(told, 1)]


def known(row: Row) -> tuple[Memory, ...]:
    return tuple(
        Memory(description=one["body"], created=1.0, modified=1.0, verified=1.0, **one)
        for one in row.get("known", ())
    )


def drafted(row: Row) -> str:
    """What a model answers that was careless, or was tricked."""
    drafts = [
        {key: value for key, value in draft.items() if key != "want"}
        for draft in row.get("drafts", ())
    ]
    return json.dumps(drafts, ensure_ascii=False)
