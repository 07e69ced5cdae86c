"""Recorded sessions of real agents, told as facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.steps import rename

from travois.compat.sessions import traj
from travois.core.content import AnyBlock, Call, Opaque, Text
from travois.core.facts import AnyFact, Assistant, Epoch, Result, ToolSpec, User
from travois.core.models import ApiProtocol, ModelCard, Usage

FOLDER = Path(__file__).parents[3] / "shared" / "lab" / "trajectories"
needed = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the recorded sessions are not beside this checkout"
)


def sessions(every: int = 1) -> list[str]:
    return [path.name for path in sorted(FOLDER.glob("*.jsonl.gz"))][::every]


def facts(name: str, protocol: ApiProtocol) -> Iterator[AnyFact]:
    """The whole history of one session, as it would stand in a log of ours."""
    yield Epoch(
        ModelCard("corpus", "recorded", protocol),
        "system",
        (ToolSpec("Bash", "Run", '{"type":"object"}'),),
    )
    used: dict[str, int] = {}
    rows: list[dict[str, Any]] = traj.read_traj_records(FOLDER / name)
    for record in rows:
        if record["type"] == "message":
            rename(record["content"], used)
            yield from _message(record)


def _message(record: dict[str, Any]) -> Iterator[AnyFact]:
    blocks = record["content"]
    if record["role"] == "assistant":
        yield _reply(record)
        return
    for block in blocks:
        if block["type"] == "tool_result":
            said = (Text(block["content"]),)
            yield Result(block["tool_use_id"], said, error=bool(block.get("is_error")))
    text = tuple(Text(block["text"]) for block in blocks if block["type"] == "text")
    if text:
        yield User(text, origin="human" if record["origin"] == "human" else "note")


def _reply(record: dict[str, Any]) -> Assistant:
    content = tuple(_block(block) for block in record["content"])
    stop = "calls" if any(isinstance(block, Call) for block in content) else "end"
    usage = record.get("usage") or {}
    counted = Usage(
        input=usage.get("input_tokens", 0),
        read=usage.get("cache_read_input_tokens", 0),
        write=usage.get("cache_creation_input_tokens", 0),
        output=usage.get("output_tokens", 0),
    )
    return Assistant(content, stop, counted, model=record.get("model", ""))


def _block(block: dict[str, Any]) -> AnyBlock:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "tool_use":
            return Call(block["id"], block["name"], json.dumps(block["input"]))
        case kind:
            return Opaque("anthropic", kind, json.dumps({**block, "signature": "recorded"}))
