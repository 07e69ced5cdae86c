"""Fit the weights of the ranking, and say how they do on a corpus that was left out.

`python -m bench.fit_recall LAB_DIR [--questions N] [--write]`: LAB_DIR holds `memory`, the sets of
`bench/memory.py`, and `trajectories`, recorded sessions of agents. Of these three more corpora are
made, so that not all is small talk: `service` and `coding`, with questions written for this
(`assistant_questions.jsonl`: what a person may ask later, and the turns that answer it), and
`asked-again`, where a question of the user is taken out of a session and asked of the rest.

Weights are tried one after the other at half and at one and a half times their value; what raises
the mean over corpora of recall@5 by BM25's is kept. `--write` writes `search/ranking.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.structs import replace

from bench.memory import list_turns, load_scorer, put_sessions, read_texts
from travois.compat.sessions.search import SessionIndex
from travois.search import rank
from travois.search.candidates import MAX_CANDIDATES, MAX_GROUP_CANDIDATES
from travois.search.database import SearchCandidate, SearchQuery
from travois.search.embedder import StaticEmbedder
from travois.search.rank import RankingWeights
from travois.sessions.home import TravoisHome

QUESTIONS_FILE = Path(__file__).with_name("assistant_questions.jsonl")
ASKED_AGAIN = "entireio/cli"
"""The repository whose sessions are asked their own questions; the others stay unseen."""
STEPS = (0.5, 1.5)
FOUND = 5
MIN_REPLY_CHARS = 60

Conversation = dict[str, Any]


class Question(msgspec.Struct):
    """A question with all that its ranking may know."""

    query: SearchQuery
    candidates: list[SearchCandidate]
    turns: dict[str, str]
    """The id that the corpus gives each passage."""
    evidence: list[str]
    bm25: float
    whole: bool
    """True if sessions are looked for, not turns."""


Corpora = Mapping[str, Sequence[Question]]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.fit_recall", description=__doc__)
    parser.add_argument("lab", type=Path, metavar="LAB_DIR")
    parser.add_argument("--questions", type=int, default=60, help="how many of each corpus")
    parser.add_argument("--write", action="store_true", help="write the weights")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as scratch:
        corpora = load_corpora(args.lab, Path(scratch), count=args.questions)
    start = rank.load_weights()
    print(f"{'shipped':16}", describe(corpora, start), flush=True)
    for name in corpora:
        others = {known: some for known, some in corpora.items() if known != name}
        fitted = fit(others, start)
        print(f"without {name:16} {rate(corpora[name], fitted):.2f} on it", flush=True)
    fitted = fit(corpora, start)
    print(f"{'fitted':16}", describe(corpora, fitted))
    if args.write:
        data = msgspec.json.format(msgspec.json.encode(fitted), indent=2)
        rank.WEIGHTS_FILE.write_bytes(data + b"\n")


def fit(corpora: Corpora, start: RankingWeights) -> RankingWeights:
    """Return the weights that do best, reached by one change at a time."""
    best, most = start, judge(corpora, start)
    for name in RankingWeights.__struct_fields__:
        for step in STEPS:
            tried = scale(best, name, step)
            if (found := judge(corpora, tried)) > most:
                best, most = tried, found
    return best


def scale(weights: RankingWeights, name: str, step: float) -> RankingWeights:
    """Return the weights with one of them changed; that of meaning, of the table only."""
    if name == "meaning":
        known = weights.meaning[StaticEmbedder.name]
        changed = {StaticEmbedder.name: round(known * step, 3)}
        return replace(weights, meaning={**weights.meaning, **changed})
    value: float = getattr(weights, name)
    return replace(weights, **{name: round(value * step, 3)})


def judge(corpora: Corpora, weights: RankingWeights) -> float:
    return mean(rate(questions, weights) for questions in corpora.values())


def describe(corpora: Corpora, weights: RankingWeights) -> str:
    rates = {name: rate(questions, weights) for name, questions in corpora.items()}
    told = "  ".join(f"{name} {found:.2f}" for name, found in rates.items())
    return f"{told}  mean {mean(rates.values()):.3f}"


def rate(questions: Sequence[Question], weights: RankingWeights) -> float:
    """Return recall@5 over that of BM25."""
    found = mean(recall(answer(one, weights), one.evidence) for one in questions)
    return found / mean(one.bm25 for one in questions)


def answer(asked: Question, weights: RankingWeights) -> list[str]:
    find = rank.rank_groups if asked.whole else rank.rank_documents
    hits = find(asked.query, asked.candidates, weights=weights)
    return list(dict.fromkeys(asked.turns[hit.id] for hit in hits))


def recall(found: Sequence[str], evidence: Sequence[str]) -> float:
    return len(set(found[:FOUND]).intersection(evidence)) / len(evidence)


def load_corpora(lab: Path, scratch: Path, *, count: int) -> dict[str, list[Question]]:
    """Put every corpus into indexes, and gather the candidates of some questions of each."""
    scorer = load_scorer(lab / "memory")
    corpora: dict[str, list[Question]] = {}
    for name, conversations in read_corpora(scorer, lab).items():
        every = [
            question
            for at, conversation in enumerate(conversations)
            for question in gather(
                scorer, lab, conversation, home=scratch / f"{name}-{at}", each=count
            )
        ]
        corpora[name] = every[:: max(1, len(every) // count)]
        print(f"{name}: {len(corpora[name])} of {len(every)}", file=sys.stderr, flush=True)
    return corpora


def read_corpora(scorer: Any, lab: Path) -> dict[str, list[Conversation]]:
    """Read the sets, and make conversations of the recorded sessions."""
    corpora: dict[str, list[Conversation]] = {
        path.name.removesuffix(".jsonl.gz"): scorer.load(str(path.parent), path.name[:-9])
        for path in sorted((lab / "memory").glob("*.jsonl.gz"))
    }
    index = [json.loads(line) for line in (lab / "trajectories" / "INDEX.jsonl").open()]
    written: dict[str, list[Any]] = defaultdict(list)
    for line in QUESTIONS_FILE.read_text("utf-8").splitlines():
        row = json.loads(line)
        written[row["set"]].append(row)
    for name, rows in written.items():
        repositories = {
            entry["source"]["repo"]
            for row in rows
            for entry in index
            if entry["id"] == row["session"]
        }
        sessions = [
            read_session(lab, entry) for entry in index if entry["source"]["repo"] in repositories
        ]
        questions = [
            {
                "q": row["q"],
                "category": name,
                "evidence": [f"{row['session']}:{number}" for number in row["evidence"]],
            }
            for row in rows
        ]
        corpora[name] = [{"id": name, "sessions": sessions, "questions": questions}]
    repeated = [read_session(lab, one) for one in index if one["source"]["repo"] == ASKED_AGAIN]
    corpora["asked-again"] = [ask_again(repeated)]
    return corpora


def read_session(lab: Path, entry: Any) -> Any:
    """Read what people and the model said in a recorded session."""
    turns: list[Any] = []
    with gzip.open(
        lab / "trajectories" / f"{entry['id']}.jsonl.gz", "rt", encoding="utf-8"
    ) as file:
        for row in map(json.loads, file):
            if row["type"] != "message" or (row["role"] == "user" and row["origin"] != "human"):
                continue
            said = "\n".join(
                part["text"] for part in row["content"] if part["type"] == "text"
            ).strip()
            if said:
                id = f"{entry['id']}:{row['i']}"
                turns.append({"id": id, "who": row["role"], "text": said, "time": row.get("ts")})
    return {"id": entry["id"], "time": entry["started"], "turns": turns}


def ask_again(sessions: Sequence[Any]) -> Conversation:
    """Take the users' questions out of sessions; what answered them last is the evidence."""
    kept, questions = list[Any](), list[Any]()
    for session in sessions:
        turns, left = session["turns"], list[Any]()
        for at, turn in enumerate(turns):
            reply: Any = next(_replies(turns[at + 1 :]), None)
            asks = turn["who"] == "user" and turn["text"].endswith("?") and reply
            if asks and 25 < len(turn["text"]) < 400 and turn["text"][0] not in "<[":
                row = {"q": turn["text"], "category": "again", "evidence": [reply["id"]]}
                questions.append(row)
            else:
                left.append(turn)
        kept.append({**session, "turns": left})
    return {"id": "asked-again", "sessions": kept, "questions": questions}


