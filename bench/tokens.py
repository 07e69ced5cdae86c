"""How far the estimate of tokens is from what providers and public vocabularies count.

`python -m bench tokens SESSIONS_DIR [--fit] [--judges NODE_MODULES [--write]]`

What was said between two requests of a recorded session is estimated and set beside the difference
of the two prompts as the provider counted them. Sessions are split in two by a digest of their id:
one half is for fitting, the errors are of the other. `--fit` fits again, also without each source
of sessions, and states the error on the one that was left out. `--judges` sets the estimate beside
two public vocabularies (`npm install tiktoken @anthropic-ai/tokenizer`) for each kind of content,
recorded and made by rule (`bench.contents`); `--write` keeps the counts for the tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import mean, median, quantiles
from time import process_time
from typing import Any, cast
from zlib import crc32

import msgspec

from bench.contents import KINDS, RUNS, made
from travois.compat.sessions import traj
from travois.core.tokens import (
    BYTES_PER_TOKEN,
    SHAPE_WEIGHTS,
    TOKENS_PER_CALL,
    TOKENS_PER_LINE,
    TOKENS_PER_MIX,
    TOKENS_PER_NUMBER,
    TOKENS_PER_RESULT,
    count_shapes,
    estimate_tokens,
)

LEAST = 50
"""Smaller steps are mostly marks that the provider adds."""
FITTED = (b"a", b"A", b"0", b"p", b"y", b"  ")
"""The shapes of which recorded sessions hold enough; all others stay as they are."""
JUDGES = {"o200k": 0.78, "claude": 0.90}
"""What each counts for one token that we estimate, on all that was recorded; the second is a
vocabulary of the first Claude models, the only one that was published."""
COUNTS = Path(__file__).parents[1] / "tests" / "core" / "contents.json"
PER_KIND = 250
MOST = 30_000


class Step(msgspec.Struct, frozen=True):
    """What was added between two requests, and by how many tokens the prompt grew."""

    session: str
    source: str
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
    "travois": lambda step: (
        sum(map(estimate_tokens, step.texts)) + (TOKENS_PER_CALL + TOKENS_PER_RESULT) * step.calls
    ),
}


def main(args: list[str]) -> None:
    files = sorted(Path(args[0]).glob("*.jsonl.gz"))
    found = [step for path in files for step in steps(path)]
    if "--fit" in args:
        refit([step for step in found if step.family == "claude-4"])
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
    speed([text for step in found[::9] for text in step.texts])
    if "--judges" in args:
        modules = args[args.index("--judges") + 1]
        judge_recorded(files, modules)
        judge_made(modules, keep="--write" in args)


def judged(texts: list[str], modules: str) -> dict[str, list[int]]:
    """How many tokens each judge counts for each text."""
    script = Path(__file__).with_name("judge.cjs")
    done = subprocess.run(
        ["node", str(script), modules], input=msgspec.json.encode(texts), capture_output=True
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return msgspec.json.decode(done.stdout, type=dict[str, list[int]])


def judge_made(modules: str, *, keep: bool) -> None:
    """Print the estimate over each judge's count for texts that are made by rule."""
    texts = {kind: made(kind) for kind in (*KINDS, *RUNS)}
    counts = judged(list(texts.values()), modules)
    print(f"\n{'made by rule':26}   bytes " + " ".join(f"{name:>7}" for name in counts))
    rows: dict[str, dict[str, int]] = {}
    for index, (kind, text) in enumerate(texts.items()):
        rows[kind] = {name: row[index] for name, row in counts.items()}
        shares = (estimate_tokens(text) * JUDGES[name] / n for name, n in rows[kind].items())
        print(f"{kind:26} {len(text.encode()):7} " + " ".join(f"{share:7.2f}" for share in shares))
        rows[kind]["crc32"] = crc32(text.encode())
    if keep:
        COUNTS.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


