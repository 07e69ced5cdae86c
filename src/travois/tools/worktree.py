"""EnterWorktree and ExitWorktree: moving a session into a git worktree, and back."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.ports.agents import WORKTREE_STATE, WorktreeMove, Worktrees, decode_worktree_move
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env


class EnterArgs(msgspec.Struct, frozen=True):
    """The name of a new worktree, or the path of an existing one."""

    name: str = ""
    path: Annotated[str, msgspec.Meta(description="an existing worktree of this repository")] = ""


class ExitArgs(msgspec.Struct, frozen=True):
    """The way to leave the worktree."""

    action: Literal["keep", "remove"] = "keep"
    discard_changes: bool = False


async def _run_enter_worktree(args: EnterArgs, env: Env, call: str) -> ToolOutcome:
    """Run the EnterWorktree tool: move the session into a git worktree."""
    if moved := decode_worktree_move(env.state.get(WORKTREE_STATE, "")):
        raise ToolError(f"The session is in the worktree {moved.path}. Use ExitWorktree first.")
    if args.name and args.path:
        raise ToolError("Give name for a new worktree or path for an existing one, not both.")
    moved = await _require_worktrees(env).enter(args.name, path=args.path)
    return text_outcome(
        f"Now working in {moved.root} on branch {moved.branch}. "
        "ExitWorktree returns and keeps or removes the worktree.",
        changes=(_worktree_state(moved), Changed("cwd", moved.root)),
    )


async def _run_exit_worktree(args: ExitArgs, env: Env, call: str) -> ToolOutcome:
    """Run the ExitWorktree tool: move the session back, and keep or remove the worktree."""
    moved = decode_worktree_move(env.state.get(WORKTREE_STATE, ""))
    if moved is None:
        raise ToolError("The session is not in a worktree entered with EnterWorktree.")
    back = (Changed(WORKTREE_STATE, ""), Changed("cwd", moved.back))
    if args.action == "keep":
        kept = f"The worktree {moved.path} is kept, on branch {moved.branch}."
        return text_outcome(f"Back in {moved.back}. {kept}", changes=back)
    if not moved.own:
        raise ToolError(f"{moved.path} existed before this session: use action keep.")
    await _require_worktrees(env).remove(moved, discard=args.discard_changes)
    told = f"Back in {moved.back}. Removed {moved.path} and {moved.branch}."
    return text_outcome(told, changes=back)


def _require_worktrees(env: Env) -> Worktrees:
    """Return the main session's git worktrees; raise `ToolError` in subagents."""
    if env.worktrees is None:
        raise ToolError("Only the main session can move to a worktree.")
    return env.worktrees


def _worktree_state(moved: WorktreeMove) -> Changed:
    return Changed(WORKTREE_STATE, msgspec.json.encode(moved).decode())


def _exit_worktree_access(args: ExitArgs) -> tuple[Access, ...]:
    """Return the access of removing a worktree; losing work always needs approval."""
    return (Access("spawn", "the removal of a worktree", asks=args.discard_changes),)


ENTER_WORKTREE = Tool(
    name="EnterWorktree",
    description=("Only if the user asks for a worktree: create a git worktree and work there."),
    args=EnterArgs,
    access=lambda args, here: (Access("spawn", "work in a git worktree"),),
    run=_run_enter_worktree,
    summary=lambda args: f"Work in the git worktree {args.path or args.name}".strip(),
    deferred=True,
)

EXIT_WORKTREE = Tool(
    name="ExitWorktree",
    description="Leave the worktree from EnterWorktree; keep or remove it.",
    args=ExitArgs,
    access=lambda args, here: _exit_worktree_access(args) if args.action == "remove" else (),
    run=_run_exit_worktree,
    summary=lambda args: (
        f"Leave the git worktree and {args.action} it"
        f"{' and discard its changes' if args.discard_changes else ''}"
    ),
    deferred=True,
)
