"""How much of what answers a question is found in memory, beside BM25 and a plain embedding.

`python bench/memory.py SETS_DIR [--json]`: each conversation of each set is put into the index of
sessions of a new home, and each question goes through the search that `travois search` runs:
`search_turns` (`--turns`) for chats, `search` where a turn is a whole recorded session. The column
`travois` has MiniLM, `travois-default` what a plain install has: words and the static table.
The baselines and the measure are those of the scorer, `score.py`, which stands beside the sets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from travois.compat.sessions.format import RecordedSession, RecordedTurn, SessionFile
from travois.compat.sessions.search import SessionIndex
from travois.search import embedder as minilm
from travois.search import embedder as weights
from travois.search.database import Embedder
from travois.search.embedder import StaticEmbedder
from travois.search.times import find_time_span
from travois.sessions.home import TravoisHome

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
    scorer = load_scorer(folder)
    figures: dict[str, Figures] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        rows: dict[str, list[dict[str, float]]] = defaultdict(list)
        for at, conversation in enumerate(scorer.load(str(folder), name)):
            start = perf_counter()
            ids, texts = read_texts(scorer, folder, conversation)
            base = scratch / f"{name}-{at}"
            ways: dict[str, Ranking] = {
                "travois": ask_travois(conversation, texts, embedder=embedder, home=base / "a"),
                "travois-default": ask_travois(
                    conversation, texts, embedder=StaticEmbedder(), home=base / "b"
                ),
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


def read_texts(scorer: Any, folder: Path, conversation: Any) -> tuple[list[str], list[str]]:
    """The ids and the texts that the baselines search, as the scorer puts them together."""
    try:
        return scorer.docs_of(conversation, str(folder))
    except FileNotFoundError:
        # The scorer looks for sessions in a folder named like its argument, beside its own.
        return scorer.docs_of(conversation, ".")


def _bm25(scorer: Any, ids: list[str], texts: list[str]) -> Ranking:
    known = scorer.BM25(texts)

    def ranking(text: str) -> list[str]:
        order: list[int] = known.rank(text)
        return [ids[at] for at in order]

    return ranking


def _embedding(ids: list[str], texts: list[str], *, embedder: Embedder) -> Ranking:
    import numpy as np

    def vectors(some: list[str]) -> Any:
        return np.frombuffer(embedder.encode(some), np.float32).reshape(len(some), -1)

    known = vectors(texts)

    def ranking(text: str) -> Sequence[str]:
        near = known @ vectors([text])[0]
        return [ids[at] for at in sorted(range(len(ids)), key=lambda at: -near[at])]

    return ranking


def ask_travois(conversation: Any, texts: list[str], *, embedder: Embedder, home: Path) -> Ranking:
    """Put the sessions of a conversation into an index; return the search in it."""
    index = SessionIndex(TravoisHome(home), {}, embedder=embedder)
    ids, now = put_sessions(index, conversation, texts)

    def find_sessions(text: str) -> list[str]:
        return [match.session.id for match in index.search(text, limit=WIDTH, now=now)]

    def find_turns(text: str) -> list[str]:
        found = index.search_turns(text, limit=WIDTH, now=now)
        return [ids[match.session.id][match.turn] for match in found]

    whole = any("text" not in turn for _, turn in list_turns(conversation))
    return find_sessions if whole else find_turns


def put_sessions(
    index: SessionIndex, conversation: Any, texts: list[str]
) -> tuple[dict[str, list[str]], float]:
    """Put the sessions of a conversation into an index.

    Returns the ids of the turns of each session, and when the last word was said.
    """
    whole = any("text" not in turn for _, turn in list_turns(conversation))
    ids: dict[str, list[str]] = {}
    made = recorded_whole(conversation, texts) if whole else recorded_chats(conversation)
    for session, turns in made:
        index.put(SessionFile("travois", session.path, ""), session)
        ids[session.id] = turns
    index.embed_rest()
    return ids, max((one.at for one in index.list_sessions().values()), default=0.0)


def list_turns(conversation: Any) -> Iterator[tuple[Any, Any]]:
    for session in conversation["sessions"]:
        for turn in session["turns"]:
            yield session, turn


def recorded_chats(conversation: Any) -> Iterator[tuple[RecordedSession, list[str]]]:
    """Yield the sessions of a chat with the ids of their turns; roles are those of an agent."""
    for number, session in enumerate(conversation["sessions"]):
        turns = tuple(
            _recorded_turn(turn, at=_seconds(turn.get("time") or session.get("time")))
            for turn in session["turns"]
        )
        yield _recorded(f"{number}", turns), [turn["id"] for turn in session["turns"]]


def recorded_whole(
    conversation: Any, texts: list[str]
) -> Iterator[tuple[RecordedSession, list[str]]]:
    """Yield a session for each turn, which is a whole recorded session."""
    for (session, turn), text in zip(list_turns(conversation), texts, strict=True):
        at = _seconds(turn.get("time") or session.get("time"))
        yield _recorded(turn["id"], (RecordedTurn("model", text, at),)), [turn["id"]]


def _recorded(id: str, turns: tuple[RecordedTurn, ...]) -> RecordedSession:
    at = max((turn.at for turn in turns), default=0.0)
    return RecordedSession("travois", id, Path(f"/{id}"), "", at, "", turns)


def _recorded_turn(turn: Any, *, at: float) -> RecordedTurn:
    who = turn["who"].lower()
    if who in ("user", "human"):
        return RecordedTurn("user", turn["text"], at)
    if who in ("assistant", "model", "agent", "bot", "ai"):
        return RecordedTurn("model", turn["text"], at)
    return RecordedTurn("user", turn["text"], at, name=turn["who"])


def _seconds(text: str | None) -> float:
    """When something was said, of chats to the day; zero if that is not known."""
    try:
        found = datetime.fromisoformat(text or "")
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        span = find_time_span((text or "").replace("/", "-"), now=0.0)
        return span.start if span else 0.0


def load_scorer(folder: Path) -> Any:
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
