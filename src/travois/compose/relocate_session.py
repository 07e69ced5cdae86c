"""Moving a session between its first folder and a worktree, as its log says."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec.structs import replace

from travois.compose import sandbox
from travois.core.facts import Changed
from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.ports.agents import WORKTREE_STATE, WorktreeMove, decode_worktree_move
from travois.ports.tool import ToolError
from travois.ports.world import WorkspaceSnapshots
from travois.sandbox.policy import SandboxPolicy
from travois.sessions.home import find_repository
from travois.sessions.session import Session

with lazy_imports():
    from travois.compose import worktree


MakeSnapshots = Callable[[WorkspaceSnapshots, tuple[str, ...]], WorkspaceSnapshots | None]
"""Makes snapshots of other folders in the place of those so far."""


class SessionRelocation:
    """Keeps root, permissions, sandbox and snapshots of a session where its log says it works.

    Everything is derived from the state of the session, so that a resume, a rewind or a crash
    finds the session in the right folder.
    """

    def __init__(
        self, root: str, bounds: SandboxPolicy | None, make_snapshots: MakeSnapshots
    ) -> None:
        self._root, self._bounds, self._make_snapshots = root, bounds, make_snapshots

    def __call__(self, agent: Agent) -> None:
        """Move to where the log says; do nothing if already there."""
        moved = decode_worktree_move(agent.session.state.get(WORKTREE_STATE, ""))
        if moved is None and agent.world.root == self._root:
            return
        root = moved.root if moved else self._root
        held, left = agent.permissions, (self._root, agent.world.root)
        rest = (path for path in held.guard.folders if path not in left)
        folders = tuple(dict.fromkeys((root, *rest)))
        if agent.world.root == root and held.guard.folders == folders:
            return
        snapshots = agent.world.snapshots
        if snapshots is not None:
            snapshots, agent.turn.kept = self._make_snapshots(snapshots, folders), -1
        agent.use_world(replace(agent.world, root=root, snapshots=snapshots))
        held.guard = replace(held.guard, folders=folders)
        if self._bounds is not None and held.sandbox is not None:
            bounds = replace(self._bounds, free=held.sandbox.free)
            held.sandbox = sandbox.move_sandbox_policy(bounds, root) if moved else bounds


def leave_missing_worktree(session: Session, root: str) -> str:
    """Return a session to `root` if its worktree was removed; return a notice if so."""
    moved = decode_worktree_move(session.state.get(WORKTREE_STATE, ""))
    if moved is None or os.path.isdir(moved.root):
        return ""
    session.append(Changed(WORKTREE_STATE, ""))
    session.append(Changed("cwd", root))
    return f"the worktree {moved.path} no longer exists; the session is back in {root}"


def current_worktree(session: Session) -> str:
    """Return the worktree that a session has moved to; empty if it is where it began."""
    moved = decode_worktree_move(session.state.get(WORKTREE_STATE, ""))
    return moved.path if moved else ""


class SessionWorktrees:
    """Makes and removes the worktrees that a session moves to."""

    def __init__(self, agent: Agent, session: str, shared: tuple[str, ...]) -> None:
        self._agent, self._session, self._shared = agent, session, shared

    async def enter(self, name: str, *, path: str) -> WorktreeMove:
        """Make a worktree of that name, or find the one at that path."""
        agent = self._agent
        back = agent.world.root
        if path:
            found = await worktree.find_worktree(
                agent, os.path.join(back, os.path.expanduser(path))
            )
            return WorktreeMove(found.root, found.path, found.branch, back, own=False)
        if name and not worktree.WORKTREE_NAME.fullmatch(name):
            raise ToolError(f"{name!r} is not a valid name. Use letters, digits, dots and dashes.")
        name = name or self._session[:8]
        folder = os.path.join(find_repository(back)[0], worktree.WORKTREES_FOLDER, name)
        if os.path.isdir(folder):
            tree = await worktree.find_worktree(agent, folder)
        else:
            tree = await worktree.add_worktree(agent, name, shared=self._shared)
        # A folder in which nothing was committed is not in the worktree.
        root = tree.root if os.path.isdir(tree.root) else tree.path
        return WorktreeMove(root, tree.path, tree.branch, back)

    async def remove(self, moved: WorktreeMove, *, discard: bool) -> None:
        """Remove a worktree with its branch; refuses to lose work unless that is said."""
        tree = await worktree.worktree_at(self._agent, moved.back, moved.path, branch=moved.branch)
        lost = "" if discard else await worktree.unsaved_work(replace(tree, shared=self._shared))
        if lost:
            raise ToolError(
                f"The worktree was kept: {lost}. Commit or merge first, or ask the user and "
                "call again with discard_changes: true."
            )
        await worktree.discard_worktree(tree)
