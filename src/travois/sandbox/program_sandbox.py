"""The sandbox of programs that the user configured: hooks and MCP servers."""

from __future__ import annotations

from msgspec.structs import replace

from travois.permissions.decide import Permissions
from travois.permissions.paths import is_inside
from travois.permissions.rules import ToolUse
from travois.permissions.sandbox_profile import SandboxProfile
from travois.sandbox.policy import SandboxPolicy, build_sandbox_profile


def build_program_profile(
    bounds: SandboxPolicy, guard: Permissions, *, shown: tuple[str, ...] = ()
) -> SandboxProfile:
    """Return the sandbox profile of a hook or an MCP server.

    It may write in the workspace except for protected paths, and reach what the settings allow.
    `shown` are the folders of its own files, which may be in a home that the sandbox hides.
    """
    walls = build_sandbox_profile(bounds, guard, ToolUse("", (), guard.folders[0]), profile="work")
    assert walls is not None, "a given profile always has a sandbox"
    # Shown paths are read-only, so a program's folders in the workspace must not be among them.
    own = (*guard.folders, *bounds.writable)
    apart = tuple(path for path in shown if not any(is_inside(path, folder) for folder in own))
    network = bounds.network or ("listed" if bounds.hosts else "off")
    sifted = network == "on" and bool(bounds.barred)
    return replace(
        walls,
        network="listed" if sifted else network,
        hosts=("*",) if sifted else bounds.hosts,
        writable=bounds.writable,
        shown=(*walls.shown, *apart),
    )
