"""Changing the permission mode of a running session."""

from __future__ import annotations

from msgspec.structs import replace

from travois.core.facts import Changed
from travois.engine.agent import Agent
from travois.permissions.decide import MODES, Mode

MODE = "mode"
"""The state of a session whose mode is no longer the one that it began with."""


def enter(agent: Agent, mode: Mode) -> None:
    """Switch to another mode and record it."""
    agent.session.append(Changed(MODE, mode))
    follow(agent, mode)


def follow(agent: Agent, name: str) -> None:
    """Apply a recorded mode to the permissions."""
    known = next((mode for mode in MODES if mode == name), agent.permissions.guard.mode)
    agent.permissions.guard = replace(agent.permissions.guard, mode=known)
