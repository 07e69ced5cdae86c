"""Slash commands about permissions and hooks."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from travois.compose import hooks
from travois.compose.session import load_workspace
from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.settings.sources import ANSWERS_SOURCE
from travois.terminal import format_table
from travois.tui.slash import CommandHost, SlashCommand, capture_output, parse_command_line

with lazy_imports():
    from travois.commands import permissions


# /permissions and /hooks.

PERMISSION_WORDS = ("why", "forget", "mode")


async def _run_permissions_command(host: CommandHost, typed: str) -> str:
    """Run /permissions: show rules, explain decisions, set the mode."""
    word, _, rest = typed.partition(" ")
    guard, rest = host.session.runtime.agent.permissions.guard, rest.strip()
    match word:
        case "":
            bounds = host.session.runtime.agent.permissions.sandbox
            origin = "your answer, or the settings" if bounds is not None and bounds.free else ""
            rules = permissions.render_rule_table(guard.rules, sandboxed=origin)
            return f"Mode {guard.mode}.\n\n{rules}"
        case "why":
            flags = ("--mode", guard.mode, "--settings", host.options.settings)
            args = parse_command_line(
                permissions.register_permissions, ("permissions", "why", *flags, "--", rest)
            )
            return await capture_output(host, partial(permissions.run_permissions_why, args))
        case "forget":
            return await _forget_rule(host, rest)
        case "mode":
            host.session.enter(rest)
            return f"The mode is {host.session.runtime.agent.permissions.guard.mode}."
        case _:
            fix = f"Use {', '.join(PERMISSION_WORDS)}."
            raise UserError(f"Unknown subcommand: /permissions {word}", fix=fix)


async def _forget_rule(host: CommandHost, rule: str) -> str:
    """Remove a saved permission answer, for this session and later ones."""
    args = parse_command_line(
        permissions.register_permissions, ("permissions", "forget", "--", rule)
    )
    await capture_output(host, partial(permissions.run_permissions_forget, args))
    agent = host.session.runtime.agent
    if rule == permissions.SANDBOXED_COMMANDS and agent.permissions.sandbox is not None:
        agent.permissions.sandbox = replace(agent.permissions.sandbox, free=False, offered=True)
    answers = {(rule, origin) for origin in (ANSWERS_SOURCE, "your answer")}
    left = (one for one in agent.permissions.guard.rules if (one.text, one.origin) not in answers)
    agent.permissions.guard = replace(agent.permissions.guard, rules=tuple(left))
    return f"{rule} is no longer allowed by your answer."


async def _run_hooks_command(host: CommandHost, _: str) -> str:
    found, notices = hooks.load_hooks(load_workspace(host.options)[1])
    if not found and not notices:
        return "No hooks are configured."
    rows = [(one.event, one.matcher or "*", one.origin, one.name) for one in found]
    return "\n".join((format_table([("EVENT", "MATCHER", "SOURCE", "RUNS"), *rows]), *notices))


PERMISSION_COMMANDS = {
    "permissions": SlashCommand(
        "/permissions [WORD …]",
        "show rules; why COMMAND, forget RULE, mode NAME",
        _run_permissions_command,
        lambda desk: PERMISSION_WORDS,
        when="ever",
    ),
    "hooks": SlashCommand(
        "/hooks", "list hooks and where they come from", _run_hooks_command, when="ever"
    ),
}
