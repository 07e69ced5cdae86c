"""A git worktree of its own: for a child beside its parent, or for a whole session."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

from travois.engine.agent import World
from travois.engine.ports import Files, Processes
from travois.engine.tool import Refusal
from travois.kernel.faults import Fault
from travois.tools import repository
from travois.tools.repository import Repository

FOLDER = ".travois/worktrees"
LEAVING = 30.0
"""How many seconds looking after a worktree may take when its child has ended."""


class Ground(msgspec.Struct, frozen=True):
    """Where git runs."""

    cwd: str
    files: Files
    processes: Processes


class Worktree(msgspec.Struct, frozen=True):
    """A folder of its own with the files of a commit."""

    ground: Ground
    repo: Repository
    path: str
    branch: str

    @property
    def root(self) -> str:
        """The folder in it that the parent's workspace corresponds to."""
        below = os.path.relpath(self.ground.cwd, self.repo.top)
        return os.path.normpath(os.path.join(self.path, below))

    @property
    def note(self) -> str:
        """Where it is, in words."""
        return f"Its changes are in the git worktree {self.path}, on the branch {self.branch}."

    async def left(self) -> bool:
        """Remove it if nothing was done in it; whether that was so."""
        with anyio.move_on_after(LEAVING, shield=True):
            return await _removed(self)
        return False


async def add(world: World, name: str) -> Worktree:
    """Check out what was committed last, beside the workspace."""
    return await _added(Ground(world.root, world.files, world.processes), name)


async def _added(ground: Ground, name: str) -> Worktree:
    repo = await repository.find(ground)
    tree = Worktree(ground, repo, os.path.join(repo.top, FOLDER, name), f"travois/{name}")
    _hide(Path(repo.top, FOLDER))
    words = ("worktree", "add", "-q", "-b", tree.branch, tree.path, "HEAD")
    await repository.ask(ground, repo, words)
    return tree


def within(name: str, work: Callable[[], int]) -> int:
    """Work in a worktree, which goes again if nothing was done in it; returns the exit code."""
    from travois.host.files import DiskFiles
    from travois.host.process import LocalProcesses

    if re.search(r"[^\w.-]", name):
        raise Fault(f"--worktree {name} is no name", fix="Use letters, digits, dots and dashes.")
    before = os.getcwd()
    ground = Ground(before, DiskFiles(), LocalProcesses())
    try:
        tree = anyio.run(_found, ground, name or f"{os.urandom(4).hex()}")
    except Refusal as refusal:
        raise Fault("There can be no worktree here", why=str(refusal)) from None
    os.chdir(tree.root)
    try:
        return work()
    finally:
        os.chdir(before)
        if not anyio.run(tree.left):
            sys.stderr.write(f"travois: {tree.note}\n")


async def _found(ground: Ground, name: str) -> Worktree:
    """The worktree of that name, made if there is none."""
    repo = await repository.find(ground)
    path = os.path.join(repo.top, FOLDER, name)
    if os.path.isdir(path):
        return Worktree(ground, repo, path, f"travois/{name}")
    return await _added(ground, name)


def _hide(folder: Path) -> None:
    """Keep worktrees out of what git shows of the workspace."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", "utf-8")


async def _removed(tree: Worktree) -> bool:
    ground, repo, ref = tree.ground, tree.repo, f"refs/heads/{tree.branch}"
    there = msgspec.structs.replace(ground, cwd=tree.path)
    holding = ("for-each-ref", "--contains", "HEAD", "--format=%(refname)", "refs/heads")
    try:
        dirty = repository.text(await repository.ask(there, repo, ("status", "--porcelain")))
        if dirty or repository.text(await repository.ask(there, repo, holding)).split() == [ref]:
            return False
        await repository.ask(ground, repo, ("worktree", "remove", "--force", tree.path))
        await repository.ask(ground, repo, ("branch", "-q", "-D", tree.branch))
    except (Refusal, OSError):
        return False
    return True
