"""A session lets its memories be found by meaning, little by little, and waits for none of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.search.hashed import Hashed
from travois.compose.memory import LazyMemories, open_memories_here
from travois.memory.memory import Memory, PutMemory
from travois.search import embedder as minilm
from travois.sessions.home import TravoisHome, identify_project
from travois.settings.load import load_settings

MANY = 100


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyMemories:
    home, folder = TravoisHome(tmp_path / "home").prepare(), tmp_path / "work"
    folder.mkdir()

    def find(stamp: Path) -> Hashed:
        return Hashed()

    monkeypatch.setattr(minilm, "find_embedder", find)
    project = identify_project(home, str(folder))
    held = LazyMemories(home, project, load_settings(home, project.root, environ={}))
    puts = [PutMemory(Memory(f"m-{n}", f"fact {n} on topic {n}", "project")) for n in range(MANY)]
    held.apply(puts, why="test")
    return held


def searched(held: LazyMemories, work: Sequence[str]) -> list[Callable[[], Awaitable[None]]]:
    jobs: list[Callable[[], Awaitable[None]]] = []
    held.behind = lambda: jobs.append(held.catch_up)

    async def main() -> None:
        for text in work:
            await anyio.to_thread.run_sync(partial(held.search, text, limit=5))
        waits = held.count_unembedded()
        for job in jobs:
            await job()
        assert (waits, held.count_unembedded()) == (MANY - 64, 0)

    anyio.run(main)
    return jobs


def test_what_an_update_left_is_caught_up_with_once(known: LazyMemories) -> None:
    assert len(searched(known, ("topic 7", "topic 8"))) == 1


def test_people_search_with_the_same_index(known: LazyMemories) -> None:
    searched(known, ("topic 7",))
    seen = open_memories_here(known._home, known._project, known._loaded)
    assert (seen.stats().waiting, seen.search("topic 7", limit=1)[0].name) == (0, "m-7")
