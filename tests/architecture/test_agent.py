"""The Agent: few parts, built once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from travois.engine.agent import Agent

SRC = Path(__file__).parents[2] / "src" / "travois"
AGENTS = {"agent", "_agent", "child", "parent"}
CHANGING = {
    "turn.*": "what changes while turns run",
    "permissions.guard": "mode and rules change with answers and settings",
    "permissions.sandbox": "the person may open or close it",
    "hooks.active": "made when the first hook joins",
    "team.on_child": "front ends follow the agents that are started",
    "team.naming.watched": "a front end shows the names",
    "budget.warned": "a budget counts what is spent",
    "runtime.background": "set by whoever runs the agent",
    "runtime.stays_open": "front ends that wait between turns say so",
}
"""What may be assigned outside `engine/agent.py`, and why."""


def test_an_agent_has_at_most_fifteen_parts() -> None:
    assert len(Agent.__struct_fields__) <= 15


def test_nobody_but_the_agent_exchanges_its_parts() -> None:
    found = [
        f"{path.relative_to(SRC)}:{line} {name}"
        for path in sorted(SRC.rglob("*.py"))
        if path != SRC / "engine" / "agent.py"
        for line, name in _assigned(ast.parse(path.read_text("utf-8")))
        if name not in CHANGING and f"{name.partition('.')[0]}.*" not in CHANGING
    ]
    assert found == []


def _assigned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The parts of agents, and the fields of these, that are assigned: `team`, `team.tasks`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            path = _path(node)
            for at in range(len(path) - 1):
                if path[at] in AGENTS and path[at + 1] in Agent.__struct_fields__:
                    yield node.lineno, ".".join(path[at + 1 :])


def _path(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else []
