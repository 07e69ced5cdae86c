"""How much of what answers a question is found in memory, beside BM25 and a plain embedding.

Besides the search with MiniLM there is that with the static table, and that by words alone.

`python bench/memory.py SETS_DIR [--json]`: each conversation of each set is put into an index as
the program does it, and each question is asked. The baselines and the measure are those of the
scorer, `score.py`, which stands beside the sets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from travois.compat.sessions.search import split_passages
from travois.search import embedder as minilm
from travois.search import embedder as weights
from travois.search.database import Embedder, SearchDocument
from travois.search.embedder import StaticEmbedder
from travois.search.index import SearchIndex
from travois.search.rank import find_time_span

MEASURES = ("recall@5", "recall@10")
WIDTH = 10
READ = 160
"""How many word pieces of a text the scorer's own model reads."""

Figures = dict[str, dict[str, float]]
Ranking = Callable[[str], Sequence[str]]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench/memory.py", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="SETS_DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as scratch:
        embedder, folder = (
            minilm.find_embedder(Path(scratch) / "checked"),
            weights.find_weights_folder(),
        )
        if isinstance(embedder, minilm.NoEmbedder) or folder is None:
            sys.exit(f"There is no embedding to compare with: {embedder}")
        plain = minilm.MiniLmEmbedder(folder, longest=READ)
        figures = measure(args.folder.resolve(), embedder, plain=plain, scratch=Path(scratch))
    print(json.dumps({"sets": figures}) if args.json else _table(figures))


def measure(
    folder: Path, embedder: Embedder, *, plain: Embedder, scratch: Path
) -> dict[str, Figures]:
    """What each way of searching finds, set by set."""
    scorer = _scorer(folder)
    figures: dict[str, Figures] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        rows: dict[str, list[dict[str, float]]] = defaultdict(list)
        for at, conversation in enumerate(scorer.load(str(folder), name)):
            start = perf_counter()
            ids, texts = _texts(scorer, folder, conversation)
            base = scratch / f"{name}-{at}.db"
            ways: dict[str, Ranking] = {
                "travois": _travois(conversation, texts, embedder=embedder, base=base),
                "static": _travois(
                    conversation, texts, embedder=StaticEmbedder(), base=_beside(base, 1)
                ),
                "words": _travois(conversation, texts, embedder=None, base=_beside(base, 2)),
                "bm25": _bm25(scorer, ids, texts),
                "embedding": _embedding(ids, texts, embedder=plain),
            }
            for question in scorer.questions(conversation):
                for way, ranking in ways.items():
                    found = list(ranking(question["q"]))
                    rows[way].append(scorer.metrics(found, question["evidence"]))
            _tell(f"{name}: {conversation['id']} ({perf_counter() - start:.0f} s)")
        means = {way: scorer.mean(some) for way, some in rows.items()}
        figures[name] = {way: {key: mean[key] for key in MEASURES} for way, mean in means.items()}
    return figures


def _texts(scorer: Any, folder: Path, conversation: Any) -> tuple[list[str], list[str]]:
    """The ids and the texts that the baselines search, as the scorer puts them together."""
    try:
        return scorer.docs_of(conversation, str(folder))
    except FileNotFoundError:
        # The scorer looks for sessions in a folder named like its argument, beside its own.
        return scorer.docs_of(conversation, ".")


def _bm25(scorer: Any, ids: list[str], texts: list[str]) -> Ranking:
    known = scorer.BM25(texts)
    return lambda text: [ids[at] for at in known.rank(text)]


def _embedding(ids: list[str], texts: list[str], *, embedder: Embedder) -> Ranking:
    import numpy as np

    def vectors(some: list[str]) -> Any:
        return np.frombuffer(embedder.encode(some), np.float32).reshape(len(some), -1)

    known = vectors(texts)

    def ranking(text: str) -> Sequence[str]:
        near = known @ vectors([text])[0]
        return [ids[at] for at in sorted(range(len(ids)), key=lambda at: -near[at])]

    return ranking


def _beside(base: Path, number: int) -> Path:
    return base.with_suffix(f".{number}.db")


def _travois(
    conversation: Any, texts: list[str], *, embedder: Embedder | None, base: Path
) -> Ranking:
    """Turns are found as documents; sessions as groups of passages, by their words only."""
    whole = any("text" not in turn for _, turn in _turns(conversation))
    documents = list(_passages(conversation, texts) if whole else _spoken(conversation))
    now = max((document.at for document in documents), default=0.0)
    index = SearchIndex(base, None if whole else embedder)
    index.update("memory", documents)
    while index.embed("memory", limit=64):
        pass
    find = index.search_groups if whole else index.search
    return lambda text: [hit.id for hit in find("memory", text, limit=WIDTH, now=now)]


def _turns(conversation: Any) -> Iterator[tuple[Any, Any]]:
    for session in conversation["sessions"]:
        for turn in session["turns"]:
            yield session, turn


def _spoken(conversation: Any) -> Iterator[SearchDocument]:
    places: dict[str, Iterator[int]] = defaultdict(count)
    for session, turn in _turns(conversation):
        group = str(session["id"])
        at = _seconds(turn.get("time") or session.get("time"))
        yield SearchDocument(
            turn["id"], turn["text"], group, next(places[group]), at=at, who=turn["who"]
        )


def _passages(conversation: Any, texts: list[str]) -> Iterator[SearchDocument]:
    for (session, turn), text in zip(_turns(conversation), texts, strict=True):
        id, at = turn["id"], _seconds(turn.get("time") or session.get("time"))
        for order, part in enumerate(split_passages(text)):
            yield SearchDocument(f"{id}-{order}", part, id, order, at=at)


def _seconds(text: str | None) -> float:
    """When something was said, of chats to the day; zero if that is not known."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        span = find_time_span((text or "").replace("/", "-"), now=0.0)
        return span.start if span else 0.0


def _scorer(folder: Path) -> Any:
    spec = spec_from_file_location("score", folder / "score.py")
    assert spec is not None
    assert spec.loader is not None
    scorer = module_from_spec(spec)
    spec.loader.exec_module(scorer)
    return scorer


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(figures: dict[str, Figures]) -> str:
    names = [*next(iter(figures.values())), "over bm25"]
    head = f"{'recall@5 / @10':<22}" + "".join(f"{name:>15}" for name in names)
    return "\n".join([head, *(_line(name, ways) for name, ways in figures.items())])


def _line(name: str, ways: Figures) -> str:
    cells = [" / ".join(f"{ways[way][key]:.3f}" for key in MEASURES) for way in ways]
    gains = [ways["travois"][key] / ways["bm25"][key] - 1 for key in MEASURES]
    cells.append(" / ".join(f"{gain:+.0%}" for gain in gains))
    return f"{name:<22}" + "".join(f"{cell:>15}" for cell in cells)


if __name__ == "__main__":
    main()
