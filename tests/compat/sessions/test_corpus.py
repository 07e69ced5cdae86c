"""Recorded sessions of real agents, written as each agent writes them, and read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.compat.sessions import writing
from tests.corpus.recorded import FOLDER, needed, sessions
from travois.compat.sessions import claude, codex, traj
from travois.compat.sessions.format import RecordedTurn


def turns(name: str) -> list[RecordedTurn]:
    """What was said, at times that all formats can tell."""
    said = traj.read_traj_session(FOLDER / name).turns
    return [replace(turn, at=float(int(turn.at % 3600)), error=False) for turn in said]


@needed
@pytest.mark.parametrize("name", sessions(every=40))
def test_a_real_session_is_read_as_it_was_said(name: str, tmp_path: Path) -> None:
    said = turns(name)
    chain = claude.read_session(writing.put(tmp_path / "s.jsonl", writing.claude(said)))
    items = codex.read_session(writing.put(tmp_path / "r.jsonl", writing.codex(said)))
    for found in (chain, items):
        plain = [(turn.text, turn.at) for turn in found.turns if turn.text]
        assert plain == [(turn.text, turn.at) for turn in said if turn.text]
        calls = [(c.id, c.name, json.loads(c.args)) for turn in found.turns for c in turn.calls]
        assert calls == [(c.id, c.name, json.loads(c.args)) for turn in said for c in turn.calls]
