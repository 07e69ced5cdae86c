"""An embedder for tests: texts that share words are near."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import pytest

np = pytest.importorskip("numpy", reason="vectors need numpy")


class Hashed:
    name, size = "hashed", 32

    def __init__(self, name: str = name) -> None:
        self.name = name
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> bytes:
        self.asked += texts
        rows = np.full((len(texts), self.size), 1e-6, np.float32)
        for at, text in enumerate(texts):
            for word in text.lower().split():
                rows[at, crc32(word.encode(errors="replace")) % self.size] += 1
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32).tobytes()
