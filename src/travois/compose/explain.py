"""Explaining which configuration is in effect in a folder, and what permissions decide."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from travois.compose import mcp, permissions, skills
from travois.compose.open_session import Workspace
from travois.compose.options import Options
from travois.compose.session import load_agent_types
from travois.compose.skills import compose_instructions
from travois.core.content import Call
from travois.core.tool_names import canonical_call
from travois.permissions.access import Access
from travois.permissions.decide import (
    MODE_ALIASES,
    PERMISSION_MODES,
    PermissionDecision,
    PermissionMode,
    Permissions,
    decide_permission,
)
from travois.permissions.resolve_paths import (
    home_folder,
    parse_plain_arguments,
    plan_command_lines,
    resolve_accesses,
)
from travois.permissions.rules import PermissionRule, ToolUse, parse_permission_rule
from travois.ports.tool import CallLocation, ToolError
from travois.prompt.output_styles import load_styles
from travois.settings.schema import LoadedSettings
from travois.skills.command_files import load_commands
from travois.tools.catalog import TOOLS


class EffectivePart(msgspec.Struct, frozen=True):
    """One effective part in a line, and the file it comes from."""

    value: str
    origin: str


EffectiveParts = Iterator[tuple[str, EffectivePart]]


def list_effective_parts(workspace: Workspace, loaded: LoadedSettings) -> dict[str, EffectivePart]:
    """List all configuration in effect by key, as in `skills.deploy`, for explanation."""
    return {
        f"{part}.{name}": told
        for part, find in PART_LISTERS.items()
        for name, told in find(workspace, loaded)
    }


def _list_instructions(workspace: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    """List the instruction files in effect in a folder, in order."""
    guard = permissions.compose_permissions(loaded, workspace.cwd, own=workspace.home.folders)
    files = compose_instructions(workspace, loaded, guard, sources="").load_always().files
    yield from ((str(at), EffectivePart(one.kind, one.path)) for at, one in enumerate(files, 1))


def _list_agents(workspace: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    for kind in load_agent_types(workspace, loaded, Options())[0]:
        yield kind.name, EffectivePart(kind.description, kind.origin)


def _list_commands(workspace: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    found, _ = load_commands(
        workspace.home, workspace.project.root, workspace.cwd, plugins=loaded.plugins
    )
    yield from ((name, EffectivePart(one.description, one.origin)) for name, one in found.items())


def _list_skills(workspace: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    """List the skills in effect in a folder, with their files."""
    for skill in skills.compose_skills(workspace, loaded, Options()).load_always().skills:
        if skill.is_skill:
            yield skill.name, EffectivePart(skill.description, skill.origin)


def _list_styles(workspace: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    for style in load_styles(skills.skill_folders(workspace, loaded, Options()))[0].values():
        yield style.name, EffectivePart(style.description, style.origin)


def _list_servers(workspace: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    """List the MCP servers in effect in a folder, including those that wait for approval."""
    found = mcp.find_configured_servers(workspace, loaded, Options())
    for one in found.servers:
        yield one.name, EffectivePart(one.url or " ".join(one.argv), one.origin)
    for entry in found.waiting:
        yield entry.name, EffectivePart("needs approval: travois trust", entry.origin)


def _list_rules(_: Workspace, loaded: LoadedSettings) -> EffectiveParts:
    """List the permission rules in effect in a folder, with their origins."""
    for at, rule in enumerate(loaded.rules, 1):
        others = ", ".join(other.text for other in rule.unless)
        but = f" except {others}" if others else ""
        yield str(at), EffectivePart(f"{rule.effect} {rule.text}{but}", rule.origin)


PART_LISTERS: dict[str, Callable[[Workspace, LoadedSettings], EffectiveParts]] = {
    "instructions": _list_instructions,
    "agents": _list_agents,
    "commands": _list_commands,
    "skills": _list_skills,
    "outputStyles": _list_styles,
    "mcpServers": _list_servers,
    "rules": _list_rules,
}


# What a call would come to, without running it.


class RuleTexts(msgspec.Struct, frozen=True):
    """Permission rules as settings write them."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def parse(self, origin: str = "") -> tuple[PermissionRule, ...]:
        """Parse the rules; raises ValueError with what is wrong with one."""
        return (
            *(parse_permission_rule(text, "deny", origin=origin) for text in self.deny),
            *(parse_permission_rule(text, "ask", origin=origin) for text in self.ask),
            *(parse_permission_rule(text, "allow", origin=origin) for text in self.allow),
        )


class PermissionCase(msgspec.Struct, frozen=True):
    """A call to judge: tool and input, mode, rules and folder."""

    id: str | int = ""
    tool: str = "Bash"
    input: msgspec.Raw = msgspec.Raw(b"{}")
    mode: str = "default"
    rules: RuleTexts = RuleTexts()
    workspace: str = ""
    cwd: str = ""


def find_mode(name: str) -> PermissionMode:
    """Return the permission mode with this name, or another agent's name for it."""
    for mode in PERMISSION_MODES:
        if mode == name:
            return mode
    found = MODE_ALIASES.get(name)
    if found is None:
        raise ValueError(f"unknown mode {name!r}; choose one of: {', '.join(PERMISSION_MODES)}")
    return found


def decide_without_running(
    permissions: Permissions, tool: str, args: str, *, here: CallLocation
) -> PermissionDecision:
    """Decide whether a tool call is permitted, without running it."""
    try:
        use = context_of_call(tool, args, here=here)
    except (ToolError, msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return PermissionDecision("deny", f"it cannot run: {error}")
    return decide_permission(permissions, use)


def context_of_call(tool: str, args: str, *, here: CallLocation) -> ToolUse:
    """Describe an example call as permission rules see it; an unknown tool may do anything."""
    meant = canonical_call(Call("", tool, args))
    tool, args = meant.name, meant.args
    if folder := dict(parse_plain_arguments(args)).get("workdir"):
        here = replace(here, cwd=os.path.join(here.cwd, folder))
    known = next((one for one in TOOLS if one.name == tool), None)
    accesses: tuple[Access, ...] = (Access("spawn", tool),)
    if known is not None:
        accesses = known.access(msgspec.json.decode(args, type=known.args, strict=False), here)
    accesses = resolve_accesses(accesses, here)
    return ToolUse(
        tool,
        accesses,
        here.root,
        home_folder(),
        plans=plan_command_lines(accesses, here),
        params=parse_plain_arguments(args),
        exported=frozenset(os.environ),
    )


def decide_case(case: PermissionCase, *, own: tuple[str, ...]) -> PermissionDecision:
    """Decide a permission test case and explain the decision."""
    root = os.path.realpath(case.workspace or os.getcwd())
    cwd = os.path.realpath(os.path.join(root, case.cwd))
    try:
        rules, mode = case.rules.parse(), find_mode(case.mode)
    except ValueError as error:
        return PermissionDecision("deny", str(error))
    guard = Permissions(mode, rules, (root,), own=own)
    return decide_without_running(
        guard, case.tool, bytes(case.input).decode(), here=CallLocation(root, cwd)
    )
