"""Git worktrees for subagents and sessions."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copy2

import anyio
import msgspec

from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.engine.agent import Agent
from travois.engine.permission_gate import sandbox_for_git
from travois.files.disk import DiskFiles
from travois.permissions.paths import is_inside
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.tool import ToolError
from travois.ports.world import Files, Processes
from travois.process.local_processes import LocalProcesses
from travois.sessions.home import find_repository as repository_of
from travois.sessions.home import identify_project, locate_home
from travois.settings.load import load_settings
from travois.tools import git as repository
from travois.tools.git import GitRepository

WORKTREES_FOLDER = ".travois/worktrees"
INCLUDE_FILE = ".worktreeinclude"
LIST_IGNORED_COMMAND = ("ls-files", "-z", "--others", "--ignored")
WORKTREE_NAME = re.compile(r"[\w.-]+")
LOCK_POLL_SECONDS = 0.02
REMOVAL_SECONDS = 30.0
"""The seconds that removing a worktree may take when its subagent has ended."""


class GitContext(msgspec.Struct, frozen=True):
    """The folder, files and processes that git runs with."""

    cwd: str
    files: Files
    processes: Processes
    wary: SandboxProfile | None = None


class Worktree(msgspec.Struct, frozen=True):
    """A git worktree: a folder with the files of a commit."""

    git: GitContext
    repo: GitRepository
    path: str
    branch: str
    shared: tuple[str, ...] = ()
    """Folders in it that are links to those of the repository."""

    @property
    def root(self) -> str:
        """The folder in it that corresponds to the parent's workspace."""
        below = os.path.relpath(self.git.cwd, self.repo.top)
        return os.path.normpath(os.path.join(self.path, below))

    @property
    def note(self) -> str:
        """The location and branch, in words."""
        return f"Its changes are in the git worktree {self.path}, on the branch {self.branch}."

    async def remove_if_unused(self) -> bool:
        """Remove the worktree if it is unchanged; return whether it was removed."""
        with anyio.move_on_after(REMOVAL_SECONDS, shield=True):
            return await _try_remove(self)
        return False


async def add_worktree(agent: Agent, name: str, *, shared: tuple[str, ...] = ()) -> Worktree:
    """Create a git worktree of the last commit; `shared` folders are linked."""
    return await create_worktree(_git_context(agent), name, shared=shared)


async def reopen_worktree(agent: Agent, name: str, *, shared: tuple[str, ...] = ()) -> Worktree:
    """Return the git worktree of that name, created again if it was removed."""
    return await _find_or_create(_git_context(agent), name, shared)


async def find_worktree(agent: Agent, path: str) -> Worktree:
    """Return the git worktree of the repository at a path; raise `ToolError` if it is none."""
    git = _git_context(agent)
    repo = await repository.find_repository(git)
    listed = repository.decode_git_output(
        await repository.run_git_query(git, repo, ("worktree", "list", "--porcelain"))
    )
    wanted = os.path.realpath(path)
    for block in listed.split("\n\n"):
        lines = block.splitlines()
        if lines and os.path.realpath(lines[0].removeprefix("worktree ")) == wanted:
            branches = (line.removeprefix("branch refs/heads/") for line in lines)
            branch = next((b for b, line in zip(branches, lines, strict=True) if b != line), "")
            return Worktree(git, repo, wanted, branch or "(detached)")
    raise ToolError(f"{path} is not a worktree of {repo.top}. `git worktree list` shows them.")


async def worktree_at(agent: Agent, root: str, path: str, *, branch: str) -> Worktree:
    """Return a git worktree that was created from another folder of the repository."""
    git = _git_context(agent, root)
    return Worktree(git, await repository.find_repository(git), path, branch)


def _git_context(agent: Agent, root: str = "") -> GitContext:
    """Return the folder, processes and sandbox with which git manages worktrees."""
    world, root = agent.world, root or agent.world.root
    top, git = repository_of(root)
    around = (
        sandbox_for_git(agent, writes=(os.path.join(top, WORKTREES_FOLDER), git)) if top else None
    )
    return GitContext(root, world.files, world.processes, around)


async def create_worktree(git: GitContext, name: str, *, shared: tuple[str, ...]) -> Worktree:
    """Create a worktree on a new branch, with the ignored files that it should have."""
    repo = await repository.find_repository(git)
    path = os.path.join(repo.top, WORKTREES_FOLDER, name)
    tree = Worktree(git, repo, path, f"travois/{name}", shared)
    _ignore_worktrees(Path(repo.top, WORKTREES_FOLDER))
    words = ("worktree", "add", "-q", "-b", tree.branch, tree.path, "HEAD")
    async with _lock_worktrees(repo):
        await repository.run_git_query(git, repo, words)
    included = await _list_included_files(msgspec.structs.replace(git, cwd=repo.top), repo)
    await anyio.to_thread.run_sync(_copy_included_files, tree, included)
    return tree


