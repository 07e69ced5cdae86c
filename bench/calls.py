"""How many recorded calls of other agents are accepted here.

`python -m bench calls SESSIONS_DIR [--json] [--run]`

A recorded call is accepted if its name resolves, its arguments validate, and each argument either
changes what happens or is answered in words. `engine.interpret` decides, as it does in a session.
Tools of MCP servers are left out. `--run` also executes a sample of the calls of each file and
search tool in a made-up repository, and compares what they did with what was recorded.
"""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from travois.core.content import Call
from travois.engine.interpret_call import MeaninglessCall, interpret_call
from travois.mcp.tools import McpTools
from travois.ports.tool import AnyTool
from travois.tools.catalog import TOOLS

SHOWN = 12
"""How many reasons for refusals are printed for each agent."""


class Recorded(msgspec.Struct, frozen=True):
    """One call, who made it, and what came of it there."""

    agent: str
    name: str
    input: dict[str, Any]
    result: str = ""
    error: bool = False
    cwd: str = ""
    """Where its session began."""


class Tally(msgspec.Struct):
    """How many calls were made and accepted, and why the others were not."""

    made: Counter[str] = msgspec.field(default_factory=Counter[str])
    accepted: Counter[str] = msgspec.field(default_factory=Counter[str])
    refused: Counter[str] = msgspec.field(default_factory=Counter[str])

    def report(self) -> dict[str, object]:
        """The shares, of all calls and by tool."""
        shares = {n: round(self.accepted[n] / m, 4) for n, m in self.made.most_common()}
        share = self.accepted.total() / max(1, self.made.total())
        return {"accepted": round(share, 4), "calls": self.made.total(), "by_tool": shares}


def main(args: list[str]) -> None:
    folder = next((Path(word) for word in args if not word.startswith("-")), None)
    if folder is None or not folder.is_dir():
        raise SystemExit("usage: python -m bench calls SESSIONS_DIR [--json] [--run]")
    tallies = measure(folder)
    if "--json" in args:
        found = {agent: tally.report() for agent, tally in sorted(tallies.items())}
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        for agent, tally in sorted(tallies.items()):
            print_tally(agent, tally)
    if "--run" in args:
        from bench.played_calls import print_played

        print_played(folder)


def measure(folder: Path) -> dict[str, Tally]:
    """What becomes of every recorded call, by agent."""
    tools, tallies = known_tools(), dict[str, Tally]()
    for call in recorded_calls(folder):
        tally = tallies.setdefault(call.agent, Tally())
        tally.made[call.name] += 1
        if why := refusal(call, tools):
            tally.refused[f"{call.name}: {why}"[:150]] += 1
        else:
            tally.accepted[call.name] += 1
    return tallies


def refusal(call: Recorded, tools: dict[str, AnyTool]) -> str:
    """Why a call would not run; empty if it would."""
    text = msgspec.json.encode(call.input).decode()
    try:
        interpret_call(Call("recorded", call.name, text), tools)
    except MeaninglessCall as error:
        return str(error)
    return ""


def known_tools() -> dict[str, AnyTool]:
    """All tools that a session can have, with those for servers."""
    return {tool.name: tool for tool in (*TOOLS, *McpTools(()).head_tools)}


def recorded_calls(folder: Path) -> Iterator[Recorded]:
    """The calls of built-in tools in all sessions of a folder, in order."""
    for path in sorted((*folder.glob("*.jsonl.gz"), *folder.glob("*.jsonl"))):
        yield from _session_calls(path)


def _session_calls(path: Path) -> Iterator[Recorded]:
    rows = list(_rows(path))
    head = next((row for row in rows if row.get("type") == "session"), {})
    agent, cwd = str(head.get("agent") or "unknown"), str(head.get("cwd") or "")
    blocks = [block for row in rows if row.get("type") == "message" for block in row["content"]]
    results = {b["tool_use_id"]: b for b in blocks if b.get("type") == "tool_result"}
    for block in blocks:
        if block.get("type") == "tool_use" and _is_built_in(agent, block["name"]):
            brought = results.get(block["id"], {})
            yield Recorded(
                agent,
                block["name"],
                block["input"] if isinstance(block["input"], dict) else {},
                str(brought.get("content") or ""),
                error=bool(brought.get("is_error")),
                cwd=cwd,
            )


def _is_built_in(agent: str, name: str) -> bool:
    """Whether a tool is the agent's own; Codex records a server's tools without its name."""
    return not name.startswith("mcp__") and not (agent == "codex" and name.startswith("_"))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        found = msgspec.json.decode(line)
        if isinstance(found, dict):
            yield cast("dict[str, Any]", found)


def print_tally(agent: str, tally: Tally) -> None:
    made, accepted = tally.made.total(), tally.accepted.total()
    print(f"{agent:12} {accepted:6} of {made:6} calls accepted  {accepted / max(1, made):7.2%}")
    for name, count in tally.made.most_common():
        if tally.accepted[name] < count:
            print(f"  {name:18} {tally.accepted[name]:6} of {count:6}")
    for why, count in tally.refused.most_common(SHOWN):
        print(f"    {count:5}  {why}")


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    main(sys.argv[1:])
