"""Searching memories: by the index, by words without it, and nothing where nothing fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.memory.test_memories import PORT, UV, opened
from travois.memory.memory import Memory, PutMemory
from travois.memory.store import FolderMemoryStore
from travois.search.embedder import NoEmbedder, StaticEmbedder, find_embedder
from travois.search.index import SearchIndex

FRIDAY = Memory("friday", "No deploys on Friday", "feedback", scope="user")
TESTS = Memory("tests", "Run tests with pytest -n 2", "project", "The machine has two cores.")
KNOWN = (PORT, TESTS, UV, FRIDAY)


def names(memories: FolderMemoryStore, text: str, limit: int = 5) -> list[str]:
    return [memory.name for memory in memories.search(text, limit=limit)]


@pytest.fixture(params=["index", "words"])
def memories(request: pytest.FixtureRequest, tmp_path: Path) -> FolderMemoryStore:
    index = SearchIndex(tmp_path / "index.sqlite", None) if request.param == "index" else None
    memories = opened(tmp_path, index=index)
    memories.apply([PutMemory(memory) for memory in KNOWN], why="w")
    return memories


def test_what_shares_words_is_found_and_nothing_else(memories: FolderMemoryStore) -> None:
    assert names(memories, "which port does the API listen on?") == ["port"]
    assert names(memories, "run the tests with two cores", limit=1) == ["tests"]
    assert names(memories, "a haiku about the sea") == []
    assert names(memories, "") == []
    assert names(memories, "is it the user that should use it always?") == []


def test_what_changes_is_found_as_it_is(memories: FolderMemoryStore, tmp_path: Path) -> None:
    assert names(memories, "redis") == []
    memories.add(Memory("queue", "The queue was in redis", "project"))
    assert names(memories, "redis") == ["queue"]
    path = memories.folders()["project"] / "queue.md"
    path.write_text("The queue is in postgres.\n")
    assert (
        names(opened(tmp_path, index=SearchIndex(tmp_path / "index.sqlite", None)), "redis") == []
    )
    assert names(
        opened(tmp_path, index=SearchIndex(tmp_path / "index.sqlite", None)), "postgres"
    ) == ["queue"]
    memories.forget("queue")
    assert names(memories, "postgres") == []


def test_an_edit_in_place_shows_in_what_is_found(memories: FolderMemoryStore) -> None:
    assert names(memories, "port") == ["port"]
    path = memories.folders()["project"] / "port.md"
    path.write_text(path.read_text().replace("8080", "9090, the port"))
    assert memories.search("port", limit=1)[0].description == "The API listens on 9090, the port"


def test_an_index_that_is_gone_or_junk_is_made_again(tmp_path: Path) -> None:
    place = tmp_path / "index.sqlite"
    memories = opened(tmp_path, index=SearchIndex(place, None))
    memories.apply([PutMemory(memory) for memory in KNOWN], why="w")
    assert names(memories, "port") == ["port"]
    place.unlink()
    assert names(memories, "port") == ["port"]
    place.write_bytes(b"junk" * 5_000)
    assert names(opened(tmp_path, index=SearchIndex(place, None)), "port") == ["port"]
    place.unlink()
    place.mkdir()
    assert names(opened(tmp_path, index=SearchIndex(place, None)), "port") == ["port"]


def test_only_what_changed_is_told_to_the_index(tmp_path: Path) -> None:
    told: list[list[str]] = []

    class Watched(SearchIndex):
        def update(self, collection, documents, **more):  # type: ignore[no-untyped-def]
            told.append([document.id for document in documents])
            return super().update(collection, documents, **more)

    place = tmp_path / "index.sqlite"
    memories = opened(tmp_path, index=Watched(place, None))
    memories.apply([PutMemory(memory) for memory in KNOWN], why="w")
    names(memories, "port")
    names(memories, "port")
    names(opened(tmp_path, index=Watched(place, None)), "port")
    memories.apply([PutMemory(replace(PORT, body="More."))], why="w")
    names(memories, "port")
    assert [sorted(one) for one in told if one] == [
        ["0/port.md", "0/tests.md", "0/use-uv.md", "1/friday.md"],
        ["0/port.md"],
    ]


def test_meaning_is_found_without_a_shared_word(tmp_path: Path) -> None:
    embedder = find_embedder(tmp_path / "stamp")
    if isinstance(embedder, NoEmbedder):
        pytest.skip(embedder.why)
    memories = opened(tmp_path, index=SearchIndex(tmp_path / "index.sqlite", embedder))
    memories.apply([PutMemory(memory) for memory in KNOWN], why="w")
    assert names(memories, "shall we release it at the weekend?") == ["friday"]
    assert names(memories, "write a haiku about the sea") == []
    assert names(memories, "what is the capital of France") == []


def test_what_replaced_a_memory_comes_before_it(tmp_path: Path) -> None:
    memories = opened(tmp_path, index=SearchIndex(tmp_path / "index.sqlite", StaticEmbedder()))
    for name, port, at in (("old", "8080", 100.0), ("new", "9090", 200.0)):
        text = f"The staging server of the shop listens on port {port}"
        memories.apply([PutMemory(Memory(name, text, "project", modified=at))], why="w")
    assert names(memories, "which port has the staging server") == ["new", "old"]
    assert names(memories, "what was on port 8080")[0] == "old"
