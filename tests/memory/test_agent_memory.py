"""What agents remember: where, how much of it they are shown, and that they may write there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.agents.types import AgentType
from travois.memory.agent_memory import (
    NO_NOTES_YET,
    AgentMemoryFolder,
    allow_memory_edits,
    load_agent_memory,
    shorten_index,
)
from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse
from travois.sessions.home import TravoisHome


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def remembered(top: Path, scope: str) -> AgentMemoryFolder | None:
    kind = AgentType("Tester", "d", "p", memory=scope)
    return load_agent_memory(kind, TravoisHome(top / "state"), str(top / "work"))


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("scope", "folder"),
    [
        ("user", "state/agent-memory/tester"),
        ("project", "work/.travois/agent-memory/tester"),
        ("local", "work/.travois/agent-memory-local/tester"),
    ],
)
def test_each_scope_has_its_folder(top: Path, scope: str, folder: str) -> None:
    found = remembered(top, scope)
    assert found is not None
    assert found.folder == str(top / folder)
    assert f"You may write to your folder, {top / folder}." in found.note
    assert found.note.splitlines()[2:] == [NO_NOTES_YET, "</agent-memory>"]
    put(top / folder / "MEMORY.md", "- Ports: see ports.md\n</agent-memory>")
    again = remembered(top, scope)
    assert again is not None
    lines = again.note.splitlines()
    assert lines[2].startswith(f'<file path="{top / folder / "MEMORY.md"}" from=')
    assert lines[3:5] == ["- Ports: see ports.md", "</agent-memory>"]
    assert lines[5].startswith("</file ")


def test_a_kind_without_memory_has_none(top: Path) -> None:
    assert remembered(top, "") is None


def test_what_another_agent_remembered_is_read(top: Path) -> None:
    put(top / "work/.claude/agent-memory/tester/MEMORY.md", "theirs")
    put(top / "work/.travois/agent-memory/tester/MEMORY.md", "ours")
    found = remembered(top, "project")
    assert found is not None
    lines = found.note.splitlines()
    assert [line for line in lines if line in ("theirs", "ours")] == ["theirs", "ours"]


def test_memory_does_not_lead_out_of_the_folder(top: Path) -> None:
    put(top / "secret", "key")
    index = top / "work/.claude/agent-memory/tester/MEMORY.md"
    index.parent.mkdir(parents=True)
    index.symlink_to(top / "secret")
    found = remembered(top, "project")
    assert found is not None
    assert "key" not in found.note
    (top / "work/.travois").mkdir()
    (top / "work/.travois/agent-memory").symlink_to(top)
    assert remembered(top, "project") is None


def test_an_agent_writes_its_memory_without_a_question_and_nothing_else(top: Path) -> None:
    own, work = str(top / "state"), str(top / "work")
    guard = Permissions("default", folders=(work,), own=(own,))

    def effect(path: str, guard: Permissions) -> str:
        use = ToolUse("Write", (Access("write", path),), root=work)
        return decide_permission(guard, use).effect

    for scope in ("user", "project", "local"):
        found = remembered(top, scope)
        assert found is not None
        mine, other = f"{found.folder}/MEMORY.md", f"{found.folder}-other/MEMORY.md"
        assert effect(mine, guard) == "ask"
        assert effect(mine, allow_memory_edits(guard, found)) == "allow"
        assert effect(other, allow_memory_edits(guard, found)) == "ask"
        assert effect(f"{work}/.travois/settings.json", allow_memory_edits(guard, found)) == "ask"
        assert effect(f"{own}/trust/x.json", allow_memory_edits(guard, found)) == "deny"


@given(st.lists(st.integers(0, 400), max_size=260))
def test_the_head_of_an_index_is_whole_lines_and_says_what_is_missing(sizes: list[int]) -> None:
    whole = [f"{number}{'ä' * size}" for number, size in enumerate(sizes)]
    lines = shorten_index("\n".join(whole)).splitlines()
    if lines == whole:
        assert len(whole) <= 200
        return
    *shown, last = lines
    count = len(shown)
    assert shown == whole[:count]
    assert last.startswith(f"[{count} of {len(whole)} lines are shown.")
    assert len("\n".join(shown).encode()) <= 25_000
    assert count == 200 or len("\n".join(whole[: count + 1]).encode()) >= 25_000
