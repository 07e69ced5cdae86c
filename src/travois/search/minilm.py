"""The forward pass of MiniLM in numpy, for many texts at once and without padding."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]
HIDDEN_SIZE, ATTENTION_HEADS, LAYER_COUNT = 384, 12, 6
HEAD_WIDTH = HIDDEN_SIZE // ATTENTION_HEADS
OPENBLAS_THREAD_SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads")
"""What the library that multiplies for numpy calls its setting."""


class LinearLayer(msgspec.Struct, frozen=True):
    """A linear layer: weights and bias."""

    weight: Matrix
    bias: Matrix

    def __call__(self, rows: Matrix) -> Matrix:
        found: Matrix = rows @ self.weight
        found += self.bias
        return found


class LayerNorm(msgspec.Struct, frozen=True):
    """A layer normalisation with learned scale and bias."""

    weight: Matrix
    bias: Matrix

    def __call__(self, rows: Matrix) -> Matrix:
        rows -= rows.mean(axis=1, keepdims=True)
        spread = np.einsum("ij,ij->i", rows, rows) / np.float32(HIDDEN_SIZE)
        rows *= (1 / np.sqrt(spread + np.float32(1e-12)))[:, None]
        rows *= self.weight
        rows += self.bias
        return rows


class EncoderLayer(msgspec.Struct, frozen=True):
    """A transformer layer: self-attention, then a feed-forward network."""

    looks: LinearLayer
    """What each piece asks, what it answers to, and what it tells, side by side."""
    heard: LinearLayer
    heard_norm: LayerNorm
    wide: LinearLayer
    narrow: LinearLayer
    norm: LayerNorm

    def __call__(self, rows: Matrix, runs: Sequence[EqualLengthRun]) -> Matrix:
        rows = self.heard_norm(rows + self.heard(_apply_attention(self.looks(rows), runs)))
        return self.norm(rows + self.narrow(_apply_gelu(self.wide(rows))))


class EqualLengthRun(msgspec.Struct, frozen=True):
    """Consecutive texts of equal length."""

    start: int
    count: int
    length: int

    @property
    def row_slice(self) -> slice:
        return slice(self.start, self.start + self.count * self.length)


class MiniLmNet:
    """The network, built from its tensors."""

    def __init__(self, tensors: dict[str, Matrix]) -> None:
        self._pieces = tensors["embeddings.word_embeddings.weight"]
        self._places: Matrix = (
            tensors["embeddings.position_embeddings.weight"]
            + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = _load_norm(tensors, "embeddings.LayerNorm")
        self._layers = [
            _load_layer(tensors, f"encoder.layer.{number}.") for number in range(LAYER_COUNT)
        ]

    def __call__(self, texts: Sequence[Sequence[int]]) -> Matrix:
        """Return a row of unit length for each text; the texts come sorted by length."""
        runs = _group_by_length(texts)
        rows = self._norm(
            self._pieces[np.concatenate([np.asarray(text) for text in texts])]
            + np.concatenate([self._places[: len(text)] for text in texts])
        )
        for layer in self._layers:
            rows = layer(rows, runs)
        means = [
            rows[run.row_slice].reshape(run.count, run.length, HIDDEN_SIZE).mean(axis=1)
            for run in runs
        ]
        found: Matrix = np.concatenate(means)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def use_one_blas_thread() -> None:
    """Limit MiniLM's BLAS to one thread: two would slow each other down on a busy machine."""
    for path in Path(np.__file__).parents[1].glob("numpy.libs/*openblas*"):
        library = ctypes.CDLL(str(path))
        for name in OPENBLAS_THREAD_SETTERS:
            if hasattr(library, name):
                getattr(library, name)(1)


def _group_by_length(texts: Sequence[Sequence[int]]) -> list[EqualLengthRun]:
    """Group consecutive texts of equal length, to be embedded together."""
    runs: list[EqualLengthRun] = []
    start = 0
    for length, same in groupby(map(len, texts)):
        runs.append(EqualLengthRun(start, len(list(same)), length))
        start += runs[-1].count * length
    return runs


def _apply_attention(looks: Matrix, runs: Sequence[EqualLengthRun]) -> Matrix:
    """Apply MiniLM's self-attention within each text."""
    heard: Matrix = np.empty((len(looks), HIDDEN_SIZE), np.float32)
    for run in runs:
        shape = (run.count, run.length, 3, ATTENTION_HEADS, HEAD_WIDTH)
        asks, keys, tells = looks[run.row_slice].reshape(shape).transpose(2, 0, 3, 1, 4)
        weights: Matrix = asks @ keys.swapaxes(-1, -2)
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        heard[run.row_slice] = (weights @ tells).transpose(0, 2, 1, 3).reshape(-1, HIDDEN_SIZE)
    return heard


def _apply_gelu(rows: Matrix) -> Matrix:
    """Apply MiniLM's GELU activation (tanh approximation) to a matrix."""
    bent = rows * rows
    bent *= np.float32(0.044715 * 0.7978845608)
    bent += np.float32(0.7978845608)
    bent *= rows
    np.tanh(bent, out=bent)
    bent += np.float32(1)
    bent *= rows
    bent *= np.float32(0.5)
    return bent


def _load_layer(tensors: dict[str, Matrix], lead: str) -> EncoderLayer:
    """Load the weights of one encoder layer of MiniLM."""
    asks, keys, tells = (
        _load_linear(tensors, f"{lead}attention.self.{name}") for name in ("query", "key", "value")
    )
    scale = np.float32(HEAD_WIDTH**-0.5)
    return EncoderLayer(
        looks=LinearLayer(
            np.hstack((asks.weight * scale, keys.weight, tells.weight)),
            np.hstack((asks.bias * scale, keys.bias, tells.bias)),
        ),
        heard=_load_linear(tensors, f"{lead}attention.output.dense"),
        heard_norm=_load_norm(tensors, f"{lead}attention.output.LayerNorm"),
        wide=_load_linear(tensors, f"{lead}intermediate.dense"),
        narrow=_load_linear(tensors, f"{lead}output.dense"),
        norm=_load_norm(tensors, f"{lead}output.LayerNorm"),
    )


def _load_linear(tensors: dict[str, Matrix], name: str) -> LinearLayer:
    return LinearLayer(tensors[f"{name}.weight"].T, tensors[f"{name}.bias"])


def _load_norm(tensors: dict[str, Matrix], name: str) -> LayerNorm:
    return LayerNorm(tensors[f"{name}.weight"], tensors[f"{name}.bias"])
