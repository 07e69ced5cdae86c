"""The memory folder: what is kept, found, undone, proposed; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from travois.context.memory.memory import Drop, Evidence, Memory, Put
from travois.kernel.faults import Fault
from travois.store.home import Home
from travois.store.memory.memories import FolderMemories, open_memories
from travois.store.project import Project

AUTO = {"project": "auto", "user": "auto", "team": "ask"}
UV = Memory("use-uv", "Use uv, never pip", "feedback", "Packages are installed with uv.")
PORT = Memory("port", "The API listens on 8080", "project", author="tool")


def opened(tmp_path: Path, **more: object) -> FolderMemories:
    settings = {"consent": AUTO, "index": None, "trusted": True, "clock": lambda: 100.5} | more
    return open_memories(
        Home(tmp_path / "home"), Project("git-a", str(tmp_path / "work")), **settings
    )


@pytest.fixture
def memories(tmp_path: Path) -> FolderMemories:
    return opened(tmp_path)


def stamped(memory: Memory) -> Memory:
    return replace(memory, created=100.5, modified=100.5, verified=100.5)


def test_what_is_kept_is_there_for_the_next_process(
    memories: FolderMemories, tmp_path: Path
) -> None:
    mine = replace(UV, scope="user", evidence=(Evidence("s", 3, "user", "use uv"),))
    done = memories.apply([Put(PORT), Put(mine)], why="learnt", session="s")
    assert (done.refused, done.diff) == (
        (),
        "--- /dev/null\n+++ port.md\n+The API listens on 8080 (project, said by tool)\n"
        "--- /dev/null\n+++ use-uv.md\n+Use uv, never pip (feedback, said by user)\n"
        "+Packages are installed with uv.",
    )
    again = opened(tmp_path)
    assert again.all() == (stamped(PORT), stamped(mine))
    assert again.get("use-uv") == stamped(mine)
    made = again.history()
    assert [(one.id, one.why, one.session, one.undone) for one in made] == [
        (done.id, "learnt", "s", False)
    ]
    folder = again.folders()["user"]
    assert (folder / "MEMORY.md").read_text() == "- [use-uv](use-uv.md): Use uv, never pip\n"


def test_an_undone_change_leaves_everything_as_it_was(memories: FolderMemories) -> None:
    memories.apply([Put(UV), Put(PORT)], why="one")
    kept = memories.all()
    night = memories.apply([Drop("use-uv"), Put(replace(PORT, body="or 9090"))], why="night")
    assert memories.all() != kept
    assert memories.undo(night.id).diff.endswith("--- port.md\n+++ port.md\n-or 9090")
    assert memories.all() == kept
    assert [one.undone for one in memories.history()] == [False, True, False]
    memories.undo()
    assert memories.all() == ()
    assert not (memories.folders()["project"] / "MEMORY.md").exists()
    with pytest.raises(Fault, match="There is nothing to undo"):
        memories.undo()
