"""How far the estimate of tokens is from what providers counted, on recorded sessions.

`python -m bench tokens SESSIONS_DIR [--fit]`: what was said between two requests of a session is
estimated and set beside the difference of the two prompts as the provider counted them. Sessions
are split in two by a digest of their id: one half is for fitting, the errors are of the other.
"""

from __future__ import annotations

import random
import sys
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import mean, median, quantiles
from time import perf_counter
from typing import Any, cast
from zlib import crc32

import msgspec

from travois.kernel.tokens import BYTES_PER_TOKEN, PER_CALL, PER_RESULT, WEIGHTS, estimate, shapes
from travois.store.recorded import traj

LEAST = 50
"""Smaller steps are mostly marks that the provider adds."""
ODD = {"base64": 0.88, "hexadecimal": 0.74, "uuids": 0.82, "capitals": 0.38, "chinese": 0.28}
"""Tokens per byte of texts that recorded sessions hold too little of: counted with the public
table o200k, times 1.29, by which recorded usage of Claude 4 is above that table's."""


class Step(msgspec.Struct, frozen=True):
    """What was added between two requests, and by how many tokens the prompt grew."""

    session: str
    family: str
    counted: int
    texts: tuple[str, ...]
    calls: int
    before: int
    """The size of the first of the two requests."""

    @property
    def bytes(self) -> int:
        return sum(len(text.encode(errors="surrogatepass")) for text in self.texts)


Guess = Callable[[Step], float]
GUESSES: dict[str, Guess] = {
    "bytes/4": lambda step: step.bytes / 4,
    "bytes/3.03 + 77 per call": lambda step: step.bytes / BYTES_PER_TOKEN + 77 * step.calls,
    "travois": lambda step: sum(map(estimate, step.texts)) + (PER_CALL + PER_RESULT) * step.calls,
}


def main(args: list[str]) -> None:
    found = [step for path in sorted(Path(args[0]).glob("*.jsonl.gz")) for step in steps(path)]
    if "--fit" in args:
        fitted = fit([s for s in found if s.family == "claude-4" and half(s.session) == "a"])
        names = [shape.decode() for shape in list(WEIGHTS)[:7]] + ["mixed", "per call"]
        print("  ".join(f"{n!r}: {c:.3f}" for n, c in zip(names, fitted, strict=True)))
    print(f"{'':10}{'':26}  steps   mean median    p90   all tokens")
    for family in sorted({step.family for step in found}):
        held = [step for step in found if step.family == family and half(step.session) == "b"]
        for name, guess in GUESSES.items():
            report(family, name, [(guess(step), step.counted) for step in held])
        pairs = list(learned(held))
        report(family, "travois, learned ratio", pairs)
        whole = zip(pairs, held, strict=True)
        report(
            family, "the whole next request", [(g + s.before, c + s.before) for (g, c), s in whole]
        )
    speed("".join(text for step in found[::20] for text in step.texts))


def half(session: str) -> str:
    """Which half of the sessions this one belongs to."""
    return "ab"[crc32(session.encode()) & 1]


def report(family: str, name: str, pairs: list[tuple[float, int]]) -> None:
    errors = [abs(guess - counted) / counted for guess, counted in pairs]
    tenth = quantiles(errors, n=10)[-1]
    share = sum(guess for guess, _ in pairs) / sum(counted for _, counted in pairs)
    figures = f"{mean(errors):6.1%} {median(errors):6.1%} {tenth:6.1%} {share:12.1%}"
    print(f"{family:10}{name:26}{len(pairs):7} {figures}")


def learned(held: list[Step]) -> Iterator[tuple[float, int]]:
    """Each step, with the ratio that the steps before it in the same session have shown."""
    from travois.kernel.tokens import BELIEVED, PRIOR, STEPS, family

    usual = {"claude-5": family("claude-opus-5"), "openai": family("gpt-5")}
    session, past = "", list[tuple[float, int]]()
    for step in held:
        past = past[-STEPS:] if step.session == session else []
        session, guess = step.session, GUESSES["travois"](step)
        sound = [(g, c) for g, c in past if BELIEVED[0] * g <= c <= BELIEVED[1] * g]
        measured = PRIOR * usual.get(step.family, 1.0) + sum(c for _, c in sound)
        yield guess * measured / (PRIOR + sum(g for g, _ in sound)), step.counted
        past.append((guess, step.counted))


