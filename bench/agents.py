"""Eight forks of a long conversation beside eight fresh agents that must learn the same first.

The parent has read thirty files, 120K tokens in all. A fork knows them; a fresh agent either works
without them or reads them itself. The program is real; the provider and its prices are the lab's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import travois_lab as lab
from bench.program import Scratch, scratch
from travois_lab import Prompt, call, text
from travois_lab.exchange import Exchange
from travois_lab.objects import Json

FILES, AT_ONCE, AGENTS = 30, 5, 8
LINES = 330
WANTED = 0.99


def main() -> None:
    forks = _run("fork", learns=False)
    print(f"{AGENTS} forks of a conversation of {_size(forks):,} tokens")
    shares = [exchange.usage.read / exchange.usage.prompt for exchange in _children(forks)]
    verdict = "enough" if min(shares) >= WANTED else "TOO LITTLE"
    print(f"  read from the cache: {min(shares):.2%} at least ({verdict}: {WANTED:.0%} are wanted)")
    rows = (
        ("forks", forks),
        ("fresh agents that read the same files first", _run("general", learns=True)),
        ("fresh agents that know only their task", _run("general", learns=False)),
    )
    for name, exchanges in rows:
        found = _children(exchanges)
        cost = sum(exchange.cost for exchange in found)
        tokens = sum(exchange.usage.prompt for exchange in found)
        print(f"  {name:44} {len(found):4} requests {tokens:10,} tokens  ${cost:.4f}")


def _run(kind: str, *, learns: bool) -> list[Exchange]:
    """One session; all its requests."""
    with lab.server(_model(kind, learns=learns)) as api, scratch(api.url) as place:
        _fill(place)
        place.run("--permission-mode", "bypass")
        api.no_invalid()
        return list(api.ledger)


def _fill(place: Scratch) -> None:
    for number in range(FILES):
        lines = (f"{n}: file {number} says that foxes jump over dogs\n" for n in range(LINES))
        Path(place.folder, f"f{number}.txt").write_text("".join(lines))


def _model(kind: str, *, learns: bool) -> Callable[[Prompt, object], list[Json]]:
    def say(prompt: Prompt, state: object) -> list[Json]:
        child = "You are an agent of" in prompt.system or "You are a fork" in prompt.last_text
        done = prompt.text.count("says that foxes jump") // LINES
        if done < FILES and (learns or not child):
            names = range(done, min(done + AT_ONCE, FILES))
            return [call("Read", file_path=f"f{number}.txt") for number in names]
        if child or "[agent a1" in prompt.text:
            return [text("Found it.")]
        return [
            call("Agent", description="look", prompt=f"Look for part {n}.", subagent_type=kind)
            for n in range(AGENTS)
        ]

    return say


def _children(exchanges: list[Exchange]) -> list[Exchange]:
    words = (b"You are a fork", b"You are an agent of")
    return [e for e in exchanges if any(word in e.body for word in words)]


def _size(exchanges: list[Exchange]) -> int:
    """The parent's last request before it started agents."""
    first = exchanges.index(_children(exchanges)[0])
    return exchanges[first - 1].usage.prompt


if __name__ == "__main__":
    main()
