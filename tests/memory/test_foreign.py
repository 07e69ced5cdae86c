"""Memories of other agents and of the team: read as they are, never changed, trusted when told."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.memory.test_memories import AUTO, PORT, UV, opened
from travois.core.errors import UserError
from travois.memory.memory import PutMemory
from travois.memory.store import FolderMemoryStore, share_with_team
from travois.sessions.home import Project, TravoisHome


@pytest.fixture
def memories(tmp_path: Path) -> FolderMemoryStore:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    return opened(tmp_path)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def brief(memories: FolderMemoryStore) -> list[tuple[str, str, str, str, str]]:
    return [(m.name, m.type, m.author, m.scope, m.description) for m in memories.read_all()]


def test_the_folder_of_claude_code_is_read_in(memories: FolderMemoryStore, tmp_path: Path) -> None:
    slug = "".join(char if char.isalnum() else "-" for char in str(tmp_path / "work"))
    theirs = tmp_path / "theirs" / "projects" / slug / "memory"
    theirs.mkdir(parents=True)
    (theirs / "MEMORY.md").write_text(
        "# Memory\n\n- [Tests](feedback_tests.md) — how tests run\n\nThe office closes at six.\n"
    )
    (theirs / "feedback_tests.md").write_text(
        "---\nname: Tests\ndescription: Run tests with -n 2\ntype: feedback\n"
        "modified: 2026-01-31T00:00:00.000Z\nmetadata:\n  node_type: memory\n---\n\nTwo cores.\n"
    )
    (theirs / "keys.md").write_text("The key is AKIA" + "A" * 16 + "\n")
    before = snapshot(theirs)
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path / "theirs")}
    done = memories.import_from("claude", environ=environ)
    assert done.refused == ("keys: it seems to contain a secret (AWS key)",)
    assert brief(memories) == [
        ("claude-memory", "reference", "model", "project", "Memory"),
        ("feedback-tests", "feedback", "model", "project", "Run tests with -n 2"),
    ]
    assert memories.get("claude-memory").body.endswith("The office closes at six.")
    told = memories.get("feedback-tests")
    assert (told.body, told.modified) == ("Two cores.", 1769817600.0)
    assert told.evidence[0].session == str(theirs / "feedback_tests.md")
    assert snapshot(theirs) == before
    assert memories.import_from("claude", environ=environ).id == ""
    assert "imported from claude" in {one.why for one in memories.history()}


def test_the_folder_of_codex_is_read_in(memories: FolderMemoryStore, tmp_path: Path) -> None:
    theirs = tmp_path / ".codex" / "memories"
    (theirs / "rollout_summaries").mkdir(parents=True)
    (theirs / "memory_summary.md").write_text(
        "## User Profile\n\nWrites Go.\n\n## User preferences\n\n- Short answers.\n"
    )
    (theirs / "MEMORY.md").write_text("# Task Group: billing\n\nPort 8080.\n" + "y" * 13_000)
    (theirs / "raw_memories.md").write_text("# Raw\n\nNot for others.\n")
    before = snapshot(theirs)
    memories.import_from("codex", environ={"HOME": str(tmp_path)})
    assert brief(memories) == [
        ("codex-task-group-billing-2", "reference", "model", "user", "Task Group: billing"),
        ("codex-task-group-billing", "reference", "model", "user", "Task Group: billing"),
        ("codex-user-preferences", "feedback", "model", "user", "User preferences"),
        ("codex-user-profile", "user", "model", "user", "User Profile"),
    ]
    assert snapshot(theirs) == before


def test_a_name_that_is_taken_does_not_overwrite(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    memories.add(UV)
    other = tmp_path / "notes"
    other.mkdir()
    (other / "use-uv.md").write_text("Something else.\n")
    memories.import_from(str(other))
    memories.import_from(str(other))
    assert [(one.name, one.body) for one in memories.read_all()] == [
        ("use-uv-notes", "Something else."),
        ("use-uv", UV.body),
    ]


def test_what_is_not_there_is_told(memories: FolderMemoryStore, tmp_path: Path) -> None:
    for source in ("claude", "codex", str(tmp_path / "nothing")):
        with pytest.raises(UserError, match="There are no memories of"):
            memories.import_from(source, environ={"HOME": str(tmp_path)})
    assert memories.read_all() == ()


def test_the_team_folder_counts_once_it_is_shared_and_only_with_trust(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    ours = tmp_path / "work" / ".travois" / "memory"
    ours.mkdir(parents=True)
    (ours / "theirs.md").write_text("Came with the repository.\n")
    assert opened(tmp_path).read_all() == ()
    project = Project("git-a", str(tmp_path / "work"))
    assert share_with_team(TravoisHome(tmp_path / "home"), project) == ours
    assert opened(tmp_path, trusted=False).read_all() == ()
    team = opened(tmp_path, consent=AUTO | {"team": "auto"})
    assert [(one.name, one.scope) for one in team.read_all()] == [("theirs", "team")]
    done = team.apply([PutMemory(replace(UV, scope="team")), PutMemory(PORT)], why="w")
    assert sorted(path.name for path in ours.iterdir()) == ["MEMORY.md", "theirs.md", "use-uv.md"]
    team.propose([PutMemory(replace(PORT, scope="team"))], why="w")
    assert sorted(path.name for path in ours.iterdir()) == ["MEMORY.md", "theirs.md", "use-uv.md"]
    assert [one.change for one in team.inbox()] == [PutMemory(replace(PORT, scope="team"))]
    team.undo(done.id)
    assert [one.name for one in team.read_all()] == ["theirs"]
    share_with_team(TravoisHome(tmp_path / "home"), project)


def test_a_team_folder_that_leads_elsewhere_does_not_count(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    project = Project("git-a", str(tmp_path / "work"))
    ours = share_with_team(TravoisHome(tmp_path / "home"), project)
    ours.rmdir()
    private = tmp_path / "private"
    private.mkdir()
    (private / "a.md").write_text("Private.\n")
    ours.symlink_to(private)
    assert opened(tmp_path).read_all() == ()
    assert "team" not in opened(tmp_path).folders()
    with pytest.raises(UserError, match="cannot be shared: a symbolic link leads out"):
        share_with_team(TravoisHome(tmp_path / "home"), project)