def _replies(turns: Sequence[Any]) -> Iterator[Any]:
    """Yield the last reply before the user speaks again."""
    replies = list(takewhile(lambda turn: turn["who"] != "user", turns))
    yield from (one for one in replies[-1:] if len(one["text"]) > MIN_REPLY_CHARS)


def gather(
    scorer: Any, lab: Path, conversation: Conversation, *, home: Path, each: int
) -> Iterator[Question]:
    """Index a conversation and yield some of its questions with their candidates."""
    ids, texts = read_texts(scorer, lab / "memory", conversation)
    index = SessionIndex(TravoisHome(home), {}, embedder=StaticEmbedder())
    known, now = put_sessions(index, conversation, texts)
    whole = any("text" not in turn for _, turn in list_turns(conversation))
    baseline = scorer.BM25(texts)
    asked = scorer.questions(conversation)
    for row in asked[:: max(1, len(asked) // each)]:
        width = MAX_GROUP_CANDIDATES if whole else MAX_CANDIDATES
        query, candidates, marks = index.find_candidates(row["q"], now=now, width=width)
        turns = {
            one.document.id: known[marks[one.document.group].id][int(one.document.turn)]
            for one in candidates
        }
        if whole:
            turns = {group: mark.id for group, mark in marks.items()}
        found: list[str] = [ids[at] for at in baseline.rank(row["q"])]
        yield Question(
            query, candidates, turns, row["evidence"], recall(found, row["evidence"]), whole
        )
    index.close()


if __name__ == "__main__":
    main()