def judge_recorded(files: list[Path], modules: str) -> None:
    """Print the same for what recorded sessions hold, by kind."""
    blocks: dict[str, list[str]] = {}
    for path in files:
        for kind, text in _blocks(path):
            if len(held := blocks.setdefault(kind, [])) < PER_KIND:
                held.append(text)
    kinds = {kind: texts for kind, texts in sorted(blocks.items()) if len(texts) > 9}
    counts = judged([text for texts in kinds.values() for text in texts], modules)
    print(f"\n{'recorded':16} blocks" + "".join(f"  {n:>8}: all   p1  p50  p99" for n in counts))
    start = 0
    for kind, texts in kinds.items():
        guesses, line = list(map(estimate_tokens, texts)), f"{kind:16} {len(texts):6}"
        for name, row in counts.items():
            told = row[start : start + len(texts)]
            shares = [JUDGES[name] * g / n for g, n in zip(guesses, told, strict=True)]
            share, cut = JUDGES[name] * sum(guesses) / sum(told), quantiles(shares, n=100)
            line += f"  {'':8}{share:6.2f} {cut[0]:4.2f} {cut[49]:4.2f} {cut[98]:4.2f}"
        print(line)
        start += len(texts)


def _blocks(path: Path) -> Iterator[tuple[str, str]]:
    """The longer blocks of a session with their kinds."""
    for row in cast("list[dict[str, Any]]", traj.read_traj_records(path)):
        for block in row["content"] if row["type"] == "message" else ():
            text = _text(block)[:MOST] if block["type"] != "thinking" else ""
            if len(text) >= 200:
                text = text.encode(errors="replace").decode()
                yield _kind(text, block["type"]), text


def _kind(text: str, block: str) -> str:
    """What a block holds, as far as its looks tell."""
    if sum(ord(sign) > 127 for sign in text) > 0.15 * len(text):
        return "not ASCII"
    if re.search(r"^@@ .*@@|^diff --git", text, re.MULTILINE):
        return "diff"
    if block != "tool_result":
        return "call" if block == "tool_use" else "prose"
    if re.match(r"\s*[{\[]\s*[\"{\[]", text):
        return "JSON"
    lines = text.splitlines()
    for kind, pattern in LOOKS.items():
        if sum(bool(re.match(pattern, line)) for line in lines) > 0.6 * len(lines):
            return kind
    return next(
        (kind for kind, sign in SIGNS.items() if re.search(sign, text, re.MULTILINE)), "other"
    )


LOOKS = {
    "numbered file": r"\s*\d+[→\t:|]",
    "paths": r"\s*\S*/\S*\s*$",
    "file list": r"[-dl][rwx-]{9}",
}
SIGNS = {
    "table": r"\|---|\+-{4,}\+",
    "tests": r"PASSED|FAILED|passed in|===== ",
    "code": r"^(def|class|import|from|function|const|#include|package|func|public) ",
    "log": r"\d\d:\d\d:\d\d",
}


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
    from travois.core.tokens import MAX_RATIO_STEPS, PLAUSIBLE_RATIOS, PRIOR_TOKENS, family_ratio

    usual = {"claude-5": family_ratio("claude-opus-5"), "openai": family_ratio("gpt-5")}
    session, past = "", list[tuple[float, int]]()
    for step in held:
        past = past[-MAX_RATIO_STEPS:] if step.session == session else []
        session, guess = step.session, GUESSES["travois"](step)
        sound = [(g, c) for g, c in past if PLAUSIBLE_RATIOS[0] * g <= c <= PLAUSIBLE_RATIOS[1] * g]
        measured = PRIOR_TOKENS * usual.get(step.family, 1.0) + sum(c for _, c in sound)
        yield guess * measured / (PRIOR_TOKENS + sum(g for g, _ in sound)), step.counted
        past.append((guess, step.counted))


def speed(texts: list[str]) -> None:
    size, begun = sum(len(text.encode(errors="replace")) for text in texts), process_time()
    for text in texts:
        estimate_tokens(text)
    print(f"{size / 1e6 / (process_time() - begun):.0f} MB per second of one processor")