async def _list_included_files(git: GitContext, repo: GitRepository) -> tuple[str, ...]:
    """Return ignored files that the repository wants copied into its worktrees."""
    if not os.path.isfile(os.path.join(repo.top, INCLUDE_FILE)):
        return ()
    listed = [
        repository.decode_git_output(
            await repository.run_git_query(git, repo, (*LIST_IGNORED_COMMAND, how))
        ).split("\0")
        for how in (f"--exclude-from={INCLUDE_FILE}", "--exclude-standard")
    ]
    return tuple(path for path in listed[0] if path and path in listed[1])


def _copy_included_files(tree: Worktree, included: tuple[str, ...]) -> None:
    """Copy files into a worktree and link folders; existing ones stay."""
    for name in (*included, *tree.shared):
        old, new = Path(tree.repo.top, name), Path(tree.path, name)
        if not is_inside(os.path.realpath(old), tree.repo.top) or old.is_symlink() or new.exists():
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        if old.is_dir() and name in tree.shared:
            new.symlink_to(old)
        elif old.is_file():
            copy2(old, new)


def run_in_worktree(name: str, work: Callable[[], int]) -> int:
    """Run work in a worktree that is removed if unchanged; return the exit code."""
    if name and not WORKTREE_NAME.fullmatch(name):
        raise UserError(
            f"--worktree {name} is not a valid name", fix="Use letters, digits, dots and dashes."
        )
    before = os.getcwd()
    git = GitContext(before, DiskFiles(), LocalProcesses())
    try:
        tree = anyio.run(_find_or_create, git, name or f"{os.urandom(4).hex()}", _shared_folders())
    except ToolError as refusal:
        raise UserError("A worktree cannot be created here", why=str(refusal)) from None
    os.chdir(tree.root)
    try:
        return work()
    finally:
        os.chdir(before)
        if not anyio.run(tree.remove_if_unused):
            write_stderr(f"travois: {tree.note}\n")


def _shared_folders() -> tuple[str, ...]:
    """Return the folders that worktrees link instead of copying, as the settings say."""
    home, cwd = locate_home(os.environ), os.path.realpath(os.getcwd())
    loaded = load_settings(home, identify_project(home, cwd).root, cwd=cwd, environ=os.environ)
    return loaded.settings.worktree.symlink_directories


async def _find_or_create(git: GitContext, name: str, shared: tuple[str, ...]) -> Worktree:
    """Return the worktree of that name, created if there is none."""
    repo = await repository.find_repository(git)
    path = os.path.join(repo.top, WORKTREES_FOLDER, name)
    if os.path.isdir(path):
        return Worktree(git, repo, path, f"travois/{name}", shared)
    return await create_worktree(git, name, shared=shared)


def _ignore_worktrees(folder: Path) -> None:
    """Exclude the worktrees folder from what git reports in the workspace."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", "utf-8")


async def unsaved_work(tree: Worktree) -> str:
    """Describe the work that removing a worktree would lose; empty if none."""
    git, repo, ref = tree.git, tree.repo, f"refs/heads/{tree.branch}"
    there = msgspec.structs.replace(git, cwd=tree.path)
    holding = ("for-each-ref", "--contains", "HEAD", "--format=%(refname)", "refs/heads")
    changed = repository.decode_git_output(
        await repository.run_git_query(there, repo, ("status", "--porcelain"))
    )
    dirty = set(changed.splitlines()) - {f"?? {name}" for name in tree.shared}
    if dirty:
        some = ", ".join(sorted(line[3:] for line in dirty)[:5])
        return f"{len(dirty)} files have uncommitted changes ({some})"
    if repository.decode_git_output(
        await repository.run_git_query(there, repo, holding)
    ).split() == [ref]:
        return f"{tree.branch} has commits that no other branch has"
    return ""


async def discard_worktree(tree: Worktree) -> None:
    """Remove a worktree and its branch, with everything in them."""
    git, repo = tree.git, tree.repo
    async with _lock_worktrees(repo):
        await repository.run_git_query(git, repo, ("worktree", "remove", "--force", tree.path))
        await repository.run_git_query(git, repo, ("branch", "-q", "-D", tree.branch))


@asynccontextmanager
async def _lock_worktrees(repo: GitRepository) -> AsyncGenerator[None]:
    """Let one process at a time change a repository's worktrees.

    git looks at all of them, and fails at one that another git is just creating or removing.
    """
    _, common = repository_of(repo.top)
    folder = os.open(common, os.O_RDONLY)
    try:
        while not _try_lock(folder):  # noqa: ASYNC110 - of other processes, too
            await anyio.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(folder)


def _try_lock(folder: int) -> bool:
    """Lock a git folder for changes of its worktrees, unless another holds the lock."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _try_remove(tree: Worktree) -> bool:
    """Remove a worktree if it has no unsaved work; return whether it was removed."""
    try:
        if await unsaved_work(tree):
            return False
        await discard_worktree(tree)
    except (ToolError, OSError):
        return False
    return True
