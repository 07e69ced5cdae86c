"""Slash commands that start a piece of work: init, review, diff and add-dir."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import anyio.to_thread

from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import User
from travois.engine.agent import Agent
from travois.permissions.updates import PermissionUpdate, apply_permission_update
from travois.ports.world import Command
from travois.prompt.project_commands import draft_instructions
from travois.tui.slash import CommandHost, CommandPrompt, SlashCommand

INSTRUCTIONS_FILE = "AGENTS.md"
GIT_SECONDS = 30.0
UNCOMMITTED = "all that is not committed yet (git status, git diff, git diff --staged)"


def load_command_prompt(name: str) -> str:
    """Load the prompt file of a slash command such as /review."""
    return Path(__file__).with_name("prompts").joinpath(f"{name}.md").read_text("utf-8")


async def _run_init_command(host: CommandHost, more: str) -> str | CommandPrompt:
    """Run /init: write AGENTS.md, by the model or, without one, by rules."""
    if not host.session.runtime.model.is_frail:
        text = load_command_prompt("init")
        return CommandPrompt((Text(f"{text}\n{more}" if more else text),))
    path = os.path.join(host.session.runtime.agent.world.root, INSTRUCTIONS_FILE)
    if os.path.lexists(path):
        raise UserError(f"{INSTRUCTIONS_FILE} exists already", fix="Edit it, or remove it first.")
    text = await anyio.to_thread.run_sync(draft_instructions, os.path.dirname(path))
    await anyio.to_thread.run_sync(partial(Path(path).write_text, text, encoding="utf-8"))
    return f"Wrote {INSTRUCTIONS_FILE} from the project's own files; complete it by hand:\n\n{text}"


async def _run_review_command(host: CommandHost, what: str) -> CommandPrompt:
    """Run /review: let the model review the uncommitted changes, or the named ones."""
    named = f"{what} (a branch, a commit, a range, a pull request or files)"
    return CommandPrompt(
        (Text(load_command_prompt("review").replace("$WHAT", named if what else UNCOMMITTED)),)
    )


async def _run_diff_command(host: CommandHost, what: str) -> str:
    """Run /diff: show the uncommitted changes, or the difference to a commit."""
    agent = host.session.runtime.agent
    diff = await _run_git(
        agent, "diff", "--no-color", "--no-ext-diff", *(what.split() or ("HEAD",))
    )
    listed = "" if what else await _run_git(agent, "ls-files", "--others", "--exclude-standard")
    unknown = [f"not yet known to git: {name}" for name in listed.split("\n") if name]
    if diff:
        host.show_diff(diff)
    return "\n".join(unknown) or ("" if diff else "Nothing has changed.")


async def _run_git(agent: Agent, *words: str) -> str:
    """Run git in the workspace for /diff; raise `UserError` if it fails."""
    command = Command(("git", "--no-pager", *words), agent.world.root)
    done = await agent.world.processes.run(command, timeout=GIT_SECONDS)
    if done.status:
        why = done.errors.head_and_tail().decode(errors="replace").strip().partition("\n")[0]
        raise UserError("git cannot show the difference", why=why)
    return done.output.head_and_tail().decode(errors="replace").rstrip()


async def _run_add_dir_command(host: CommandHost, name: str) -> str:
    """Run /add-dir: let the session read and change another folder."""
    if not name:
        raise UserError("/add-dir needs a folder", fix="For example: /add-dir ../shared")
    agent = host.session.runtime.agent
    path = os.path.realpath(os.path.join(agent.world.root, os.path.expanduser(name)))
    if not os.path.isdir(path):
        raise UserError(f"{name} is not a folder")
    update = PermissionUpdate("addDirectories", directories=(path,), destination="localSettings")
    keep = await host.pick_option(
        f"Let this session read and change {path}?",
        (("yes, this session", ""), ("yes, and later sessions in this project", ""), ("no", "")),
    )
    if keep is None or keep == 2:
        return "Nothing was added."
    agent.permissions.guard = apply_permission_update(agent.permissions.guard, update)
    if keep == 1:
        agent.permissions.save_rules(update)
    note = f"The user added a folder to the workspace: {path}"
    agent.turn.inbox.append(User((Text(note),), origin="note"))
    return f"Added {path}."


WORK_COMMANDS = {
    "init": SlashCommand(
        "/init [WISHES]", "write AGENTS.md from this repository", _run_init_command
    ),
    "review": SlashCommand(
        "/review [WHAT]", "have changes reviewed: uncommitted ones, or WHAT", _run_review_command
    ),
    "diff": SlashCommand(
        "/diff [COMMIT]",
        "show uncommitted changes",
        _run_diff_command,
        when="ever",
    ),
    "add-dir": SlashCommand(
        "/add-dir FOLDER", "add a folder to the workspace", _run_add_dir_command
    ),
}
