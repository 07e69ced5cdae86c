"""Changing what may run unasked while a session goes on."""

from __future__ import annotations

from msgspec.structs import replace

from travois.core.facts import Changed
from travois.engine.agent import Agent
from travois.permissions.decide import MODES, Mode

MODE = "mode"
"""The state of a session whose mode is no longer the one that it began with."""


def enter(agent: Agent, mode: Mode) -> None:
    """Go on in another mode, on record."""
    agent.session.append(Changed(MODE, mode))
    follow(agent, mode)


def follow(agent: Agent, name: str) -> None:
    """Let the guard keep to a mode that is on record."""
    known = next((mode for mode in MODES if mode == name), agent.permissions.guard.mode)
    agent.permissions.guard = replace(agent.permissions.guard, mode=known)
