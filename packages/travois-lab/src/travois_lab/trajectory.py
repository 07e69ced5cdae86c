"""Recorded sessions as models: the assistant's turns are played again, word for word."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from travois.core.errors import UserError
from travois_lab.objects import Json
from travois_lab.personas import HABITS
from travois_lab.positions import as_blocks
from travois_lab.talk import Prompt, Reply, State, flat

END = "(The recorded session ends here.)"


class Trajectory(msgspec.Struct, frozen=True):
    """One recorded session: what was said, in order, and the results that its tools gave."""

    session: Json
    messages: tuple[Json, ...]
    summaries: tuple[str, ...] = ()

    @property
    def humans(self) -> list[str]:
        """What people said before each turn of the model, in order.

        What they said while it was at work is left out: no turn began with that.
        """
        said: list[list[str]] = [[]]
        working = False
        for message in self.messages:
            if message.get("role") == "assistant" and said[-1]:
                said.append([])
            if message.get("origin") == "human" and not working:
                said[-1].append(flat(message["content"]))
            if message.get("origin") != "human":
                working = message.get("origin") == "tool"
        return ["\n".join(words) for words in said if words]

    def result(self, call: str) -> Json:
        """The recorded result of a call, for an agent whose tools are to act as they did then."""
        for message in self.messages:
            for block in as_blocks(message.get("content")):
                if block.get("type") == "tool_result" and block.get("tool_use_id") == call:
                    return block
        raise KeyError(call)

    def __call__(self, prompt: Prompt, state: State) -> Reply:
        """Play the turn that followed what was just said; an aside is answered by a summary."""
        at = self._place(prompt, int(str(state.get("at", 0))))
        if at is None:
            return HABITS["lab-summarizer"](prompt, 0)
        state["at"] = at + 1
        spoken = self._turn(at)
        if not spoken:
            return Reply(({"type": "text", "text": END},), stop="end_turn")
        return Reply(tuple(spoken))

    def _place(self, prompt: Prompt, start: int) -> int | None:
        """Which recorded message was just said to the model; None if none of them."""
        said = prompt.last
        answered = {b.get("tool_use_id") for b in said if b.get("type") == "tool_result"}
        words = prompt.last_text.strip()
        for i in [*range(start, len(self.messages)), *range(start)]:
            message = self.messages[i]
            if message.get("role") != "user":
                continue
            blocks = as_blocks(message.get("content"))
            if answered & {b.get("tool_use_id") for b in blocks if "tool_use_id" in b}:
                return i
            recorded = flat([b for b in blocks if b.get("type") == "text"]).strip()
            if not answered and recorded and recorded in words:
                return i
        return None

    def _turn(self, at: int) -> list[Json]:
        """The assistant's words between this message and the next; none if it was interrupted."""
        spoken: list[Json] = []
        working = self.messages[at].get("origin") == "tool"
        for message in self.messages[at + 1 :]:
            if message.get("role") != "assistant":
                if spoken or (working and message.get("origin") == "interrupt"):
                    break
                continue
            spoken += [_playable(block) for block in as_blocks(message.get("content"))]
        said = [block for block in spoken if str(block.get("text", "x")).strip()]
        while said and said[-1].get("type") == "thinking":
            said.pop()
        return said


def _playable(block: Json) -> Json:
    kept = ("type", "text", "thinking", "id", "name", "input")
    return {k: v for k, v in block.items() if k in kept}


def load_trajectory(path: str | Path) -> Trajectory:
    """The session in a file of format traj/1, packed or not."""
    try:
        raw = Path(path).read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read the session {path}", why=str(error)) from None
    rows: list[Json] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row: Any = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise UserError(f"{path}: line {number}", why=str(error)) from None
        rows.append(row)
    if not rows or rows[0].get("type") != "session":
        raise UserError(f"{path}: not a recorded session", why="its first line is no session line")
    said = tuple(row for row in rows if row.get("type") == "message")
    summaries = tuple(str(r.get("summary", "")) for r in rows if r.get("type") == "compaction")
    return Trajectory(rows[0], said, summaries)
