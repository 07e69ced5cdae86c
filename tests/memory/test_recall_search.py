"""What is recalled for a prompt: little of what does not help, hardly anything missed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.memory.asked import MEMORIES, PROMPTS
from travois.memory.memory import Memory, PutMemory
from travois.memory.recall import MAX_RECALL_CANDIDATES, MAX_RECALLED_MEMORIES
from travois.memory.store import FolderMemoryStore, open_memories
from travois.search.embedder import NoEmbedder, StaticEmbedder, find_embedder
from travois.search.index import SearchIndex
from travois.sessions.home import Project, TravoisHome

Way = Literal["meaning", "static", "index", "words"]


class Figures(msgspec.Struct):
    shown: int = 0
    right: int = 0
    wanted: int = 0
    idle: int = 0
    """Prompts that nothing helps with, and that are shown something."""


def opened(folder: Path, way: Way) -> FolderMemoryStore:
    embedder = find_embedder(folder / "stamp.json") if way == "meaning" else None
    if way == "static":
        embedder = StaticEmbedder()
    if isinstance(embedder, NoEmbedder):
        pytest.skip(embedder.why)
    index = None if way == "words" else SearchIndex(folder / "index.db", embedder)
    project = Project("dir-1", str(folder))
    held = open_memories(
        TravoisHome(folder), project, consent={"project": "auto"}, index=index, trusted=True
    )
    held.apply(
        [PutMemory(Memory(name, text, "project", text)) for name, text in MEMORIES.items()], why=""
    )
    return held


def measured(held: FolderMemoryStore) -> Figures:
    figures = Figures()
    for text, wanted in PROMPTS:
        names = {
            memory.name
            for memory in held.search(text, limit=MAX_RECALL_CANDIDATES)[:MAX_RECALLED_MEMORIES]
        }
        figures.shown += len(names)
        figures.right += len(names & set(wanted))
        figures.wanted += len(wanted)
        figures.idle += bool(names) and not wanted
    return figures


@pytest.mark.parametrize(
    ("way", "precision", "recall", "idle"),
    [
        ("meaning", 0.8, 0.95, 4),
        ("static", 0.7, 0.9, 9),
        ("index", 0.7, 0.9, 9),
        ("words", 0.65, 0.9, 10),
    ],
)
def test_what_is_shown_helps_and_what_helps_is_shown(
    tmp_path: Path, way: Way, precision: float, recall: float, idle: int
) -> None:
    found = measured(opened(tmp_path, way))
    assert (
        found.right >= precision * found.shown,
        found.right >= recall * found.wanted,
        found.idle <= idle,
    ) == (True, True, True), found


@pytest.mark.parametrize("way", ["index", "words"])
def test_a_long_prompt_recalls_nothing_for_one_common_word(tmp_path: Path, way: Way) -> None:
    long = "Please look at the way in which each node walks its children, file by file, and tell me"
    assert opened(tmp_path, way).search(long, limit=5) == ()


def test_the_set_is_large_enough() -> None:
    assert (
        len(MEMORIES) >= 40,
        len(PROMPTS) >= 80,
        set(MEMORIES) >= {name for _, wanted in PROMPTS for name in wanted},
    ) == (True, True, True)
