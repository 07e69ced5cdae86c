"""Git worktrees for subagents and sessions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copy2

import anyio
import msgspec

from travois.core.display_text import complain
from travois.core.errors import Fault
from travois.engine.agent import Agent
from travois.engine.permission_gate import wary
from travois.files.disk import DiskFiles
from travois.permissions.paths import inside
from travois.permissions.sandbox_profile import Cage
from travois.ports.tool import Refusal
from travois.ports.world import Files, Processes
from travois.process.run import LocalProcesses
from travois.sessions.home import identify, locate
from travois.sessions.home import repository as repository_of
from travois.settings.load import load
from travois.tools import git as repository
from travois.tools.git import Repository

FOLDER = ".travois/worktrees"
INCLUDED = ".worktreeinclude"
IGNORED = ("ls-files", "-z", "--others", "--ignored")
NAME = re.compile(r"[\w.-]+")
LEAVING = 30.0
"""The seconds that removing a worktree may take when its subagent has ended."""


class Ground(msgspec.Struct, frozen=True):
    """The folder, files and processes that git runs with."""

    cwd: str
    files: Files
    processes: Processes
    wary: Cage | None = None


class Worktree(msgspec.Struct, frozen=True):
    """A git worktree: a folder with the files of a commit."""

    ground: Ground
    repo: Repository
    path: str
    branch: str
    shared: tuple[str, ...] = ()
    """Folders in it that are links to those of the repository."""

    @property
    def root(self) -> str:
        """The folder in it that corresponds to the parent's workspace."""
        below = os.path.relpath(self.ground.cwd, self.repo.top)
        return os.path.normpath(os.path.join(self.path, below))

    @property
    def note(self) -> str:
        """The location and branch, in words."""
        return f"Its changes are in the git worktree {self.path}, on the branch {self.branch}."

    async def left(self) -> bool:
        """Remove the worktree if it is unchanged; return whether it was removed."""
        with anyio.move_on_after(LEAVING, shield=True):
            return await _removed(self)
        return False


async def add(agent: Agent, name: str, *, shared: tuple[str, ...] = ()) -> Worktree:
    """Create a worktree of the last commit; `shared` folders are linked."""
    return await _added(_ground(agent), name, shared=shared)


async def reopen(agent: Agent, name: str, *, shared: tuple[str, ...] = ()) -> Worktree:
    """Return the worktree of that name; create it again if it was removed."""
    return await _found(_ground(agent), name, shared)


async def existing(agent: Agent, path: str) -> Worktree:
    """Return the worktree at a path, if it belongs to the agent's repository."""
    ground = _ground(agent)
    repo = await repository.find(ground)
    listed = repository.text(
        await repository.ask(ground, repo, ("worktree", "list", "--porcelain"))
    )
    wanted = os.path.realpath(path)
    for block in listed.split("\n\n"):
        lines = block.splitlines()
        if lines and os.path.realpath(lines[0].removeprefix("worktree ")) == wanted:
            branches = (line.removeprefix("branch refs/heads/") for line in lines)
            branch = next((b for b, line in zip(branches, lines, strict=True) if b != line), "")
            return Worktree(ground, repo, wanted, branch or "(detached)")
    raise Refusal(f"{path} is not a worktree of {repo.top}. `git worktree list` shows them.")


async def at(agent: Agent, root: str, path: str, *, branch: str) -> Worktree:
    """Return a worktree that was created from another folder of the repository."""
    ground = _ground(agent, root)
    return Worktree(ground, await repository.find(ground), path, branch)


def _ground(agent: Agent, root: str = "") -> Ground:
    world, root = agent.world, root or agent.world.root
    top, git = repository_of(root)
    around = wary(agent, writes=(os.path.join(top, FOLDER), git)) if top else None
    return Ground(root, world.files, world.processes, around)


async def _added(ground: Ground, name: str, *, shared: tuple[str, ...]) -> Worktree:
    repo = await repository.find(ground)
    path = os.path.join(repo.top, FOLDER, name)
    tree = Worktree(ground, repo, path, f"travois/{name}", shared)
    _hide(Path(repo.top, FOLDER))
    words = ("worktree", "add", "-q", "-b", tree.branch, tree.path, "HEAD")
    await repository.ask(ground, repo, words)
    included = await _included(msgspec.structs.replace(ground, cwd=repo.top), repo)
    await anyio.to_thread.run_sync(_furnish, tree, included)
    return tree


