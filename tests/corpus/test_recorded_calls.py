"""Calls of real sessions: accepted as they were made, and executed with the recorded effect."""

from __future__ import annotations

import pytest
from bench.calls import measure
from bench.played_calls import play

from tests.corpus.recorded import FOLDER, needed

pytestmark = needed


def test_recorded_calls_of_other_agents_are_accepted() -> None:
    tallies = measure(FOLDER)
    codex, copilot = tallies["codex"], tallies["copilot-cli"]
    assert copilot.accepted == copilot.made
    assert codex.accepted["exec_command"] == codex.made["exec_command"]
    assert codex.accepted["apply_patch"] == codex.made["apply_patch"]
    claude = tallies["claude-code"]
    for tool in ("Bash", "Edit", "Grep", "Glob", "Write", "Task", "Agent", "Skill", "LSP"):
        assert claude.accepted[tool] == claude.made[tool], (tool, claude.refused)


def test_sampled_calls_have_the_recorded_effect_in_a_made_up_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRAVOIS_HOME", raising=False)
    played = play(FOLDER)
    assert played.pop("MultiEdit") == (0, 0), "no recorded session calls it"
    assert played == dict.fromkeys(played, (50, 50))
