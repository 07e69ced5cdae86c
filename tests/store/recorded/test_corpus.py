"""Recorded sessions of real agents, written as each agent writes them, and read again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.corpus.recorded import FOLDER, needed, sessions
from tests.store.recorded import writing
from travois.kernel.blocks import Call
from travois.store.recorded import claude, codex
from travois.store.recorded.spoken import Spoken, moment


def turns(name: str) -> list[Spoken]:
    """What was said, a line for each."""
    found: list[Spoken] = []
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record["type"] == "message":
                found += message(record)
    return found


def message(record: dict[str, object]) -> list[Spoken]:
    at = float(int(moment(record.get("ts")) % 3600))
    blocks: list[dict[str, object]] = record["content"]  # type: ignore[assignment]
    text = "\n".join(str(b["text"]) for b in blocks if b["type"] == "text" and b["text"])
    if record["role"] == "assistant":
        calls = tuple(
            Call(str(b["id"]), str(b["name"]), json.dumps(b["input"], separators=(",", ":")))
            for b in blocks
            if b["type"] == "tool_use"
        )
        return [Spoken("model", text, at, calls)] if text or calls else []
    said = [
        Spoken("tool", str(b["content"]), at, answers=str(b["tool_use_id"]))
        for b in blocks
        if b["type"] == "tool_result"
    ]
    human = record["origin"] == "human"
    return [*said, Spoken("user" if human else "note", text, at)] if text else said


@needed
@pytest.mark.parametrize("name", sessions(every=40))
def test_a_real_session_is_read_as_it_was_said(name: str, tmp_path: Path) -> None:
    said = turns(name)
    chain = claude.read(writing.put(tmp_path / "s.jsonl", writing.claude(said)))
    items = codex.read(writing.put(tmp_path / "r.jsonl", writing.codex(said)))
    for found in (chain, items):
        plain = [(turn.text, turn.at) for turn in found.turns if turn.text]
        assert plain == [(turn.text, turn.at) for turn in said if turn.text]
        calls = [(c.id, c.name, json.loads(c.args)) for turn in found.turns for c in turn.calls]
        assert calls == [(c.id, c.name, json.loads(c.args)) for turn in said for c in turn.calls]
