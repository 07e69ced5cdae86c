"""Which files a commit changed, found by its message in the commit before, beside other ways.

`python -m bench.code_search REPOSITORY [--until REVISION] [--commits N]`: recall@10 over commits
that changed 1 to 12 known files, for the index of `travois search --code`, BM25 over texts and
paths, the number of the message's words that ripgrep finds, and symbols by name.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter

from travois.search.lexical import split_index_terms
from travois.tools.code_index import CodeIndex

FOUND = 10
MAX_CHANGED = 12
FIRST = 15
"""Before this commit there is hardly anything to search."""
K1, B = 1.2, 0.75
DEFINITION = re.compile(r"\b(?:def|class|func|function|fn|interface|struct|type|enum)\s+(\w+)")

Counts = dict[str, Counter[str]]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--until", default="HEAD")
    parser.add_argument("--commits", type=int, default=60, help="how many, spread over the history")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as scratch:
        tree, rows, times = Path(scratch, "tree"), list[dict[str, float]](), list[float]()
        git(
            Path(), "clone", "--quiet", "--shared", "--no-checkout", str(args.repository), str(tree)
        )
        index = CodeIndex(Path(scratch, "index.db"), str(tree))
        for commit, message in spread(tree, args.until, count=args.commits):
            git(tree, "checkout", "--quiet", "--force", "--detach", f"{commit}~1")
            wanted = changed_files(tree, commit)
            if not 0 < len(wanted) <= MAX_CHANGED:
                continue
            index.refresh(lambda progress: True)
            begun = perf_counter()
            ours = [match.path for match in index.search(message, limit=FOUND)]
            times.append(perf_counter() - begun)
            ways = {"travois": ours, **others(tree, message)}
            rows.append({way: share(found, wanted) for way, found in ways.items()})
        index.close()
    print(f"{len(rows)} commits; search {1000 * median(times):.0f} ms warm (median)")
    for way in rows[0]:
        found = mean(row[way] for row in rows)
        ratio = found / mean(row["bm25"] for row in rows)
        print(f"{way:10} recall@{FOUND} {found:.3f}   / bm25 {ratio:.2f}")


def spread(tree: Path, until: str, *, count: int) -> Iterator[tuple[str, str]]:
    """Yield commits with their messages, the oldest first, evenly from the whole history."""
    listed = git(tree, "rev-list", "--reverse", "--no-merges", "--min-parents=1", until).split()
    for commit in listed[FIRST :: max(1, (len(listed) - FIRST) // count)]:
        yield commit, git(tree, "log", "-1", "--format=%B", commit).strip()


def changed_files(tree: Path, commit: str) -> set[str]:
    """Return the files of the commit before that this one changed or deleted."""
    listed = git(tree, "diff", "--name-status", "--no-renames", f"{commit}~1", commit)
    rows = (line.split("\t", 1) for line in listed.splitlines())
    return {path for kind, path in rows if kind in ("M", "D")}


def share(found: Sequence[str], wanted: set[str]) -> float:
    return len(wanted.intersection(found[:FOUND])) / len(wanted)


def others(tree: Path, message: str) -> dict[str, list[str]]:
    """Rank files in the ways that we compare with."""
    texts = {path: read(tree / path) for path in git(tree, "ls-files", "-z").split("\0") if path}
    words = set(split_index_terms(message))
    whole = {path: Counter(split_index_terms(f"{path} {text}")) for path, text in texts.items()}
    defined = {
        path: Counter(split_index_terms(" ".join(DEFINITION.findall(text))))
        for path, text in texts.items()
    }
    said = {word.lower() for word in re.findall(r"\w{3,}", message)}
    held = {path: sum(word in text.lower() for word in said) for path, text in texts.items()}
    return {
        "bm25": bm25(whole, words),
        "ripgrep": sorted(held, key=lambda path: (-held[path], path)),
        "symbols": bm25(defined, words),
    }


def bm25(counts: Counts, words: set[str]) -> list[str]:
    lengths = {path: sum(counted.values()) for path, counted in counts.items()}
    usual = mean(lengths.values()) or 1.0
    scores = dict.fromkeys(counts, 0.0)
    for word in words:
        known = [path for path, counted in counts.items() if word in counted]
        rarity = log(1 + (len(counts) - len(known) + 0.5) / (len(known) + 0.5))
        for path in known:
            times = counts[path][word]
            scores[path] += (
                rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * lengths[path] / usual))
            )
    return sorted(scores, key=lambda path: (-scores[path], path))


def read(path: Path) -> str:
    try:
        data = path.read_bytes() if not path.is_symlink() else b""
    except OSError:
        return ""
    return "" if b"\0" in data[:8000] else data.decode(errors="replace")


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(("git", *args), cwd=folder, capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


if __name__ == "__main__":
    main()