async def _included(ground: Ground, repo: Repository) -> tuple[str, ...]:
    """Return ignored files that the repository wants in its worktrees."""
    if not os.path.isfile(os.path.join(repo.top, INCLUDED)):
        return ()
    listed = [
        repository.text(await repository.ask(ground, repo, (*IGNORED, how))).split("\0")
        for how in (f"--exclude-from={INCLUDED}", "--exclude-standard")
    ]
    return tuple(path for path in listed[0] if path and path in listed[1])


def _furnish(tree: Worktree, included: tuple[str, ...]) -> None:
    """Copy files into a worktree and link folders; existing ones stay."""
    for name in (*included, *tree.shared):
        old, new = Path(tree.repo.top, name), Path(tree.path, name)
        if not inside(os.path.realpath(old), tree.repo.top) or old.is_symlink() or new.exists():
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        if old.is_dir() and name in tree.shared:
            new.symlink_to(old)
        elif old.is_file():
            copy2(old, new)


def within(name: str, work: Callable[[], int]) -> int:
    """Run work in a worktree that is removed if unchanged; return the exit code."""
    if name and not NAME.fullmatch(name):
        raise Fault(
            f"--worktree {name} is not a valid name", fix="Use letters, digits, dots and dashes."
        )
    before = os.getcwd()
    ground = Ground(before, DiskFiles(), LocalProcesses())
    try:
        tree = anyio.run(_found, ground, name or f"{os.urandom(4).hex()}", _shared())
    except Refusal as refusal:
        raise Fault("A worktree cannot be created here", why=str(refusal)) from None
    os.chdir(tree.root)
    try:
        return work()
    finally:
        os.chdir(before)
        if not anyio.run(tree.left):
            complain(f"travois: {tree.note}\n")


def _shared() -> tuple[str, ...]:
    home, cwd = locate(os.environ), os.path.realpath(os.getcwd())
    loaded = load(home, identify(home, cwd).root, cwd=cwd, environ=os.environ)
    return loaded.settings.worktree.symlink_directories


async def _found(ground: Ground, name: str, shared: tuple[str, ...]) -> Worktree:
    """Return the worktree of that name; create it if there is none."""
    repo = await repository.find(ground)
    path = os.path.join(repo.top, FOLDER, name)
    if os.path.isdir(path):
        return Worktree(ground, repo, path, f"travois/{name}", shared)
    return await _added(ground, name, shared=shared)


def _hide(folder: Path) -> None:
    """Keep worktrees out of what git shows of the workspace."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", "utf-8")


async def unsaved_work(tree: Worktree) -> str:
    """Return what would be lost with a worktree, in words; empty if nothing."""
    ground, repo, ref = tree.ground, tree.repo, f"refs/heads/{tree.branch}"
    there = msgspec.structs.replace(ground, cwd=tree.path)
    holding = ("for-each-ref", "--contains", "HEAD", "--format=%(refname)", "refs/heads")
    changed = repository.text(await repository.ask(there, repo, ("status", "--porcelain")))
    dirty = set(changed.splitlines()) - {f"?? {name}" for name in tree.shared}
    if dirty:
        some = ", ".join(sorted(line[3:] for line in dirty)[:5])
        return f"{len(dirty)} files have uncommitted changes ({some})"
    if repository.text(await repository.ask(there, repo, holding)).split() == [ref]:
        return f"{tree.branch} has commits that no other branch has"
    return ""


async def discard(tree: Worktree) -> None:
    """Remove a worktree and its branch, with everything in them."""
    ground, repo = tree.ground, tree.repo
    await repository.ask(ground, repo, ("worktree", "remove", "--force", tree.path))
    await repository.ask(ground, repo, ("branch", "-q", "-D", tree.branch))


async def _removed(tree: Worktree) -> bool:
    try:
        if await unsaved_work(tree):
            return False
        await discard(tree)
    except (Refusal, OSError):
        return False
    return True