def speed(text: str) -> None:
    begun = perf_counter()
    estimate(text)
    print(f"{len(text.encode()) / 1e6 / (perf_counter() - begun):.0f} MB/s")


def steps(path: Path) -> Iterator[Step]:
    """The steps of one session without thinking, whose size no text tells."""
    head, *told = cast("list[dict[str, Any]]", traj.rows(path))
    since: list[dict[str, Any]] = []
    for row in told:
        if row["type"] != "message":
            since = []
            continue
        if row.get("usage"):
            yield from _step(head["id"], since, row)
            since = []
        since.append(row)


def _step(session: str, since: list[dict[str, Any]], row: dict[str, Any]) -> Iterator[Step]:
    if not since or not since[0].get("usage") or since[0].get("model") != row.get("model"):
        return
    blocks = [block for message in since for block in message["content"]]
    counted = _prompt(row["usage"]) - _prompt(since[0]["usage"])
    if counted > LEAST and all(block["type"] != "thinking" for block in blocks):
        calls = sum(block["type"] == "tool_use" for block in blocks)
        family = _family(row.get("model") or "")
        before = _prompt(since[0]["usage"])
        yield Step(session, family, counted, tuple(map(_text, blocks)), calls, before)


def _prompt(usage: dict[str, int]) -> int:
    return sum(count for name, count in usage.items() if name.endswith("input_tokens"))


def _family(model: str) -> str:
    if not model:
        return "openai"
    return "claude-5" if model.rsplit("-", 1)[-1] == "5" and "-4-" not in model else "claude-4"


def _text(block: dict[str, Any]) -> str:
    match block["type"]:
        case "tool_use":
            return block["name"] + msgspec.json.encode(block["input"]).decode()
        case "tool_result":
            return str(block["content"])
        case _:
            return str(block["text"])


def fit(sample: list[Step]) -> list[float]:
    """Coefficients, none below zero, with the least absolute relative error on these steps."""
    rows = [(*_features(step.texts), float(step.calls)) for step in sample]
    counts = [float(step.counted) for step in sample]
    for text, tokens in odd():
        rows += [(*_features([text]), 0.0)] * 25
        counts += [tokens] * 25
    weights, found = [1 / count for count in counts], [0.0] * len(rows[0])
    for _ in range(8):
        found = _least_squares(rows, counts, weights, found)
        misses = [abs(_dot(row, found) - c) / c for row, c in zip(rows, counts, strict=True)]
        weights = [1 / c / max(m, 0.02) ** 0.5 for c, m in zip(counts, misses, strict=True)]
    return found


def odd() -> Iterator[tuple[str, float]]:
    chance = random.Random(1)
    texts = {
        "base64": b64encode(chance.randbytes(6000)).decode(),
        "hexadecimal": chance.randbytes(4000).hex(),
        "uuids": "\n".join(str(uuid.UUID(bytes=chance.randbytes(16))) for _ in range(200)),
        "capitals": "THE QUICK BROWN FOX JUMPS OVER " * 100,
        "chinese": "这是一个用于测试的中文句子，我们希望知道它有多少个词元。" * 100,
    }
    for name, text in texts.items():
        yield text, ODD[name] * len(text.encode())


def _features(texts: Iterable[str]) -> tuple[float, ...]:
    """Counts of the shapes, those of mixed words as one."""
    totals = [sum(counts) for counts in zip(*map(shapes, texts), strict=True)]
    return (*map(float, totals[:7]), float(sum(totals[7:])))


def _least_squares(
    rows: list[tuple[float, ...]], counts: list[float], weights: list[float], start: list[float]
) -> list[float]:
    """Coordinate descent on the normal equations, each step cut at zero."""
    weighed = [[w * value for value in row] for row, w in zip(rows, weights, strict=True)]
    wanted = [w * count for count, w in zip(counts, weights, strict=True)]
    columns = list(zip(*weighed, strict=True))
    grid = [[_dot(one, other) for other in columns] for one in columns]
    goal = [_dot(column, wanted) for column in columns]
    found = list(start)
    for _ in range(3000):
        for j, line in enumerate(grid):
            found[j] = max(0.0, found[j] + (goal[j] - _dot(line, found)) / (line[j] or 1.0))
    return found


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main(sys.argv[1:])
