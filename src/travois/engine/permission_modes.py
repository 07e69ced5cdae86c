"""Changing the permission mode of a running session."""

from __future__ import annotations

from msgspec.structs import replace

from travois.core.facts import Changed
from travois.engine.agent import Agent
from travois.permissions.decide import PERMISSION_MODES, PermissionMode

MODE_STATE = "mode"
"""The state of a session whose mode is no longer the one that it began with."""


def enter_mode(agent: Agent, mode: PermissionMode) -> None:
    """Switch to another mode and record it."""
    agent.session.append(Changed(MODE_STATE, mode))
    apply_mode(agent, mode)


def apply_mode(agent: Agent, name: str) -> None:
    """Apply a recorded mode to the permissions."""
    known = next((mode for mode in PERMISSION_MODES if mode == name), agent.permissions.guard.mode)
    agent.permissions.guard = replace(agent.permissions.guard, mode=known)
