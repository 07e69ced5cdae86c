"""Git worktrees: several at once, as parallel subagents and runs make them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import anyio
import pytest

from tests.fleet.harness import git
from travois.compose.worktree import GitContext, create_worktree
from travois.files.disk import DiskFiles
from travois.process.local_processes import LocalProcesses


@pytest.fixture
def context(tmp_path: Path) -> GitContext:
    git("init", "-q", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=tmp_path)
    return GitContext(str(tmp_path), DiskFiles(), LocalProcesses())


def list_worktrees(context: GitContext) -> list[str]:
    return git("worktree", "list", cwd=Path(context.cwd)).splitlines()


async def create_and_remove(context: GitContext, name: str) -> None:
    tree = await create_worktree(context, name, shared=())
    assert await tree.remove_if_unused()


def test_a_worktree_is_not_created_while_another_process_changes_one(context: GitContext) -> None:
    """git would fail at one that is half made."""
    held = os.open(os.path.join(context.cwd, ".git"), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    folder = Path(context.cwd, ".travois", "worktrees")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(create_and_remove, context, "one")
            await anyio.sleep(0.5)  # enough for git, if nothing holds it back
            assert len(list_worktrees(context)) == 1
            os.close(held)

    anyio.run(main)
    assert not (folder / "one").exists()


def test_worktrees_can_be_created_and_removed_at_once(context: GitContext) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(create_and_remove, context, f"tree-{number}")

    anyio.run(main)
    assert len(list_worktrees(context)) == 1