def steps(path: Path) -> Iterator[Step]:
    """The steps of one session without thinking, whose size no text tells."""
    head, *told = cast("list[dict[str, Any]]", traj.read_traj_records(path))
    since: list[dict[str, Any]] = []
    for row in told:
        if row["type"] != "message":
            since = []
            continue
        if row.get("usage"):
            source = f"{head['agent']} {head['source']['repo']}"
            yield from _step(head["id"], source, since, row)
            since = []
        since.append(row)


def _step(
    session: str, source: str, since: list[dict[str, Any]], row: dict[str, Any]
) -> Iterator[Step]:
    if not since or not since[0].get("usage") or since[0].get("model") != row.get("model"):
        return
    blocks = [block for message in since for block in message["content"]]
    counted = _prompt(row["usage"]) - _prompt(since[0]["usage"])
    if counted > LEAST and all(block["type"] != "thinking" for block in blocks):
        calls = sum(block["type"] == "tool_use" for block in blocks)
        family = _family(row.get("model") or "")
        before = _prompt(since[0]["usage"])
        yield Step(session, source, family, counted, tuple(map(_text, blocks)), calls, before)


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


def refit(sample: list[Step]) -> None:
    """Print fitted coefficients, and what they are worth where they were not fitted."""
    names = [shape.decode() for shape in FITTED] + ["mixed", "number", "line", "per call"]
    one = [step for step in sample if half(step.session) == "a"]
    print("  ".join(f"{n!r}: {c:.3f}" for n, c in zip(names, fit(one), strict=True)))
    present = [SHAPE_WEIGHTS[shape] for shape in FITTED]
    present += [
        TOKENS_PER_MIX,
        TOKENS_PER_NUMBER,
        TOKENS_PER_LINE,
        TOKENS_PER_CALL + TOKENS_PER_RESULT,
    ]
    for source in sorted({step.source for step in sample}):
        without = [step for step in sample if step.source != source]
        held = [step for step in sample if step.source == source]
        fitted = fit(without)
        told = f"fitted {_error(without, fitted):.1%} in sample, {_error(held, fitted):.1%} here"
        print(f"without {source} ({len(held)} steps): {told}; as it is {_error(held, present):.1%}")


def _error(sample: list[Step], coefficients: list[float]) -> float:
    return mean(
        abs(_dot(row, coefficients) + rest - step.counted) / step.counted
        for step, (row, rest) in zip(sample, map(_features, sample), strict=True)
    )


def fit(sample: list[Step]) -> list[float]:
    """Coefficients, none below zero, with the least absolute relative error on these steps."""
    features = list(map(_features, sample))
    rows = [row for row, _ in features]
    counts = [step.counted - rest for step, (_, rest) in zip(sample, features, strict=True)]
    sizes = [float(step.counted) for step in sample]
    weights, found = [1 / size for size in sizes], [0.0] * len(rows[0])
    for _ in range(8):
        found = _least_squares(rows, counts, weights, found)
        misses = [
            abs(_dot(row, found) - c) / n for row, c, n in zip(rows, counts, sizes, strict=True)
        ]
        weights = [1 / n / max(miss, 0.02) ** 0.5 for n, miss in zip(sizes, misses, strict=True)]
    return found


def _features(step: Step) -> tuple[tuple[float, ...], float]:
    """What is fitted, and the tokens of all that is not."""
    totals = [sum(counts) for counts in zip(*map(count_shapes, step.texts), strict=True)]
    counts = dict(zip(SHAPE_WEIGHTS, totals[:-4], strict=True))
    rest = sum(n * SHAPE_WEIGHTS[shape] for shape, n in counts.items() if shape not in FITTED)
    fitted = (*(counts[shape] for shape in FITTED), *totals[-4:-1], float(step.calls))
    return fitted, rest + totals[-1]


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
