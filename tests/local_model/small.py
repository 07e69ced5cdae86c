"""SmolLM2 for tests: its file, and files that are like it but for what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.local_model.llamacpp import llamacpp_load_problem
from travois.local_model.model import SMOLLM_FILE, SMOLLM_PACKAGE
from travois.search.embedder import find_weights_package

HERE = Path(find_weights_package(SMOLLM_PACKAGE) or "/nowhere", SMOLLM_FILE)
PROBLEM = llamacpp_load_problem() if HERE.exists() else "the weights are not installed"
needs_engine = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)


def without_layers(path: Path) -> Path:
    """A file that makes llama.cpp abort the process that it runs in."""
    data, name = bytearray(HERE.read_bytes()), b"llama.block_count"
    at = data.find(name) + len(name) + 4
    data[at : at + 4] = bytes(4)
    path.write_bytes(data)
    return path


def torn(path: Path) -> Path:
    """A file of which only the beginning came."""
    path.write_bytes(HERE.read_bytes()[:2_500_000])
    return path
